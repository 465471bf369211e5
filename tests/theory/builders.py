"""Active sets for the statements: random ones, and the two-node graph on which the bounds are tight."""

from __future__ import annotations

import hypothesis.strategies as st
import torch
from torch import Tensor

from tests.sheaf.cases import EPS, make_event
from tsnn.theory.active import ActiveSet


def random_active(
    seed: int = 0, n: int = 5, k: int = 2, d: int = 4, is_loop: bool = False, step: float = 0.01
) -> ActiveSet:
    """An active set with repeated and self entries, dead reflectors and an uneven gain."""
    event = make_event(seed, n, k, d, is_loop)
    return ActiveSet(*event, step_size=step, eps=EPS)


def actives(step: float) -> st.SearchStrategy[ActiveSet]:
    return st.builds(
        random_active,
        seed=st.integers(0, 2**31),
        n=st.integers(1, 8),
        k=st.integers(1, 4),
        d=st.integers(1, 6),
        is_loop=st.booleans(),
        step=st.just(step),
    )


def single_edge(step: float, gain: Tensor | None = None, weight: float = 1.0, d: int = 3) -> ActiveSet:
    """Two nodes and one (repeated) edge: bipartite, so the top eigenvalue is 2. The stalks oppose each other there."""
    F = torch.randn(2, 2, d, dtype=torch.float64)
    top = torch.zeros(2, d, dtype=torch.float64)
    D = torch.ones(d, dtype=torch.float64) if gain is None else gain
    mult_src = torch.tensor([0.0, weight], dtype=torch.float64)
    active = ActiveSet(top, F, mult_src, torch.zeros_like(mult_src), False, D, step, EPS)
    vector = torch.linalg.eigh(active.preconditioned).eigenvectors[:, -1]
    stalks = (vector / active.metric.sqrt()).reshape(2, d)
    return ActiveSet(stalks, F, mult_src, torch.zeros_like(mult_src), False, D, step, EPS)


def rotations(count: int, d: int) -> Tensor:
    """Random orthogonal matrices (count, d, d)."""
    return torch.linalg.qr(torch.randn(count, d, d, dtype=torch.float64)).Q
