"""Each question's own answer ranked among all nodes, exactly, in bounded memory.

Questions of one cut differ in little but their source. So the replay stops at each cut, and all nodes are scored there
for one source after the other, from the states and counters as they stand. Scores exist for a few questions at a time;
ranks, in double precision, are all that is kept.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from typing import Any, NamedTuple, Protocol

import numpy as np

from tsnn.data.every_node import EveryNode
from tsnn.data.queries import NO_QUERIES, Queries, Share
from tsnn.errors import InputError
from tsnn.evaluation.card import Result
from tsnn.evaluation.questions import Figures, Outcomes, Questions
from tsnn.evaluation.replay import Listener, Replayed
from tsnn.evaluation.scorer import Block, Scorer
from tsnn.kernel_cache import kernel
from tsnn.plan.chunk import ScorePlan, facts_alone
from tsnn.plan.history import History
from tsnn.plan.planner import Planner
from tsnn.plan.tables import N_PAIRS
from tsnn.types import F64, I64

BLOCK = 8192  # nodes whose facts exist at once: bounds memory, and stays in the cache
QUESTIONS = 8  # whose scores exist at once, on each core


class Here(NamedTuple):
    """A replay that stands at a row, as one worker sees it: the stream, its counters, and a scratch of its own."""

    row: int
    planner: Planner
    history: History

    def plans(self, queries: Queries, i: int, kind: type[np.floating[Any]]) -> Iterator[tuple[slice, ScorePlan]]:
        """The facts of all nodes for question i, block after block."""
        planner, src, t, relation = self.planner, int(queries.src[i]), queries.t[i : i + 1], int(queries.edge_type[i])
        tables = planner.counters.tables
        last, nodes = tables.last_dst[src], planner.stream.num_nodes
        is_related = np.zeros(nodes, np.bool_)
        is_related[self.history.related(src, last[last >= 0].tolist())] = True
        for start in range(0, nodes, BLOCK):
            rows = slice(start, min(start + BLOCK, nodes))
            cand = np.arange(rows.start, rows.stop)
            facts = planner.survey(src, t, relation, cand, is_related[rows], kind)
            yield rows, facts_alone(src, relation, cand, facts, int(tables.ints[N_PAIRS]))


Everyone = Callable[[Queries], F64]
"""The scores of all nodes, a row a question; the candidates that the questions name are not read."""


class ScoresAll(Scorer, Protocol):
    """A scorer that can score all nodes from where a replay stands."""

    def against_all(self, here: Here) -> Everyone:
        """What answers questions that are cut here."""


def from_facts(scorer: Scorer, here: Here) -> Everyone:
    """What a scorer says that reads facts and nothing else."""
    stream = here.planner.stream
    nothing = here.planner.plan(0, NO_QUERIES).update

    def everyone(queries: Queries) -> F64:
        found = np.empty((len(queries), stream.num_nodes))
        for i in range(len(queries)):
            asked = queries.slice(i, i + 1)
            for rows, plan in here.plans(queries, i, np.float64):
                found[i, rows] = scorer.score(Block(nothing, plan, asked, stream), None)
        return found

    return everyone


class AllRanks(Listener):
    """Ranks the answer of every question among all nodes; its figures are those of `Answers`."""

    def __init__(self, questions: Questions, sets: list[EveryNode], scorer: ScoresAll) -> None:
        """`sets` are those of the questions; their cuts go on from one set to the next."""
        self.questions, self._scorer = questions, scorer
        self._place = dict(zip(map(id, sets), np.cumsum([0, *map(len, sets)]).tolist(), strict=False))
        self._sets = sets
        self.stops = np.unique(np.concatenate([own.cut for own in sets])).tolist()
        self.values = np.empty((sum(map(len, sets)), questions.columns))
        self.to_score = len(self.values) * questions.split.stream.num_nodes
        self._waiting = set(self.stops)

    def hear(self, seen: Replayed, own: Share) -> None:
        """Where the replay stands at a cut, answer all of its questions."""
        row = seen.block.update.stop
        if row not in self._waiting:
            return
        self._waiting.remove(row)
        jobs, sights = self._jobs(row), self._sights(seen)

        def work(job: Job) -> int:
            scores_of = sights.get()
            try:
                scores = scores_of(job.asked.without_candidates(job.start, job.stop))
            finally:
                sights.put(scores_of)
            place = self._place[id(job.asked)]
            self.values[place + job.start : place + job.stop] = rank_among_all(scores, job)
            return scores.size

        with ThreadPoolExecutor(sights.qsize()) as pool:
            for scored in pool.map(work, jobs):
                seen.worked(scored)

    def _sights(self, seen: Replayed) -> SimpleQueue[Everyone]:
        """What scores all nodes from here, once for each core."""
        stream, spec, counters = seen.block.stream, self._scorer.spec, seen.counters
        history = History.of(counters.tables, stream.undirected)
        sights: SimpleQueue[Everyone] = SimpleQueue()
        for _ in range(cores()):
            planner = Planner(stream, spec, counters.beside(), stream.t[0])
            sights.put(self._scorer.against_all(Here(seen.block.update.stop, planner, history)))
        return sights

    def _jobs(self, row: int) -> list[Job]:
        jobs = []
        for asked in self._sets:
            begin, end = np.searchsorted(asked.cut, [row, row + 1]).tolist()
            jobs += [Job(asked, at, min(at + QUESTIONS, end)) for at in range(begin, end, QUESTIONS)]
        return jobs

    def outcomes(self) -> dict[str, Outcomes]:
        """How the positives of every set fared."""
        return self.questions.outcomes(self.values)

    def metrics(self) -> dict[str, Figures]:
        """Figures of every set."""
        return self.questions.metrics(self.values)

    def result(self, scorer: str) -> Result:
        """Figures of every set, with their card."""
        return self.questions.result(scorer, self.values)


class Job(NamedTuple):
    """A few questions of one cut."""

    asked: EveryNode
    start: int
    stop: int


def cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def rank_among_all(scores: F64, job: Job) -> F64:
    """Score of each positive, score of one negative, and rank: mean of the optimistic and the pessimistic one."""
    if np.isnan(scores).any():
        raise InputError(f"{int(np.isnan(scores).sum())} of {scores.size} scores are NaN; find out why first.")
    asked, some = job.asked, slice(job.start, job.stop)
    answers = np.empty((len(scores), 3))
    _rank(scores, asked.asks.dst[some], asked.group[some], asked.out_ptr, asked.out, asked.first[some], answers)
    return answers


@kernel()
def _rank(scores: F64, dst: I64, group: I64, out_ptr: I64, out: I64, first: I64, answers: F64) -> None:
    nodes = scores.shape[1]
    for q in range(len(dst)):
        row, own = scores[q], scores[q, dst[q]]
        greater, equal = 0, 0
        for node in range(nodes):
            greater += row[node] > own
            equal += row[node] == own
        a, b = out_ptr[group[q]], out_ptr[group[q] + 1]
        for at in range(a, b):
            greater -= row[out[at]] > own
            equal -= row[out[at]] == own
        node = first[q]
        at = a + np.searchsorted(out[a:b], node)
        while at < b and out[at] == node:  # the first from there on that is not left out, going round
            node, at = node + 1, at + 1
            if node == nodes:
                node, at = 0, a
        answers[q, 0], answers[q, 1], answers[q, 2] = own, row[node % nodes], 1 + greater + 0.5 * equal
