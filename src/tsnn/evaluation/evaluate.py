"""One door to every protocol: which one suits a stream, and the figures of a scorer under it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tsnn.data.catalog import tgb_negatives
from tsnn.data.events import EventStream
from tsnn.data.split import Split
from tsnn.errors import ConfigError
from tsnn.evaluation.card import Result
from tsnn.evaluation.dgb import SETS as DGB_SETS
from tsnn.evaluation.dgb import evaluate_dgb
from tsnn.evaluation.roster import baseline
from tsnn.evaluation.scorer import Progress, Scorer
from tsnn.evaluation.stream import evaluate_stream
from tsnn.evaluation.tgb import evaluate_tgb
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


def validation_metric(split: Split, visibility: Visibility) -> Callable[[Scorer], float]:
    """The figure that chooses epochs and settings; it reads validation rows and never a test row."""
    protocol = protocol_of(split.stream)
    stored = tgb_negatives(split) if protocol == "tgb" else None

    def measure(scorer: Scorer) -> float:
        if protocol == "dgb":
            result = evaluate_dgb(scorer, split, visibility, sets=("val",))
        elif stored is not None:
            result = evaluate_tgb(scorer, split, visibility, stored, sets=("val",))
        else:
            result = evaluate_stream(scorer, split, visibility, negatives=_VALIDATION_NEGATIVES, sets=("val",))
        return result.metrics["val"][SELECTION[protocol]]

    return measure


def compared_baselines(stream: EventStream, seed: int = 0) -> list[Scorer]:
    """What every report sets beside the model: the heuristics, and the features that need no state."""
    return [baseline(name, data=stream.name, seed=seed) for name in COMPARED]
