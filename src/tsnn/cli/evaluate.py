"""tsnn evaluate"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tsnn.cli.display import print_figures, print_json
from tsnn.data.catalog import default_split, load
from tsnn.data.events import EventStream
from tsnn.errors import ConfigError
from tsnn.evaluation.evaluate import evaluate as evaluate_scorer
from tsnn.evaluation.model import ModelScorer
from tsnn.evaluation.roster import NAMES, baseline
from tsnn.evaluation.scorer import Scorer
from tsnn.training.run import Run
from tsnn.types import Visibility


def evaluate(
    scorer: Annotated[
        str, typer.Argument(help=f"A run folder, or one of {', '.join(NAMES)}; edgebank:MODE chooses its memory.")
    ],
    data: Annotated[str, typer.Argument(help="Address or path of the data.")],
    protocol: Annotated[str | None, typer.Option(help="dgb, tgb or stream; by default that of the data.")] = None,
    visibility: Annotated[str, typer.Option(help="strict, arrival or batch:N.")] = "strict",
    negatives: Annotated[str, typer.Option(help="random, historical or inductive (dgb).")] = "random",
    seed: Annotated[int, typer.Option(help="Seed of a baseline that learns.")] = 0,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
) -> None:
    """Evaluate a run or a baseline: every figure comes with what an event was allowed to see."""
    seen = Visibility.parse(visibility)
    split = default_split(load(data))
    candidate = scorer_of(scorer, split.stream, seed)
    result = evaluate_scorer(candidate, split, seen, protocol=protocol, negatives=negatives).to_dict()
    if json:
        print_json(result)
    else:
        print_figures([result])


def scorer_of(name: str, stream: EventStream, seed: int) -> Scorer:
    """The run in a folder, or the baseline of that name."""
    if name.partition(":")[0] in NAMES:
        return baseline(name, data=stream.name, seed=seed)
    if not Path(name).is_dir():
        raise ConfigError(f"{name} is neither a run folder nor one of {', '.join(NAMES)}.")
    return ModelScorer(Run.load(name).model, stream)
