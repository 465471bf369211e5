"""Negatives: the ones DGB's evaluation draws, reproduced to the last one, and those of training.

DGB's historical and inductive samplers pick from Python sets of (source, destination) pairs in their iteration order,
so the sets are built here over the file's ids, by the same operations in the same order as in DyGLib, and numpy's
legacy generator draws from them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tsnn.data.dgb import file_ids
from tsnn.data.events import EventStream
from tsnn.data.queries import relations
from tsnn.data.question import Asks, Pool, Question, asks, node_types
from tsnn.data.split import Split
from tsnn.errors import InputError
from tsnn.types import I64, Bool

BATCH = 200
STRATEGIES = ("random", "historical", "inductive")
OTHER_SOURCES = ("historical", "inductive")  # of these, negatives have sources of their own
SEEDS = {"val": 0, "new_val": 1, "test": 2, "new_test": 3}

Pair = tuple[int, int]


class DgbNegatives:
    """One negative for each positive of `val`, `test`, `new_val` or `new_test`, as DyGLib draws them.

    `neg_src[k]`, `neg_dst[k]` are scored at the time of row `rows[k]` of `split.stream`; the source is the
    positive's own under `random` and another one otherwise. Without a seed, the suite's own for the segment.
    """

    def __init__(self, split: Split, segment: str, strategy: str = "random", seed: int | None = None) -> None:
        if segment not in SEEDS:
            raise InputError(f"segment {segment!r} is none of {', '.join(SEEDS)}.")
        if strategy not in STRATEGIES:
            raise InputError(f"negatives {strategy!r} are none of {', '.join(STRATEGIES)}.")
        start, stop = split.bounds(segment.removeprefix("new_"))
        inductive_set = segment.startswith("new_")
        self.rows: I64 = split.new_rows(start, stop) if inductive_set else np.arange(start, stop, dtype=np.int64)
        self.strategy = strategy
        self.seed = SEEDS[segment] if seed is None else seed
        full = split.stream if split.full is None else split.full
        own = split.stream.take(self.rows) if inductive_set else full
        sampler = _Sampler(own, float(split.stream.t[start - 1]), self.seed)
        positives = split.stream.take(self.rows)
        self.neg_src, self.neg_dst = _draw_segment(sampler, positives, strategy)

    def __len__(self) -> int:
        return len(self.rows)


def _draw_segment(sampler: _Sampler, positives: EventStream, strategy: str) -> tuple[I64, I64]:
    src, dst = file_ids(positives)
    if not len(src):
        return src, dst
    parts = []
    for a in range(0, len(src), BATCH):
        batch = slice(a, min(a + BATCH, len(src)))
        if strategy == "random":
            parts.append((src[batch], sampler.random(len(src[batch]))))
        else:
            t = positives.t[batch]
            parts.append(sampler.pairs(src[batch], dst[batch], t[0], t[-1], strategy == "inductive"))
    neg_src, neg_dst = (np.concatenate(side) for side in zip(*parts, strict=True))
    return positives.ids.indices(neg_src), positives.ids.indices(neg_dst)


class _Sampler:
    """DyGLib's NegativeEdgeSampler over one set of events, in file ids."""

    def __init__(self, stream: EventStream, last_observed: float, seed: int) -> None:
        self.src, self.dst = file_ids(stream)
        self.t = stream.t
        self.unique_src, self.unique_dst = np.unique(self.src), np.unique(self.dst)
        self.state = np.random.RandomState(seed)
        self.last_observed = last_observed
        self._past: set[Pair] = set()
        self._past_end = 0
        self._observed: set[Pair] | None = None
        self._possible: set[Pair] | None = None

    def random(self, size: int) -> I64:
        """Destinations. The draw of sources that nobody uses moves the generator on, so it stays."""
        self.state.randint(0, len(self.unique_src), size)
        return self.unique_dst[self.state.randint(0, len(self.unique_dst), size)]

    def pairs(self, src: I64, dst: I64, first: float, last: float, inductive: bool) -> tuple[I64, I64]:
        """Pairs seen up to the batch and absent from its period, filled up with random ones in front."""
        candidates = self._until(first)
        if inductive:
            candidates = candidates - self._observed_pairs()
        pool = list(candidates - self._between(first, last))
        missing = len(src) - len(pool)
        if missing > 0:
            return _columns([*self._unseen_pairs(src, dst, missing), *pool])
        picked = self.state.choice(len(pool), size=len(src), replace=False)
        return _columns([pool[i] for i in picked])

    def _until(self, time: float) -> set[Pair]:
        """Pairs with t <= time. Adding on in row order leaves the set as building it anew would."""
        end = int(np.searchsorted(self.t, time, side="right"))
        if end < self._past_end:
            self._past, self._past_end = set(), 0
        for pair in self._listed(self._past_end, end):
            self._past.add(pair)
        self._past_end = max(self._past_end, end)
        return self._past

    def _between(self, first: float, last: float) -> set[Pair]:
        start, end = np.searchsorted(self.t, first, side="left"), np.searchsorted(self.t, last, side="right")
        return set(self._listed(int(start), int(end)))

    def _observed_pairs(self) -> set[Pair]:
        if self._observed is None:
            self._observed = set(self._listed(0, int(np.searchsorted(self.t, self.last_observed, side="right"))))
        return self._observed

    def _unseen_pairs(self, src: I64, dst: I64, size: int) -> list[Pair]:
        if self._possible is None:
            sources, targets = self.unique_src.tolist(), self.unique_dst.tolist()
            self._possible = {(s, d) for s in sources for d in targets}
        pool = list(self._possible - set(zip(src.tolist(), dst.tolist(), strict=True)))
        if not pool:
            raise InputError("every possible pair is a positive of its batch; use random negatives on this stream.")
        return [pool[i] for i in self.state.choice(len(pool), size=size, replace=len(pool) < size)]

    def _listed(self, start: int, end: int) -> Iterable[Pair]:
        return zip(self.src[start:end].tolist(), self.dst[start:end].tolist(), strict=True)


