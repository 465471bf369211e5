"""The course of a run: which weights are kept, when it is over, how fast it learns.

    the head warms up -> close -> an epoch -> close -> an epoch -> close ... until `is_over`

Every part closes with a validation figure. A single run has one course (`tsnn.training.trainer`), a stack of runs has
one for each of its members (`tsnn.training.stacked`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from tsnn.config import Config

WARM_HEAD = -1  # in the place of an epoch: the best weights are those of the head before any epoch


@dataclass
class Course:
    """How far a run is, and what its best weights are; a checkpoint keeps all of it."""

    epochs: int  # at most
    patience: int  # epochs without a better one after which a run is over; the warm head is not among them
    warming: bool = False  # the head warms up, or is about to
    epoch: int = 0  # epochs that are closed
    best_metric: float = -math.inf
    best_epoch: int = WARM_HEAD
    peak: int = 0  # the best of the epochs, though the warm head may be better still
    peak_metric: float = -math.inf
    history: list[float] = field(default_factory=list)  # every validation figure so far
    failed: bool = False  # the loss became no number
    head: dict[str, Any] = field(default_factory=dict)  # how it was warmed: `tsnn.training.warmup.WarmHead`

    @classmethod
    def of(cls, config: Config) -> Course:
        """The beginning; without a residual branch there is no head to warm up."""
        train = config.train
        return cls(train.epochs, train.patience, warming=bool(train.warmup and config.model.residual))

    @property
    def is_over(self) -> bool:
        """Whether nothing further counts: all epochs are done, or the best of them was too long ago.

        States that join a warm head disturb it at first and gain as the rate falls, so the head's own figure ends
        nothing: it is only what they have to beat to be kept.
        """
        if self.failed or self.warming:
            return self.failed
        return self.epoch >= self.epochs or self.epoch - 1 - self.peak >= self.patience

    def close(self, metric: float | None) -> bool:
        """End the warm-up or an epoch with its validation figure, if there is one; whether it is the best so far."""
        is_best = metric is not None and metric > self.best_metric
        if metric is not None:
            self.history.append(metric)
        if is_best:
            self.best_metric = self.history[-1]
            self.best_epoch = WARM_HEAD if self.warming else self.epoch
        if metric is not None and metric > self.peak_metric and not self.warming:
            self.peak, self.peak_metric = self.epoch, self.history[-1]
        self.epoch += not self.warming
        self.warming = False
        return is_best


def cosine(step: int, total: int) -> float:
    """What the learning rate is multiplied by at a step of the epochs: from one to zero, with no state to resume."""
    return 0.5 * (1.0 + math.cos(math.pi * min(step / max(total, 1), 1.0)))


def linear(epoch: int, total: int) -> float:
    """The same for an epoch of the warm-up, falling evenly."""
    return 1.0 - epoch / total
