"""Why a score is what it is: reasons in sentences that add up, the numbers behind them, and where the nodes stand."""

from __future__ import annotations

import html
import math
from collections.abc import Hashable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tsnn.data.description import Description
from tsnn.online import sentences
from tsnn.online.attribution import attribute, facts_read, others_of
from tsnn.online.picture import draw
from tsnn.online.sentences import ABOUT, GROUPS, Clock, Told
from tsnn.online.standpoint import Standpoint
from tsnn.plan.chunk import ScorePlan
from tsnn.plan.facts import COLUMN, FACTS, Fact
from tsnn.sheaf.householder import frame_matrix
from tsnn.tabular import Brief, Columns, Tabular
from tsnn.training.run import Run
from tsnn.types import F64, I64

NEAREST = 5
SHARED = 5
WHY = 3  # reasons that speak for a destination, where there is room for one line
SMALL = 0.005  # a contribution below shows as 0.00
When = int | float | str  # a time as the run's data has it: a number, or a date
Meeting = tuple[When, str | int | None]


@dataclass(frozen=True)
class FactShown:
    """A fact among the numbers: its value, and the median of the destinations that it is measured against."""

    name: str
    says: str
    value: float
    usual: float
    shown: str  # the value in its unit
    usually: str  # the median in its unit


@dataclass(frozen=True)
class Reason:
    """What one group of facts says and adds to the score; together, contributions are the score less its baseline."""

    about: str  # the group, one of `tsnn.online.sentences.GROUPS`
    title: str
    sentence: str
    contribution: float
    facts: list[FactShown]


@dataclass(frozen=True)
class Baseline:
    """What a score is measured against: the mean score of some of the destinations that the run's question ranks."""

    score: float
    destinations: int
    of: int
    says: str


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


@dataclass(frozen=True, repr=False)
class Explanation(Tabular, Brief):
    """A score taken apart, twice: into reasons, and into geometric + residual + edgebank. As a table: its reasons."""

    src: Hashable
    dst: Hashable
    t: When
    edge_type: str | int | None
    score: float
    baseline: Baseline
    reasons: list[Reason]  # strongest first
    why: str  # those that speak for the destination, in one line
    source: Reason  # the same for every destination, so it adds nothing
    remark: str  # what has to be known of the run, mostly nothing
    geometric: float
    residual: float
    edgebank: float
    distance: float  # between source and destination, in synchronized coordinates
    facts: dict[str, float]
    nearest_partners: list[Neighbor]  # among the source's recent partners
    nearest: list[Neighbor]  # among all nodes that have had an event
    shared: list[Meeting]  # last events of the two that are remembered, either way: time and relation
    drift: list[Drift]

    @property
    def telling(self) -> list[Reason]:
        """The reasons that make a difference; a contribution that rounds to nothing is not worth a line."""
        return [reason for reason in self.reasons if abs(reason.contribution) >= SMALL]

    def brief(self) -> dict[str, object]:
        """What was asked, and the answer in a line."""
        return {"src": self.src, "dst": self.dst, "t": self.t, "score": f"{self.score:.4f}", "why": self.why}

    def columns(self) -> Columns:
        """The reasons, strongest first."""
        names = ("title", "contribution", "sentence")
        return {name: [getattr(reason, name) for reason in self.reasons] for name in names}

    def _repr_html_(self) -> str:
        return f"<p>{html.escape(_headline(self))}<br>{html.escape(self.baseline.says)}</p>{super()._repr_html_()}"

    def to_dict(self) -> dict[str, Any]:
        """The explanation as JSON would hold it."""
        return asdict(self)

    def text(self, numbers: bool = False) -> str:
        """The explanation in a few lines; with the numbers, in some more."""
        return "\n".join([*_lines(self), *(_number_lines(self) if numbers else [])])

    def figure(self, path: str | Path, numbers: bool = False) -> None:
        """Draw it to a PNG or SVG file."""
        draw(self, Path(path), numbers)


