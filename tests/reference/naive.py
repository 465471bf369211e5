"""The oracle: Algorithm 1 (`alg:tsnn`) as the paper writes it, float64, Python loops, dense matrices.

It shares no code with the package. Speed is no aim; a reader with the paper in the hand should find every line in it.

Notation (sec:method). The conventions that could be guessed wrong:
    h_w              (d,)    stalk of node w, in w's own coordinates
    F_w              (k, d)  frame of w; its rows f^(1) .. f^(k) are Householder vectors
    U_w              (d, d)  H(f^(k)) ... H(f^(1)): reflector 1 acts first (eq:householder_product, D-01)
    Q_ab             (d, d)  U_a^T U_b, takes a vector from b's coordinates to a's
    N_w              list    the most recent partners of w, oldest first, repeats kept
    cut              int     how many leading rows of the stream an answer may see
`D-xx` are the numbered decisions where the paper is silent or contradicts itself.
"""

from __future__ import annotations

import copy
import math
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

TWO_HOP_CAP = 10  # neighbors per intermediate node, "Common-neighbor structural features"
LAST_DESTINATIONS = 3
KAPPA_MIN = 1e-6
NORM_EPS = 1e-5
NEVER = -1.0


# ---------------------------------------------------------------------------------------------- inputs


@dataclass(frozen=True)
class ModelSwitches:
    stalk_dim: int = 64
    num_reflectors: int = 2
    hidden_dim: int = 100
    time_dim: int = 16
    relation_dim: int = 8
    type_dim: int = 4
    num_neighbors: int = 10
    diffusion_steps: int = 1
    step_size: float = 0.01
    reflector_eps: float = 1e-6
    transport: bool = True
    frame_update: bool = True
    carry_over: bool = True
    residual: bool = True
    edgebank: bool = True
    edgebank_window: float = 0.0
    relation_bias: bool = True
    stalks: str = "zero"  # the caller gives the first stalks
    partners: bool = False
    role: bool = False
    frame_length: str = "free"
    attention: bool = False
    attention_heads: int = 4
    attention_dropout: float = 0.0  # not modelled: the oracle is deterministic
    score_dim: int = 64
    kappa: float = 50.0  # only the initial value of rho_kappa, which is a parameter here
    kappa_scale: str = "softplus"
    frame_drift: float = 0.1  # this and the next two say how parameters begin
    gate: float = 2.0
    quiet_geometry: bool = True
    standardize_msg: bool = True  # the caller gives messages as they are read
    scalars: str = "bounded"
    gaps: str = "log"


@dataclass(frozen=True)
class FeatureSwitches:
    never: bool = True
    pairs: bool = True
    common_neighbors: bool = True
    two_hop: bool = True
    successor: bool = True
    edgebank_recency: bool = True
    activity: bool = True
    activity_decay: float = 1e4
    strength: bool = True
    walks: bool = True
    walk_dim: int = 64
    walk_decay: float = 1e5
    encoded_gaps: bool = False
    transported_difference: bool = False
    cn_neighbors: int = 20
    cn_decay: float = 1000.0


@dataclass(frozen=True)
class LossWeights:
    ce: float = 1.0
    binary: float = 1.0
    geo: float = 0.01
    geo_products: str = "raw"
    geo_temperature: float = 1.0
    bias: float = 1e-4
    smooth: float = 1e-3
    energy: float = 1e-3


@dataclass(frozen=True)
class NaiveConfig:
    """The switches, with the names of the package's configuration. Unknown names are errors."""

    model: ModelSwitches = ModelSwitches()
    features: FeatureSwitches = FeatureSwitches()
    loss: LossWeights = LossWeights()

    @classmethod
    def build(cls, model: dict | None = None, features: dict | None = None, loss: dict | None = None) -> NaiveConfig:
        return cls(ModelSwitches(**(model or {})), FeatureSwitches(**(features or {})), LossWeights(**(loss or {})))


class Query(NamedTuple):
    """Which of `candidates` (the positive first) is `src`'s destination at `t`, seen from the first `cut` rows?"""

    cut: int
    src: int
    t: float
    edge_type: int
    candidates: Sequence[int]


@dataclass
class NaiveEvents:
    """The stream; arrays or lists. `edge_type`, `node_type` and `msg` are None where the stream has none."""

    src: Sequence[int]
    dst: Sequence[int]
    t: Sequence[float]
    msg: Any = None
    edge_type: Sequence[int] | None = None
    node_type: Sequence[int] | None = None
    num_nodes: int = 0
    num_relations: int = 0
    num_types: int = 0
    undirected: bool = False  # an event is one of two equals, seen from both ends

    def __post_init__(self) -> None:
        self.src, self.dst, self.t = _plain(self.src), _plain(self.dst), _plain(self.t)
        self.edge_type = None if self.edge_type is None else _plain(self.edge_type)
        self.node_type = None if self.node_type is None else _plain(self.node_type)
        self.msg = None if self.msg is None else _tensor(self.msg)

    def __len__(self) -> int:
        return len(self.src)

    @property
    def msg_dim(self) -> int:
        return 0 if self.msg is None else int(self.msg.shape[1])

    def row(self, i: int) -> tuple[int, int, float, int]:
        return self.src[i], self.dst[i], self.t[i], self.relation(self.edge_type[i] if self.edge_type else 0)

    def relation(self, edge_type: int | None) -> int:
        """Where the stream has no relations, all events are of relation 0."""
        return int(edge_type or 0) if self.num_relations else 0


def _plain(values: Any) -> list:
    return np.asarray(values).tolist()


def _tensor(values: Any) -> Tensor:
    return torch.tensor(np.asarray(values), dtype=torch.float64)


def mean_gap(t: Sequence[float]) -> float:
    """Mean inter-event gap of a (training) stream; 1 where there is none."""
    span = float(t[-1] - t[0]) if len(t) > 1 else 0.0
    return span / (len(t) - 1) if span > 0 else 1.0


# ------------------------------------------------------------------------------------- parameters


