"""A model's scores of all nodes at once, from the states as they stand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from tsnn.data.queries import Queries
from tsnn.engine.geometry import distances
from tsnn.evaluation.against_all import Here
from tsnn.memory.store import StateStore
from tsnn.memory.versions import Versions
from tsnn.model.geometry import Geometry, rotate
from tsnn.model.partners import compare as compare_partners
from tsnn.model.tsnn import TSNN, Compared
from tsnn.plan.chunk import ScorePlan, facts_alone
from tsnn.types import F64

_ROWS = 65_536  # nodes whose frames are unfolded at once


class ModelAgainstAll:
    """Every node in synchronized coordinates (prop:sync_equiv), which all questions asked here share."""

    def __init__(self, model: TSNN, store: StateStore, here: Here) -> None:
        self._model, self._store, self._here = model.eval(), store, here
        nodes = here.planner.stream.num_nodes
        self._g = torch.empty(nodes, model.config.model.stalk_dim, dtype=model.dtype)
        self._norm2 = torch.empty(nodes, dtype=model.dtype)
        with torch.no_grad():
            for start in range(0, nodes, _ROWS):
                rows = slice(start, min(start + _ROWS, nodes))
                h, F = store.gather(np.arange(rows.start, rows.stop))
                self._g[rows], self._norm2[rows] = rotate(F, h, model.config.model), h.square().sum(-1)
            self._vectors = model.partners.of(torch.arange(nodes)) if model.reads_partners else None

    @torch.no_grad()
    def __call__(self, queries: Queries) -> F64:
        """A row of scores for each question."""
        kind = np.float32 if self._model.dtype == torch.float32 else np.float64
        stream = self._here.planner.stream
        found = np.empty((len(queries), stream.num_nodes))
        for i in range(len(queries)):
            h, q = self._source(queries, i)
            z = self._partners(queries, i)
            for rows, plan in self._here.plans(queries, i, kind):
                compared = self._compare(h, q, rows)
                if z is not None and self._vectors is not None:
                    compared = compared._replace(partners=compare_partners(z, self._vectors[rows]))
                found[i, rows] = self._model.decode(compared, plan, stream).total.numpy()
        return found

    def _source(self, queries: Queries, i: int) -> tuple[Tensor, Tensor]:
        """The source's stalk, and the same in synchronized coordinates, its frame bent by the relation."""
        model = self._model
        h, F = self._store.gather(queries.src[i : i + 1])
        plan = facts_alone(int(queries.src[i]), int(queries.edge_type[i]), queries.cand[:0], np.zeros((0, 1)))
        first = np.zeros(1, np.int32)
        own: ScorePlan = replace(plan, src_h=first, src_F=first)
        source = model.source(Versions(h, F, h.new_zeros(0), h.new_zeros(0)), own)
        return source.h[0], rotate(source.F, source.h, model.config.model)[0]

    def _partners(self, queries: Queries, i: int) -> Tensor | None:
        """What the source turned to lately, where vectors of partners are read."""
        if self._vectors is None:
            return None
        own = queries.slice(i, i + 1)
        alone = Queries(own.cut * 0, own.src, own.t, own.edge_type, np.zeros(2, np.int64), own.cand[:0])
        return self._model.read_partners(self._here.planner.plan(0, alone).score)[0]

    def _compare(self, h: Tensor, q: Tensor, rows: slice) -> Compared:
        g = self._g[rows]
        far, inner = torch.empty(2, len(g), dtype=g.dtype)
        distances(g.numpy(), q.numpy(), far.numpy(), inner.numpy())
        return Compared(Geometry(far, inner, h.square().sum().expand(len(g)), self._norm2[rows]))
