"""The TGB protocol: each positive ranked among its own negatives; MRR and hits@10 over positives."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tsnn.data.queries import Chain, Ranking
from tsnn.data.split import Split
from tsnn.data.tgb_negatives import TgbNegatives
from tsnn.evaluation.card import Result, make_card
from tsnn.evaluation.metrics import rank_metrics, ranks
from tsnn.types import F64, I64, Visibility

SETS = ("val", "test")
HITS_AT = 10
AGGREGATION = "mean over positives; a rank is the mean of the optimistic and the pessimistic one"


class TgbQuestions:
    """One query per event, its destination first, then the set's own negatives; an answer is a rank."""

    columns = 1

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
        self.asked = Chain(self._parts)

    def answers(self, scores: F64, ptr: I64) -> F64:
        """Rank of each query's first candidate."""
        return ranks(scores, ptr)[:, None]

    def result(self, scorer: str, answers: F64) -> Result:
        """MRR and hits@10 of every set."""
        found = dict(zip(self._names, self.asked.split(answers[:, 0]), strict=True))
        counts = {name: float(np.diff(part.bounds).mean()) for name, part in zip(self._names, self._parts, strict=True)}
        card = make_card(
            "tgb",
            self._split,
            self._visibility,
            negatives={"strategy": "the set's own, one-versus-many", "mean_per_positive": counts},
            aggregation=AGGREGATION,
        )
        metrics = {name: rank_metrics(r, HITS_AT) for name, r in found.items()}
        return Result(scorer, self._split.stream.name, metrics, card)

    def validation(self, answers: F64) -> float:
        """MRR."""
        return rank_metrics(self.asked.split(answers[:, 0])[self._names.index("val")], HITS_AT)["mrr"]
