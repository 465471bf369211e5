"""tsnn slices"""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from tsnn.cli.display import print_json, shown_bar
from tsnn.cli.options import Data, Json, Seed, TableOptions, VisibilityName, complete_scorer, reads_table
from tsnn.types import Visibility


@reads_table
def slices(
    scorer: Annotated[str, typer.Argument(help="A run folder or a baseline.", autocompletion=complete_scorer)],
    data: Data,
    visibility: VisibilityName = "strict",
    segment: Annotated[str, typer.Option(help="val or test; look at val while a model is being changed.")] = "val",
    seed: Seed = 0,
    json: Json = False,
    *,
    table: TableOptions,
) -> None:
    """Where a scorer loses: repeats, new pairs, new nodes; by the pair's recency and the nodes' degrees."""
    from tsnn.api import asked_of
    from tsnn.evaluation.slices import error_slices

    parsed = Visibility.parse(visibility)
    candidate, split, question = asked_of(scorer, data, seed, **table)
    question = replace(question, visibility=parsed, negatives=None)
    with shown_bar(json) as progress:
        found = error_slices(candidate, split, question, segment, progress)
    if json:
        told = {"scorer": scorer, "data": data, "visibility": visibility, "segment": segment}
        print_json({**told, "slices": [asdict(entry) for entry in found]})
        return
    title = f"{scorer} on {data}, {segment}, {visibility}"
    shown = Table("by", "slice", "positives", "pooled AP", "MRR", title=title)
    for entry in found:
        shown.add_row(entry.by, entry.slice, f"{entry.count:,}", f"{entry.ap:.2f}", f"{entry.mrr:.4f}")
    Console().print(shown)
