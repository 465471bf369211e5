"""Where a source stands at one moment of the state, and the scores of candidates as seen from there. Reads only."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from tsnn.data.events import EventStream, keys_of
from tsnn.data.queries import Queries
from tsnn.engine.geometry import distances
from tsnn.memory.versions import Versions
from tsnn.model.geometry import Geometry, rotate
from tsnn.model.partners import compare as compare_partners
from tsnn.model.tsnn import Compared, Source
from tsnn.online.checks import check_numbers
from tsnn.online.live import LiveState, Moment
from tsnn.plan.chunk import ChunkPlan, ScorePlan, facts_alone
from tsnn.plan.counters import Counters, signatures
from tsnn.plan.facts import COLUMN
from tsnn.types import F64, I64, U64, Bool

BLOCK = 8192  # candidates scored at once: bounds memory, and stays in the cache


class Scores(NamedTuple):
    """Scores of the candidates and the three parts they are the sum of, in float64."""

    total: F64
    geometric: F64
    residual: F64
    edgebank: F64
    seen: Bool  # whether the source has linked to the candidate before


@dataclass(frozen=True)
class Standpoint:
    """A source at a time: everything of its scores that does not depend on the candidate.

    Ids that the state has never heard of stand behind its nodes, as nodes without any event.
    """

    state: LiveState
    moment: Moment
    src: int
    t: Any
    edge_type: int
    strangers: tuple[Hashable, ...]
    stream: EventStream  # without rows: the node types
    source: Source
    q: Tensor  # the source in synchronized coordinates
    z: Tensor | None  # what it turned to lately, where vectors of partners are read

    @cached_property
    def related(self) -> I64:
        """Known nodes with whom the source may share a history; of all others the facts are plain."""
        if self.src >= len(self.state.ids):
            return np.zeros(0, np.int64)
        last = self.moment.counters.tables.last_dst[self.src]
        return self.state.history.related(self.src, last[last >= 0].tolist())

    def survey(self, cand: I64, related: Bool) -> ScorePlan:
        """The part of `plan` that a decoder reads, for many candidates at once."""
        planner = self.state.planner(self.stream, self.moment.counters)
        kind = np.float32 if self.state.model.dtype == torch.float32 else np.float64
        facts = planner.survey(self.src, np.array([self.t]), self.edge_type, cand, related, kind)
        return facts_alone(self.src, self.edge_type, cand, facts)

    def compare(self, cand: I64) -> Compared:
        """The geometry of these candidates (eq:sdist) from the kept synchronized coordinates."""
        g, norm2 = self._coordinates(cand)
        scalars = torch.empty(2, len(cand), dtype=g.dtype)
        distances(g.numpy(), self.q[0].numpy(), *scalars.numpy())
        own = self.source.h.square().sum(-1).expand(len(cand))
        geometry = Geometry(scalars[0], scalars[1], own, norm2)
        model = self.state.model
        difference = self.q - g if model.config.features.transported_difference else None
        partners = None if self.z is None else compare_partners(self.z, model.partners.of(torch.from_numpy(cand)))
        return Compared(geometry, self.source, difference, partners=partners)

    def _coordinates(self, cand: I64) -> tuple[Tensor, Tensor]:
        """g and |h|^2 of the candidates; those of a run of neighboring indices are read in place, without a copy."""
        store = self.state.store
        known = cand < store.num_nodes
        if known.all():
            is_run = len(cand) and cand[-1] - cand[0] == len(cand) - 1 and (np.diff(cand) == 1).all()
            nodes = slice(int(cand[0]), int(cand[-1]) + 1) if is_run else cand
            return store.synchronized(nodes, self.moment.settled)
        g, norm2 = store.synchronized(np.where(known, cand, 0), self.moment.settled)
        names = [self.strangers[i] for i in cand[~known] - store.num_nodes]
        strange = torch.from_numpy(~known)
        g, norm2 = g.clone(), norm2.clone()
        g[strange], norm2[strange] = store.unseen(keys_of(names))
        return g, norm2


@torch.no_grad()
def stand(state: LiveState, src: Hashable, names: Sequence[Hashable], t: Any, edge_type: int) -> tuple[Standpoint, I64]:
    """Where the source stands, and the indices of the named candidates."""
    strangers: dict[Hashable, int] = {}

    def index(name: Hashable) -> int:
        known = state.ids.find(name)
        return strangers.setdefault(name, len(state.ids) + len(strangers)) if known is None else known

    u = index(src)
    cand = np.array([index(name) for name in names], np.int64)
    moment = state.moment(t)
    seat(moment.counters, len(state.ids), keys_of(strangers))
    roles = [1] * len(strangers)
    if u >= len(state.ids):
        roles[0] = 0
    stream = no_rows(state, roles)
    plan = _source_plan(state, moment, stream, u, t, edge_type)
    if u < len(state.ids):
        h, F = state.store.read(plan.update.nodes, moment.settled)
    else:
        h, F = state.store.initial(keys_of([src]))
    model = state.model
    source = model.source(Versions(h, F, h.new_zeros(0), h.new_zeros(0)), plan.score)
    q = rotate(source.F, source.h, model.config.model)
    z = model.read_partners(plan.score)[0] if model.reads_partners else None
    return Standpoint(state, moment, u, t, edge_type, tuple(strangers), stream, source, q, z), cand


@torch.no_grad()
def score_candidates(standpoint: Standpoint, cand: I64) -> Scores:
    """Scores of all candidates, in blocks."""
    model = standpoint.state.model
    total, geometric, residual, edgebank = (np.empty(len(cand)) for _ in range(4))
    columns = Scores(total, geometric, residual, edgebank, np.empty(len(cand), np.bool_))
    related = np.isin(cand, standpoint.related)
    for start in range(0, len(cand), BLOCK):
        rows = slice(start, start + BLOCK)
        plan = standpoint.survey(cand[rows], related[rows])
        parts = model.decode(standpoint.compare(cand[rows]), plan, standpoint.stream)
        for name in ("geometric", "residual", "edgebank"):
            getattr(columns, name)[rows] = getattr(parts, name).numpy()
        columns.seen[rows] = plan.facts[:, COLUMN["pair_count"]] > 0
    columns.total[:] = columns.geometric + columns.residual + columns.edgebank
    check_numbers(columns.total)
    return columns


def seat(counters: Counters, known: int, keys: U64) -> None:
    """Rows behind the known nodes for ids without any event: a signature and nothing else, so no score changes."""
    counters.make_room(0, known + len(keys))
    dim = counters.tables.walk.shape[2]
    if dim and len(keys):
        counters.tables.walk[known : known + len(keys), 0] = signatures(keys, dim)


def no_rows(state: LiveState, roles: Sequence[int]) -> EventStream:
    """A stream of no events, with the types of all nodes, and of strangers by their roles: source (0), destination."""
    none = np.zeros(0, np.int64)
    types = state.node_type
    if types is not None and roles:
        usual = np.array([state.usual_type(role) for role in (0, 1)])
        types = np.concatenate([types, usual[np.array(roles)]])
    relations = none if state.model.shape.num_relations else None
    return EventStream(
        none, none, np.zeros(0), state.ids, edge_type=relations, node_type=types, description=state.described
    )


def _source_plan(state: LiveState, moment: Moment, stream: EventStream, src: int, t: Any, edge_type: int) -> ChunkPlan:
    """The states that the source's own side of a score reads."""
    one, none = np.array([0]), np.zeros(0, np.int64)
    queries = Queries(one, np.array([src]), np.array([t]), np.array([edge_type]), np.array([0, 0]), none)
    return state.planner(stream, moment.counters).plan(0, queries)
