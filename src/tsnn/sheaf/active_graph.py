"""The active graph of one event: two weighted stars, symmetrized (D-09).

Entry 0 is the source, entry 1 the destination (absent in a self-loop, where entry 1, if any, is a leaf), the rest are
their distinct recent neighbors. `mult_src[j]` and `mult_dst[j]` count entry j in the buffer of either endpoint.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Stars(NamedTuple):
    """Edge weights of the stars, one row per center (one for a self-loop, otherwise two)."""

    leaf: Tensor  # (c, n) what each entry receives from each center, self entries included
    hub: Tensor  # (c, n) what each center receives from each entry, self entries removed: they stand in `leaf`

    def neighbor_sum(self, g: Tensor) -> Tensor:
        """The adjacency applied to g (n, m) in O(n m)."""
        centers, n = self.hub.shape
        return self.leaf.T @ g[:centers] + torch.nn.functional.pad(self.hub @ g, (0, 0, 0, n - centers))

    def degrees(self) -> Tensor:
        """Active degrees (n,), multiplicity and self entries counted."""
        centers, n = self.hub.shape
        return self.leaf.sum(0) + torch.nn.functional.pad(self.hub.sum(1), (0, n - centers))


def stars(mult_src: Tensor, mult_dst: Tensor, is_loop: bool) -> Stars:
    """The stars of one event from its multiplicities (n,)."""
    leaf = mult_src[None] if is_loop else torch.stack((mult_src, mult_dst))
    return Stars(leaf, leaf.clone().fill_diagonal_(0))


def safe_degrees(degree: Tensor) -> Tensor:
    """max(degree, 1), the normalization that leaves isolated nodes alone (eq:norm_sheaf_lap)."""
    return degree.clamp(min=1)


def adjacency(mult_src: Tensor, mult_dst: Tensor, is_loop: bool) -> Tensor:
    """The active graph as a dense symmetric matrix (n, n); a self entry stands once on the diagonal."""
    both = stars(mult_src, mult_dst, is_loop)
    centers, n = both.hub.shape
    dense = torch.zeros(n, n, dtype=mult_src.dtype, device=mult_src.device)
    dense[:, :centers] += both.leaf.T
    dense[:centers] += both.hub
    return dense
