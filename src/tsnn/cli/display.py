"""What the terminal shows: progress, tables, JSON."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from tsnn.training.trainer import Progress as TrainingProgress

console = Console(stderr=True)  # progress and remarks; results go to standard output


def print_json(value: dict[str, Any]) -> None:
    """One object on standard output and nothing else."""
    print(json.dumps(value, indent=2))


@contextmanager
def training_bar(quiet: bool) -> Iterator[Any]:
    """A callback for the trainer that draws a bar with events/s and time left."""
    if quiet:
        yield None
        return
    columns = [TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[rate]}"), TimeRemainingColumn()]
    with Progress(*columns, console=console) as bar:
        task = bar.add_task("epoch 1", total=None, rate="")
        began: list[tuple[float, int]] = []

        def show(at: TrainingProgress) -> None:
            done = at.epoch * at.rows + at.row
            if not began:
                began.append((time.monotonic(), done))
            since, first = began[0]
            rate = f"{(done - first) / max(time.monotonic() - since, 1e-9):,.0f} events/s"
            best = f", best validation {at.best:.4f}" if at.best >= 0 else ""
            description = f"epoch {at.epoch + 1}/{at.epochs}, loss {at.loss:.4f}{best}"
            bar.update(task, completed=done, total=at.epochs * at.rows, description=description, rate=rate)

        yield show


SHOWN = (("val", "ap"), ("val", "mrr"), ("test", "ap"), ("test", "auc"), ("test", "mrr"), ("new_test", "ap"))


def print_figures(results: list[dict[str, Any]]) -> None:
    """One row per scorer, the main figures, and underneath what they hold under; `--json` has all of them."""
    first = results[0]
    card = first["card"]
    names = [(part, metric) for part, metric in SHOWN if metric in first["metrics"].get(part, {})]
    table = Table(title=f"{first['data']}, visibility {card['visibility']}")
    table.add_column("scorer")
    for part, metric in names:
        table.add_column(f"{part.replace('_', ' ')} {metric.upper()}", justify="right")
    for result in results:
        values = [result["metrics"].get(part, {}).get(metric) for part, metric in names]
        table.add_row(result["scorer"], *("" if v is None else f"{v:.2f}" if v > 1 else f"{v:.4f}" for v in values))
    out = Console()
    out.print(table)
    remark = f"Protocol {card['protocol']}: {card['updates']}. Negatives: {card['negatives']['strategy']}. "
    out.print(remark + f"Figures: {card['aggregation']}.", style="dim", highlight=False)
