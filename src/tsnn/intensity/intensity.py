"""The intensity of the sources: how often each is about to act, from what happened to it so far; some 20 numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from tsnn.data.question import Question
from tsnn.data.split import Split
from tsnn.intensity.acts import Acts, Grid
from tsnn.intensity.likelihood import maximize
from tsnn.types import F64


@dataclass(frozen=True)
class Intensity:
    """lambda(t) = base + sum_k weights[k] rate_k x_k(t) of whoever has acted, x what `source_acts` says of it.

    Of those who never acted, nobody can say which comes next: such a one has the rate of all newcomers together, and
    what those who turned to it add. Fitted to training rows; fewer than 20 of the numbers are not 0.
    """

    grid: Grid
    newcomers: float  # first acts per unit of time
    base: float
    weights: tuple[float, ...]  # of counts of what it did, of what befell it (with two roles), of its last event
    burst: float = 1.0  # events that a source begins at one time, where it begins any

    @classmethod
    def fit(cls, split: Split, question: Question) -> Self:
        """The one of greatest likelihood on the training rows, of which each knows what the question lets it know."""
        stream, rows = split.stream, split.train_end
        grid = Grid.of(stream, question.visibility, rows)
        acts = Acts.of(stream, question.visibility, question.cuts(split), rows, grid.roles)
        theta = maximize(acts, grid)
        return cls(grid, float(theta[0]), float(theta[1]), tuple(theta[2:].tolist()), acts.burst)

    @classmethod
    def from_dict(cls, told: Mapping[str, Any]) -> Self:
        """Read what `to_dict` wrote."""
        weights = tuple(float(weight) for weight in told["weights"])
        return cls(Grid(**told["grid"]), told["newcomers"], told["base"], weights, told["burst"])

    def to_dict(self) -> dict[str, Any]:
        """As JSON would hold it."""
        return {**asdict(self), "grid": self.grid._asdict(), "weights": list(self.weights)}

    @property
    def parameters(self) -> int:
        """Numbers that are not 0."""
        return int(np.count_nonzero([self.newcomers, self.base, *self.weights, self.burst]))

    def rate(self, acts: F64) -> F64:
        """Events per unit of time of sources of whom this is known, (n, acts) as `source_acts` writes it."""
        rates = np.tile(self.grid.rates, self.grid.roles + 1)
        return np.where(acts[:, 0] > 0, self.base, self.newcomers) + acts[:, 1:] @ (np.array(self.weights) * rates)

    def log_rate(self, acts: F64) -> F64:
        """Its natural log; of what is as good as impossible, that of the smallest number there is."""
        log_rate: F64 = np.log(np.maximum(self.rate(acts), np.finfo(np.float64).tiny))
        return log_rate

    def expected(self, acts: F64, horizon: float) -> F64:
        """Events until `horizon` if counts fade and nothing new happens, the integral of the rate.

        Without the newcomers' own: who of them comes is not known.
        """
        fading = np.tile(self.grid.faded(horizon), self.grid.roles + 1)
        return np.where(acts[:, 0] > 0, self.base * horizon, 0.0) + acts[:, 1:] @ (np.array(self.weights) * fading)

    def probability(self, expected: NDArray[np.floating[Any]] | float) -> Any:
        """Of any event, where so many are expected, in bursts of the usual size."""
        return -np.expm1(-np.asarray(expected) / self.burst)
