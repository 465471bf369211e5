"""Partners: a vector learned of each node, and sources read through those of their recent partners.

    symbol   here       what it is
    e_w      vectors    what was learned of node w; row 0 stands for all nodes that training never met
    z_u      read       attention over u's last partners w, each with e_w, how long ago and how many events ago it was
    z . e    compare    columns of psi: what u turned to lately, against the candidate

It is alg:nbrattn with vectors in place of stalks. They stand in coordinates that all nodes share, where transport does
nothing (prop:sync_equiv). The source's own e is left out: it was learned from all of the source's events in training,
later ones too, and would be trusted more than it deserves (D-27).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from tsnn.config import ModelConfig

SPREAD = 0.1  # of vectors at first
FORGOTTEN = 0.05  # share of nodes that are taken for unknown ones while vectors are learned
DECAYS = 7  # exp(-gap / 1), exp(-gap / 10), ... in mean gaps
COLUMNS = 5  # of `compare`


class Partners(nn.Module):
    """The vectors and the attention. `on` is 1 where validation rows are answered better with them."""

    met: Tensor
    on: Tensor

    def __init__(self, config: ModelConfig, num_nodes: int, relation_dim: int) -> None:
        super().__init__()
        d = config.stalk_dim
        self.heads = math.gcd(config.attention_heads, d)  # as many as divide the vectors
        self.vectors = nn.Parameter(torch.randn(num_nodes + 1, d) * SPREAD)
        self.register_buffer("met", torch.zeros(num_nodes + 1, dtype=torch.bool))
        self.register_buffer("on", torch.tensor(0.0))
        told = 1 + DECAYS + config.num_neighbors + relation_dim
        self.query = nn.Parameter(torch.randn(self.heads, d // self.heads) * SPREAD)
        self.key = nn.Linear(d, d, bias=False)
        self.key_told = nn.Linear(told, d)
        self.weight_told = nn.Linear(told, self.heads)
        self.value = nn.Linear(d, d, bias=False)
        self.value_told = nn.Linear(told, d)
        self.out = nn.Linear(d, d, bias=False)
        self.null = nn.Parameter(torch.zeros(d))
        self.null_weight = nn.Parameter(torch.zeros(self.heads))
        self.forgetting: torch.Generator | None = None  # while vectors are learned: says what is forgotten
        with torch.no_grad():  # at first z is about the mean of the partners
            for layer in (self.value, self.out):
                nn.init.eye_(layer.weight)
            for layer in (self.weight_told, self.value_told):
                nn.init.zeros_(layer.weight)
                nn.init.zeros_(layer.bias)
        self.requires_grad_(False)  # it is learned in the warm-up alone, see `tsnn.training.warmup`

    def of(self, nodes: Tensor) -> Tensor:
        """e of these nodes; whoever came after training is unknown."""
        rows = torch.where(nodes < len(self.met) - 1, nodes + 1, 0)
        rows = torch.where(self.met[rows], rows, 0)
        if self.forgetting is not None:
            forgotten = torch.rand(rows.shape, generator=self.forgetting) < FORGOTTEN
            rows = torch.where(forgotten.to(rows.device), 0, rows)
        return nn.functional.embedding(rows, self.vectors)

    def read(self, partners: Tensor, gaps: Tensor, relation: Tensor | None, present: Tensor) -> Tensor:
        """z (q, d) of sources with these partners (q, A), `gaps` mean gaps ago; `present` marks those there are."""
        q, a = partners.shape
        told = _told(gaps, relation)
        tokens = self.of(partners)
        key = (self.key(tokens) + self.key_told(told)).view(q, a, self.heads, -1)
        value = (self.value(tokens) + self.value_told(told)).view(q, a, self.heads, -1)
        logits = (key * self.query).sum(-1) / key.shape[-1] ** 0.5 + self.weight_told(told)
        logits = logits.masked_fill(~present.unsqueeze(-1), -torch.inf)
        # A null token stands for "nobody"; it is all there is for a source without partners.
        weight = torch.cat([logits, self.null_weight.expand(q, 1, -1)], dim=1).softmax(1).unsqueeze(-1)
        null = self.null.view(1, 1, self.heads, -1).expand(q, -1, -1, -1)
        mixed = (weight * torch.cat([value, null], dim=1)).sum(1)
        z: Tensor = self.out(mixed.reshape(q, -1))
        return z


def compare(z: Tensor, e: Tensor) -> Tensor:
    """How sources z, or a single one (d,), and candidates e (n, d) agree: <z, e>, and what is read of states too."""
    inner, far = (z * e).sum(-1), (z - e).square().sum(-1)
    of_source, of_candidate = z.square().sum(-1).expand_as(inner), e.square().sum(-1)
    bounded = inner / torch.sqrt((1 + of_source) * (1 + of_candidate))
    lengths = (torch.log1p(length) for length in (of_source, of_candidate, far))
    return torch.stack([inner, bounded, *lengths], dim=-1)


def _told(gaps: Tensor, relation: Tensor | None) -> Tensor:
    """What is known of each token beside its vector: how long ago, how many events ago, by which relation."""
    a = gaps.shape[1]
    scales = 10.0 ** torch.arange(DECAYS, dtype=gaps.dtype, device=gaps.device)
    place = torch.eye(a, dtype=gaps.dtype, device=gaps.device).expand(*gaps.shape, a)
    old = gaps.unsqueeze(-1)
    columns = [torch.log1p(old) / 5, torch.exp(-old / scales), place]
    return torch.cat(columns if relation is None else [*columns, relation], dim=-1)
