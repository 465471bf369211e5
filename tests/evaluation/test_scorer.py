from __future__ import annotations

import numpy as np
import pytest

from tests.evaluation.streams import tied_split
from tsnn.data.queries import Joined, Queries, Ranking, pairs
from tsnn.data.question import Question, asks
from tsnn.errors import InputError
from tsnn.evaluation.baselines import EdgeBank, Popularity, Recency
from tsnn.evaluation.replay import score_queries
from tsnn.evaluation.scorer import Block
from tsnn.types import F64, Visibility


def ranking(start: int, stop: int, seed: int = 0) -> Ranking:
    split = tied_split()
    rng = np.random.default_rng(seed)
    rows = np.arange(start, stop)
    bounds = np.concatenate([[0], np.cumsum(rng.integers(1, 5, len(rows)))])
    nodes = rng.integers(0, split.stream.num_nodes, bounds[-1]).astype(np.int32)
    cut = Visibility.parse("arrival").cuts(split.stream.t)[rows]
    return Ranking(split.stream, asks(split.stream, rows), cut, bounds, nodes)


def test_blocks_do_not_change_scores() -> None:
    asked = ranking(100, 300)
    whole = score_queries(EdgeBank(), asked.stream, asked)
    for max_rows, max_candidates in ((1, 1000), (1000, 1), (17, 23)):
        again = score_queries(EdgeBank(), asked.stream, asked, max_rows=max_rows, max_candidates=max_candidates)
        np.testing.assert_array_equal(whole, again)


def test_what_lies_after_the_cut_cannot_change_a_score() -> None:
    asked = ranking(100, 200)
    stream = asked.stream
    changed = stream.dst.copy()
    changed[199:] = np.roll(changed[199:], 7)
    other = type(stream)(stream.src, changed, stream.t, stream.ids)
    queries = asked.slice(0, 99)
    for scorer in (EdgeBank(), EdgeBank("fixed_proportion"), Popularity()):
        scorer.fit(tied_split(), Question(Visibility.parse("arrival")))
        np.testing.assert_array_equal(score_queries(scorer, stream, queries), score_queries(scorer, other, queries))


def test_under_strict_the_order_inside_the_querys_own_time_cannot_change_a_score() -> None:
    split, strict = tied_split(), Visibility.parse("strict")
    stream = split.stream
    rows = np.flatnonzero(stream.t == stream.t[-1])
    assert len(rows) > 1
    order = np.arange(stream.num_events)
    order[rows] = rows[::-1]
    for scorer in (EdgeBank(), EdgeBank("fixed_proportion"), EdgeBank("repeat_interval"), Recency(), Popularity()):
        found = []
        for shown in (stream, stream.take(order)):
            cut = strict.cuts(shown.t)[rows]
            scorer.fit(split, Question(strict))
            queries = pairs(shown, rows, cut, stream.src[rows], stream.dst[rows])
            found.append(score_queries(scorer, shown, queries))
        np.testing.assert_array_equal(*found)


def test_progress_ends_at_the_whole_work() -> None:
    asked, seen = ranking(50, 100), []
    watch = lambda done, total, text: seen.append((done, total))  # noqa: E731
    score_queries(EdgeBank(), asked.stream, asked, max_rows=20, progress=watch)
    assert seen == sorted(seen)
    assert seen[-1] == (99 + asked.ptr[-1], 99 + asked.ptr[-1])


def test_a_scorer_with_a_wrong_shape_is_named() -> None:
    class Short(Popularity):
        name = "short"

        def score(self, plan: Block, versions: None) -> F64:  # type: ignore[override]
            return super().score(plan, versions)[:-1]

    asked = ranking(50, 60)
    with pytest.raises(InputError, match="short"):
        score_queries(Short(), asked.stream, asked)


def test_ranking_puts_the_positive_first() -> None:
    asked = ranking(100, 140)
    queries = asked.slice(0, 40)
    np.testing.assert_array_equal(queries.cand[queries.ptr[:-1]], asked.stream.dst[100:140])
    rest = np.delete(queries.cand, queries.ptr[:-1])
    np.testing.assert_array_equal(rest, asked.nodes)
    part = asked.slice(13, 29)
    np.testing.assert_array_equal(part.cand, queries.slice(13, 29).cand)
    np.testing.assert_array_equal(part.ptr, queries.slice(13, 29).ptr)


def table(queries: Queries) -> list[tuple]:
    """Every query with its candidates, in order."""
    each = zip(
        queries.cut, queries.src, queries.t, queries.edge_type, np.split(queries.cand, queries.ptr[1:-1]), strict=False
    )
    return [(*columns, tuple(cand)) for *columns, cand in each]


def test_joined_queries_are_sorted_by_cut_and_find_the_way_back() -> None:
    stream = tied_split().stream
    first, second = ranking(100, 150), ranking(90, 200, seed=1)
    third = pairs(stream, np.arange(5), np.zeros(5, np.int64), stream.src[:5], stream.dst[:5])
    sets = [first, second, third]
    joined = Joined(sets)
    every = [row for own in sets for row in table(own.slice(0, len(own)))]
    expected = sorted(every, key=lambda row: row[0])  # stable: ties keep the order of the sets
    assert table(joined.slice(0, len(joined))) == expected
    assert list(joined.ptr) == [0, *np.cumsum([len(row[-1]) for row in expected])]
    for start, stop in ((0, 60), (5, 10), (8, 155), (50, 50), (165, 165), (0, 3)):
        part = joined.slice(start, stop)
        assert table(part) == expected[start:stop]
        for i, own in enumerate(sets):
            share = joined.share(i, start, stop)
            np.testing.assert_array_equal(part.cand[share.at], own.slice(share.first, share.last).cand)
            np.testing.assert_array_equal(share.ptr, own.slice(share.first, share.last).ptr)
    for own, back in zip(sets, joined.split(joined.cut.astype(float)), strict=True):
        np.testing.assert_array_equal(own.cut, back)


def test_sets_one_after_the_other_stay_so() -> None:
    parts = [ranking(100, 110), ranking(110, 150, seed=1), ranking(150, 160, seed=2)]
    whole = Joined(parts)
    assert table(whole.slice(8, 55)) == [row for part in parts for row in table(part.slice(0, len(part)))][8:55]
    assert [len(x) for x in whole.split(np.zeros(60))] == [10, 40, 10]
