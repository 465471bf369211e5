"""The losses (eq:loss_ce, eq:loss_geo, eq:loss_aux), and a binary one beside them (D-16)."""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor

from tsnn.config import LossConfig

LOSSES = ("ce", "binary", "geo", "bias", "smooth", "energy")
NUM_LOSSES = len(LOSSES)


class Losses:
    """Means over queries (ce, binary, geo, bias) and over the chunk's events (smooth, energy), in one tensor."""

    def __init__(self, values: Tensor) -> None:
        self.values = values

    def __getitem__(self, name: str) -> Tensor:
        return self.values[LOSSES.index(name)]

    def total(self, weights: LossConfig) -> Tensor:
        """The training objective."""
        return self.values @ _weights(weights, self.values.dtype, self.values.device)


@lru_cache
def _weights(weights: LossConfig, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Sent once: with every step the host would wait for the copy, and the copy for all that the device has to do."""
    return torch.tensor([getattr(weights, name) for name in LOSSES], dtype=dtype).to(device)


def ranking_loss(scores: Tensor) -> Tensor:
    """Cross entropy of the positive, in column 0, against its row (eq:loss_ce; on aligned products, eq:loss_geo)."""
    return -torch.log_softmax(scores, dim=1)[:, 0].mean()


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
    """All of them, for queries of `width` candidates each, positive first."""
    values = {
        "ce": ranking_loss(total.view(-1, width)),
        "binary": binary_loss(total.view(-1, width)),
        "geo": ranking_loss(inner.view(-1, width) / temperature),
        "bias": residual.square().mean(),  # eq:loss_bias
        "smooth": smooth.mean() if len(smooth) else smooth.sum(),  # eq:loss_smooth
        "energy": energy.mean() if len(energy) else energy.sum(),  # eq:loss_energy
    }
    return Losses(torch.stack([values[name] for name in LOSSES]))
