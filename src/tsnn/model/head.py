"""The score's head: a geometric-residual decoder with its EdgeBank mixture (eq:score_features, eq:edgebank_mixture).

Pure functions of tensors with any leading dimensions: one model has none, a stack of models (`tsnn.engine.stack`) has
one. A parameter that is a single number has shape () in a model and (models, 1) in a stack, beside rows of candidates.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn

from tsnn.config import ModelConfig
from tsnn.model.geometry import Geometry

KAPPA_MIN = 1e-6
NUM_SCALARS = 5  # geometric scalars at the head of psi
LAYERS = (0, 2, 4)  # of MLP_score, as `Head.mlp` counts them
_ROWS = 2048


class HeadWeights(NamedTuple):
    """What the functions below take of a head."""

    geometry_weight: Tensor
    rho_kappa: Tensor
    gate: Tensor  # (..., relations)
    beta: Tensor
    layers: tuple[tuple[Tensor, Tensor], ...]  # of MLP_score: weight (..., outputs, inputs) and bias (..., outputs)


class ScoreParts(NamedTuple):
    """The score, (..., candidates), and what it is made of: `total` = geometric + residual + edgebank."""

    total: Tensor
    edgebank: Tensor
    alpha: Tensor  # the gate between the neural score and the memory prior
    raw_geometric: Tensor
    raw_residual: Tensor  # s_res before the gate, for eq:loss_bias

    @property
    def geometric(self) -> Tensor:
        """The distance's part of the score."""
        return self.alpha * self.raw_geometric

    @property
    def residual(self) -> Tensor:
        """The part of MLP_score."""
        return self.alpha * self.raw_residual


class Head(nn.Module):
    """The parameters of one model's head."""

    def __init__(self, config: ModelConfig, psi_dim: int, num_relations: int) -> None:
        super().__init__()
        self._kappa_scale = config.kappa_scale
        self.rho_kappa = nn.Parameter(torch.tensor(_initial_kappa(config)))
        self.gate = nn.Parameter(torch.full((max(num_relations, 1),), config.gate))
        self.beta = nn.Parameter(torch.tensor(1.0))
        # 1, or 0 while (and for good, where validation prefers it) the score lives on data features alone.
        self.register_buffer("geometry_weight", torch.tensor(1.0))
        self.geometry_weight: Tensor
        width = config.score_dim
        self.mlp = nn.Sequential(
            nn.Linear(psi_dim, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1)
        )
        if config.quiet_geometry:  # states enter a trained head without disturbing it, and earn their weight
            with torch.no_grad():
                first, _ = self.weights().layers[0]
                first[:, :NUM_SCALARS] = 0.0

    def weights(self) -> HeadWeights:
        """The parameters as they are now."""
        layers = tuple((layer.weight, layer.bias) for layer in self.mlp if isinstance(layer, nn.Linear))
        return HeadWeights(self.geometry_weight, rho(self.rho_kappa, self._kappa_scale), self.gate, self.beta, layers)


def _initial_kappa(config: ModelConfig) -> float:
    above = config.kappa - KAPPA_MIN
    return math.log(above if config.kappa_scale == "log" else math.expm1(above))


def rho(parameter: Tensor, scale: str) -> Tensor:
    """rho_kappa of eq:sgeo, whose softplus is kappa: the parameter itself, or made of the logarithm of kappa."""
    if scale == "softplus":
        return parameter
    kappa = parameter.exp()
    return kappa + torch.log(-torch.expm1(-kappa))


def bounded_product(geometry: Geometry) -> Tensor:
    """The inner product, between -1 and 1 whatever the lengths (D-13)."""
    return geometry.inner / torch.sqrt((1 + geometry.src_norm2) * (1 + geometry.dst_norm2))


def scalars(geometry: Geometry, rho_kappa: Tensor, cfg: ModelConfig) -> Tensor:
    """The geometric part of psi, (..., candidates, 5), s_geo first (eq:sgeo, eq:score_features)."""
    d2, inner, src, dst = geometry
    if cfg.scalars == "bounded":
        # Squared norms are unbounded and would drown the other inputs of the MLP.
        inner = inner / torch.sqrt((1 + src) * (1 + dst))
        src, dst = torch.log1p(src), torch.log1p(dst)
    s_geo = -d2 / (KAPPA_MIN + nn.functional.softplus(rho_kappa))
    return torch.stack([s_geo, inner, src, dst, torch.log1p(d2)], dim=-1)


def score(
    psi: Tensor, bank_count: Tensor, weights: HeadWeights, cfg: ModelConfig, relation: Tensor | None = None
) -> ScoreParts:
    """Scores of all candidates; `relation` holds each candidate's gate index, None where there is one gate."""
    geometric = psi[..., 0]
    residual = mlp_score(psi, weights.layers) if cfg.residual else torch.zeros_like(geometric)
    neural = geometric + residual
    if not cfg.edgebank:
        return ScoreParts(neural, torch.zeros_like(neural), neural.new_ones(1), geometric, residual)
    alpha = torch.sigmoid(weights.gate)
    if relation is not None:
        alpha = alpha[relation]
    bank = (1 - alpha) * weights.beta * torch.log1p(bank_count)
    return ScoreParts(alpha * neural + bank, bank, alpha, geometric, residual)


def mlp_score(psi: Tensor, layers: tuple[tuple[Tensor, Tensor], ...]) -> Tensor:
    """MLP_score (eq:sres); without gradients by blocks, so that hidden layers stay in the cache."""
    if torch.is_grad_enabled() or psi.ndim > 2 or len(psi) <= _ROWS or psi.device.type != "cpu":
        x = psi
        for weight, bias in layers[:-1]:
            x = _linear(x, weight, bias).relu_()
        return _linear(x, *layers[-1]).squeeze(-1)
    (*hidden, (last, last_bias)) = layers
    buffers = [psi.new_empty(_ROWS, len(bias)) for _, bias in hidden]
    scores = psi.new_empty(len(psi))
    for rows, to in zip(torch.split(psi, _ROWS), torch.split(scores, _ROWS), strict=True):
        x = rows
        for (weight, bias), buffer in zip(hidden, buffers, strict=True):
            x = torch.addmm(bias, x, weight.t(), out=buffer[: len(rows)]).relu_()
        torch.addmv(last_bias, x, last[0], out=to)
    return scores


def _linear(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    if weight.ndim == 2:
        return nn.functional.linear(x, weight, bias)
    return torch.baddbmm(bias.unsqueeze(1), x, weight.mT)
