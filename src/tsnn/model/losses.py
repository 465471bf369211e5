"""The five losses (eq:loss_ce, eq:loss_geo, eq:loss_aux)."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from tsnn.config import LossConfig


class Losses(NamedTuple):
    """Means over queries (ce, binary, geo, bias) and over the chunk's events (smooth, energy)."""

    ce: Tensor
    binary: Tensor
    geo: Tensor
    bias: Tensor
    smooth: Tensor
    energy: Tensor

    def total(self, weights: LossConfig) -> Tensor:
        """The training objective."""
        return (
            weights.ce * self.ce
            + weights.binary * self.binary
            + weights.geo * self.geo
            + weights.bias * self.bias
            + weights.smooth * self.smooth
            + weights.energy * self.energy
        )


def ranking_loss(scores: Tensor) -> Tensor:
    """Cross entropy of the positive, in column 0, against its row (eq:loss_ce; on aligned products, eq:loss_geo)."""
    return (torch.logsumexp(scores, dim=1) - scores[:, 0]).mean()


def binary_loss(scores: Tensor) -> Tensor:
    """Is it the positive (column 0) or not, a query's negatives weighing as much as its positive.

    A ranking loss leaves the offset of each query free; AP and AUC pool queries, and need it (D-16).
    """
    positive = torch.nn.functional.softplus(-scores[:, 0])
    negative = torch.nn.functional.softplus(scores[:, 1:]).mean(dim=1)
    return 0.5 * (positive + negative).mean()


def chunk_losses(
    total: Tensor, inner: Tensor, residual: Tensor, smooth: Tensor, energy: Tensor, *, width: int, temperature: float
) -> Losses:
    """All five, for queries of `width` candidates each, positive first."""
    return Losses(
        ce=ranking_loss(total.view(-1, width)),
        binary=binary_loss(total.view(-1, width)),
        geo=ranking_loss(inner.view(-1, width) / temperature),
        bias=residual.square().mean(),  # eq:loss_bias
        smooth=smooth.mean() if len(smooth) else smooth.sum(),  # eq:loss_smooth
        energy=energy.mean() if len(energy) else energy.sum(),  # eq:loss_energy
    )
