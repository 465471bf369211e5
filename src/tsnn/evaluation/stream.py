"""The protocol for any table: one random negative for AP and AUC, many for MRR, from one replay.

Plain tables and synthetic streams ask this. The inductive sets are the rows of `val` and `test` with a node unseen in
training, under the same negatives.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np

from tsnn.data.duckdb import load_duckdb
from tsnn.data.events import EventStream
from tsnn.data.git import load_git
from tsnn.data.question import Asks, Question, node_types
from tsnn.data.split import Split, split_by_time
from tsnn.data.synthetic import RolesSpec, load_synthetic
from tsnn.data.table import read_table
from tsnn.errors import InputError
from tsnn.evaluation.metrics import BATCH, link_metrics, rank_metrics, ranks
from tsnn.evaluation.questions import Outcomes, RankedQuestions
from tsnn.evaluation.suite import DataEntry, Suite, data_root
from tsnn.types import F64, I64

NEGATIVES = 100
VALIDATION_NEGATIVES = 20
SEED = 0


class StreamQuestions(RankedQuestions):
    """One query per event, two of an undirected one: the destination, one negative for AP, others for MRR.

    An answer is the positive's score, its one negative's, and its rank among the others.
    """

    protocol = "stream"
    says = f"AP and AUC against one negative per positive, MRR and hits@10 against {NEGATIVES}"
    metric = "ap"
    aggregation = (
        f"AP and AUC against one negative: unweighted mean over batches of {BATCH} positives, pooled beside it; MRR "
        "and hits@10 against many: mean over positives, a rank is the mean of the optimistic and the pessimistic one"
    )
    undirected = True
    note = "new_val and new_test: every row is fed to the state, only rows with a node unseen in training count"

    def __init__(
        self, split: Split, question: Question, sets: Sequence[str] | None = None, others: int = NEGATIVES
    ) -> None:
        self._others = others
        super().__init__(split, question, sets)

    @classmethod
    def for_validation(cls, split: Split, question: Question) -> Self:
        """A few negatives: enough to choose by, and several times faster."""
        return cls(split, question, ("val",), others=VALIDATION_NEGATIVES)

    def choice(self, figures: Mapping[str, float]) -> float:
        """AP tells a positive from one random node, MRR from those most like it: a run is asked for both."""
        return (figures["ap"] + 100 * figures["mrr"]) / 2

    def draw(self, name: str, own: Asks) -> tuple[I64, I64]:
        """Random ones, by the place of the set."""
        rng = np.random.default_rng([SEED, self.sets.index(name)])
        return draw_negatives(self.split.stream, own, self.question, self._others, rng)

    def answers(self, scores: F64, ptr: I64) -> F64:
        """Score of the positive, score of the one negative, rank."""
        ranked = np.delete(scores, ptr[:-1] + 1)
        return np.stack([scores[ptr[:-1]], scores[ptr[:-1] + 1], ranks(ranked, ptr - np.arange(len(ptr)))], axis=1)

    def outcomes(self, answers: F64) -> dict[str, Outcomes]:
        """Of validation and test rows, and of those among them with a new node."""
        split = self.split
        is_new = split.new_node[split.stream.src] | split.new_node[split.stream.dst]
        found = {}
        for name, own in super().outcomes(answers).items():
            found[name] = own
            if is_new[own.rows].any():
                found[f"new_{name}"] = own.take(is_new[own.rows])
        return found

    def figures(self, own: Outcomes) -> dict[str, float]:
        """AP, AUC, MRR and hits@10."""
        return link_metrics(own.positive, own.negative) | rank_metrics(own.rank)

    def negatives(self) -> dict[str, Any]:
        """One for AP, the others for ranks."""
        ranked = {name: mean - 1 for name, mean in self.mean_negatives().items()}
        return {"seed": SEED, "per_positive": 1, "ranked_against": ranked}


def draw_negatives(
    stream: EventStream, own: Asks, question: Question, num: int, rng: np.random.Generator, rows: int | None = None
) -> tuple[I64, I64]:
    """For each ask one negative for AP, which may equal the positive as in DGB, then up to `num` others for MRR.

    All are candidates of the question, as the first `rows` of the stream tell them (by default all of them), of the
    type the row's own destination has; the others are distinct and never it.
    """
    pool = question.pool(stream, rows)
    wanted = node_types(stream, own.dst)
    sizes = np.zeros(len(own.dst), np.int64)
    drawn = []
    for kind in np.unique(wanted):
        here = wanted == kind
        same = pool.of_type(int(kind))
        if len(same) < 2:
            raise InputError("a positive has no other destination to be ranked against; use a stream with two or more.")
        columns = _draw(same, own.dst[here], num, rng)
        drawn.append((here, columns))
        sizes[here] = columns.shape[1]
    bounds = np.concatenate([[0], np.cumsum(sizes)])
    nodes = np.empty(int(bounds[-1]), np.int64)
    for here, columns in drawn:
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


def _table_entries() -> list[DataEntry]:
    paths = sorted(data_root().glob("tables/*/edges.csv*"))
    return [DataEntry(str(path), str(path.parent), True) for path in paths]


def _synthetic_entries() -> list[DataEntry]:
    spec = RolesSpec()
    return [DataEntry("synthetic:roles", "generated", True, spec.nodes, spec.events)]


SYNTHETIC = Suite("synthetic", "synthetic:roles", load_synthetic, split_by_time, StreamQuestions, _synthetic_entries)
_QUERY = "duckdb:FILE?query=SQL"
DUCKDB = Suite("duckdb", _QUERY, load_duckdb, split_by_time, StreamQuestions, lambda: [], is_table=True)
GIT = Suite("git", "git:PATH", load_git, split_by_time, StreamQuestions, lambda: [])
TABLE = Suite(
    "", "the path of a table with columns src, dst and t", read_table, split_by_time, StreamQuestions, _table_entries
)
