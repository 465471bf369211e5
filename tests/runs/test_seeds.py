"""Several seeds: what a run of each gives, what they give together, and going on after an interruption."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import tsnn
from tsnn.cli.main import app
from tsnn.errors import ConfigError, RunError
from tsnn.runs import seeds as module

DATA = "synthetic:roles:events=600,nodes=40"
TINY = {"train.epochs": 1, "model.stalk_dim": 8, "model.hidden_dim": 8}
CONFIG = tsnn.Config.build(overrides=TINY)


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> tsnn.SeedRuns:
    return tsnn.train_seeds(DATA, tmp_path_factory.mktemp("seeds"), CONFIG, seeds=2, workers=1)


def test_each_run_is_the_one_its_seed_gives_alone(trained, tmp_path):
    assert [run.config.train.seed for run in trained.runs] == [0, 1]
    alone = tsnn.train(DATA, tmp_path / "alone", tsnn.Config.build(overrides=TINY | {"train.seed": 1}))
    assert alone.metrics["metrics"] == trained.runs[1].metrics["metrics"]


def test_the_summary_has_mean_and_deviation_of_every_figure(trained):
    values = [run.metrics["metrics"]["test"]["ap"] for run in trained.runs]
    assert values[0] != values[1]
    found = trained.summary["figures"]["tsnn"]["test"]["ap"]
    assert found["values"] == values
    assert found["mean"] == pytest.approx(np.mean(values))
    assert found["std"] == pytest.approx(np.std(values, ddof=1))
    assert trained.summary["figures"]["features"]["test"]["ap"]["std"] > 0
    assert trained.summary["figures"]["recency"]["test"]["ap"]["std"] is None, "a heuristic has no seed"
    assert json.loads((trained.folder / "report.json").read_text()) == [trained.summary]


def test_one_report_compares_the_runs(trained):
    found = trained.summary["figures"]["tsnn"]["test"]["ap"]
    shown = f"{found['mean']:.2f} ± {found['std']:.2f}"
    for name in ("report.html", "report.md"):
        text = (trained.folder / name).read_text()
        assert shown in text
        assert "mean ± standard deviation over seeds 0, 1" in text
    assert shown.replace("±", r"$\pm$") in (trained.folder / "report.tex").read_text()
    assert "<td>train.seed</td>" in (trained.folder / "report.html").read_text()


def test_what_is_finished_is_not_trained_again(trained, tmp_path, monkeypatch):
    folder = Path(shutil.copytree(trained.folder, tmp_path / "copy"))
    shutil.rmtree(folder / "seed-1")
    trains = []
    train = module.train
    monkeypatch.setattr(module, "train", lambda *given, **more: trains.append(given[1]) or train(*given, **more))
    again = tsnn.train_seeds(DATA, folder, CONFIG, seeds=2, workers=1)
    assert trains == [folder / "seed-1"]
    assert again.summary == trained.summary


def test_a_finished_run_of_something_else_is_refused(trained):
    with pytest.raises(RunError, match="seed-0 holds a finished run of other settings; choose another folder"):
        tsnn.train_seeds(DATA, trained.folder, tsnn.Config(), seeds=2)
    with pytest.raises(RunError, match="seed-0 holds a finished run of other data"):
        tsnn.train_seeds("synthetic:roles:events=600,nodes=40,seed=1", trained.folder, CONFIG, seeds=2)
    with pytest.raises(ConfigError, match="0 seeds leave nothing to train"):
        tsnn.train_seeds(DATA, trained.folder, CONFIG, seeds=0)


@pytest.mark.slow
def test_the_command_prints_the_summary_and_processes_change_no_figure(trained, tmp_path):
    words = [word for name, value in TINY.items() for word in ("--set", f"{name}={value}")]
    arguments = ["train", DATA, "--out", str(tmp_path / "runs"), "--seeds", "2", *words]
    said = CliRunner().invoke(app, [*arguments, "--workers", "2"])
    assert said.exit_code == 0, said.output
    found = trained.summary["figures"]["tsnn"]["test"]["ap"]
    assert f"{found['mean']:.2f} ± {found['std']:.2f}" in said.output
    assert "mean ± deviation of 2 seeds" in " ".join(said.output.split())
    again = CliRunner().invoke(app, [*arguments, "--json"])
    assert json.loads(again.stdout) == trained.summary
