"""What the terminal shows: progress, tables, JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from textwrap import shorten
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Column, Table

from tsnn.data.preview import IGNORED, Preview
from tsnn.progress import terminal_bars
from tsnn.types import Progress, unwatched

console = Console(stderr=True)  # progress and remarks; results go to standard output


def print_json(value: dict[str, Any]) -> None:
    """One object on standard output and nothing else."""
    print(json.dumps(value, indent=2))


def print_preview(preview: Preview, out: Console) -> None:
    """A table as it was read: every column, and what became of rows that needed something."""
    out.print(escape(preview.headline()), highlight=False, soft_wrap=True)
    table = Table("column", "read as", "understood as", "first cell")
    for view in preview.columns:
        cells = (escape(text) for text in (view.column, view.part, view.understood, shorten(view.first, 40)))
        table.add_row(*cells, style="dim" if view.part == IGNORED else None)
    out.print(table, highlight=False)
    for sentence in preview.cleaned.sentences():
        out.print(escape(sentence), highlight=False, soft_wrap=True)


@contextmanager
def shown_bar(quiet: bool) -> Iterator[Progress]:
    """A progress that draws a bar for each piece of work, while a block runs; a quiet one draws nothing."""
    if quiet:
        yield unwatched
        return
    with terminal_bars(console) as progress:
        yield progress


SHOWN = (("val", "ap"), ("val", "mrr"), ("test", "ap"), ("test", "auc"), ("test", "mrr"), ("new_test", "ap"))


def print_figures(results: list[dict[str, Any]]) -> None:
    """One row per scorer, the main figures, and underneath what they hold under; `--json` has all of them."""
    first = results[0]
    card = first["card"]
    names = [(part, metric) for part, metric in SHOWN if metric in first["metrics"].get(part, {})]
    # Headings may wrap, names may not: in a narrow terminal "edgebank:u…" could be any of its memories.
    table = Table(Column("scorer", no_wrap=True), title=f"{first['data']}, visibility {card['visibility']}")
    for part, metric in names:
        table.add_column(f"{part.replace('_', ' ')} {metric.upper()}", justify="right")
    for result in results:
        values = [result["metrics"].get(part, {}).get(metric) for part, metric in names]
        table.add_row(result["scorer"], *("" if v is None else f"{v:.2f}" if v > 1 else f"{v:.4f}" for v in values))
    out = Console()
    out.print(table)
    remark = f"Protocol {card['protocol']}: {card['updates']}. Negatives: {card['negatives']['strategy']}. "
    remark += f"Candidates: {card['question']['candidates']}. "
    if card["question"].get("direction") == "undirected":
        remark += "Events: undirected, either end is asked for the other. "
    out.print(remark + f"Figures: {card['aggregation']}.", style="dim", highlight=False)
