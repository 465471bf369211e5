"""What a user touches: the public names, the commands, the configurations, the README, the repository's own text."""

from __future__ import annotations

import inspect
import re
import shlex
import subprocess
import sys
import tomllib
from datetime import date
from pathlib import Path
from typing import Any

import pytest
import typer.main
from typer.testing import CliRunner

import tsnn
from tsnn.cli.main import app, main
from tsnn.config import Config
from tsnn.evaluation.baselines import ROSTER as BASELINES
from tsnn.evaluation.catalog import PROTOCOLS
from tsnn.evaluation.catalog import ROSTER as SUITES
from tsnn.study.tables import TABLES

ROOT = Path(__file__).resolve().parents[1]
CONFIGS = sorted((ROOT / "src/tsnn/configs").glob("*.toml"))

FLAGS = {
    ("demo",): {"--out"},
    ("train",): {"--out", "--config", "--set"},
    ("evaluate",): {"--protocol", "--visibility", "--json"},
    ("data", "list"): set(),
    ("data", "show"): set(),
    ("data", "import"): set(),
}


# Python


def test_all_is_exactly_the_public_surface() -> None:
    bound = {
        name
        for name, value in vars(tsnn).items()
        if not (name.startswith("_") or inspect.ismodule(value) or name == "annotations")
    }
    assert list(tsnn.__all__) == sorted(set(tsnn.__all__)), "keep __all__ sorted and without repeats"
    assert bound <= set(tsnn.__all__), "a public name is missing from __all__; rename it with an underscore or list it"


def test_the_public_surface_is_not_empty() -> None:
    assert {name for name in tsnn.__all__ if not name.startswith("_")}


def test_every_public_name_exists_and_is_documented() -> None:
    undocumented = [name for name in tsnn.__all__ if not inspect.getdoc(getattr(tsnn, name))]
    assert undocumented == []


# Command line


def _command(*path: str) -> Any:
    command: Any = typer.main.get_command(app)
    for name in path:
        command = command.commands[name]
    return command


def _flags(command: Any) -> set[str]:
    return {option for parameter in command.params for option in parameter.opts if option.startswith("--")} | {"--help"}


@pytest.mark.parametrize("path", FLAGS, ids=" ".join)
def test_the_verb_has_its_flags(path: tuple[str, ...]) -> None:
    assert FLAGS[path] <= _flags(_command(*path))


@pytest.mark.parametrize("path", [(), *FLAGS], ids=" ".join)
def test_the_verb_explains_itself(path: tuple[str, ...]) -> None:
    result = CliRunner().invoke(app, [*path, "--help"])
    assert result.exit_code == 0
    assert _command(*path).help


def test_help_waits_for_no_library_that_it_does_not_need() -> None:
    code = "import sys, tsnn.cli.main; print([name for name in ('torch', 'numba', 'sklearn') if name in sys.modules])"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said == "[]\n"


CHOICES = {
    "evaluate": {*BASELINES, *PROTOCOLS, *(way for questions in PROTOCOLS.values() for way in questions.strategies)},
    "train": {suite.address for suite in SUITES.values() if suite.name},
    "reproduce": set(TABLES),
}


@pytest.mark.parametrize(("verb", "names"), CHOICES.items())
def test_help_names_every_choice(verb: str, names: set[str]) -> None:
    said = " ".join(parameter.help for parameter in _command(verb).params if parameter.help)
    assert names <= set(re.split(r"[,;. ()]+", said))


def test_the_documentation_names_every_suite_and_protocol_and_baseline() -> None:
    evaluation, data = ((ROOT / "docs/how-to" / name).read_text() for name in ("evaluation.md", "own-data.md"))
    assert [name for name in (*PROTOCOLS, *BASELINES) if f"| `{name}` |" not in evaluation] == []
    assert [suite.address for suite in SUITES.values() if suite.name and suite.address not in data] == []


