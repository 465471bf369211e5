"""What training looks at: chunks of rows, the queries they answer, fresh negatives."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from tsnn.config import TrainConfig
from tsnn.data.events import EventStream
from tsnn.data.negatives import NegativePool, draw_training_negatives
from tsnn.data.queries import Queries
from tsnn.data.question import Question
from tsnn.data.split import Split
from tsnn.types import I64


@dataclass(frozen=True)
class TrainingRows:
    """The rows that runs learn from; query i scores training row i."""

    stream: EventStream
    cuts: I64  # how many rows of the stream each training row may see
    pool: NegativePool
    chunk: int  # rows of a chunk, and queries of a minibatch

    @classmethod
    def of(cls, split: Split, train: TrainConfig) -> TrainingRows:
        """Those of a split."""
        question = Question.of(train)
        pool = NegativePool.build(split.stream, split.train_end, question)
        return cls(split.stream, question.cuts(split)[: split.train_end], pool, train.chunk)

    def chunks(self, row: int = 0) -> Iterator[tuple[int, int, int, int]]:
        """(start, stop, first query, last query) of each chunk from a row on."""
        end = len(self.cuts)
        for start in range(row, end, self.chunk):
            stop = min(start + self.chunk, end)
            first = 0 if start == 0 else int(np.searchsorted(self.cuts, start, side="right"))
            yield start, stop, first, int(np.searchsorted(self.cuts, stop, side="right"))

    @property
    def steps(self) -> int:
        """Steps of the optimizer in an epoch."""
        return sum(-(-(last - first) // self.chunk) for _, _, first, last in self.chunks())

    def draw(self, train: TrainConfig, epoch: int, start: int, first: int, last: int) -> tuple[I64, I64]:
        """Rows first..last-1, those of one cut in random order, and fresh negatives of each."""
        rng = np.random.default_rng([train.seed, epoch, start])
        rows = first + rng.permutation(last - first)  # in a file, tied rows often stand sorted by destination
        rows = rows[np.argsort(self.cuts[rows], kind="stable")]
        return rows, self.negatives(rows, train.negatives, train.sampler, rng)

    def negatives(self, rows: I64, number: int, sampler: str, rng: np.random.Generator) -> I64:
        """So many of each row, (rows, number)."""
        return draw_training_negatives(self.stream, self.cuts[rows], rows, number, sampler, rng, self.pool)

    def queries(self, rows: I64, negatives: I64) -> Queries:
        """One query a row, its own destination first."""
        stream = self.stream
        candidates = np.concatenate([stream.dst[rows, None], negatives], axis=1)
        relation = np.zeros(len(rows), np.int64) if stream.edge_type is None else stream.edge_type[rows]
        ptr = np.arange(len(rows) + 1, dtype=np.int64) * candidates.shape[1]
        return Queries(self.cuts[rows], stream.src[rows], stream.t[rows], relation, ptr, candidates.ravel())
