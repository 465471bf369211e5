"""The rows of a table, laid out: a grid per visibility, as Markdown and as LaTeX."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tsnn.evaluation.formats import UNKNOWN, Cell, Figure, Grid, latex, markdown
from tsnn.study.published import NEW_NODES, best_method

Row = dict[str, Any]
NOT_COUNTED = (
    "In parentheses: on a side of the comparison validation kept the weights from before the first epoch, so that runs "
    "are without states; it says nothing about states or frames."
)
MEMORY_PEERS = ("TGN", "NAT", "PINT")


def table_lines(rows: list[Row]) -> list[str]:
    """One Markdown table per visibility, each under its own heading."""
    lines: list[str] = []
    for visibility, same in by_visibility(rows).items():
        lines += [f"### {heading_of(visibility)}", ""]
        if has_removals(same):
            lines += [*markdown(removal_grid(same)), ""]
        else:
            for metric in metrics_of(same):
                lines += [f"{metric.upper()}:", "", *markdown(comparison_grid(same, [metric])), ""]
        if any(not counts(row) for row in same):
            lines += [NOT_COUNTED, ""]
    return lines


def heading_of(part: str) -> str:
    """`panel`, its first word as code."""
    visibility, comma, others = part.partition(",")
    return f"`{visibility}`{comma}{others}"


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
            grids += [_captioned([r for r in same if r["data"] == data], f"{title}, {data}") for data in named]
        else:
            grids += [comparison_grid(same, [m], f"{title}, {m.upper()} in per cent") for m in metrics_of(same)]
    return latex(grids)


def _captioned(rows: list[Row], title: str) -> Grid:
    """Removals under a title that says what parentheses mean, where there are some."""
    return removal_grid(rows, title if all(map(counts, rows)) else f"{title}. {NOT_COUNTED}")


def by_visibility(rows: list[Row]) -> dict[str, list[Row]]:
    """The rows of each visibility, in their order; those of new nodes apart, where a table has both."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(panel(row), []).append(row)
    return found


def panel(row: Row) -> str:
    """The part of its table that a row belongs to."""
    new_nodes = row.get("setting") == NEW_NODES
    return f"{row['visibility']}, {NEW_NODES}" if new_nodes else str(row["visibility"])


def has_removals(rows: list[Row]) -> bool:
    """Whether the rows are variants of one model, rather than data sets."""
    return any("change" in row for row in rows)


def comparison_grid(rows: list[Row], metrics: list[str], heading: str = "") -> Grid:
    """The rows of one visibility: ours against the paper, the peers and the baselines."""
    names = " / ".join(metric.upper() for metric in metrics)
    alike = [name for name in MEMORY_PEERS if rows[0]["visibility"].startswith("batch")]
    baselines = list(dict.fromkeys(name for row in rows for name in row["baselines"]))
    reach = ["ceiling"] if any(row.get("ceiling") for row in rows) else []
    paper = ["the paper", "ours less the paper's"] if any(row["paper"] for row in rows) else []
    head = ["data", "seeds", f"ours, {names}", *reach, *paper, "best peer"]
    head += ["best peer that sees the same", *alike, *baselines]
    lines = []
    for row in rows:
        gaps = " / ".join(_signed(difference(row, row["paper"], metric)) for metric in metrics)
        cells: list[Cell] = [title(row), seeds(row), figures(row["ours"], metrics)]
        cells += [_ceiling(row, metrics)] if reach else []
        cells += [figures(row["paper"], metrics), gaps if row["paper"] else UNKNOWN] if paper else []
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
        cells: list[Cell] = [title(row), row["variant"], seeds(row), figures(row["ours"], ["ap"])]
        ours = _signed(change.get("ours"), "")
        cells.append(ours if counts(row) else f"({ours})")
        if in_paper:
            agrees = {True: "yes", False: "no", None: ""}[change.get("same_direction")]
            cells += [figures(row["paper"], ["ap"]), _signed(change.get("paper"), ""), agrees]
        lines.append(cells)
    return Grid(heading, head, lines, down=True)


def title(row: Row) -> str:
    """The data set of a row, and whatever makes the row unusual (shuffled ties, other settings)."""
    return f"{row['data']} ({row['kind']})" if row.get("kind") else str(row["data"])


def seeds(row: Row) -> str:
    """How many runs a row is the mean of, and how many of them do without states."""
    without = row.get("stateless")  # a row stored by an earlier version does not say
    return f"{row['seeds']} ({without} without states)" if without else str(row["seeds"])


def counts(row: Row) -> bool:
    """Whether the row's change, if it has one, is evidence about states."""
    return bool(row.get("change", {}).get("counts", True))


def metrics_of(rows: list[Row]) -> list[str]:
    """The metrics that the rows hold, in their order."""
    measured = (cells for row in rows for cells in (row["ours"], *row["baselines"].values()))
    return list(dict.fromkeys(metric for cells in measured for metric in cells))


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


def _ceiling(row: Row, metrics: list[str]) -> str:
    """In words, so that it is no competitor of the figures in its line."""
    reach = row.get("ceiling") or {}
    return " / ".join(Figure(reach[m]).shown if m in reach else UNKNOWN for m in metrics)


def _peer(peers: dict[str, Any] | None, metrics: list[str]) -> tuple[Figure, ...]:
    known = peers or {}
    return tuple(Figure(known[m]["mean"], of=known[m]["method"]) for m in metrics if m in known)


def _signed(value: float | None, absent: str = UNKNOWN) -> str:
    return absent if value is None else f"{value:+.2f}"
