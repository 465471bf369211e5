"""One door to every protocol: what a stream is asked, and what a scorer's answers are worth."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from tsnn.data.events import EventStream
from tsnn.data.question import Question
from tsnn.data.split import Split
from tsnn.evaluation.baselines import baseline, compared
from tsnn.evaluation.card import Result
from tsnn.evaluation.catalog import protocol_of, suite_of
from tsnn.evaluation.contracts import spot_check
from tsnn.evaluation.joint import joined, told
from tsnn.evaluation.method import Method, as_scorer
from tsnn.evaluation.model import ModelScorer, remark_of
from tsnn.evaluation.oracle import beyond_luck
from tsnn.evaluation.questions import Questions
from tsnn.evaluation.replay import Answers, figures, replay
from tsnn.evaluation.scorer import Scorer
from tsnn.types import Progress, Visibility, unwatched


def evaluate(
    scorer: Scorer | Method,
    split: Split,
    question: Question | Visibility,
    *,
    protocol: str | None = None,
    sets: Sequence[str] | None = None,
    progress: Progress = unwatched,
) -> Result:
    """Fit the scorer if it has to learn, replay the stream, and return its figures with their card.

    A method of one's own, with `observe(row)` and `score(src, candidates, t)`, is a scorer too. One that knows what it
    may not see is refused. A visibility stands for the usual question under it.
    """
    question = question if isinstance(question, Question) else Question(question)
    questions = make_questions(split, question, protocol=protocol, sets=sets)
    own = as_scorer(scorer)
    own.fit(split, question)
    spot_check(own, split, question)
    text = f"evaluating {own.name}"
    if isinstance(own, ModelScorer) and questions.compares_sources and own.model.config.train.intensity:
        pairs, joint = joined(own, split, questions, progress)
        found = told(figures(pairs, questions.split.stream, questions, progress, text), joint)
    else:
        found = figures(own, questions.split.stream, questions, progress, text)
    remark = remark_of(own.model) if isinstance(own, ModelScorer) else getattr(own, "remark", "")
    doubts = [f"{doubt}: it was answered with more than was asked." for doubt in beyond_luck(questions, found.metrics)]
    return replace(found, remark=" ".join([*filter(None, [remark]), *doubts]))


def make_questions(
    split: Split, question: Question, *, protocol: str | None = None, sets: Sequence[str] | None = None
) -> Questions:
    """What a protocol asks, by default that of the stream's own suite."""
    return protocol_of(split.stream, protocol)(split, question, sets)


def validation_questions(split: Split, question: Question) -> Questions:
    """Validation rows alone, and no more than the figure that chooses epochs and settings needs."""
    return protocol_of(split.stream).for_validation(split, question)


def validation_metric(split: Split, question: Question) -> Callable[[Scorer], float]:
    """The figure that chooses epochs and settings; it reads validation rows and never a test row."""
    questions = validation_questions(split, question)

    def measure(scorer: Scorer) -> float:
        answers = Answers(questions)
        replay(scorer, questions.split.stream, [answers])
        return questions.choice(answers.metrics()["val"])

    return measure


def compared_baselines(stream: EventStream, question: Question, seed: int = 0) -> list[Scorer]:
    """What every report sets beside the model: the heuristics, those of the suite, the features that need no state."""
    names = (*suite_of(stream.name).rivals, *compared(question.sources_differ))
    return [baseline(name, data=stream.name, seed=seed) for name in names]
