"""How true an intensity is on rows that it was not fitted to: are its times right, and its probabilities?"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import kstest

from tsnn.data.events import EventStream
from tsnn.data.queries import relations
from tsnn.data.question import asks
from tsnn.data.split import Split
from tsnn.intensity.acts import Acts, Grid
from tsnn.intensity.everyone import expected_of_all
from tsnn.intensity.intensity import Intensity
from tsnn.kernel_cache import kernel
from tsnn.plan.planner import Planner, PlanSpec, mean_gap
from tsnn.types import F64, I64, Bool, Visibility

MOMENTS = 24  # of the training rows, and of the test rows, at which a forecast is made
HORIZON = 100  # mean gaps that it reaches, or one tick of a clock if that is more


def calibration(intensity: Intensity, split: Split) -> dict[str, Any]:
    """The Kolmogorov-Smirnov distance of rescaled times on test rows, and Brier scores of forecasts made among them.

    A forecast says of every source that has acted whether it will again before the horizon. Beside the intensity: a
    rate of its own for each source, its acts so far over the time so far; and whether it acted within the last such
    time, with the share of both kinds that did again, as training rows have it.
    """
    stream, start, stop = split.stream, split.val_end, split.stream.num_events
    found: dict[str, Any] = {"parameters": intensity.parameters}
    if not intensity.grid.tick:  # between the ticks of a clock there is nothing to rescale
        times = rescaled(intensity, stream, start, stop)
        found |= {"ks": float(kstest(times, "expon").statistic) if len(times) else None, "acts": len(times)}
    horizon = max(HORIZON * mean_gap(stream.t[: split.train_end]), intensity.grid.tick)
    planner = Planner(stream, intensity.grid.counted(PlanSpec()))
    trained = [_forecast(intensity, planner, t, horizon) for t in _moments(stream, 0, split.train_end, horizon)]
    tested = [_forecast(intensity, planner, t, horizon) for t in _moments(stream, start, stop, horizon)]
    if not trained or not tested:
        return found
    (_, _, lately, did), (expected, own, late, does) = map(_joined, (trained, tested))
    shares = [did[lately == kind].mean() if (lately == kind).any() else 0.0 for kind in (False, True)]
    says = {"intensity": intensity.probability(expected), "poisson": intensity.probability(own)}
    says["recency"] = np.where(late, shares[1], shares[0])
    brier = {name: float(((chance - does) ** 2).mean()) for name, chance in says.items()}
    return {**found, "horizon": horizon, "forecasts": len(does), "share_that_acts": float(does.mean()), "brier": brier}


def _joined(parts: list[tuple[F64, F64, Bool, Bool]]) -> tuple[F64, F64, Bool, Bool]:
    expected, own, lately, does = (np.concatenate(column) for column in zip(*parts, strict=True))
    return expected, own, lately, does


def _moments(stream: EventStream, start: int, stop: int, horizon: float) -> list[float]:
    """Moments among these rows from which the horizon can be seen, ahead and back, on the plan's clock."""
    t = stream.t[start:stop] - stream.t[0]
    first, last = max(float(t[0]), horizon), float(t[-1]) - horizon
    return np.linspace(first, last, MOMENTS).tolist() if last > first else []


def _forecast(intensity: Intensity, planner: Planner, t: float, horizon: float) -> tuple[F64, F64, Bool, Bool]:
    """Of all who have acted: events expected, events of a rate of its own, whether it did lately, whether it will."""
    stream = planner.stream
    clock = (stream.t - stream.t[0]).astype(np.float64)
    before, now, after = (int(row) for row in np.searchsorted(clock, (t - horizon, t, t + horizon), side="right"))
    planner.advance(max(now, planner.position))
    tables = planner.counters.tables
    src, relation, expected = expected_of_all(tables, intensity, t, horizon)
    acts = tables.actor_acts[: len(src)]
    keys, known = (src << 32) | relation, acts > 0
    own: F64 = np.multiply(acts[known], horizon / t, dtype=np.float64)
    lately, does = (np.isin(keys, _keys(stream, *rows)) for rows in ((before, now), (now, after)))
    return expected[known], own, lately[known], does[known]


def _keys(stream: EventStream, start: int, stop: int) -> I64:
    """Who acted in these rows, as the counters name actors."""
    own = asks(stream, np.arange(start, stop))
    keys: I64 = (own.src << 32) | relations(stream, own.rows)
    return keys


def rescaled(intensity: Intensity, stream: EventStream, start: int, stop: int) -> F64:
    """Of every time at which an actor acted in these rows, the bursts that were expected of it since the one before.

    Of the true intensity they are exponential with mean 1 (time rescaling). A row is known of once it has happened.
    """
    cuts, arrival = np.arange(stream.num_events), Visibility.parse("arrival")
    grid: Grid = intensity.grid
    earlier = Acts.of(stream, arrival, cuts, start, grid.roles) if start else None
    acts = Acts.of(stream, arrival, cuts, stop, grid.roles)
    weights, first = np.array(intensity.weights), 0 if earlier is None else len(earlier.t)
    found: NDArray[np.float64] = _rescaled(
        acts.actor, acts.role, acts.t, grid.rates, grid.roles, intensity.base, weights, first
    )
    return found / intensity.burst


@kernel()
def _rescaled(actor: I64, role: I64, t: F64, rates: F64, roles: int, base: float, weights: F64, first: int) -> F64:
    scales = len(rates)
    people = actor.max() + 1 if len(actor) else 0
    counts, last = np.zeros((people, roles * scales)), np.zeros(people)
    acted, since, began = np.zeros(people, np.bool_), np.zeros(people), np.zeros(people)
    found = np.empty(len(actor))
    n = 0
    for i in range(len(actor)):
        a = actor[i]
        gap = t[i] - last[a]
        if acted[a]:
            since[a] += base * gap
        for k in range(scales):
            fade = np.exp(-rates[k] * gap)
            brings = weights[roles * scales + k]
            for r in range(roles):
                brings += weights[r * scales + k] * counts[a, r * scales + k]
                counts[a, r * scales + k] *= fade
            if acted[a]:
                since[a] += brings * (1.0 - fade)
            counts[a, role[i] * scales + k] += 1.0
        last[a] = t[i]
        if role[i] == 0:
            if acted[a] and i >= first and t[i] > began[a]:
                found[n] = since[a]
                n += 1
            acted[a], began[a] = True, t[i]
            since[a] = 0.0
    return found[:n]
