"""Full-active, feature-scaled, normalized sheaf diffusion of one event (eq:diffusion_local, alg:diffuse)."""

from __future__ import annotations

import torch
from torch import Tensor

from tsnn.sheaf.active_graph import safe_degrees, stars
from tsnn.sheaf.householder import reflect_with, reflector_weights


def capped_step(step_size: float, gain: Tensor) -> Tensor:
    """min(step_size, 1 / max(gain)), a constant for gradients: the condition of thm:feature_scaled (D-11)."""
    return gain.detach().max().reciprocal().clamp(max=step_size)


def diffuse(
    h: Tensor,
    F: Tensor,
    mult_src: Tensor,
    mult_dst: Tensor,
    is_loop: bool,
    gain: Tensor,
    step_size: Tensor | float,
    rounds: int,
    eps: float,
) -> Tensor:
    """The stalks (n, d) of an active set after `rounds` steps of eq:diffusion_global; F (n, k, d), gain (d,).

    `step_size` is used as given; a run passes `capped_step`. Differences are summed in common coordinates and
    rotated back once per node, so a round costs O(n k d).
    """
    graph = stars(mult_src.to(h.dtype), mult_dst.to(h.dtype), is_loop)
    degree = graph.degrees()[:, None]
    rate = step_size * gain / safe_degrees(degree)
    weights = reflector_weights(F, eps)
    for _ in range(rounds):
        g = reflect_with(F, weights, h)
        difference = torch.addcmul(-graph.neighbor_sum(g), degree, g)
        h = h - rate * reflect_with(F, weights, difference, transpose=True)
    return h
