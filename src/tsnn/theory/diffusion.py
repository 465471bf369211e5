"""Descent and stability of the implemented diffusion step with frozen frames (app:energy_proofs).

The conclusions are checked with the step size as given, so a step beyond its bound shows as a failed check.
"""

from __future__ import annotations

import torch
from torch import Tensor

from tsnn.theory.active import ActiveSet
from tsnn.theory.check import Check, Margin, at_most, conclude, equal

KERNEL_THRESHOLD = 1e-9  # eigenvalues below this belong to the kernel
STEP_ROUNDING = 1e-6  # a float32 run rounds its step; at the bound that rounding reaches the conclusion


def energy(active: ActiveSet) -> Check:
    """thm:energy: the gradient of the energy is L_F z and the D_theta = I step is its Delta-gradient step."""
    plain = active.normalized_only
    stalks = plain.h.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(plain.energy(stalks), stalks)
    z = plain.h.flatten()
    return conclude(
        "thm:energy",
        "normalized diffusion is gradient descent of the aligned Dirichlet energy in the degree metric",
        [
            equal("quadratic form", plain.energy(plain.h), 0.5 * z @ plain.laplacian @ z),
            equal("gradient at", gradient.flatten(), plain.laplacian @ z),
            equal("step at", plain.step().flatten(), z - plain.step_size * gradient.flatten() / plain.degree),
        ],
    )


def feature_scaled(active: ActiveSet) -> Check:
    """thm:feature_scaled: gradient step in the metric M, its descent bound, and non-expansiveness."""
    z = active.h.flatten()
    step = z - active.step_size * (active.laplacian @ z) / active.metric
    return conclude(
        "thm:feature_scaled",
        "a diffusion step lowers the energy by at least its bound and expands no difference in the metric M",
        [
            equal("gradient step at", active.step().flatten(), step),
            *_descent(active),
            at_most("largest eigenvalue of B", active.eigenvalues[-1], 2.0 * active.gain.max()),
            at_most("expansion along mode", (1.0 - _shrinkage(active)).abs(), 1.0, relative=STEP_ROUNDING),
        ],
    )


def energy_descent(active: ActiveSet) -> Check:
    """cor:energy_descent: the descent bound with D_theta = I, which needs a step of at most 1."""
    plain = active.normalized_only
    return conclude(
        "cor:energy_descent",
        "normalized diffusion with a step of at most 1 never raises the energy of any state",
        [
            *_descent(plain),
            # the energy of each mode is scaled by (1 - eta lambda)^2
            at_most("energy along mode", (1.0 - _shrinkage(plain)).square(), 1.0, relative=STEP_ROUNDING),
        ],
    )


def nonexpansive(active: ActiveSet) -> Check:
    """thm:nonexpansive: with D_theta = I and a step of at most 1/2 the update is firmly non-expansive."""
    plain = active.normalized_only
    shrink = _shrinkage(plain)
    z, moved = plain.h.flatten(), plain.step().flatten()
    firm = _norm(moved, plain.degree) + _norm(z - moved, plain.degree)
    return conclude(
        "thm:nonexpansive",
        "normalized diffusion with a step of at most 1/2 is firmly non-expansive and contracts off the kernel",
        [
            at_most("this state", firm, _norm(z, plain.degree), relative=STEP_ROUNDING),
            at_most("along mode", (1.0 - shrink).square() + shrink.square(), 1.0, relative=STEP_ROUNDING),
            at_most("contraction along mode", (1.0 - shrink).abs(), 1.0, relative=STEP_ROUNDING),
        ],
    )


def step_size_bound(gain: Tensor, step_size: float | Tensor) -> Check:
    """rem:spectral_bound: the step used satisfies eta <= 1 / lambda_max(D_theta), whatever the degrees."""
    return conclude(
        "rem:spectral_bound",
        "the step size is positive and at most one over the largest gain",
        [
            at_most("step size", step_size, gain.detach().double().max().reciprocal(), relative=STEP_ROUNDING),
            at_most("sign of the step size", -step_size, 0.0),
        ],
    )


def _descent(active: ActiveSet) -> list[Margin]:
    z = active.h.flatten()
    before, after = active.energy(active.h), active.energy(active.step())
    slope = ((active.laplacian @ z).square() / active.metric).sum()
    coefficient = active.step_size * (1.0 - 0.5 * active.step_size * active.eigenvalues[-1])
    return [
        at_most("energy bound", after, before - coefficient * slope),
        at_most("energy of this state", after, before, relative=STEP_ROUNDING),
    ]


def _shrinkage(active: ActiveSet) -> Tensor:
    """eta lambda_i of the modes that move, the eigenvectors of B outside its kernel."""
    return active.step_size * active.eigenvalues[active.eigenvalues > KERNEL_THRESHOLD]


def _norm(z: Tensor, metric: Tensor) -> Tensor:
    return (metric * z.square()).sum()
