"""Tries what the guide to extending adds, in a process of its own that imports an edited copy of the source.

    python -m tests.docs.extended "a fact"

The plan runs as plain Python: to compile it anew for every copy would take half a minute. What it computes is the same.
"""

# ruff: noqa: E402, I001
from __future__ import annotations

import csv
import sys
from pathlib import Path
from typing import Any

import numba

numba.config.DISABLE_JIT = 1
import tsnn.plan.tables as tables

tables.borrow = lambda arrays: arrays  # which compiled code alone needs
import tsnn.plan.planner

numba.config.DISABLE_JIT = 0

import numpy as np
import torch

import tsnn
from tests.engine import emulated, test_parity
from tests.engine.streams import TINY, config_of, tricky_stream
from tsnn.engine import cuda
from tsnn.engine.engine import Engine, FusedEngine

STREAM = "synthetic:roles:events=80"
MEETINGS = np.random.default_rng(0).integers(0, 6, (80, 2))  # of few, who meet again and again


def check_parity(engine: str, **switches: object) -> None:
    test_parity.check_parity(config_of(**switches), tricky_stream(relations=True), "strict", engine, 1e-9)


def trained(**switches: object) -> Any:
    """A run that has learned from the data alone, and a predictor that goes on from it."""
    settings = {"train.engine": "reference", "train.epochs": 0, "train.warmup": 2}
    settings |= {name.replace("__", "."): value for name, value in switches.items()}
    stream = tsnn.from_arrays(*MEETINGS.T, np.arange(80.0))
    run = tsnn.train(stream, "run", tsnn.Config.build(overrides=TINY | settings), compare=False)
    return run, tsnn.Predictor.load("run")


def a_fact() -> None:
    check_parity("reference", features__roles=True)
    _, predictor = trained(features__roles=True)
    predictor.observe(3, 5, 89.0)
    explained = predictor.explain(5, 0, 99.0)
    (fact,) = (fact for fact in explained.source.facts if fact.name == "src_in_gap")
    assert (fact.says, fact.shown) == ("last event to 5", "10 mean gaps ago")


def a_learned_column_of_the_score() -> None:
    check_parity("reference", features__learned_fade=True)
    run, predictor = trained(features__learned_fade=True)
    assert run.model.fade.item() != 0.0
    assert np.isfinite(predictor.score(5, 0, 99.0))


def a_switch_of_the_recurrence() -> None:
    check_parity("reference", model__bounded_steps=True)
    cuda.launch = emulated.launch
    test_parity.ENGINES["emulated"] = emulated.EmulatedEngine
    check_parity("emulated", model__bounded_steps=True)


def a_switch_of_the_recurrence_compiled() -> None:
    class Fused(FusedEngine):
        compare, losses = Engine.compare, Engine.losses  # the switch is not in them

    test_parity.ENGINES["fused"] = Fused
    check_parity("fused", model__bounded_steps=True)


def evaluated(scorer: Any, data: str) -> Any:
    return tsnn.evaluate(scorer, tsnn.default_split(data), tsnn.Visibility.parse("strict"))


def a_baseline() -> None:
    assert "reciprocity (" in tsnn.evaluation.baselines.told()
    assert evaluated(tsnn.baseline("reciprocity"), STREAM).scorer == "reciprocity"


def a_suite() -> None:
    folder = Path("data/letters/austen")
    folder.mkdir(parents=True)
    rng = np.random.default_rng(0)
    with (folder / "letters.csv").open("w") as file:
        rows = csv.writer(file)
        rows.writerow(("writer", "reader", "date"))
        rows.writerows((f"w{rng.integers(9)}", f"r{rng.integers(9)}", 1800 + i) for i in range(90))
    assert tsnn.load(folder).name == "letters:austen"
    assert evaluated(tsnn.baseline("popularity"), "letters:austen").card.protocol == "stream"
    listed = tsnn.evaluation.catalog.list_data()
    assert [entry.present for entry in listed if entry.address == "letters:austen"] == [True]


def a_listener_of_the_replay() -> None:
    from tsnn.evaluation.evaluate import make_questions
    from tsnn.evaluation.replay import Scores, replay
    from tsnn.evaluation.ties import Ties

    split = tsnn.default_split(STREAM)
    questions = make_questions(split, tsnn.data.question.Question(tsnn.Visibility.parse("strict")))
    ties, scores = Ties(questions.asked), Scores(questions.asked)
    replay(tsnn.baseline("edgebank"), split.stream, [ties, scores], max_rows=7)
    queries = np.split(scores.values, questions.asked.ptr[1:-1])
    assert ties.tied == sum((own == own.max()).sum() > 1 for own in queries) > 0


if __name__ == "__main__":
    torch.set_num_threads(1)
    globals()[sys.argv[1].replace(", ", "_").replace(" ", "_")]()
    print(f"{sys.argv[1]} works")
