"""The closed-form likelihood against plain sums, numerical integration and finite differences."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from scipy.integrate import quad

from tests.engine.streams import tricky_stream
from tsnn.data.question import Question
from tsnn.data.split import make_split
from tsnn.intensity.acts import Acts, Grid
from tsnn.intensity.likelihood import MAX_TERMS, exposure, log_likelihood, maximize
from tsnn.types import Visibility

THETA = np.array([0.3, 0.05, 0.2, 0.1, 0.05, 0.15, 0.02, 0.3, 0.1, 0.2, 0.1])
FLOWING = Grid(3, 2, 2.0, 0.3)
CLOCK = FLOWING._replace(tick=1.0)


def acts_of(visibility: str, roles: int = 2, undirected: bool = False) -> tuple[Acts, np.ndarray]:
    stream = tricky_stream(undirected=undirected)
    question = Question(Visibility.parse(visibility))
    cuts = question.cuts(make_split(stream, 18, 22))
    return Acts.of(stream, question.visibility, cuts, 18, roles), cuts


def columns(acts: Acts, grid: Grid, actor: int, t: float, known: np.ndarray) -> np.ndarray:
    """What every entry of theta stands before: of these entries, as it reads."""
    own = np.flatnonzero(known & (acts.actor == actor))
    fading = grid.rates * np.exp(-grid.rates * (t - acts.t[own])[:, None])
    roles = [fading[acts.role[own] == role].sum(0) for role in range(grid.roles)]
    acted = (acts.role[own] == 0).any()
    return np.concatenate([[not acted, acted], *roles, fading[-1] * acted if len(own) else np.zeros(grid.scales)])


def value(acts: Acts, grid: Grid, theta: np.ndarray, exposed: np.ndarray) -> float:
    total, begun = -float(theta @ exposed), set()
    for i in np.flatnonzero(acts.role == 0):
        x = columns(acts, grid, acts.actor[i], acts.t[i], np.arange(len(acts.t)) < acts.known[i])
        if x[0] and acts.actor[i] in begun:
            continue
        begun.add(acts.actor[i])
        total += np.log(theta @ x)
    return total


@pytest.mark.parametrize("visibility", ["strict", "arrival", "batch:5"])
@pytest.mark.parametrize("roles", [1, 2])
def test_value_gradient_and_curvature(visibility, roles):
    acts, _ = acts_of(visibility, roles)
    grid = FLOWING._replace(roles=roles)
    theta = THETA[: 2 + 3 * (roles + 1)]
    exposed = exposure(acts, grid)
    found, gradient, curvature = log_likelihood(acts, grid, theta, exposed)
    assert found == pytest.approx(value(acts, grid, theta, exposed), rel=1e-12)
    for k in range(len(theta)):
        step = 1e-6 * np.eye(len(theta))[k]
        above, below = (log_likelihood(acts, grid, theta + sign * step, exposed) for sign in (1, -1))
        assert gradient[k] == pytest.approx((above[0] - below[0]) / 2e-6, rel=1e-5, abs=1e-6)
        np.testing.assert_allclose(curvature[k], (below[1] - above[1]) / 2e-6, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("visibility", ["strict", "arrival", "batch:5"])
@pytest.mark.parametrize("roles", [1, 2])
def test_the_integral_is_that_of_numerical_integration(visibility, roles):
    acts, _ = acts_of(visibility, roles)
    grid = FLOWING._replace(roles=roles)
    exposed = exposure(acts, grid)
    summed = np.zeros(len(exposed))
    breaks = np.unique([*acts.t, *acts.seen_from, acts.end])
    for actor in range(acts.actor.max() + 1):
        for a, b in pairwise(breaks):
            known = acts.seen_from <= a

            def entry(t: float, k: int, actor: int = actor, known: np.ndarray = known) -> float:
                return float(columns(acts, grid, actor, t, known)[k])

            summed += [quad(entry, a, b, args=(k,))[0] for k in range(len(exposed))]
    assert exposed[0] == acts.end  # newcomers have one rate together
    np.testing.assert_allclose(exposed[1:], summed[1:], rtol=1e-8, atol=1e-12)


def test_on_a_clock_the_integral_is_a_sum_over_its_ticks():
    acts, _ = acts_of("strict")
    exposed, ticks = exposure(acts, CLOCK), np.unique(acts.t)
    summed = np.zeros(len(exposed))
    for actor in range(acts.actor.max() + 1):
        for before, tick in pairwise(ticks):
            summed += (tick - before) * columns(acts, CLOCK, actor, tick, acts.t < tick)
    np.testing.assert_allclose(exposed[1:], summed[1:], rtol=1e-10, atol=1e-14)


def test_the_best_has_no_better_neighbor_and_few_terms():
    acts, _ = acts_of("strict")
    grid = Grid(8, 2, 4.0, 0.5)
    exposed, theta = exposure(acts, grid), maximize(acts, grid)
    best = log_likelihood(acts, grid, theta, exposed)[0]
    assert (theta >= 0).all()
    assert np.count_nonzero(theta) <= MAX_TERMS < 20
    for k in np.flatnonzero(theta):
        for share in (0.98, 1.02):
            other = theta.copy()
            other[k] *= share
            assert log_likelihood(acts, grid, other, exposed)[0] <= best + 1e-5
    other = theta + 1e-3 / exposed
    assert log_likelihood(acts, grid, other, exposed)[0] <= best + 1e-5


def test_rows_of_one_time_do_not_see_each_other_under_strict():
    """Their order says nothing: neither to the counts nor to the integral."""
    stream = tricky_stream()
    question = Question(Visibility.parse("strict"))
    cuts = question.cuts(make_split(stream, 18, 22))
    _, first = np.unique(stream.t, return_index=True)
    order = np.concatenate([part[::-1] for part in np.split(np.arange(stream.num_events), first[1:])])
    found = []
    for turned in (stream, stream.take(order)):
        acts = Acts.of(turned, question.visibility, cuts, int(first[8]), 2)
        found.append(log_likelihood(acts, FLOWING, THETA, exposure(acts, FLOWING))[0])
    assert found[0] == pytest.approx(found[1], rel=1e-12)
