"""What a protocol asks of a split, and what the answers are worth: one shape for all of them.

    asked -> scores of a block -> answers, a row a query -> outcomes, a row a positive -> figures with their card

Answers are all that is kept of a block's scores, so that no more than a block of them exists, whoever gave them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from tsnn.data.queries import Asked
from tsnn.evaluation.card import Result
from tsnn.types import F64, I64, Bool


@dataclass(frozen=True)
class Outcomes:
    """How the positives of one set fared; the four columns are aligned."""

    rows: I64  # rows of the stream that hold the positives
    positive: F64  # score of the positive
    negative: F64  # score of its first negative
    rank: F64  # of the positive among the candidates it is ranked with: mean of optimistic and pessimistic rank

    def take(self, chosen: Bool) -> Outcomes:
        """Some of the positives."""
        return Outcomes(self.rows[chosen], self.positive[chosen], self.negative[chosen], self.rank[chosen])


class Questions(Protocol):
    """One protocol on one split under one visibility."""

    columns: int  # of an answer

    @property
    def asked(self) -> Asked:
        """The queries of all sets, sorted by cut."""
        ...

    def answers(self, scores: F64, ptr: I64) -> F64:
        """From the scores of whole queries, bounded by `ptr`, to their answers (queries, columns)."""
        ...

    def outcomes(self, answers: F64) -> dict[str, Outcomes]:
        """How the positives of every set fared."""
        ...

    def result(self, scorer: str, answers: F64) -> Result:
        """Figures of every set, with their card."""
        ...

    def validation(self, answers: F64) -> float:
        """The figure of the validation rows that chooses epochs and settings, to rounding and without the rest."""
        ...
