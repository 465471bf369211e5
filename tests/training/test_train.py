"""From a stream to a run: what is replayed how often, and what is said meanwhile."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from tsnn.cli.main import app
from tsnn.config import Config
from tsnn.data.question import Question
from tsnn.evaluation.baselines import baseline, compared
from tsnn.evaluation.catalog import default_split, load
from tsnn.evaluation.evaluate import evaluate, make_questions
from tsnn.evaluation.health import MEASURES, StateHealth, in_a_line
from tsnn.evaluation.model import COUNTS_ONLY, ModelScorer
from tsnn.evaluation.replay import replay
from tsnn.training.run import STATE, Run, final_state, read_tensors, run_split
from tsnn.training.train import train
from tsnn.training.trainer import build_model

DATA = "synthetic:roles:events=600,nodes=40"
TINY = {"train.epochs": 1, "train.warmup": 2, "model.partners": "false", "model.stalk_dim": 8, "model.hidden_dim": 8}
WORDS = [word for name, value in TINY.items() for word in ("--set", f"{name}={value}")]


@pytest.fixture
def rows_run(monkeypatch) -> list[int]:
    """The rows that a model ran, outside of training itself."""
    run: list[int] = []
    update = ModelScorer.update

    def counted(self, plan):
        run.extend(range(plan.update.start, plan.update.stop))
        return update(self, plan)

    monkeypatch.setattr(ModelScorer, "update", counted)
    return run


def test_after_training_the_stream_is_replayed_once(rows_run, tmp_path):
    """Figures, final state and report come of one replay; validation, which stops before the test rows, is apart."""
    split = default_split(load(DATA))
    result = CliRunner().invoke(app, ["train", DATA, "--out", str(tmp_path / "run"), "--json", *WORDS])
    assert result.exit_code == 0, result.output
    test_rows = [row for row in rows_run if row >= split.val_end]
    last_time = int(np.searchsorted(split.stream.t, split.stream.t[-1]))
    assert test_rows == list(range(split.val_end, last_time))
    assert "<h2>Results by slice</h2>" in (tmp_path / "run" / "report.html").read_text()


def test_a_verification_is_one_replay(rows_run, tmp_path):
    run = train(DATA, tmp_path / "run", Config.build(overrides=TINY), compare=False)
    rows_run.clear()
    assert CliRunner().invoke(app, ["verify", str(run.folder), "--sample", "2"]).exit_code == 0
    assert rows_run == list(range(len(rows_run)))


def test_the_health_of_states_stands_in_the_journal_and_beside_the_figures(tmp_path):
    run = train(DATA, tmp_path / "run", Config.build(overrides=TINY | {"train.epochs": 2}), compare=False)
    entries = [json.loads(line) for line in (run.folder / "journal.jsonl").read_text().splitlines()]
    assert [list(entry["states"]) for entry in entries] == [list(MEASURES)] * 2
    assert entries[0]["states"] != entries[1]["states"]
    split = default_split(load(DATA))
    scorer = ModelScorer(Run.load(run.folder).model, split.stream)
    health = StateHealth(scorer, make_questions(split, Question()))
    replay(scorer, split.stream, [health])
    assert health.measure().to_dict() == pytest.approx(run.metrics["states"], abs=1e-6)


def test_a_run_without_states_says_so_wherever_its_figures_are(tmp_path):
    folder = str(tmp_path / "run")
    words = [*WORDS, "--set", "train.epochs=0", "--no-compare"]
    commands = {
        "train": ["train", DATA, "--out", folder, *words],
        "evaluate": ["evaluate", folder, DATA],
        "slices": ["slices", folder, DATA],
        "verify": ["verify", folder, "--sample", "2"],
        "evaluate --json": ["evaluate", folder, DATA, "--json"],
        "slices --json": ["slices", folder, DATA, "--json"],
    }
    remark = " ".join(COUNTS_ONLY.split())
    for name, command in commands.items():
        done = CliRunner().invoke(app, command)
        assert done.exit_code == 0, done.output
        assert " ".join(done.output.split()).count(remark) == 1, name
        assert "% saturated" not in done.output, "what was never trained is not healthy"
    run = Run.load(folder)
    assert (
        run.metrics["remark"]
        == evaluate(ModelScorer(run.model, load(DATA)), default_split(load(DATA)), Question()).remark
    )
    assert run.metrics["states"]["states"] == 0
    assert remark in repr(run)
    for ending in ("md", "tex"):
        assert "; without states" in (tmp_path / "run" / f"report.{ending}").read_text()
    assert json.loads((tmp_path / "run" / "report.json").read_text())[0]["stateless"] == ["run"]
    assert (tmp_path / "run" / "report.csv").read_text().splitlines()[1].endswith(",True")


def test_a_run_with_states_prints_what_they_do_in_a_line(tmp_path):
    words = [*WORDS, "--set", "train.warmup=0", "--no-compare"]
    done = CliRunner().invoke(app, ["train", DATA, "--out", str(tmp_path / "run"), *words])
    assert in_a_line(Run.load(tmp_path / "run").metrics["states"]) in done.output.splitlines()
    assert COUNTS_ONLY[:20] not in done.output


def test_the_data_of_a_run_are_found_again_where_the_split_leaves_rows_out(need_data, tmp_path):
    """As that of DGB does: report and verify refused every run on it."""
    need_data("dgb/uci")
    split = default_split(load("dgb:uci"))
    card = {"data": {"name": "dgb:uci", "fingerprint": split.stream.fingerprint()}}
    run = Run(tmp_path, build_model(Config(), split), split.stream.ids, {"card": card}, split.stream.description)
    assert run_split(run).stream.num_events == split.stream.num_events < load("dgb:uci").num_events


def test_one_replay_gives_what_separate_ones_give(tmp_path):
    run = train(DATA, tmp_path / "run", Config.build(overrides=TINY))
    split = default_split(load(DATA))
    model = Run.load(run.folder).model
    assert evaluate(ModelScorer(model, split.stream), split, Question()).metrics == run.metrics["metrics"]
    for name, held in zip(compared(), run.metrics["baselines"], strict=True):
        assert evaluate(baseline(name), split, Question()).metrics == held["metrics"]
    saved, alone = read_tensors(run.folder / STATE)[0], final_state(model, split.stream, run.intensity)
    assert saved.keys() == alone.keys()
    assert all(torch.equal(saved[name], alone[name]) for name in alone)


def test_all_that_takes_time_is_told(tmp_path):
    """What comes after the last epoch too: it took a silent minute on a large stream."""
    told: dict[str, tuple[int, int]] = {}
    watch = lambda done, total, text: told.update({text: (done, total)})  # noqa: E731
    train(DATA, tmp_path / "run", Config.build(overrides=TINY), progress=watch)
    after = {text: told[text] for text in told if not text.startswith(("epoch", "compiling"))}
    rivals = [baseline(name).name for name in compared()]
    assert list(after) == [*(f"fitting {name}" for name in rivals), "evaluating", "comparing with features"]
    assert all(done == total for text, (done, total) in after.items() if not text.startswith("fitting"))


def test_a_stream_of_one_timestamp_has_an_empty_state_and_all_events_to_come():
    stream = load(DATA)
    model = build_model(Config.build(overrides=TINY), default_split(stream))
    same = replace(stream.take(slice(0, 9)), t=np.zeros(9))
    state = final_state(model, same)
    assert not state["h"].any()
    assert len(state["tie/src"]) == 9
