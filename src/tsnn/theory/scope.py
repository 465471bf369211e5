"""Which message functions live in common coordinates, and which do not (prop:psi_equiv, app:nonlinear_scope)."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from tsnn.theory.check import Check, at_most, conclude, rounding

Message = Callable[[Tensor, Tensor], Tensor]  # Psi(a, b) on rows (m, d), the event's features held fixed
OUTSIDE = 1e-6  # a defect this large, relative to the output, is no rounding


def psi_equiv(message: Message, a: Tensor, b: Tensor, rotations: Tensor, *, name: str) -> Check:
    """prop:psi_equiv for a map inside the class: it commutes with rotations (m, d, d) and stays in span(a, b)."""
    relative = rounding(a.dtype)
    return conclude(
        "prop:psi_equiv",
        f"{name} commutes with every common rotation and outputs a combination of its two inputs",
        [
            at_most("defect of sample", equivariance_defect(message, a, b, rotations), 0.0, relative=relative),
            at_most("distance from the span of sample", span_defect(message, a, b), 0.0, relative=relative),
        ],
    )


def outside_class(message: Message, a: Tensor, b: Tensor, rotations: Tensor, *, name: str) -> Check:
    """prop:psi_equiv for a map outside the class: some sample and rotation exhibit a defect beyond rounding."""
    defect = equivariance_defect(message, a, b, rotations).max()
    return conclude(
        "prop:psi_equiv",
        f"{name} does not commute with common rotations, so the guarantees stop before it",
        [at_most("largest defect", OUTSIDE, defect)],
    )


def equivariance_defect(message: Message, a: Tensor, b: Tensor, rotations: Tensor) -> Tensor:
    """|Psi(U^T a, U^T b) - U^T Psi(a, b)| per sample, relative to 1 + |Psi| (eq:psi_equiv)."""
    with torch.no_grad():
        output = message(a, b)
        moved = message(_turn(rotations, a), _turn(rotations, b))
        return _relative(moved - _turn(rotations, output), output)


def span_defect(message: Message, a: Tensor, b: Tensor) -> Tensor:
    """Distance of Psi(a, b) from span(a, b) per sample, relative to 1 + |Psi|."""
    with torch.no_grad():
        output = message(a, b)
        basis = torch.stack((a, b), dim=-1)
        coefficients = torch.linalg.pinv(basis) @ output[..., None]
        return _relative(output - (basis @ coefficients)[..., 0], output)


def _relative(error: Tensor, output: Tensor) -> Tensor:
    size: Tensor = torch.linalg.vector_norm(error, dim=-1) / (1.0 + torch.linalg.vector_norm(output, dim=-1))
    return size


def _turn(rotations: Tensor, x: Tensor) -> Tensor:
    return torch.einsum("...ji,...j->...i", rotations, x)
