"""Who acts, then on whom: the score of a pair against pairs of other sources.

A model ranks the destinations of one source. Where a negative has another source, what also counts is who acts at all:
the score of a pair is then that of its model plus a multiple of the log intensity of its source. With a multiple of 1,
and a model whose scores are log odds against chance, that is the log of the joint rate of the pair. The multiple is
chosen on validation rows under negatives of the same kind, and the card says which.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tsnn.data.question import Question
from tsnn.data.split import Split
from tsnn.evaluation.card import Result
from tsnn.evaluation.model import ModelScorer
from tsnn.evaluation.questions import Questions
from tsnn.evaluation.replay import Answers, replay
from tsnn.evaluation.scorer import Block
from tsnn.intensity.intensity import Intensity
from tsnn.memory.versions import Versions
from tsnn.plan.planner import PlanSpec
from tsnn.types import F64, Progress, unwatched

MULTIPLES = (0.0, 0.125, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0)


@dataclass(frozen=True)
class Joint:
    """What was fitted and chosen to compare pairs of different sources."""

    intensity: Intensity
    multiple: float  # of the log intensity, beside the model's score
    validation: dict[str, float]  # the figure that each multiple got on validation rows
    metric: str

    def to_card(self) -> dict[str, Any]:
        """As it stands on a card, every number of it."""
        return {
            "multiple": self.multiple,
            "chosen_by": f"{self.metric} of validation rows under these negatives",
            "validation": self.validation,
            "intensity": self.intensity.to_dict(),
        }

    def __str__(self) -> str:
        return (
            f"negatives of other sources: the score is the model's plus {self.multiple:g} times the log intensity of "
            f"the source, an intensity of {self.intensity.parameters} numbers fitted to training rows; the multiple "
            f"was chosen among {', '.join(f'{m:g}' for m in MULTIPLES)} by {self.metric} of validation rows under "
            "negatives of this kind"
        )


class JointScorer:
    """A model that knows how active sources are."""

    def __init__(self, own: ModelScorer, intensity: Intensity, multiple: float = 0.0) -> None:
        self.own, self.intensity, self.multiple = own, intensity, multiple
        self.name = own.name
        own.paces = intensity.grid

    @property
    def spec(self) -> PlanSpec:
        """The model's, with the counts that the intensity reads."""
        return self.own.spec

    def fit(self, split: Split, question: Question) -> None:
        """Nothing: it was fitted by `joined`."""

    def reset_state(self) -> None:
        """Forget every event."""
        self.own.reset_state()

    def update(self, plan: Block) -> Versions:
        """Run the block's rows."""
        return self.own.update(plan)

    def score(self, plan: Block, versions: Versions) -> F64:
        """The model's scores, and what the activity of their sources adds."""
        return self.own.score(plan, versions) + self.multiple * self.log_rate(plan)

    def log_rate(self, plan: Block) -> F64:
        """The log intensity of every candidate's source."""
        log_rate: F64 = np.repeat(self.intensity.log_rate(plan.score.acts), np.diff(plan.score.ptr))
        return log_rate


def joined(
    own: ModelScorer, split: Split, questions: Questions, progress: Progress = unwatched
) -> tuple[JointScorer, Joint]:
    """The model with an intensity of its sources: fitted to training rows, its multiple chosen on validation rows."""
    asked = type(questions).for_validation(split, questions.question)
    plain = JointScorer(own, Intensity.fit(split, asked.question))
    scores, rates = Answers(asked), Answers(asked, lambda seen: plain.log_rate(seen.block))
    replay(plain, split.stream, [scores, rates], progress=progress, text="choosing what activity counts for")
    found = {
        multiple: asked.figures(asked.outcomes(scores.values + multiple * rates.values)["val"])[asked.metric]
        for multiple in MULTIPLES
    }
    best = max(MULTIPLES, key=lambda multiple: found[multiple])  # of equals the first, which is the smallest
    validation = {f"{multiple:g}": found[multiple] for multiple in MULTIPLES}
    return JointScorer(own, plain.intensity, best), Joint(plain.intensity, best, validation, asked.metric)


def told(result: Result, joint: Joint) -> Result:
    """The same figures, whose card says how sources were compared."""
    negatives = {**result.card.negatives, "joint": joint.to_card()}
    return replace(result, card=replace(result.card, negatives=negatives, notes=[*result.card.notes, str(joint)]))