def psi_dim(config: NaiveConfig, num_relations: int, num_types: int) -> int:
    """Width of the score features (eq:score_features)."""
    m, f = config.model, config.features
    data = 4 + 4 * f.pairs + 3 * f.edgebank_recency + 4 * f.common_neighbors + 2 * f.two_hop + 8 * f.successor
    data += 9 * f.activity + 3 * f.strength + 20 * f.walks
    if not f.never:
        data -= 2 + f.pairs + f.edgebank_recency + f.activity
    embedded = m.relation_dim * (num_relations > 0) + 2 * m.type_dim * (num_types > 0)
    return (
        5 + data + embedded + 2 * m.time_dim * f.encoded_gaps + m.stalk_dim * f.transported_difference + 5 * m.partners
    )


def parameter_shapes(
    config: NaiveConfig, num_relations: int = 0, num_types: int = 0, msg_dim: int = 0, num_nodes: int = 0
) -> dict[str, tuple[int, ...]]:
    """Names and shapes of every parameter the oracle may read under this configuration."""
    m = config.model
    d, k, R = m.stalk_dim, m.num_reflectors, num_relations
    shapes = {"updater.theta": (d,), "head.rho_kappa": (), "head.gate": (max(R, 1),), "head.beta": ()}
    update_in = 2 * d + msg_dim + m.time_dim + m.relation_dim * (R > 0) + m.role
    _affine(shapes, "updater.frame_in", update_in, m.hidden_dim)
    _affine(shapes, "updater.frame_out", m.hidden_dim, k * d)
    _affine(shapes, "updater.msg_in", update_in, m.hidden_dim)
    _affine(shapes, "updater.msg_out", m.hidden_dim, d)
    for side in ("ih", "hh"):
        shapes |= {f"updater.gru.weight_{side}": (3 * d, d), f"updater.gru.bias_{side}": (3 * d,)}
    _affine(shapes, "head.mlp.0", psi_dim(config, R, num_types), m.score_dim)
    _affine(shapes, "head.mlp.2", m.score_dim, m.score_dim)
    _affine(shapes, "head.mlp.4", m.score_dim, 1)
    if R:
        shapes["relation.weight"] = (R, m.relation_dim)
    if R and m.relation_bias:
        shapes |= {"frame_bias": (R, k, d), "frame_bias_scale": (R,)}
    if num_types:
        shapes["type_embedding.weight"] = (num_types, m.type_dim)
    if m.attention:
        shapes |= _attention_shapes(m, R)
    if m.partners:
        shapes |= _partner_shapes(m, R, num_nodes)
    return shapes


def _affine(shapes: dict[str, tuple[int, ...]], name: str, width_in: int, width_out: int) -> None:
    shapes[f"{name}.weight"] = (width_out, width_in)
    shapes[f"{name}.bias"] = (width_out,)


