"""The ceiling: what a scorer would get that knows everything a question holds and all that happens.

A scorer is told source, relation, candidate, time and the rows before the cut. Questions in which all of these are
equal get equal scores from anybody, so a negative that has happened cannot be told from the positive that it repeats.
Who knows every event can do no more than order (cut, time, source, relation, candidate) by how much likelier a positive
is there than a negative; equal ones tie.

- Where negatives keep the source (random ones and all ranked lists), negatives fall evenly on the candidates, as many
  for each row of the source: the order is by the *share* of the source's rows of this moment that go to the candidate.
- Where negatives have other sources (historical and inductive ones), it is by the *number* of such rows.

Under `strict` a moment is a time; under `arrival` it is a single row, so that only a negative equal to its own positive
remains; under `batch:N` it is a time inside a batch. Average precision counts ties as the worst order of the tied, so
a scorer that orders arbitrarily what cannot be known may exceed the ceiling a little; `beyond_luck` says by how much.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tsnn.data.queries import Asked, Queries, relations
from tsnn.data.question import Question, asks
from tsnn.data.split import Split
from tsnn.evaluation.baselines import Stateless
from tsnn.evaluation.questions import Figures, Questions
from tsnn.evaluation.scorer import MAX_CANDIDATES, Block
from tsnn.types import F64, I64, Bool

ORDERS = 12  # in which luck is tried
SIGMAS = 4.0  # of its spread that are still luck
NOT_A_METHOD = "The oracle is told which events happen: its figures are the ceiling of every method, and no method's."


class Oracle(Stateless):
    """Knows every row of the stream, and of each how often it happens at its moment."""

    name = "oracle"
    remark = NOT_A_METHOD

    def fit(self, split: Split, question: Question) -> None:
        """Learn the answers by heart, those of test rows too."""
        split = split.with_history(question.history)
        stream = split.stream
        own = asks(stream, np.arange(stream.num_events))
        self._times = np.unique(stream.t)
        self._relations, self._nodes = max(stream.num_relations, 1), stream.num_nodes
        moment = self._moment(question.cuts(split)[own.rows], stream.t[own.rows])
        self._moments = np.unique(moment)
        self._sources, source, of_source = np.unique(
            self._source(moment, relations(stream, own.rows), own.src), return_inverse=True, return_counts=True
        )
        self._events, count = np.unique(source * self._nodes + own.dst, return_counts=True)
        share = count / of_source[self._events // self._nodes]
        self.worth: F64 = count.astype(np.float64) if question.sources_differ else share

    def score(self, plan: Block, versions: None) -> F64:
        """Of each candidate, what is known of the event that it would be."""
        return self.known(plan.queries)

    def known(self, queries: Queries) -> F64:
        """The worth of each candidate's event; 0 where it does not happen."""
        moment = self._moment(queries.cut, queries.t)
        source, acts = _find(self._sources, self._source(moment, queries.edge_type, queries.src))
        source = np.where(acts & np.isin(moment, self._moments), source, -1)
        sizes = np.diff(queries.ptr)
        event, happens = _find(self._events, np.repeat(source * self._nodes, sizes) + queries.cand)
        return np.where(happens & np.repeat(source >= 0, sizes), self.worth[event], 0.0)

    def _moment(self, cut: I64, t: NDArray[Any]) -> I64:
        """Cut and time as one number; a time at which nothing happens has a number that no row has."""
        place, there = _find(self._times, t)
        return cut * (len(self._times) + 1) + np.where(there, place, len(self._times))

    def _source(self, moment: I64, relation: I64, src: I64) -> I64:
        """Moment, relation and source as one number, small enough for any stream."""
        place = np.searchsorted(self._moments, moment)
        return (place * self._relations + relation) * self._nodes + src


def _find(ordered: NDArray[Any], wanted: NDArray[Any]) -> tuple[I64, Bool]:
    """Where each wanted value stands among the ordered ones, and whether it is there."""
    place = np.minimum(np.searchsorted(ordered, wanted), len(ordered) - 1)
    return place, ordered[place] == wanted


def fitted(questions: Questions) -> Oracle:
    """The oracle of what is asked."""
    oracle = Oracle()
    oracle.fit(questions.trained, questions.question)
    return oracle


def ceilings(questions: Questions, oracle: Oracle | None = None) -> dict[str, Figures]:
    """The oracle's figures of every set. It needs no replay: it knows the rows already."""
    oracle = oracle or fitted(questions)
    answers = np.empty((len(questions.asked), questions.columns))
    for start, stop in _slices(questions.asked):
        queries = questions.asked.slice(start, stop)
        answers[start:stop] = questions.answers(oracle.known(queries), queries.ptr)
    return questions.metrics(answers)


def _slices(asked: Asked) -> Iterator[tuple[int, int]]:
    start, ptr = 0, asked.ptr
    while start < len(asked):
        stop = max(start + 1, int(np.searchsorted(ptr, ptr[start] + MAX_CANDIDATES, side="right")) - 1)
        yield start, stop
        start = stop


def luck(questions: Questions) -> dict[str, Figures]:
    """The figure of each set beyond which luck does not carry who knows every event.

    Luck is an arbitrary order of the events that happen, or of those among them that are equally likely a positive:
    mean and spread of a few such orders.
    """
    oracle, rng = fitted(questions), np.random.default_rng(0)
    _, level = np.unique(oracle.worth, return_inverse=True)
    limits: list[dict[str, Figures]] = []
    for base in (1.0 + level, np.ones(len(level))):
        tried = []
        for _ in range(ORDERS):
            oracle.worth = base + rng.random(len(level))
            tried.append(ceilings(questions, oracle))
        limits.append({name: {m: _limit([one[name][m] for one in tried]) for m in tried[0][name]} for name in tried[0]})
    return {name: {m: max(one[name][m] for one in limits) for m in own} for name, own in limits[0].items()}


def _limit(values: list[float]) -> float:
    return float(np.mean(values) + SIGMAS * np.std(values, ddof=1))


def beyond_luck(questions: Questions, figures: dict[str, Figures]) -> list[str]:
    """In words, which figures nobody can have got by answering the questions; mostly none."""
    known = questions.ceilings
    above = [(name, m) for name, own in figures.items() for m, value in own.items() if value > known[name][m] + 1e-9]
    if not above:
        return []
    limits = luck(questions)
    return [
        f"{name} {m} {figures[name][m]:.4g} is more than anybody can get who knows every event ({known[name][m]:.4g}, "
        f"with luck {limits[name][m]:.4g})"
        for name, m in above
        if figures[name][m] > limits[name][m]
    ]
