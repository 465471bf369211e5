"""Every formal statement of the paper, checked on a trained run's own frames, stalks and active graphs.

The statements about diffusion are checked with the step the run takes, min(eta, 1 / max(D_theta)), or with a step that
is forced on it; a step beyond a statement's bound shows as that statement failing.
"""

from __future__ import annotations

from collections.abc import Iterable
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from tsnn.data.events import EventStream
from tsnn.errors import InputError
from tsnn.model.geometry import reflectors
from tsnn.model.tsnn import TSNN
from tsnn.theory import diffusion, drift, frames, scope, transport, wl
from tsnn.theory.active import ActiveSet
from tsnn.theory.check import Check, conclude, equal
from tsnn.theory.sample import EventSample, fit_dense, sample_events
from tsnn.types import Progress, unwatched

TAU_H = 1e-2  # the operating regime that rem:houshlip claims
ENGINE_ROUNDING = 1e-4  # an engine computes in the run's precision
WL_DEPTH = 2
KINDS = {
    "lem": "lemma",
    "prop": "proposition",
    "cor": "corollary",
    "thm": "theorem",
    "rem": "remark",
    "eq": "equation",
    "alg": "algorithm",
}


@dataclass(frozen=True)
class Statement(Check):
    """One statement over all sampled events: its worst check, and where that was."""

    kind: str
    row: int  # of the event that was worst
    events: int  # how many it was checked on
    failed: int  # on how many of them it does not hold


def slack_text(slack: float, tolerance: float) -> str:
    """The room that the worst case left; for an identity, which has none, its error."""
    if not 0 <= slack <= tolerance:
        return f"{slack:.2e}"
    return "exact" if slack == tolerance else f"exact to {tolerance - slack:.0e}"


class Facts(NamedTuple):
    """What the statements were checked with."""

    events: int
    rows: list[int]
    step_size: float
    step_bound: float  # 1 / max(D_theta)
    smallest_reflector: float
    largest_active_set: int
    forced: bool


@dataclass(frozen=True)
class Verification:
    """The outcome of `verify`."""

    statements: list[Statement]
    facts: Facts

    @property
    def passed(self) -> bool:
        """Whether every statement holds."""
        return all(statement.passed for statement in self.statements)


def verify(
    model: TSNN,
    stream: EventStream,
    *,
    samples: int = 12,
    step_size: float | None = None,
    progress: Progress = unwatched,
) -> Verification:
    """Replay the stream, take events along it, and check every statement on each."""
    if samples < 1 or stream.num_events < 2:
        raise InputError("there is nothing to check; sample at least one event of a stream of two or more.")
    if step_size is not None and step_size <= 0:
        raise InputError(f"a step size of {step_size} moves nothing forward; give a positive one.")
    taken, last_F = sample_events(model, stream, samples, progress=progress)
    checker = _Checker(model, stream, taken, last_F, step_size)
    found: list[tuple[int, Check]] = []  # with the row that it was checked on
    for done, sample in enumerate(taken):
        found += [(sample.row, check) for check in checker.event(sample)]
        progress(done + 1, len(taken), "checking the sampled events")
    found += [(taken[-1].row, check) for check in checker.scope()]
    return Verification(_worst(found), checker.facts())


