"""Small random streams with ties, repeats and self-loops, and a plain replay to compare with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from tsnn.data.events import EventStream, NodeIds, make_stream
from tsnn.data.queries import Queries
from tsnn.data.split import Split, split_by_time


def tied_stream(seed: int = 0, events: int = 300, nodes: int = 20, times: int = 60) -> EventStream:
    rng = np.random.default_rng(seed)
    src, dst = rng.integers(0, nodes, events), rng.integers(0, nodes, events)
    t = np.sort(rng.integers(0, times, events)).astype(np.float64)
    return make_stream(src, dst, t, ids=NodeIds(range(nodes)))


def tied_split(seed: int = 0) -> Split:
    return split_by_time(tied_stream(seed))


@dataclass
class History:
    """Everything seen up to a cut, kept the slow way."""

    src: list[int] = field(default_factory=list)
    dst: list[int] = field(default_factory=list)
    t: list[float] = field(default_factory=list)

    @property
    def times_of(self) -> dict[tuple[int, int], list[float]]:
        found: dict[tuple[int, int], list[float]] = {}
        for s, d, t in zip(self.src, self.dst, self.t, strict=True):
            found.setdefault((s, d), []).append(t)
        return found


def replay(stream: EventStream, queries: Queries, rule: Callable[[History, int, int, float], float]) -> list[float]:
    """Score every candidate from a history rebuilt at each query."""
    scores = []
    for q in range(len(queries)):
        cut = int(queries.cut[q])
        history = History(*(column[:cut].tolist() for column in (stream.src, stream.dst, stream.t)))
        candidates = queries.cand[queries.ptr[q] : queries.ptr[q + 1]].tolist()
        scores += [rule(history, int(queries.src[q]), c, float(queries.t[q])) for c in candidates]
    return scores