def _attention_shapes(m: ModelSwitches, num_relations: int) -> dict[str, tuple[int, ...]]:
    d = m.stalk_dim
    shapes = {f"attention.{name}.weight": (d, d) for name in ("query", "key", "value", "out")}
    shapes |= {"attention.time.weight": (d, m.time_dim // 2), "attention.null": (d,)}
    shapes |= {"attention.norm.weight": (d,), "attention.norm.bias": (d,)}
    if num_relations:
        shapes["attention.relation.weight"] = (d, m.relation_dim)
    return shapes


def _partner_shapes(m: ModelSwitches, num_relations: int, num_nodes: int) -> dict[str, tuple[int, ...]]:
    d, H, told = m.stalk_dim, m.attention_heads, 8 + m.num_neighbors + m.relation_dim * (num_relations > 0)
    shapes = {"partners.vectors": (num_nodes + 1, d), "partners.query": (H, d // H), "partners.null": (d,)}
    shapes["partners.null_weight"] = (H,)
    shapes |= {f"partners.{name}.weight": (d, d) for name in ("key", "value", "out")}
    for name, width in (("key_told", d), ("value_told", d), ("weight_told", H)):
        _affine(shapes, f"partners.{name}", told, width)
    return shapes


def random_parameters(shapes: dict[str, tuple[int, ...]], seed: int = 0, scale: float = 0.3) -> dict[str, Tensor]:
    """Leaves for tests: every parameter normal, none at a special value such as zero."""
    rng = np.random.default_rng(seed)
    return {name: _tensor(rng.normal(0, scale, shape)).requires_grad_() for name, shape in shapes.items()}


# ------------------------------------------------------------------------------ what is remembered


class EdgeBank:
    """`alg:edgebank`: counts C, last times T and the deque of what is inside the window. `window` 0 is unlimited."""

    def __init__(self, window: float) -> None:
        self.window = window
        self.C: Counter[tuple[int, int, int]] = Counter()
        self.T: dict[tuple[int, int, int], float] = {}
        self.queue: deque[tuple[float, tuple[int, int, int]]] = deque()

    def expire(self, t: float) -> None:
        while self.window and self.queue and t - self.queue[0][0] > self.window:
            _, key = self.queue.popleft()
            self.C[key] -= 1
            if self.C[key] <= 0:
                del self.C[key], self.T[key]

    def observe(self, key: tuple[int, int, int], t: float) -> None:
        if self.window:
            self.expire(t)
            self.queue.append((t, key))
        self.C[key] += 1
        self.T[key] = t

    def count(self, key: tuple[int, int, int], t: float) -> int:
        """What C would hold after Expire(t), without expiring anything (D-02)."""
        stale = sum(1 for seen, other in self.queue if other == key and t - seen > self.window)
        return self.C[key] - stale

    def gap(self, key: tuple[int, int, int], t: float) -> float:
        return t - self.T[key] if self.count(key, t) else NEVER

    def score(self, key: tuple[int, int, int], t: float) -> float:
        return math.log1p(self.count(key, t))


class Entry(NamedTuple):
    """One event as it stands in a node's neighbor buffer."""

    node: int
    t: float
    r: int


class Past(NamedTuple):
    """One event of a node: when, and the length of its message."""

    t: float
    length: float


@dataclass
class State:
    """Everything that rows 0 .. rows-1 have left behind."""

    h: list[Tensor]
    F: list[Tensor]
    bank: EdgeBank
    buffer_size: int
    rows: int = 0
    last: dict[int, float] = field(default_factory=dict)  # last time in any role
    last_in: dict[int, int] = field(default_factory=dict)  # last row as a destination
    past_out: dict[int, list[Past]] = field(default_factory=dict)  # all events as source
    past_in: dict[int, list[Past]] = field(default_factory=dict)  # and as destination
    count: Counter[int] = field(default_factory=Counter)  # events in any role
    count_in: Counter[int] = field(default_factory=Counter)
    buffers: dict[int, list[Entry]] = field(default_factory=dict)  # oldest first
    pair_times: dict[tuple[int, int], list[float]] = field(default_factory=dict)
    pair_length: dict[tuple[int, int], float] = field(default_factory=dict)  # of the last message
    destinations: dict[int, list[int]] = field(default_factory=dict)  # of each source, oldest first
    succ: Counter[tuple[int, int]] = field(default_factory=Counter)
    succ_total: Counter[int] = field(default_factory=Counter)
    trips: Counter[tuple[int, int, int]] = field(default_factory=Counter)
    walk: dict[int, list[np.ndarray]] = field(default_factory=dict)  # sums of signatures at the ends of 0, 1, 2 steps
    walk_decay: float = 1.0
    undirected: bool = False

    @classmethod
    def initial(
        cls, config: NaiveConfig, frames0: Any, gap: float, signatures: Any = None, undirected: bool = False,
        stalks0: Any = None,
    ) -> State:  # fmt: skip
        """The given frames, and zero stalks (app:inductive) or the given ones; nothing seen."""
        frames = _tensor(frames0)
        h = [torch.zeros(config.model.stalk_dim, dtype=torch.float64) for _ in frames]
        if stalks0 is not None:
            h = list(_tensor(stalks0))
        size = max(config.model.num_neighbors, config.features.cn_neighbors)
        walk = {}
        if config.features.walks and signatures is not None:
            walk = {node: [np.asarray(s, float), 0.0 * s, 0.0 * s] for node, s in enumerate(signatures)}
        decay = config.features.walk_decay * gap
        bank = EdgeBank(config.model.edgebank_window * gap)
        return cls(h, list(frames), bank, size, walk=walk, walk_decay=decay, undirected=undirected)

    def detached(self) -> State:
        """A copy that shares nothing with this one and carries no gradient: the end of a chunk (alg:train)."""
        other = copy.copy(self)
        for name, value in vars(self).items():
            if name not in ("h", "F"):
                setattr(other, name, copy.deepcopy(value))
        other.h = [x.detach().clone() for x in self.h]
        other.F = [x.detach().clone() for x in self.F]
        return other

    def recent(self, node: int, n: int) -> list[Entry]:
        """The n most recent entries of a node's buffer, oldest first."""
        return self.buffers.get(node, [])[-n:]

    def remember(self, node: int, entry: Entry) -> None:
        self.buffers[node] = [*self.buffers.get(node, []), entry][-self.buffer_size :]

    def observe(self, u: int, v: int, t: float, r: int, length: float) -> None:
        """Step 6 of `alg:tsnn`, all of it that holds no tensors."""
        self.remember(u, Entry(v, t, r))
        if u != v:  # a self-loop is one entry (D-08)
            self.remember(v, Entry(u, t, r))
        self._observe_walks(u, v, t)
        for node in {u, v}:
            self.last[node] = t
            self.count[node] += 1
        for one, other in self.directions(u, v):
            self.last_in[other] = self.rows
            self.past_out.setdefault(one, []).append(Past(t, length))
            self.past_in.setdefault(other, []).append(Past(t, length))
            self.count_in[other] += 1
            self.pair_times.setdefault((one, other), []).append(t)
            self.pair_length[one, other] = length
            self._observe_successor(one, other)
            self.bank.observe((one, other, r), t)
        self.rows += 1

    def directions(self, u: int, v: int) -> list[tuple[int, int]]:
        """From source to destination; an undirected event is seen from both ends, a loop from its one."""
        return [(u, v), (v, u)] if self.undirected and u != v else [(u, v)]

    def num_pairs(self) -> int:
        """Distinct pairs seen: (u, v) and (v, u) are one where events are undirected."""
        return len({frozenset(pair) for pair in self.pair_times} if self.undirected else self.pair_times)

    def walks_at(self, node: int, t: float) -> list[np.ndarray]:
        """A node's walks, each step faded by exp(-time since / walk_decay) (TPNet's temporal walk matrices)."""
        fade = math.exp(-(t - self.last[node]) / self.walk_decay) if node in self.last else 0.0
        return [fade**i * sums for i, sums in enumerate(self.walk[node])]

    def _observe_walks(self, u: int, v: int, t: float) -> None:
        if not self.walk:
            return
        pre = {node: self.walks_at(node, t) for node in {u, v}}
        for node, other in {u: v, v: u}.items():
            self.walk[node] = [pre[node][0], *(pre[node][i] + pre[other][i - 1] for i in (1, 2))]

    def _observe_successor(self, u: int, v: int) -> None:
        visited = self.destinations.setdefault(u, [])
        if visited:
            self.succ[visited[-1], v] += 1
            self.succ_total[visited[-1]] += 1
        if len(visited) > 1:
            self.trips[visited[-2], visited[-1], v] += 1
        visited.append(v)


# --------------------------------------------------------------------------------------------- facts


def facts_of(config: NaiveConfig, state: State, query: Query, r: int, c: int, gap: float) -> dict[str, float]:
    """What the data alone says about candidate c: the columns of the package's FACTS."""
    u, t = query.src, query.t
    pair = state.pair_times.get((u, c), [])
    facts = {
        "src_gap": since(state.last, u, t),
        "dst_gap": since(state.last, c, t),
        "dst_in_age": float(state.rows - state.last_in[c]) if c in state.last_in else NEVER,
        "src_count": state.count[u],
        "dst_count": state.count[c],
        "dst_in_count": state.count_in[c],
        "dst_in_gap": t - state.past_in[c][-1].t if c in state.past_in else NEVER,
        "pair_count": len(pair),
        "pair_gap": t - pair[-1] if pair else NEVER,
        "pair_strength": state.pair_length.get((u, c), 0.0),
        "reverse_count": len(state.pair_times.get((c, u), [])),
        "bank_count": state.bank.count((u, c, r), t),
        "bank_gap": state.bank.gap((u, c, r), t),
    }
    facts |= common_neighbor_facts(config, state, u, c, t, gap)
    facts |= two_hop_facts(config, state, u, c)
    facts |= activity_facts(config, state, u, c, t, gap)
    facts |= successor_facts(state, u, c) | walk_facts(state, u, c, t)
    return {name: float(value) for name, value in facts.items()}


def since(times: dict[int, float], node: int, t: float) -> float:
    return t - times[node] if node in times else NEVER


def activity_facts(config: NaiveConfig, state: State, u: int, c: int, t: float, gap: float) -> dict[str, float]:
    """Events of either side in either role, each fading with its age; an undirected one is half an event in each."""
    scale = config.features.activity_decay * gap
    whole = 0.5 if state.undirected else 1.0
    facts = {}
    for side, node in (("src", u), ("dst", c)):
        counts, lengths = [], 0.0
        for past in (state.past_out.get(node, []), state.past_in.get(node, [])):
            weights = [whole * math.exp(-(t - event.t) / scale) for event in past]
            counts.append(sum(weights))
            lengths += sum(weight * event.length for weight, event in zip(weights, past, strict=True))
        events = sum(counts)
        facts |= {
            f"{side}_recent": events,
            f"{side}_in_share": counts[1] / events if events else 0.5,
            f"{side}_strength": lengths / events if events else 0.0,
        }
    return facts


def common_neighbor_facts(config: NaiveConfig, state: State, u: int, c: int, t: float, gap: float) -> dict[str, float]:
    """app:optional_score_features: count, decayed count, Adamic-Adar and Jaccard over the recent neighbors."""
    contact_u = last_contacts(config, state, u)
    contact_c = last_contacts(config, state, c)
    common = sorted(contact_u.keys() & contact_c.keys())
    union = contact_u.keys() | contact_c.keys()
    scale = config.features.cn_decay * gap
    return {
        "cn_count": len(common),
        "cn_decayed": sum(math.exp(-(t - max(contact_u[w], contact_c[w])) / scale) for w in common),
        "cn_adamic_adar": sum(1 / math.log(2 + state.count[w]) for w in common),
        "cn_jaccard": len(common) / len(union) if union else 0.0,
    }


def last_contacts(config: NaiveConfig, state: State, node: int) -> dict[int, float]:
    """Distinct recent neighbors of a node, each with the time of the last contact."""
    return {entry.node: entry.t for entry in state.recent(node, config.features.cn_neighbors)}


def two_hop_facts(config: NaiveConfig, state: State, u: int, c: int) -> dict[str, float]:
    """Paths u - w - x with x a recent neighbor of c, the expansion of w capped."""
    weight: Counter[int] = Counter()
    for w in last_contacts(config, state, u):
        weight.update({entry.node for entry in state.recent(w, TWO_HOP_CAP)} - {u})
    count = sum(weight[x] for x in last_contacts(config, state, c))
    return {"two_hop_count": count, "two_hop_share": count / max(1, weight.total())}


def walk_facts(state: State, u: int, c: int, t: float) -> dict[str, float]:
    """Walks of i steps from u meet walks of j steps from c where they end at the same node."""
    names = [(i, j) for i in range(3) for j in range(3) if i + j]
    if not state.walk:
        selves = {f"walk_{side}_{i}": 0.0 for side in ("src", "dst") for i in (1, 2)}
        return {f"walk_{cos}{i}{j}": 0.0 for i, j in names for cos in ("", "cos_")} | selves
    of_u, of_c = state.walks_at(u, t), state.walks_at(c, t)
    facts = {f"walk_{i}{j}": float(of_u[i] @ of_c[j]) for i, j in names}
    for i in (1, 2):
        facts |= {f"walk_src_{i}": float(of_u[i] @ of_u[i]), f"walk_dst_{i}": float(of_c[i] @ of_c[i])}
    for i, j in names:
        own = facts[f"walk_src_{i}"] if i else 1.0
        other = facts[f"walk_dst_{j}"] if j else 1.0
        facts[f"walk_cos_{i}{j}"] = facts[f"walk_{i}{j}"] / math.sqrt(max(own * other, 1e-12))
    return facts


def successor_facts(state: State, u: int, c: int) -> dict[str, float]:
    """How often did anybody go straight from one of u's last three destinations to c?"""
    facts: dict[str, float] = {}
    latest_first = state.destinations.get(u, [])[::-1]
    for j in range(LAST_DESTINATIONS):
        count = share = 0.0
        if j < len(latest_first):
            p = latest_first[j]
            count = state.succ[p, c]
            share = count / max(1, state.succ_total[p])
        facts |= {f"succ_count_{j + 1}": count, f"succ_share_{j + 1}": share}
    return facts | successor_pair_facts(state, latest_first[1::-1], c)


def successor_pair_facts(state: State, last_two: list[int], c: int) -> dict[str, float]:
    """How often did whoever went the last two destinations in this order go on to c?"""
    count = state.trips[(*last_two, c)] if len(last_two) == 2 else 0
    share = count / state.succ[tuple(last_two)] if count else 0.0
    return {"succ_pair_count": count, "succ_pair_share": share}


def features(facts: dict[str, float], config: NaiveConfig, gap: float) -> list[float]:
    """The data-only part of psi, in its fixed order."""
    f = config.features

    def lg(name: str) -> float:
        g = max(facts[name], 0.0)
        if config.model.gaps == "log":
            return math.log1p(g / gap)  # D-07
        return g if name in ("src_gap", "dst_gap") else math.log1p(g)

    def never(name: str) -> float:
        return 1.0 if facts[name] < 0 else 0.0  # D-06

    def logc(name: str) -> float:
        return math.log1p(max(facts[name], 0.0))  # sums of random walks may fall below zero

    lgs, logs, nevers, raws = ["src_gap", "dst_gap"], [], ["src_gap", "dst_gap"], []
    if f.pairs:
        lgs, logs, nevers = [*lgs, "pair_gap"], [*logs, "pair_count", "reverse_count"], [*nevers, "pair_gap"]
    if f.edgebank_recency:
        lgs, logs, nevers = [*lgs, "bank_gap"], [*logs, "bank_count"], [*nevers, "bank_gap"]
    if f.common_neighbors:
        logs, raws = [*logs, "cn_count"], [*raws, "cn_decayed", "cn_adamic_adar", "cn_jaccard"]
    if f.two_hop:
        logs, raws = [*logs, "two_hop_count"], [*raws, "two_hop_share"]
    if f.successor:
        logs += [*(f"succ_count_{j}" for j in (1, 2, 3)), "succ_pair_count"]
        raws += [*(f"succ_share_{j}" for j in (1, 2, 3)), "succ_pair_share"]
    if f.activity:
        lgs, nevers = [*lgs, "dst_in_gap"], [*nevers, "dst_in_gap"]
        logs += ["src_count", "dst_count", "dst_in_count", "src_recent", "dst_recent"]
        raws += ["src_in_share", "dst_in_share"]
    if f.strength:
        logs += ["src_strength", "dst_strength", "pair_strength"]
    if f.walks:
        meetings = [f"{i}{j}" for i in range(3) for j in range(3) if i + j]
        logs += [f"walk_{pair}" for pair in meetings]
        logs += [f"walk_{side}_{i}" for i in (1, 2) for side in ("src", "dst")]
        raws += [f"walk_cos_{pair}" for pair in meetings]
    nevers = nevers if f.never else []
    return [*map(lg, lgs), *map(logc, logs), *map(never, nevers), *(facts[name] for name in raws)]


# ------------------------------------------------------------------------------------------ the sheaf


def reflector(f: Tensor, eps: float) -> Tensor:
    """H_eps(f) = I - 2 f f^T / |f|^2, and I for a vector no longer than eps."""
    eye = torch.eye(len(f), dtype=torch.float64)
    if float(f.detach().norm()) <= eps:
        return eye
    return eye - 2 * torch.outer(f, f) / torch.dot(f, f)


def orthogonal_map(F: Tensor, eps: float) -> Tensor:
    """eq:householder_product: U = H(f^(k)) ... H(f^(1))."""
    U = torch.eye(F.shape[1], dtype=torch.float64)
    for f in F:
        U = reflector(f, eps) @ U
    return U


def active_edges(u: int, v: int, recent_u: Iterable[int], recent_v: Iterable[int]) -> list[tuple[int, int]]:
    """The undirected edges of the active graph, one per buffer entry (D-09). A self-loop event has one star."""
    edges = [(u, w) for w in recent_u]
    if u != v:
        edges += [(v, w) for w in recent_v]
    return edges


def adjacency(edges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """(a, b) for every b in N_a^act: both directions of every edge; an edge from a node to itself once."""
    directed = []
    for a, b in edges:
        directed.append((a, b))
        if a != b:
            directed.append((b, a))
    return directed


def sheaf_laplacian(nodes: list[int], edges: Iterable[tuple[int, int]], U: dict[int, Tensor]) -> Tensor:
    """eq:sheaf_laplacian, the (|A| d, |A| d) block matrix with restriction maps U; parallel edges add up."""
    zero = torch.zeros_like(U[nodes[0]])
    block = {(a, b): zero for a in nodes for b in nodes}
    for a, b in adjacency(edges):
        block[a, a] = block[a, a] + U[a].T @ U[a]
        block[a, b] = block[a, b] - U[a].T @ U[b]
    return torch.cat([torch.cat([block[a, b] for b in nodes], dim=1) for a in nodes])


def degrees(nodes: list[int], edges: Iterable[tuple[int, int]]) -> list[int]:
    """max(|N_a^act|, 1) for every active node."""
    count = Counter(a for a, _ in adjacency(edges))
    return [max(count[a], 1) for a in nodes]


# ------------------------------------------------------------------------------------------ the model


class Model:
    """The equations of sec:method, one method each, over given parameters."""

    def __init__(
        self, config: NaiveConfig, params: dict[str, Tensor], events: NaiveEvents, gap: float, met: Any = None
    ) -> None:
        self.config, self.m, self.p = config, config.model, params
        self.events, self.gap = events, gap
        self.met = [] if met is None else _plain(met)  # of each node, whether training has met it

    def U(self, F: Tensor) -> Tensor:
        if not self.m.transport:
            return torch.eye(self.m.stalk_dim, dtype=torch.float64)
        return orthogonal_map(F, self.m.reflector_eps)

    def Q(self, F_to: Tensor, F_from: Tensor) -> Tensor:
        return self.U(F_to).T @ self.U(F_from)

    def phi(self, gap: float, dim: int) -> Tensor:
        """eq:time_encoding, the gap in mean gaps unless `gaps` is raw (D-07)."""
        s = math.log1p(max(gap, 0.0) / (self.gap if self.m.gaps == "log" else 1.0))
        omega = [10000.0 ** (-2 * (j // 2) / dim) for j in range(dim)]
        return _tensor([math.sin(w * s) if j % 2 == 0 else math.cos(w * s) for j, w in enumerate(omega)])

    def linear(self, name: str, x: Tensor) -> Tensor:
        return self.p[f"{name}.weight"] @ x

    def affine(self, name: str, x: Tensor) -> Tensor:
        return self.linear(name, x) + self.p[f"{name}.bias"]

    def relation(self, r: int) -> list[Tensor]:
        return [self.p["relation.weight"][r]] if self.events.num_relations else []

    # Steps 2 to 6 -----------------------------------------------------------------------------------

    def update(self, state: State, i: int) -> tuple[Tensor, Tensor]:
        """Row i, observed. Writes the state; returns its terms of eq:loss_smooth and eq:loss_energy."""
        u, v, t, r = self.events.row(i)
        pre_h = {w: state.h[w] for w in (u, v)}
        pre_F = {w: state.F[w] for w in (u, v)}
        partner = {u: v, v: u}
        context = {w: self.context(i, r, t - state.last.get(w, t), +1 if w == u else -1) for w in partner}

        delta = {w: self.frame_delta(pre_h, pre_F, w, partner[w], context[w]) for w in partner}
        F = {w: self.moved(pre_F[w], delta[w]) for w in partner}
        carried = {w: self.carry_over(pre_h[w], pre_F[w], F[w]) for w in partner}
        message = {w: self.message(carried, F, w, partner[w], context[w]) for w in partner}
        h = {w: self.gru(carried[w], message[w]) for w in partner}

        for w in partner:
            state.h[w], state.F[w] = h[w], F[w]
        self.diffuse(state, u, v)
        length = 0.0 if self.events.msg is None else float(self.events.msg[i].norm())
        state.observe(u, v, t, r, length)
        return sum((x**2).sum() for x in delta.values()), self.energy(state, u, v)

    def context(self, i: int, r: int, gap: float, role: int) -> Tensor:
        """x || phi(gap) || e_r, the shared tail of eq:frame_update and eq:message; the role where it is wanted."""
        x = [] if self.events.msg is None else [self.events.msg[i]]
        end = [_tensor([float(role)])] if self.m.role and not self.events.undirected else []
        return torch.cat([*x, self.phi(gap, self.m.time_dim), *self.relation(r), *end])

    def aligned(self, h: dict[int, Tensor], F: dict[int, Tensor], to: int, of: int) -> Tensor:
        """Q_{to,of} h_of; the identity where both are one node (D-08)."""
        return h[of] if to == of else self.Q(F[to], F[of]) @ h[of]

    def frame_delta(self, h: dict[int, Tensor], F: dict[int, Tensor], w: int, other: int, context: Tensor) -> Tensor:
        """eq:frame_update."""
        if not self.m.frame_update:
            return torch.zeros_like(F[w])
        x = torch.cat([h[w], self.aligned(h, F, w, other), context])
        hidden = torch.relu(self.affine("updater.frame_in", x))
        return self.affine("updater.frame_out", hidden).reshape(F[w].shape)

    def moved(self, F: Tensor, delta: Tensor) -> Tensor:
        """F + Delta F; where lengths are kept, each row scaled to the length sqrt(d / k) of first frames."""
        F = F + delta
        if self.m.frame_length == "free" or not self.m.frame_update:
            return F
        return torch.stack([row * math.sqrt(self.m.stalk_dim / self.m.num_reflectors) / row.norm() for row in F])

    def carry_over(self, h: Tensor, F_pre: Tensor, F_post: Tensor) -> Tensor:
        """prop:carry_over: the same vector in the new coordinates."""
        return self.Q(F_post, F_pre) @ h if self.m.carry_over else h

    def message(self, h: dict[int, Tensor], F: dict[int, Tensor], w: int, other: int, context: Tensor) -> Tensor:
        """eq:message, with carried stalks and post-update frames."""
        x = torch.cat([h[w], self.aligned(h, F, w, other), context])
        return self.affine("updater.msg_out", torch.relu(self.affine("updater.msg_in", x)))

    def gru(self, h: Tensor, m: Tensor) -> Tensor:
        """eq:gru_update; gates in torch's order: reset, update, new."""
        i_r, i_z, i_n = (self.p["updater.gru.weight_ih"] @ m + self.p["updater.gru.bias_ih"]).chunk(3)
        h_r, h_z, h_n = (self.p["updater.gru.weight_hh"] @ h + self.p["updater.gru.bias_hh"]).chunk(3)
        reset, keep = torch.sigmoid(i_r + h_r), torch.sigmoid(i_z + h_z)
        return (1 - keep) * torch.tanh(i_n + reset * h_n) + keep * h

    def gain(self) -> Tensor:
        """The diagonal of D_theta."""
        return torch.nn.functional.softplus(self.p["updater.theta"])

    def eta(self) -> float:
        """The step size, capped as thm:feature_scaled asks (D-11); the cap is a constant to the gradient."""
        return min(self.m.step_size, 1 / float(self.gain().detach().max()))

    def diffuse(self, state: State, u: int, v: int) -> None:
        """eq:diffusion_global: z <- z - eta P L~ z over the active graph, K times."""
        recent_u, recent_v = ([e.node for e in state.recent(w, self.m.num_neighbors)] for w in (u, v))
        edges = active_edges(u, v, recent_u, recent_v)
        nodes = list(dict.fromkeys([u, v, *recent_u, *recent_v]))
        L = sheaf_laplacian(nodes, edges, {a: self.U(state.F[a]) for a in nodes})
        d = self.m.stalk_dim
        degree = _tensor([1.0 / n for n in degrees(nodes, edges) for _ in range(d)])
        normalized = torch.diag(degree) @ L
        P = torch.diag(self.gain().repeat(len(nodes)))
        z = torch.cat([state.h[a] for a in nodes])
        for _ in range(self.m.diffusion_steps):
            z = z - self.eta() * (P @ (normalized @ z))
        for j, a in enumerate(nodes):
            state.h[a] = z[j * d : (j + 1) * d]

    def energy(self, state: State, u: int, v: int) -> Tensor:
        """eq:loss_energy of one event; none where it has one endpoint."""
        if u == v:
            return torch.zeros((), dtype=torch.float64)
        return ((state.h[u] - self.Q(state.F[u], state.F[v]) @ state.h[v]) ** 2).sum()

    # Step 1 -----------------------------------------------------------------------------------------

    def answer(self, state: State, query: Query, negatives_detached: bool) -> dict[str, Any]:
        """Scores, their parts, facts and losses of one query. Reads the state, never writes it."""
        u, r = query.src, self.events.relation(query.edge_type)
        h_u = self.attend(state, query) if self.m.attention else state.h[u]
        F_u = self.biased_frame(state.F[u], r)
        z_u = self.read_partners(state, query) if self.m.partners else None
        per_candidate = []
        for position, c in enumerate(query.candidates):
            h_c, F_c = state.h[c], state.F[c]
            if position > 0 and negatives_detached:  # rule (i) of alg:train
                h_c, F_c = h_c.detach(), F_c.detach()
            facts = facts_of(self.config, state, query, r, c, self.gap)
            per_candidate.append(self.score(h_u, F_u, h_c, F_c, r, u, c, facts, z_u) | {"facts": facts})
        return self.with_losses(per_candidate) | {"num_pairs": state.num_pairs()}

    def biased_frame(self, F: Tensor, r: int) -> Tensor:
        """eq:rel_frame_bias."""
        if not (self.m.relation_bias and self.events.num_relations):
            return F
        return F + torch.sigmoid(self.p["frame_bias_scale"][r]) * self.p["frame_bias"][r]

    def score(
        self,
        h_u: Tensor,
        F_u: Tensor,
        h_c: Tensor,
        F_c: Tensor,
        r: int,
        u: int,
        c: int,
        facts: dict[str, float],
        z_u: Tensor | None = None,
    ) -> dict[str, Tensor]:
        """eq:sdist, eq:score_features and eq:edgebank_mixture for one candidate."""
        moved = self.Q(F_u, F_c) @ h_c
        difference = h_u - moved
        d2 = (difference**2).sum()
        inner = torch.dot(h_u, moved)
        s_geo = -d2 / self.kappa()
        geometry = [s_geo, *self.scalars(inner, torch.dot(h_u, h_u), torch.dot(h_c, h_c)), torch.log1p(d2)]
        psi = self.psi(torch.stack(geometry), facts, r, u, c, difference)
        if z_u is not None:
            psi = torch.cat([psi, self.agreement(z_u, self.learned(c))])
        s_res = self.residual(psi)
        alpha, bank = self.bank(facts, r)
        final = alpha * (s_geo + s_res) + bank
        bounded = inner / torch.sqrt((1 + torch.dot(h_u, h_u)) * (1 + torch.dot(h_c, h_c)))
        parts = {"score": final, "s_geo": s_geo, "s_res": s_res, "bank": bank, "inner": inner, "d2": d2, "psi": psi}
        return parts | {"bounded": bounded}

    def kappa(self) -> Tensor:
        parameter = self.p["head.rho_kappa"].reshape(())
        return KAPPA_MIN + (parameter.exp() if self.m.kappa_scale == "log" else torch.nn.functional.softplus(parameter))

    def scalars(self, inner: Tensor, norm_u: Tensor, norm_c: Tensor) -> list[Tensor]:
        if self.m.scalars == "raw":
            return [inner, norm_u, norm_c]
        return [inner / torch.sqrt((1 + norm_u) * (1 + norm_c)), torch.log1p(norm_u), torch.log1p(norm_c)]

    def psi(self, geometry: Tensor, facts: dict[str, float], r: int, u: int, c: int, difference: Tensor) -> Tensor:
        """eq:score_features with the optional features of app:optional_score_features."""
        parts = [geometry, _tensor(features(facts, self.config, self.gap)), *self.relation(r)]
        if self.events.num_types:
            parts += [self.p["type_embedding.weight"][self.events.node_type[w]] for w in (u, c)]
        if self.config.features.encoded_gaps:
            parts += [self.phi(facts[name], self.m.time_dim) for name in ("src_gap", "dst_gap")]
        if self.config.features.transported_difference:
            parts.append(difference)
        return torch.cat(parts)

    def residual(self, psi: Tensor) -> Tensor:
        """eq:sres."""
        if not self.m.residual:
            return torch.zeros((), dtype=torch.float64)
        hidden = torch.relu(self.affine("head.mlp.0", psi))
        hidden = torch.relu(self.affine("head.mlp.2", hidden))
        return self.affine("head.mlp.4", hidden).reshape(())

    def bank(self, facts: dict[str, float], r: int) -> tuple[Tensor, Tensor]:
        """alpha_r and (1 - alpha_r) beta s_EB; 1 and 0 without EdgeBank."""
        if not self.m.edgebank:
            return torch.ones((), dtype=torch.float64), torch.zeros((), dtype=torch.float64)
        alpha = torch.sigmoid(self.p["head.gate"].reshape(-1)[r])
        beta = self.p["head.beta"].reshape(())
        return alpha, (1 - alpha) * beta * math.log1p(facts["bank_count"])  # D-03

    def learned(self, node: int) -> Tensor:
        """D-27: what was learned of a node; of all that training never met, the same."""
        known = node < len(self.met) and self.met[node]
        return self.p["partners.vectors"][node + 1 if known else 0]

    def agreement(self, z: Tensor, e: Tensor) -> Tensor:
        inner, zz, ee, far = torch.dot(z, e), torch.dot(z, z), torch.dot(e, e), ((z - e) ** 2).sum()
        lengths = (torch.log1p(length) for length in (zz, ee, far))
        return torch.stack([inner, inner / torch.sqrt((1 + zz) * (1 + ee)), *lengths])

    def read_partners(self, state: State, query: Query) -> Tensor:
        """D-27: attention over what was learned of the source's partners, each with how long ago it was."""
        width = self.m.stalk_dim // self.m.attention_heads
        told, keys, values = [], [], []
        for place, entry in enumerate(state.recent(query.src, self.m.num_neighbors)[::-1]):
            told.append(self.told(place, (query.t - entry.t) / self.gap, entry.r))
            e = self.learned(entry.node)
            keys.append(self.linear("partners.key", e) + self.affine("partners.key_told", told[-1]))
            values.append(self.linear("partners.value", e) + self.affine("partners.value_told", told[-1]))
        heads = []
        for head in range(self.m.attention_heads):
            part, asked = slice(head * width, (head + 1) * width), self.p["partners.query"][head]
            logits = [torch.dot(asked, key[part]) / math.sqrt(width) for key in keys]
            logits = [a + self.affine("partners.weight_told", b)[head] for a, b in zip(logits, told, strict=True)]
            weights = torch.softmax(torch.stack([*logits, self.p["partners.null_weight"][head]]), dim=0)
            rows = [*(value[part] for value in values), self.p["partners.null"][part]]
            heads.append(sum(weight * row for weight, row in zip(weights, rows, strict=True)))
        return self.linear("partners.out", torch.cat(heads))

    def told(self, place: int, gap: float, r: int) -> Tensor:
        fading = [math.exp(-gap / 10.0**j) for j in range(7)]
        places = [float(i == place) for i in range(self.m.num_neighbors)]
        return torch.cat([_tensor([math.log1p(gap) / 5, *fading, *places]), *self.relation(r)])

    def attend(self, state: State, query: Query) -> Tensor:
        """alg:nbrattn: the source's stalk, refined by its recent neighbors as they are seen from its own frame."""
        u = query.src
        h_u, U_u = state.h[u], self.U(state.F[u])
        rows = [self.attended_row(state, U_u, e, query.t) for e in state.recent(u, self.m.num_neighbors)[::-1]]
        if not rows:
            mixed = self.linear("attention.value", self.p["attention.null"])
        else:
            mixed = self.mix_heads(self.linear("attention.query", h_u), rows)
        return self.layer_norm(h_u + self.linear("attention.out", mixed))

    def attended_row(self, state: State, U_u: Tensor, entry: Entry, t: float) -> Tensor:
        """A neighbor's stalk in u's coordinates, detached but for U_u, plus when and by which relation it was met."""
        moved = U_u.T @ (self.U(state.F[entry.node]).detach() @ state.h[entry.node].detach())
        moved = moved + self.linear("attention.time", self.phi(t - entry.t, self.m.time_dim // 2))
        for e_r in self.relation(entry.r):
            moved = moved + self.linear("attention.relation", e_r)
        return moved

    def mix_heads(self, query: Tensor, rows: list[Tensor]) -> Tensor:
        """Softmax attention of one query over the rows, head by head, the heads concatenated."""
        keys = [self.linear("attention.key", x) for x in rows]
        values = [self.linear("attention.value", x) for x in rows]
        width = self.m.stalk_dim // self.m.attention_heads
        heads = []
        for head in range(self.m.attention_heads):
            part = slice(head * width, (head + 1) * width)
            logits = torch.stack([torch.dot(query[part], key[part]) / math.sqrt(width) for key in keys])
            weights = torch.softmax(logits, dim=0)
            heads.append(sum(weight * value[part] for weight, value in zip(weights, values, strict=True)))
        return torch.cat(heads)

    def layer_norm(self, x: Tensor) -> Tensor:
        centered = x - x.mean()
        scaled = centered / torch.sqrt((centered**2).mean() + NORM_EPS)
        return scaled * self.p["attention.norm.weight"] + self.p["attention.norm.bias"]

    def with_losses(self, per_candidate: list[dict[str, Any]]) -> dict[str, Any]:
        """The candidates' columns side by side, and eq:loss_ce, eq:loss_geo, eq:loss_bias over them."""
        names = [name for name in per_candidate[0] if name != "facts"]
        out: dict[str, Any] = {name: torch.stack([one[name] for one in per_candidate]) for name in names}
        out["facts"] = [one["facts"] for one in per_candidate]
        out["ce"] = ranking_loss(out["score"])
        others = torch.nn.functional.softplus(out["score"][1:])
        out["binary"] = 0.5 * (torch.nn.functional.softplus(-out["score"][0]) + others.mean())
        products = out["bounded"] if self.config.loss.geo_products == "bounded" else out["inner"]
        out["geo"] = ranking_loss(products / self.config.loss.geo_temperature)
        out["bias"] = (out["s_res"] ** 2).mean()
        return out


def ranking_loss(logits: Tensor) -> Tensor:
    """-log softmax of the first logit."""
    return torch.logsumexp(logits, dim=0) - logits[0]


# ---------------------------------------------------------------------------------------------- running


@dataclass
class Result:
    """Per query, in the order of the queries: scores, parts, facts, losses; per event: smooth and energy."""

    scores: list[Tensor]
    parts: list[dict[str, Tensor]]  # s_geo, s_res, bank, inner, d2 of shape (C,), psi of shape (C, psi_dim)
    facts: list[list[dict[str, float]]]  # [query][candidate][column]
    num_pairs: list[int]  # distinct directed pairs seen at each query's cut
    losses: dict[str, list[Tensor]]  # ce, geo, bias per query; smooth, energy per event
    state: State  # after the last row, still in the graph

    def loss(self, config: NaiveConfig) -> Tensor:
        """The chunk's objective (sec:training): means over queries and over events, weighted."""
        weight = {name: getattr(config.loss, name) for name in ("ce", "binary", "geo", "bias", "smooth", "energy")}
        total = torch.zeros((), dtype=torch.float64)
        for name, values in self.losses.items():
            if values:
                total = total + weight[name] * torch.stack(values).mean()
        return total


def run(
    config: NaiveConfig,
    params: dict[str, Tensor],
    events: NaiveEvents,
    frames0: Any,
    mean_gap: float,
    queries: Sequence[Any],
    start: int = 0,
    stop: int | None = None,
    state: State | None = None,
    negatives_detached: bool = True,
    signatures: Any = None,
    stalks0: Any = None,
    met: Any = None,
) -> Result:
    """Rows start .. stop-1 in arrival order; every query is answered when exactly its cut of rows has been processed.

    `state` is what an earlier run left (`result.state`); it is copied and detached, never changed. Without it,
    rows before `start` are replayed from the initial state, outside the graph.
    """
    stop = len(events) if stop is None else stop
    model = Model(config, params, events, mean_gap, met)
    asked = [Query(*query) for query in queries]
    if any(not start <= query.cut <= stop for query in asked):
        raise ValueError(f"a query's cut lies outside of rows {start} to {stop}")
    state = entering_state(model, frames0, start, state, signatures, stalks0)
    answers: list[Any] = [None] * len(asked)
    aux: list[tuple[Tensor, Tensor]] = []
    for cut in range(start, stop + 1):
        for n, query in enumerate(asked):
            if query.cut == cut:
                answers[n] = model.answer(state, query, negatives_detached)
        if cut < stop:
            aux.append(model.update(state, cut))
    return collect(answers, aux, state)


def entering_state(
    model: Model, frames0: Any, start: int, state: State | None, signatures: Any = None, stalks0: Any = None
) -> State:
    if state is None:
        state = State.initial(model.config, frames0, model.gap, signatures, model.events.undirected, stalks0)
        with torch.no_grad():
            for i in range(start):
                model.update(state, i)
    if state.rows != start:
        raise ValueError(f"the state has seen {state.rows} rows, the run starts at {start}")
    return state.detached()


def collect(answers: list[dict[str, Any]], aux: list[tuple[Tensor, Tensor]], state: State) -> Result:
    losses = {name: [answer[name] for answer in answers] for name in ("ce", "binary", "geo", "bias")}
    losses |= {"smooth": [smooth for smooth, _ in aux], "energy": [energy for _, energy in aux]}
    part_names = ("s_geo", "s_res", "bank", "inner", "d2", "psi")
    return Result(
        scores=[answer["score"] for answer in answers],
        parts=[{name: answer[name] for name in part_names} for answer in answers],
        facts=[answer["facts"] for answer in answers],
        num_pairs=[answer["num_pairs"] for answer in answers],
        losses=losses,
        state=state,
    )
