"""The result of checking one statement: how far its worst case stays from its bound."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

RELATIVE_TOLERANCE = 1e-10  # for the rounding of float64, in which all checks are computed


@dataclass(frozen=True)
class Check:
    """A statement on given tensors. `slack` is bound + tolerance - value in the worst case; it passes from 0 up."""

    label: str
    claim: str
    slack: float
    tolerance: float
    passed: bool
    where: str


class Margin(NamedTuple):
    """One inequality or identity inside a statement, at its worst place."""

    where: str
    slack: float
    tolerance: float
    exact: bool  # whether it is an identity; its slack is only rounding, so a bound is the more telling margin

    @property
    def passed(self) -> bool:
        """Whether it holds; NaN does not."""
        return self.slack >= 0


def rounding(dtype: torch.dtype) -> float:
    """The relative tolerance for values that were computed in `dtype`."""
    return max(RELATIVE_TOLERANCE, 100 * float(torch.finfo(dtype).eps))


def at_most(
    where: str, value: Tensor | float, bound: Tensor | float, *, relative: float = RELATIVE_TOLERANCE
) -> Margin:
    """value <= bound, elementwise after broadcasting."""
    left, right = _double(value), _double(bound)
    return _margin(where, right - left, relative * (1.0 + right.abs()), exact=False)


def equal(where: str, value: Tensor, expected: Tensor, *, relative: float = RELATIVE_TOLERANCE) -> Margin:
    """value == expected, elementwise after broadcasting, up to rounding."""
    left, right = _double(value), _double(expected)
    scale = right.abs().max() if right.numel() else right.sum()
    return _margin(where, -(left - right).abs(), relative * (1.0 + scale), exact=True)


def conclude(label: str, claim: str, margins: Sequence[Margin]) -> Check:
    """The statement as a whole: a broken margin if there is one, otherwise the tightest bound."""
    worst = min(margins, key=lambda margin: (margin.passed, margin.exact, margin.slack))
    return Check(label, claim, worst.slack, worst.tolerance, all(m.passed for m in margins), worst.where)


def _margin(where: str, room: Tensor, tolerance: Tensor, *, exact: bool) -> Margin:
    if room.numel() == 0:
        return Margin(where, 0.0, 0.0, exact)
    slack = room + tolerance
    place = torch.unravel_index(slack.argmin(), slack.shape)
    worst = float(slack[place])
    allowed = float(tolerance.expand_as(slack)[place])
    position = f" [{', '.join(str(int(i)) for i in place)}]" if place else ""
    return Margin(f"{where}{position}", worst, allowed, exact)


def _double(value: Tensor | float) -> Tensor:
    return torch.as_tensor(value).detach().to("cpu", torch.float64)
