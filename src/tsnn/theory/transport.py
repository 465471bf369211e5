"""Frozen frames: no holonomy, and the sheaf Laplacian is a graph Laplacian in common coordinates."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor

from tsnn.sheaf.householder import frame_matrix, synchronize, transport
from tsnn.sheaf.laplacian import graph_laplacian, per_coordinate, random_walk, symmetric, synchronization
from tsnn.theory.active import ActiveSet
from tsnn.theory.check import Check, at_most, conclude, equal


def flat_transport(F: Tensor, walk: Sequence[int], *, eps: float) -> Check:
    """lem:flat_transport along a walk over the nodes of F (n, k, d), hop by hop and back to its start."""
    frames = F.double()
    maps = frame_matrix(frames, eps)
    there = _carry_basis(frames, walk, eps)
    around = _carry_basis(frames, [*walk, walk[0]], eps)
    eye = torch.eye(F.shape[-1]).to(frames)
    return conclude(
        "lem:flat_transport",
        "transport along a walk depends on its ends alone, and around a cycle it is the identity",
        [equal("end of the walk at", there, maps[walk[0]].mT @ maps[walk[-1]]), equal("cycle at", around, eye)],
    )


def sync_equiv(active: ActiveSet) -> Check:
    """prop:sync_equiv: distances, inner products, norms and all three Laplacians in common coordinates."""
    a, b = active.adjacency.nonzero(as_tuple=True)
    h_a, h_b = active.h[a], active.h[b]
    moved = transport(h_b, frame_from=active.F[b], frame_to=active.F[a], eps=active.eps)
    g_a = synchronize(active.F[a], h_a, active.eps)
    g_b = synchronize(active.F[b], h_b, active.eps)
    graph = graph_laplacian(active.adjacency)
    S = synchronization(active.maps)

    def lifted(matrix: Tensor) -> Tensor:
        """A matrix of the graph, acting in common coordinates, as it acts on the stalks."""
        return S.mT @ per_coordinate(matrix, active.h.shape[-1]) @ S

    return conclude(
        "prop:sync_equiv",
        "aligned distances, inner products and Laplacians equal those of the graph in common coordinates",
        [
            equal("distance over edge", (h_a - moved).square().sum(-1), (g_a - g_b).square().sum(-1)),
            equal("inner product over edge", (h_a * moved).sum(-1), (g_a * g_b).sum(-1)),
            equal("norm over edge", h_a.norm(dim=-1), g_a.norm(dim=-1)),
            equal("combinatorial Laplacian at", active.laplacian, lifted(graph)),
            equal("random-walk Laplacian at", active.random_walk, lifted(random_walk(graph, active.adjacency))),
            equal("symmetric Laplacian at", active.symmetric, lifted(symmetric(graph, active.adjacency))),
        ],
    )


def spectral_equivalence(active: ActiveSet) -> Check:
    """cor:spectral_equivalence: the graph's spectrum d times over, inside [0, 2] whatever the degrees."""
    d = active.h.shape[-1]
    spectrum = active.normalized_only.eigenvalues
    graph = symmetric(graph_laplacian(active.adjacency), active.adjacency)
    root = active.degree.sqrt()
    return conclude(
        "cor:spectral_equivalence",
        "the normalized sheaf Laplacian has the graph's spectrum, inside [0, 2] for every degree",
        [
            equal("eigenvalue", spectrum, torch.linalg.eigvalsh(graph).repeat_interleave(d)),
            equal("similarity of the random walk at", root[:, None] * active.random_walk / root, active.symmetric),
            at_most("smallest eigenvalue", -spectrum[0], 0.0),
            at_most("largest eigenvalue", spectrum[-1], 2.0),
        ],
    )


def _carry_basis(frames: Tensor, walk: Sequence[int], eps: float) -> Tensor:
    """The walk's transport as a matrix: basis vectors of its last node carried back hop by hop to its first."""
    y = torch.eye(frames.shape[-1]).to(frames)
    for to, source in reversed(list(pairwise(walk))):
        y = transport(y, frame_from=frames[source], frame_to=frames[to], eps=eps)
    return y.mT
