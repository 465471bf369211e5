"""The ends of the score, compiled: the scalars that enter the head, and the losses that leave it.

Each is some thirty elementwise steps on a few hundred numbers; as one autograd node they save a microsecond an event.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from tsnn.engine.buffers import array
from tsnn.engine.layout import Array
from tsnn.kernel_cache import inlined, kernel
from tsnn.model.head import KAPPA_MIN, NUM_SCALARS
from tsnn.model.losses import LOSSES


def fused_losses(*terms: Tensor, width: int, temperature: float) -> Tensor:
    """`tsnn.model.losses.chunk_losses`, of the same terms."""
    return _FusedLosses.apply(*terms, width, temperature)  # type: ignore[no-any-return, no-untyped-call]


class _FusedLosses(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> Tensor:
        *terms, width, heat = inputs
        total, inner, residual, smooth, energy = map(array, terms)
        ctx.save_for_backward(*terms)
        ctx.settings = (width, heat)
        values = np.zeros(len(LOSSES))
        _add_ranking(total, width, 1.0, values[0:1])
        _add_binary(total, width, values[1:2])
        _add_ranking(inner, width, heat, values[2:3])
        _add_mean(np.square(residual), values[3:4])
        _add_mean(smooth, values[4:5])
        _add_mean(energy, values[5:6])
        return torch.from_numpy(values).to(terms[0].dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, up: Tensor) -> Any:
        total, inner, residual, smooth, energy = map(array, ctx.saved_tensors)
        width, heat = ctx.settings
        g = up.double().numpy()
        gradients = [np.empty_like(x) for x in (total, inner, residual, smooth, energy)]
        _ranking_gradient(total, width, 1.0, g[0], gradients[0])
        _add_binary_gradient(total, width, g[1], gradients[0])
        _ranking_gradient(inner, width, heat, g[2], gradients[1])
        np.multiply(residual, 2.0 * g[3] / max(len(residual), 1), out=gradients[2])
        gradients[3].fill(g[4] / max(len(smooth), 1))
        gradients[4].fill(g[5] / max(len(energy), 1))
        return *map(torch.from_numpy, gradients), None, None


def fused_scalars(geometry: Tensor, rho_kappa: Tensor) -> Tensor:
    """`tsnn.model.head.scalars` in their bounded form, from rows of |q - g|^2, <q, g>, |h_u|^2, |h_c|^2."""
    return _FusedScalars.apply(geometry, rho_kappa)  # type: ignore[no-any-return, no-untyped-call]


class _FusedScalars(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, geometry: Tensor, rho: Tensor) -> Tensor:
        ctx.save_for_backward(geometry, rho)
        out = torch.empty(len(geometry), NUM_SCALARS, dtype=geometry.dtype)
        _scalars(array(geometry), _kappa(rho), out.numpy())
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, up: Tensor) -> Any:
        geometry, rho = ctx.saved_tensors
        grad = torch.empty_like(geometry)
        g_kappa = _scalars_gradient(array(geometry), _kappa(rho), array(up), grad.numpy())
        return grad, rho.new_tensor(g_kappa / (1.0 + math.exp(-rho.item())))


def _kappa(rho: Tensor) -> float:
    """The temperature of s_geo (eq:sgeo)."""
    x = rho.item()
    return KAPPA_MIN + (max(x, 0.0) + math.log1p(math.exp(-abs(x))))


@inlined()
def _top_and_mass(row: Array, heat: float) -> tuple[float, float]:
    """A query's highest score, and the sum of exp((score - highest) / heat)."""
    top, mass = row.max(), 0.0
    for x in row:
        mass += math.exp((x - top) / heat)
    return top, mass


@kernel()
def _add_ranking(scores: Array, width: int, heat: float, to: Array) -> None:
    queries = len(scores) // width
    for q in range(queries):
        row = scores[q * width : (q + 1) * width]
        top, mass = _top_and_mass(row, heat)
        to[0] += (math.log(mass) + (top - row[0]) / heat) / queries


@kernel()
def _ranking_gradient(scores: Array, width: int, heat: float, g: float, to: Array) -> None:
    queries = len(scores) // width
    for q in range(queries):
        row = scores[q * width : (q + 1) * width]
        top, mass = _top_and_mass(row, heat)
        for j in range(width):
            share = math.exp((row[j] - top) / heat) / mass
            to[q * width + j] = g * (share - (j == 0)) / (heat * queries)


@kernel()
def _add_binary(scores: Array, width: int, to: Array) -> None:
    queries = len(scores) // width
    for q in range(queries):
        for j in range(width):
            x = scores[q * width + j] if j else -scores[q * width]
            loss = max(x, 0.0) + math.log1p(math.exp(-abs(x)))
            to[0] += 0.5 * (loss / (width - 1) if j else loss) / queries


@kernel()
def _add_binary_gradient(scores: Array, width: int, g: float, to: Array) -> None:
    queries = len(scores) // width
    for q in range(queries):
        for j in range(width):
            x = scores[q * width + j]
            positive = 1.0 / (1.0 + math.exp(-x)) if x >= 0 else math.exp(x) / (1.0 + math.exp(x))
            to[q * width + j] += 0.5 * g * (positive / (width - 1) if j else positive - 1.0) / queries


@kernel()
def _add_mean(x: Array, to: Array) -> None:
    for value in x:
        to[0] += value / len(x)


@kernel()
def _scalars(geometry: Array, kappa: float, out: Array) -> None:
    for i in range(len(geometry)):
        d2, inner, src, dst = geometry[i]
        out[i, 0] = -d2 / kappa
        out[i, 1] = inner / math.sqrt((1.0 + src) * (1.0 + dst))
        out[i, 2] = math.log1p(src)
        out[i, 3] = math.log1p(dst)
        out[i, 4] = math.log1p(d2)


@kernel()
def _scalars_gradient(geometry: Array, kappa: float, up: Array, to: Array) -> float:
    """Fills the gradient of the geometry, returns that of kappa."""
    g_kappa = 0.0
    for i in range(len(geometry)):
        d2, inner, src, dst = geometry[i]
        norm = math.sqrt((1.0 + src) * (1.0 + dst))
        cosine = up[i, 1] * inner / norm
        to[i, 0] = -up[i, 0] / kappa + up[i, 4] / (1.0 + d2)
        to[i, 1] = up[i, 1] / norm
        to[i, 2] = (up[i, 2] - 0.5 * cosine) / (1.0 + src)
        to[i, 3] = (up[i, 3] - 0.5 * cosine) / (1.0 + dst)
        g_kappa += up[i, 0] * d2 / (kappa * kappa)
    return g_kappa
