"""Stored frames against refreshed ones: how a stale frame perturbs the operator (app:stored_frame_proofs)."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from tsnn.sheaf.laplacian import graph_laplacian, per_coordinate, random_walk, synchronization
from tsnn.theory.active import ActiveSet
from tsnn.theory.check import Check, at_most, conclude, equal
from tsnn.theory.diffusion import STEP_ROUNDING
from tsnn.theory.frames import lipschitz_bound


def stale(stored: ActiveSet, reference: Tensor) -> Check:
    """thm:stale: the active set with its stored frames, against reference frames (n, k, d) of the same nodes."""
    fresh = replace(stored, F=reference)
    drift = frame_drift(stored, fresh)
    S = synchronization(stored.maps)
    in_common = random_walk(graph_laplacian(stored.adjacency), stored.adjacency)
    lipschitz = (1.0 - stored.step_size * stored.eigenvalues).abs().max()
    allowed = 1.0 + 2.0 * stored.step_size * stored.gain.max() * drift
    return conclude(
        "thm:stale",
        "stale frames shift the operator by at most twice their drift and its Lipschitz constant in proportion",
        [
            equal("factorization at", stored.random_walk, S.mT @ per_coordinate(in_common, stored.h.shape[-1]) @ S),
            at_most("operator shift", operator_shift(stored, fresh), 2.0 * drift),
            at_most("Lipschitz constant", lipschitz, allowed, relative=STEP_ROUNDING),
        ],
    )


def drift_control(stored: ActiveSet, refreshed: Tensor, *, tau: float) -> Check:
    """rem:drift_control: the drift between consecutive updates is bounded by the reflectors' change."""
    fresh = replace(stored, F=refreshed)
    bound = lipschitz_bound(stored.F, fresh.F, tau=tau)
    moved = torch.linalg.matrix_norm(fresh.maps - stored.maps)
    return conclude(
        "rem:drift_control",
        "the change of the reflectors bounds the drift of the frames and through it the operator shift",
        [
            at_most("|U(t) - U(t-)| of node", moved, bound),
            at_most("operator shift", operator_shift(stored, fresh), 2.0 * bound.max()),
        ],
    )


def frame_drift(stored: ActiveSet, fresh: ActiveSet) -> Tensor:
    """delta_t, the largest operator-norm distance between a node's two frames."""
    distance: Tensor = torch.linalg.matrix_norm(stored.maps - fresh.maps, ord=2)
    return distance.max()


def operator_shift(stored: ActiveSet, fresh: ActiveSet) -> Tensor:
    """|L_stored - L_fresh| in the degree metric."""
    shift: Tensor = torch.linalg.eigvalsh(stored.symmetric - fresh.symmetric)
    return shift.abs().max()
