"""What the intensity expects of every actor that the counters know, compiled: one pass over their rows."""

from __future__ import annotations

import math

import numpy as np

from tsnn.intensity.intensity import Intensity
from tsnn.kernel_cache import kernel
from tsnn.plan.tables import N_ACTORS, Tables
from tsnn.types import F64, I64


@kernel()
def _expected(acts: I64, last: F64, recent: F64, t: float, base: float, rates: F64, gains: F64, found: F64) -> None:
    """As `Intensity.expected` has it for one source: what is counted, faded until t, times what it brings about."""
    scales, fading = len(rates), recent.shape[1]
    for a in range(len(found)):
        gap = t - last[a]
        total = base if acts[a] else 0.0
        for k in range(scales):
            brought = gains[fading + k] if acts[a] else 0.0
            for c in range(k, fading, scales):
                brought += recent[a, c] * gains[c]
            if brought > 0:
                total += brought * math.exp(-rates[k] * gap)
        found[a] = total


def expected_of_all(tables: Tables, intensity: Intensity, t: float, horizon: float) -> tuple[I64, I64, F64]:
    """Source and relation of every actor, and its expected events from t, on the counters' clock, until the horizon."""
    n = int(tables.ints[N_ACTORS])
    found, grid = np.empty(n), intensity.grid
    gains = np.array(intensity.weights) * np.tile(grid.faded(horizon), grid.roles + 1)
    _expected(
        tables.actor_acts[:n], tables.actor_last[:n], tables.actor_recent[:n],
        t, intensity.base * horizon, grid.rates, gains, found,
    )  # fmt: skip
    return tables.actor_key[:n] >> 32, tables.actor_key[:n] & 0xFFFFFFFF, found
