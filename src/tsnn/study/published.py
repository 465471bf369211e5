"""Published figures: what every figure of ours stands beside.

Two sources, both transcribed by `scripts/published.py`: the paper's own tables, and a later comparison of its peers
(arXiv 2610.04869) under three strategies of negatives, in which some were trained again after their leaks were closed.
"""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import Any

PAPER = "TSNN"  # the column of the paper's own model
LATER = "arXiv 2610.04869"  # the comparison that closed the leaks
SAME_VISIBILITY = {  # what the peers' own code lets an event see
    "strict": ("TGAT", "CAWN", "TCL", "GraphMixer", "DyGFormer", "SFS", "SFS+activity"),
    "batch": ("JODIE", "DyRep", "TGN", "NAT", "PINT"),
}
CORRECTED = {"dgb": "dgb-corrected", "dgb-inductive": "dgb-corrected-new-nodes"}  # tables that were measured again
NEW_NODES = "new nodes"  # the second half of a table that has both
Figure = dict[str, float]  # mean and, where the source gives it, std


@cache
def _stored(name: str) -> Any:
    return json.loads(files("tsnn.study").joinpath(name).read_text())


def published(table: str) -> Any:
    """All that is printed of a table; `sheaf`, which is nobody's, stands beside `dgb`."""
    return {**_stored("peers.json")["tables"], **_stored("published.json")}["dgb" if table == "sheaf" else table]


def table_of(name: str, setting: str) -> str:
    """The published table of one half of a table that has two, else the table itself."""
    return f"{name}-new-nodes" if setting == NEW_NODES else name


def figures(table: str, metric: str) -> dict[str, dict[str, Figure]]:
    """Of each data set, the figure of each method."""
    return published(table)["figures"].get(metric, {})  # type: ignore[no-any-return]


def paper_figure(table: str, metric: str, data: str, column: str = PAPER) -> Figure | None:
    """One cell, or nothing where there is none."""
    return figures(table, metric).get(data, {}).get(column)


def best_peer(table: str, metric: str, data: str) -> dict[str, Any] | None:
    """The best method of a row that is not the paper's own."""
    row = {name: value for name, value in figures(table, metric).get(data, {}).items() if name != PAPER}
    return best_method(row) if row else None


def best_method(row: dict[str, Figure]) -> dict[str, Any]:
    """The method with the highest mean, and its figure."""
    name = max(row, key=lambda method: row[method]["mean"])
    return {"method": name, **row[name]}


def closed(data: str) -> list[str]:
    """The methods that were trained again on a data set so that a query sees earlier times only."""
    sets = _stored("peers.json")["closed"]
    return [method for method, where in sets.items() if where == "all" or data in where]


def peers_alike(table: str, metrics: tuple[str, ...], data: str, visibility: str) -> dict[str, dict[str, Figure]]:
    """The peers that see what a visibility shows, with their figures; under `strict` those with their leaks closed."""
    kind = visibility.partition(":")[0]
    again = closed(data) if kind == "strict" else []
    corrected = [CORRECTED[table]] if kind == "strict" and table in CORRECTED else []
    found = {}
    for name in dict.fromkeys([*SAME_VISIBILITY.get(kind, ()), *again]):
        tables = (
            corrected if corrected and name in again else [*corrected, table]
        )  # a leak that was closed stays closed
        found[name] = {m: cell for m in metrics if (cell := _first(tables, m, data, name))}
    return {name: row for name, row in found.items() if row}


def _first(tables: list[str], metric: str, data: str, method: str) -> Figure | None:
    """The cell of the first table that has it."""
    return next((cell for table in tables if (cell := paper_figure(table, metric, data, method))), None)
