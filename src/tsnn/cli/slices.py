"""tsnn slices"""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from tsnn.cli.display import print_json
from tsnn.cli.evaluate import scorer_and_split
from tsnn.cli.options import Data, Json, Seed, VisibilityName
from tsnn.types import Visibility


def slices(
    scorer: Annotated[str, typer.Argument(help="A run folder or a baseline.")],
    data: Data,
    visibility: VisibilityName = "strict",
    segment: Annotated[str, typer.Option(help="val or test; look at val while a model is being changed.")] = "val",
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Where a scorer loses: repeats, new pairs, new nodes; by the pair's recency and the nodes' degrees."""
    from tsnn.study.slices import error_slices

    seen = Visibility.parse(visibility)
    found = error_slices(*scorer_and_split(scorer, data, seed), seen, segment)
    if json:
        print_json({"scorer": scorer, "data": data, "visibility": visibility, "segment": segment, "slices": found})
        return
    title = f"{scorer} on {data}, {segment}, {visibility}"
    table = Table("by", "slice", "positives", "pooled AP", "MRR", title=title)
    for entry in found:
        figures = (f"{entry['count']:,}", f"{entry['ap']:.2f}", f"{entry['mrr']:.4f}")
        table.add_row(entry["by"], entry["slice"], *figures)
    Console().print(table)
