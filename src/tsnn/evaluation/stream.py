"""The protocol for any table: one random negative for AP and AUC, many for MRR, from one replay.

The inductive sets are the rows of `val` and `test` with a node unseen in training, under the same negatives.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tsnn.data.events import EventStream
from tsnn.data.queries import Joined, Ranking
from tsnn.data.split import Split
from tsnn.errors import InputError
from tsnn.evaluation.card import Result, make_card
from tsnn.evaluation.metrics import BATCH, link_metrics, quick_average_precision, rank_metrics, ranks
from tsnn.evaluation.questions import Outcomes
from tsnn.types import F64, I64, Bool, Visibility

SETS = ("val", "test")
NEGATIVES = 100
AGGREGATION = (
    f"AP and AUC against one negative: unweighted mean over batches of {BATCH} positives, pooled beside it; "
    "MRR and hits@10 against many: mean over positives, a rank is the mean of the optimistic and the pessimistic one"
)
INDUCTIVE_NOTE = "new_val and new_test: every row is fed to the state, only rows with a node unseen in training count"


class StreamQuestions:
    """One query per event: its destination, one negative for AP, others for MRR.

    An answer is the positive's score, its one negative's, and its rank among the others.
    """

    columns = 3

    def __init__(
        self,
        split: Split,
        visibility: Visibility,
        *,
        negatives: int = NEGATIVES,
        seed: int = 0,
        sets: Sequence[str] = SETS,
    ) -> None:
        self._split, self._visibility, self._seed, stream = split, visibility, seed, split.stream
        cuts = visibility.cuts(stream.t, split.segment_starts)
        self._names = sorted(sets, key=SETS.index)
        self._parts = []
        for name in self._names:
            rows = np.arange(*split.bounds(name), dtype=np.int64)
            bounds, nodes = draw_negatives(stream, rows, negatives, np.random.default_rng([seed, SETS.index(name)]))
            self._parts.append(Ranking(stream, rows, cuts[rows], bounds, nodes))
        self.asked = Joined(self._parts)

    def answers(self, scores: F64, ptr: I64) -> F64:
        """Score of the positive, score of the one negative, rank."""
        ranked = np.delete(scores, ptr[:-1] + 1)
        return np.stack([scores[ptr[:-1]], scores[ptr[:-1] + 1], ranks(ranked, ptr - np.arange(len(ptr)))], axis=1)

    def outcomes(self, answers: F64) -> dict[str, Outcomes]:
        """Of validation and test rows, and of those among them with a new node."""
        split, found = self._split, {}
        is_new = split.new_node[split.stream.src] | split.new_node[split.stream.dst]
        for name, part, table in zip(self._names, self._parts, self.asked.split(answers), strict=True):
            found[name] = Outcomes(part.rows, *table.T)
            if is_new[part.rows].any():
                found[f"new_{name}"] = found[name].take(is_new[part.rows])
        return found

    def result(self, scorer: str, answers: F64) -> Result:
        """AP, AUC, MRR and hits@10 of every set."""
        metrics = {
            name: link_metrics(own.positive, own.negative) | rank_metrics(own.rank)
            for name, own in self.outcomes(answers).items()
        }
        ranked = {name: float(np.diff(p.bounds).mean()) - 1 for name, p in zip(self._names, self._parts, strict=True)}
        card = make_card(
            "stream",
            self._split,
            self._visibility,
            negatives={"strategy": "random", "seed": self._seed, "per_positive": 1, "ranked_against": ranked},
            aggregation=AGGREGATION,
            notes=[INDUCTIVE_NOTE],
        )
        return Result(scorer, self._split.stream.name, metrics, card)

    def validation(self, answers: F64) -> float:
        """AP in per cent."""
        val = self.outcomes(answers)["val"]
        return 100 * quick_average_precision(val.positive, val.negative)


def draw_negatives(stream: EventStream, rows: I64, num: int, rng: np.random.Generator) -> tuple[I64, I64]:
    """For each row one negative for AP, which may equal the positive as in DGB, then up to `num` others for MRR.

    All are destinations of the whole stream of the type the row's own has; the others are distinct and never it.
    """
    pool = np.unique(stream.dst)
    types = np.zeros(stream.num_nodes, np.int64) if stream.node_type is None else stream.node_type
    wanted, sizes = types[stream.dst[rows]], np.zeros(len(rows), np.int64)
    drawn: dict[int, tuple[Bool, I64]] = {}
    for kind in np.unique(wanted):
        here, same = wanted == kind, pool[types[pool] == kind]
        if len(same) < 2:
            raise InputError("a positive has no other destination to be ranked against; use a stream with two or more.")
        drawn[int(kind)] = here, _draw(same, stream.dst[rows][here], num, rng)
        sizes[here] = drawn[int(kind)][1].shape[1]
    bounds = np.concatenate([[0], np.cumsum(sizes)])
    nodes = np.empty(int(bounds[-1]), np.int64)
    for here, columns in drawn.values():
        nodes[bounds[:-1][here][:, None] + np.arange(columns.shape[1])] = columns
    return bounds, nodes


def _draw(pool: I64, positive: I64, num: int, rng: np.random.Generator) -> I64:
    one = rng.integers(0, len(pool), (len(positive), 1))
    others = distinct(len(positive), len(pool) - 1, min(num, len(pool) - 1), rng)
    others += others >= np.searchsorted(pool, positive)[:, None]  # step over the positive
    drawn: I64 = pool[np.concatenate([one, others], axis=1)]
    return drawn


def distinct(rows: int, size: int, num: int, rng: np.random.Generator) -> I64:
    """(rows, num) integers below `size`, distinct inside a row."""
    if num == size:
        return np.tile(np.arange(size), (rows, 1))
    if 2 * num > size:
        return np.argsort(rng.random((rows, size)), axis=1)[:, :num]
    drawn = rng.integers(0, size, (rows, num))
    while True:
        order = np.argsort(drawn, axis=1, kind="stable")
        ordered = np.take_along_axis(drawn, order, axis=1)
        repeated = np.zeros(drawn.shape, np.bool_)
        np.put_along_axis(repeated, order[:, 1:], ordered[:, 1:] == ordered[:, :-1], axis=1)
        if not repeated.any():
            return drawn
        drawn[repeated] = rng.integers(0, size, int(repeated.sum()))
