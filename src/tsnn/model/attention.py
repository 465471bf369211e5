"""Sheaf-consistent multi-head neighbor attention (alg:nbrattn): align first, attend second."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from tsnn.config import ModelConfig


class NeighborAttention(nn.Module):
    """Refines a source's stalk from its recent neighbors, already transported into its frame."""

    def __init__(self, config: ModelConfig, relation_dim: int) -> None:
        super().__init__()
        d = config.stalk_dim
        self.heads, self.dropout = config.attention_heads, config.attention_dropout
        self.query = nn.Linear(d, d, bias=False)
        self.key = nn.Linear(d, d, bias=False)
        self.value = nn.Linear(d, d, bias=False)
        self.out = nn.Linear(d, d, bias=False)
        self.time = nn.Linear(config.time_dim // 2, d, bias=False)
        self.relation = nn.Linear(relation_dim, d, bias=False) if relation_dim else None
        self.null = nn.Parameter(torch.zeros(d))
        self.norm = nn.LayerNorm(d)

    def forward(
        self,
        h: Tensor,
        aligned: Tensor,
        time_code: Tensor,
        relation_code: Tensor | None,
        present: Tensor,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """h (q, d); aligned (q, A, d); codes per neighbor; `present` (q, A) marks real neighbors."""
        tokens = aligned + self.time(time_code)
        if self.relation is not None and relation_code is not None:
            tokens = tokens + self.relation(relation_code)
        lonely = ~present.any(dim=1)
        # A source without neighbors attends to the null token alone: softmax over one entry is one.
        tokens = torch.cat([tokens, self.null.expand(len(h), 1, -1)], dim=1)
        present = torch.cat([present, lonely.unsqueeze(1)], dim=1)
        mixed = self._attend(h, tokens, present, generator)
        refined: Tensor = self.norm(h + self.out(mixed))
        return refined

    def _attend(self, h: Tensor, tokens: Tensor, present: Tensor, generator: torch.Generator | None) -> Tensor:
        q, a, d = tokens.shape
        width = d // self.heads
        query = self.query(h).view(q, self.heads, 1, width)
        key = self.key(tokens).view(q, a, self.heads, width).transpose(1, 2)
        value = self.value(tokens).view(q, a, self.heads, width).transpose(1, 2)
        logits = (query @ key.transpose(2, 3)).squeeze(2) / width**0.5
        weight = logits.masked_fill(~present.unsqueeze(1), -torch.inf).softmax(dim=-1)
        if self.training and self.dropout > 0:
            keep = torch.rand(weight.shape, generator=generator, dtype=weight.dtype) >= self.dropout
            weight = weight * keep / (1.0 - self.dropout)
        mixed: Tensor = (weight.unsqueeze(2) @ value).reshape(q, d)
        return mixed