class _Checker:
    """The statements on one sampled event, and those over all of them."""

    def __init__(
        self, model: TSNN, stream: EventStream, taken: list[EventSample], last_F: Tensor, step_size: float | None
    ) -> None:
        self.model = model
        self.stream = stream
        self.taken = taken
        self.last_F = last_F
        self.eps = model.config.model.reflector_eps
        self.forced = step_size is not None
        self.step = taken[0].active.step_size if step_size is None else step_size
        every = torch.cat([torch.cat([sample.pre_F, sample.post_F]) for sample in taken])
        self.smallest = float(frames.row_norms(every).min())
        self.tau = max(self.smallest, self.eps)

    def event(self, sample: EventSample) -> Iterable[Check]:
        """Everything that speaks of one event."""
        yield from self._frames(sample)
        active = replace(fit_dense(sample.active), step_size=self.step)
        yield transport.flat_transport(active.F, _walk(active, sample.row), eps=self.eps)
        yield transport.sync_equiv(active)
        yield transport.spectral_equivalence(active)
        yield diffusion.energy(active)
        yield diffusion.feature_scaled(active)
        yield diffusion.energy_descent(active)
        yield diffusion.nonexpansive(active)
        yield from self._drift(sample, active)
        yield diffusion.step_size_bound(sample.active.gain, self.step)
        yield self._histories(sample)
        yield self._engine(sample)

    def _frames(self, sample: EventSample) -> Iterable[Check]:
        before = sample.pre_F
        after = sample.post_F
        eps = self.eps
        yield frames.orthogonal(sample.active.F, eps=eps)
        yield frames.low_rank(before, before.flip(0), eps=eps)
        yield frames.householder_lipschitz(before, after, eps=eps, tau=self.tau)
        yield frames.smooth_lipschitz(before, after, eps=eps, tau=self.tau)
        yield frames.operating_regime(torch.cat([before, after]), tau=TAU_H)
        used, used_after = (reflectors(F, self.model.config.model) for F in (before, after))
        yield frames.carry_over(used, used_after, sample.pre_h, eps=eps, carried=sample.carried)

    def _drift(self, sample: EventSample, active: ActiveSet) -> Iterable[Check]:
        """Stored frames against those at the end of the stream; the endpoints' own against those before the event."""
        there = self.last_F[torch.from_numpy(sample.nodes[: len(active.h)])]
        yield drift.stale(active, reflectors(there, self.model.config.model).double())
        if active.F.shape[1]:  # without transport there is no frame to drift
            before = active.F.clone()
            before[: len(sample.pre_F)] = sample.pre_F.double()
            yield drift.drift_control(replace(active, F=before), active.F, tau=self.tau)

    def _histories(self, sample: EventSample) -> Check:
        rows = sample.window
        stream = self.stream
        nodes = sample.window_nodes
        relations = [0] * len(rows) if stream.edge_type is None else stream.edge_type[rows].tolist()
        messages = [b""] * len(rows) if stream.msg is None else [row.tobytes() for row in stream.msg[rows]]
        graph = wl.TemporalGraph(
            np.searchsorted(nodes, stream.src[rows]).tolist(),
            np.searchsorted(nodes, stream.dst[rows]).tolist(),
            stream.t[rows].tolist(),
            list(zip(relations, messages, strict=True)),
        )
        kinds = [0] * len(nodes) if stream.node_type is None else stream.node_type[nodes].tolist()
        window_F = reflectors(sample.window_F, self.model.config.model)
        return wl.twl(graph, kinds, window_F, WL_DEPTH, eps=self.eps)

    def _engine(self, sample: EventSample) -> Check:
        """alg:tsnn: what the run's engine wrote is what the equations that were checked give."""
        stalks = sample.active.step(self.model.config.model.diffusion_steps)
        return conclude(
            "alg:tsnn",
            "the stalks that the run's engine wrote are those of the equations checked here",
            [equal("stalk at", sample.written, stalks, relative=ENGINE_ROUNDING)],
        )

    def scope(self) -> Iterable[Check]:
        """prop:psi_equiv: the difference that diffusion takes is inside the class, MLP_msg and the GRU are not."""
        a, b = (torch.cat([getattr(s, name) for s in self.taken]).double() for name in ("carried", "partner"))
        context = torch.cat([s.context for s in self.taken]).double()
        generator = torch.Generator().manual_seed(0)
        d = a.shape[-1]
        turns = torch.linalg.qr(torch.randn(len(a), d, d, generator=generator, dtype=torch.float64)).Q
        updater = deepcopy(self.model.updater).double()
        yield scope.psi_equiv(lambda x, y: x - y, a, b, turns, name="the difference that diffusion sums")

        def message(x: Tensor, y: Tensor) -> Tensor:
            return updater.message(torch.cat([x, y, context], dim=1))

        yield scope.outside_class(message, a, b, turns, name="the run's MLP_msg")
        yield scope.outside_class(lambda x, y: updater.gru(y, x), a, b, turns, name="the run's GRU")

    def facts(self) -> Facts:
        """What the outcome holds for."""
        return Facts(
            events=len(self.taken),
            rows=[sample.row for sample in self.taken],
            step_size=self.step,
            step_bound=float(self.taken[0].active.gain.max().reciprocal()),
            smallest_reflector=self.smallest,
            largest_active_set=max(len(sample.active.h) for sample in self.taken),
            forced=self.forced,
        )


def _walk(active: ActiveSet, seed: int, hops: int = 8) -> list[int]:
    """A random walk over the active graph from the source; to the last entry and back where it has no edge."""
    rng = np.random.default_rng(seed)
    walk = [0]
    for _ in range(hops):
        reachable = active.adjacency[walk[-1]].nonzero().flatten().tolist()
        walk.append(int(rng.choice(reachable)) if reachable else len(active.h) - 1 - walk[-1])
    return walk


def _worst(found: list[tuple[int, Check]]) -> list[Statement]:
    """One line per statement, in the order of the paper."""
    groups: dict[tuple[str, str], list[tuple[int, Check]]] = {}
    for row, check in found:
        groups.setdefault((check.label, check.claim), []).append((row, check))
    statements = []
    for group in groups.values():
        row, worst = min(group, key=lambda item: (item[1].passed, item[1].slack))
        kind = KINDS[worst.label.partition(":")[0]]
        failed = sum(not check.passed for _, check in group)
        statements.append(Statement(**vars(worst), kind=kind, row=row, events=len(group), failed=failed))
    return statements
