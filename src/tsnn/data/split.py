"""Splits: a stream cut in time into train, validation and test."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tsnn.data.events import EventStream
from tsnn.errors import InputError
from tsnn.tabular import Brief
from tsnn.types import I64, Bool
from tsnn.words import Helpful

SEGMENTS = ("train", "val", "test")


@dataclass(frozen=True, repr=False)
class Split(Brief, Helpful):
    """Rows [0, train_end) train, [train_end, val_end) validate, [val_end, num_events) test.

    `stream` holds exactly these rows, in arrival order; rows a protocol removes from training are gone.
    """

    stream: EventStream
    train_end: int
    val_end: int
    new_node: Bool  # nodes without a training event
    full: EventStream | None = None  # before removal, where a protocol needs it

    _instead: ClassVar = dict.fromkeys(SEGMENTS, "bounds(segment) gives the first row and the end of one.")

    def brief(self) -> dict[str, object]:
        """The stream's name, and how many events each segment has."""
        sizes = {name: int(np.diff(self.bounds(name))[0]) for name in SEGMENTS}
        return {"data": self.stream.name, **sizes, "new nodes": int(self.new_node.sum())}

    @property
    def segment_starts(self) -> tuple[int, ...]:
        """First row of each segment."""
        return (0, self.train_end, self.val_end)

    def bounds(self, segment: str) -> tuple[int, int]:
        """First row and end of `train`, `val` or `test`."""
        if segment not in SEGMENTS:
            raise InputError(f"segment {segment!r} is none of {', '.join(SEGMENTS)}.")
        ends = (*self.segment_starts, self.stream.num_events)
        at = SEGMENTS.index(segment)
        return ends[at], ends[at + 1]

    @property
    def held_out(self) -> int:
        """Rows that a protocol keeps out of training, and with it out of `stream`; all are as early as training."""
        return 0 if self.full is None else self.full.num_events - self.stream.num_events

    def with_history(self, history: str) -> Split:
        """What may be seen when questions are asked: with `full`, also the rows that do not train. To evaluate on."""
        if history == "train" or self.full is None:
            return self
        out = self.held_out
        return Split(self.full, self.train_end + out, self.val_end + out, self.new_node, self.full)

    def new_rows(self, start: int, stop: int) -> I64:
        """Rows of a segment with at least one new endpoint (the inductive set)."""
        new = self.new_node[self.stream.src[start:stop]] | self.new_node[self.stream.dst[start:stop]]
        return start + np.flatnonzero(new).astype(np.int64)


def quantile_times(stream: EventStream, val: float = 0.15, test: float = 0.15) -> tuple[float, float]:
    """The last training time and the last validation time, interpolated as both suites do."""
    times = stream.t.astype(np.float64)
    val_time, test_time = np.quantile(times, [1 - val - test, 1 - test])
    return float(val_time), float(test_time)


def split_by_time(stream: EventStream, val: float = 0.15, test: float = 0.15) -> Split:
    """Cut at the time quantiles: the last `test` of the events, the `val` before them, the rest. Ties stay together."""
    if not (0 < val < 1 and 0 < test < 1 and val + test < 1):
        raise InputError(f"val={val} and test={test} must be positive and leave a share for training.")
    val_time, test_time = quantile_times(stream, val, test)
    train_end, val_end = np.searchsorted(stream.t, [val_time, test_time], side="right").tolist()
    if not 0 < train_end < val_end < stream.num_events:
        sizes = f"{train_end} / {val_end - train_end} / {stream.num_events - val_end}"
        raise InputError(
            f"training, validation and test would get {sizes} events, because equal times are kept together; "
            "give events at more distinct times, or another val and test in Python."
        )
    return make_split(stream, train_end, val_end)


def make_split(stream: EventStream, train_end: int, val_end: int, full: EventStream | None = None) -> Split:
    """A split at two rows; a node is new where it has no training event."""
    new_node = np.ones(stream.num_nodes, dtype=np.bool_)
    new_node[stream.src[:train_end]] = False
    new_node[stream.dst[:train_end]] = False
    return Split(stream, train_end, val_end, new_node, full)
