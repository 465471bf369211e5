"""Figures of the studies as SVG, the same bytes for the same rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

from tsnn.files import write_whole
from tsnn.study.markdown import metrics_of, title

Row = dict[str, Any]
_MARKS = {"ours": "o", "the paper": "D", "best peer": "s", "features": "x", "edgebank": "+"}


def save_svg(figure: Figure, path: Path) -> None:
    """Write a figure whole or not at all, without a date in it."""
    with mpl.rc_context({"svg.hashsalt": "tsnn"}):
        write_whole(path, lambda partial: figure.savefig(partial, format="svg", metadata={"Date": None}))


def table_figure(rows: list[Row], heading: str) -> Figure:
    """A panel per visibility: for each data set, ours with its deviation beside the paper, the peers and the floor."""
    metric = metrics_of(rows)[0]
    panels = list(dict.fromkeys(row["visibility"] for row in rows))
    tallest = max(sum(row["visibility"] == panel for row in rows) for panel in panels)
    figure = Figure(figsize=(1 + 4 * len(panels), 1.4 + 0.32 * tallest), layout="constrained")
    axes = figure.subplots(1, len(panels), squeeze=False)[0]
    for panel, axis in zip(panels, axes, strict=True):
        same = [row for row in rows if row["visibility"] == panel]
        _panel(axis, same, metric)
        axis.set_title(panel)
        axis.set_xlabel(f"test {metric.upper()}, per cent")
    handles, names = axes[0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=len(names), frameon=False)
    figure.suptitle(heading)
    return figure


def _panel(axis: Any, rows: list[Row], metric: str) -> None:
    for name, mark in _MARKS.items():
        points = [(at, cell) for at, row in enumerate(rows) if (cell := _cell(row, name, metric)) is not None]
        if not points:
            continue
        places, cells = zip(*points, strict=True)
        spread = [cell.get("std") or 0.0 for cell in cells] if name == "ours" else None
        axis.errorbar([cell["mean"] for cell in cells], places, xerr=spread, fmt=mark, label=name, markersize=5)
    labels = [title(row) + (f" {row['variant']}" if row["variant"] not in ("full", "core") else "") for row in rows]
    axis.set_yticks(range(len(rows)), labels)
    axis.invert_yaxis()
    axis.grid(axis="x", alpha=0.3)


def _cell(row: Row, name: str, metric: str) -> dict[str, Any] | None:
    if name in row["baselines"]:
        found = row["baselines"][name]
    else:
        found = {"ours": row["ours"], "the paper": row["paper"], "best peer": row["best_peer"]}.get(name)
    return (found or {}).get(metric)
