"""The planner: a stream, its counters, and the chunk plans that follow from them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tsnn.config import Config
from tsnn.data.events import EventStream
from tsnn.data.queries import NO_QUERIES, Queries
from tsnn.errors import InputError
from tsnn.plan.chunk import SCORE_COLUMNS, UPDATE_COLUMNS, ChunkPlan, ScoreOut, ScorePlan, UpdateOut, UpdatePlan
from tsnn.plan.counters import Counters
from tsnn.plan.facts import FACTS
from tsnn.plan.layout import Column
from tsnn.plan.observing import advance
from tsnn.plan.survey import survey
from tsnn.plan.sweep import resolve, sweep
from tsnn.plan.tables import Options, Rows
from tsnn.types import F64, I64, Bool


class PlanSpec(Options):
    """What the plan has to compute: how a configuration says it, and what follows from it."""

    @classmethod
    def of(cls, config: Config, mean_gap: float) -> PlanSpec:
        """The spec a model's configuration asks for."""
        model, features = config.model, config.features
        return cls(
            num_neighbors=model.num_neighbors if model.diffusion_steps else 0,
            cn_neighbors=features.cn_neighbors,
            cn_decay=features.cn_decay * mean_gap,
            window=model.edgebank_window * mean_gap,
            common_neighbors=features.common_neighbors,
            two_hop=features.two_hop,
            successor=features.successor,
            attention=model.num_neighbors if model.attention else 0,
            walk_dim=features.walk_dim if features.walks else 0,
            walk_rate=1.0 / (features.walk_decay * mean_gap),
            activity_rate=1.0 / (features.activity_decay * mean_gap),
            buffer=model.num_neighbors,
        )

    def without_states(self) -> PlanSpec:
        """The same facts, without the neighbor lists of the recurrence and of attention."""
        return self._replace(num_neighbors=0, attention=0, buffer=self.ring)

    def with_partners(self, config: Config) -> PlanSpec:
        """The same with the recent partners of each query's source, which learned stalks are read through."""
        return self._replace(attention=config.model.num_neighbors)

    @property
    def fading(self) -> int:
        """Counts that are kept of every actor."""
        return self.act_scales * self.act_roles

    @property
    def acts(self) -> int:
        """Numbers that a question is told of what its source did."""
        return 1 + self.fading + self.act_scales if self.act_scales else 0

    @property
    def ring(self) -> int:
        """Neighbors that the counters remember per node."""
        return max(self.buffer, self.num_neighbors, self.attention, self.cn_neighbors)


def mean_gap(t: NDArray[np.generic]) -> float:
    """Mean time between consecutive events; 1 where that says nothing."""
    if len(t) < 2:
        return 1.0
    return float(t[-1] - t[0]) / (len(t) - 1) or 1.0


def message_lengths(stream: EventStream) -> F64:
    """Euclidean length of every event's message; for a single number, such as a weight, its size."""
    if stream.msg is None:
        return np.zeros(stream.num_events)
    lengths: F64 = np.sqrt(np.einsum("ij,ij->i", stream.msg, stream.msg, dtype=np.float64))
    return lengths