def test_an_error_is_one_sentence_and_status_2(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr("sys.argv", ["tsnn", "train", "absent.csv", "--out", str(tmp_path / "run")])
    with pytest.raises(SystemExit) as stop:
        main()
    said = capsys.readouterr()
    assert stop.value.code == 2
    assert "absent.csv" in said.err
    assert "Traceback" not in said.err + said.out
    assert not (tmp_path / "run").exists(), "nothing half-written"


# Configurations


def test_there_are_configurations() -> None:
    assert CONFIGS


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_the_configuration_parses(path: Path) -> None:
    config = Config.build(path)
    assert isinstance(config, Config)


# README


def _readme_blocks(*languages: str) -> list[str]:
    blocks = re.findall(r"```(\w+)\n(.*?)```", (ROOT / "README.md").read_text(), flags=re.DOTALL)
    return [body for language, body in blocks if language in languages]


def _readme_commands() -> list[list[str]]:
    lines = "\n".join(_readme_blocks("sh", "bash", "console", "shell")).replace("\\\n", " ").splitlines()
    return [words for line in lines if (words := shlex.split(line.removeprefix("$ "), comments=True))]


def _contributing_commands() -> list[list[str]]:
    """Indented lines and what stands between backquotes, several in a line taken apart, without variables before."""
    text = (ROOT / "CONTRIBUTING.md").read_text()
    told = re.findall(r"^ {4}(\w.*)$", text, flags=re.MULTILINE) + re.findall(r"`([^`\n]+)`", text)
    split = [shlex.split(part, comments=True) for line in told for part in re.split(r";|&&", line.partition(" #")[0])]
    return [words[sum("=" in word for word in words[:1]) :] for words in split]


COMMANDS = {"README.md": _readme_commands(), "CONTRIBUTING.md": _contributing_commands()}


@pytest.mark.slow
def test_the_readme_example_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    example = _readme_blocks("python")[0]
    exec(compile(example, "README.md", "exec"), {"__name__": "readme"})


@pytest.mark.parametrize(("page", "least"), [("README.md", {"demo", "test"}), ("CONTRIBUTING.md", {"setup", "test"})])
def test_make_commands_name_targets(page: str, least: set[str]) -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    named = {word for words in COMMANDS[page] if words[:1] == ["make"] for word in words[1:] if "=" not in word}
    assert least <= named, f"{page} must say how to do that"
    assert named <= targets


@pytest.mark.parametrize("page", COMMANDS)
def test_tsnn_commands_name_verbs_and_flags(page: str) -> None:
    told = [words for words in COMMANDS[page] if words and Path(words[0]).name == "tsnn" and words[1:]]
    assert told
    for words in told:
        command, rest = _command(), words[1:]
        while rest and hasattr(command, "commands"):
            command, rest = command.commands[rest[0]], rest[1:]
        used = {word.partition("=")[0] for word in rest if word.startswith("--")}
        assert used <= _flags(command), shlex.join(words)


@pytest.mark.parametrize("page", ["README.md", "CHANGELOG.md", "CONTRIBUTING.md"])
def test_links_lead_somewhere(page: str) -> None:
    links = re.findall(r"\]\(([^)\s#]+)", (ROOT / page).read_text())
    assert [link for link in links if "://" not in link and not (ROOT / link).exists()] == []


def test_the_changelog_dates_every_version_and_the_newest_is_the_package_s() -> None:
    first, *versions = re.findall(r"^## (.*)$", (ROOT / "CHANGELOG.md").read_text(), flags=re.MULTILINE)
    numbers, dates = zip(*(version.split(" - ") for version in versions), strict=True)
    assert first == "Unreleased", "what came since the last version stands on top"
    assert numbers[0] == tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert list(dates) == sorted(map(str, map(date.fromisoformat, dates)), reverse=True)


# The repository's own text


MACHINE = re.compile(
    r"(?:^|[^\w.])/(?:work|farm|root|home|opt|tmp|Users)/"  # a folder of somebody's machine
    r"|file:/{2}|(?:extra-)?index-url|find-links"  # where somebody's packages come from
    r"|https?://[^\s)]*(?:pypi|mirror|registry|artifactory|nexus)"
    r"|\b(?:10|192\.168|172\.(?:1[6-9]|2\d|3[01]))(?:\.\d{1,3}){2,3}\b",
)


def _own_files() -> list[Path]:
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [ROOT / name for name in listed.split("\0") if name and (ROOT / name).is_file()]


def _machine_lines(path: Path) -> list[str]:
    data = path.read_bytes()
    if b"\0" in data:
        return []
    lines = data.decode("utf-8").splitlines()
    return [f"{path.relative_to(ROOT)}:{n}: {line}" for n, line in enumerate(lines, 1) if MACHINE.search(line)]


def test_no_text_names_a_machine() -> None:
    assert [line for path in _own_files() if path != Path(__file__).resolve() for line in _machine_lines(path)] == []


def test_the_lock_holds_names_and_versions_only() -> None:
    lines = (ROOT / "requirements.lock").read_text().splitlines()
    assert [line for line in lines if not re.fullmatch(r"[A-Za-z0-9_.-]+==[0-9][0-9a-z.]*", line)] == []
    assert "torch==2.13.0" in lines
