"""The model's parameters and its score; the recurrence that its updater drives is run by an engine.

Step 1 of alg:tsnn is `source`, `candidate_geometry` and `decode`; Steps 2-6 are an engine's `update`, fed by `context`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from tsnn.config import Config
from tsnn.data.events import EventStream
from tsnn.memory.versions import Versions
from tsnn.model.attention import NeighborAttention
from tsnn.model.features import feature_matrix, feature_names, feature_tensor
from tsnn.model.geometry import Geometry, compare, rotate
from tsnn.model.head import NUM_SCALARS, Head, ScoreParts, scalars, score
from tsnn.model.partners import COLUMNS as PARTNER_COLUMNS
from tsnn.model.partners import Partners
from tsnn.model.partners import compare as compare_partners
from tsnn.model.time_encoding import encode_gap
from tsnn.model.updater import Updater
from tsnn.plan.chunk import ScorePlan, UpdatePlan
from tsnn.plan.facts import COLUMN
from tsnn.plan.planner import PlanSpec
from tsnn.transfer import send
from tsnn.types import I32, Bool


@dataclass(frozen=True)
class StreamShape:
    """What of a stream decides the shapes of the parameters, the unit of its inputs, and whether it has a direction."""

    msg_dim: int
    num_relations: int
    num_types: int
    mean_gap: float
    undirected: bool = False
    num_nodes: int = 0  # of which something may be learned


class Source(NamedTuple):
    """The query side of the comparison: stalks (nq, d) and relation-conditioned frames (nq, k, d)."""

    h: Tensor
    F: Tensor


class Compared(NamedTuple):
    """Candidates compared with their sources; the vectors only where a feature needs them."""

    geometry: Geometry
    source: Source | None = None
    difference: Tensor | None = None  # q - g, in synchronized coordinates
    scalars: Tensor | None = None  # `tsnn.model.head.scalars`, where they are made already
    partners: Tensor | None = None  # `tsnn.model.partners.compare`, likewise


class TSNN(nn.Module):
    """Parameters of the whole system. Holds no state of the stream."""

    msg_shift: Tensor
    msg_scale: Tensor
    feature_shift: Tensor
    feature_scale: Tensor

    def __init__(self, config: Config, shape: StreamShape) -> None:
        super().__init__()
        model = config.model
        self.config, self.shape = config, shape
        relation_dim = model.relation_dim if shape.num_relations else 0
        type_dim = model.type_dim if shape.num_types else 0
        if shape.num_relations:
            self.relation = nn.Embedding(shape.num_relations, model.relation_dim)
            if model.relation_bias:
                frame = (shape.num_relations, model.num_reflectors, model.stalk_dim)
                self.frame_bias = nn.Parameter(torch.randn(frame) * 0.1)
                self.frame_bias_scale = nn.Parameter(torch.zeros(shape.num_relations))
        if shape.num_types:
            self.type_embedding = nn.Embedding(shape.num_types, model.type_dim)
        self.updater = Updater(model, shape.msg_dim + model.time_dim + relation_dim + self.has_role)
        if model.attention:
            self.attention = NeighborAttention(model, relation_dim)
        num_features = len(feature_names(config.features))
        for name, size in (("msg", shape.msg_dim), ("feature", num_features)):
            self.register_buffer(f"{name}_shift", torch.zeros(size))
            self.register_buffer(f"{name}_scale", torch.ones(size))
        psi = NUM_SCALARS + num_features + relation_dim + 2 * type_dim
        psi += 2 * model.time_dim * config.features.encoded_gaps
        psi += model.stalk_dim * config.features.transported_difference
        psi += PARTNER_COLUMNS * model.partners
        self.head = Head(model, psi, shape.num_relations)
        if model.partners:  # like states, they enter a trained head without disturbing it
            self.partners = Partners(model, shape.num_nodes, relation_dim)
            with torch.no_grad():
                first, _ = self.head.weights().layers[0]
                first[:, -PARTNER_COLUMNS:] = 0.0

    @property
    def has_role(self) -> bool:
        """Whether an endpoint is told which one it is; of an undirected event there is nothing to tell."""
        return self.config.model.role and not self.shape.undirected

    @property
    def reads_partners(self) -> bool:
        """Whether something was learned of single nodes that scores are better with."""
        return hasattr(self, "partners") and bool(self.partners.on)

    @property
    def plan_spec(self) -> PlanSpec:
        """What the plan has to compute for this model as it is now."""
        spec = PlanSpec.of(self.config, self.shape.mean_gap)
        return spec.with_partners(self.config) if self.reads_partners else spec

    @property
    def dtype(self) -> torch.dtype:
        """Of the parameters, and so of states and scores."""
        return self.updater.theta.dtype

    @property
    def device(self) -> torch.device:
        """Of the parameters; scores are made there."""
        return self.updater.theta.device

    @property
    def time_scale(self) -> float:
        """The unit of gaps inside eq:time_encoding (D-07)."""
        return self.shape.mean_gap if self.config.model.gaps == "log" else 1.0

    def context(self, plan: UpdatePlan, stream: EventStream) -> Tensor:
        """[x | phi(gap) | e_r] of both endpoints of every event, (n, 2, context)."""
        gaps = torch.stack([self._tensor(plan.gap_src), self._tensor(plan.gap_dst)], dim=1)
        columns = [encode_gap(gaps, self.config.model.time_dim, self.time_scale)]
        rows = slice(plan.start, plan.stop)
        if stream.msg is not None:
            msg = (self._tensor(stream.msg[rows]) - self.msg_shift) / self.msg_scale
            columns.insert(0, msg.unsqueeze(1).expand(-1, 2, -1))
        if stream.edge_type is not None and self.shape.num_relations:
            relation = self.relation(self._index(stream.edge_type[rows]))
            columns.append(relation.unsqueeze(1).expand(-1, 2, -1))
        if self.has_role:
            columns.append(gaps.new_tensor([[1.0], [-1.0]]).expand(len(gaps), 2, 1))
        return torch.cat(columns, dim=2)

    def source(self, versions: Versions, plan: ScorePlan, generator: torch.Generator | None = None) -> Source:
        """The sources' states as the score uses them: refined by attention, framed for their relation."""
        h = versions.h[self._index(plan.src_h)]
        F = versions.F[self._index(plan.src_F)]
        if self.config.model.attention:
            h = self._attend(h, F, versions, plan, generator)
        return Source(h, F + self.relation_bias(plan) if hasattr(self, "frame_bias") else F)

    def relation_bias(self, plan: ScorePlan) -> Tensor:
        """sigma(gamma_r) b_r of each query (eq:rel_frame_bias)."""
        r = self._index(plan.edge_type)
        return torch.sigmoid(self.frame_bias_scale[r])[:, None, None] * self.frame_bias[r]

    def candidate_geometry(
        self, source: Source, versions: Versions, plan: ScorePlan, trainable: Bool | None = None
    ) -> Compared:
        """eq:sdist's scalars in synchronized coordinates (prop:sync_equiv), and the vectors behind them.

        Candidates outside `trainable` are read as constants (rule (i) of alg:train).
        """
        q = rotate(source.F, source.h, self.config.model)
        if trainable is None:
            h, g = self._synchronized(versions, plan.cand_h, plan.cand_F)
        else:  # a few of many: no graph for the rest
            with torch.no_grad():
                h, g = self._synchronized(versions, plan.cand_h, plan.cand_F)
            own = np.flatnonzero(trainable)
            h_own, g_own = self._synchronized(versions, plan.cand_h[own], plan.cand_F[own])
            at = self._index(own)
            h, g = h.index_copy(0, at, h_own), g.index_copy(0, at, g_own)
        query = self.query_of_candidate(plan)
        geometry, difference = compare(q[query], g, source.h.square().sum(-1)[query], h.square().sum(-1))
        return Compared(geometry, source, difference)

    def _synchronized(self, versions: Versions, rows_h: I32, rows_F: I32) -> tuple[Tensor, Tensor]:
        """Stalks of these versions, and the same in synchronized coordinates."""
        h = versions.h[self._index(rows_h)]
        return h, rotate(versions.F[self._index(rows_F)], h, self.config.model)

    def query_of_candidate(self, plan: ScorePlan) -> Tensor:
        """For each candidate the query it belongs to, (nc,)."""
        return self._index(np.repeat(np.arange(len(plan)), np.diff(plan.ptr)))

    def data_features(self, plan: ScorePlan) -> Tensor:
        """The data-only columns of psi, standardized; they need no trained parameter, so they can be made ahead."""
        features = self.config.features
        gaps = self.config.model.gaps
        gap = self.shape.mean_gap
        if self.device.type == "cpu":
            matrix = feature_matrix(plan.facts, features, gaps=gaps, mean_gap=gap)
            own = torch.from_numpy(matrix.astype(self._kind, copy=False))
        else:  # the host has enough to do
            own = feature_tensor(send(plan.facts.astype(self._kind), self.device), features, gaps=gaps, mean_gap=gap)
        return own.sub_(self.feature_shift).div_(self.feature_scale)  # in place: of all nodes at once, it is large

    def standardize(self, raw: Tensor, name: str = "feature") -> None:
        """Fit shift and scale of the features, or of `msg` (which would drown all else, D-17), to raw training rows."""
        spread, mean = torch.std_mean(raw, dim=0)
        getattr(self, f"{name}_shift").copy_(mean)
        getattr(self, f"{name}_scale").copy_(torch.where(spread > 0, spread, 1.0))

    def decode(
        self, compared: Compared, plan: ScorePlan, stream: EventStream, data: Tensor | None = None
    ) -> ScoreParts:
        """psi and the score of every candidate (eq:score_features, eq:edgebank_mixture)."""
        model, features, shape = self.config.model, self.config.features, self.shape
        weights = self.head.weights()
        geometric = compared.scalars
        if geometric is None:
            geometric = scalars(compared.geometry, weights.rho_kappa, model)
        columns = [weights.geometry_weight * geometric, self.data_features(plan) if data is None else data]
        relation = None
        if shape.num_relations or shape.num_types or features.transported_difference:
            query = self.query_of_candidate(plan)
        if shape.num_relations:
            relation = self._index(plan.edge_type)[query]
            columns.append(self.relation(relation))
        if stream.node_type is not None and shape.num_types:
            columns += [
                self.type_embedding(self._index(stream.node_type[plan.src]))[query],
                self.type_embedding(self._index(stream.node_type[plan.cand])),
            ]
        if features.encoded_gaps:
            columns += [self._encoded(plan, "src_gap"), self._encoded(plan, "dst_gap")]
        if features.transported_difference:
            columns.append(self._local_difference(compared, query))
        if model.partners:
            columns.append(self._partner_columns(compared, plan))
        bank_count = self._tensor(plan.facts[:, COLUMN["bank_count"]])
        return score(_beside(columns), bank_count, weights, model, relation)

    def _local_difference(self, compared: Compared, query: Tensor) -> Tensor:
        """h_u - Q_uv h_v in the source's own frame (app:optional_score_features); zeros where nothing was compared."""
        if compared.source is None or compared.difference is None:
            return torch.zeros(len(query), self.config.model.stalk_dim, dtype=self.dtype, device=self.device)
        local = rotate(compared.source.F[query], compared.difference, self.config.model, transpose=True)
        return self.head.geometry_weight * local

    def _partner_columns(self, compared: Compared, plan: ScorePlan) -> Tensor:
        if not self.reads_partners:
            return torch.zeros(len(plan.cand), PARTNER_COLUMNS, dtype=self.dtype, device=self.device)
        if compared.partners is not None:
            return compared.partners
        z = self.read_partners(plan)[self.query_of_candidate(plan)]
        return compare_partners(z, self.partners.of(self._index(plan.cand)))

    def read_partners(self, plan: ScorePlan) -> Tensor:
        """z of every source: what it turned to lately."""
        relation = self.relation(self._index(plan.nbr_type)) if self.shape.num_relations else None
        present = torch.arange(plan.nbr.shape[1], device=self.device) < self._index(plan.nbr_len)[:, None]
        gaps = self._tensor(plan.nbr_gap) / self.shape.mean_gap
        return self.partners.read(self._index(plan.nbr), gaps, relation, present)

    def _encoded(self, plan: ScorePlan, fact: str) -> Tensor:
        gap = self._tensor(plan.facts[:, COLUMN[fact]])
        return encode_gap(gap, self.config.model.time_dim, self.time_scale)

    def _attend(
        self, h: Tensor, F: Tensor, versions: Versions, plan: ScorePlan, generator: torch.Generator | None
    ) -> Tensor:
        model = self.config.model
        h_w = versions.h.detach()[self._index(plan.nbr_h)]
        common = rotate(versions.F.detach()[self._index(plan.nbr_F)], h_w, model)
        aligned = rotate(F.unsqueeze(1), common, model, transpose=True)
        code = encode_gap(self._tensor(plan.nbr_gap), model.time_dim // 2, self.time_scale)
        relation = self.relation(self._index(plan.nbr_type)) if self.shape.num_relations else None
        present = torch.arange(plan.nbr_h.shape[1], device=self.device) < self._index(plan.nbr_len)[:, None]
        refined: Tensor = self.attention(h, aligned, code, relation, present, generator)
        return refined

    def _tensor(self, values: object) -> Tensor:
        return send(np.array(values, dtype=self._kind), self.device)

    @property
    def _kind(self) -> type[np.floating[Any]]:
        return np.float32 if self.dtype == torch.float32 else np.float64

    def _index(self, values: object) -> Tensor:
        return send(np.array(values, dtype=np.int64), self.device)


def _beside(columns: list[Tensor]) -> Tensor:
    """Side by side; column-major where the features are: to transpose them would cost as much as the head itself."""
    features = columns[1]
    if torch.is_grad_enabled() or features.stride(0) != 1 or len(features) < 2:
        return torch.cat(columns, dim=1)
    psi = features.new_empty(sum(block.shape[1] for block in columns), len(features)).t()
    start = 0
    for block in columns:
        psi[:, start : start + block.shape[1]] = block
        start += block.shape[1]
    return psi
