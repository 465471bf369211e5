"""tsnn reproduce"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from tsnn.cli.display import console, print_json, shown_bar
from tsnn.cli.options import Json, PopulationSize, Settings, Workers
from tsnn.config import parse_override
from tsnn.files import check_folder_target


def reproduce(
    table: Annotated[
        str,
        typer.Argument(
            help="One of dgb, dgb-inductive, dgb-historical, dgb-inductive-negatives, tgb, ablation, sheaf."
        ),
    ],
    data: Annotated[
        list[str] | None, typer.Option(help="A data set of the table, or any address; may be given several times.")
    ] = None,
    seeds: Annotated[
        int | None, typer.Option(help="Seeds 0 .. N-1; by default the paper's number. 0: the baselines alone.")
    ] = None,
    visibility: Annotated[
        list[str] | None, typer.Option(help="strict, arrival or batch:N, several times; by default the table's.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder of the results; what is stored there is not run again.")] = Path(
        "runs/reproduce"
    ),
    workers: Workers = None,
    ray: Annotated[str | None, typer.Option(help="Address of a Ray cluster that runs the jobs instead.")] = None,
    population: PopulationSize = None,
    shuffle_ties: Annotated[bool, typer.Option(help="Shuffle the rows inside their timestamps first.")] = False,
    untuned: Annotated[bool, typer.Option(help="The default configuration instead of the data set's own.")] = False,
    set_: Settings = None,
    statistics: Annotated[bool, typer.Option(help="Average ranks, Wilcoxon and Friedman tests as well.")] = False,
    json: Json = False,
) -> None:
    """One of the paper's tables: ours beside its figures, per visibility, with the heuristics and `features`."""
    from tsnn.study.reproduce import Study, write_summary
    from tsnn.study.reproduce import reproduce as run_study
    from tsnn.study.statistics import add_statistics

    check_folder_target(out)
    overrides = dict(parse_override(text) for text in set_ or [])
    study = Study(data, seeds, visibility, shuffle_ties, not untuned, overrides, population)
    with shown_bar(json) as progress:
        result = run_study(table, out, study, workers=workers, ray=ray, progress=progress)
    files = write_summary(result, out)
    if statistics:
        add_statistics(result, out)
    if json:
        print_json(result)
        return
    _show(result)
    console.print(f"results written to {files}", style="dim")


def _show(result: dict[str, Any]) -> None:
    from tsnn.study.grids import table_lines

    print("\n".join(table_lines(result["rows"])))
    for entry in result["absent"]:
        console.print(f"{entry['data']} is not here; put its files into {entry['put_files_in']}", style="dim")
    committed = result["committed"]
    if committed["jobs"]:
        difference = committed["largest_difference"]
        same = "equal to the committed ones" if difference == 0 else f"within {difference:.2g} of the committed ones"
        console.print(f"{committed['jobs']} jobs: figures {same}")
