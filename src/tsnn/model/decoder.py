"""The geometric-residual decoder with its EdgeBank mixture (eq:sdist, eq:score_features, eq:edgebank_mixture)."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn

from tsnn.config import ModelConfig

KAPPA_MIN = 1e-6
NUM_SCALARS = 5  # geometric scalars at the head of psi
_ROWS = 2048
_INITIAL_GATE = 2.0  # alpha = 0.88: the neural score leads, the memory prior is heard


class Geometry(NamedTuple):
    """What the score needs of states and frames, one row per candidate."""

    d2: Tensor  # squared transported distance (eq:dsq)
    inner: Tensor  # <h_u, Q_uc h_c>
    src_norm2: Tensor
    dst_norm2: Tensor


class ScoreParts(NamedTuple):
    """The score and what it is made of; `total` = geometric + residual + edgebank, gates included."""

    total: Tensor
    geometric: Tensor
    residual: Tensor
    edgebank: Tensor
    raw_residual: Tensor  # s_res before the gate, for eq:loss_bias


class Decoder(nn.Module):
    """s_geo + MLP_score(psi), mixed with the memory prior."""

    def __init__(self, config: ModelConfig, psi_dim: int, num_relations: int) -> None:
        super().__init__()
        self.config = config
        self.rho_kappa = nn.Parameter(torch.tensor(math.log(math.expm1(config.kappa - KAPPA_MIN))))
        self.gate = nn.Parameter(torch.full((max(num_relations, 1),), _INITIAL_GATE))
        self.beta = nn.Parameter(torch.tensor(1.0))
        # 1, or 0 while (and for good, where validation prefers it) the score lives on data features alone.
        self.register_buffer("geometry_weight", torch.tensor(1.0))
        self.geometry_weight: Tensor
        width = config.score_dim
        self.mlp = nn.Sequential(
            nn.Linear(psi_dim, width),
            nn.ReLU(inplace=True),
            nn.Linear(width, width),
            nn.ReLU(inplace=True),
            nn.Linear(width, 1),
        )
        with torch.no_grad():  # states enter a trained head without disturbing it, and earn their weight
            first = self.mlp[0]
            assert isinstance(first, nn.Linear)
            first.weight[:, :NUM_SCALARS] = 0.0

    def scalars(self, geometry: Geometry) -> Tensor:
        """The geometric part of psi, five columns (eq:score_features)."""
        d2, inner, src, dst = geometry
        if self.config.scalars == "bounded":
            # Squared norms are unbounded and would drown the other inputs of the MLP.
            inner = inner / torch.sqrt((1 + src) * (1 + dst))
            src, dst = torch.log1p(src), torch.log1p(dst)
        return torch.stack([self.geometric(d2), inner, src, dst, torch.log1p(d2)], dim=1)

    def geometric(self, d2: Tensor) -> Tensor:
        """s_geo (eq:sgeo)."""
        return -d2 / (KAPPA_MIN + nn.functional.softplus(self.rho_kappa))

    def residual(self, psi: Tensor) -> Tensor:
        """MLP_score (eq:score_features); without gradients by blocks, so that hidden layers stay in the cache."""
        if torch.is_grad_enabled() or len(psi) <= _ROWS or psi.device.type != "cpu":
            out: Tensor = self.mlp(psi).squeeze(-1)
            return out
        first, second, last = (layer for layer in self.mlp if isinstance(layer, nn.Linear))
        below, above = (psi.new_empty(_ROWS, self.config.score_dim) for _ in range(2))
        scores = psi.new_empty(len(psi))
        for x, to in zip(torch.split(psi, _ROWS), torch.split(scores, _ROWS), strict=True):
            y = torch.addmm(first.bias, x, first.weight.t(), out=below[: len(x)]).relu_()
            z = torch.addmm(second.bias, y, second.weight.t(), out=above[: len(x)]).relu_()
            torch.addmv(last.bias, z, last.weight[0], out=to)
        return scores

    def forward(self, psi: Tensor, bank_count: Tensor, relation: Tensor | None) -> ScoreParts:
        """Scores of all candidates; `relation` holds each candidate's gate index, None where there is one gate."""
        geometric = psi[:, 0]
        residual = self.residual(psi) if self.config.residual else torch.zeros_like(geometric)
        if not self.config.edgebank:
            return ScoreParts(geometric + residual, geometric, residual, torch.zeros_like(geometric), residual)
        alpha = torch.sigmoid(self.gate)
        if relation is not None:
            alpha = alpha[relation]
        bank = (1 - alpha) * self.beta * torch.log1p(bank_count)
        total = alpha * (geometric + residual) + bank
        return ScoreParts(total, alpha * geometric, alpha * residual, bank, residual)
