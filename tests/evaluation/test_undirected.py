"""Undirected events in evaluation: asked from both ends, of plain tables' questions, with a card that says so."""

from __future__ import annotations

import numpy as np
import pytest

import tsnn
from tests.evaluation.streams import tied_split, tied_stream
from tsnn.data.question import Question
from tsnn.data.split import split_by_time
from tsnn.errors import ConfigError, InputError
from tsnn.evaluation.catalog import protocol_of
from tsnn.evaluation.evaluate import make_questions
from tsnn.evaluation.stream import StreamQuestions
from tsnn.plan.facts import COLUMN
from tsnn.plan.planner import Planner, PlanSpec
from tsnn.types import Visibility

STRICT = Visibility("strict")
SPLIT = split_by_time(tied_stream().as_undirected())


def test_every_event_is_asked_from_both_ends():
    questions = make_questions(SPLIT, Question())
    stream, asked = SPLIT.stream, questions.asked.slice(0, len(questions.asked))
    first = asked.cand[asked.ptr[:-1]]
    there = sorted(zip(asked.src.tolist(), first.tolist(), strict=True))
    rows = range(SPLIT.train_end, stream.num_events)
    ends = [(int(stream.src[r]), int(stream.dst[r])) for r in rows]
    assert there == sorted([*ends, *((v, u) for u, v in ends if u != v)])


def test_the_card_says_so():
    result = tsnn.evaluate(tsnn.baseline("edgebank"), SPLIT, STRICT)
    assert result.card.question["direction"] == "undirected"
    assert any("either end is asked for the other" in note for note in result.card.notes)
    plain = tsnn.evaluate(tsnn.baseline("edgebank"), tied_split(), STRICT)
    assert plain.card.question["direction"] == "directed"
    assert Question.from_card({"question": result.card.question}).direction == "undirected"


def test_baselines_know_a_pair_from_either_end():
    """Contacts that only repeat, always written the same way: EdgeBank is right from both ends."""
    rng = np.random.default_rng(0)
    pairs = np.array([(i, i + 20) for i in range(20)])
    chosen = rng.integers(0, 20, 600)
    stream = tsnn.from_arrays(pairs[chosen, 0], pairs[chosen, 1], np.arange(600.0))
    found = {}
    for name in ("directed", "undirected"):
        split = split_by_time(stream if name == "directed" else stream.as_undirected())
        found[name] = tsnn.evaluate(tsnn.baseline("edgebank"), split, STRICT).metrics["test"]
    assert found["undirected"]["mrr"] == pytest.approx(1.0)
    assert found["undirected"]["ap"] > 95


def test_counts_are_the_same_from_either_end():
    """a-b, b-a, a-c: one event each, whichever way it is written and from wherever it is seen."""
    a, b, c = range(3)
    stream = tsnn.make_stream([a, b, a, c], [b, a, c, c], [1.0, 2.0, 4.0, 8.0], undirected=True)
    planner = Planner(stream, PlanSpec(successor=True, window=100.0, activity_rate=0.0))
    planner.advance(4)

    def fact(src: int, dst: int, name: str) -> float:
        facts = planner.survey(src, np.array([9.0]), 0, np.array([dst]), np.array([True]))
        return float(facts[0, COLUMN[name]])

    for name, both in (("pair_count", 2.0), ("reverse_count", 2.0), ("bank_count", 2.0), ("pair_gap", 7.0)):
        assert fact(a, b, name) == fact(b, a, name) == both
    assert [fact(a, node, "dst_in_count") for node in (a, b, c)] == [3, 2, 2]
    assert [fact(a, node, "dst_count") for node in (a, b, c)] == [3, 2, 2]
    assert [fact(a, node, "dst_recent") for node in (a, b, c)] == [3, 2, 2]
    assert [fact(a, node, "dst_in_share") for node in (a, b, c)] == [0.5, 0.5, 0.5]
    assert fact(a, c, "dst_in_gap") == fact(a, c, "dst_gap") == 1.0
    # a went b, b, c; b went a, a; c went a, c: straight after b came b and c, after a came a, after a at c came c
    assert [fact(c, node, "succ_count_2") for node in (a, b, c)] == [1, 0, 1]
    assert int(planner.counters.tables.ints[1]) == 3  # pairs: a-b, a-c, c-c


def test_no_suite_asks_undirected_events():
    split = split_by_time(tied_stream().as_undirected())
    with pytest.raises(ConfigError, match="asks sources only; ask about undirected events with --protocol stream"):
        tsnn.evaluate(tsnn.baseline("edgebank"), split, STRICT, protocol="dgb")
    assert protocol_of(split.stream) is StreamQuestions


def test_a_run_meets_the_events_it_was_trained_on():
    from tests.online.streams import restless_model

    model = restless_model(SPLIT.stream)
    assert model.shape.undirected
    tsnn.ModelScorer(model, SPLIT.stream)
    with pytest.raises(InputError, match="trained on undirected events and the data are directed"):
        tsnn.ModelScorer(model, tied_stream())
