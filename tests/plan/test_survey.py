"""Everybody's facts at once are the facts of a sweep."""

from __future__ import annotations

import numpy as np
import pytest

from tests.engine.streams import tricky_stream
from tests.plan.test_planner import FULL, big_stream, one_query
from tsnn.plan.facts import COLUMN, FACTS
from tsnn.plan.planner import Planner, PlanSpec
from tsnn.plan.survey import survey


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("spec", [FULL._replace(walk_dim=16, walk_rate=0.2, activity_rate=1 / 9), PlanSpec()])
@pytest.mark.parametrize("relations", [False, True])
def test_a_survey_gives_the_facts_of_a_sweep(spec, relations, dtype) -> None:
    stream = tricky_stream(relations=relations)
    planner = Planner(stream, spec)
    n = stream.num_events
    planner.advance(n)
    everybody = np.arange(stream.num_nodes)
    for source in everybody:
        t = float(stream.t[-1]) + 1.5
        swept = planner.plan(n, one_query(stream, n, source, t, everybody.tolist(), rel=1)).score.facts
        pairs = [
            COLUMN[name] for name in ("pair_count", "reverse_count", "succ_count_1", "succ_count_2", "succ_count_3")
        ]
        related = (swept[:, pairs] > 0).any(axis=1)
        for marked in (related, np.ones_like(related)):
            found = planner.survey(source, np.array([t]), 1, everybody, marked, dtype)
            np.testing.assert_allclose(found, swept, rtol=1e-5, atol=1e-6)


def test_a_survey_of_many_is_filled_to_the_last() -> None:
    stream = big_stream(500)
    planner = Planner(stream, FULL._replace(walk_dim=16))
    planner.advance(500)
    cand = np.tile(np.arange(60), 200)
    facts = planner.survey(3, np.array([stream.t[-1]]), 0, cand, np.ones(len(cand), np.bool_))
    np.testing.assert_array_equal(facts, np.tile(facts[:60], (200, 1)))


def test_one_candidate_is_surveyed_by_the_kernel_of_many() -> None:
    """Else `explain` would wait for the compiler once more after `recommend`."""
    stream = tricky_stream()
    planner = Planner(stream, FULL)
    for count in (5, 1):
        found = planner.survey(0, np.array([stream.t[-1]]), 0, np.arange(count), np.ones(count, np.bool_))
        assert found.shape == (count, len(FACTS))
    assert {signature[8].layout for signature in survey.signatures} == {"F"}
