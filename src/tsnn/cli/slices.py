"""tsnn slices"""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from tsnn.cli.display import print_json
from tsnn.cli.evaluate import scorer_of
from tsnn.data.catalog import default_split, load
from tsnn.study.slices import error_slices
from tsnn.types import Visibility


def slices(
    scorer: Annotated[str, typer.Argument(help="A run folder or a baseline.")],
    data: Annotated[str, typer.Argument(help="Address or path of the data.")],
    visibility: Annotated[str, typer.Option(help="strict, arrival or batch:N.")] = "strict",
    segment: Annotated[str, typer.Option(help="val or test; look at val while a model is being changed.")] = "val",
    seed: Annotated[int, typer.Option(help="Seed of a baseline that learns.")] = 0,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
) -> None:
    """Where a scorer loses: repeats, new pairs, new nodes; by the pair's recency and the nodes' degrees."""
    seen = Visibility.parse(visibility)
    split = default_split(load(data))
    found = error_slices(scorer_of(scorer, split.stream, seed), split, seen, segment)
    if json:
        print_json({"scorer": scorer, "data": data, "visibility": visibility, "segment": segment, "slices": found})
        return
    table = Table("by", "slice", "positives", "pooled AP", "MRR", title=f"{scorer} on {data}, {segment}, {visibility}")
    for entry in found:
        figures = (f"{entry['count']:,}", f"{entry['ap']:.2f}", f"{entry['mrr']:.2f}")
        table.add_row(entry["by"], entry["slice"], *figures)
    Console().print(table)
