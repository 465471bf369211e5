"""tsnn evaluate"""

from __future__ import annotations

from typing import Annotated

import typer

from tsnn.cli.display import console, print_figures, print_json, shown_bar
from tsnn.cli.options import (
    Candidates,
    Data,
    Json,
    Seed,
    TableOptions,
    VisibilityName,
    complete_scorer,
    reads_table,
)
from tsnn.config import parse_override
from tsnn.evaluation.baselines import ROSTER, told
from tsnn.evaluation.catalog import PROTOCOLS

_PROTOCOLS = "; ".join(f"{name} ({questions.says})" for name, questions in PROTOCOLS.items())
_STRATEGIES = "; ".join(f"{', '.join(questions.strategies)} ({name})" for name, questions in PROTOCOLS.items())

_SETTINGS = ", ".join(f"{name}.{own}=VALUE" for name, entry in ROSTER.items() for own in entry.settings)


@reads_table
def evaluate(
    scorer: Annotated[
        str,
        typer.Argument(help=f"A run folder, or a baseline: {told()}", autocompletion=complete_scorer),
    ],
    data: Data,
    protocol: Annotated[str | None, typer.Option(help=f"{_PROTOCOLS}. By default that of the data.")] = None,
    visibility: VisibilityName = "strict",
    candidates: Candidates = None,
    negatives: Annotated[str | None, typer.Option(help=f"{_STRATEGIES}. By default the first.")] = None,
    history: Annotated[
        str | None,
        typer.Option(
            help="full: what DGB keeps out of training may be seen when asked; train: it may not, as by default."
        ),
    ] = None,
    seed: Seed = 0,
    set_: Annotated[
        list[str] | None, typer.Option("--set", help=f"A setting of a baseline, as {_SETTINGS}; several times.")
    ] = None,
    json: Json = False,
    *,
    table: TableOptions,
) -> None:
    """Evaluate a run or a baseline: every figure comes with what an event was allowed to see."""
    from tsnn import api

    with shown_bar(json) as progress:
        found = api.evaluate(
            scorer,
            data,
            visibility,
            protocol=protocol,
            candidates=candidates,
            negatives=negatives,
            history=history,
            seed=seed,
            settings=dict(parse_override(text) for text in set_ or []),
            progress=progress,
            **table,
        )
    result = found.to_dict()
    if json:
        print_json(result)
    else:
        print_figures([result])
        if found.remark:
            console.print(found.remark)
