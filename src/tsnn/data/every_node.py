"""Questions in which every node is a candidate, but for other true answers: the filter of knowledge graphs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tsnn.data.events import EventStream
from tsnn.data.queries import Queries, relations
from tsnn.data.question import Asks, asks
from tsnn.errors import InputError
from tsnn.types import I64

FILTERS = ("time-aware", "static", "none")
_NONE = np.zeros(0, np.int64)


@dataclass(frozen=True)
class EveryNode:
    """One query per ask: its own destination first, then every other node but those that are left out.

    The others begin at a node drawn at random, so that the first of them is a random negative.
    """

    stream: EventStream
    asks: Asks
    cut: I64
    group: I64  # of each ask: asks of one group leave out the same
    out_ptr: I64  # (groups + 1,) bounds of what a group leaves out
    out: I64  # nodes, each group's own answers among them, ascending inside a group
    first: I64  # node at which the others begin

    @classmethod
    def of(cls, stream: EventStream, rows: tuple[int, int], cuts: I64, leave_out: str, seed: int) -> EveryNode:
        """What is asked of the rows from one to another, each of which may see as many rows as `cuts` says.

        `time-aware` leaves out what is true of the same source and relation at the same time, `static` what is true of
        them at any time, and `none` nothing.
        """
        whole = asks(stream, np.arange(stream.num_events))
        group, out_ptr, out = _true_answers(stream, whole, leave_out)
        some = slice(*np.searchsorted(whole.rows, rows).tolist())
        own = whole.take(some)
        first = np.random.default_rng(seed).integers(0, stream.num_nodes, len(own.rows))
        questions = cls(stream, own, cuts[own.rows], group[some], out_ptr, out, first)
        if len(own.rows) and (np.diff(questions.ptr) < 2).any():
            raise InputError("a question has no other candidate than true answers; choose another filter.")
        return questions

    def some(self, number: int, seed: int) -> EveryNode:
        """So many of them, drawn at random; all of them where they are no more."""
        if number >= len(self):
            return self
        at = np.sort(np.random.default_rng(seed).choice(len(self), number, replace=False))
        return EveryNode(
            self.stream, self.asks.take(at), self.cut[at], self.group[at], self.out_ptr, self.out, self.first[at]
        )

    @property
    def ptr(self) -> I64:
        """Bounds of each query's candidates."""
        return self._bounds(self.group)

    def __len__(self) -> int:
        return len(self.asks.rows)

    def slice(self, start: int, stop: int) -> Queries:
        """Queries start .. stop-1."""
        own, nodes = self.asks.take(slice(start, stop)), np.arange(self.stream.num_nodes)
        group, parts = self.group[start:stop], [_NONE]
        for dst, which, first in zip(own.dst, group, self.first[start:stop], strict=True):
            others = np.delete(nodes, self.out[self.out_ptr[which] : self.out_ptr[which + 1]])
            parts += [dst[None], np.roll(others, -int(np.searchsorted(others, first)))]
        return self._queries(start, stop, self._bounds(group), np.concatenate(parts))

    def without_candidates(self, start: int, stop: int) -> Queries:
        """The same, for whoever scores all nodes anyway."""
        return self._queries(start, stop, np.zeros(stop - start + 1, np.int64), _NONE)

    def _queries(self, start: int, stop: int, ptr: I64, cand: I64) -> Queries:
        own = self.asks.take(slice(start, stop))
        return Queries(
            self.cut[start:stop], own.src, self.stream.t[own.rows], relations(self.stream, own.rows), ptr, cand
        )

    def _bounds(self, group: I64) -> I64:
        sizes = 1 + self.stream.num_nodes - np.diff(self.out_ptr)[group]
        return np.concatenate([[0], np.cumsum(sizes)])


def _true_answers(stream: EventStream, whole: Asks, leave_out: str) -> tuple[I64, I64, I64]:
    """The group of every ask, and the distinct answers of each group."""
    if leave_out == "none":  # each its own
        order = np.arange(len(whole.rows) + 1)
        return order[:-1], order, whole.dst
    columns = [whole.src, relations(stream, whole.rows)]
    if leave_out == "time-aware":
        columns.append(np.unique(stream.t[whole.rows], return_inverse=True)[1])
    order = np.lexsort([whole.dst, *columns])
    begins = np.zeros(len(order), np.bool_)
    begins[:1] = True
    for column in columns:
        begins[1:] |= column[order][1:] != column[order][:-1]
    group = np.empty(len(order), np.int64)
    group[order] = np.cumsum(begins) - 1
    answers = whole.dst[order]
    new = begins.copy()
    new[1:] |= answers[1:] != answers[:-1]
    out_ptr = np.searchsorted(np.flatnonzero(new), np.append(np.flatnonzero(begins), len(order)))
    return group, out_ptr.astype(np.int64), answers[new]
