"""Initial frames, drawn per node from its own key: neither order of arrival nor batching changes them (D-05)."""

from __future__ import annotations

import numpy as np

from tsnn.random import random_normals
from tsnn.types import F64, U64


def initial_frames(seed: int, keys: U64, num_reflectors: int, stalk_dim: int) -> F64:
    """F ~ N(0, 1/k) for each node key (app:inductive), shape (nodes, k, d)."""
    frames: F64 = random_normals(seed, keys, num_reflectors * stalk_dim) / np.sqrt(num_reflectors)
    return frames.reshape(-1, num_reflectors, stalk_dim)
