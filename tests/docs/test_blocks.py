"""Every command and every Python block of the documentation runs, page by page, in the order it is read.

Training is shrunk; a command that needs data, a program or a device that is absent here is left out, and the page's
test then says so after the rest has run.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from tsnn.cli.main import app
from tsnn.config import Config
from tsnn.evaluation.catalog import list_data

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted(path for path in (ROOT / "docs").rglob("*.md") if path.name not in ("log.md", "results.md"))
TINY = {"train.epochs": 1, "model.stalk_dim": 8, "model.hidden_dim": 8, "model.num_neighbors": 4}
EXTRAS = {"serve": "fastapi", "log": "fastapi", "tune": "optuna"}
ENTRY = [sys.executable, "-m", "tsnn.cli.main"]


@dataclass(frozen=True)
class Block:
    language: str
    body: str
    line: int


def blocks(page: Path) -> list[Block]:
    """Fenced blocks of a page that are to be run.

    An included file is run by the tests of its own folder; the edits of a guide are applied by `test_extending`.
    """
    text = page.read_text()
    found = [
        Block(match[1], match[2], text.count("\n", 0, match.start()) + 1)
        for match in re.finditer(r"^```(\w+)\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)
    ]
    return [block for block in found if block.language != "diff" and not block.body.startswith("--8<--")]


PAGES_WITH_BLOCKS = [page for page in PAGES if blocks(page)]


@dataclass
class Session:
    """What the blocks of one page share: a folder, Python names, a service in the background, what was left out."""

    folder: Path
    port: int
    names: dict[str, Any] = field(default_factory=lambda: {"__name__": "docs"})
    services: list[subprocess.Popen[bytes]] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)

    def run(self, block: Block, page: Path) -> None:
        if block.language == "python":
            exec(compile(block.body, f"{page.name}:{block.line}", "exec"), self.names)
            return
        for line in block.body.replace("\\\n", " ").splitlines():
            words = shlex.split(line.removeprefix("$ "), comments=True)
            if words:
                self.command(words)

    def command(self, words: list[str]) -> None:
        missing = needs(words)
        if missing:
            self.left_out.append(f"{shlex.join(words)} needs {missing}")
        elif words[0] == "make":
            assert set(words[1:]) <= make_targets(), shlex.join(words)
        elif words[0] == "tsnn" and words[-1] == "&":
            self.start(words[1:-1])
        elif words == ["kill", "%1"]:
            self.stop()
        elif words[0] == "tsnn":
            result = CliRunner().invoke(app, shrunk(words[1:]))
            assert result.exit_code == 0, f"{shlex.join(words)}\n{result.output}\n{result.exception!r}"
        else:
            done = subprocess.run(self._local(words), capture_output=True, text=True, check=False)
            assert done.returncode == 0, f"{shlex.join(words)}\n{done.stderr}"
            assert '"error"' not in done.stdout, f"{shlex.join(words)}\n{done.stdout}"

    def start(self, words: list[str]) -> None:
        self.services.append(subprocess.Popen([*ENTRY, *self._local(words)], stderr=subprocess.DEVNULL))
        for _ in range(600):
            with socket.socket() as client:
                if client.connect_ex(("localhost", self.port)) == 0:
                    return
            assert self.services[-1].poll() is None, "the service has ended"
            time.sleep(0.1)
        raise AssertionError("the service does not listen")

    def _local(self, words: list[str]) -> list[str]:
        """The documented port is a common one; the test takes a free one."""
        return [re.sub(r"\b8000\b", str(self.port), word) for word in words]

    def stop(self) -> None:
        for service in self.services:
            service.terminate()
            service.wait(30)


def needs(words: list[str]) -> str:
    """What this command needs and does not have here; empty if nothing."""
    absent = {entry.address for entry in list_data() if not entry.present}
    told = [word for word in words if word in absent]
    if told:
        return f"the data {told[0]}, absent here"
    if "train.device=cuda" in words and not torch.cuda.is_available():
        return "a GPU, absent here"
    extra = EXTRAS.get(words[1]) if words[0] == "tsnn" and len(words) > 1 else None
    if extra and find_spec(extra) is None:
        return f"the package {extra}, absent here"
    if words[0] == "curl" and shutil.which("curl") is None:
        return "curl, absent here"
    return ""


def shrunk(words: list[str]) -> list[str]:
    """The same command with little to do."""
    tiny = [part for name, value in TINY.items() for part in ("--set", f"{name}={value}")]
    if words[0] == "demo":
        return ["train", "synthetic:roles:events=600", *words[1:], *tiny]
    if words[0] == "train":
        return [*words, *tiny]
    if words[0] == "verify":
        return [*words, "--sample", "2"]
    if words[0] == "tune":
        return [*words, "--trials", "1", "--workers", "1", *tiny[:2]]
    if words[:2] == ["bench", "engine"]:
        return [*words, *tiny]
    return words


def make_targets() -> set[str]:
    return set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))


@pytest.fixture
def session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data_root: Path) -> Iterator[Session]:
    build = Config.build.__func__

    def tiny_build(
        cls: type[Config], path: Path | None = None, overrides: dict[str, Any] | None = None, preset: str | None = None
    ) -> Config:
        stored = path is not None and path.name == "config.toml"  # a run's own settings stay as they are
        config: Config = build(cls, path, overrides if stored else TINY | (overrides or {}), preset)
        return config

    monkeypatch.setattr(Config, "build", classmethod(tiny_build))
    monkeypatch.setenv("TSNN_DATA", str(data_root))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "examples").symlink_to(ROOT / "examples")  # pages are read inside a clone
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        port = probe.getsockname()[1]
    running = Session(tmp_path, port)
    yield running
    running.stop()


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES_WITH_BLOCKS, ids=lambda page: page.relative_to(ROOT / "docs").as_posix())
def test_the_blocks_of_the_page_run(page: Path, session: Session) -> None:
    for block in blocks(page):
        session.run(block, page)
    if session.left_out:
        pytest.skip("the rest ran; " + "; ".join(session.left_out))


def test_every_block_says_what_it_is() -> None:
    """Only what can be run, or applied, is fenced with a language; drawings are indented."""
    for page in PAGES:
        text = page.read_text()
        opened = re.findall(r"^```(\S*)", text, flags=re.MULTILINE)[::2]
        assert set(opened) <= {"python", "sh", "diff"}, page


def test_a_failing_block_would_be_seen(session: Session, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("```python\nassert False\n```\n\n```sh\ntsnn data show absent.csv\n```\n")
    first, second = blocks(page)
    with pytest.raises(AssertionError):
        session.run(first, page)
    with pytest.raises(AssertionError, match=r"absent\.csv"):
        session.run(second, page)


def test_absent_data_is_left_out_and_named(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TSNN_DATA", str(session.folder))
    session.command(["tsnn", "evaluate", "recency", "dgb:CanParl"])
    assert session.left_out == ["tsnn evaluate recency dgb:CanParl needs the data dgb:CanParl, absent here"]
