"""Counter-based random numbers: a function of (seed, key, position), so no order of arrival changes them (D-05)."""

from __future__ import annotations

import numpy as np

from tsnn.types import F64, U64

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def random_words(seed: int, keys: U64, count: int) -> U64:
    """`count` 64-bit words for each key, shape (keys, count)."""
    positions = np.arange(1, count + 1, dtype=np.uint64) * _GOLDEN
    with np.errstate(over="ignore"):
        return _mix(_mix(keys + np.uint64(seed + 1) * _GOLDEN)[:, None] + positions)


def random_normals(seed: int, keys: U64, count: int) -> F64:
    """`count` standard normals for each key (Box-Muller), shape (keys, count)."""
    words = random_words(seed, keys, 2 * count)
    radius = np.sqrt(-2.0 * np.log(_uniform(words[:, :count])))
    normals: F64 = radius * np.cos(2.0 * np.pi * _uniform(words[:, count:]))
    return normals


def _mix(x: U64) -> U64:
    """The finalizer of splitmix64: a bijection of 64-bit words that passes for random."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def _uniform(words: U64) -> F64:
    """The top 53 bits as a float in (0, 1]."""
    return ((words >> np.uint64(11)) + np.uint64(1)).astype(np.float64) * 2.0**-53
