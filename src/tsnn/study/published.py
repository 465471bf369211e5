"""The paper's own tables, transcribed by `scripts/published.py`: what every figure of ours stands beside."""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import Any

PAPER = "TSNN"  # the column of the paper's own model
SAME_VISIBILITY = {  # what the peers' own code lets an event see
    "strict": ("TGAT", "CAWN", "TCL", "GraphMixer", "DyGFormer"),
    "batch": ("JODIE", "DyRep", "TGN", "NAT", "PINT"),
}
Figure = dict[str, float]  # mean and, where the paper gives it, std


@cache
def published(table: str) -> Any:
    """All that the paper prints of a table; `sheaf`, which is not one of its own, stands beside `dgb`."""
    tables = json.loads(files("tsnn.study").joinpath("published.json").read_text())
    return tables["dgb" if table == "sheaf" else table]


def figures(table: str, metric: str) -> dict[str, dict[str, Figure]]:
    """Of each data set, the figure of each method."""
    return published(table)["figures"].get(metric, {})  # type: ignore[no-any-return]


def paper_figure(table: str, metric: str, data: str, column: str = PAPER) -> Figure | None:
    """One cell, or nothing where the paper has none."""
    return figures(table, metric).get(data, {}).get(column)


def best_peer(table: str, metric: str, data: str) -> dict[str, Any] | None:
    """The best method of a row that is not the paper's own."""
    row = {name: value for name, value in figures(table, metric).get(data, {}).items() if name != PAPER}
    return best_method(row) if row else None


def best_method(row: dict[str, Figure]) -> dict[str, Any]:
    """The method with the highest mean, and its figure."""
    name = max(row, key=lambda method: row[method]["mean"])
    return {"method": name, **row[name]}


def peers_alike(table: str, metrics: tuple[str, ...], data: str, visibility: str) -> dict[str, dict[str, Figure]]:
    """The peers that see what a visibility shows, with their figures."""
    methods = SAME_VISIBILITY.get(visibility.partition(":")[0], ())
    found = {name: {m: cell for m in metrics if (cell := paper_figure(table, m, data, name))} for name in methods}
    return {name: row for name, row in found.items() if row}
