"""The planner: growth, times, refusals, EdgeBank's window, pure reads."""

from __future__ import annotations

import pickle
from dataclasses import replace

import numpy as np
import pytest

from tests.engine.streams import every_row, tricky_stream
from tsnn.data.events import EventStream, NodeIds
from tsnn.data.queries import NO_QUERIES, Queries
from tsnn.errors import InputError, RunError
from tsnn.plan.chunk import ScoreOut, UpdateOut
from tsnn.plan.counters import Counters
from tsnn.plan.facts import COLUMN
from tsnn.plan.planner import Planner, PlanSpec, mean_gap

FULL = PlanSpec(
    num_neighbors=3, cn_neighbors=4, cn_decay=2.0, window=4.0, common_neighbors=True, two_hop=True, successor=True
)


def big_stream(events: int = 3000, nodes: int = 60) -> EventStream:
    rng = np.random.default_rng(0)
    t = np.cumsum(rng.random(events))
    return EventStream(rng.integers(0, nodes, events), rng.integers(0, nodes, events), t, NodeIds(range(nodes)))


def one_query(stream: EventStream, cut: int, src: int, t: float, cand: list[int], rel: int = 0) -> Queries:
    one = np.array([rel])
    return Queries(np.array([cut]), np.array([src]), np.array([t]), one, np.array([0, len(cand)]), np.array(cand))


def fact(plan, name: str) -> list[float]:
    return plan.score.facts[:, COLUMN[name]].tolist()


def test_growing_tables_lose_nothing():
    """One sweep over everything equals many small ones, through every growth of the tables."""
    stream = big_stream()
    queries = every_row(stream, "strict")
    whole = Planner(stream, FULL).plan(stream.num_events, queries).score.facts
    planner, parts = Planner(stream, FULL), []
    for stop in range(50, stream.num_events + 1, 50):
        first = np.searchsorted(queries.cut, planner.position, side="right") if planner.position else 0
        parts.append(planner.plan(stop, queries.slice(first, np.searchsorted(queries.cut, stop, side="right"))))
    np.testing.assert_array_equal(np.concatenate([part.score.facts for part in parts]), whole)


def test_edgebank_counts_inside_the_window_without_writing():
    """alg:edgebank: the pair 0 -> 1 at times 0, 2, 5, 9; asking late does not expire anything (D-02)."""
    t = np.array([0.0, 2.0, 5.0, 9.0])
    stream = EventStream(np.zeros(4, np.int64), np.ones(4, np.int64), t, NodeIds(range(3)))
    planner = Planner(stream, PlanSpec(window=4.0))
    planner.plan(3, NO_QUERIES)
    for asked, count, gap in ((6.0, 2, 1.0), (6.5, 1, 1.5), (100.0, 0, -1.0), (6.0, 2, 1.0)):
        plan = planner.plan(3, one_query(stream, 3, 0, asked, [1, 2]))
        assert fact(plan, "bank_count") == [count, 0]
        assert fact(plan, "bank_gap") == [gap, -1.0]


def test_edgebank_is_oriented_and_kept_per_relation():
    """alg:edgebank: triples (u, v, r)."""
    stream = replace(tricky_stream(relations=True), src=np.zeros(26, np.int64), dst=np.ones(26, np.int64))
    planner = Planner(stream, PlanSpec())
    planner.plan(26, NO_QUERIES)
    counts = [int((stream.edge_type == r).sum()) for r in range(3)]
    for r in range(3):
        plan = planner.plan(26, one_query(stream, 26, 0, 99.0, [1], r))
        assert fact(plan, "bank_count") == [counts[r]]
        assert fact(plan, "pair_count") == [26]
    assert fact(planner.plan(26, one_query(stream, 26, 1, 99.0, [0])), "bank_count") == [0]


def test_nanosecond_times_keep_their_gaps():
    """D-10: int64 times near 2^60, one nanosecond apart."""
    start = np.int64(1_700_000_000_000_000_000)
    t = start + np.array([0, 1, 5], np.int64)
    stream = EventStream(np.array([0, 0, 0]), np.array([1, 1, 1]), t, NodeIds(range(2)))
    planner = Planner(stream, PlanSpec())
    query = one_query(stream, 3, 0, 0.0, [1])
    plan = planner.plan(3, replace(query, t=np.array([start + 7])))
    assert fact(plan, "pair_gap") == [2.0]


def test_a_planner_only_goes_forward():
    planner = Planner(tricky_stream(), PlanSpec())
    planner.advance(5)
    with pytest.raises(InputError, match="cannot go to 3"):
        planner.plan(3, NO_QUERIES)
    with pytest.raises(InputError, match="must be cut inside"):
        planner.plan(8, every_row(planner.stream, "arrival"))


def test_snapshots_restore_the_counters():
    stream = big_stream(400)
    queries = every_row(stream, "arrival").slice(300, 400)
    planner = Planner(stream, FULL)
    planner.advance(300)
    saved = planner.counters.snapshot()
    first = planner.plan(400, queries).score.facts
    planner.counters.restore(saved)
    planner.position = 300
    np.testing.assert_array_equal(planner.plan(400, queries).score.facts, first)
    with pytest.raises(RunError, match="lack ring_id"):
        planner.counters.restore({name: column for name, column in saved.items() if name != "ring_id"})


def test_counters_make_room_for_more_nodes():
    counters = Counters(3, 2)
    counters.tables.degree[:] = 7
    counters.make_room(10, 8)
    assert counters.tables.degree.tolist()[:8] == [7, 7, 7, 0, 0, 0, 0, 0]
    assert counters.tables.last_dst.shape[1] == 3


def test_mean_gap_of_nothing_is_one():
    assert mean_gap(np.array([5.0])) == mean_gap(np.array([5.0, 5.0])) == 1.0
    assert mean_gap(np.array([1.0, 2.0, 7.0])) == 3.0


@pytest.mark.parametrize("record", [UpdateOut, ScoreOut])
def test_tuples_of_columns_are_found_again_by_name(record):
    """Compiled code is kept for the next process under its argument types, so these must be the same there."""
    assert pickle.loads(pickle.dumps(record)) is record
