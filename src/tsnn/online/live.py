"""The state of a running stream, readable at two moments.

*Latest* is after every observed event; *settled* is before the events of the present timestamp, which a strict score at
that very time must not see. The store holds the latest rows and, beside them, the settled rows of the few nodes in
which the two differ. Counters cost little to advance and are kept twice; the settled ones follow when time moves on.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tsnn.data.description import Description
from tsnn.data.events import EventStream, NodeIds, stable_key
from tsnn.engine.engine import Engine, ServingEngine, commit, run_update
from tsnn.errors import RunError
from tsnn.intensity.intensity import Intensity
from tsnn.memory.store import StateStore
from tsnn.model.geometry import rotate
from tsnn.model.tsnn import TSNN
from tsnn.online.active import ActiveNodes
from tsnn.online.event import Event
from tsnn.online.ids import GrowingIds
from tsnn.plan.counters import Counters
from tsnn.plan.history import History
from tsnn.plan.planner import Planner
from tsnn.training.run import state_tensors
from tsnn.types import I64, U64

MAX_ROWS = 2000  # rows of the recurrence at once
_COLUMNS = ("src", "dst", "t", "msg", "edge_type")


class GrowingStore(StateStore):
    """Stalks and frames with room for newcomers, their synchronized coordinates g = U h, and the settled rows."""

    def __init__(self, model: TSNN, keys: U64) -> None:
        super().__init__(keys, model.config.train.seed, model.config.model, model.dtype)
        self._model = model
        self.num_nodes = len(keys)
        self.keeping = False  # whether overwritten rows are part of the settled moment
        self._g = torch.zeros_like(self.h)
        self._norm2 = self.h.new_zeros(len(keys))
        self._fresh = np.zeros(len(keys), np.bool_)  # whose g is up to date
        self._slot = np.full(len(keys), -1, np.int64)  # position among the kept rows
        self._kept_nodes: list[I64] = []
        self._kept_h: list[Tensor] = []
        self._kept_F: list[Tensor] = []

    def grow(self, keys: U64) -> None:
        """Rows for newcomers; `keys` are those of all nodes."""
        first, last = self.num_nodes, len(keys)
        if last > len(self.h):
            self._enlarge(max(last, 2 * len(self.h)) - len(self.h))
        if last > first:
            self.h[first:last], self.F[first:last] = self.initial(keys[first:last])
            self.num_nodes, self._keys = last, keys

    def _enlarge(self, extra: int) -> None:
        """Room for more rows, by doubling: a newcomer must not cost a copy of everything."""
        for name in ("h", "F", "_g", "_norm2"):
            rows: Tensor = getattr(self, name)
            setattr(self, name, torch.cat([rows, rows.new_zeros(extra, *rows.shape[1:])]))
        self._fresh = np.concatenate([self._fresh, np.zeros(extra, np.bool_)])
        self._slot = np.concatenate([self._slot, np.full(extra, -1, np.int64)])

    def scatter(self, nodes: I64, h: Tensor, F: Tensor) -> None:
        """Write the latest states, keeping the settled ones where asked to."""
        if self.keeping:
            self._keep(nodes[self._slot[nodes] < 0])
        super().scatter(nodes, h, F)
        self._fresh[nodes] = False

    def _keep(self, nodes: I64) -> None:
        start = sum(map(len, self._kept_nodes))
        self._slot[nodes] = np.arange(start, start + len(nodes))
        h, F = self.gather(nodes)
        self._kept_nodes.append(nodes)
        self._kept_h.append(h)
        self._kept_F.append(F)

    def settle(self) -> None:
        """Let the latest rows be the settled ones."""
        for nodes in self._kept_nodes:
            self._slot[nodes] = -1
        for kept in (self._kept_nodes, self._kept_h, self._kept_F):
            kept.clear()

    def read(self, nodes: I64, settled: bool) -> tuple[Tensor, Tensor]:
        """Stalks and frames of these nodes at either moment."""
        h, F = self.gather(nodes)
        if settled and self._kept_nodes:
            kept = np.flatnonzero(self._slot[nodes] >= 0)
            slots = self._slot[nodes[kept]]
            h[kept] = torch.cat(self._kept_h)[slots]
            F[kept] = torch.cat(self._kept_F)[slots]
        return h, F

    def synchronized(self, nodes: I64 | slice, settled: bool) -> tuple[Tensor, Tensor]:
        """g = U h and |h|^2 of these nodes at either moment (prop:sync_equiv); may be views, so read only."""
        self._refresh()
        index = nodes if isinstance(nodes, slice) else torch.from_numpy(nodes)
        g, norm2 = self._g[index], self._norm2[index]
        if settled and self._kept_nodes:
            kept = np.flatnonzero(self._slot[nodes] >= 0)
            slots = self._slot[nodes][kept]
            h = torch.cat(self._kept_h)[slots]
            g, norm2 = g.clone(), norm2.clone()
            g[kept] = self._synchronize(h, torch.cat(self._kept_F)[slots])
            norm2[kept] = h.square().sum(-1)
        return g, norm2

    def settled_apart(self) -> tuple[I64, Tensor, Tensor]:
        """Nodes whose settled state is not their latest, with g and |h|^2 of the settled one."""
        if not self._kept_nodes:
            return np.zeros(0, np.int64), self._g[:0], self._norm2[:0]
        h = torch.cat(self._kept_h)
        return np.concatenate(self._kept_nodes), self._synchronize(h, torch.cat(self._kept_F)), h.square().sum(-1)

    def unseen(self, keys: U64) -> tuple[Tensor, Tensor]:
        """g and |h|^2 of nodes that the state has never heard of."""
        h, F = self.initial(keys)
        return self._synchronize(h, F), h.square().sum(-1)

    def _synchronize(self, h: Tensor, F: Tensor) -> Tensor:
        return rotate(F, h, self._model.config.model)

    def _refresh(self, block: int = 65_536) -> None:
        stale = np.flatnonzero(~self._fresh[: self.num_nodes])
        for start in range(0, len(stale), block):
            nodes = stale[start : start + block]
            h, F = self.gather(nodes)
            index = torch.from_numpy(nodes)
            self._g[index] = self._synchronize(h, F)
            self._norm2[index] = h.square().sum(-1)
            self._fresh[nodes] = True

    def settled_snapshot(self) -> dict[str, Tensor]:
        """Copies of all settled rows, for saving."""
        h, F = self.read(np.arange(self.num_nodes), settled=True)
        return {"h": h, "F": F}


class Moment(NamedTuple):
    """One side of the present time: what a query may see."""

    counters: Counters
    settled: bool


class LiveState:
    """Everything that events change. `observe` is the only writer."""

    def __init__(
        self, model: TSNN, ids: GrowingIds, saved: dict[str, Tensor], intensity: Intensity | None = None
    ) -> None:
        self.model, self.ids = model, ids
        self.spec = model.plan_spec
        if intensity is not None:
            self.spec = intensity.grid.counted(self.spec)
        reference = model.config.train.engine == "reference"
        self.engine = Engine() if reference else ServingEngine(model)
        self.origin: Any = saved["origin"].numpy()[()]
        self.clock: Any = saved["clock"].numpy()[()]
        self.node_type: I64 | None = saved["node_type"].numpy() if "node_type" in saved else None
        self.described = Description(undirected=model.shape.undirected)  # of every event to come
        self.store = GrowingStore(model, ids.keys)
        self.store.restore(saved)
        counters = _section(saved, "counters/")
        self.settled, self.latest = Counters(0, 1), Counters(0, 1)
        self.settled.restore(counters)
        self.latest.restore(counters)
        self.history = History(counters, model.shape.undirected)
        self.active = {settled: ActiveNodes() for settled in (False, True)}
        self._tie: list[EventStream] = []
        self._observe_tie(_stream(ids, self.node_type, self.described, _section(saved, "tie/")))

    def moment(self, t: float) -> Moment:
        """What a query at this time sees."""
        settled = bool(t <= self.clock)
        return Moment(self.settled if settled else self.latest, settled)

    def admit(self, src: Sequence[Hashable], dst: Sequence[Hashable]) -> tuple[I64, I64]:
        """Indices of the ends of some events; newcomers get a row, and the type most common in their role."""
        known = len(self.ids)
        names: Iterable[Sequence[Hashable]] = zip(src, dst, strict=True)
        if self.described.undirected:  # newcomers are numbered alike, whichever stands first
            names = (sorted(both, key=stable_key) for both in names)
        ends = np.array([[self.ids.add(u), self.ids.add(v)] for u, v in names], np.int64)
        if len(self.ids) > known:
            self.store.grow(self.ids.keys)
            for counters in (self.settled, self.latest):
                counters.make_room(0, len(self.ids))
                counters.introduce(self.ids.keys)  # at both moments: how events were grouped must not show
            if self.node_type is not None:
                roles = np.zeros(len(self.ids) - known, np.int64)
                for role in (1, 0):
                    roles[ends[ends[:, role] >= known, role] - known] = role
                usual = np.array([self.usual_type(role) for role in (0, 1)])
                self.node_type = np.concatenate([self.node_type, usual[roles]])
        return ends[:, 0], ends[:, 1]

    def usual_type(self, role: int) -> int:
        """The most common type among the nodes that have been sources (0) or destinations (1)."""
        tables = self.latest.tables
        known = 0 if self.node_type is None else len(self.node_type)
        is_end = role or self.described.undirected
        count = tables.in_degree[:known] if is_end else tables.degree[:known] - tables.in_degree[:known]
        kinds = self.node_type[count > 0] if self.node_type is not None else np.zeros(0, np.int64)
        return int(np.bincount(kinds).argmax()) if len(kinds) else 0

    def stream_of(self, events: Sequence[Event]) -> EventStream:
        """Checked events as columns; newcomers among them become nodes."""
        src, dst, t, msg, edge_type, _ = zip(*events, strict=True)
        width, relations = self.model.shape.msg_dim, self.model.shape.num_relations
        ends = self.admit(src, dst)
        return EventStream(
            *ends,
            np.array(t),
            self.ids,
            msg=np.frombuffer(bytearray().join(msg), "<f4").reshape(-1, width) if width else None,
            edge_type=np.array(edge_type) if relations else None,
            node_type=self.node_type,
            description=self.described,
        )

    @torch.no_grad()
    def observe(self, events: Sequence[Event]) -> None:
        """Let checked, time-ordered events happen, none of them before the clock."""
        stream = self.stream_of(events)
        last = stream.t[-1]
        if last > self.clock:
            head = stream.take(slice(0, int(np.searchsorted(stream.t, last))))
            self._settle()
            self._run(head)
            self._advance_settled(head)
            self.clock = last
            stream = stream.take(slice(head.num_events, None))
        self._observe_tie(stream)

    def _observe_tie(self, stream: EventStream) -> None:
        """Events at the time of the clock: what they overwrite stays readable."""
        self.store.keeping = True
        self._run(stream)
        self.store.keeping = False
        self._tie.append(stream)

    def _settle(self) -> None:
        for stream in self._tie:
            self._advance_settled(stream)
        self._tie = []
        self.store.settle()

    def _advance_settled(self, stream: EventStream) -> None:
        self.planner(stream, self.settled).advance(stream.num_events)
        self.active[True].touch(stream.src, stream.dst)

    @torch.no_grad()
    def _run(self, stream: EventStream) -> None:
        """The recurrence over rows that follow the latest moment."""
        self.active[False].touch(stream.src, stream.dst)
        self.history.observe(stream.src, stream.dst, self.latest.tables)
        planner = self.planner(stream, self.latest)
        for plan in planner.walk(stream.num_events, MAX_ROWS):
            commit(self.store, plan.update, run_update(self.model, self.engine, self.store, plan.update, stream))

    def recent(self, counters: Counters, node: int, n: int) -> list[tuple[Hashable, int | float, int | None]]:
        """The node's last events as counted, newest first: the other end, the time, the relation."""
        tables = counters.tables
        ring = tables.ring_id.shape[1]
        back = np.arange(min(int(tables.ring_len[node]), ring, n))
        at = (tables.ring_len[node] - 1 - back) % ring
        relation = [int(r) if self.model.shape.num_relations else None for r in tables.ring_type[node, at]]
        others = [self.ids.external[other] for other in tables.ring_id[node, at]]
        return list(zip(others, map(self.time, tables.ring_t[node, at].tolist()), relation, strict=True))

    def time(self, since_origin: float) -> int | float:
        """A counted time in the unit and kind of the stream."""
        whole = isinstance(self.origin, np.integer) and since_origin.is_integer()
        return int(self.origin) + int(since_origin) if whole else float(self.origin) + since_origin

    def planner(self, stream: EventStream, counters: Counters) -> Planner:
        """A planner that goes on from these counters."""
        return Planner(stream, self.spec, counters, self.origin)

    def snapshot(self) -> dict[str, Tensor]:
        """The state as a run stores it."""
        tie = _joined(self._tie)
        return state_tensors(self.store.settled_snapshot(), self.settled.snapshot(len(self.ids)), self.origin, tie)


def _section(tensors: dict[str, Tensor], prefix: str) -> dict[str, NDArray[Any]]:
    return {name.removeprefix(prefix): x.numpy() for name, x in tensors.items() if name.startswith(prefix)}


def _joined(streams: list[EventStream]) -> EventStream:
    """Streams of the same nodes, one after the other."""
    present = [name for name in _COLUMNS if getattr(streams[0], name) is not None]
    columns = {name: np.concatenate([getattr(stream, name) for stream in streams]) for name in present}
    last = streams[-1]
    return _stream(last.ids, last.node_type, last.description, columns)


def _stream(
    ids: NodeIds, node_type: I64 | None, described: Description, columns: dict[str, NDArray[Any]]
) -> EventStream:
    src, dst, t, msg, edge_type = (columns.get(name) for name in _COLUMNS)
    if src is None or dst is None or t is None:
        raise RunError("the saved state lacks events of its last timestamp; train the run again.")
    return EventStream(src, dst, t, ids, msg, edge_type, node_type, description=described)
