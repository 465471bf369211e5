"""tsnn tune"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from tsnn.cli.display import console, print_json, shown_bar
from tsnn.cli.options import Data, Json, PopulationSize, TableOptions, VisibilityName, Workers, reads_table
from tsnn.config import parse_override
from tsnn.errors import InputError
from tsnn.files import check_file_target, check_folder_target
from tsnn.types import Visibility

SQLITE = b"SQLite format 3"


@reads_table
def tune(
    data: Data,
    visibility: VisibilityName = "strict",
    trials: Annotated[int, typer.Option(help="Finished trials in all; those already stored count.")] = 50,
    storage: Annotated[Path, typer.Option(help="SQLite file; a search that was stopped goes on in it.")] = Path(
        "runs/tune.db"
    ),
    timeout: Annotated[float | None, typer.Option(help="Seconds after which no further trial begins.")] = None,
    workers: Workers = None,
    ray: Annotated[str | None, typer.Option(help="Address of a Ray cluster that runs the trials instead.")] = None,
    population: PopulationSize = None,
    out: Annotated[Path | None, typer.Option(help="TOML file for the best configuration.")] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="section.key=value that every trial keeps; several times.")
    ] = None,
    json: Json = False,
    *,
    table: TableOptions,
) -> None:
    """Search a configuration for a data set on its validation rows; the test rows are removed before it begins."""
    from tsnn.study.tune import Search, write_config
    from tsnn.study.tune import tune as run_search

    _check_storage(storage)
    if out is not None:
        check_file_target(out)
    fixed = dict(parse_override(text) for text in set_ or [])
    search = Search(data, str(Visibility.parse(visibility)), fixed, tuple(table.items()))
    with shown_bar(json) as progress:
        result = run_search(
            search,
            storage,
            trials=trials,
            timeout=timeout,
            workers=workers,
            ray=ray,
            population=population,
            progress=progress,
        )
    if out is not None:
        settings = "".join(f" --set {text}" for text in set_ or [])
        write_config(result, out, f"tsnn tune {data} --visibility {visibility} --trials {trials}{settings}")
    if json:
        print_json(result)
        return
    shown = Table("setting", "best", title=f"{data}, {visibility}: validation {result['best']['validation']:.4f}")
    for name, value in sorted(result["best"]["settings"].items()):
        shown.add_row(name, str(value))
    Console().print(shown)
    if result["best"]["remark"]:
        console.print(result["best"]["remark"])
    if result["defaults"] is not None:
        console.print(f"the defaults: {result['defaults']:.4f}")


def _check_storage(path: Path) -> None:
    """Refuse what cannot become, or is not, a search that was stored before."""
    check_folder_target(path.parent)
    if path.is_dir():
        raise InputError(f"{path} is a folder; name a file for --storage.")
    if path.is_file() and path.stat().st_size:
        with path.open("rb") as file:
            if file.read(len(SQLITE)) != SQLITE:
                raise InputError(f"{path} is not an SQLite file; name another one for --storage.")