def _columns(pairs: list[Pair]) -> tuple[I64, I64]:
    table = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    return table[:, 0], table[:, 1]


HISTORY_SHARE, POPULARITY_SHARE = 0.5, 0.25
REDRAWS = 8


@dataclass(frozen=True)
class NegativePool:
    """What the training samplers draw from, made once for a stream: candidates, and what is asked by group.

    Groups are numbers (source and relation, or relation alone); `*_order` holds group * len(asks.rows) + place in
    `asks`, sorted, so that those of a group before a cut are one interval of it.
    """

    candidates: Pool
    asks: Asks  # of all rows
    history_order: I64
    history_group: I64  # group of each ask by source and relation
    popularity_order: I64
    popularity_group: I64  # group of each ask by relation

    @classmethod
    def build(cls, stream: EventStream, train_end: int, question: Question) -> NegativePool:
        """The pool of a stream whose first `train_end` rows train for a question."""
        if not train_end:
            raise InputError("there are no training events to draw negatives from; give a longer training segment.")
        own = asks(stream, np.arange(stream.num_events))
        relation = relations(stream, own.rows)
        history = own.src * max(stream.num_relations, 1) + relation
        candidates = question.pool(stream, train_end)
        return cls(candidates, own, _ordered(history), history, _ordered(relation), relation)


def _ordered(group: I64) -> I64:
    composite: I64 = group * len(group) + np.arange(len(group), dtype=np.int64)
    return np.sort(composite)


def draw_training_negatives(
    stream: EventStream,
    cuts: I64,
    asked: I64,
    num: int,
    sampler: str,
    rng: np.random.Generator,
    pool: NegativePool,
    *,
    collisions: bool = False,
) -> I64:
    """(len(asked), num) negative destinations for these of `pool.asks`; `cuts[i]` rows are what `asked[i]` may see.

    `random`: uniform over the candidates of the positive's type, as training knows them. `mixed`: half destinations of
    an earlier event of the same source, a quarter of any earlier event, a quarter uniform; earlier means below the cut
    and of the same relation. A draw without such an event, of another type, or equal to the positive is replaced by a
    uniform one; a uniform one that still equals the positive after a few redraws stays (app:neg_sampling). With
    `collisions` any may equal the positive.
    """
    if sampler not in ("random", "mixed"):
        raise InputError(f"sampler {sampler!r} is neither random nor mixed.")
    positive = np.broadcast_to(pool.asks.dst[asked][:, None], (len(asked), num))
    types = node_types(stream, positive)
    drawn = _uniform(pool.candidates, types, rng)
    if sampler == "mixed":
        drawn = _with_history(cuts, asked, drawn, rng, pool)
    redo = ((drawn == positive) & (not collisions)) | (node_types(stream, drawn) != types)
    for _ in range(REDRAWS):
        if not redo.any():
            break
        drawn[redo] = _uniform(pool.candidates, types[redo], rng)
        redo = (drawn == positive) & (not collisions)
    return drawn


def _uniform(pool: Pool, types: I64, rng: np.random.Generator) -> I64:
    """Uniform over the candidates of these types; over all candidates where a type has none."""
    if len(pool.starts) == 2:  # one type: the same draws, with less ado
        return pool.nodes[rng.integers(0, len(pool.nodes), types.shape)]
    low = pool.starts[types]
    high = pool.starts[types + 1]
    empty = low == high
    return pool.nodes[rng.integers(np.where(empty, 0, low), np.where(empty, len(pool.nodes), high))]


def _with_history(cuts: I64, asked: I64, drawn: I64, rng: np.random.Generator, pool: NegativePool) -> I64:
    below = np.searchsorted(pool.asks.rows, cuts)
    kind = rng.random(drawn.shape)
    wants_history = kind < HISTORY_SHARE
    wants_popularity = ~wants_history & (kind < HISTORY_SHARE + POPULARITY_SHARE)
    for wanted, order, group in (
        (wants_history, pool.history_order, pool.history_group[asked]),
        (wants_popularity, pool.popularity_order, pool.popularity_group[asked]),
    ):
        earlier, there = _earlier(order, group, below, drawn.shape[1], rng)
        drawn = np.where(wanted & there, pool.asks.dst[earlier], drawn)
    return drawn


def _earlier(order: I64, group: I64, below: I64, num: int, rng: np.random.Generator) -> tuple[I64, Bool]:
    """For each query, `num` asks of its group before the one at `below`, drawn uniformly, and whether there is any."""
    low = np.searchsorted(order, group * len(order))
    high = np.searchsorted(order, group * len(order) + below)
    there = np.broadcast_to((high > low)[:, None], (len(group), num))
    place = rng.integers(low[:, None], np.maximum(high, low + 1)[:, None], size=(len(group), num))
    earlier: NDArray[np.int64] = order[np.minimum(place, len(order) - 1)] % len(order)
    return earlier, there
