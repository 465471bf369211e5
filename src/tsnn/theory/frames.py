"""What a frame is and how far it moves: rank, Lipschitz bound, carry-over (app:frame_level_proofs).

Frames are batched over nodes: F (m, k, d).
"""

from __future__ import annotations

from math import sqrt

import torch
from torch import Tensor

from tsnn.sheaf.householder import frame_matrix, synchronize, transport
from tsnn.theory.check import Check, at_most, conclude, equal, rounding

RANK_THRESHOLD = 1e-9  # singular values of U - I below this are rounding


def orthogonal(F: Tensor, *, eps: float) -> Check:
    """eq:householder_product: the product of a node's reflectors (m, k, d) is an orthogonal map."""
    U = frame_matrix(F.double(), eps)
    eye = torch.eye(F.shape[-1]).to(U)
    return conclude(
        "eq:householder_product",
        "a product of reflectors is orthogonal, on both sides",
        [equal("U^T U at", U.mT @ U, eye), equal("U U^T at", U @ U.mT, eye)],
    )


def low_rank(F: Tensor, partner: Tensor, *, eps: float) -> Check:
    """lem:low_rank on nodes F (m, k, d) and, for the transport, one partner each (m, k, d)."""
    U_to = frame_matrix(F.double(), eps)
    U_from = frame_matrix(partner.double(), eps)
    applied_to = (row_norms(F) > eps).sum(-1)  # the reflectors that are long enough to count
    applied_from = (row_norms(partner) > eps).sum(-1)
    return conclude(
        "lem:low_rank",
        "a frame differs from the identity in at most the reflectors it applies, a transport in those of both ends",
        [
            at_most("rank(U - I) of node", rank_from_identity(U_to), applied_to),
            at_most("rank(U - I) of partner", rank_from_identity(U_from), applied_from),
            at_most("rank(Q - I) of pair", rank_from_identity(U_to.mT @ U_from), applied_to + applied_from),
        ],
    )


def rank_from_identity(maps: Tensor) -> Tensor:
    """rank(U - I) of each matrix (..., d, d)."""
    rank: Tensor = torch.linalg.matrix_rank(maps - torch.eye(maps.shape[-1]).to(maps), atol=RANK_THRESHOLD)
    return rank


def householder_lipschitz(before: Tensor, after: Tensor, *, eps: float, tau: float) -> Check:
    """lem:houshlip between two times of each node; `tau` is to be no more than the length of any reflector."""
    moved = map_change(before, after, eps=eps)
    return conclude(
        "lem:houshlip",
        "a frame moves by at most 8 sqrt(k) / tau_H times the change of its reflectors",
        [at_most("|I - U(t)^T U(t-)| of node", moved, lipschitz_bound(before, after, tau=tau))],
    )


def smooth_lipschitz(before: Tensor, after: Tensor, *, eps: float, tau: float) -> Check:
    """eq:smooth_lipschitz: the squared form, in which the smoothness loss controls the drift."""
    moved = map_change(before, after, eps=eps)
    bound = lipschitz_bound(before, after, tau=tau)
    return conclude(
        "eq:smooth_lipschitz",
        "the squared motion of a frame is at most 64 k / tau_H^2 times its share of the smoothness loss",
        [at_most("|I - U(t)^T U(t-)|^2 of node", moved.square(), bound.square())],
    )


def map_change(before: Tensor, after: Tensor, *, eps: float) -> Tensor:
    """|I - U(t)^T U(t-)|_F of each node (m,)."""
    Q = frame_matrix(after.double(), eps).mT @ frame_matrix(before.double(), eps)
    change: Tensor = torch.linalg.matrix_norm(torch.eye(Q.shape[-1]).to(Q) - Q)
    return change


def lipschitz_bound(before: Tensor, after: Tensor, *, tau: float) -> Tensor:
    """(8 sqrt(k) / tau_H) |Delta F|_F of each node (m,)."""
    change: Tensor = torch.linalg.matrix_norm(after.double() - before.double())
    return 8.0 * sqrt(before.shape[-2]) * (1.0 / tau) * change


def operating_regime(F: Tensor, *, tau: float) -> Check:
    """rem:houshlip: the hypothesis of the Lipschitz bound, every reflector at least tau_H long."""
    claim = f"every reflector is at least tau_H = {tau:g} long"
    return conclude("rem:houshlip", claim, [at_most("reflector", tau, row_norms(F))])


def row_norms(F: Tensor) -> Tensor:
    """Lengths of the reflectors (..., k)."""
    lengths: Tensor = torch.linalg.vector_norm(F.double(), dim=-1)
    return lengths


def carry_over(before: Tensor, after: Tensor, h: Tensor, *, eps: float, carried: Tensor | None = None) -> Check:
    """prop:carry_over: the stalk carried into the new frame (computed here, or a run's own) keeps its meaning."""
    old = before.double()
    new = after.double()
    stalk = h.double()
    moved = transport(stalk, frame_from=old, frame_to=new, eps=eps)
    image = synchronize(old, stalk, eps)
    claimed = moved if carried is None else carried.double()
    relative = rounding(torch.float64 if carried is None else carried.dtype)
    return conclude(
        "prop:carry_over",
        "a change of frame alone leaves the stalk's common coordinates as they were, and no other vector does",
        [
            equal("U+ hbar = U- h at", synchronize(new, claimed, eps), image, relative=relative),
            equal("uniqueness at", claimed, moved, relative=relative),
            equal("norm of node", torch.linalg.vector_norm(moved, dim=-1), torch.linalg.vector_norm(stalk, dim=-1)),
        ],
    )
