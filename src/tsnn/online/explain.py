"""Why a score is what it is: its parts, the facts behind them, and where source and destination stand."""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from textwrap import fill
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tsnn.errors import InputError
from tsnn.files import write_whole
from tsnn.model.features import feature_matrix, features
from tsnn.online.standpoint import Standpoint
from tsnn.plan.facts import COLUMN, UNSEEN
from tsnn.sheaf.householder import frame_matrix
from tsnn.types import F64, I64

NEAREST = 5
SHARED = 5
Meeting = tuple[int | float, int | None]


@dataclass(frozen=True)
class FeatureReason:
    """A data feature, its value, and how much of the residual part it accounts for.

    `contribution` is the residual part as it is, less the residual part with this feature at `unseen`, its value for
    two nodes without any event. A gap and its "never" flag are put there together; the flag has no share of its own.
    `says` is the fact behind the feature, in plain words.
    """

    name: str
    says: str
    value: float
    unseen: float
    contribution: float


@dataclass(frozen=True)
class Neighbor:
    """A node and its distance from the source in synchronized coordinates."""

    node: Hashable
    distance: float


@dataclass(frozen=True)
class Drift:
    """How far a frame U has turned from its initial U0: two norms of U - U0, and the largest angle."""

    node: Hashable
    operator_norm: float
    frobenius_norm: float
    degrees: float


@dataclass(frozen=True)
class Explanation:
    """A score taken apart; `score` = geometric + residual + edgebank."""

    src: Hashable
    dst: Hashable
    t: int | float
    edge_type: int | None
    score: float
    geometric: float
    residual: float
    edgebank: float
    distance: float  # between source and destination, in synchronized coordinates
    facts: dict[str, float]
    features: list[FeatureReason]
    nearest_partners: list[Neighbor]  # among the source's recent partners
    nearest: list[Neighbor]  # among all nodes that have had an event
    shared: list[Meeting]  # last events of the two that are remembered, either way: time and relation
    drift: list[Drift]

    def to_dict(self) -> dict[str, Any]:
        """The explanation as JSON would hold it."""
        return asdict(self)

    def text(self) -> str:
        """The explanation in a few lines."""
        return "\n".join(_lines(self))

    def figure(self, path: str | Path) -> None:
        """Draw it to a PNG or SVG file."""
        draw(self, Path(path))


@torch.no_grad()
def explain_score(question: Standpoint, cand: int, src: Hashable, dst: Hashable) -> Explanation:
    """Take apart the score of one candidate."""
    state, candidates = question.state, np.array([cand])
    plan, compared = question.survey(candidates, np.array([True])), question.compare(candidates)
    parts = state.model.decode(compared, plan, question.stream)
    geometric, residual, edgebank = (float(x) for x in (parts.geometric, parts.residual, parts.edgebank))
    return Explanation(
        src=src,
        dst=dst,
        t=question.t,
        edge_type=question.edge_type if state.model.shape.num_relations else None,
        score=geometric + residual + edgebank,
        geometric=geometric,
        residual=residual,
        edgebank=edgebank,
        distance=math.sqrt(float(compared.geometry.d2)),
        facts=dict(zip(COLUMN, plan.facts[0].tolist(), strict=True)),
        features=_feature_reasons(question, cand, residual, src, dst),
        nearest_partners=_nearest(question, _partners(question)),
        nearest=_nearest(question, _met(question)),
        shared=_shared(question, cand),
        drift=[_drift(question, node, name) for node, name in ((question.src, src), (cand, dst))],
    )


def _feature_reasons(
    question: Standpoint, cand: int, residual: float, src: Hashable, dst: Hashable
) -> list[FeatureReason]:
    """One decoding of as many copies of the candidate as there are features, each without one of them."""
    model, table = question.state.model, features(question.state.model.config.features)
    copies = np.full(len(table), cand)
    plan = question.survey(copies, np.ones(len(table), np.bool_))
    plain = replace(plan, facts=np.tile(UNSEEN.astype(plan.facts.dtype), (len(table), 1)))
    data, unseen = model.data_features(plan), model.data_features(plain)
    for j, feature in enumerate(table):
        group = [i for i, other in enumerate(table) if other.fact == feature.fact]
        data[j, group] = unseen[j, group]
    without = model.decode(question.compare(copies), plan, question.stream, data).residual.tolist()
    values, zeros = _raw(question, plan.facts), _raw(question, plain.facts)
    facts: list[float] = plan.facts[0].tolist()
    return [
        FeatureReason(
            name=feature.name,
            says=feature.fact.sentence(facts[COLUMN[feature.fact.name]], model.shape.mean_gap, src, dst),
            value=values[j],
            unseen=zeros[j],
            contribution=0.0 if feature.rule == "never" else residual - without[j],
        )
        for j, feature in enumerate(table)
    ]


def _raw(question: Standpoint, facts: F64) -> list[float]:
    """Features of the first row, before they are standardized."""
    model = question.state.model
    gaps, mean_gap = model.config.model.gaps, model.shape.mean_gap
    first: list[float] = feature_matrix(facts[:1], model.config.features, gaps=gaps, mean_gap=mean_gap)[0].tolist()
    return first


