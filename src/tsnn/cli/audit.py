"""tsnn audit"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from tsnn.cli.display import print_json, shown_bar
from tsnn.cli.options import Json
from tsnn.evaluation.catalog import ADDRESSES


def audit(
    file: Annotated[Path, typer.Argument(help="Table with the columns src, dst, t, score, label (1 or 0) and batch.")],
    data: Annotated[
        str | None, typer.Option(help=f"The events it is about, by default its own rows labeled 1: {ADDRESSES}.")
    ] = None,
    json: Json = False,
) -> None:
    """What a figure of any model is made of: collisions, ties, its batches, and what simple rules get."""
    from tsnn.evaluation.audit import audit as run_audit
    from tsnn.evaluation.audit import read_scored

    scored = read_scored(file, data)
    with shown_bar(json) as progress:
        found = run_audit(scored, progress)
    if json:
        print_json(found)
        return
    _show(file, found)


def _show(file: Path, found: dict[str, Any]) -> None:
    title = f"{file}: {found['rows']:,} rows, {found['events']:,} of them events, in {found['batches']:,} batches"
    table = Table("", "AP", "AUC", title=title)
    lines = {
        "as scored": found["figures"],
        "ceiling": found["ceiling"],
        "without negatives that happen": found["collisions"]["figures_without"],
        "without what ties tell": found["ties"]["figures_without"],
        "without what the batch tells": found["company"]["figures_without"],
        **found["simple"],
    }
    for name, figures in lines.items():
        table.add_row(name, f"{figures['ap']:.2f}", f"{figures['auc']:.2f}")
    shuffled = found["shuffled"]
    table.add_row("rows shuffled inside their times", f"{shuffled['ap']:.2f} ± {shuffled['std']:.2f}", "")
    out = Console()
    out.print(table)
    for sentence in found["says"]:
        out.print(sentence, highlight=False, soft_wrap=True)
