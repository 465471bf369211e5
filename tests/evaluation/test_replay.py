"""One pass serves any number of listeners, and each is told what is its own."""

from __future__ import annotations

import numpy as np
import pytest

from tests.evaluation.streams import tied_split
from tsnn.data.queries import Ranking, Share
from tsnn.data.question import Question, asks
from tsnn.errors import InputError
from tsnn.evaluation.baselines import EdgeBank, Popularity, Recency
from tsnn.evaluation.evaluate import make_questions
from tsnn.evaluation.replay import Answers, Listener, Replayed, Scores, answers_of, figures, replay, score_queries
from tsnn.plan.planner import Planner, PlanSpec
from tsnn.types import Visibility

STREAM = tied_split().stream


def ranking(start: int, stop: int, seed: int) -> Ranking:
    rng, rows = np.random.default_rng(seed), np.arange(start, stop)
    bounds = np.concatenate([[0], np.cumsum(rng.integers(1, 5, len(rows)))])
    nodes = rng.integers(0, STREAM.num_nodes, bounds[-1])
    return Ranking(STREAM, asks(STREAM, rows), Visibility.parse("strict").cuts(STREAM.t)[rows], bounds, nodes)


class Counted(Recency):
    """A scorer that notes the rows it runs."""

    def __init__(self) -> None:
        self.rows: list[int] = []

    def update(self, plan) -> None:
        self.rows += range(plan.update.start, plan.update.stop)


class Standing(Listener):
    """Keeps what was counted by the time of each stop."""

    def __init__(self, *stops: int) -> None:
        self.stops = stops
        self.found: dict[int, np.ndarray] = {}

    def hear(self, seen: Replayed, own: Share) -> None:
        assert own.first == own.last
        if seen.block.update.stop in self.stops:
            self.found.setdefault(seen.block.update.stop, seen.counters.tables.degree.copy())


@pytest.mark.parametrize("sizes", [(2000, 100_000), (7, 11)])
def test_listeners_with_queries_of_their_own_share_one_pass(sizes) -> None:
    sets = [ranking(100, 200, seed=1), ranking(50, 300, seed=2), ranking(120, 130, seed=3)]
    scorer, listeners = Counted(), [Scores(asked) for asked in sets]
    replay(scorer, STREAM, listeners, max_rows=sizes[0], max_candidates=sizes[1])
    assert scorer.rows == list(range(max(int(asked.cut[-1]) for asked in sets)))
    for asked, listener in zip(sets, listeners, strict=True):
        np.testing.assert_array_equal(listener.values, score_queries(Recency(), STREAM, asked))


def test_the_same_queries_are_scored_once() -> None:
    class Asked(Counted):
        candidates = 0

        def score(self, plan, versions):
            Asked.candidates += len(plan.score.cand)
            return super().score(plan, versions)

    asked = ranking(100, 200, seed=1)
    replay(Asked(), STREAM, [Scores(asked), Scores(asked), Standing(150)])
    assert Asked.candidates == asked.ptr[-1]


def test_at_a_stop_the_plan_is_not_ahead() -> None:
    stops, standing = (0, 37, 38, 250), Standing(0, 37, 38, 250)
    replay(Recency(), STREAM, [standing, Scores(ranking(30, 60, seed=1))], max_rows=10)
    for stop in stops:
        planner = Planner(STREAM, PlanSpec())
        planner.advance(stop)
        np.testing.assert_array_equal(standing.found[stop], planner.counters.tables.degree)


def test_a_second_scorer_gets_its_own_figures_from_the_same_pass() -> None:
    split = tied_split()
    questions = make_questions(split, Question())
    rivals = [Popularity(), EdgeBank("fixed_proportion")]
    beside = [answers_of(rival, questions) for rival in rivals]
    replay(Recency(), STREAM, [Answers(questions), *beside])
    for rival, answers in zip(rivals, beside, strict=True):
        assert answers.result(rival.name) == figures(rival, STREAM, questions)


def test_unsorted_queries_are_refused() -> None:
    backwards = ranking(100, 110, seed=1).slice(0, 10)
    with pytest.raises(InputError, match="sorted by cut"):
        score_queries(Recency(), STREAM, type(backwards)(**{**vars(backwards), "cut": backwards.cut[::-1]}))