@torch.no_grad()
def explain_score(standpoint: Standpoint, cand: int, src: Hashable, dst: Hashable, run: Run) -> Explanation:
    """Take apart the score of one candidate."""
    model, description = standpoint.state.model, run.description
    own = np.array([cand])
    plan, compared = standpoint.survey(own, np.array([True])), standpoint.compare(own)
    parts = model.decode(compared, plan, standpoint.stream)
    geometric, residual, edgebank = (float(x) for x in (parts.geometric, parts.residual, parts.edgebank))
    score = geometric + residual + edgebank
    others, of = others_of(standpoint, run.question, cand)
    among = np.concatenate([own, others])
    beside = standpoint.survey(among, np.concatenate([[True], np.isin(others, standpoint.related)]))
    mean, contributions = attribute(standpoint, beside, score)
    told = _told(standpoint, beside, src, dst, description)
    reasons = [_reason(group, told, contribution) for group, contribution in contributions.items()]
    reasons.sort(key=lambda reason: -abs(reason.contribution))
    return Explanation(
        src=src,
        dst=dst,
        t=description.show_time(standpoint.t),
        edge_type=description.relation_name(standpoint.edge_type) if model.shape.num_relations else None,
        score=score,
        baseline=Baseline(mean, len(others), of, sentences.measured(score, mean, len(others), of)),
        reasons=reasons,
        why=_why(reasons),
        source=_reason("source", told, 0.0),
        remark=run.remark,
        geometric=geometric,
        residual=residual,
        edgebank=edgebank,
        distance=math.sqrt(float(compared.geometry.d2)),
        facts=dict(zip(COLUMN, plan.facts[0].tolist(), strict=True)),
        nearest_partners=_nearest(standpoint, _partners(standpoint)),
        nearest=_nearest(standpoint, _met(standpoint)),
        shared=_shared(standpoint, cand, description),
        drift=[_drift(standpoint, node, name) for node, name in ((standpoint.src, src), (cand, dst))],
    )


def _told(standpoint: Standpoint, plan: ScorePlan, src: Hashable, dst: Hashable, description: Description) -> Told:
    """Everything that sentences about these two are made of; `plan` is of the candidate and then of the others."""
    state, cand = standpoint.state, int(plan.cand[0])
    config, shape = state.model.config, state.model.shape
    facts: F64 = plan.facts.astype(np.float64)
    distances: F64 = np.sqrt(standpoint.compare(plan.cand).geometry.d2.numpy())
    relation = description.relation_name(standpoint.edge_type) if shape.num_relations else ""
    last = standpoint.moment.counters.tables.last_dst[standpoint.src]
    types = standpoint.stream.node_type
    return Told(
        src=sentences.shortened(src),
        dst=sentences.shortened(dst),
        facts=dict(zip(COLUMN, facts[0].tolist(), strict=True)),
        others={name: facts[1:, column] for name, column in COLUMN.items()},
        clock=Clock(description.dates, shape.mean_gap),
        fade=config.features.activity_decay * shape.mean_gap,
        span=float(standpoint.t - state.origin),
        window=config.model.edgebank_window * shape.mean_gap,
        reads=facts_read(standpoint),
        undirected=description.undirected,
        itself=cand == standpoint.src,
        relation=str(relation),
        kind="" if types is None else description.type_name(int(types[cand])),
        last=_names(standpoint, last[last >= 0].tolist()),
        common=_names(standpoint, _common(standpoint, cand)),
        distances=(float(distances[0]), distances[1:]),
    )


def _names(standpoint: Standpoint, nodes: list[int]) -> tuple[str, ...]:
    external = standpoint.state.ids.external
    return tuple(sentences.shortened(external[node]) for node in nodes)


def _reason(group: str, told: Told, contribution: float) -> Reason:
    return Reason(
        about=group,
        title=GROUPS[group].title,
        sentence=GROUPS[group].sentence(told),
        contribution=contribution,
        facts=[_fact_shown(fact, told) for fact in FACTS if ABOUT[fact.name] == group and _says_something(fact, told)],
    )


def _says_something(fact: Fact, told: Told) -> bool:
    """Whether the score reads it, and it is not for everybody what it is for nodes never seen."""
    anybody = np.append(told.others[fact.name], told.facts[fact.name])
    return fact.name in told.reads and bool((anybody != fact.unseen).any())


def _fact_shown(fact: Fact, told: Told) -> FactShown:
    value, usual = told.facts[fact.name], float(np.median(told.others[fact.name]))
    shown, usually = told.clock.shown(fact, value), told.clock.shown(fact, usual)
    return FactShown(fact.name, told.words(fact), value, usual, shown, usually)


def _why(reasons: list[Reason]) -> str:
    """The strongest that speak for the destination, leaving out what hardly counts beside them."""
    speaking = [reason for reason in reasons if reason.contribution > max(SMALL, 0.1 * reasons[0].contribution)]
    return "; ".join(reason.sentence for reason in speaking[:WHY]) or "nothing speaks for it in particular"


def _partners(standpoint: Standpoint) -> I64:
    tables = standpoint.moment.counters.tables
    size = min(int(tables.ring_len[standpoint.src]), tables.ring_id.shape[1])
    return np.unique(tables.ring_id[standpoint.src, :size]).astype(np.int64)


