"""What a protocol asks of a split, and what the answers are worth: one shape for all of them.

    asked -> scores of a block -> answers, a row a query -> figures with their card

Answers are all that is kept of a block's scores, so that no more than a block of them exists, whoever gave them.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from tsnn.data.events import EventStream
from tsnn.data.queries import Asked
from tsnn.evaluation.card import Result
from tsnn.evaluation.scorer import Scorer, score_blocks
from tsnn.types import F64, I64, Progress


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

    def result(self, scorer: str, answers: F64) -> Result:
        """Figures of every set, with their card."""
        ...

    def validation(self, answers: F64) -> float:
        """The figure of the validation rows that chooses epochs and settings, to rounding and without the rest."""
        ...


def figures(scorer: Scorer, stream: EventStream, questions: Questions, progress: Progress | None = None) -> Result:
    """What a fitted scorer's answers are worth, from one replay of the stream."""
    asked = questions.asked
    answers = np.empty((len(asked), questions.columns))
    for step, scores in score_blocks(scorer, stream, asked, progress=progress):
        ptr = asked.ptr[step.first : step.last + 1] - asked.ptr[step.first]
        answers[step.first : step.last] = questions.answers(scores, ptr)
    return questions.result(scorer.name, answers)
