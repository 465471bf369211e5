"""Add a feature to the score of a trained run, and find out honestly whether it is worth anything.

python examples/add_a_feature.py [RUN]

A feature is a function of the facts: counts and gaps of each candidate, as of what its score may see (tsnn.plan.facts).
This one says how often the candidate has turned to the source before. Its weight is chosen on validation rows; the
test rows only measure.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

import tsnn
from tsnn.evaluation.scorer import Block
from tsnn.memory.versions import Versions
from tsnn.plan.facts import COLUMN
from tsnn.types import F64

WEIGHTS = (0.0, 0.1, 0.3, 1.0, 3.0)


def reciprocity(facts: F64) -> F64:
    """log(1 + events from the candidate to the source)."""
    return np.log1p(facts[:, COLUMN["reverse_count"]])


class WithFeature(tsnn.ModelScorer):
    """A run whose score has one more term."""

    name, weight = "tsnn + reciprocity", 0.0

    def score(self, plan: Block, versions: Versions) -> F64:
        """The run's score, and the feature's share."""
        return super().score(plan, versions) + self.weight * reciprocity(plan.score.facts)


def main(out: Path, data: str = "synthetic:roles:events=2000", **settings: object) -> None:
    """Train, choose the weight on validation rows, measure on test rows with and without."""
    run = tsnn.train(data, out, tsnn.Config.build(overrides=settings), compare=False)
    split, visibility = tsnn.default_split(data), tsnn.Visibility.parse("strict")
    scorer = WithFeature(run.model, split.stream)

    def ap(weight: float, part: str) -> float:
        scorer.weight = weight
        return tsnn.evaluate(scorer, split, visibility, sets=(part,)).metrics[part]["ap"]

    best = max(WEIGHTS, key=lambda weight: ap(weight, "val"))
    print(f"weight chosen on validation rows: {best}")
    print(f"test AP without {ap(0.0, 'test'):.2f}, with {ap(best, 'test'):.2f}")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path("runs/add_a_feature"))
