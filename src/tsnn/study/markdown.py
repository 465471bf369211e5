"""Rows of a table as Markdown, one table per visibility."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tsnn.study.published import best_method

Row = dict[str, Any]
UNKNOWN = "n/a"
MEMORY_PEERS = ("TGN", "NAT", "PINT")


def table_lines(rows: list[Row]) -> list[str]:
    """One Markdown table per visibility, each under its own heading."""
    lines: list[str] = []
    for visibility, same in by_visibility(rows).items():
        told = removal_lines if any("change" in row for row in same) else comparison_lines
        lines += [f"### `{visibility}`", "", *told(same), ""]
    return lines


def by_visibility(rows: list[Row]) -> dict[str, list[Row]]:
    """The rows of each visibility, in their order."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(row["visibility"], []).append(row)
    return found


def comparison_lines(rows: list[Row]) -> list[str]:
    """The rows of one visibility: ours against the paper, the peers and the baselines."""
    metrics = metrics_of(rows)
    names = " / ".join(metric.upper() for metric in metrics)
    alike = [name for name in MEMORY_PEERS if rows[0]["visibility"].startswith("batch")]
    baselines = list(dict.fromkeys(name for row in rows for name in row["baselines"]))
    header = ["data", "seeds", f"ours, {names}", "the paper", "ours less the paper's", "best peer"]
    header += ["best peer that sees the same", *alike, *baselines]
    lines = [_line(header), _line("---" for _ in header)]
    for row in rows:
        gaps = " / ".join(_signed(difference(row, row["paper"], metric)) for metric in metrics)
        cells = [title(row), str(row["seeds"]), figures(row["ours"], metrics), figures(row["paper"], metrics)]
        cells.append(gaps if row["paper"] else UNKNOWN)
        cells += [_peer(row["best_peer"], metrics), _peer(best_alike(row, metrics), metrics)]
        cells += [figures(row["peers_alike"].get(name), metrics) for name in alike]
        cells += [figures(row["baselines"].get(name), metrics) for name in baselines]
        lines.append(_line(cells))
    return lines


def removal_lines(rows: list[Row]) -> list[str]:
    """The rows of one visibility: the whole model first, then each removal, beside the paper where it has them."""
    in_paper = any(row.get("change", {}).get("paper") is not None for row in rows)
    header = ["data", "variant", "seeds", "AP", "change"]
    header += ["the paper's AP", "its change", "same direction"] if in_paper else []
    lines = [_line(header), _line("---" for _ in header)]
    for row in sorted(rows, key=lambda row: (row["data"].lower(), "change" in row)):
        change = row.get("change", {})
        cells = [title(row), row["variant"], str(row["seeds"]), figures(row["ours"], ["ap"])]
        cells.append(_signed(change.get("ours"), ""))
        if in_paper:
            agrees = {True: "yes", False: "no", None: ""}[change.get("same_direction")]
            cells += [figures(row["paper"], ["ap"]), _signed(change.get("paper"), ""), agrees]
        lines.append(_line(cells))
    return lines


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


def figures(cells: dict[str, Any] | None, metrics: list[str]) -> str:
    """Mean and deviation of each metric: `97.06 ± 0.02 / 96.23 ± 0.05`."""
    return " / ".join(figure(cells.get(metric)) for metric in metrics) if cells else UNKNOWN


def figure(cell: dict[str, Any] | None) -> str:
    """Mean and, where there is one, deviation."""
    if cell is None:
        return UNKNOWN
    spread = cell.get("std")
    return f"{cell['mean']:.2f}" + (f" ± {spread:.2f}" if spread is not None else "")


def best_alike(row: Row, metrics: list[str]) -> dict[str, Any]:
    """For each metric, the best of the peers whose code lets an event see what the row's visibility lets it see."""
    known = {m: {name: cells[m] for name, cells in row["peers_alike"].items() if m in cells} for m in metrics}
    return {metric: best_method(figures) for metric, figures in known.items() if figures}


def _peer(peers: dict[str, Any] | None, metrics: list[str]) -> str:
    known = peers or {}
    return " / ".join(f"{known[m]['method']} {known[m]['mean']:.2f}" for m in metrics if m in known) or UNKNOWN


def _signed(value: float | None, absent: str = UNKNOWN) -> str:
    return absent if value is None else f"{value:+.2f}"


def _line(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def document(heading: str, rows: list[Row]) -> str:
    """The table as a Markdown page of its own."""
    return "\n".join([f"# {heading}", "", *table_lines(rows)]).rstrip() + "\n"
