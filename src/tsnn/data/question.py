"""The question that a run is about: whom does this source turn to next? Said once, for everybody who asks it.

Training draws negatives for it, every figure says how well it was answered, and `recommend` asks it again while events
come in. A run keeps it on its card, so that recommendations are ranked among those that the figures were made with.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from tsnn.config import TrainConfig
from tsnn.data.events import EventStream
from tsnn.data.split import Split
from tsnn.errors import InputError
from tsnn.types import I64, Bool, Visibility

CANDIDATES = ("destinations", "all")
HISTORIES = ("train", "full")
OTHER_SOURCES = ("historical", "inductive")  # strategies whose negatives have another source than their positive
_STRICT = Visibility("strict")


@dataclass(frozen=True)
class Pool:
    """Nodes that a negative may be, by their type; a stream without node types has one type."""

    nodes: I64  # type after type, ascending inside each
    starts: I64  # (types + 1,) where each type begins

    def of_type(self, kind: int) -> I64:
        """The nodes of one type."""
        return self.nodes[self.starts[kind] : self.starts[kind + 1]]


@dataclass(frozen=True)
class Question:
    """Who may be the answer, what it is set against when an answer is judged, and what may be known of the past."""

    visibility: Visibility = _STRICT
    candidates: str = "destinations"  # whoever has been a destination, or all nodes
    negatives: str | None = None  # how figures choose them, one of their protocol's strategies; None is its first
    direction: str | None = None  # of the events: directed or undirected; None is what the data say
    history: str = "train"  # what may be seen of rows that a protocol keeps out of training: nothing, or all (full)

    def __post_init__(self) -> None:
        object.__setattr__(self, "visibility", Visibility.parse(self.visibility))  # a word will do
        if self.candidates not in CANDIDATES:
            raise InputError(
                f"candidates {self.candidates!r} are none of {', '.join(CANDIDATES)}; name nodes in a list."
            )
        if self.history not in HISTORIES:
            raise InputError(f"history {self.history!r} is none of {', '.join(HISTORIES)}.")

    @classmethod
    def of(cls, train: TrainConfig) -> Question:
        """What a run of these settings is trained for, validated on, evaluated on and asked."""
        return cls(Visibility.parse(train.visibility), train.candidates, history=train.history)

    @classmethod
    def from_card(cls, card: Mapping[str, Any]) -> Question:
        """Read what `to_card` wrote; a card from before there were questions has the usual one."""
        told = {"visibility": card.get("visibility", "strict"), **card.get("question", {})}
        return cls(**{**told, "visibility": Visibility.parse(told["visibility"])})

    def to_card(self) -> dict[str, Any]:
        """As it stands on a card, in words."""
        return {**asdict(self), "visibility": str(self.visibility)}

    def about(self, stream: EventStream) -> Question:
        """The same question about these events, whose direction it names."""
        if self.direction not in (None, stream.direction):
            raise InputError(
                f"the question is about {self.direction} events and the data are {stream.direction}; "
                "undirected data are read with --undirected, in Python with undirected=True."
            )
        return replace(self, direction=stream.direction)

    @property
    def sources_differ(self) -> bool:
        """Whether a figure compares scores of different sources, so that who is active at all matters to it."""
        return self.negatives in OTHER_SOURCES

    def among(self, candidates: str) -> Question:
        """The same question with these candidates."""
        return replace(self, candidates=candidates)

    def cuts(self, split: Split) -> I64:
        """For each row of the split, how many rows from the start its answer may know of."""
        return self.visibility.cuts(split.stream.t, split.segment_starts)

    def pool(self, stream: EventStream, rows: int | None = None) -> Pool:
        """Whom negatives are drawn from, as the first `rows` of a stream tell it (by default all of them).

        They are those who may answer at that moment, but for nodes that later rows introduce.
        """
        chosen = np.bincount(asks(stream, np.arange(stream.num_events)[:rows]).dst, minlength=stream.num_nodes)
        known = np.ones(stream.num_nodes, np.bool_)
        if rows is not None:
            known[stream.src[rows:]] = known[stream.dst[rows:]] = False
            known[stream.src[:rows]] = known[stream.dst[:rows]] = True
        nodes = np.flatnonzero(known & self.may_answer(chosen, stream.node_type))
        types = node_types(stream, nodes)
        order = np.argsort(types, kind="stable")
        starts = np.searchsorted(types[order], np.arange(max(stream.num_types, 1) + 1))
        return Pool(nodes[order], starts.astype(np.int64))

    def may_answer(self, in_degree: I64, node_type: I64 | None) -> Bool:
        """Which nodes may be the answer, given how often each has been a destination so far.

        In an undirected event either end is one.
        Where nodes have types, one of a type that has been a destination may be the next, though never chosen yet.
        """
        chosen: Bool = in_degree > 0
        if self.candidates == "all":
            return np.ones_like(chosen)
        return chosen if node_type is None else np.isin(node_type, np.unique(node_type[chosen]))


class Asks(NamedTuple):
    """What is asked of some rows: to whom `src` turns, and that it is `dst`. Sorted by row."""

    rows: I64
    src: I64
    dst: I64

    def take(self, some: slice | I64) -> Asks:
        """Some of them."""
        return Asks(self.rows[some], self.src[some], self.dst[some])


def asks(stream: EventStream, rows: I64) -> Asks:
    """A source is asked for its destination, either end of an undirected event for the other; a loop has one end."""
    src, dst = stream.src[rows], stream.dst[rows]
    if not stream.undirected:
        return Asks(rows, src, dst)
    times = np.where(src == dst, 1, 2)
    second = np.arange(times.sum()) - np.repeat(np.cumsum(times) - times, times) == 1
    one, other = np.repeat(src, times), np.repeat(dst, times)
    return Asks(np.repeat(rows, times), np.where(second, other, one), np.where(second, one, other))


def node_types(stream: EventStream, nodes: I64) -> I64:
    """Types of nodes; zeros where the stream has none."""
    return np.zeros(nodes.shape, np.int64) if stream.node_type is None else stream.node_type[nodes]
