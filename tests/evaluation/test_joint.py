"""Pairs of different sources: the log intensity joins the score, its multiple is chosen on validation rows and said."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.engine.streams import config_of
from tsnn.data.events import EventStream, NodeIds
from tsnn.data.question import Question
from tsnn.data.split import Split, split_by_time
from tsnn.evaluation.dgb import DgbQuestions
from tsnn.evaluation.evaluate import evaluate
from tsnn.evaluation.joint import MULTIPLES, joined
from tsnn.evaluation.model import ModelScorer
from tsnn.intensity.intensity import Intensity
from tsnn.training.trainer import build_model


def in_turns(events: int = 900, people: int = 24) -> EventStream:
    """Sources are active a dozen rows at a time, towards anybody: who acts can be told, whom it meets cannot."""
    rng = np.random.default_rng(0)
    src = np.repeat(rng.integers(0, people, events // 12), 12)
    dst = people + rng.integers(0, 6, len(src))
    return EventStream(src, dst, np.arange(len(src), dtype=np.float64), NodeIds(range(people + 6)))


@pytest.fixture(scope="module")
def split() -> Split:
    return split_by_time(in_turns())


def model_of(split: Split, **switches: object) -> ModelScorer:
    return ModelScorer(build_model(config_of(**switches), split), split.stream)


HISTORICAL = Question(negatives="historical")


def test_who_acts_is_told_and_the_card_says_how(split):
    found = evaluate(model_of(split), split, HISTORICAL, protocol="dgb", sets=("val", "test"))
    blind = evaluate(model_of(split, train__intensity=False), split, HISTORICAL, protocol="dgb", sets=("val", "test"))
    assert found.metrics["test"]["ap"] > blind.metrics["test"]["ap"] + 15
    said = found.card.negatives["joint"]
    assert said["multiple"] == float(max(said["validation"], key=said["validation"].get)) > 0
    assert said["validation"][f"{said['multiple']:g}"] == pytest.approx(found.metrics["val"]["ap"])
    assert said["validation"]["0"] == pytest.approx(blind.metrics["val"]["ap"])
    assert Intensity.from_dict(said["intensity"]) == Intensity.fit(split, HISTORICAL)
    assert any("times the log intensity" in note for note in found.card.notes)
    assert "joint" not in blind.card.negatives


def test_where_the_source_is_the_same_nothing_changes(split):
    asked = Question(negatives="random")
    with_it, without = (
        evaluate(model_of(split, train__intensity=on), split, asked, protocol="dgb") for on in (True, False)
    )
    assert with_it.metrics == without.metrics
    assert "joint" not in with_it.card.negatives


def test_test_rows_choose_nothing(split):
    """Other test rows, the same intensity and multiple."""
    stream, end = split.stream, split.val_end
    rng = np.random.default_rng(1)
    other = replace(stream, dst=np.append(stream.dst[:end], rng.permutation(stream.dst[end:])))
    chosen = []
    for own in (split, replace(split, stream=other)):
        questions = DgbQuestions(own, HISTORICAL, ("val", "test"))
        chosen.append(joined(model_of(own), own, questions)[1])
    assert chosen[0].intensity == chosen[1].intensity
    assert chosen[0].multiple == chosen[1].multiple in MULTIPLES
