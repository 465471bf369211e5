"""Frames as products of Householder reflectors (eq:householder_product, D-01), and transport between them.

A frame is stored as its reflector rows F (..., k, d); its orthogonal map U(F) applies the rows in order 1..k. The
matrix itself is only built as a reference. A frame without rows (k = 0) is the identity.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor


def reflect(F: Tensor, y: Tensor, *, eps: float, transpose: bool = False) -> Tensor:
    """U(F) y, or U(F)^T y: F (..., k, d), y (..., d), leading dimensions broadcast (eq:householder_product)."""
    return reflect_with(F, reflector_weights(F, eps), y, transpose=transpose)


def reflector_weights(F: Tensor, eps: float) -> Tensor:
    """2 / |f|^2 of each row (..., k); 0, the identity, where |f| <= eps."""
    squared = (F * F).sum(-1)
    reflects = squared > eps * eps
    # The inner `where` keeps 1 / 0 out of the backward pass of dead rows.
    return torch.where(reflects, 2.0 / torch.where(reflects, squared, 1.0), 0.0)


def reflect_with(F: Tensor, weights: Tensor, y: Tensor, *, transpose: bool = False) -> Tensor:
    """`reflect` with the weights of `reflector_weights` already at hand, for several uses of one frame."""
    rows = range(F.shape[-2])
    for i in reversed(rows) if transpose else rows:
        f = F[..., i, :]
        y = y - f * (weights[..., i, None] * (f * y).sum(-1, keepdim=True))
    return y


def keep_length(F: Tensor, eps: float) -> Tensor:
    """Every row at the length that first frames have on average. U stays: a reflector is its direction alone (D-24)."""
    k, d = F.shape[-2:]
    length = F.norm(dim=-1, keepdim=True)
    scaled = length > eps  # a shorter row is the identity, and has no direction
    return F * torch.where(scaled, math.sqrt(d / k) / torch.where(scaled, length, 1.0), 1.0)


def frame_matrix(F: Tensor, eps: float) -> Tensor:
    """U(F) as a dense matrix (..., d, d)."""
    basis = torch.eye(F.shape[-1], dtype=F.dtype, device=F.device)
    images = reflect(F.unsqueeze(-3), basis, eps=eps)
    return images.expand(*F.shape[:-2], *basis.shape).transpose(-1, -2)


def synchronize(F: Tensor, h: Tensor, eps: float) -> Tensor:
    """The stalk in common coordinates, g = U(F) h."""
    return reflect(F, h, eps=eps)


def transport(y: Tensor, *, frame_from: Tensor, frame_to: Tensor, eps: float) -> Tensor:
    """U_to^T U_from y: a vector in the frame of `frame_from`, re-expressed in that of `frame_to` (alg:transport)."""
    return reflect(frame_to, synchronize(frame_from, y, eps), eps=eps, transpose=True)
