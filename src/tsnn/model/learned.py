"""Learned stalks: a vector for each node that training has met, and a source read through those of its partners.

    symbol   here         what it is
    e_w      vectors      what was learned of node w; row 0 stands for all nodes that training never met
    s        share        of each number of a stalk, how much of it is read
    h_w                   the stalk that the recurrence keeps, 0 at first
    z_u      forward      alg:nbrattn over u's recent partners: tokens Q_uw (e_w + s h_w), each with how long ago it was

A candidate is read as e + s h, the source as s h + z, without its own e: that was learned from all of the source's
events in training, later ones too, and would be trusted more than can be kept live (D-27).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from tsnn.config import ModelConfig

SPREAD = 0.1  # of vectors at first
FORGOTTEN = 0.05  # share of nodes that are taken for unknown ones while vectors are learned
DECAYS = 7  # exp(-gap / 1), exp(-gap / 10), ... in mean gaps


class LearnedStalks(nn.Module):
    """The vectors and their attention. `on` is 1 where validation rows are answered better with them."""

    met: Tensor
    on: Tensor

    def __init__(self, config: ModelConfig, num_nodes: int, relation_dim: int) -> None:
        super().__init__()
        d = config.stalk_dim
        self.heads = config.attention_heads
        # Learned in the warm-up alone: the epochs read the stream in order, and would bend them to its end.
        self.vectors = nn.Parameter(torch.randn(num_nodes + 1, d) * SPREAD, requires_grad=False)
        self.register_buffer("met", torch.zeros(num_nodes + 1, dtype=torch.bool))
        self.register_buffer("on", torch.tensor(0.0))
        told = 1 + DECAYS + config.num_neighbors + relation_dim
        self.query = nn.Linear(d, d)
        self.key = nn.Linear(d, d, bias=False)
        self.key_told = nn.Linear(told, d)
        self.weight_told = nn.Linear(told, self.heads)
        self.value = nn.Linear(d, d, bias=False)
        self.value_told = nn.Linear(told, d)
        self.out = nn.Linear(d, d, bias=False)
        self.share = nn.Parameter(torch.zeros(d))  # of h in what is read: it has to earn its place beside e
        self.null = nn.Parameter(torch.zeros(d))
        self.null_weight = nn.Parameter(torch.zeros(self.heads))
        self.forgetting: torch.Generator | None = None  # while vectors are learned: what is forgotten, at random
        with torch.no_grad():  # at first z is the mean of the partners
            for layer in (self.value, self.out):
                nn.init.eye_(layer.weight)
            for layer in (self.weight_told, self.value_told):
                nn.init.zeros_(layer.weight)
                nn.init.zeros_(layer.bias)

    def of(self, nodes: Tensor) -> Tensor:
        """e of these nodes; new ones may stand behind those that training knew."""
        last = len(self.met) - 1
        rows = torch.where(nodes < last, nodes + 1, 0)
        rows = torch.where(self.met[rows], rows, 0)
        if self.forgetting is not None:
            forgotten = torch.rand(rows.shape, generator=self.forgetting) < FORGOTTEN
            rows = torch.where(forgotten.to(rows.device), 0, rows)
        return nn.functional.embedding(rows, self.vectors)

    def forward(self, h: Tensor, tokens: Tensor, gaps: Tensor, relation: Tensor | None, present: Tensor) -> Tensor:
        """h + z for stalks h (q, d) and tokens (q, A, d), `gaps` (q, A) mean gaps old; `present` marks real ones."""
        q, a, d = tokens.shape
        told = self._told(gaps, relation)
        query = self.query(h).view(q, self.heads, 1, -1)
        key = (self.key(tokens) + self.key_told(told)).view(q, a, self.heads, -1).transpose(1, 2)
        value = (self.value(tokens) + self.value_told(told)).view(q, a, self.heads, -1).transpose(1, 2)
        logits = (query @ key.mT).squeeze(2) / key.shape[-1] ** 0.5 + self.weight_told(told).mT
        logits = logits.masked_fill(~present.unsqueeze(1), -torch.inf)
        # A null token stands for "nobody": it is all there is for a source without partners.
        weight = torch.cat([logits, self.null_weight.expand(q, 1, -1).mT], dim=2).softmax(2)
        null = self.null.view(self.heads, 1, -1).expand(q, -1, -1, -1)
        mixed = weight.unsqueeze(2) @ torch.cat([value, null], dim=2)
        refined: Tensor = h + self.out(mixed.reshape(q, d))
        return refined

    def _told(self, gaps: Tensor, relation: Tensor | None) -> Tensor:
        """What is known of each token beside its stalk: how long ago, how many events ago, the relation."""
        a = gaps.shape[1]
        scales = 10.0 ** torch.arange(DECAYS, dtype=gaps.dtype, device=gaps.device)
        place = torch.eye(a, dtype=gaps.dtype, device=gaps.device).expand(*gaps.shape, a)
        old = gaps.unsqueeze(-1)
        columns = [torch.log1p(old) / 5, torch.exp(-old / scales), place]
        return torch.cat(columns if relation is None else [*columns, relation], dim=-1)
