"""Where a scorer loses: how the positives of a segment fared, by what the data said about each as of its cut.

The questions are those of the stream's own protocol, so a slice's figures are its part of the protocol's figures.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import numpy as np

from tsnn.data.queries import Share
from tsnn.data.question import Question
from tsnn.data.split import Split
from tsnn.evaluation.evaluate import make_questions
from tsnn.evaluation.metrics import average_precision, rank_metrics
from tsnn.evaluation.questions import Questions
from tsnn.evaluation.replay import Answers, Listener, Replayed, replay
from tsnn.evaluation.scorer import Scorer
from tsnn.plan.planner import mean_gap
from tsnn.tabular import Rows
from tsnn.types import F64, I64, Bool, Progress, unwatched

DECADES = (1, 10, 100, 1000)  # bounds of counts, and of gaps in mean gaps; the same for every stream
AGO = " gaps ago"  # a gap is the mean time between two events of training
FEW = 5  # fewer positives than this say nothing
FIRM = 30  # and of fewer than this, a few decide the figure
FACTS = ("pair_count", "pair_gap", "src_count", "dst_count", "dst_gap")
Masks = Iterator[tuple[str, str, Bool]]  # what is sliced by, the slice, its positives


@dataclass(frozen=True)
class Slice:
    """The positives of one kind."""

    by: str
    slice: str
    count: int
    ap: float  # per cent, against the first negative of each, pooled
    mrr: float  # among the candidates that the protocol ranks each with


class Slices(Listener):
    """Keeps how every positive fared, and the facts that it is sliced by."""

    def __init__(self, questions: Questions) -> None:
        self.asked = questions.asked
        self._scores = Answers(questions)
        self._facts = {name: Answers(questions, partial(Replayed.fact, name=name)) for name in FACTS}

    def hear(self, seen: Replayed, own: Share) -> None:
        """Keep the block's."""
        for answers in (self._scores, *self._facts.values()):
            answers.hear(seen, own)

    def of(self, segment: str) -> Rows[Slice]:
        """All slices of a segment but those of few positives."""
        split = self._scores.questions.split
        fared = self._scores.outcomes()[segment]
        facts = {name: answers.outcomes()[segment].positive for name, answers in self._facts.items()}
        found: Rows[Slice] = Rows(kind=Slice)
        for by, name, chosen in masks(split, fared.rows, facts):
            if chosen.sum() >= min(FEW, len(chosen)):
                own = fared.take(chosen)
                ap = 100 * average_precision(own.positive, own.negative)
                found.append(Slice(by, name, len(own.rows), ap, rank_metrics(own.rank)["mrr"]))
        return found


def error_slices(
    scorer: Scorer, split: Split, question: Question, segment: str = "test", progress: Progress = unwatched
) -> Rows[Slice]:
    """The slices of a segment, for a scorer that is fitted here if it has to learn."""
    split.bounds(segment)  # a segment by another name is refused before any work
    scorer.fit(split, question)
    questions = make_questions(split, question, sets=(segment,)).fewer()
    slices = Slices(questions)
    replay(scorer, questions.split.stream, [slices], progress=progress, text=f"evaluating {scorer.name}")
    return slices.of(segment)


def masks(split: Split, rows: I64, facts: dict[str, F64]) -> Masks:
    """All slices; those by one thing do not overlap, and together they are all positives (pairs that met: repeats)."""
    repeat = facts["pair_count"] > 0
    unseen = (facts["src_count"] == 0) | (facts["dst_count"] == 0)
    yield "all", "all", np.ones(len(rows), dtype=np.bool_)
    yield "kind of event", "repeat", repeat
    yield "kind of event", "new pair", ~repeat & ~unseen
    yield "kind of event", "new node", unseen
    inductive = np.isin(rows, split.new_rows(0, split.stream.num_events))
    yield "nodes in training", "both", ~inductive
    yield "nodes in training", "not both", inductive
    gap = mean_gap(split.stream.t[: split.train_end])
    yield from _decades("pair last met", facts["pair_gap"] / gap, AGO, repeat)
    seen = facts["dst_gap"] >= 0
    yield "destination last seen", "never", ~seen
    yield from _decades("destination last seen", facts["dst_gap"] / gap, AGO, seen)
    every = np.ones_like(repeat)
    yield from _decades("events of the source", facts["src_count"], "", every)
    yield from _decades("events of the destination", facts["dst_count"], "", every)


def _decades(by: str, values: F64, unit: str, among: Bool) -> Masks:
    names = [f"below {DECADES[0]}", *(f"{a:,} to {b:,}" for a, b in pairwise(DECADES)), f"{DECADES[-1]:,} and more"]
    for name, (low, high) in zip(names, pairwise((-np.inf, *DECADES, np.inf)), strict=True):
        yield by, name + unit, among & (values >= low) & (values < high)
