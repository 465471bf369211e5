"""The DGB protocol: one negative per positive, AP and AUC as the mean over batches of 200 positives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tsnn.data.negatives import SEEDS, DgbNegatives
from tsnn.data.queries import Joined, Queries, pairs
from tsnn.data.split import Split
from tsnn.errors import InputError
from tsnn.evaluation.card import Result, make_card
from tsnn.evaluation.metrics import BATCH, link_metrics, quick_average_precision
from tsnn.evaluation.questions import Outcomes
from tsnn.types import F64, I64, Visibility

SETS = tuple(SEEDS)  # val, new_val, test, new_test
AGGREGATION = f"unweighted mean over batches of {BATCH} positives, the last and shorter one included; pooled beside it"
INDUCTIVE_NOTE = (
    "new_val and new_test: every row of the segment is fed to the state, only rows with a node unseen in training are "
    f"scored, in batches of {BATCH} of those"
)


@dataclass(frozen=True)
class DgbSet:
    """Positives and negatives of one set, as two aligned sets of single-candidate queries."""

    pos: Queries
    neg: Queries


def dgb_set(split: Split, cuts: I64, negatives: DgbNegatives) -> DgbSet:
    """Negative k is asked at positive k's time and cut; historical and inductive ones have another source."""
    stream, rows = split.stream, negatives.rows
    return DgbSet(
        pairs(stream, rows, cuts[rows], stream.src[rows], stream.dst[rows]),
        pairs(stream, rows, cuts[rows], negatives.neg_src, negatives.neg_dst),
    )


class DgbQuestions:
    """The protocol's `tsnn.evaluation.questions.Questions`: single candidates, so an answer is a score."""

    columns = 1

    def __init__(
        self, split: Split, visibility: Visibility, *, strategy: str = "random", sets: Sequence[str] = SETS
    ) -> None:
        self._split, self._visibility, self._strategy = split, visibility, strategy
        cuts = visibility.cuts(split.stream.t, split.segment_starts)
        self._negatives = {name: DgbNegatives(split, name, strategy) for name in sets}
        asked = {name: dgb_set(split, cuts, drawn) for name, drawn in self._negatives.items() if len(drawn)}
        if not asked:
            raise InputError(f"none of {', '.join(sets)} has an event; ask for val and test.")
        self._names = list(asked)
        self.asked = Joined([queries for pair in asked.values() for queries in (pair.pos, pair.neg)])

    def answers(self, scores: F64, ptr: I64) -> F64:
        """The scores themselves."""
        return scores[:, None]

    def outcomes(self, answers: F64) -> dict[str, Outcomes]:
        """Each positive beside its one negative."""
        parts = self.asked.split(answers[:, 0])
        found = {}
        for name, pos, neg in zip(self._names, parts[::2], parts[1::2], strict=True):
            rank = 1 + (neg > pos) + 0.5 * (neg == pos)
            found[name] = Outcomes(self._negatives[name].rows, pos, neg, rank)
        return found

    def result(self, scorer: str, answers: F64) -> Result:
        """AP and AUC of every set."""
        metrics = {name: link_metrics(own.positive, own.negative) for name, own in self.outcomes(answers).items()}
        card = make_card(
            "dgb",
            self._split,
            self._visibility,
            negatives={
                "strategy": self._strategy,
                "per_positive": 1,
                "seeds": {name: drawn.seed for name, drawn in self._negatives.items()},
                "positives": {name: len(drawn) for name, drawn in self._negatives.items()},
            },
            aggregation=AGGREGATION,
            notes=[INDUCTIVE_NOTE] if any(name.startswith("new_") for name in self._names) else [],
        )
        return Result(scorer, self._split.stream.name, metrics, card)

    def validation(self, answers: F64) -> float:
        """AP in per cent."""
        val = self.outcomes(answers)["val"]
        return 100 * quick_average_precision(val.positive, val.negative)
