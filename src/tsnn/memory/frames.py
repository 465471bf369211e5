"""Initial frames from a counter-based generator keyed by (seed, node): no order of arrival changes them (D-05)."""

from __future__ import annotations

import numpy as np

from tsnn.types import F64, U64

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def _mix(x: U64) -> U64:
    """The finalizer of splitmix64: a bijection of 64-bit words that passes for random."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def _uniform(bits: U64) -> F64:
    """The top 53 bits as a float in (0, 1]."""
    return ((bits >> np.uint64(11)) + np.uint64(1)).astype(np.float64) * 2.0**-53


def initial_frames(seed: int, keys: U64, num_reflectors: int, stalk_dim: int) -> F64:
    """F ~ N(0, 1/k) for each node key (app:inductive), shape (nodes, k, d)."""
    size = num_reflectors * stalk_dim
    counters = np.arange(1, 2 * size + 1, dtype=np.uint64) * _GOLDEN
    with np.errstate(over="ignore"):
        stream = _mix(keys + np.uint64(seed + 1) * _GOLDEN)
        bits = _mix(stream[:, None] + counters)
    radius = np.sqrt(-2.0 * np.log(_uniform(bits[:, :size])))
    normal: F64 = radius * np.cos(2.0 * np.pi * _uniform(bits[:, size:])) / np.sqrt(num_reflectors)
    return normal.reshape(-1, num_reflectors, stalk_dim)
