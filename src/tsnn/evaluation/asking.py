"""Building queries: positives with their negatives, several sets of them in one replay."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from tsnn.data.events import EventStream
from tsnn.data.queries import Queries
from tsnn.types import F64, I64


@dataclass(frozen=True)
class Ranking:
    """One query per row, the row's own destination first, then its negatives; made slice by slice.

    `negatives(a, b)` gives those of rows[a:b] as (bounds, nodes), so no more than a block of them need exist at once.
    """

    stream: EventStream
    rows: I64
    cut: I64
    ptr: I64
    negatives: Callable[[int, int], tuple[I64, I64]]

    def __len__(self) -> int:
        return len(self.rows)

    def slice(self, start: int, stop: int) -> Queries:
        """Queries start .. stop-1."""
        rows = self.rows[start:stop]
        bounds, nodes = self.negatives(start, stop)
        ptr = self.ptr[start : stop + 1] - self.ptr[start]
        cand = np.empty(int(ptr[-1]), dtype=np.int64)
        is_negative = np.ones(len(cand), dtype=np.bool_)
        is_negative[ptr[:-1]] = False
        cand[ptr[:-1]] = self.stream.dst[rows]
        cand[is_negative] = nodes[bounds[0] : bounds[-1]]
        return Queries(
            self.cut[start:stop], self.stream.src[rows], times(self.stream, rows), relations(self.stream, rows), ptr, cand
        )


def ranking(stream: EventStream, rows: I64, cut: I64, bounds: I64, nodes: I64) -> Ranking:
    """Rows with negatives in CSR form."""
    ptr = bounds - bounds[0] + np.arange(len(rows) + 1)
    return Ranking(stream, rows, cut, ptr, lambda a, b: (bounds[a : b + 1], nodes))


def pairs(stream: EventStream, rows: I64, cut: I64, src: I64, dst: I64) -> Queries:
    """One single-candidate query per row: does src[i] -> dst[i] happen at the row's time."""
    ptr = np.arange(len(rows) + 1, dtype=np.int64)
    return Queries(cut, src, times(stream, rows), relations(stream, rows), ptr, dst)


def times(stream: EventStream, rows: I64) -> F64:
    """Times of rows, as queries hold them."""
    return stream.t[rows].astype(np.float64)


def relations(stream: EventStream, rows: I64) -> I64:
    """Relations of rows; zeros where the stream has none."""
    return np.zeros(len(rows), dtype=np.int64) if stream.edge_type is None else stream.edge_type[rows]


@dataclass(frozen=True)
class Merged:
    """Several sets of queries as one, sorted by cut, and the way back."""

    queries: Queries
    place: I64  # (nc,) where each merged candidate stood in the concatenation
    bounds: I64  # where each set's candidates begin and end there

    def unmerge(self, scores: F64) -> list[F64]:
        """Scores of each set, aligned with its own candidates."""
        back = np.empty_like(scores)
        back[self.place] = scores
        return [back[a:b] for a, b in zip(self.bounds[:-1], self.bounds[1:], strict=True)]


def merge(sets: Sequence[Queries]) -> Merged:
    """All sets in one replay. Ties of cut keep the order of the sets."""
    cut = np.concatenate([q.cut for q in sets])
    order = np.argsort(cut, kind="stable")
    sizes = np.concatenate([np.diff(q.ptr) for q in sets])
    starts = np.cumsum(sizes) - sizes
    ptr = np.concatenate([[0], np.cumsum(sizes[order])])
    place = np.repeat(starts[order] - ptr[:-1], sizes[order]) + np.arange(ptr[-1])

    def column(name: str) -> I64:
        return np.concatenate([getattr(q, name) for q in sets])[order]

    cand = np.concatenate([q.cand for q in sets])[place]
    t = np.concatenate([q.t for q in sets])[order]
    queries = Queries(cut[order], column("src"), t, column("edge_type"), ptr, cand)
    return Merged(queries, place, np.concatenate([[0], np.cumsum([len(q.cand) for q in sets])]))
