"""The rows of a table, laid out: a grid per visibility, as Markdown and as LaTeX."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tsnn.evaluation.formats import UNKNOWN, Cell, Figure, Grid, latex, markdown
from tsnn.study.published import best_method

Row = dict[str, Any]
MEMORY_PEERS = ("TGN", "NAT", "PINT")


def table_lines(rows: list[Row]) -> list[str]:
    """One Markdown table per visibility, each under its own heading."""
    lines: list[str] = []
    for visibility, same in by_visibility(rows).items():
        grid = removal_grid(same) if has_removals(same) else comparison_grid(same, metrics_of(same))
        lines += [f"### `{visibility}`", "", *markdown(grid), ""]
    return lines


def document(heading: str, rows: list[Row]) -> str:
    """The table as a Markdown page of its own."""
    return "\n".join([f"# {heading}", "", *table_lines(rows)]).rstrip() + "\n"


def latex_document(heading: str, rows: list[Row]) -> str:
    """The table for a paper: one for each visibility and metric; of removals one for each visibility and data set."""
    grids = []
    for visibility, same in by_visibility(rows).items():
        title = f"{heading}, visibility {visibility}"
        if has_removals(same):
            named = dict.fromkeys(row["data"] for row in same)
            grids += [removal_grid([r for r in same if r["data"] == data], f"{title}, {data}") for data in named]
        else:
            grids += [comparison_grid(same, [m], f"{title}, {m.upper()} in per cent") for m in metrics_of(same)]
    return latex(grids)


def by_visibility(rows: list[Row]) -> dict[str, list[Row]]:
    """The rows of each visibility, in their order."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(row["visibility"], []).append(row)
    return found


def has_removals(rows: list[Row]) -> bool:
    """Whether the rows are variants of one model, rather than data sets."""
    return any("change" in row for row in rows)


def comparison_grid(rows: list[Row], metrics: list[str], heading: str = "") -> Grid:
    """The rows of one visibility: ours against the paper, the peers and the baselines."""
    names = " / ".join(metric.upper() for metric in metrics)
    alike = [name for name in MEMORY_PEERS if rows[0]["visibility"].startswith("batch")]
    baselines = list(dict.fromkeys(name for row in rows for name in row["baselines"]))
    head = ["data", "seeds", f"ours, {names}", "the paper", "ours less the paper's", "best peer"]
    head += ["best peer that sees the same", *alike, *baselines]
    lines = []
    for row in rows:
        gaps = " / ".join(_signed(difference(row, row["paper"], metric)) for metric in metrics)
        cells: list[Cell] = [title(row), str(row["seeds"]), figures(row["ours"], metrics)]
        cells += [figures(row["paper"], metrics), gaps if row["paper"] else UNKNOWN]
        cells += [_peer(row["best_peer"], metrics), _peer(best_alike(row, metrics), metrics)]
        cells += [figures(row["peers_alike"].get(name), metrics) for name in alike]
        cells += [figures(row["baselines"].get(name), metrics) for name in baselines]
        lines.append(cells)
    return Grid(heading, head, lines)


def removal_grid(rows: list[Row], heading: str = "") -> Grid:
    """The rows of one visibility: the whole model first, then each removal, beside the paper where it has them."""
    in_paper = any(row.get("change", {}).get("paper") is not None for row in rows)
    head = ["data", "variant", "seeds", "AP", "change"]
    head += ["the paper's AP", "its change", "same direction"] if in_paper else []
    lines = []
    for row in sorted(rows, key=lambda row: (row["data"].lower(), "change" in row)):
        change = row.get("change", {})
        cells: list[Cell] = [title(row), row["variant"], str(row["seeds"]), figures(row["ours"], ["ap"])]
        cells.append(_signed(change.get("ours"), ""))
        if in_paper:
            agrees = {True: "yes", False: "no", None: ""}[change.get("same_direction")]
            cells += [figures(row["paper"], ["ap"]), _signed(change.get("paper"), ""), agrees]
        lines.append(cells)
    return Grid(heading, head, lines, down=True)


def title(row: Row) -> str:
    """The data set of a row, and whatever makes the row unusual (shuffled ties, other settings)."""
    return f"{row['data']} ({row['kind']})" if row.get("kind") else str(row["data"])


def metrics_of(rows: list[Row]) -> list[str]:
    """The metrics that the rows hold, in their order."""
    return list(dict.fromkeys(metric for row in rows for metric in row["ours"]))


def difference(row: Row, others: dict[str, Any] | None, metric: str) -> float | None:
    """Our mean minus another's, where both are known."""
    theirs = (others or {}).get(metric)
    return row["ours"][metric]["mean"] - theirs["mean"] if theirs and metric in row["ours"] else None


def figures(cells: dict[str, Any] | None, metrics: Sequence[str]) -> tuple[Figure | None, ...]:
    """Mean and deviation of each metric."""
    return tuple(Figure.read(cells[m]) if m in cells else None for m in metrics) if cells else ()


def best_alike(row: Row, metrics: list[str]) -> dict[str, Any]:
    """For each metric, the best of the peers whose code lets an event see what the row's visibility lets it see."""
    known = {m: {name: cells[m] for name, cells in row["peers_alike"].items() if m in cells} for m in metrics}
    return {metric: best_method(figures) for metric, figures in known.items() if figures}


def _peer(peers: dict[str, Any] | None, metrics: list[str]) -> tuple[Figure, ...]:
    known = peers or {}
    return tuple(Figure(known[m]["mean"], of=known[m]["method"]) for m in metrics if m in known)


def _signed(value: float | None, absent: str = UNKNOWN) -> str:
    return absent if value is None else f"{value:+.2f}"
