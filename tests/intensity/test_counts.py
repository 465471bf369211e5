"""What the plan counts of every source, against plain sums over the rows that each question may see."""

from __future__ import annotations

import numpy as np
import pytest

from tests.engine.streams import every_row, tricky_stream
from tests.plan.test_planner import big_stream
from tsnn.data.queries import NO_QUERIES
from tsnn.errors import InputError
from tsnn.plan.planner import Planner, PlanSpec

COUNTED = PlanSpec(act_scales=4, act_roles=2, act_rate=3.0, act_ratio=0.3)
RATES = 3.0 * 0.3 ** np.arange(4)


def expected(stream, query: int, queries, roles: int) -> np.ndarray:
    """What `source_acts` says it writes, as it reads."""
    seen, u, t = slice(0, queries.cut[query]), queries.src[query], queries.t[query]
    same = np.ones(queries.cut[query], bool)
    if stream.edge_type is not None:
        same = stream.edge_type[seen] == queries.edge_type[query]
    did = same & (stream.src[seen] == u)
    befell = same & (stream.dst[seen] == u) & ~did
    if stream.undirected:
        did, befell = did | befell, did & False
    faded = np.exp(-RATES * (t - stream.t[seen])[:, None])
    parts = [faded[did].sum(0), faded[befell].sum(0)][:roles]
    counted = np.flatnonzero(did | (befell & (roles == 2)))
    last = faded[counted[-1]] if did.any() else np.zeros(4)
    return np.concatenate([[did.sum()], *parts, last])


@pytest.mark.parametrize("visibility", ["strict", "arrival", "batch:5"])
@pytest.mark.parametrize("relations", [False, True])
@pytest.mark.parametrize("undirected", [False, True])
def test_counts_are_those_of_the_rows_that_may_be_seen(visibility, relations, undirected):
    stream = tricky_stream(relations=relations, undirected=undirected)
    roles = 1 if undirected else 2
    queries = every_row(stream, visibility)
    plan = Planner(stream, COUNTED._replace(act_roles=roles)).plan(stream.num_events, queries)
    wanted = [expected(stream, query, queries, roles) for query in range(len(queries))]
    np.testing.assert_allclose(plan.score.acts, wanted, rtol=1e-12, atol=1e-16)


def test_chunks_and_growth_change_no_bit_and_the_facts_stay_what_they_are():
    stream = big_stream()
    queries = every_row(stream, "strict")
    plain = Planner(stream, PlanSpec()).plan(stream.num_events, queries).score
    whole = Planner(stream, COUNTED).plan(stream.num_events, queries).score
    planner, parts = Planner(stream, COUNTED), []
    for stop in range(100, stream.num_events + 1, 100):
        first = np.searchsorted(queries.cut, planner.position, side="right") if planner.position else 0
        last = np.searchsorted(queries.cut, stop, side="right")
        parts.append(planner.plan(stop, queries.slice(first, last)).score.acts)
    np.testing.assert_array_equal(np.concatenate(parts), whole.acts)
    np.testing.assert_array_equal(plain.facts, whole.facts)
    assert plain.acts.size == 0


def test_saved_counts_are_found_again_and_are_not_missed_in_a_run_from_before_them():
    stream = big_stream(600)
    queries = every_row(stream, "arrival").slice(500, 600)
    planner = Planner(stream, COUNTED)
    planner.advance(500)
    saved = planner.counters.snapshot()
    acts = planner.plan(600, queries).score.acts
    planner.counters.restore(saved)
    planner.position = 500
    np.testing.assert_array_equal(planner.plan(600, queries).score.acts, acts)
    assert (np.diff(saved["actor_key"]) > 0).all()  # whoever came first: equal histories give equal snapshots

    older = Planner(stream, PlanSpec())
    older.advance(500)
    saved = {name: column for name, column in older.counters.snapshot().items() if not name.startswith("act")}
    older.counters.restore({**saved, "ints": saved["ints"][:7]})
    older.position = 500
    assert older.plan(600, NO_QUERIES).update.num_events == 100
    with pytest.raises(InputError, match="counted"):
        Planner(stream, COUNTED, older.counters)
