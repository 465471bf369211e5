"""Sinusoidal encoding of log-compressed time gaps (eq:time_encoding)."""

from __future__ import annotations

import torch
from torch import Tensor


def encode_gap(gap: Tensor, dim: int, scale: float) -> Tensor:
    """phi(gap), shape (..., dim): sine at even, cosine at odd positions. `scale` is the gap's unit (D-07)."""
    j = torch.arange(dim, device=gap.device)
    omega = 10000.0 ** (-2.0 * (j // 2).to(gap.dtype) / dim)
    angle = torch.log1p(gap.clamp(min=0) / scale).unsqueeze(-1) * omega
    return torch.where(j % 2 == 0, angle.sin(), angle.cos())
