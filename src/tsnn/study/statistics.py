"""Are the differences more than luck: average ranks, Friedman, Nemenyi's critical difference, Wilcoxon (Demsar 2006).

Rows are data sets, columns are methods; a rank of 1 is the best of a row, ties share the mean of their ranks.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from scipy import stats

from tsnn.errors import InputError
from tsnn.study.figures import save_svg
from tsnn.study.grids import by_visibility, metrics_of
from tsnn.study.published import PAPER, figures, table_of
from tsnn.types import F64

OURS = "ours"
ALPHA = 0.05


@dataclass(frozen=True)
class Scores:
    """Figures of every method on every data set, none missing."""

    data: list[str]
    methods: list[str]
    values: F64  # (data, methods)

    def column(self, method: str) -> F64:
        """One method's figures."""
        if method not in self.methods:
            raise InputError(f"there is no method {method!r}; use one of {', '.join(self.methods)}.")
        column: F64 = self.values[:, self.methods.index(method)]
        return column


def collect(table: str, metric: str, ours: dict[str, float] | None = None) -> Scores:
    """The published columns and, on the data sets it covers, ours; a method that lacks one of them is left out."""
    rows = {name: {m: cell["mean"] for m, cell in row.items()} for name, row in figures(table, metric).items()}
    if ours is not None:
        rows = {name: {**row, OURS: ours[name]} for name, row in rows.items() if name in ours}
    if not rows:
        raise InputError(f"none of the data sets has published figures of {metric}; ask for statistics of others.")
    methods = [name for name in next(iter(rows.values())) if all(name in row for row in rows.values())]
    return Scores(list(rows), methods, np.array([[row[name] for name in methods] for row in rows.values()]))


def average_ranks(scores: Scores) -> dict[str, float]:
    """Mean rank of each method over the data sets."""
    ranks = stats.rankdata(-scores.values, axis=1)
    return dict(zip(scores.methods, ranks.mean(axis=0).tolist(), strict=True))


def wilcoxon(scores: Scores, ours: str, other: str) -> dict[str, float]:
    """Wilcoxon signed-rank test of two methods over the data sets; p is two-sided."""
    difference = scores.column(ours) - scores.column(other)
    if not difference.any():
        return {"statistic": 0.0, "p": 1.0, "median_difference": 0.0}
    found = stats.wilcoxon(difference)
    median = float(np.median(difference))
    return {"statistic": float(found.statistic), "p": float(found.pvalue), "median_difference": median}


def friedman(scores: Scores) -> dict[str, float]:
    """Friedman's test of equal performance, and the critical difference of average ranks (Nemenyi, 0.05)."""
    num_data, num_methods = scores.values.shape
    if num_data < 2 or num_methods < 3:
        raise InputError(f"Friedman's test needs 2 data sets and 3 methods, here are {num_data} and {num_methods}.")
    found = stats.friedmanchisquare(*scores.values.T)
    distance = critical_difference(num_methods, num_data)
    return {"statistic": float(found.statistic), "p": float(found.pvalue), "critical_difference": distance}


def critical_difference(num_methods: int, num_data: int) -> float:
    """Average ranks further apart than this differ significantly (Nemenyi)."""
    q = float(stats.studentized_range.ppf(1 - ALPHA, num_methods, math.inf)) / math.sqrt(2)
    return q * math.sqrt(num_methods * (num_methods + 1) / (6 * num_data))


def cliques(ranks: dict[str, float], difference: float) -> list[tuple[float, float]]:
    """Longest runs of methods whose average ranks do not differ significantly, as (best, worst) rank."""
    ordered = sorted(ranks.values())
    spans: list[tuple[float, float]] = []
    for start in ordered:
        stop = max(rank for rank in ordered if rank - start <= difference)
        if stop > start and (not spans or stop > spans[-1][1]):
            spans.append((start, stop))
    return spans


def critical_difference_figure(ranks: dict[str, float], difference: float, heading: str) -> Figure:
    """Demsar's diagram: methods on the axis of average ranks, a bar over those that do not differ."""
    ordered = sorted(ranks.items(), key=lambda item: item[1])
    half = (len(ordered) + 1) // 2
    figure = Figure(figsize=(8, 1.6 + 0.28 * half), layout="constrained")
    axis = figure.subplots()
    axis.set_xlim(0.5, len(ordered) + 0.5)
    axis.set_ylim(-half - 1.5, 1.6)
    axis.hlines(0, 1, len(ordered), color="black", linewidth=1)
    for tick in range(1, len(ordered) + 1):
        axis.plot([tick, tick], [0, 0.15], color="black", linewidth=1)
        axis.text(tick, 0.25, str(tick), ha="center", fontsize=8)
    for place, (name, rank) in enumerate(ordered):
        left = place < half
        level = -1.0 - (place if left else len(ordered) - 1 - place)
        edge = 0.6 if left else len(ordered) + 0.4
        axis.plot([rank, rank, edge], [0, level, level], color="black", linewidth=0.8)
        axis.text(edge, level + 0.1, f"{name} {rank:.2f}", ha="left" if left else "right", fontsize=8)
    for level, (best, worst) in enumerate(cliques(ranks, difference)):
        axis.hlines(-0.25 - 0.18 * level, best - 0.04, worst + 0.04, linewidth=3)
    axis.hlines(1.1, 1, 1 + difference, linewidth=2)
    axis.text(1, 1.2, f"critical difference {difference:.2f}", fontsize=8)
    axis.set_axis_off()
    axis.set_title(heading, fontsize=9)
    return figure


def compare(scores: Scores, ours: str) -> dict[str, Any]:
    """Everything at once: ranks, Friedman, and one method against each other one."""
    others = [name for name in scores.methods if name != ours]
    return {
        "data": scores.data,
        "average_ranks": average_ranks(scores),
        "friedman": friedman(scores) if len(scores.data) > 1 else None,
        "wilcoxon": {name: wilcoxon(scores, ours, name) for name in others},
    }


def add_statistics(result: dict[str, Any], out: Path) -> None:
    """Put `statistics` into a result of `reproduce`: the paper's own table, then ours per visibility and metric."""
    table = result["table"]
    rows = result["rows"]
    found: dict[str, Any] = {}
    for metric in metrics_of(rows):
        paper = collect(table_of(table, rows[0]["setting"]), metric)
        if PAPER in paper.methods:
            found.setdefault("paper", {})[metric] = compare(paper, PAPER)
        for visibility, same in by_visibility(rows).items():
            ours = {row["data"]: row["ours"][metric]["mean"] for row in same if metric in row["ours"]}
            other = table_of(table, same[0]["setting"])
            if set(ours) & set(figures(other, metric)):
                found.setdefault(visibility, {})[metric] = compare(collect(other, metric, ours), OURS)
    out.mkdir(parents=True, exist_ok=True)
    for part, by_metric in found.items():
        for metric, values in by_metric.items():
            if values["friedman"] is not None:
                values["figure"] = (
                    f"{table}-{part.replace(':', '').replace(', ', '-').replace(' ', '-')}-{metric}-ranks.svg"
                )
                heading = f"{table}, {part}, {metric.upper()}: average ranks over {len(values['data'])} data sets"
                distance = values["friedman"]["critical_difference"]
                figure = critical_difference_figure(values["average_ranks"], distance, heading)
                save_svg(figure, out / values["figure"])
    result["statistics"] = found
