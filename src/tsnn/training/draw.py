"""What a training step looks at: chunks of rows, the queries they answer, fresh negatives."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tsnn.config import TrainConfig
from tsnn.data.events import EventStream
from tsnn.data.negatives import NegativePool, draw_training_negatives
from tsnn.data.queries import Queries
from tsnn.types import I64


def chunk_bounds(cuts: I64, length: int, row: int = 0) -> Iterator[tuple[int, int, int, int]]:
    """(start, stop, first query, last query) of each chunk from a row on; query i scores training row i."""
    end = len(cuts)
    for start in range(row, end, length):
        stop = min(start + length, end)
        first = 0 if start == 0 else int(np.searchsorted(cuts, start, side="right"))
        yield start, stop, first, int(np.searchsorted(cuts, stop, side="right"))


def draw_rows(
    stream: EventStream,
    cuts: I64,
    pool: NegativePool,
    train: TrainConfig,
    epoch: int,
    start: int,
    first: int,
    last: int,
) -> tuple[I64, I64]:
    """Training rows first..last-1, those of one cut in random order, and fresh negatives of each.

    Tied rows often stand sorted in their file, and minibatches of one destination teach nothing.
    """
    rng = np.random.default_rng([train.seed, epoch, start])
    rows = first + rng.permutation(last - first)
    rows = rows[np.argsort(cuts[rows], kind="stable")]
    return rows, draw_training_negatives(stream, cuts[rows], rows, train.negatives, train.sampler, rng, pool)


def training_queries(stream: EventStream, cuts: I64, rows: I64, negatives: I64) -> Queries:
    """One query a row, its own destination first."""
    candidates = np.concatenate([stream.dst[rows, None], negatives], axis=1)
    relation = np.zeros(len(rows), np.int64) if stream.edge_type is None else stream.edge_type[rows]
    ptr = np.arange(len(rows) + 1, dtype=np.int64) * candidates.shape[1]
    return Queries(cuts[rows], stream.src[rows], stream.t[rows], relation, ptr, candidates.ravel())
