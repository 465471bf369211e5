"""The one loop over a stream: it runs and scores block after block and tells listeners what it saw.

    plan the next rows and the queries that fall in them -> update (writes) -> score (reads) -> tell the listeners

Figures, slices, samples and a report's trace are listeners, and any number of them share one pass. A listener says
beforehand which queries it asks and at which rows it wants to find the state.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from tsnn.data.events import EventStream
from tsnn.data.queries import NO_QUERIES, Asked, Joined, Share
from tsnn.evaluation.card import Result
from tsnn.evaluation.questions import Figures, Outcomes, Questions
from tsnn.evaluation.scorer import MAX_CANDIDATES, MAX_ROWS, Block, Scorer, checked_scores, plan_blocks
from tsnn.plan.ahead import ahead
from tsnn.plan.counters import Counters
from tsnn.plan.facts import COLUMN
from tsnn.plan.planner import Planner
from tsnn.types import F64, Progress, unwatched


@dataclass(frozen=True)
class Replayed:
    """A block that has been run and scored."""

    block: Block
    versions: Any  # the states that the scores were read from
    scores: F64  # of all candidates of the block
    counters: Counters  # as of the block's end, where that is a listener's stop; elsewhere the plan may be ahead
    seconds: dict[str, float]  # that planning, updating and scoring took
    worked: Callable[[int], None] = lambda candidates: (
        None
    )  # to be told of candidates that a listener has scored itself

    def fact(self, name: str) -> F64:
        """One fact of all candidates of the block."""
        column: F64 = self.block.score.facts[:, COLUMN[name]]
        return column


class Listener(Protocol):
    """Follows a replay. Listeners that ask the same queries, as one object, share their scores."""

    asked: Asked = NO_QUERIES
    stops: Sequence[int] = ()  # rows before which a block must end, so that the scorer's state stands exactly there
    to_score: int = 0  # candidates that it scores by itself while it hears, for the progress

    def hear(self, seen: Replayed, own: Share) -> None:
        """A block is done; `own` are the listener's queries in it and the places of their candidates."""


def replay(
    scorer: Scorer,
    stream: EventStream,
    listeners: Sequence[Listener],
    *,
    max_rows: int = MAX_ROWS,
    max_candidates: int = MAX_CANDIDATES,
    progress: Progress = unwatched,
    text: str = "",
) -> None:
    """Run the stream from its first row to the last that a listener waits for.

    Progress is counted in rows run plus candidates scored; `text` says what for.
    """
    sets = list({id(listener.asked): listener.asked for listener in listeners}.values())
    place = {id(asked): i for i, asked in enumerate(sets)}
    joined = Joined(sets)
    stops = {row for listener in listeners for row in listener.stops}
    total = max([0, *stops, *joined.cut[-1:].tolist()]) + int(joined.ptr[-1])
    total += sum(listener.to_score for listener in listeners)
    planner = Planner(stream, scorer.spec)
    scorer.reset_state()
    blocks = plan_blocks(planner, joined, max_rows, max_candidates, sorted(stops))
    done = 0  # of what listeners score themselves

    def worked(candidates: int) -> None:
        nonlocal done
        done += candidates
        progress(step.stop + int(joined.ptr[step.first]) + done, total, text)

    for step, block in ahead(blocks, waits=lambda item: item[0].stop in stops):
        seen = _run(scorer, block, planner.counters, worked)
        shares = [joined.share(i, step.first, step.last) for i in range(len(sets))]
        for listener in listeners:
            listener.hear(seen, shares[place[id(listener.asked)]])
        progress(step.stop + int(joined.ptr[step.last]) + done, total, text)


def _run(scorer: Scorer, block: Block, counters: Counters, worked: Callable[[int], None]) -> Replayed:
    began = time.perf_counter()
    versions = scorer.update(block)
    updated = time.perf_counter()
    scores = checked_scores(scorer, block, versions) if len(block.queries) else np.zeros(0)
    seconds = {"plan": block.seconds, "update": updated - began, "score": time.perf_counter() - updated}
    return Replayed(block, versions, scores, counters, seconds, worked)


class Scores(Listener):
    """All scores, aligned with the candidates of `asked`."""

    def __init__(self, asked: Asked) -> None:
        self.asked = asked
        self.values = np.empty(int(asked.ptr[-1]))

    def hear(self, seen: Replayed, own: Share) -> None:
        """Keep them."""
        self.values[self.asked.ptr[own.first] : self.asked.ptr[own.last]] = seen.scores[own.at]


class Answers(Listener):
    """A protocol's answers, made of the scores or of any other number that each candidate has."""

    def __init__(self, questions: Questions, number: Callable[[Replayed], F64] = lambda seen: seen.scores) -> None:
        self.questions = questions
        self.asked = questions.asked
        self._number = number
        self.values = np.empty((len(self.asked), questions.columns))

    def hear(self, seen: Replayed, own: Share) -> None:
        """Keep the block's answers."""
        if own.last > own.first:
            self.values[own.first : own.last] = self.questions.answers(self._number(seen)[own.at], own.ptr)

    def outcomes(self) -> dict[str, Outcomes]:
        """How the positives of every set fared."""
        return self.questions.outcomes(self.values)

    def metrics(self) -> dict[str, Figures]:
        """Figures of every set."""
        return self.questions.metrics(self.values)

    def result(self, scorer: str) -> Result:
        """Figures of every set, with their card."""
        return self.questions.result(scorer, self.values)


def answering(questions: Questions, scorer: Scorer) -> Answers:
    """What collects a scorer's answers: in the protocol's own way, where it has one for this scorer."""
    own: Answers | None = questions.follow(scorer)
    return own or Answers(questions)


def answers_of(scorer: Scorer, questions: Questions) -> Answers:
    """Answers of a second scorer, which reads nothing but facts that the plan of the replay has anyway."""
    return Answers(questions, lambda seen: checked_scores(scorer, seen.block, scorer.update(seen.block)))


def figures(
    scorer: Scorer, stream: EventStream, questions: Questions, progress: Progress = unwatched, text: str = ""
) -> Result:
    """What a fitted scorer's answers are worth, from one replay of the stream."""
    answers = answering(questions, scorer)
    replay(scorer, stream, [answers], progress=progress, text=text)
    return answers.result(scorer.name)


def score_queries(
    scorer: Scorer,
    stream: EventStream,
    queries: Asked,
    *,
    max_rows: int = MAX_ROWS,
    max_candidates: int = MAX_CANDIDATES,
    progress: Progress = unwatched,
) -> F64:
    """Scores of all candidates, aligned with the candidates of `queries`."""
    scores = Scores(queries)
    replay(scorer, stream, [scores], max_rows=max_rows, max_candidates=max_candidates, progress=progress)
    return scores.values
