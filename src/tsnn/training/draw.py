"""What training looks at: chunks of rows, the queries they answer, fresh negatives."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from tsnn.config import TrainConfig
from tsnn.data.events import EventStream
from tsnn.data.negatives import NegativePool, draw_training_negatives
from tsnn.data.queries import Queries, relations
from tsnn.data.question import Asks, Question
from tsnn.data.split import Split
from tsnn.types import I64


@dataclass(frozen=True)
class TrainingRows:
    """The rows that runs learn from, and what is asked of them: query i is the i-th ask."""

    stream: EventStream
    asks: Asks
    cuts: I64  # how many rows of the stream each ask may see
    pool: NegativePool
    chunk: int  # rows of a chunk, and queries of a minibatch
    end: int  # of the training rows

    @classmethod
    def of(cls, split: Split, train: TrainConfig) -> TrainingRows:
        """Those of a split."""
        question = Question.of(train)
        pool = NegativePool.build(split.stream, split.train_end, question)
        own = pool.asks.take(slice(int(np.searchsorted(pool.asks.rows, split.train_end))))
        return cls(split.stream, own, question.cuts(split)[own.rows], pool, train.chunk, split.train_end)

    def chunks(self, row: int = 0) -> Iterator[tuple[int, int, int, int]]:
        """(start, stop, first query, last query) of each chunk from a row on."""
        for start in range(row, self.end, self.chunk):
            stop = min(start + self.chunk, self.end)
            first = 0 if start == 0 else int(np.searchsorted(self.cuts, start, side="right"))
            yield start, stop, first, int(np.searchsorted(self.cuts, stop, side="right"))

    @property
    def steps(self) -> int:
        """Steps of the optimizer in an epoch."""
        return sum(-(-(last - first) // self.chunk) for _, _, first, last in self.chunks())

    def draw(self, train: TrainConfig, epoch: int, start: int, first: int, last: int) -> tuple[I64, I64]:
        """Asks first..last-1, those of one cut in random order, and fresh negatives of each."""
        rng = np.random.default_rng([train.seed, epoch, start])
        asked = first + rng.permutation(last - first)  # in a file, tied rows often stand sorted by destination
        asked = asked[np.argsort(self.cuts[asked], kind="stable")]
        return asked, self.negatives(asked, train.negatives, train, rng)

    def negatives(self, asked: I64, number: int, train: TrainConfig, rng: np.random.Generator) -> I64:
        """So many of each ask, (asked, number)."""
        cuts, kind, may_equal = self.cuts[asked], train.sampler, train.collisions
        return draw_training_negatives(self.stream, cuts, asked, number, kind, rng, self.pool, collisions=may_equal)

    def queries(self, asked: I64, negatives: I64) -> Queries:
        """One query an ask, its own destination first."""
        stream, own = self.stream, self.asks.take(asked)
        candidates = np.concatenate([own.dst[:, None], negatives], axis=1)
        ptr = np.arange(len(asked) + 1, dtype=np.int64) * candidates.shape[1]
        t, relation = stream.t[own.rows], relations(stream, own.rows)
        return Queries(self.cuts[asked], own.src, t, relation, ptr, candidates.ravel())
