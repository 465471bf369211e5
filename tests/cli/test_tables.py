"""Tables as people have them, on the command line: roles are named once and remembered."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from tsnn.cli.main import app
from tsnn.study.tune import Search, _tuning_split
from tsnn.training.run import Run

FAST = ["--set", "train.epochs=1", "--set", "model.stalk_dim=8", "--set", "model.hidden_dim=8", "--no-compare"]
NAMED = ["--src", "who", "--dst", "what", "--t", "when", "--msg", "price", "--edge-type", "kind"]


def invoke(*arguments: str, status: int = 0):
    result = CliRunner().invoke(app, list(arguments))
    assert result.exit_code == status, (result.output, result.exception)
    return result


@pytest.fixture(scope="module")
def shop(tmp_path_factory) -> Path:
    """A shop's log: dates, prices, kinds in words, a column nobody asked for."""
    rng = np.random.default_rng(0)
    start = np.datetime64("2024-03-01T08:00:00")
    lines = [
        f"{start + np.timedelta64(17 * i, 'm')};user{rng.integers(0, 9)};item{rng.integers(0, 9)};"
        f"{('buy', 'look', 'pay')[rng.integers(0, 3)]};{rng.integers(1, 90) * 25},50 EUR;note {i}"
        for i in range(160)
    ]
    path = tmp_path_factory.mktemp("shop") / "shop.csv"
    path.write_text("when;who;what;kind;price;note\n" + "\n".join(lines) + "\n")
    return path


@pytest.fixture(scope="module")
def training(shop):
    return invoke("train", str(shop), "--out", str(shop.with_name("run")), *NAMED, *FAST)


@pytest.fixture
def run(shop, training) -> str:
    return str(shop.with_name("run"))


@pytest.mark.slow
def test_an_imported_table_is_trained_on_with_its_features_and_relations(shop, tmp_path):
    clean, folder = tmp_path / "shop.parquet", tmp_path / "run"
    invoke("data", "import", str(shop), "--out", str(clean), *NAMED)
    invoke("train", str(clean), "--out", str(folder), *FAST)
    trained = Run.load(folder)
    assert (trained.model.shape.msg_dim, trained.model.shape.num_relations) == (1, 3)
    assert trained.description.relations == ("buy", "look", "pay")
    assert trained.description.dates


@pytest.mark.slow
def test_training_first_says_how_it_understood_the_table(shop, training):
    said = training.stderr
    assert said.startswith(f"{shop}: 160 rows, columns separated by semicolons\n")
    assert said.index("note") < said.index("run written to")
    told = json.loads(invoke("train", str(shop), "--out", str(shop.with_name("quiet")), *NAMED, *FAST, "--json").output)
    assert told["metrics"]


@pytest.mark.slow
def test_a_run_and_the_path_of_its_table_are_enough(shop, run):
    told = json.loads(invoke("evaluate", run, str(shop), "--json").stdout)
    assert told["metrics"] == Run.load(run).metrics["metrics"]
    assert json.loads(invoke("slices", run, str(shop), "--json").stdout)["slices"]
    assert json.loads(invoke("verify", run, "--sample", "2", "--json").stdout)["facts"]
    invoke("report", run)


@pytest.mark.slow
def test_a_table_that_has_moved_is_named(shop, run, tmp_path):
    moved = shop.rename(tmp_path / "moved.csv")
    try:
        refused = invoke("report", run, status=1)
        assert f"was trained on {shop}, which is gone; name where it is now with --data" in str(refused.exception)
        invoke("report", run, "--data", str(moved))
    finally:
        moved.rename(shop)


def test_a_raw_table_is_shown_and_a_baseline_evaluated_with_columns_by_name(shop):
    said = invoke("data", "show", str(shop), *NAMED).stdout
    assert "columns separated by semicolons" in said
    assert "ignored" in said
    assert "2024-03-01T08:00:00Z" in said
    told = json.loads(invoke("data", "show", str(shop), *NAMED, "--json").stdout)
    assert told["first_time"] == "2024-03-01T08:00:00Z"
    assert [view["part"] for view in told["table"]["columns"]] == [
        "time", "source", "destination", "relation", "feature", "ignored",
    ]  # fmt: skip
    figures = json.loads(invoke("evaluate", "recency", str(shop), *NAMED, "--json").stdout)
    assert figures["metrics"]["test"]


def test_a_search_reads_its_table_as_it_was_told(shop):
    table = {"src": "who", "dst": "what", "t": "when", "msg": ("price",)}
    assert _tuning_split(str(shop), tuple(table.items())).stream.msg_dim == 1
    assert Search(str(shop), table=tuple(table.items())).name != Search(str(shop)).name


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (["--msg", "prize"], "there is no column 'prize' (did you mean 'price'?)"),
        (["--msg", "note"], "column 'note' holds 'note 0' in line 2 of "),
        (["--dst-type", "kind", "--node-type", "types.csv"], "--node-type gives every node a type already"),
    ],
)
def test_wrong_words_for_a_table_are_one_sentence(shop, wrong, words):
    refused = invoke("data", "show", str(shop), *NAMED, *wrong, status=1)
    assert words in str(refused.exception)


def test_columns_are_for_tables_only():
    refused = invoke("data", "show", "synthetic:roles:events=100", "--src", "who", status=1)
    assert "has its own columns" in str(refused.exception)
