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
def _tables() -> dict[str, Any]:
    tables: dict[str, Any] = json.loads(files("tsnn.study").joinpath("published.json").read_text())
    return tables


def label(table: str) -> str:
    """The paper's LaTeX label of a table."""
    text: str = _tables()[table]["label"]
    return text


def figures(table: str, metric: str) -> dict[str, dict[str, Figure]]:
    """Of each data set, the figure of each method."""
    return _tables()[table]["figures"].get(metric, {})  # type: ignore[no-any-return]


def average_ranks(table: str, metric: str) -> dict[str, float]:
    """The average ranks the paper prints."""
    return _tables()[table]["average_rank"][metric]  # type: ignore[no-any-return]


def paper_figure(table: str, metric: str, data: str, column: str = PAPER) -> Figure | None:
    """One cell, or nothing where the paper has none."""
    return figures(table, metric).get(data, {}).get(column)


def best_peer(table: str, metric: str, data: str) -> dict[str, Any] | None:
    """The best method of a row that is not the paper's own."""
    row = {name: value for name, value in figures(table, metric).get(data, {}).items() if name != PAPER}
    if not row:
        return None
    name = max(row, key=lambda method: row[method]["mean"])
    return {"method": name, **row[name]}


def peers_alike(table: str, metrics: tuple[str, ...], data: str, visibility: str) -> dict[str, dict[str, Figure]]:
    """The peers that see what a visibility shows, with their figures."""
    methods = SAME_VISIBILITY.get(visibility.partition(":")[0], ())
    cells = {name: {m: paper_figure(table, m, data, name) for m in metrics} for name in methods}
    found = {name: {m: cell for m, cell in row.items() if cell is not None} for name, row in cells.items()}
    return {name: row for name, row in found.items() if row}
