"""One door to every protocol: which one suits a stream, and the figures of a scorer under it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tsnn.data.catalog import tgb_negatives
from tsnn.data.events import EventStream
from tsnn.data.split import Split
from tsnn.errors import ConfigError
from tsnn.evaluation.card import Result
from tsnn.evaluation.dgb import SETS as DGB_SETS
from tsnn.evaluation.dgb import DgbQuestions, evaluate_dgb
from tsnn.evaluation.questions import Questions, ask
from tsnn.evaluation.roster import baseline
from tsnn.evaluation.scorer import Progress, Scorer
from tsnn.evaluation.stream import StreamQuestions, evaluate_stream
from tsnn.evaluation.tgb import TgbQuestions, evaluate_tgb
from tsnn.types import Visibility

PROTOCOLS = ("dgb", "tgb", "stream")
COMPARED = ("edgebank", "popularity", "recency", "features")
SELECTION = {"dgb": "ap", "tgb": "mrr", "stream": "ap"}  # the validation figure that training looks at
_VALIDATION_NEGATIVES = 1  # of `stream`: AP needs no more


def protocol_of(stream: EventStream) -> str:
    """The protocol of the stream's own suite; `stream` for any other table."""
    scheme = stream.name.partition(":")[0]
    return scheme if scheme in ("dgb", "tgb") else "stream"


def evaluate(
    scorer: Scorer,
    split: Split,
    visibility: Visibility,
    *,
    protocol: str | None = None,
    negatives: str = "random",
    sets: Sequence[str] | None = None,
    progress: Progress | None = None,
) -> Result:
    """Fit the scorer if it has to learn, replay the stream, and return its figures with their card."""
    protocol = protocol or protocol_of(split.stream)
    if negatives != "random" and protocol != "dgb":
        raise ConfigError(f"{negatives} negatives belong to the dgb protocol; leave them out with {protocol}.")
    if protocol == "tgb" and protocol_of(split.stream) != "tgb":
        raise ConfigError(f"{split.stream.name} has no negatives of TGB; use the protocol dgb or stream.")
    scorer.fit(split, visibility)
    if protocol == "dgb":
        return evaluate_dgb(scorer, split, visibility, strategy=negatives, sets=sets or DGB_SETS, progress=progress)
    both = sets or ("val", "test")
    if protocol == "tgb":
        return evaluate_tgb(scorer, split, visibility, tgb_negatives(split), sets=both, progress=progress)
    if protocol == "stream":
        return evaluate_stream(scorer, split, visibility, sets=both, progress=progress)
    raise ConfigError(f"protocol {protocol!r} is none of {', '.join(PROTOCOLS)}.")


def own_questions(split: Split, visibility: Visibility) -> Questions:
    """What `evaluate` asks of a model by the protocol of the stream's own suite."""
    protocol = protocol_of(split.stream)
    if protocol == "dgb":
        return DgbQuestions(split, visibility)
    if protocol == "tgb":
        return TgbQuestions(split, visibility, tgb_negatives(split))
    return StreamQuestions(split, visibility)


def validation_questions(split: Split, visibility: Visibility) -> Questions:
    """The same on validation rows alone, and no more than the figure that chooses epochs and settings needs."""
    protocol = protocol_of(split.stream)
    if protocol == "dgb":
        return DgbQuestions(split, visibility, sets=("val",))
    if protocol == "tgb":
        return TgbQuestions(split, visibility, tgb_negatives(split), sets=("val",))
    return StreamQuestions(split, visibility, negatives=_VALIDATION_NEGATIVES, sets=("val",))


def validation_metric(split: Split, visibility: Visibility) -> Callable[[Scorer], float]:
    """The figure that chooses epochs and settings; it reads validation rows and never a test row."""
    questions, name = validation_questions(split, visibility), SELECTION[protocol_of(split.stream)]

    def measure(scorer: Scorer) -> float:
        answers = ask(scorer, split.stream, questions)
        return questions.result(scorer.name, answers).metrics["val"][name]

    return measure


def compared_baselines(stream: EventStream, seed: int = 0) -> list[Scorer]:
    """What every report sets beside the model: the heuristics, and the features that need no state."""
    return [baseline(name, data=stream.name, seed=seed) for name in COMPARED]
