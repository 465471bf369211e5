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
from tsnn.evaluation.formats import CEILING, Figure
from tsnn.progress import terminal_bars
from tsnn.types import Progress, unwatched

console = Console(stderr=True)  # progress and remarks; results go to standard output


def visible(text: object) -> str:
    """A text whose control characters are spelled: a name must not steer the terminal that shows it."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in str(text))


def plain(text: object) -> str:
    """A text as Rich shall show it, to the letter: neither steering nor markup."""
    return escape(visible(text))


def print_json(value: dict[str, Any]) -> None:
    """One object on standard output and nothing else."""
    print(json.dumps(value, indent=2))


def print_preview(preview: Preview, out: Console) -> None:
    """A table as it was read: every column, and what became of rows that needed something."""
    out.print(plain(preview.headline()), highlight=False, soft_wrap=True)
    table = Table("column", "read as", "understood as", "first cell")
    for view in preview.columns:
        cells = (plain(text) for text in (view.column, view.part, view.understood, shorten(view.first, 40)))
        table.add_row(*cells, style="dim" if view.part == IGNORED else None)
    out.print(table, highlight=False)
    for sentence in preview.cleaned.sentences():
        out.print(plain(sentence), highlight=False, soft_wrap=True)


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
    title = f"{plain(card['data']['name'])}, visibility {card['visibility']}{over}"
    table = Table(Column("scorer", no_wrap=True), title=title)
    for part, metric in names:
        table.add_column(f"{part.replace('_', ' ')} {metric.upper()}", justify="right", no_wrap=bool(over))
    for scorer, metrics in scorers.items():
        values = [metrics.get(part, {}).get(metric) for part, metric in names]
        table.add_row(plain(scorer), *("" if v is None else str(_figure(v)) for v in values))
    if card.get("ceilings"):
        reach = (card["ceilings"].get(part, {}).get(metric) for part, metric in names)
        table.add_section()
        table.add_row(CEILING, *("" if v is None else str(Figure(v)) for v in reach), style="dim")
    out = Console()
    out.print(table)
    remark = f"Protocol {card['protocol']}: {card['updates']}. Negatives: {card['negatives']['strategy']}. "
    remark += f"Candidates: {card['question']['candidates']}. "
    if card["question"].get("direction") == "undirected":
        remark += "Events: undirected, either end is asked for the other. "
    if "joint" in card["negatives"]:
        multiple = card["negatives"]["joint"]["multiple"]
        remark += f"Scores: the model's plus {multiple:g} times the log intensity of the source, as validation chose. "
    out.print(remark + f"Figures: {card['aggregation']}.", style="dim", highlight=False)


def _figure(value: Any) -> Figure:
    return Figure.read(value) if isinstance(value, dict) else Figure(value)
