"""What a protocol asks of a split, and what the answers are worth: one shape for all of them.

    asked -> scores of a block -> answers, a row a query -> outcomes, a row a positive -> figures with their card

Answers are all that is kept of a block's scores, so that no more than a block of them exists, whoever gave them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np

from tsnn.data.queries import Asked, Joined, Ranking
from tsnn.data.question import Asks, Question, asks
from tsnn.data.split import Split
from tsnn.errors import ConfigError
from tsnn.evaluation.card import UPDATES, Card, Result, data_card, split_card, versions
from tsnn.evaluation.metrics import quick_average_precision, rank_metrics, ranks
from tsnn.types import F64, I64, Bool

Figures = dict[str, float]  # of one set, by metric
BOTH_ENDS = "undirected events: either end is asked for the other, so an event is two positives"


@dataclass(frozen=True)
class Outcomes:
    """How the positives of one set fared; the four columns are aligned."""

    rows: I64  # rows of the stream that hold the positives
    positive: F64  # score of the positive
    negative: F64  # score of its first negative
    rank: F64  # of the positive among the candidates it is ranked with: mean of optimistic and pessimistic rank

    def take(self, chosen: Bool) -> Outcomes:
        """Some of the positives."""
        return Outcomes(self.rows[chosen], self.positive[chosen], self.negative[chosen], self.rank[chosen])


class Questions(ABC):
    """A protocol on one split for one question: what every protocol says of itself, and what they all share."""

    protocol: ClassVar[str]  # what the card and --protocol call it
    says: ClassVar[str]  # its negatives and figures, for help and documentation
    strategies: ClassVar[tuple[str, ...]] = ("random",)  # of choosing negatives, the usual one first
    other_sources: ClassVar[tuple[str, ...]] = ()  # strategies whose negatives have sources of their own
    sets: ClassVar[tuple[str, ...]] = ("val", "test")
    metric: ClassVar[str]  # `ap` or `mrr`: the figure that stands first
    aggregation: ClassVar[str]  # how a set's figures come from its positives
    note: ClassVar[str] = ""  # what has to be known of the sets of new nodes, where there are any
    undirected: ClassVar[bool] = False  # whether it can ask about events of two equals
    columns: int  # of an answer
    asked: Asked  # the queries of all sets, sorted by cut

    def __init__(self, split: Split, question: Question, sets: Sequence[str] | None = None) -> None:
        strategy = question.negatives or self.strategies[0]
        if strategy not in self.strategies:
            known = " or ".join(self.strategies)
            raise ConfigError(f"the {self.protocol} protocol has no {strategy} negatives; its own are {known}.")
        if split.stream.undirected and not self.undirected:
            raise ConfigError(
                f"the {self.protocol} protocol asks sources only; ask about undirected events with --protocol stream."
            )
        strange = [name for name in sets or () if name not in self.sets]
        if strange:
            raise ConfigError(f"the {self.protocol} protocol has no set {strange[0]!r}; its own are {_and(self.sets)}.")
        self.trained = split
        self.split = split.with_history(question.history)  # whose rows are replayed and asked about
        self.question = replace(question, negatives=strategy).about(split.stream)
        self.names = sorted(sets or self.sets, key=self.sets.index)

    @property
    def compares_sources(self) -> bool:
        """Whether a positive is set against pairs of other sources, so that it counts who acts at all."""
        return self.question.negatives in self.other_sources

    @classmethod
    def for_validation(cls, split: Split, question: Question) -> Self:
        """Validation rows alone, and no more than the figure that chooses epochs and settings needs."""
        return cls(split, question, ("val",))

    def thinned(self, most: int) -> Self:
        """The same questions about fewer positives, evenly spread, where there are more than `most` candidates."""
        return self

    def follow(self, scorer: Any) -> Any:
        """A listener like `Answers` that is quicker with this scorer, where there is one; else None."""
        return None

    def fewer(self) -> Questions:
        """The same for whoever looks at single scores: some of the questions, where each has very many candidates."""
        return self

    @abstractmethod
    def answers(self, scores: F64, ptr: I64) -> F64:
        """From the scores of whole queries, bounded by `ptr`, to their answers (queries, columns)."""

    @abstractmethod
    def outcomes(self, answers: F64) -> dict[str, Outcomes]:
        """How the positives of every set fared."""

    @abstractmethod
    def figures(self, own: Outcomes) -> Figures:
        """The figures of one set."""

    @abstractmethod
    def negatives(self) -> dict[str, Any]:
        """What the card says of the negatives."""

    def metrics(self, answers: F64) -> dict[str, Figures]:
        """Figures of every set."""
        return {name: self.figures(own) for name, own in self.outcomes(answers).items()}

    @cached_property
    def ceilings(self) -> dict[str, Figures]:
        """What nobody can exceed but by luck, of every set: some negatives are true (`tsnn.evaluation.oracle`)."""
        from tsnn.evaluation.oracle import ceilings

        return ceilings(self)

    def result(self, scorer: str, answers: F64) -> Result:
        """Figures of every set, with their card."""
        fared = self.outcomes(answers)
        found = {name: self.figures(own) for name, own in fared.items()}
        stream, visibility = self.trained.stream, self.question.visibility
        card = Card(
            protocol=self.protocol,
            data=data_card(stream),
            split=split_card(self.trained),
            question=self.question.to_card(),
            visibility=str(visibility),
            updates=UPDATES[visibility.kind] + "; the state runs on through train, validation and test",
            negatives={"strategy": self.question.negatives, **self.negatives()},
            aggregation=self.aggregation,
            versions=versions(),
            notes=self._notes(found),
            positives={name: len(own.rows) for name, own in fared.items()},
            ceilings=self.ceilings,
        )
        return Result(scorer, stream.name, found, card)

    def _notes(self, found: Iterable[str]) -> list[str]:
        notes = [self.note] if any(name.startswith("new_") for name in found) else []
        return [*notes, *([BOTH_ENDS] if self.split.stream.undirected else [])]

    def choice(self, figures: Mapping[str, float]) -> float:
        """What chooses heads, epochs and settings, of the figures of the validation rows; in per cent."""
        return figures[self.metric] * (100 if self.metric == "mrr" else 1)

    def validation(self, answers: F64) -> float:
        """The same from answers, to rounding and without the rest."""
        val = self.outcomes(answers)["val"]
        ap = 100 * quick_average_precision(val.positive, val.negative)
        return self.choice({"ap": ap, **rank_metrics(val.rank)})


def _and(names: Sequence[str]) -> str:
    return f"{', '.join(names[:-1])} and {names[-1]}"


class RankedQuestions(Questions):
    """One query per event of a set, or two of an undirected one: its own destination first, then its negatives.

    An answer is the score of the positive, that of its first negative, and the positive's rank.
    """

    columns = 3

    def __init__(self, split: Split, question: Question, sets: Sequence[str] | None = None) -> None:
        super().__init__(split, question, sets)
        cuts = question.cuts(split)
        self.parts = []
        for name in self.names:
            own = asks(split.stream, np.arange(*split.bounds(name), dtype=np.int64))
            self.parts.append(Ranking(split.stream, own, cuts[own.rows], *self.draw(name, own)))
        self.asked: Joined = Joined(self.parts)

    @abstractmethod
    def draw(self, name: str, own: Asks) -> tuple[I64, Any]:
        """Negatives of what a set asks: those of the i-th are nodes[bounds[i]:bounds[i+1]]."""

    def answers(self, scores: F64, ptr: I64) -> F64:
        """Score of the positive, score of the first negative, rank."""
        return np.stack([scores[ptr[:-1]], scores[ptr[:-1] + 1], ranks(scores, ptr)], axis=1)

    def outcomes(self, answers: F64) -> dict[str, Outcomes]:
        """Each positive among its negatives."""
        own = zip(self.names, self.parts, self.asked.split(answers), strict=True)
        return {name: Outcomes(part.asks.rows, *table.T) for name, part, table in own}

    def thinned(self, most: int) -> Self:
        """Every so many positives, with the negatives that they have anyway."""
        step = -(-int(self.asked.ptr[-1]) // most)
        if step <= 1:
            return self
        fewer = copy(self)
        fewer.parts = [part.every(step) for part in self.parts]
        fewer.asked = Joined(fewer.parts)
        return fewer

    def mean_negatives(self) -> dict[str, float]:
        """Negatives per positive of each set."""
        return {name: float(np.diff(part.bounds).mean()) for name, part in zip(self.names, self.parts, strict=True)}
