"""What the terminal shows: progress, tables, JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from textwrap import shorten
from typing import Any

from rich import progress as rich_progress
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, ProgressColumn, TextColumn, TimeRemainingColumn
from rich.table import Column, Table
from rich.text import Text

from tsnn.data.preview import IGNORED, Preview
from tsnn.evaluation.formats import Figure
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


COUNTABLE = 1000  # of fewer things than this one wants to know how many are done, of more how fast it goes


class _Pace(ProgressColumn):
    """How many are done, or how many a second."""

    def render(self, task: rich_progress.Task) -> Text:
        """In a few letters: a terminal is narrow."""
        if (task.total or 0) < COUNTABLE:
            return Text(f"{task.completed:.0f}/{task.total:.0f}")
        return Text(f"{task.finished_speed or task.speed or 0:,.0f}/s")


@contextmanager
def shown_bar(quiet: bool) -> Iterator[Progress]:
    """A progress that draws a bar for each piece of work, while a block runs; a quiet one draws nothing.

    Nothing is drawn before there is something to show: a refusal before any work stays one sentence.
    """
    if quiet:
        yield unwatched
        return
    from tsnn.kernel_cache import telling

    columns = (TextColumn("{task.description}"), BarColumn(), _Pace(), TimeRemainingColumn())
    bars = rich_progress.Progress(*columns, console=console)

    def show(done: int, total: int, text: str = "") -> None:
        """Work of another total, or that begins anew, gets a bar of its own; the one before is full."""
        last = bars.tasks[-1] if bars.tasks else None
        if last is not None and last.total == total and last.completed <= done:
            bars.update(last.id, description=text, completed=done)
            return
        if last is not None:
            bars.update(last.id, completed=last.total)
        bars.add_task(text, completed=done, total=total)
        bars.start()

    try:
        with telling(show) as progress:
            yield progress
    finally:
        if bars.tasks:
            bars.stop()


SHOWN = (("val", "ap"), ("val", "mrr"), ("test", "ap"), ("test", "auc"), ("test", "mrr"), ("new_test", "ap"))


def print_figures(results: list[dict[str, Any]]) -> None:
    """One row per scorer, the main figures, and underneath what they hold under; `--json` has all of them."""
    _print_main({result["scorer"]: result["metrics"] for result in results}, results[0]["card"])


def print_summary(found: dict[str, Any]) -> None:
    """The same of runs that differ in their seed: means and deviations, as `report.json` has them."""
    count = len(found["seeds"])
    _print_main(found["figures"], found["card"], f", mean ± deviation of {count} seeds" if count > 1 else "")


def _print_main(scorers: dict[str, Any], card: dict[str, Any], over: str = "") -> None:
    """Figures are numbers, or what `summary` made of numbers."""
    first = next(iter(scorers.values()))
    shown = [name for name in SHOWN if not over or name[0] == "test"]  # with deviations there is no room for all
    names = [(part, metric) for part, metric in shown if metric in first.get(part, {})]
    # Headings may wrap, names may not: in a narrow terminal "edgebank:u…" could be any of its memories.
    title = f"{card['data']['name']}, visibility {card['visibility']}{over}"
    table = Table(Column("scorer", no_wrap=True), title=title)
    for part, metric in names:
        table.add_column(f"{part.replace('_', ' ')} {metric.upper()}", justify="right", no_wrap=bool(over))
    for scorer, metrics in scorers.items():
        values = [metrics.get(part, {}).get(metric) for part, metric in names]
        table.add_row(scorer, *("" if v is None else str(_figure(v)) for v in values))
    out = Console()
    out.print(table)
    remark = f"Protocol {card['protocol']}: {card['updates']}. Negatives: {card['negatives']['strategy']}. "
    remark += f"Candidates: {card['question']['candidates']}. "
    if card["question"].get("direction") == "undirected":
        remark += "Events: undirected, either end is asked for the other. "
    out.print(remark + f"Figures: {card['aggregation']}.", style="dim", highlight=False)


def _figure(value: Any) -> Figure:
    return Figure.read(value) if isinstance(value, dict) else Figure(value)
