"""The Scorer protocol, and the order in time in which a stream is run and queries are answered.

A query is answered from the first `cut` rows and nothing else; a block decides only how much is done at once.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np

from tsnn.data.events import EventStream
from tsnn.data.queries import Asked, Queries
from tsnn.data.question import Question
from tsnn.data.split import Split
from tsnn.errors import InputError
from tsnn.plan.chunk import ChunkPlan
from tsnn.plan.planner import Planner, PlanSpec
from tsnn.types import F64, I64

MAX_ROWS = 2000  # rows of the recurrence per block
MAX_CANDIDATES = 100_000  # candidates per block; bounds memory whatever the number of negatives


@dataclass(frozen=True)
class Block(ChunkPlan):
    """A chunk's plan with the queries it answers and the stream it runs over."""

    queries: Queries
    stream: EventStream
    seconds: float = 0.0  # that planning it took


class Scorer(Protocol):
    """Whatever scores candidates: a model, a baseline, a heuristic."""

    @property
    def name(self) -> str:
        """What reports call it."""

    @property
    def spec(self) -> PlanSpec:
        """What the plan must compute for it."""

    def fit(self, split: Split, question: Question) -> None:
        """Learn from the training rows what will be asked; the validation rows may choose when to stop."""

    def reset_state(self) -> None:
        """Forget every event."""

    def update(self, plan: Block) -> Any:
        """Run the block's rows; return the versions its scores may read (None without state)."""

    def score(self, plan: Block, versions: Any) -> F64:
        """Scores of the block's candidates, (nc,); writes nothing."""


class Step(NamedTuple):
    """Run rows up to `stop`, then answer queries first .. last-1, whose cuts lie at or before it."""

    stop: int
    first: int
    last: int


def schedule(
    cut: I64, ptr: I64, max_rows: int, max_candidates: int, start: int, stops: Sequence[int]
) -> Iterator[Step]:
    """Steps that run rows from `start` on in order and answer every query once, in order.

    A step scores whole queries, so one with more than `max_candidates` stands alone; where one cut has many queries,
    some steps run no row. One ends at each of `stops`, the last at the last cut or stop, whichever comes later.
    """
    if max_rows < 1 or max_candidates < 1:
        raise InputError("a block needs room for one row and one candidate; raise max_rows and max_candidates.")
    if len(cut) and (cut[0] < start or (np.diff(cut) < 0).any()):
        raise InputError(f"queries must be sorted by cut and none may lie before row {start}; sort them first.")
    ends = [end for end in sorted({*stops, *cut[-1:].tolist()}) if end >= start]
    row, first = start, 0
    while ends or first < len(cut):
        limit = min(row + max_rows, ends[0]) if ends else row
        visible = int(np.searchsorted(cut, limit, side="right"))
        fitting = max(int(np.searchsorted(ptr, ptr[first] + max_candidates, side="right")) - 1, first + 1)
        last = min(visible, fitting)
        row = limit if last == visible else int(cut[last - 1])
        if ends and row == ends[0]:
            del ends[0]
        yield Step(row, first, last)
        first = last


def plan_blocks(
    planner: Planner,
    queries: Asked,
    max_rows: int = MAX_ROWS,
    max_candidates: int = MAX_CANDIDATES,
    stops: Sequence[int] = (),
) -> Iterator[tuple[Step, Block]]:
    """Blocks from where the planner stands to the last cut or stop; nothing is kept of the blocks before."""
    for step in schedule(queries.cut, queries.ptr, max_rows, max_candidates, planner.position, stops):
        began = time.perf_counter()
        asked = queries.slice(step.first, step.last)
        plan = planner.plan(step.stop, asked)
        yield step, Block(plan.update, plan.score, asked, planner.stream, time.perf_counter() - began)


def checked_scores(scorer: Scorer, block: Block, versions: Any) -> F64:
    """The scorer's scores of the block's candidates, one for each."""
    scores = np.asarray(scorer.score(block, versions), dtype=np.float64)
    if scores.shape != block.score.cand.shape:
        raise InputError(
            f"scorer {scorer.name} returned shape {scores.shape} for {len(block.score.cand)} candidates; give one each."
        )
    return scores
