"""One door to every protocol: which one suits a stream, and the figures of a scorer under it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tsnn.data.catalog import tgb_negatives
from tsnn.data.events import EventStream
from tsnn.data.split import Split
from tsnn.errors import ConfigError
from tsnn.evaluation.baselines import COMPARED, baseline
from tsnn.evaluation.card import Result
from tsnn.evaluation.dgb import SETS as DGB_SETS
from tsnn.evaluation.dgb import DgbQuestions
from tsnn.evaluation.questions import Questions
from tsnn.evaluation.replay import figures
from tsnn.evaluation.scorer import Scorer
from tsnn.evaluation.stream import NEGATIVES, StreamQuestions
from tsnn.evaluation.tgb import TgbQuestions
from tsnn.types import Progress, Visibility, unwatched

PROTOCOLS = ("dgb", "tgb", "stream")
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
    progress: Progress = unwatched,
) -> Result:
    """Fit the scorer if it has to learn, replay the stream, and return its figures with their card."""
    questions = make_questions(split, visibility, protocol=protocol, negatives=negatives, sets=sets)
    scorer.fit(split, visibility)
    return figures(scorer, split.stream, questions, progress, f"evaluating {scorer.name}")


def make_questions(
    split: Split,
    visibility: Visibility,
    *,
    protocol: str | None = None,
    negatives: str = "random",
    sets: Sequence[str] | None = None,
    others: int = NEGATIVES,
) -> Questions:
    """What a protocol asks, by default that of the stream's own suite; `stream` ranks against so many `others`."""
    protocol = protocol or protocol_of(split.stream)
    if negatives != "random" and protocol != "dgb":
        raise ConfigError(f"{negatives} negatives belong to the dgb protocol; leave them out with {protocol}.")
    if protocol == "tgb" and protocol_of(split.stream) != "tgb":
        raise ConfigError(f"{split.stream.name} has no negatives of TGB; use the protocol dgb or stream.")
    if protocol == "dgb":
        return DgbQuestions(split, visibility, strategy=negatives, sets=sets or DGB_SETS)
    both = sets or ("val", "test")
    if protocol == "tgb":
        return TgbQuestions(split, visibility, tgb_negatives(split), sets=both)
    if protocol == "stream":
        return StreamQuestions(split, visibility, negatives=others, sets=both)
    raise ConfigError(f"protocol {protocol!r} is none of {', '.join(PROTOCOLS)}.")


def validation_questions(split: Split, visibility: Visibility) -> Questions:
    """Validation rows alone, and no more than the figure that chooses epochs and settings needs."""
    return make_questions(split, visibility, sets=("val",), others=_VALIDATION_NEGATIVES)


def validation_metric(split: Split, visibility: Visibility) -> Callable[[Scorer], float]:
    """The figure that chooses epochs and settings; it reads validation rows and never a test row."""
    questions, name = validation_questions(split, visibility), SELECTION[protocol_of(split.stream)]

    def measure(scorer: Scorer) -> float:
        return figures(scorer, split.stream, questions).metrics["val"][name]

    return measure


def compared_baselines(stream: EventStream, seed: int = 0) -> list[Scorer]:
    """What every report sets beside the model: the heuristics, and the features that need no state."""
    return [baseline(name, data=stream.name, seed=seed) for name in COMPARED]
