"""The suite DGB: one negative per positive, AP and AUC as the mean over batches of 200 positives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tsnn.data.dgb import NAMES, find_csv, load_dgb, read_labels, split_dgb
from tsnn.data.negatives import SEEDS, STRATEGIES, DgbNegatives
from tsnn.data.queries import Joined, Queries, pairs
from tsnn.data.question import OTHER_SOURCES, Question
from tsnn.data.split import Split
from tsnn.errors import InputError
from tsnn.evaluation.metrics import BATCH, link_metrics
from tsnn.evaluation.questions import Outcomes, Questions
from tsnn.evaluation.suite import benchmark
from tsnn.types import F64, I64

SETS = tuple(SEEDS)  # val, new_val, test, new_test
_COUNTS = {  # nodes and events, as measured on the files themselves
    "uci": (1_899, 59_835),
    "USLegis": (225, 60_396),
    "CanParl": (734, 74_478),
    "enron": (184, 125_235),
    "mooc": (7_144, 411_749),
    "wikipedia": (9_227, 157_474),
}


class DgbQuestions(Questions):
    """Queries of single candidates, so an answer is a score.

    Negative k is asked at positive k's time and cut; historical and inductive ones have another source.
    """

    protocol = "dgb"
    says = f"AP and AUC against one negative per positive, mean over batches of {BATCH}, pooled beside it"
    strategies = STRATEGIES
    other_sources = OTHER_SOURCES
    sets = SETS
    metric = "ap"
    aggregation = (
        f"unweighted mean over batches of {BATCH} positives, the last and shorter one included; pooled beside it"
    )
    note = (
        "new_val and new_test: every row of the segment is fed to the state, only rows with a node unseen in training "
        f"are scored, in batches of {BATCH} of those"
    )
    columns = 1

    def __init__(self, split: Split, question: Question, sets: Sequence[str] | None = None) -> None:
        super().__init__(split, question, sets)
        stream, shift = self.split.stream, self.split.train_end - split.train_end
        cuts = question.cuts(self.split)
        drawn = {name: DgbNegatives(split, name, str(self.question.negatives)) for name in self.names}
        self._drawn = {name: negatives for name, negatives in drawn.items() if len(negatives)}
        if not self._drawn:
            raise InputError(f"none of {', '.join(self.names)} has an event; ask for val and test.")
        self._rows = {name: negatives.rows + shift for name, negatives in self._drawn.items()}
        queries: list[Queries] = []
        for name, negatives in self._drawn.items():
            rows = self._rows[name]
            queries.append(pairs(stream, rows, cuts[rows], stream.src[rows], stream.dst[rows]))
            queries.append(pairs(stream, rows, cuts[rows], negatives.neg_src, negatives.neg_dst))
        self.asked: Joined = Joined(queries)

    def answers(self, scores: F64, ptr: I64) -> F64:
        """The scores themselves."""
        return scores[:, None]

    def outcomes(self, answers: F64) -> dict[str, Outcomes]:
        """Each positive beside its one negative."""
        parts = self.asked.split(answers[:, 0])
        found = {}
        for (name, rows), pos, neg in zip(self._rows.items(), parts[::2], parts[1::2], strict=True):
            rank = 1 + (neg > pos) + 0.5 * (neg == pos)
            found[name] = Outcomes(rows, pos, neg, rank)
        return found

    def figures(self, own: Outcomes) -> dict[str, float]:
        """AP and AUC."""
        return link_metrics(own.positive, own.negative)

    def negatives(self) -> dict[str, Any]:
        """One per positive, with the suite's seeds."""
        return {
            "per_positive": 1,
            "seeds": {name: drawn.seed for name, drawn in self._drawn.items()},
            "positives": {name: len(drawn) for name, drawn in self._drawn.items()},
        }


_SETS = {name: (name, f"ml_{name}.csv") for name in NAMES}
DGB = benchmark("dgb", _SETS, _COUNTS, find_csv, load_dgb, split_dgb, DgbQuestions, read_labels)
