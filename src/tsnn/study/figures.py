"""Figures of the studies as SVG, the same bytes for the same rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

from tsnn.files import write_whole
from tsnn.study.grids import Row, by_visibility, counts, metrics_of, panel, title

_CHANGES = (-30, -10, -3, -1, 0, 1, 3)
_MARKS = {"ours": "o", "the paper": "D", "best peer": "s", "features": "x", "edgebank": "+"}


def save_svg(figure: Figure, path: Path) -> None:
    """Write a figure whole or not at all, without a date in it."""
    with mpl.rc_context({"svg.hashsalt": "tsnn"}):
        write_whole(path, lambda partial: figure.savefig(partial, format="svg", metadata={"Date": None}))


def table_figure(rows: list[Row], heading: str) -> Figure:
    """A panel per visibility: for each data set, our figure beside those of the paper, the peers and `features`.

    For a table of ablations, a panel shows by how much each removal changes the figure.
    """
    metric = metrics_of(rows)[0]
    panels = by_visibility(rows)
    lines = {(panel(row), row["variant"] if "change" in row else title(row)) for row in rows}
    tallest = max(sum(visibility == name for visibility, _ in lines) for name in panels)
    figure = Figure(figsize=(1 + 4 * len(panels), 1.4 + 0.32 * tallest), layout="constrained")
    axes = figure.subplots(1, len(panels), squeeze=False)[0]
    for (name, same), axis in zip(panels.items(), axes, strict=True):
        if any("change" in row for row in same):
            _removals(axis, [row for row in same if "change" in row])
            hollow = "" if all(map(counts, same)) else " (hollow: runs without states)"
            axis.set_xlabel(f"change of test {metric.upper()}, points{hollow}")
        else:
            _panel(axis, same, metric)
            axis.set_xlabel(f"test {metric.upper()}, per cent")
        axis.set_title(name)
    handles, names = axes[0].get_legend_handles_labels()
    columns = min(len(names), 1 + 2 * len(panels))
    figure.legend(handles, names, loc="outside lower center", ncols=columns, frameon=False)
    figure.suptitle(heading)
    return figure


def _panel(axis: Any, rows: list[Row], metric: str) -> None:
    for name, mark in _MARKS.items():
        found = {at: cell for at, row in enumerate(rows) if (cell := _cell(row, name, metric)) is not None}
        if not found:
            continue
        cells = found.values()
        spread = [cell.get("std") or 0.0 for cell in cells] if name == "ours" else None
        front = 3 if name == "ours" else 2  # never hidden
        means = [cell["mean"] for cell in cells]
        axis.errorbar(means, list(found), xerr=spread, fmt=mark, label=name, markersize=5, zorder=front)
    labels = [title(row) + (f" {row['variant']}" if row["variant"] not in ("full", "core") else "") for row in rows]
    axis.set_yticks(range(len(rows)), labels)
    axis.invert_yaxis()
    axis.grid(axis="x", alpha=0.3)


def _removals(axis: Any, rows: list[Row]) -> None:
    """A line per removal, a mark per data set, hollow where it does not count. Logarithmic, but linear near zero."""
    variants = list(dict.fromkeys(row["variant"] for row in rows))
    sets = list(dict.fromkeys(title(row) for row in rows))
    for at, data in enumerate(sets):
        beside = 0.6 * ((at + 0.5) / len(sets) - 0.5)
        for counted in (True, False):
            own = [row for row in rows if title(row) == data and counts(row) == counted]
            spread = [row["ours"]["ap"].get("std") or 0.0 for row in own]
            places = [variants.index(row["variant"]) + beside for row in own]
            changes = [row["change"]["ours"] for row in own]
            look = {"label": data} if counted else {"mfc": "white", "alpha": 0.5}
            axis.errorbar(changes, places, xerr=spread, fmt="o", color=f"C{at}", markersize=4, **look)
    axis.set_xscale("symlog", linthresh=1.0)
    axis.set_xticks(_CHANGES, [str(change) for change in _CHANGES])
    axis.axvline(0.0, color="black", linewidth=0.8)
    axis.set_yticks(range(len(variants)), variants)
    axis.invert_yaxis()
    axis.grid(axis="x", alpha=0.3)


def _cell(row: Row, name: str, metric: str) -> dict[str, Any] | None:
    columns = {"ours": row["ours"], "the paper": row["paper"], "best peer": row["best_peer"], **row["baselines"]}
    return (columns.get(name) or {}).get(metric)
