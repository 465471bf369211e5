"""What the terminal shows: progress, tables, JSON."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rich import progress as rich_progress
from rich.console import Console
from rich.progress import BarColumn, ProgressColumn, TextColumn, TimeRemainingColumn
from rich.table import Column, Table

from tsnn.types import Progress, unwatched

console = Console(stderr=True)  # progress and remarks; results go to standard output


def print_json(value: dict[str, Any]) -> None:
    """One object on standard output and nothing else."""
    print(json.dumps(value, indent=2))


class Bar:
    """A progress bar that appears with the first thing it has to show: a refusal before any work stays one sentence."""

    def __init__(self, *columns: ProgressColumn) -> None:
        self._bar = rich_progress.Progress(*columns, console=console)

    def show(self, done: int, total: int, text: str = "", **fields: Any) -> None:
        """Draw it so far."""
        if self._bar.tasks:
            self._bar.update(self._bar.task_ids[0], description=text, completed=done, total=total, **fields)
        else:
            self._bar.add_task(text, completed=done, total=total, **fields)
            self._bar.start()

    def fill(self) -> None:
        """Draw it full: what it counts is done, whatever comes next."""
        for task in self._bar.tasks:
            self._bar.update(task.id, completed=task.total)

    def stop(self) -> None:
        """Leave it as it is."""
        if self._bar.tasks:
            self._bar.stop()


@contextmanager
def shown_bar(*columns: ProgressColumn) -> Iterator[Bar]:
    """A bar for the length of a block."""
    bar = Bar(*columns)
    try:
        yield bar
    finally:
        bar.stop()


Say = Callable[[str], None]


@contextmanager
def training_bar(quiet: bool) -> Iterator[tuple[Progress, Say | None]]:
    """Two callbacks for training: one draws a bar with events/s and time left, the other says what comes after."""
    if quiet:
        yield unwatched, None
        return
    columns = [TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[rate]}"), TimeRemainingColumn()]
    with shown_bar(*columns) as bar:
        began: list[tuple[float, int]] = []

        def show(done: int, total: int, text: str = "") -> None:
            if not began:
                began.append((time.monotonic(), done))
            since, first = began[0]
            rate = f"{(done - first) / max(time.monotonic() - since, 1e-9):,.0f} events/s"
            bar.show(done, total, text, rate=rate)

        def say(text: str) -> None:
            bar.fill()
            console.print(text, style="dim")

        yield show, say


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
    out.print(remark + f"Figures: {card['aggregation']}.", style="dim", highlight=False)
