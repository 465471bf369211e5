"""The version log of a chunk: every state that was read or written in it, and the two losses of its updates."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor


class Versions(NamedTuple):
    """Rows as laid out in `tsnn.plan.chunk`."""

    h: Tensor  # (n0 + nA, d)
    F: Tensor  # (n0 + 2n, k, d)
    energy: Tensor  # (n,) eq:loss_energy
    smooth: Tensor  # (n,) eq:loss_smooth
