"""tsnn evaluate"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tsnn.cli.display import print_figures, print_json, shown_bar
from tsnn.cli.options import Candidates, Data, Json, Seed, TableOptions, VisibilityName, reads_table
from tsnn.data.question import Question
from tsnn.errors import ConfigError
from tsnn.evaluation.baselines import ROSTER, baseline, told
from tsnn.evaluation.catalog import PROTOCOLS, default_split, load
from tsnn.types import Visibility

if TYPE_CHECKING:
    from tsnn.data.split import Split
    from tsnn.evaluation.scorer import Scorer

_PROTOCOLS = "; ".join(f"{name} ({questions.says})" for name, questions in PROTOCOLS.items())
_STRATEGIES = "; ".join(f"{', '.join(questions.strategies)} ({name})" for name, questions in PROTOCOLS.items())


@reads_table
def evaluate(
    scorer: Annotated[
        str,
        typer.Argument(help=f"A run folder, or a baseline: {told()}"),
    ],
    data: Data,
    protocol: Annotated[str | None, typer.Option(help=f"{_PROTOCOLS}. By default that of the data.")] = None,
    visibility: VisibilityName = "strict",
    candidates: Candidates = None,
    negatives: Annotated[str | None, typer.Option(help=f"{_STRATEGIES}. By default the first.")] = None,
    seed: Seed = 0,
    json: Json = False,
    *,
    table: TableOptions,
) -> None:
    """Evaluate a run or a baseline: every figure comes with what an event was allowed to see."""
    from tsnn.evaluation.evaluate import evaluate as evaluate_scorer

    parsed = Visibility.parse(visibility)
    candidate, split, question = asked_of(scorer, data, seed, table)
    question = replace(question, visibility=parsed, negatives=negatives)
    if candidates:
        question = replace(question, candidates=candidates)
    with shown_bar(json) as progress:
        found = evaluate_scorer(candidate, split, question, protocol=protocol, progress=progress)
    result = found.to_dict()
    if json:
        print_json(result)
    else:
        print_figures([result])


def asked_of(name: str, data: str, seed: int, table: TableOptions) -> tuple[Scorer, Split, Question]:
    """The run in a folder, or the baseline of that name; the data it is asked about; what it is made for."""
    from tsnn.evaluation.model import ModelScorer
    from tsnn.training.run import Run

    is_baseline = name.partition(":")[0] in ROSTER
    if not is_baseline and not Path(name).is_dir():
        raise ConfigError(f"{name} is neither a run folder nor one of {', '.join(ROSTER)}.")
    run = None if is_baseline else Run.load(name)
    split = default_split(load(data, None if run is None else run.description, **table))
    if run is None:
        return baseline(name, data=split.stream.name, seed=seed), split, Question()
    return ModelScorer(run.model, split.stream), split, run.question
