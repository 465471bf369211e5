"""The Scorer protocol and the one progressive loop that every figure comes from.

    plan the next rows and the queries that fall in them -> update (writes) -> score (reads)

A query is answered from the first `cut` rows and nothing else; the loop decides only how much is done at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np

from tsnn.data.events import EventStream
from tsnn.data.queries import NO_QUERIES, Asked, Queries
from tsnn.data.split import Split
from tsnn.errors import InputError
from tsnn.evaluation.card import Result
from tsnn.evaluation.questions import Questions
from tsnn.plan.ahead import ahead
from tsnn.plan.chunk import ChunkPlan
from tsnn.plan.planner import Planner, PlanSpec
from tsnn.types import F64, I64, Progress, Visibility

MAX_ROWS = 2000  # rows of the recurrence per block
MAX_CANDIDATES = 100_000  # candidates per block; bounds memory whatever the number of negatives


@dataclass(frozen=True)
class Block(ChunkPlan):
    """A chunk's plan with the queries it answers and the stream it runs over."""

    queries: Queries
    stream: EventStream


class Scorer(Protocol):
    """Whatever scores candidates: a model, a baseline, a heuristic."""

    @property
    def name(self) -> str:
        """What reports call it."""
        ...

    @property
    def spec(self) -> PlanSpec:
        """What the plan must compute for it."""
        ...

    def fit(self, split: Split, visibility: Visibility) -> None:
        """Learn from the training rows; the validation rows may choose when to stop."""
        ...

    def reset_state(self) -> None:
        """Forget every event."""
        ...

    def update(self, plan: Block) -> Any:
        """Run the block's rows; return the versions its scores may read (None without state)."""
        ...

    def score(self, plan: Block, versions: Any) -> F64:
        """Scores of the block's candidates, (nc,); writes nothing."""
        ...


class Step(NamedTuple):
    """Run rows up to `stop`, then answer queries first .. last-1, whose cuts lie at or before it."""

    stop: int
    first: int
    last: int


def schedule(
    cut: I64, ptr: I64, max_rows: int = MAX_ROWS, max_candidates: int = MAX_CANDIDATES, start: int = 0
) -> Iterator[Step]:
    """Steps that run rows start .. cut[-1]-1 in order and answer every query once, in order.

    A step runs at most `max_rows` rows and scores at most `max_candidates` candidates, but always whole
    queries: one with more candidates than that stands alone. Steps without rows follow where one cut has many queries.
    """
    if max_rows < 1 or max_candidates < 1:
        raise InputError("a block needs room for one row and one candidate; raise max_rows and max_candidates.")
    if len(cut) and (cut[0] < start or (np.diff(cut) < 0).any()):
        raise InputError(f"queries must be sorted by cut and none may lie before row {start}; sort them first.")
    row, first = start, 0
    while first < len(cut):
        limit = min(row + max_rows, int(cut[-1]))
        visible = int(np.searchsorted(cut, limit, side="right"))
        fitting = max(int(np.searchsorted(ptr, ptr[first] + max_candidates, side="right")) - 1, first + 1)
        last = min(visible, fitting)
        row = limit if last == visible else int(cut[last - 1])
        yield Step(row, first, last)
        first = last


def plan_blocks(
    stream: EventStream, spec: PlanSpec, queries: Asked, max_rows: int = MAX_ROWS, max_candidates: int = MAX_CANDIDATES
) -> Iterator[tuple[Step, Block]]:
    """Replay the stream from its first row to the last cut; nothing is kept of the blocks before."""
    planner = Planner(stream, spec)
    for step in schedule(queries.cut, queries.ptr, max_rows, max_candidates):
        asked = queries.slice(step.first, step.last)
        plan = planner.plan(step.stop, asked)
        yield step, Block(plan.update, plan.score, asked, stream)


def score_blocks(
    scorer: Scorer,
    stream: EventStream,
    queries: Asked,
    *,
    max_rows: int = MAX_ROWS,
    max_candidates: int = MAX_CANDIDATES,
    progress: Progress | None = None,
) -> Iterator[tuple[Step, F64]]:
    """The progressive loop: update, then score, block after block; yields each step's scores.

    Progress is counted in rows run plus candidates scored.
    """
    scorer.reset_state()
    total = (int(queries.cut[-1]) if len(queries) else 0) + int(queries.ptr[-1])
    for step, block in ahead(plan_blocks(stream, scorer.spec, queries, max_rows, max_candidates)):
        versions = scorer.update(block)
        if step.last > step.first:
            yield step, _checked(scorer, block, versions)
        if progress is not None:
            progress(step.stop + int(queries.ptr[step.last]), total)


def figures(scorer: Scorer, stream: EventStream, questions: Questions, progress: Progress | None = None) -> Result:
    """What a fitted scorer's answers are worth, from one replay of the stream."""
    asked = questions.asked
    answers = np.empty((len(asked), questions.columns))
    for step, scores in score_blocks(scorer, stream, asked, progress=progress):
        ptr = asked.ptr[step.first : step.last + 1] - asked.ptr[step.first]
        answers[step.first : step.last] = questions.answers(scores, ptr)
    return questions.result(scorer.name, answers)


def replay_all(scorer: Scorer, stream: EventStream, max_rows: int = MAX_ROWS) -> Planner:
    """Feed a whole stream to a scorer that has seen nothing; returns the planner, whose counters have seen it too."""
    scorer.reset_state()
    planner = Planner(stream, scorer.spec)
    for plan in ahead(planner.walk(stream.num_events, max_rows)):
        scorer.update(Block(plan.update, plan.score, NO_QUERIES, stream))
    return planner


def score_queries(
    scorer: Scorer,
    stream: EventStream,
    queries: Asked,
    *,
    max_rows: int = MAX_ROWS,
    max_candidates: int = MAX_CANDIDATES,
    progress: Progress | None = None,
) -> F64:
    """Scores of all candidates, aligned with the candidates of `queries`."""
    scores = np.empty(int(queries.ptr[-1]), dtype=np.float64)
    for step, values in score_blocks(
        scorer, stream, queries, max_rows=max_rows, max_candidates=max_candidates, progress=progress
    ):
        scores[queries.ptr[step.first] : queries.ptr[step.last]] = values
    return scores


def _checked(scorer: Scorer, block: Block, versions: Any) -> F64:
    scores = np.asarray(scorer.score(block, versions), dtype=np.float64)
    if scores.shape != block.score.cand.shape:
        raise InputError(
            f"scorer {scorer.name} returned shape {scores.shape} for {len(block.score.cand)} candidates; give one each."
        )
    return scores