def _partners(question: Standpoint) -> I64:
    tables = question.moment.counters.tables
    size = min(int(tables.ring_len[question.src]), tables.ring_id.shape[1])
    return np.unique(tables.ring_id[question.src, :size]).astype(np.int64)


def _met(question: Standpoint) -> I64:
    """Nodes that have had an event, the source apart."""
    known = len(question.state.ids)
    has_events = question.moment.counters.tables.degree[:known] > 0
    if question.src < known:
        has_events[question.src] = False
    return np.flatnonzero(has_events)


def _nearest(question: Standpoint, nodes: I64, count: int = NEAREST) -> list[Neighbor]:
    if not len(nodes):
        return []
    d2 = question.compare(nodes).geometry.d2.numpy()
    best = np.argsort(d2, kind="stable")[:count]
    external = question.state.ids.external
    return [Neighbor(external[nodes[i]], math.sqrt(float(d2[i]))) for i in best]


def _shared(question: Standpoint, cand: int) -> list[Meeting]:
    state = question.state
    if max(question.src, cand) >= len(state.ids):
        return []
    other = state.ids.external[cand]
    counters = question.moment.counters
    events = state.recent(counters, question.src, counters.tables.ring_id.shape[1])
    return [(t, relation) for name, t, relation in events if name == other][:SHARED]


def _drift(question: Standpoint, node: int, name: Hashable) -> Drift:
    """U against the frame the node was born with; the angle follows from |U - U0| = 2 sin(angle / 2)."""
    state = question.state
    if node >= len(state.ids):
        return Drift(name, 0.0, 0.0, 0.0)
    eps = state.model.config.model.reflector_eps
    _, F = state.store.read(np.array([node]), question.moment.settled)
    initial = state.store.initial_frames(state.ids.keys[[node]])
    turned: Tensor = frame_matrix(F[0].double(), eps) - frame_matrix(initial[0].double(), eps)
    largest = float(torch.linalg.matrix_norm(turned, 2))
    angle = 2.0 * math.asin(min(largest / 2.0, 1.0))
    return Drift(name, largest, float(torch.linalg.matrix_norm(turned)), math.degrees(angle))


def _lines(e: Explanation) -> list[str]:
    relation = "" if e.edge_type is None else f", relation {e.edge_type}"
    lines = [f"{e.src} -> {e.dst} at {e.t}{relation}: score {e.score:z.4f}"]
    parts = ("geometric", e.geometric), ("residual", e.residual), ("EdgeBank", e.edgebank)
    lines += [f"  {name:<10}{value:+z.4f}" for name, value in parts]
    lines.append(f"  distance in synchronized coordinates {e.distance:.4f}")
    strongest = sorted(e.features, key=lambda f: -abs(f.contribution))
    lines.append("behind the residual part: what a fact adds, against nodes never seen")
    lines += [f"  {f.contribution:+z.4f}  {f.says}" for f in strongest if f.contribution][:8]
    for title, neighbors in (("nearest partners", e.nearest_partners), ("nearest of all", e.nearest)):
        lines.append(f"{title}: " + (", ".join(f"{n.node} ({n.distance:.3f})" for n in neighbors) or "none"))
    lines.append("last shared events: " + (", ".join(str(t) for t, _ in e.shared) or "none remembered"))
    lines += [f"frame of {d.node} has turned by up to {d.degrees:.1f} degrees" for d in e.drift]
    return lines


def draw(e: Explanation, path: Path) -> None:
    """Parts and strongest features as bars, neighbors by distance."""
    from matplotlib.figure import Figure  # a second to import, and few explanations are drawn

    if path.suffix.lower() not in (".png", ".svg"):
        raise InputError(f"{path.name} is neither .png nor .svg; name the figure so.")
    figure = Figure(figsize=(15, 5), layout="constrained")
    left, middle, right = figure.subplots(1, 3)
    _bars(left, ["geometric", "residual", "EdgeBank", "score"], [e.geometric, e.residual, e.edgebank, e.score])
    left.set_title(f"{e.src} → {e.dst} at {e.t}")
    strongest = sorted(e.features, key=lambda f: -abs(f.contribution))[:8]
    _bars(middle, [fill(f.says, 44) for f in strongest], [f.contribution for f in strongest])
    middle.set_title("share of the residual part")
    near = [(f"{n.node} (partner)", n.distance) for n in e.nearest_partners]
    near += [(str(n.node), n.distance) for n in e.nearest]
    near.append((f"{e.dst} (asked)", e.distance))
    near.sort(key=lambda pair: pair[1])
    _bars(right, [name for name, _ in near], [distance for _, distance in near])
    right.set_title(f"distance from {e.src}")
    kind = path.suffix.lower()[1:]
    write_whole(path, lambda partial: figure.savefig(partial, format=kind, dpi=120))


def _bars(axes: Any, names: list[str], values: list[float]) -> None:
    colors = ["#2a6f97" if value >= 0 else "#c1553b" for value in values]
    axes.barh(range(len(values)), values, color=colors)
    axes.set_yticks(range(len(values)), names)
    axes.invert_yaxis()
    axes.axvline(0.0, color="black", linewidth=0.8)
