"""tsnn label"""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console
from rich.table import Column, Table

from tsnn.cli.display import console, print_json, shown_bar
from tsnn.cli.options import Data, Json, RunFolder, TableOptions, VisibilityName, reads_table


@reads_table
def label(
    run: RunFolder,
    data: Data,
    label: Annotated[str, typer.Option(help="Column of the labels, 0 or 1.")] = "label",
    visibility: VisibilityName = "strict",
    json: Json = False,
    *,
    table: TableOptions,
) -> None:
    """How well labels of events are told from a run's states, beside what counts and the message alone tell."""
    from tsnn.asof.label import label as tell_labels
    from tsnn.asof.label import load_labeled
    from tsnn.training.run import Run

    trained = Run.load(run)
    stream, labels = load_labeled(data, label, trained, **table)
    with shown_bar(json) as progress:
        results = [found.to_dict() for found in tell_labels(trained, stream, labels, visibility, progress)]
    if json:
        print_json({"label": label, "results": results})
        return
    card = results[0]["card"]
    names = ("val AUC", "test AUC", "± 95 %")
    shown = Table(Column("a head on", no_wrap=True), *(Column(name, justify="right") for name in names), "head")
    shown.title = f"{label} of {stream.name}, visibility {card['visibility']}"
    for found in results:
        val, test = (found["metrics"][name] for name in ("val", "test"))
        figures = (f"{value:.1f}" for value in (val["auc"], test["auc"], test["half_width"]))
        shown.add_row(found["scorer"], *figures, found["card"]["notes"][-1])
    out = Console()
    out.print(shown)
    counts = ", ".join(f"{count:,} of {card['split'][name]:,} {name}" for name, count in card["positives"].items())
    remark = f"Labeled 1: {counts} events. Facts and states: {card['updates']}. Figures: {card['aggregation']}."
    out.print(remark, style="dim", highlight=False)
    if trained.remark:
        console.print(trained.remark)
