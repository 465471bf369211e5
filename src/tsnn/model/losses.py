"""The losses (eq:loss_ce, eq:loss_geo, eq:loss_aux), and a binary one beside them (D-16).

Pure functions of tensors. Where leading dimensions are free, a stack of models has one more than a model has.
"""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor

from tsnn.config import LossConfig
from tsnn.model.geometry import Geometry
from tsnn.model.head import bounded_product

OF_SCORES = ("ce", "binary", "geo", "bias")  # means over queries
LOSSES = (*OF_SCORES, "smooth", "energy")  # the last two are means over the chunk's events


def total_loss(values: Tensor, weights: LossConfig) -> Tensor:
    """The training objective, of all LOSSES."""
    return values @ loss_weights(weights, values.dtype, values.device)


@lru_cache
def loss_weights(weights: LossConfig, dtype: torch.dtype, device: torch.device) -> Tensor:
    """In the order of LOSSES. Kept, because a copy to a GPU waits until the GPU has finished all its work."""
    return torch.tensor([getattr(weights, name) for name in LOSSES], dtype=dtype).to(device)


def ranking_loss(scores: Tensor) -> Tensor:
    """Cross entropy of each query's positive, in column 0 (eq:loss_ce; on aligned products, eq:loss_geo)."""
    return -torch.log_softmax(scores, dim=-1)[..., 0].mean(-1)


def binary_loss(scores: Tensor) -> Tensor:
    """Is it the positive (column 0) or not, a query's negatives weighing as much as its positive (D-16)."""
    # A ranking loss leaves the offset of each query free; AP and AUC pool queries, and need it.
    positive = torch.nn.functional.softplus(-scores[..., 0])
    negative = torch.nn.functional.softplus(scores[..., 1:]).mean(-1)
    return 0.5 * (positive + negative).mean(-1)


def data_losses(total: Tensor, *, width: int) -> Tensor:
    """The first two of LOSSES, which a score without states has too: (..., 2) from scores (..., queries * width)."""
    scores = _by_query(total, width)
    return torch.stack([ranking_loss(scores), binary_loss(scores)], dim=-1)


def score_losses(total: Tensor, inner: Tensor, residual: Tensor, *, width: int, temperature: float) -> Tensor:
    """OF_SCORES, (..., 4), from terms (..., queries * width), positives first."""
    geo = ranking_loss(_by_query(inner, width) / temperature)
    bias = residual.square().mean(-1)  # eq:loss_bias
    return torch.cat([data_losses(total, width=width), torch.stack([geo, bias], dim=-1)], dim=-1)


def chunk_losses(
    total: Tensor, inner: Tensor, residual: Tensor, smooth: Tensor, energy: Tensor, *, width: int, temperature: float
) -> Tensor:
    """All LOSSES of one model, for queries of `width` candidates, positive first (eq:loss_smooth, eq:loss_energy)."""
    of_events = [term.mean() if len(term) else term.sum() for term in (smooth, energy)]
    of_scores = score_losses(total, inner, residual, width=width, temperature=temperature)
    return torch.cat([of_scores, torch.stack(of_events)])


def contrasted(geometry: Geometry, weights: LossConfig) -> Tensor:
    """The aligned products of eq:loss_geo. Raw ones are easy to push apart by length alone."""
    return bounded_product(geometry) if weights.geo_products == "bounded" else geometry.inner


def _by_query(values: Tensor, width: int) -> Tensor:
    return values.view(*values.shape[:-1], -1, width)
