"""Settings of the service: the command line before the environment, the environment before the file."""

from __future__ import annotations

from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from tsnn.cli.serve import serve
from tsnn.errors import ConfigError

app = typer.Typer()
app.command()(serve)


@pytest.fixture
def started(monkeypatch, tmp_path):
    """What the service would be started with, for arguments, an environment and a file."""
    calls: list[dict[str, Any]] = []
    process = pytest.importorskip("tsnn.serve.process")
    monkeypatch.setattr(process, "run_service", lambda run, **settings: calls.append(settings))

    def start(*arguments: str, env: dict[str, str] | None = None, toml: str | None = None) -> Any:
        if toml is not None:
            (tmp_path / "serve.toml").write_bytes(toml.encode("latin-1"))
            arguments = (*arguments, "--config", str(tmp_path / "serve.toml"))
        result = CliRunner().invoke(app, ["run", *arguments], env=env or {})
        if isinstance(result.exception, ConfigError):
            raise result.exception
        assert result.exit_code == 0, result.output
        return calls.pop()

    return start


def test_the_nearest_word_counts(started):
    toml = 'port = 1111\nqueue = 5\ntoken = "of the file"\nsnapshot-every = 7\n'
    assert started()["port"] == 8000
    assert started(toml=toml)["port"] == 1111
    assert started(env={"TSNN_PORT": "2222"}, toml=toml)["port"] == 2222
    assert started("--port", "3333", env={"TSNN_PORT": "2222"}, toml=toml)["port"] == 3333
    told = started(env={"TSNN_TOKEN": "of the environment", "TSNN_MAX_NODES": "9"}, toml=toml)
    assert (told["token"], told["queue_length"], told["snapshot_every"], told["max_nodes"]) == (
        "of the environment", 5, 7, 9,
    )  # fmt: skip
    assert started(toml=toml)["token"] == "of the file"


@pytest.mark.parametrize(
    ("toml", "words"),
    [
        ("prot = 1", "has a setting 'prot'; the settings are host, max_ahead"),
        ("port = ", "cannot be read as TOML"),
        ("# käse", "cannot be read as TOML"),
        ("[serve]\nport = 1", "has a setting 'serve'"),
        ("port = [1]", "no single value"),
    ],
)
def test_a_file_that_cannot_be_meant_is_refused(started, toml, words):
    with pytest.raises(ConfigError, match=words):
        started(toml=toml)


def test_a_value_in_a_file_is_held_to_the_same_rules(started):
    with pytest.raises(AssertionError, match="less than"):
        started(toml="port = 70000")
