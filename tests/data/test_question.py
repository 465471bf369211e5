"""One definition of who is a candidate: what training draws, what figures are made with, what may be recommended."""

from __future__ import annotations

import numpy as np
import pytest

from tsnn.config import Config
from tsnn.data.events import EventStream, make_stream
from tsnn.data.negatives import NegativePool, draw_training_negatives
from tsnn.data.question import Question
from tsnn.data.split import split_by_time
from tsnn.errors import InputError
from tsnn.types import Visibility

USERS, ITEMS, PEOPLE = np.arange(10), np.arange(10, 16), np.arange(16, 20)


def shop(types: bool = False) -> EventStream:
    """Ten users and six items; four people appear as sources only, and the last item after training only."""
    rng = np.random.default_rng(0)
    src = np.r_[USERS, PEOPLE, rng.integers(0, 10, 286)]
    dst = np.r_[rng.integers(10, 15, 290), np.full(10, 15)]
    kinds = np.repeat([0, 1, 0], [10, 6, 4]) if types else None
    return make_stream(
        src, dst, np.arange(300.0), node_type=kinds, ids=make_stream(range(20), range(20), range(20)).ids
    )


def in_degree(stream: EventStream, rows: int) -> np.ndarray:
    return np.bincount(stream.dst[:rows], minlength=stream.num_nodes)


@pytest.mark.parametrize("types", [False, True])
def test_training_draws_from_those_who_may_be_recommended(types: bool) -> None:
    stream = shop(types)
    may = Question().may_answer(in_degree(stream, 200), stream.node_type)
    pool = NegativePool.build(stream, 200, Question())
    rows = np.arange(200)
    drawn = draw_training_negatives(stream, rows, rows, 5, "random", np.random.default_rng(0), pool)
    assert set(drawn.ravel().tolist()) == set(ITEMS[:-1].tolist())
    assert may[drawn].all()
    assert may[ITEMS[-1]] == types  # never chosen yet, but of a type that has been
    assert not may[USERS].any()
    assert not may[PEOPLE].any()


def test_all_means_every_node_everywhere() -> None:
    stream, question = shop(), Question(candidates="all")
    assert question.may_answer(in_degree(stream, 200), None).all()
    np.testing.assert_array_equal(question.pool(stream).nodes, np.arange(20))
    np.testing.assert_array_equal(question.pool(stream, 200).nodes, np.delete(np.arange(20), ITEMS[-1]))
    np.testing.assert_array_equal(question.pool(shop(types=True)).of_type(1), ITEMS)


def test_a_pool_is_told_by_its_rows_and_sorted_by_type() -> None:
    stream = make_stream([0, 1, 2, 3], [4, 6, 5, 7], range(4), node_type=[0, 0, 0, 0, 1, 0, 0, 1])
    early, whole = Question().pool(stream, 3), Question().pool(stream)
    assert [early.of_type(kind).tolist() for kind in (0, 1)] == [[0, 1, 2, 5, 6], [4]]
    assert [whole.of_type(kind).tolist() for kind in (0, 1)] == [[0, 1, 2, 3, 5, 6], [4, 7]]


def test_what_may_be_known_are_the_cuts_of_its_visibility() -> None:
    split, visibility = split_by_time(shop()), Visibility.parse("batch:7")
    expected = visibility.cuts(split.stream.t, split.segment_starts)
    np.testing.assert_array_equal(Question(visibility).cuts(split), expected)


def test_it_comes_back_from_its_card() -> None:
    asked = Question(Visibility.parse("batch:200"), candidates="all", negatives="historical")
    assert Question.from_card({"question": asked.to_card()}) == asked
    written = {"visibility": "batch:200", "candidates": "all", "negatives": "historical", "direction": "directed"}
    assert asked.about(shop()).to_card() == written | {"history": "train"}


def test_a_run_from_before_has_the_usual_question() -> None:
    assert Question.from_card({"visibility": "arrival"}) == Question(Visibility("arrival"))
    assert Question.from_card({}) == Question() == Question.of(Config().train)


def test_a_run_is_asked_what_it_is_trained_for() -> None:
    config = Config.build(overrides={"train.candidates": "all", "train.visibility": "arrival"})
    assert Question.of(config.train) == Question(Visibility("arrival"), candidates="all")


def test_unknown_candidates_are_refused() -> None:
    with pytest.raises(InputError, match="'item4' are none of destinations, all; name nodes in a list"):
        Question(candidates="item4")
