"""What the report shows of a replay: score parts, slices, energy, drift, spectra, times."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
import torch

from tsnn.data.queries import Share
from tsnn.evaluation.health import BRANCHES, StateHealth
from tsnn.evaluation.model import ModelScorer
from tsnn.evaluation.questions import Questions
from tsnn.evaluation.replay import Answers, Listener, Replayed
from tsnn.evaluation.slices import Slice, Slices
from tsnn.plan.chunk import UpdatePlan
from tsnn.sheaf.active_graph import adjacency
from tsnn.sheaf.laplacian import graph_laplacian, symmetric
from tsnn.types import F64, I64

SPECTRA = 150  # active graphs whose spectrum is taken


@dataclass(frozen=True)
class Trace:
    """What one replay saw. Rows of `positive` follow `rows`; `energy` and `smooth` follow the stream from its start."""

    rows: I64  # (n,) tested rows
    positive: F64  # (n, 3) parts of the event's own score
    negative: F64  # (n, 3) parts of its first negative's
    slices: list[Slice]  # of the tested rows
    states: dict[str, float]  # `tsnn.evaluation.health.Health`
    energy: F64  # (r,) |h_u - Q_uv h_v|^2 after each event
    smooth: F64  # (r,) |Delta F|^2 of each event
    eigenvalues: F64  # of sampled active graphs, all together
    seconds: dict[str, float]  # by stage
    num_candidates: int

    @property
    def margin(self) -> F64:
        """How far the event's own score lies above its negative's, (n,)."""
        total: F64 = (self.positive - self.negative).sum(1)
        return total


class Tracer(Listener):
    """Collects a trace from a model's replay, block after block."""

    def __init__(self, scorer: ModelScorer, questions: Questions) -> None:
        self.asked = questions.asked
        self._scorer = scorer
        self._slices = Slices(questions)
        self._every = max(int(self.asked.cut[-1]) // SPECTRA, 1)
        self._health = StateHealth(scorer, questions)
        self._parts = [Answers(questions, partial(self._part, name)) for name in BRANCHES]
        self._seconds = {"plan": 0.0, "update": 0.0, "score": 0.0}
        self._energy: list[F64] = []
        self._smooth: list[F64] = []
        self._eigenvalues: list[F64] = []

    def _part(self, name: str, seen: Replayed) -> F64:
        values: F64 = getattr(self._scorer.parts, name).double().cpu().numpy()
        return values

    def hear(self, seen: Replayed, own: Share) -> None:
        """Keep what the block shows."""
        for listener in (self._slices, self._health, *self._parts):
            listener.hear(seen, own)
        for stage, seconds in seen.seconds.items():
            self._seconds[stage] += seconds
        self._energy.append(seen.versions.energy.double().cpu().numpy())
        self._smooth.append(seen.versions.smooth.double().cpu().numpy())
        self._eigenvalues += _spectra(seen.block.update, self._every)

    def trace(self) -> Trace:
        """All blocks as one, and what they say of the test rows."""
        tested = [answers.outcomes()["test"] for answers in self._parts]
        return Trace(
            rows=tested[0].rows,
            positive=np.stack([part.positive for part in tested], axis=1),
            negative=np.stack([part.negative for part in tested], axis=1),
            slices=self._slices.of("test"),
            states=self._health.measure().to_dict(),
            energy=np.concatenate(self._energy),
            smooth=np.concatenate(self._smooth),
            eigenvalues=np.concatenate([np.zeros(0), *self._eigenvalues]),
            seconds=self._seconds,
            num_candidates=int(self.asked.ptr[-1]),
        )


def _spectra(plan: UpdatePlan, every: int) -> list[F64]:
    """Spectra of some active graphs; the sheaf Laplacian has the same, d times over (cor:spectral_equivalence)."""
    found = []
    for e in range(-plan.start % every, plan.num_events, every):
        entries = slice(plan.act_ptr[e], plan.act_ptr[e + 1])
        mult_src = torch.from_numpy(plan.mult_src[entries].astype(np.float64))
        mult_dst = torch.from_numpy(plan.mult_dst[entries].astype(np.float64))
        graph = adjacency(mult_src, mult_dst, bool(plan.is_loop[e]))
        found.append(torch.linalg.eigvalsh(symmetric(graph_laplacian(graph), graph)).numpy())
    return found
