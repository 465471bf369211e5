"""Arguments and options that several verbs share, so that one word means one thing in all of them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tsnn.data.question import CANDIDATES
from tsnn.evaluation.catalog import ADDRESSES

Data = Annotated[str, typer.Argument(help=f"{ADDRESSES}.")]
RunFolder = Annotated[Path, typer.Argument(help="Run folder, as tsnn train leaves it.")]
VisibilityName = Annotated[
    str, typer.Option(help="What a scored event may see: strict, arrival or batch:N, as in batch:200.")
]
Seed = Annotated[int, typer.Option(help="Seed of a baseline that learns.")]
Settings = Annotated[list[str] | None, typer.Option("--set", help="section.key=value; may be given several times.")]
Workers = Annotated[int | None, typer.Option(min=1, help="Processes; by default one per core.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]
PopulationSize = Annotated[int | None, typer.Option(min=1, help="Train so many runs at once, on a GPU.")]
Undirected = Annotated[
    bool,
    typer.Option("--undirected", help="Events are of two equals: which of the two stands first says nothing."),
]
Candidates = Annotated[
    str | None,
    typer.Option(help=f"Who may be the answer: {' or '.join(CANDIDATES)} (every node). By default past destinations."),
]
SrcType = Annotated[str | None, typer.Option(help="Column that holds the node type of the source.")]
DstType = Annotated[str | None, typer.Option(help="Column that holds the node type of the destination.")]
NodeTypeFile = Annotated[
    str | None, typer.Option("--node-type", help="Table of two columns, node and type, in place of --src-type.")
]
