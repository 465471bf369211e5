"""Sinusoidal encoding of log-compressed time gaps (eq:time_encoding)."""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor


def encode_gap(gap: Tensor, dim: int, scale: float) -> Tensor:
    """phi(gap), shape (..., dim): sine at even, cosine at odd positions. `scale` is the gap's unit (D-07)."""
    omega, even = _frequencies(dim, gap.dtype, gap.device)
    angle = torch.log1p(gap.clamp(min=0) / scale).unsqueeze(-1) * omega
    return torch.where(even, angle.sin(), angle.cos())


@lru_cache
def _frequencies(dim: int, dtype: torch.dtype, device: torch.device) -> tuple[Tensor, Tensor]:
    j = torch.arange(dim)
    omega, even = 10000.0 ** (-2.0 * (j // 2).to(dtype) / dim), j % 2 == 0
    return omega.to(device), even.to(device)  # complete before anybody, on whatever stream, gets hold of them
