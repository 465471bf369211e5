"""tsnn train"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tsnn.cli.display import console, print_figures, print_json, print_preview, shown_bar
from tsnn.cli.options import Candidates, Data, Json, Settings, TableOptions, reads_table
from tsnn.config import PRESETS, Config, parse_override
from tsnn.data.direction import looks_bipartite
from tsnn.evaluation.catalog import default_split, load
from tsnn.files import check_folder_target

if TYPE_CHECKING:
    from tsnn.evaluation.model import ModelScorer
    from tsnn.evaluation.questions import Questions
    from tsnn.report.trace import Tracer


@reads_table
def train(
    data: Data,
    out: Annotated[Path, typer.Option(help="Folder for the run; an interrupted run in it goes on.")],
    preset: Annotated[str | None, typer.Option(help=f"Settings to begin with: {', '.join(PRESETS)}.")] = None,
    config: Annotated[Path | None, typer.Option(help="TOML file with the settings to change.")] = None,
    set_: Settings = None,
    candidates: Candidates = None,
    compare: Annotated[bool, typer.Option(help="Evaluate the baselines beside the model.")] = True,
    json: Json = False,
    *,
    table: TableOptions,
) -> None:
    """Train on an event log, and see how well the next link is predicted beside what simple rules predict."""
    from tsnn import api
    from tsnn.report.page import REPORT, write_report
    from tsnn.report.trace import Tracer

    check_folder_target(out)
    told = dict(parse_override(text) for text in set_ or [])
    settings = Config.build(config, told | ({"train.candidates": candidates} if candidates else {}), preset)
    stream = load(data, **table)
    default_split(stream)  # a table that cannot be split is refused before anything is printed
    if stream.preview and not json:
        print_preview(stream.preview, console)
    if (remark := looks_bipartite(stream)) and not json:
        console.print(remark, style="dim", highlight=False)
    tracers: list[Tracer] = []

    def follow(scorer: ModelScorer, questions: Questions) -> list[Tracer]:
        tracers.append(Tracer(scorer, questions))
        return tracers

    with shown_bar(json) as progress:
        run = api.train(stream, out, settings, compare=compare, follow=follow, progress=progress)
    write_report(run, tracers[0].trace())
    if json:
        print_json(run.metrics)
    else:
        print_figures([run.metrics, *run.metrics.get("baselines", [])])
        if run.remark:
            console.print(run.remark)
        console.print(f"run written to {run.folder}, its report to {run.folder / REPORT}")
