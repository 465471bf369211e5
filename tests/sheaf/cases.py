"""Random active sets and the slow, literal versions of what is under test."""

from __future__ import annotations

from typing import NamedTuple

import hypothesis.strategies as st
import torch
from hypothesis import settings
from torch import Tensor

EPS = 1e-6
few = settings(max_examples=25, deadline=None)


class Event(NamedTuple):
    h: Tensor
    F: Tensor
    mult_src: Tensor
    mult_dst: Tensor
    is_loop: bool
    gain: Tensor


def make_event(seed: int, n: int, k: int, d: int, is_loop: bool, dtype: torch.dtype = torch.float64) -> Event:
    """An active set with repeated, self and missing entries and some dead reflectors."""
    gen = torch.Generator().manual_seed(seed)
    loop = is_loop or n == 1
    F = torch.randn(n, k, d, generator=gen, dtype=torch.float64)
    F[torch.rand(n, k, generator=gen) < 0.15] = 0.0
    mult_src, mult_dst = torch.randint(0, 4, (2, n), generator=gen).to(dtype)
    return Event(
        h=torch.randn(n, d, generator=gen, dtype=torch.float64).to(dtype),
        F=F.to(dtype),
        mult_src=mult_src,
        mult_dst=torch.zeros_like(mult_dst) if loop else mult_dst,
        is_loop=loop,
        gain=(0.1 + torch.rand(d, generator=gen, dtype=torch.float64)).to(dtype),
    )


def events(dtype: torch.dtype = torch.float64) -> st.SearchStrategy[Event]:
    return st.builds(
        make_event,
        seed=st.integers(0, 2**31),
        n=st.integers(1, 8),
        k=st.integers(1, 5),
        d=st.integers(1, 12),
        is_loop=st.booleans(),
        dtype=st.just(dtype),
    )


def literal_frame(F: Tensor, eps: float = EPS) -> Tensor:
    """H(f_k) ... H(f_1) as a product of explicit matrices."""
    U = torch.eye(F.shape[-1], dtype=F.dtype)
    for f in F:
        if f.norm() > eps:
            unit = f / f.norm()
            U = (torch.eye(len(f), dtype=F.dtype) - 2 * torch.outer(unit, unit)) @ U
    return U


def literal_neighbors(event: Event) -> list[list[int]]:
    """N_a^act as lists: each buffer entry is one undirected edge, a self entry stands once in its own list."""
    lists: list[list[int]] = [[] for _ in event.h]
    stars = [(0, event.mult_src)] if event.is_loop else [(0, event.mult_src), (1, event.mult_dst)]
    for center, mult in stars:
        for j, count in enumerate(mult.int().tolist()):
            for _ in range(count):
                lists[center].append(j)
                if j != center:
                    lists[j].append(center)
    return lists


def literal_diffuse(event: Event, step_size: float, rounds: int) -> Tensor:
    """alg:diffuse, edge by edge with dense transports."""
    U, neighbors, h = [literal_frame(F) for F in event.F], literal_neighbors(event), event.h
    for _ in range(rounds):
        differences = [[h[a] - U[a].T @ U[b] @ h[b] for b in near] for a, near in enumerate(neighbors)]
        total = [sum(terms, torch.zeros_like(h[0])) for terms in differences]
        rate = [step_size / max(len(near), 1) for near in neighbors]
        h = torch.stack([h[a] - rate[a] * event.gain * total[a] for a in range(len(h))])
    return h
