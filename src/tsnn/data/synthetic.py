"""`synthetic:roles`: a stream whose best possible score is known, and that counting cannot predict.

Every node belongs to a planted *community*, which never changes, and has a *role*, an angle on the circle, which does.
A source picks its destination with probability proportional to

    exp(sharpness * cos(role of source - role of destination) + affinity * [same community]),

leaving out itself and its last few partners, so that a pair hardly ever repeats. After the event both ends move on:

- with probability `switch` they *take over a fresh role*, drawn uniformly, which only the event's message tells:
  msg = loudness * [1, cos, sin] plus a little noise;
- otherwise each role *turns* by a fixed angle, and msg = [0, 0, 0] plus noise.

What the next choice depends on thus sits in past messages of two nodes that met separately, and has to be carried: a
state that a switch overwrites and every other event turns predicts it. Counts of pairs, recency, common neighbors,
two-hop paths and successors never read a past message; all they can find is the communities. (Partners take over the
*same* role, but nobody goes back to a recent partner, and the next event of either breaks the tie.)

`true_scores` gives log(p(candidate) / uniform) from the generator's own roles. Ranked by this likelihood ratio, no
scorer does better in expectation against uniformly drawn negatives; `best_possible` reports its AP and AUC.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tsnn.data.events import EventStream, NodeIds, make_stream
from tsnn.data.negatives import DgbNegatives
from tsnn.data.split import Split, split_by_time
from tsnn.errors import InputError
from tsnn.types import F64, I64
from tsnn.words import did_you_mean

BATCH = 200


@dataclass(frozen=True)
class RolesSpec:
    """What is planted. `synthetic:roles:events=2000,seed=3` changes it by name."""

    nodes: int = 400
    events: int = 8000
    communities: int = 4
    sharpness: float = 10.0
    affinity: float = 1.5
    switch: float = 0.8
    turn: float = 0.3
    loudness: float = 2.0
    noise: float = 0.1
    cooldown: int = 10
    mean_gap: float = 30.0
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("nodes", "events", "communities"):
            if getattr(self, name) < 1:
                raise InputError(f"synthetic:roles needs {name} of at least 1, not {getattr(self, name)}.")
        if self.nodes < 2 * self.cooldown + 4:
            raise InputError(f"synthetic:roles needs nodes of at least {2 * self.cooldown + 4}; ask for more nodes.")
        if not 0 <= self.switch <= 1:
            raise InputError(f"synthetic:roles needs switch between 0 and 1, not {self.switch}.")
        if self.mean_gap < 0 or self.noise < 0 or self.cooldown < 0 or self.seed < 0:
            raise InputError("synthetic:roles needs mean_gap, noise, cooldown and seed of 0 or more.")

    @classmethod
    def parse(cls, text: str) -> RolesSpec:
        """Read `key=value,key=value`; an empty text gives the defaults."""
        kinds = {field.name: int if field.type == "int" else float for field in fields(cls)}
        values: dict[str, Any] = {}
        for part in filter(None, text.split(",")):
            key, _, value = part.partition("=")
            if key not in kinds:
                meant = did_you_mean(key, kinds) or f"the settings are {', '.join(kinds)}."
                raise InputError(f"synthetic:roles has no setting {key!r}; {meant}")
            try:
                values[key] = kinds[key](value)
            except ValueError:
                raise InputError(f"synthetic:roles cannot read {part!r}; write a number, as in events=8000.") from None
        return cls(**values)

    @property
    def address(self) -> str:
        """The address that gives this stream."""
        changed = [f"{f.name}={getattr(self, f.name)}" for f in fields(self) if getattr(self, f.name) != f.default]
        return ":".join(["synthetic:roles", ",".join(changed)]) if changed else "synthetic:roles"


def load_synthetic(name: str) -> EventStream:
    """The stream of `roles` or `roles:key=value,...`."""
    kind, _, settings = name.partition(":")
    if kind != "roles":
        raise InputError(f"there is no synthetic stream {kind!r}; the known one is synthetic:roles.")
    return make_roles(RolesSpec.parse(settings))


def make_roles(spec: RolesSpec | None = None) -> EventStream:
    """The stream of a specification; the same one for the same numbers."""
    spec = spec or RolesSpec()
    src, dst = np.empty(spec.events, dtype=np.int64), np.empty(spec.events, dtype=np.int64)
    msg = np.empty((spec.events, 3), dtype=np.float32)

    def record(event: int, source: int, target: int, told: F64, log_prob: F64) -> None:
        src[event], dst[event], msg[event] = source, target, told

    t = _simulate(spec, record)
    return make_stream(src, dst, t, msg, ids=NodeIds(range(spec.nodes)), name=spec.address)


def true_scores(spec: RolesSpec, rows: I64, candidates: I64) -> F64:
    """Log ratio of each candidate's true probability over the uniform one; `candidates` is (len(rows), C).

    Row i is scored from the roles just before event rows[i], with that event's source.
    """
    place = {int(row): i for i, row in enumerate(rows)}
    scores = np.empty(candidates.shape, dtype=np.float64)

    def record(event: int, source: int, target: int, told: F64, log_prob: F64) -> None:
        at = place.get(event)
        if at is not None:
            scores[at] = log_prob[candidates[at]]

    _simulate(spec, record)
    scores += np.log(spec.nodes)
    return scores


def best_possible(spec: RolesSpec | None = None, split: Split | None = None) -> dict[str, float]:
    """AP and AUC of the true probabilities on the test segment: random negatives, mean over batches of 200."""
    from sklearn.metrics import average_precision_score, roc_auc_score  # a second, which nobody else should wait

    spec = spec or RolesSpec()
    split = split or split_by_time(make_roles(spec))
    negatives = DgbNegatives(split, "test", "random")
    pairs = np.stack([split.stream.dst[negatives.rows], negatives.neg_dst], axis=1)
    scores = np.maximum(true_scores(spec, negatives.rows, pairs), -1e9)
    batches = [scores[a : a + BATCH] for a in range(0, len(scores), BATCH)]
    labels = [np.repeat([1, 0], len(batch)) for batch in batches]
    flat = [batch.T.ravel() for batch in batches]
    ap = np.mean([average_precision_score(y, s) for y, s in zip(labels, flat, strict=True)])
    auc = np.mean([roc_auc_score(y, s) for y, s in zip(labels, flat, strict=True)])
    return {"ap": float(ap), "auc": float(auc)}


Recorder = Callable[[int, int, int, F64, F64], None]


def _simulate(spec: RolesSpec, record: Recorder) -> I64:
    """Run the generator, telling `record` each event with the true log-probabilities of its destination."""
    rng = np.random.default_rng(spec.seed)
    community = rng.integers(spec.communities, size=spec.nodes)
    kin = spec.affinity * (community[:, None] == community[None, :])
    role = rng.uniform(0, 2 * np.pi, spec.nodes)
    partners = [deque([node], maxlen=spec.cooldown + 1) for node in range(spec.nodes)]
    draws = _draws(spec, rng)
    for event in range(spec.events):
        source = int(draws.source[event])
        logits = spec.sharpness * np.cos(role - role[source]) + kin[source]
        logits[partners[source]] = -np.inf
        logits[source] = -np.inf
        log_prob = logits - np.log(np.exp(logits - logits.max()).sum()) - logits.max()
        target = _pick(log_prob, draws.uniform[event])
        record(event, source, target, draws.msg[event], log_prob)
        _move_on(role, source, target, draws.fresh[event], spec.turn)
        partners[source].append(target)
        partners[target].append(source)
    return draws.t


@dataclass(frozen=True)
class _Draws:
    """Everything random that does not depend on the roles."""

    source: I64
    uniform: F64
    fresh: F64  # the role taken over, NaN where there is no switch
    msg: F64
    t: I64


def _draws(spec: RolesSpec, rng: np.random.Generator) -> _Draws:
    source = rng.integers(spec.nodes, size=spec.events)
    uniform = rng.random(spec.events)
    switch = rng.random(spec.events) < spec.switch
    angle = rng.uniform(0, 2 * np.pi, spec.events)
    told: NDArray[np.float64] = switch[:, None] * np.stack([np.ones(spec.events), np.cos(angle), np.sin(angle)], axis=1)
    msg = spec.loudness * told + spec.noise * rng.standard_normal(told.shape)
    gaps = rng.exponential(spec.mean_gap, spec.events)
    t = np.floor(np.cumsum(gaps)).astype(np.int64)  # whole seconds: a few ties
    return _Draws(source, uniform, np.where(switch, angle, np.nan), msg, t)


def _pick(log_prob: F64, uniform: float) -> int:
    cumulative = np.cumsum(np.exp(log_prob))
    return int(np.searchsorted(cumulative, uniform * cumulative[-1], side="right"))


def _move_on(role: F64, source: int, target: int, fresh: float, turn: float) -> None:
    for node in (source, target):
        role[node] = role[node] + turn if np.isnan(fresh) else fresh
