"""The planner: a stream, its counters, and the chunk plans that follow from them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tsnn.config import Config
from tsnn.data.events import EventStream
from tsnn.data.queries import NO_QUERIES, Queries
from tsnn.errors import InputError
from tsnn.plan import kernels
from tsnn.plan.chunk import ChunkPlan, ScorePlan, UpdatePlan
from tsnn.plan.counters import Counters
from tsnn.plan.facts import FACTS
from tsnn.plan.kernels import Options, ScoreOut, UpdateOut
from tsnn.plan.survey import survey
from tsnn.types import F64, I32, I64, Bool


@dataclass(frozen=True)
class PlanSpec:
    """What the plan has to compute. Times are in the stream's unit."""

    num_neighbors: int = 0  # of each endpoint in the active graph; 0 where there is no diffusion
    cn_neighbors: int = 20
    cn_decay: float = 1.0
    window: float = 0.0  # EdgeBank's; 0 is unlimited
    common_neighbors: bool = False
    two_hop: bool = False
    successor: bool = False
    attention: int = 0  # neighbors of the source that the score attends to
    walk_dim: int = 0  # length of the signatures that walks sum up; 0: no walks
    walk_decay: float = 1.0  # time in which a step of a walk fades by 1/e
    activity_decay: float = 1.0  # time in which an event fades by 1/e from the recent counts
    buffer: int = 0  # neighbors to remember per node, where that is more than the others ask for

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
            walk_decay=features.walk_decay * mean_gap,
            activity_decay=features.activity_decay * mean_gap,
            buffer=model.num_neighbors,
        )

    def without_states(self) -> PlanSpec:
        """The same facts, without the neighbor lists of the recurrence and of attention."""
        return replace(self, num_neighbors=0, attention=0, buffer=self.ring)

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
        self._t = self._clock(stream.t)
        self._rel = np.zeros(stream.num_events, np.int64) if stream.edge_type is None else stream.edge_type
        self._strength = message_lengths(stream)
        self._options = Options(
            num_neighbors=spec.num_neighbors,
            cn_neighbors=spec.cn_neighbors,
            attention=spec.attention,
            common=spec.common_neighbors,
            two_hop=spec.two_hop,
            successor=spec.successor,
            separate_bank=spec.window > 0 or stream.edge_type is not None,
            window=float(spec.window),
            cn_decay=float(spec.cn_decay),
            walk_rate=1.0 / spec.walk_decay,
            activity_rate=1.0 / spec.activity_decay,
        )
        self.position = 0
        self.counters = counters or Counters(stream.num_nodes, spec.ring, spec.walk_dim)
        self.counters.introduce(stream.ids.keys)

    def reset_state(self) -> None:
        """Forget every event."""
        self.position = 0
        self.counters = Counters(self.stream.num_nodes, self.spec.ring, self.spec.walk_dim)
        self.counters.introduce(self.stream.ids.keys)

    def advance(self, stop: int) -> None:
        """Observe rows up to `stop` without planning them."""
        self._check_stop(stop)
        self.counters.make_room(stop - self.position, self.stream.num_nodes)
        stream = self.stream
        kernels.advance(
            self.counters.tables,
            self._options,
            stream.src,
            stream.dst,
            self._t,
            self._rel,
            self._strength,
            self.position,
            stop,
        )
        self.position = stop

    def plan(self, stop: int, queries: Queries) -> ChunkPlan:
        """Rows [position, stop) and the queries cut inside [position, stop]."""
        self._check_stop(stop)
        if len(queries) and not self.position <= queries.cut[0] <= queries.cut[-1] <= stop:
            raise InputError(f"queries must be cut inside rows {self.position} to {stop}.")
        start, n = self.position, stop - self.position
        self.counters.make_room(n, self.stream.num_nodes)
        update, score, final_h, final_F = self._allocate(n, queries)
        n0, m = kernels.sweep(
            self.counters.tables, self.counters.scratch, self._options,
            self.stream.src, self.stream.dst, self._t, self._rel, self._strength, start, stop,
            queries.cut, queries.src, self._clock(queries.t), queries.edge_type, queries.ptr, queries.cand,
            update, score, final_h, final_F,
        )  # fmt: skip
        self.position = stop
        final = (final_h[:n0], final_F[:n0])
        return ChunkPlan(self._update_plan(start, stop, update, n0, m, final), _score_plan(queries, score, n0))

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
        """Facts of many candidates of one source as of now; see `tsnn.plan.survey`."""
        clock = float(self._clock(t)[0])
        return survey(self.counters, self._options, src, clock, edge_type, cand, related, dtype)

    def _check_stop(self, stop: int) -> None:
        if not self.position <= stop <= self.stream.num_events:
            raise InputError(
                f"the stream stands at row {self.position} of {self.stream.num_events} and cannot go to {stop}."
            )

    def _clock(self, t: NDArray[np.generic]) -> F64:
        return np.ascontiguousarray(t - self.origin, dtype=np.float64)

    def _allocate(self, n: int, queries: Queries) -> tuple[UpdateOut, ScoreOut, I32, I32]:
        spec, nq, nc = self.spec, len(queries), len(queries.cand)
        active = n * (2 + 2 * spec.num_neighbors)
        rows = min(self.counters.num_nodes, active + nq * (1 + spec.attention) + nc)
        i32 = np.int32
        update = UpdateOut(
            nodes=np.empty(rows, np.int64),
            src_h=np.empty(n, i32), dst_h=np.empty(n, i32), src_F=np.empty(n, i32), dst_F=np.empty(n, i32),
            gap_src=np.empty(n), gap_dst=np.empty(n),
            act_ptr=np.empty(n + 1, np.int64),
            act_h=np.empty(active, i32), act_F=np.empty(active, i32),
            mult_src=np.empty(active, np.float32), mult_dst=np.empty(active, np.float32),
        )  # fmt: skip
        score = ScoreOut(
            src_h=np.empty(nq, i32), src_F=np.empty(nq, i32), cand_h=np.empty(nc, i32), cand_F=np.empty(nc, i32),
            facts=np.empty((nc, len(FACTS))), num_pairs=np.empty(nq, np.int64),
            nbr_len=np.zeros(nq, i32),
            nbr_h=np.zeros((nq, spec.attention), i32), nbr_F=np.zeros((nq, spec.attention), i32),
            nbr_gap=np.zeros((nq, spec.attention)), nbr_type=np.zeros((nq, spec.attention), i32),
        )  # fmt: skip
        return update, score, np.empty(rows, i32), np.empty(rows, i32)

    def _update_plan(
        self, start: int, stop: int, out: UpdateOut, n0: int, m: int, final: tuple[I32, I32]
    ) -> UpdatePlan:
        act_h, act_F = out.act_h[:m].copy(), out.act_F[:m].copy()
        final_h, final_F = final[0].copy(), final[1].copy()
        kernels.resolve((out.src_h, out.dst_h, out.src_F, out.dst_F, act_h, act_F, final_h, final_F), n0)
        return UpdatePlan(
            start=start,
            stop=stop,
            nodes=out.nodes[:n0].copy(),
            src_h=out.src_h, dst_h=out.dst_h, src_F=out.src_F, dst_F=out.dst_F,
            gap_src=out.gap_src, gap_dst=out.gap_dst,
            is_loop=self.stream.src[start:stop] == self.stream.dst[start:stop],
            act_ptr=out.act_ptr,
            act_h=act_h, act_F=act_F,
            mult_src=out.mult_src[:m].copy(), mult_dst=out.mult_dst[:m].copy(),
            final_h=final_h, final_F=final_F,
        )  # fmt: skip


def _score_plan(queries: Queries, out: ScoreOut, n0: int) -> ScorePlan:
    kernels.resolve((out.src_h, out.src_F, out.cand_h, out.cand_F), n0)
    kernels.resolve((out.nbr_h, out.nbr_F), n0)
    columns: dict[str, Any] = out._asdict()
    return ScorePlan(ptr=queries.ptr, cand=queries.cand, src=queries.src, edge_type=queries.edge_type, **columns)
