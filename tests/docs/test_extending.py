"""The guide to extending: its own lines, applied to a copy of the source, make what it says, in the files it says."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "how-to" / "extending.md").read_text()
SOURCE = "src/tsnn/"
MOST = {  # source files that a change of a kind may touch
    "a fact": 3,
    "a learned column of the score": 3,
    "a switch of the recurrence": 6,
    "a baseline": 1,
    "a suite": 2,
    "a listener of the replay": 1,
}


@dataclass(frozen=True)
class Edit:
    """Lines of one file that others take the place of; a file without `before` is new."""

    path: str
    before: str
    after: str

    def apply(self, root: Path) -> None:
        """Make the edit in a copy of the tree."""
        file = root / self.path
        if not self.before:
            assert not file.exists(), f"{self.path} is there already"
            file.write_text(self.after)
            return
        text = file.read_text()
        assert text.count(self.before) == 1, f"the guide's lines for {self.path} are not in it once:\n{self.before}"
        file.write_text(text.replace(self.before, self.after))


def read_edits(section: str) -> Iterator[Edit]:
    """Every hunk of the diff blocks of a section."""
    for mark, path, body in re.findall(r"^```diff\n(---|\+\+\+) (\S+)\n(.*?)^```", section, re.MULTILINE | re.DOTALL):
        for hunk in re.split(r"^@@\n", body, flags=re.MULTILINE):
            lines = [(line[:1] or " ", line[1:]) for line in hunk.splitlines()]
            before = "".join(f"{text}\n" for sign, text in lines if sign in " -")
            after = "".join(f"{text}\n" for sign, text in lines if sign in " +")
            assert bool(before) == (mark == "---"), f"{path}: only a new file has no lines to go by"
            yield Edit(path, before, after)


SECTIONS = {
    title[0].lower() + title[1:]: text for title, text in re.findall(r"^## (.*)\n((?:(?!^## ).*\n)*)", PAGE, re.M)
}
EDITS = {kind: list(read_edits(SECTIONS[kind])) for kind in MOST}


def changed_files(kind: str) -> list[str]:
    """Source files that a kind of change touches, in the order of the guide."""
    paths = [edit.path for edit in EDITS[kind] if edit.path.startswith(SOURCE)]
    return list(dict.fromkeys(path.removeprefix(SOURCE) for path in paths))


def test_the_table_names_the_files_that_change():
    rows = re.findall(r"^\| \[(.*?)\]\(#.*?\) \| (.*?) \|$", PAGE, re.MULTILINE)
    told = {kind: re.findall(r"`(.*?)`", files) for kind, files in rows}
    assert {kind: sorted(files) for kind, files in told.items()} == {kind: sorted(changed_files(kind)) for kind in MOST}
    assert set(SECTIONS) == set(MOST)


@pytest.mark.parametrize("kind", MOST)
def test_a_change_touches_few_files(kind):
    assert 0 < len(changed_files(kind)) <= MOST[kind]


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    """A copy of what the guide changes."""
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "src" / "tsnn", tmp_path / "src" / "tsnn", ignore=ignored)
    shutil.copytree(ROOT / "tests", tmp_path / "tests", ignore=ignored)
    return tmp_path


@pytest.mark.slow
@pytest.mark.parametrize("kind", [*MOST, "a switch of the recurrence, compiled"])
def test_what_the_guide_adds_works(kind, scratch):
    for edit in EDITS[kind.partition(",")[0]]:
        edit.apply(scratch)
    paths = os.pathsep.join([str(scratch / "src"), str(scratch)])
    environment = os.environ | {"PYTHONPATH": paths, "TSNN_DATA": str(scratch / "data"), "OMP_NUM_THREADS": "1"}
    environment["NUMBA_OPT"] = "0"  # what is compiled runs for a moment only
    command = [sys.executable, "-W", "ignore", "-m", "tests.docs.extended", kind]
    done = subprocess.run(command, cwd=scratch, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == f"{kind} works"


def test_lines_that_are_not_there_are_noticed(scratch):
    section = "```diff\n--- src/tsnn/config.py\n     no such line\n+    another\n```\n"
    (edit,) = read_edits(section)
    with pytest.raises(AssertionError, match=r"src/tsnn/config\.py"):
        edit.apply(scratch)
