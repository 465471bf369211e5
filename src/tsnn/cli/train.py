"""tsnn train"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tsnn.cli.display import console, print_figures, print_json, print_preview, print_summary, shown_bar
from tsnn.cli.options import Candidates, Data, Json, Settings, TableOptions, Workers, reads_table
from tsnn.config import PRESETS, Config, parse_override
from tsnn.data.direction import looks_bipartite
from tsnn.evaluation.catalog import default_split, load
from tsnn.files import check_folder_target

if TYPE_CHECKING:
    from tsnn.data.events import EventStream
    from tsnn.training.run import Run


@reads_table
def train(
    data: Data,
    out: Annotated[
        Path | None, typer.Option(help="Folder for the run; an interrupted run in it goes on. By default a new one.")
    ] = None,
    preset: Annotated[str | None, typer.Option(help=f"Settings to begin with: {', '.join(PRESETS)}.")] = None,
    config: Annotated[Path | None, typer.Option(help="TOML file with the settings to change.")] = None,
    set_: Settings = None,
    candidates: Candidates = None,
    compare: Annotated[bool, typer.Option(help="Evaluate the baselines beside the model.")] = True,
    seeds: Annotated[
        int | None, typer.Option(min=1, help="Train so many runs that differ in their seed, and give mean ± deviation.")
    ] = None,
    workers: Workers = None,
    json: Json = False,
    *,
    table: TableOptions,
) -> None:
    """Train on an event log, and see how well the next link is predicted beside what simple rules predict."""
    if out is not None:
        check_folder_target(out)
    told = dict(parse_override(text) for text in set_ or [])
    settings = Config.build(config, told | ({"train.candidates": candidates} if candidates else {}), preset)
    stream = load(data, **table)
    default_split(stream)  # a table that cannot be split is refused before anything is printed
    if stream.preview and not json:
        print_preview(stream.preview, console)
    if (remark := looks_bipartite(stream)) and not json:
        console.print(remark, style="dim", highlight=False)
    if out is None:
        from tsnn.api import fresh_folder

        out = fresh_folder(stream.name)
    if seeds is None:
        _train(stream, out, settings, compare, json)
    else:
        _train_seeds(stream, out, settings, compare, seeds, workers, json)


def _train(stream: EventStream, out: Path, settings: Config, compare: bool, json: bool) -> None:
    from tsnn import api
    from tsnn.report.page import REPORT

    with shown_bar(json) as progress:
        run = api.train(stream, out, settings, compare=compare, progress=progress)
    if json:
        print_json(run.metrics)
        return
    print_figures([run.metrics, *run.metrics.get("baselines", [])])
    _print_states(run, "")
    console.print(f"run written to {run.folder}, its report to {run.folder / REPORT}")


def _train_seeds(
    stream: EventStream, out: Path, settings: Config, compare: bool, seeds: int, workers: int | None, json: bool
) -> None:
    from tsnn import api
    from tsnn.report.page import REPORT

    with shown_bar(json) as progress:
        found = api.train_seeds(stream, out, settings, seeds=seeds, compare=compare, workers=workers, progress=progress)
    if json:
        print_json(found.summary)
        return
    print_summary(found.summary)
    for run in found.runs:
        _print_states(run, f"{run.folder.name}: ")
    console.print(f"runs written to {out}/seed-*, a report of all to {out / REPORT}")


def _print_states(run: Run, name: str) -> None:
    """What a run's states do, in a line; states that were never trained need no numbers."""
    from tsnn.evaluation.health import in_a_line

    states = run.metrics.get("states")  # a finished run of an earlier version has none
    if told := run.remark or (in_a_line(states) if states else ""):
        console.print(f"{name}{told}", highlight=False, soft_wrap=True)
