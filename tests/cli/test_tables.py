"""Tables as people have them, on the command line: roles are named once and remembered."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from tsnn.cli.main import app
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
        f"{start + np.timedelta64(17 * i, 'm')},user{rng.integers(0, 9)},item{rng.integers(0, 9)},"
        f"{('buy', 'look', 'pay')[rng.integers(0, 3)]},{rng.integers(1, 90) / 2},note {i}"
        for i in range(160)
    ]
    path = tmp_path_factory.mktemp("shop") / "shop.csv"
    path.write_text("when,who,what,kind,price,note\n" + "\n".join(lines) + "\n")
    return path


@pytest.fixture(scope="module")
def run(shop) -> str:
    folder = shop.with_name("run")
    invoke("train", str(shop), "--out", str(folder), *NAMED, *FAST)
    return str(folder)


@pytest.mark.slow
def test_an_imported_table_is_trained_on_with_its_features_and_relations(shop, tmp_path):
    clean, folder = tmp_path / "shop.parquet", tmp_path / "run"
    invoke("data", "import", str(shop), "--out", str(clean), *NAMED)
    invoke("train", str(clean), "--out", str(folder), *FAST)
    trained = Run.load(folder)
    assert (trained.model.shape.msg_dim, trained.model.shape.num_relations) == (1, 3)
    assert trained.description.relations == ("buy", "look", "pay")


@pytest.mark.slow
def test_a_run_and_the_path_of_its_table_are_enough(shop, run):
    told = json.loads(invoke("evaluate", run, str(shop), "--json").stdout)
    assert told["metrics"] == Run.load(run).metrics["metrics"]
    assert json.loads(invoke("slices", run, str(shop), "--json").stdout)["slices"]
    assert json.loads(invoke("verify", run, "--data", str(shop), "--sample", "2", "--json").stdout)["facts"]
    invoke("report", run, "--data", str(shop))
