"""tsnn facts"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tsnn.cli.display import console, print_json, shown_bar
from tsnn.cli.options import Data, Json, TableOptions, VisibilityName, reads_table

At = Annotated[
    str | None,
    typer.Option(help="All nodes as of this time, a number or an ISO date; with --events the time of all questions."),
]
Events = Annotated[
    Path | None,
    typer.Option(
        help="CSV or Parquet table of questions: source, destination and time, named as in DATA or src, dst, t."
    ),
]
RunOption = Annotated[
    Path | None, typer.Option(help="Run folder, whose states and scores are wanted beside the facts.")
]


@reads_table
def facts(
    data: Data,
    out: Annotated[Path, typer.Option(help="File to write: .parquet or .csv.")],
    at: At = None,
    events: Events = None,
    run: RunOption = None,
    negatives: Annotated[
        int, typer.Option(min=0, help="Other destinations drawn for each event of DATA, with columns label and query.")
    ] = 0,
    visibility: VisibilityName = "strict",
    seed: Annotated[int, typer.Option(help="Seed of the negatives.")] = 0,
    json: Json = False,
    *,
    table: TableOptions,
) -> None:
    """What was known at a time, as a table for any model: about every event of DATA, your own questions, or nodes."""
    from tsnn.asof.facts import as_of, writer_of
    from tsnn.asof.sheet import Negatives
    from tsnn.files import check_file_target
    from tsnn.training.run import Run, split_like

    writer_of(out)
    check_file_target(out)
    own = None if run is None else Run.load(run)
    split = split_like(data, own, **table)
    wanted = as_of(split, at, events, own, Negatives(negatives, seed), visibility)
    with shown_bar(json) as progress:
        rows = wanted.write(out, progress)
    if json:
        print_json({"out": str(out), "rows": rows, **wanted.card})
        return
    strangers = wanted.card["strangers"]
    if strangers:
        count = "1 node of the questions has" if strangers == 1 else f"{strangers:,} nodes of the questions have"
        console.print(f"{count} no event in {split.stream.name}; their facts are those of a node never seen.")
    print(f"{rows:,} rows written to {out}, visibility {wanted.card['question']['visibility']}")
