"""The command line as a user meets it: verbs, --json, one sentence and status 2 for bad input."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import tsnn
from tsnn.cli.main import app, main
from tsnn.config import Config
from tsnn.errors import ConfigError, InputError, RunError, TsnnError
from tsnn.evaluation.catalog import load
from tsnn.training.run import Run

SMALL = "synthetic:roles:events=600,nodes=40"
FAST = ["--set", "train.epochs=1", "--set", "model.stalk_dim=8", "--set", "model.hidden_dim=8"]


HEAD = ["--set", "train.epochs=0", "--set", "train.warmup=1", "--set", "model.stalk_dim=8"]  # no more than a score head


def invoke(*arguments: str):
    return CliRunner().invoke(app, list(arguments), catch_exceptions=True)


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "small"
    result = invoke("train", SMALL, "--out", str(folder), *FAST, "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["card"]["visibility"] == "strict"
    return folder


def test_train_leaves_a_whole_run_folder(run_folder):
    names = {path.name for path in run_folder.iterdir()}
    expected = {"config.toml", "weights.safetensors", "state.safetensors", "ids.parquet", "metrics.json", "data.json"}
    expected |= {"manifest.json", "intensity.json"}
    reports = {f"report.{ending}" for ending in ("html", "md", "tex", "csv", "json")}
    assert names == expected | reports | {"journal.jsonl"}
    run = Run.load(run_folder)
    assert run.config.model.stalk_dim == 8
    assert [b["scorer"] for b in run.metrics["baselines"]][-1] == "features"


def test_evaluating_a_run_again_gives_the_figures_it_holds(run_folder):
    result = invoke("evaluate", str(run_folder), SMALL, "--visibility", "strict", "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["metrics"] == Run.load(run_folder).metrics["metrics"]


def test_evaluate_prints_a_table_with_its_protocol(run_folder):
    result = invoke("evaluate", "edgebank", SMALL, "--visibility", "arrival")
    assert result.exit_code == 0, result.output
    assert "visibility arrival" in result.stdout
    assert "every earlier row" in result.stdout.replace("\n", " ")


@pytest.mark.slow
def test_a_run_is_trained_evaluated_and_asked_with_its_candidates(tmp_path):
    """A shop whose users never receive anything: among all nodes they are candidates, by default they are not."""
    rows = "\n".join(f"user{i % 20},item{i % 7},{i}" for i in range(300))
    (tmp_path / "shop.csv").write_text(f"src,dst,t\n{rows}\n")
    data, run = str(tmp_path / "shop.csv"), tmp_path / "run"
    told = invoke("train", data, "--out", str(run), "--candidates", "all", "--no-compare", *HEAD, "--json")
    assert told.exit_code == 0, told.output
    assert json.loads(told.stdout)["card"]["question"]["candidates"] == "all"
    asked = {
        word: invoke("evaluate", str(run), data, "--json", *word.split()) for word in ("", "--candidates destinations")
    }
    cards = {word: json.loads(result.stdout)["card"] for word, result in asked.items()}
    assert cards[""]["question"]["candidates"] == "all"
    assert cards[""]["negatives"]["ranked_against"]["test"] == 26
    assert cards["--candidates destinations"]["negatives"]["ranked_against"]["test"] == 6
    recommended = json.loads(invoke("recommend", str(run), "--src", "user3", "--top", "99", "--json").stdout)
    assert len(recommended["recommendations"]) == 26
    refused = invoke("evaluate", "edgebank", data, "--candidates", "users").exception
    assert "are none of destinations, all" in str(refused)


def test_the_preset_paper_is_trained(tmp_path):
    """The paper's model, changed by what is set beside it."""
    out, data = tmp_path / "run", "synthetic:roles:events=2000"
    result = invoke("train", data, "--out", str(out), "--preset", "paper", *FAST, "--no-compare", "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["card"]["visibility"] == "arrival"
    settings = {"train.epochs": 1, "model.stalk_dim": 8, "model.hidden_dim": 8}
    assert Run.load(out).config == Config.build(overrides=settings, preset="paper")


def test_a_finished_run_is_not_overwritten(run_folder):
    before = (run_folder / "metrics.json").read_bytes()
    result = invoke("train", SMALL, "--out", str(run_folder), *FAST)
    assert isinstance(result.exception, RunError)
    assert (run_folder / "metrics.json").read_bytes() == before


def test_data_verbs(tmp_path):
    listed = json.loads(invoke("data", "list", "--json").stdout)["data"]
    assert {"dgb:uci", "tgb:tgbl-wiki", "synthetic:roles"} <= {entry["address"] for entry in listed}
    shown = json.loads(invoke("data", "show", SMALL, "--json").stdout)
    assert shown["events"] == 600
    assert shown["train"] + shown["validation"] + shown["test"] == 600
    assert "dgb:uci" in invoke("data", "list").stdout
    assert "self loops" in invoke("data", "show", SMALL).stdout


def test_a_strangers_table_goes_all_the_way(tmp_path):
    """Unsorted rows, string ids, other column names: imported, trained on, evaluated."""
    rng = np.random.default_rng(0)
    rows = [f"{rng.integers(0, 99999)},user{rng.integers(0, 9)},item{rng.integers(0, 9)}" for _ in range(200)]
    table = tmp_path / "log.csv"
    table.write_text("when,who,what\n" + "\n".join(rows) + "\n")
    columns = ["--src", "who", "--dst", "what", "--t", "when"]
    refused = invoke("train", str(table), "--out", str(tmp_path / "run"), *columns, *FAST)
    assert isinstance(refused.exception, InputError)
    assert not (tmp_path / "run").exists()
    clean = tmp_path / "log.parquet"
    imported = invoke("data", "import", str(table), "--out", str(clean), *columns, "--sort")
    assert imported.exit_code == 0, imported.output
    stream = load(clean)
    assert (stream.num_events, stream.num_nodes) == (200, 18)
    result = invoke("train", str(clean), "--out", str(tmp_path / "run"), *FAST, "--no-compare", "--json")
    assert result.exit_code == 0, result.output
    assert "baselines" not in json.loads(result.stdout)


WORDS = {
    "trian": "no such command 'trian'; did you mean 'train'?",
    "data lst": "no such command 'lst'; did you mean 'list'?",
    "train --oit x": "no such option: --oit; did you mean '--out'?",
    "train --zzz x": "no such option: --zzz; tsnn train --help lists what it takes.",
    "evaluate edgbank x.csv": "edgbank is neither a run folder nor a baseline; did you mean 'edgebank'?",
    "evaluate edgebank:unlimted " + SMALL: "EdgeBank has no mode 'unlimted'; did you mean 'unlimited'?",
    "data show synthetic:roles:evnts=600": "synthetic:roles has no setting 'evnts'; did you mean 'events'?",
    f"train {SMALL} --out x --set model.stalkdim=3": "no setting model.stalkdim; did you mean 'model.stalk_dim'?",
    f"train {SMALL} --out x --preset papr": "there is no preset 'papr'; did you mean 'paper'?",
    f"train {SMALL} --out x --preset tgn": "there is no preset 'tgn'; there are paper, paper-inductive, paper-review,",
    f"train {SMALL} --out x --config papre": "there is no configuration file papre; did you mean 'paper'?",
    f"train {SMALL} --out x --set lr=3": "not of the form section.key=value; did you mean 'train.lr'?",
}


@pytest.mark.parametrize("line", WORDS)
def test_a_wrong_word_is_answered_with_the_likeliest_one(line, capsys, monkeypatch):
    monkeypatch.setattr("sys.argv", ["tsnn", *line.split()])
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == 2
    assert WORDS[line] in capsys.readouterr().err


def test_the_version_is_one_line():
    assert invoke("--version").stdout == f"tsnn {tsnn.__version__}\n"


@pytest.mark.parametrize(
    ("line", "first"),
    [("tsnn tr", "train"), ("tsnn evaluate pop", "popularity"), ("tsnn data show synth", "synthetic:roles")],
)
def test_a_shell_completes_verbs_baselines_and_addresses(line, first):
    asked = {"COMP_WORDS": line, "COMP_CWORD": str(line.count(" ")), "_TSNN_COMPLETE": "complete_bash"}
    command = [sys.executable, "-m", "tsnn.cli.main"]
    done = subprocess.run(command, env=os.environ | asked, capture_output=True, text=True, check=False)
    assert done.stdout.split()[0] == first


BAD = {
    "unknown set": (["train", "dgb:nothing", "--out", "x"], InputError, "known ones are"),
    "missing file": (["train", "absent.csv", "--out", "x"], InputError, "absent.csv"),
    "unknown key": (["train", SMALL, "--out", "x", "--set", "model.colour=1"], ConfigError, "model.colour"),
    "malformed key": (["train", SMALL, "--out", "x", "--set", "colour"], ConfigError, "section.key=value"),
    "bad value": (["train", SMALL, "--out", "x", "--set", "train.lr=-1"], ConfigError, "train.lr"),
    "no config": (["train", SMALL, "--out", "x", "--config", "no.toml"], ConfigError, "no.toml"),
    "bad visibility": (["evaluate", "edgebank", SMALL, "--visibility", "batch:0"], ConfigError, "batch:200"),
    "bad scorer": (["evaluate", "seer", SMALL], ConfigError, "neither a run folder"),
    "bad mode": (["evaluate", "edgebank:often", SMALL], ConfigError, "often"),
    "bad protocol": (["evaluate", "edgebank", SMALL, "--protocol", "kdd"], ConfigError, "dgb, tgb, tkg, stream"),
    "wrong negatives": (["evaluate", "edgebank", SMALL, "--negatives", "historical"], ConfigError, "no historical"),
    "suite's protocol": (["evaluate", "edgebank", SMALL, "--protocol", "tgb"], ConfigError, "choose another protocol"),
    "no run": (["recommend", "absent", "--src", "5"], RunError, "absent is not a finished run"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_sentence_and_leaves_nothing(case, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    arguments, kind, words = BAD[case]
    error = invoke(*arguments).exception
    assert isinstance(error, kind)
    assert words in str(error)
    assert "\n" not in str(error)
    assert list(tmp_path.iterdir()) == []


TABLES = {
    "empty": ("", "is empty"),
    "header alone": ("src,dst,t\n", "no events"),
    "one row": ("src,dst,t\na,b,1\n", "1 / 0 / 0"),
    "time in words": ("src,dst,t\na,b,noon\nc,d,2\n", "line 2 of table.csv is 'noon', neither a number"),
    "backward": ("src,dst,t\na,b,3\nc,d,2\n", "at line 3 of table.csv; sort them with --sort"),
    "no destination": ("src,dst,t\na,,1\nc,d,2\n", "the destination of line 2 of table.csv is missing"),
}


@pytest.mark.parametrize("verb", [["data", "show"], ["train", "--out", "run"]])
@pytest.mark.parametrize("case", TABLES)
def test_a_bad_table_is_one_sentence_and_leaves_nothing(case, verb, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text, words = TABLES[case]
    Path("table.csv").write_text(text)
    result = invoke(*verb, "table.csv")
    assert isinstance(result.exception, InputError)
    assert words in str(result.exception)
    assert "\n" not in str(result.exception)
    assert result.output == ""  # no bar, no remark before the sentence
    assert [path.name for path in tmp_path.iterdir()] == ["table.csv"]


FILE, FOLDER = "is a file; name a folder", "is a folder; name a file"
TARGETS = {
    "train": (["train", SMALL, "--out", "file"], FILE),
    "train below a file": (["train", SMALL, "--out", "file/run"], FILE),
    "demo": (["demo", "--out", "file"], FILE),
    "reproduce": (["reproduce", "dgb", "--data", SMALL, "--out", "file"], FILE),
    "import": (["data", "import", "table.csv", "--out", "folder.parquet"], FOLDER),
    "import as CSV": (["data", "import", "table.csv", "--out", "other.csv"], "let its name end in .parquet"),
    "tune": (["tune", SMALL, "--out", "folder.parquet"], FOLDER),
    "tune into a folder": (["tune", SMALL, "--storage", "folder.parquet"], FOLDER),
    "tune into a table": (["tune", SMALL, "--storage", "table.csv"], "not an SQLite file"),
}


@pytest.mark.parametrize("case", TARGETS)
def test_a_target_that_cannot_be_written_is_refused_before_the_work(case, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("file").touch()
    Path("folder.parquet").mkdir()
    Path("table.csv").write_text("src,dst,t\na,b,1\nb,c,2\n")
    arguments, words = TARGETS[case]
    error = invoke(*arguments).exception
    assert isinstance(error, InputError)
    assert words in str(error)
    assert {path.name for path in tmp_path.rglob("*")} == {"file", "folder.parquet", "table.csv"}


def test_a_report_into_a_folder_is_refused(run_folder, tmp_path):
    error = invoke("report", str(run_folder), "--out", str(tmp_path)).exception
    assert isinstance(error, InputError)
    assert FOLDER in str(error)


def test_a_run_of_other_data_is_refused(run_folder, tmp_path):
    table = tmp_path / "plain.csv"
    table.write_text("src,dst,t\n" + "\n".join(f"{i % 5},{i % 3 + 5},{i}" for i in range(60)) + "\n")
    error = invoke("evaluate", str(run_folder), str(table)).exception
    assert isinstance(error, InputError)
    assert "trained with 3 features" in str(error)


def test_a_torn_run_is_refused(run_folder, tmp_path):
    (tmp_path / "config.toml").write_text("")
    error = invoke("evaluate", str(tmp_path), SMALL).exception
    assert isinstance(error, TsnnError)
    assert "not a finished run" in str(error)


REFUSED = {
    "bad input": (["data", "show", "absent.csv"], "there is no file absent.csv"),
    "no such verb": (["xyzzy"], "no such command 'xyzzy'; tsnn --help lists"),
    "missing option": (["recommend", "run"], "missing option '--src'; tsnn recommend --help lists"),
    "not a number": (["recommend", "run", "--src", "5", "--top", "many"], "invalid value for '--top'"),
    "out of range": (["verify", "run", "--sample", "0"], "invalid value for '--sample'"),
    "the system says no": (
        ["train", SMALL, "--out", "run", "--config", "x" * 300],
        f"{'x' * 300}: File name too long.",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_the_command_says_one_sentence_and_exits_with_status_two(case, monkeypatch, capsys):
    arguments, words = REFUSED[case]
    monkeypatch.setattr(sys, "argv", ["tsnn", *arguments])
    with pytest.raises(SystemExit) as left:
        main()
    said = capsys.readouterr()
    assert left.value.code == 2
    assert said.out == ""
    assert said.err.startswith(f"tsnn: {words}")
    assert said.err.count("\n") == 1


def test_a_bare_command_prints_its_help(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["tsnn", "data"])
    with pytest.raises(SystemExit) as left:
        main()
    said = capsys.readouterr()
    assert left.value.code == 2
    assert "import" in said.out
    assert said.err == ""


def test_an_interruption_is_told(monkeypatch, capsys):
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("tsnn.cli.data.list_data", interrupted)
    monkeypatch.setattr(sys, "argv", ["tsnn", "data", "list"])
    with pytest.raises(SystemExit) as left:
        main()
    assert left.value.code == 130
    assert capsys.readouterr().err.startswith("tsnn: interrupted")


def test_nothing_of_python_shows_in_a_refusal():
    command = [sys.executable, "-m", "tsnn.cli.main", "data", "show", "absent.csv"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("tsnn: ")
    assert "Traceback" not in done.stderr


def test_a_run_without_a_place_gets_a_fresh_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tiny = [part for setting in ("train.epochs=0", "train.warmup=1") for part in ("--set", setting)]
    assert CliRunner().invoke(app, ["train", "synthetic:roles:events=300", "--no-compare", *tiny]).exit_code == 0
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["synthetic-roles-events-300-1"]
