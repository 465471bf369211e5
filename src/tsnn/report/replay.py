"""One pass over a run's stream that keeps what the report shows: score parts, facts, energy, drift, spectra, times."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch

from tsnn.data.queries import Ranking
from tsnn.data.split import Split
from tsnn.engine.engine import pick_engine, score
from tsnn.evaluation.metrics import ranks
from tsnn.evaluation.model import ModelScorer
from tsnn.evaluation.scorer import Block, Step, plan_blocks
from tsnn.evaluation.stream import draw_negatives
from tsnn.model.tsnn import TSNN
from tsnn.plan.chunk import UpdatePlan
from tsnn.plan.facts import COLUMN
from tsnn.sheaf.active_graph import adjacency
from tsnn.sheaf.laplacian import graph_laplacian, symmetric
from tsnn.types import F64, I64, Visibility

OTHERS = 20  # candidates that each tested destination is ranked against
MAX_TESTED = 10_000  # test rows; more are thinned out evenly
SPECTRA = 150  # active graphs whose spectrum is taken
PARTS = ("geometric", "residual", "edgebank")


@dataclass(frozen=True)
class Trace:
    """What one replay saw. Rows of `parts` follow `rows`; `energy` and `smooth` follow the stream from its start."""

    rows: I64  # (n,) tested rows
    positive: F64  # (n, 3) parts of the event's own score
    negative: F64  # (n, 3) parts of one random other destination's
    rank: F64  # (n,) among OTHERS random other destinations, 1 is best
    facts: F64  # (n, facts) of the event's own destination
    energy: F64  # (r,) |h_u - Q_uv h_v|^2 after each event
    smooth: F64  # (r,) |Delta F|^2 of each event
    eigenvalues: F64  # of sampled active graphs, all together
    seconds: dict[str, float]  # by stage
    num_candidates: int

    def fact(self, name: str) -> F64:
        """One column of the facts."""
        return self.facts[:, COLUMN[name]]

    @property
    def margin(self) -> F64:
        """How far the event's own score lies above the random other's, (n,)."""
        total: F64 = (self.positive - self.negative).sum(1)
        return total


def replay(model: TSNN, split: Split, visibility: Visibility) -> Trace:
    """Replay the stream with frozen weights and score its test rows, each against random others."""
    rows = _tested_rows(split)
    bounds, nodes = draw_negatives(split.stream, rows, OTHERS, np.random.default_rng([0, 1]))
    cuts = visibility.cuts(split.stream.t, split.segment_starts)[rows]
    asked = Ranking(split.stream, rows, cuts, bounds, nodes)
    scorer = ModelScorer(model, split.stream)
    keep = _Keep(every=max(int(cuts[-1]) // SPECTRA, 1))
    blocks = plan_blocks(split.stream, scorer.spec, asked)
    for step, block in keep.timed(blocks):
        keep.block(scorer, step, block)
    return keep.trace(rows, len(nodes) + len(rows))


def _tested_rows(split: Split) -> I64:
    start, stop = split.bounds("test")
    if stop - start <= MAX_TESTED:
        return np.arange(start, stop, dtype=np.int64)
    return np.linspace(start, stop - 1, MAX_TESTED).astype(np.int64)


class _Keep:
    """Collects block after block."""

    def __init__(self, every: int) -> None:
        self.every = every
        self.seconds = {"plan": 0.0, "update": 0.0, "score": 0.0}
        self.positive: list[F64] = []
        self.negative: list[F64] = []
        self.rank: list[F64] = []
        self.facts: list[F64] = []
        self.energy: list[F64] = []
        self.smooth: list[F64] = []
        self.eigenvalues: list[F64] = []

    def timed(self, blocks: Iterator[tuple[Step, Block]]) -> Iterator[tuple[Step, Block]]:
        """The same blocks, the time of making them counted."""
        while True:
            since = time.perf_counter()
            item = next(blocks, None)
            self.seconds["plan"] += time.perf_counter() - since
            if item is None:
                return
            yield item

    @torch.no_grad()
    def block(self, scorer: ModelScorer, step: Step, block: Block) -> None:
        """Run one block and keep what it shows."""
        since = time.perf_counter()
        versions = scorer.update(block)
        self.seconds["update"] += time.perf_counter() - since
        self.energy.append(versions.energy.double().cpu().numpy())
        self.smooth.append(versions.smooth.double().cpu().numpy())
        self.eigenvalues += _spectra(block.update, self.every)
        if step.last == step.first:
            return
        since = time.perf_counter()
        engine = pick_engine(scorer.model.config.train.engine, scorer.model.device)
        parts = score(scorer.model, engine, versions, block.score, block.stream).parts
        self.seconds["score"] += time.perf_counter() - since
        table = torch.stack([getattr(parts, name) for name in PARTS], dim=1).double().cpu().numpy()
        ptr = block.score.ptr
        self.positive.append(table[ptr[:-1]])
        self.negative.append(table[ptr[:-1] + 1])
        self.facts.append(block.score.facts[ptr[:-1]])
        ranked = np.delete(table.sum(1), ptr[:-1] + 1)  # the random other of AP stands second
        self.rank.append(ranks(ranked, ptr - np.arange(len(ptr))))

    def trace(self, rows: I64, num_candidates: int) -> Trace:
        """All blocks as one."""
        return Trace(
            rows=rows,
            positive=np.concatenate(self.positive),
            negative=np.concatenate(self.negative),
            rank=np.concatenate(self.rank),
            facts=np.concatenate(self.facts),
            energy=np.concatenate(self.energy),
            smooth=np.concatenate(self.smooth),
            eigenvalues=np.concatenate([np.zeros(0), *self.eigenvalues]),
            seconds=self.seconds,
            num_candidates=num_candidates,
        )


def _spectra(plan: UpdatePlan, every: int) -> list[F64]:
    """Spectra of some active graphs; the sheaf Laplacian has the same, d times over (cor:spectral_equivalence)."""
    found = []
    for e in range(-plan.start % every, plan.num_events, every):
        entries = slice(plan.act_ptr[e], plan.act_ptr[e + 1])
        mult_src, mult_dst = (
            torch.from_numpy(column[entries].astype(np.float64)) for column in (plan.mult_src, plan.mult_dst)
        )
        graph = adjacency(mult_src, mult_dst, bool(plan.is_loop[e]))
        found.append(torch.linalg.eigvalsh(symmetric(graph_laplacian(graph), graph)).numpy())
    return found