def _common(standpoint: Standpoint, cand: int) -> list[int]:
    """The recent partners of both that `cn_count` counts, those whom either met last first."""
    tables, limit = standpoint.moment.counters.tables, standpoint.state.model.config.features.cn_neighbors
    met: list[dict[int, float]] = []
    for node in (standpoint.src, cand):
        ring = tables.ring_id.shape[1]
        back = np.arange(min(int(tables.ring_len[node]), ring, limit))[::-1]  # oldest first: the last meeting stays
        at = (tables.ring_len[node] - 1 - back) % ring
        met.append(dict(zip(tables.ring_id[node, at].tolist(), tables.ring_t[node, at].tolist(), strict=True)))
    src, dst = met
    return sorted((node for node in src if node in dst), key=lambda node: -max(src[node], dst[node]))


def _met(standpoint: Standpoint) -> I64:
    """Nodes that have had an event, the source apart."""
    known = len(standpoint.state.ids)
    has_events = standpoint.moment.counters.tables.degree[:known] > 0
    if standpoint.src < known:
        has_events[standpoint.src] = False
    return np.flatnonzero(has_events)


def _nearest(standpoint: Standpoint, nodes: I64, count: int = NEAREST) -> list[Neighbor]:
    if not len(nodes):
        return []
    d2 = standpoint.compare(nodes).geometry.d2.numpy()
    best = np.argsort(d2, kind="stable")[:count]
    external = standpoint.state.ids.external
    return [Neighbor(external[nodes[i]], math.sqrt(float(d2[i]))) for i in best]


def _shared(standpoint: Standpoint, cand: int, description: Description) -> list[Meeting]:
    state = standpoint.state
    if max(standpoint.src, cand) >= len(state.ids):
        return []
    other = state.ids.external[cand]
    counters = standpoint.moment.counters
    events = state.recent(counters, standpoint.src, counters.tables.ring_id.shape[1])
    return [
        (description.show_time(t), None if relation is None else description.relation_name(relation))
        for name, t, relation in events
        if name == other
    ][:SHARED]


def _drift(standpoint: Standpoint, node: int, name: Hashable) -> Drift:
    """U against the frame the node was born with; the angle follows from |U - U0| = 2 sin(angle / 2)."""
    state = standpoint.state
    if node >= len(state.ids):
        return Drift(name, 0.0, 0.0, 0.0)
    eps = state.model.config.model.reflector_eps
    _, F = state.store.read(np.array([node]), standpoint.moment.settled)
    _, initial = state.store.initial(state.ids.keys[[node]])
    turned: Tensor = frame_matrix(F[0].double(), eps) - frame_matrix(initial[0].double(), eps)
    largest = float(torch.linalg.matrix_norm(turned, 2))
    angle = 2.0 * math.asin(min(largest / 2.0, 1.0))
    return Drift(name, largest, float(torch.linalg.matrix_norm(turned)), math.degrees(angle))


def _headline(e: Explanation) -> str:
    relation = "" if e.edge_type is None else f", relation {e.edge_type}"
    return f"{e.src} -> {e.dst} at {sentences.moment(e.t)}{relation}: score {e.score:z.4f}"


def _lines(e: Explanation) -> list[str]:
    lines = [_headline(e), e.baseline.says]
    lines += [f"  {reason.contribution:+z.2f}  {reason.title}: {reason.sentence}" for reason in e.telling]
    lines.append(f"{e.src}: {e.source.sentence}; that is the same for every destination")
    return lines + [e.remark] * bool(e.remark)


def _number_lines(e: Explanation) -> list[str]:
    lines = []
    for reason in [*e.reasons, e.source]:
        lines.append(f"{reason.title}: {reason.contribution:+z.4f}")
        lines += [f"  {fact.says}: {fact.shown} (usually {fact.usually})" for fact in reason.facts]
    lines.append("the score as the sum of its parts")
    parts = ("geometric", e.geometric), ("residual", e.residual), ("EdgeBank", e.edgebank)
    lines += [f"  {name:<10}{value:+z.4f}" for name, value in parts]
    lines.append(f"distance in synchronized coordinates {e.distance:.4f}")
    for title, neighbors in (("nearest partners", e.nearest_partners), ("nearest of all", e.nearest)):
        lines.append(f"{title}: " + (", ".join(f"{n.node} ({n.distance:.3f})" for n in neighbors) or "none"))
    lines.append("last shared events: " + (", ".join(sentences.moment(t) for t, _ in e.shared) or "none remembered"))
    lines += [f"frame of {d.node} has turned by up to {d.degrees:.1f} degrees" for d in e.drift]
    return lines
