"""The TGB protocol: each positive ranked among its own negatives; MRR and hits@10 over positives."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tsnn.data.queries import Joined, Ranking
from tsnn.data.split import Split
from tsnn.data.tgb_negatives import TgbNegatives
from tsnn.evaluation.card import Result, make_card
from tsnn.evaluation.metrics import rank_metrics, ranks
from tsnn.evaluation.questions import Outcomes
from tsnn.types import F64, I64, Visibility

SETS = ("val", "test")
HITS_AT = 10
AGGREGATION = "mean over positives; a rank is the mean of the optimistic and the pessimistic one"


class TgbQuestions:
    """One query per event: its destination first, then the set's own negatives.

    An answer is the positive's score, its first negative's, and its rank.
    """

    columns = 3

    def __init__(
        self, split: Split, visibility: Visibility, negatives: TgbNegatives, *, sets: Sequence[str] = SETS
    ) -> None:
        self._split, self._visibility, stream = split, visibility, split.stream
        cuts = visibility.cuts(stream.t, split.segment_starts)
        self._names = sorted(sets, key=SETS.index)
        self._parts = []
        for name in self._names:
            rows = np.arange(*split.bounds(name), dtype=np.int64)
            self._parts.append(Ranking(stream, rows, cuts[rows], *negatives.query(name)))
        self.asked = Joined(self._parts)

    def answers(self, scores: F64, ptr: I64) -> F64:
        """Score of the positive, score of the first negative, rank."""
        return np.stack([scores[ptr[:-1]], scores[ptr[:-1] + 1], ranks(scores, ptr)], axis=1)

    def outcomes(self, answers: F64) -> dict[str, Outcomes]:
        """Each positive among its negatives."""
        own = zip(self._names, self._parts, self.asked.split(answers), strict=True)
        return {name: Outcomes(part.rows, *table.T) for name, part, table in own}

    def result(self, scorer: str, answers: F64) -> Result:
        """MRR and hits@10 of every set."""
        counts = {name: float(np.diff(part.bounds).mean()) for name, part in zip(self._names, self._parts, strict=True)}
        card = make_card(
            "tgb",
            self._split,
            self._visibility,
            negatives={"strategy": "the set's own, one-versus-many", "mean_per_positive": counts},
            aggregation=AGGREGATION,
        )
        metrics = {name: rank_metrics(own.rank, HITS_AT) for name, own in self.outcomes(answers).items()}
        return Result(scorer, self._split.stream.name, metrics, card)

    def validation(self, answers: F64) -> float:
        """MRR."""
        return rank_metrics(self.outcomes(answers)["val"].rank, HITS_AT)["mrr"]
