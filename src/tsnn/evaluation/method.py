"""A method of one's own under the Scorer protocol: told of events and asked questions one by one, in order.

    observe(row)                    an event has happened
    score(src, candidates, t)       how likely is each candidate, as far as what was observed tells?

Before each question it has observed exactly the rows that the question may see, so it cannot know more.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import replace
from itertools import repeat
from typing import NamedTuple, Protocol, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tsnn.data.events import EventStream
from tsnn.data.queries import relations
from tsnn.data.question import Question, asks
from tsnn.data.split import Split
from tsnn.errors import InputError
from tsnn.evaluation.scorer import Block, Scorer
from tsnn.plan.planner import PlanSpec
from tsnn.types import F64, I64
from tsnn.words import kind_of


class Row(NamedTuple):
    """An event as a method is told of it. Nodes are numbers from 0 on, their places in `stream.ids.external`.

    It is told of an undirected event as it is asked about it, from either end: once as it stands and once with `src`
    and `dst` exchanged, of a self-loop once. So what is right for directed events is right for undirected ones.
    """

    src: int
    dst: int
    t: float  # an integer where the stream's times are
    msg: NDArray[np.float32] | None  # the event's features, where the stream has some
    edge_type: int  # its relation; 0 where the stream has none


class Method(Protocol):
    """What somebody has to write. Two more members are used where they are there.

    `fit(split)` learns before anything is observed, from a split without its test rows. `reset()` forgets every event;
    without it each pass over the stream starts with a deep copy of the object as `fit` left it.
    """

    def observe(self, row: Row) -> None:
        """An event has happened."""

    def score(self, src: int, candidates: I64, t: float) -> ArrayLike:
        """One number for each candidate as the next destination of `src`, at time `t`; writes nothing."""


class MethodScorer:
    """The scorer that a method makes. Its answers are given on the way, and are the versions that `score` reads."""

    def __init__(self, method: Method) -> None:
        self.method = method
        self.spec = PlanSpec()
        self.running = method  # the one that observes

    @property
    def name(self) -> str:
        """The method's `name`, or what its class is called."""
        return str(getattr(self.method, "name", type(self.method).__name__))

    def fit(self, split: Split, question: Question) -> None:
        """Let the method learn from what comes before the test rows."""
        if hasattr(self.method, "fit"):
            known = split.stream.take(slice(0, split.val_end))
            self.method.fit(replace(split, stream=known, full=None))

    def reset_state(self) -> None:
        """Begin with a method that has observed nothing."""
        if hasattr(self.method, "reset"):
            self.method.reset()
            return
        try:
            self.running = copy.deepcopy(self.method)
        except TypeError as reason:
            raise InputError(
                f"{self.name} cannot be copied ({reason}); give it a method reset() that forgets every event."
            ) from None

    def update(self, plan: Block) -> F64:
        """Observe the block's rows, and answer every question as soon as what it may see has been observed."""
        queries, at = plan.queries, plan.update.start
        scores = np.empty(len(queries.cand))
        cand = queries.cand.view()
        cand.flags.writeable = False  # they are the replay's own
        columns = (queries.cut, queries.src, queries.t, queries.ptr[:-1], queries.ptr[1:])
        for cut, src, t, begin, end in zip(*(column.tolist() for column in columns), strict=True):
            self._observe(plan.stream, at, cut)
            at = cut
            scores[begin:end] = self._answer(src, cand[begin:end], t)
        self._observe(plan.stream, at, plan.update.stop)
        return scores

    def score(self, plan: Block, versions: F64) -> F64:
        """The answers that were given on the way."""
        return versions

    def _observe(self, stream: EventStream, start: int, stop: int) -> None:
        if start < stop:
            for row in told(stream, start, stop):
                self.running.observe(row)

    def _answer(self, src: int, candidates: I64, t: float) -> F64:
        given = self.running.score(src, candidates, t)
        try:
            scores = np.asarray(given, dtype=np.float64)
        except (TypeError, ValueError):
            raise InputError(f"{self.name}.score returned what are no numbers; give one for each candidate.") from None
        if scores.shape != candidates.shape:
            raise InputError(
                f"{self.name}.score returned shape {scores.shape} for {len(candidates)} candidates; give one each."
            )
        return scores


def told(stream: EventStream, start: int, stop: int) -> Iterator[Row]:
    """Rows start .. stop-1 as a method is told of them."""
    own = asks(stream, np.arange(start, stop))
    msg = repeat(None, len(own.rows)) if stream.msg is None else stream.msg[own.rows]
    columns = (own.src, own.dst, stream.t[own.rows], relations(stream, own.rows))
    src, dst, t, edge_type = (column.tolist() for column in columns)
    return map(Row, src, dst, t, msg, edge_type)


_SCORER = ("name", "spec", "fit", "reset_state", "update", "score")
_METHOD = ("observe", "score")


def as_scorer(given: Scorer | Method) -> Scorer:
    """A scorer as it is, or the one that a method makes."""
    if isinstance(given, type):
        raise InputError(f"{given.__name__} is a class; give an object of it, as {given.__name__}() is.")
    if all(hasattr(given, member) for member in _SCORER):
        return cast(Scorer, given)
    if all(callable(getattr(given, member, None)) for member in _METHOD):
        return MethodScorer(cast(Method, given))
    members = _SCORER if hasattr(given, "update") else _METHOD
    missing = ", ".join(member for member in members if not hasattr(given, member))
    raise InputError(
        f"{kind_of(given)} is no scorer; give a run or its folder, the name of a baseline, or a method of your own "
        f"with observe(row) and score(src, candidates, t); this lacks {missing}."
    )