class Planner:
    """Walks a stream once, from row 0 on; `plan` is the only way forward.

    A stream that continues an earlier one takes over its counters and its origin.
    """

    def __init__(
        self,
        stream: EventStream,
        spec: PlanSpec,
        counters: Counters | None = None,
        origin: np.generic | float | None = None,
    ) -> None:
        self.stream, self.spec = stream, spec
        # Times relative to the first row: int64 nanoseconds keep their precision as float64 (D-10).
        self.origin: Any = origin if origin is not None else stream.t[0] if stream.num_events else 0
        rel = np.zeros(stream.num_events, np.int64) if stream.edge_type is None else stream.edge_type
        self._rows = Rows(stream.src, stream.dst, self._clock(stream.t), rel, message_lengths(stream))
        separate = spec.window > 0 or stream.edge_type is not None
        self._options = spec._replace(separate_bank=separate, undirected=stream.undirected)
        self.position = 0
        self.counters = counters or self._no_counts()
        if self.counters.tables.actor_recent.shape[1] != spec.fading:
            raise InputError("what these counters hold of sources was counted at other paces; start from nothing.")
        self.counters.introduce(stream.ids.keys)

    def reset_state(self) -> None:
        """Forget every event."""
        self.position = 0
        self.counters = self._no_counts()
        self.counters.introduce(self.stream.ids.keys)

    def _no_counts(self) -> Counters:
        return Counters(self.stream.num_nodes, self.spec.ring, self.spec.walk_dim, self.spec.fading)

    def advance(self, stop: int) -> None:
        """Observe rows up to `stop` without planning them."""
        self._check_stop(stop)
        self._make_room(stop)
        advance(self.counters.tables, self._options, self._rows, self.position, stop)
        self.position = stop

    def plan(self, stop: int, queries: Queries) -> ChunkPlan:
        """Rows [position, stop) and the queries cut inside [position, stop]."""
        self._check_stop(stop)
        if len(queries) and not self.position <= queries.cut[0] <= queries.cut[-1] <= stop:
            raise InputError(f"queries must be cut inside rows {self.position} to {stop}.")
        start, n = self.position, stop - self.position
        self._make_room(stop)
        update, score = self._allocate(n, queries)
        n0, m = sweep(
            self.counters.tables, self.counters.scratch, self._options, self._rows, start, stop,
            queries.cut, self._clock(queries.t), update, score,
        )  # fmt: skip
        self.position = stop
        is_loop = self.stream.src[start:stop] == self.stream.dst[start:stop]
        used = _resolved(update, UPDATE_COLUMNS, {"known": n0, "active": m}, n0)
        return ChunkPlan(
            UpdatePlan(start=start, stop=stop, is_loop=is_loop, **used),
            ScorePlan(**_resolved(score, SCORE_COLUMNS, {}, n0)),
        )

    def walk(self, stop: int, rows: int) -> Iterator[ChunkPlan]:
        """Plans of `rows` rows each up to `stop`, without queries."""
        while self.position < stop:
            yield self.plan(min(self.position + rows, stop), NO_QUERIES)

    def survey(
        self,
        src: int,
        t: NDArray[np.generic],
        edge_type: int,
        cand: I64,
        related: Bool,
        dtype: type[np.floating[Any]] = np.float64,
    ) -> NDArray[np.floating[Any]]:
        """The facts that `plan` gives for these candidates of one source as of now, up to rounding.

        `related` marks whoever ever met the source or followed one of its last three destinations. Only for those, and
        for candidates that share a neighbor with it, are facts looked up that the two have in common.
        """
        # It is filled, and then read, column by column. A single row would lie in another order, for which the kernel
        # would be compiled once more.
        rows = max(len(cand), 2)
        facts = np.zeros((rows, len(FACTS)), dtype, order="F")
        tables, scratch, clock = self.counters.tables, self.counters.scratch, float(self._clock(t)[0])
        survey(tables, scratch, self._options, src, clock, edge_type, cand, related, facts)
        return facts[: len(cand)]

    def _make_room(self, stop: int) -> None:
        """For the rows up to `stop`; an undirected one is a move of either end."""
        moves = (stop - self.position) * (2 if self.stream.undirected else 1)
        self.counters.make_room(moves, self.stream.num_nodes, max(self.stream.num_relations, 1))

    def _check_stop(self, stop: int) -> None:
        if not self.position <= stop <= self.stream.num_events:
            raise InputError(
                f"the stream stands at row {self.position} of {self.stream.num_events} and cannot go to {stop}."
            )

    def _clock(self, t: NDArray[np.generic]) -> F64:
        return np.ascontiguousarray(t - self.origin, dtype=np.float64)

    def _allocate(self, n: int, queries: Queries) -> tuple[Any, Any]:
        """Columns of both plans, with room for the most that there can be; what is asked stands in them already."""
        spec, nq, nc = self.spec, len(queries), len(queries.cand)
        active = n * (2 + 2 * spec.num_neighbors)
        known = min(self.counters.num_nodes, active + nq * (1 + spec.attention) + nc)
        sizes = {"event": n, "event + 1": n + 1, "active": active, "known": known}
        sizes |= {"query": nq, "candidate": nc, "attention": spec.attention}
        sizes["acts"] = spec.acts if self.counters.tables.actor_recent.shape[1] else 0
        asked = {"ptr": queries.ptr, "cand": queries.cand, "src": queries.src, "edge_type": queries.edge_type}
        score = {name: column.make(sizes) for name, column in SCORE_COLUMNS.items() if name not in asked}
        update = {name: column.make(sizes) for name, column in UPDATE_COLUMNS.items()}
        return UpdateOut(**update), ScoreOut(**asked, **score)


def _resolved(out: Any, columns: dict[str, Column], used: dict[str | int, int], n0: int) -> dict[str, Any]:
    """The columns as far as they are in use, with version rows in place of the sweep's codes."""
    arrays: dict[str, NDArray[Any]] = out._asdict()
    for name, column in columns.items():
        if column.axes[0] in used:
            arrays[name] = arrays[name][: used[column.axes[0]]].copy()
    resolve(tuple([array.ravel() for name, array in arrays.items() if name.endswith(("_h", "_F"))]), n0)
    return arrays
