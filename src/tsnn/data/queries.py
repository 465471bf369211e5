"""Queries: what is to be scored, and the cut that says from which rows; as a table, or made slice by slice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from tsnn.data.events import EventStream
from tsnn.data.question import Asks
from tsnn.errors import InputError
from tsnn.types import F64, I64


@dataclass(frozen=True)
class Queries:
    """One query per row: source, time, relation, a cut, and candidates in CSR form.

    Query q asks for scores of `cand[ptr[q]:ptr[q+1]]` as destinations of `src[q]` at time `t[q]`, from
    the first `cut[q]` rows of the stream and nothing else. Queries are sorted by `cut`.
    """

    cut: I64
    src: I64
    t: NDArray[np.generic]
    edge_type: I64  # zeros where the stream has no relations
    ptr: I64
    cand: I64

    def __len__(self) -> int:
        return len(self.cut)

    def slice(self, start: int, stop: int) -> Queries:
        """Queries start..stop-1."""
        a, b = self.ptr[start], self.ptr[stop]
        return Queries(
            self.cut[start:stop],
            self.src[start:stop],
            self.t[start:stop],
            self.edge_type[start:stop],
            self.ptr[start : stop + 1] - a,
            self.cand[a:b],
        )


_NONE = np.zeros(0, np.int64)
NO_QUERIES = Queries(_NONE, _NONE, np.zeros(0), _NONE, np.zeros(1, np.int64), _NONE)


class Asked(Protocol):
    """Queries sorted by cut, in memory (`Queries`) or made slice by slice."""

    @property
    def cut(self) -> I64:
        """Rows each query may see."""
        ...

    @property
    def ptr(self) -> I64:
        """Bounds of each query's candidates."""
        ...

    def __len__(self) -> int: ...

    def slice(self, start: int, stop: int) -> Queries:
        """Queries start .. stop-1."""
        ...


@dataclass(frozen=True)
class Ranking:
    """One query per ask, the row's own destination first, then its negatives.

    Candidates are put together slice by slice, so a large set of negatives is never copied as a whole.
    """

    stream: EventStream
    asks: Asks
    cut: I64
    bounds: I64  # negatives of ask i are nodes[bounds[i]:bounds[i+1]]
    nodes: NDArray[np.integer]

    @property
    def ptr(self) -> I64:
        """Bounds of each query's candidates."""
        return _with_positives(self.bounds)

    def __len__(self) -> int:
        return len(self.asks.rows)

    def every(self, step: int) -> Ranking:
        """Every step-th ask with its negatives."""
        sizes = np.diff(self.bounds)
        chosen = np.arange(len(sizes)) % step == 0
        bounds = np.concatenate([[0], np.cumsum(sizes[chosen])])
        few = np.flatnonzero(chosen)
        return Ranking(self.stream, self.asks.take(few), self.cut[few], bounds, self.nodes[np.repeat(chosen, sizes)])

    def slice(self, start: int, stop: int) -> Queries:
        """Queries start .. stop-1."""
        own, bounds = self.asks.take(slice(start, stop)), self.bounds[start : stop + 1]
        cand = np.insert(self.nodes[bounds[0] : bounds[-1]].astype(np.int64), bounds[:-1] - bounds[0], own.dst)
        return Queries(
            self.cut[start:stop],
            own.src,
            self.stream.t[own.rows],
            relations(self.stream, own.rows),
            _with_positives(bounds),
            cand,
        )


def _with_positives(bounds: I64) -> I64:
    ptr: I64 = bounds - bounds[0] + np.arange(len(bounds))
    return ptr


class Joined:
    """Several sets of queries as one, sorted by cut; where cuts are equal, in the order of the sets.

    Put together slice by slice, so that no more than a block of candidates exists, whatever the sets hold.
    """

    def __init__(self, sets: Sequence[Asked]) -> None:
        if any((np.diff(own.cut) < 0).any() for own in sets):
            raise InputError("queries must be sorted by cut; sort them first.")
        self.sets = sets
        cut = np.concatenate([_NONE, *(own.cut for own in sets)])
        order = np.argsort(cut, kind="stable")
        self.cut: I64 = cut[order]
        self._set = np.repeat(np.arange(len(sets), dtype=np.int16), [len(own) for own in sets])[order]
        self._sizes = np.concatenate([_NONE, *(np.diff(own.ptr) for own in sets)])[order]
        self.ptr: I64 = np.concatenate([[0], np.cumsum(self._sizes)])
        self._places = [np.flatnonzero(self._set == i) for i in range(len(sets))]  # of each set's queries

    def __len__(self) -> int:
        return len(self.cut)

    def slice(self, start: int, stop: int) -> Queries:
        """Queries start .. stop-1."""
        bounds = [np.searchsorted(places, (start, stop)).tolist() for places in self._places]
        pieces = [own.slice(a, b) for own, (a, b) in zip(self.sets, bounds, strict=True) if a < b]
        return pieces[0] if len(pieces) == 1 else _merged(pieces)

    def split(self, per_query: F64) -> list[F64]:
        """Rows of a table with one row per query, back to the sets."""
        return [per_query[places] for places in self._places]

    def share(self, i: int, start: int, stop: int) -> Share:
        """What of queries start .. stop-1 is set i's."""
        first, last = np.searchsorted(self._places[i], (start, stop)).tolist()
        ptr = self.sets[i].ptr[first : last + 1]
        at = np.flatnonzero(np.repeat(self._set[start:stop] == i, self._sizes[start:stop]))
        return Share(first, last, ptr - ptr[0], at)


class Share(NamedTuple):
    """Queries of one set that are part of a slice of several."""

    first: int  # queries first .. last-1 of the set
    last: int
    ptr: I64  # bounds of their candidates, from 0
    at: I64  # where these candidates stand among those of the slice


def _merged(sets: Sequence[Queries]) -> Queries:
    """All queries of some sets, sorted by cut; ties keep the order of the sets."""
    if not sets:
        return NO_QUERIES
    cut = np.concatenate([own.cut for own in sets])
    order = np.argsort(cut, kind="stable")
    sizes = np.concatenate([np.diff(own.ptr) for own in sets])
    begins = (np.cumsum(sizes) - sizes)[order]
    ptr = np.concatenate([[0], np.cumsum(sizes[order])])
    place = np.repeat(begins - ptr[:-1], sizes[order]) + np.arange(ptr[-1])
    return Queries(
        cut=cut[order],
        src=np.concatenate([own.src for own in sets])[order],
        t=np.concatenate([own.t for own in sets])[order],
        edge_type=np.concatenate([own.edge_type for own in sets])[order],
        ptr=ptr,
        cand=np.concatenate([own.cand for own in sets])[place],
    )


def pairs(stream: EventStream, rows: I64, cut: I64, src: I64, dst: I64) -> Queries:
    """One single-candidate query per entry: does src[i] -> dst[i] happen at the time of rows[i]."""
    ptr = np.arange(len(rows) + 1, dtype=np.int64)
    return Queries(cut, src, stream.t[rows], relations(stream, rows), ptr, dst)


def relations(stream: EventStream, rows: I64) -> I64:
    """Relations of rows; zeros where the stream has none."""
    return np.zeros(len(rows), dtype=np.int64) if stream.edge_type is None else stream.edge_type[rows]
