"""The first screen of the results: a figure, ten lines, and one small table for each question; all from stored rows.

Everything here is under `strict`, beside methods whose figures see the same, and of the rows as the files have them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.figure import Figure as Drawing

from tsnn.evaluation.formats import UNKNOWN, Figure, Grid, markdown
from tsnn.study.grids import Row, metrics_of
from tsnn.study.published import NEW_NODES, PAPER, SAME_VISIBILITY, paper_figure

OURS = "ours"
Tables = dict[str, list[Row]]  # the stored rows of each table
_BELOW = 0.03  # where a figure at its ceiling is drawn, on a logarithmic axis


@dataclass(frozen=True)
class Ask:
    """A question that the page answers: the half of a table that holds it."""

    table: str
    setting: str
    heading: str
    short: str

    def rows(self, stored: Tables, visibility: str = "strict") -> list[Row]:
        """Its rows, one for each data set, by name."""
        own = [row for row in stored.get(self.table, []) if row["visibility"] == visibility and not row["kind"]]
        return sorted((row for row in own if row["setting"] == self.setting), key=lambda row: row["data"].lower())


SEEN = (
    Ask("dgb", "transductive", "Random negatives", "random"),
    Ask("dgb-historical", "transductive", "Historical negatives", "historical"),
    Ask("dgb-inductive-negatives", "transductive", "Inductive negatives", "inductive"),
)
ASKS = (
    SEEN[0],
    Ask("dgb-inductive", "inductive", "Random negatives, new nodes", "random, new nodes"),
    SEEN[1],
    Ask("dgb-historical", NEW_NODES, "Historical negatives, new nodes", "historical, new nodes"),
    SEEN[2],
    Ask("dgb-inductive-negatives", NEW_NODES, "Inductive negatives, new nodes", "inductive, new nodes"),
    Ask("tgb", "one positive among many", "TGB: one positive among many", "TGB"),
)


def field_of(row: Row, metric: str) -> dict[str, float]:
    """Every method with a figure in a row, ours first, and what it is."""
    columns = {OURS: row["ours"], **row["baselines"], **row["peers_alike"]}
    return {name: cells[metric]["mean"] for name, cells in columns.items() if metric in (cells or {})}


def peers_of(row: Row, metric: str) -> dict[str, float]:
    """The published methods among them."""
    return {name: value for name, value in field_of(row, metric).items() if name in row["peers_alike"]}


def first_screen(stored: Tables) -> list[str]:
    """The lines below the figure."""
    return [f"- {sentence}" for sentence in sentences(stored)]


def sentences(stored: Tables) -> Iterator[str]:
    """What the rows say, each sentence counted from them."""
    for ask in SEEN:
        rows = [row for row in ask.rows(stored) if "ap" in row["ours"]]
        yield _standing(ask, rows) if rows else _not_run(ask)
    for ask in SEEN[1:]:
        yield from _blind(ask, ask.rows(stored))
    new = [row for row in ASKS[1].rows(stored) if "ap" in row["ours"]]
    if new:
        yield _standing(ASKS[1], new)
    yield from _reach(stored)
    yield from _impossible(stored)
    yield from _file_order(stored)
    yield from _states(stored)


def _standing(ask: Ask, rows: list[Row]) -> str:
    first = [name(row) for row in rows if _rank(row, "ap") == 1]
    others = [f"{name(row)} (place {_rank(row, 'ap')} of {len(field_of(row, 'ap'))})" for row in rows]
    others = [text for text, row in zip(others, rows, strict=True) if _rank(row, "ap") > 1]
    text = f"**{ask.heading}**: ours is first of all that see the same on {len(first)} of {len(rows)} sets"
    text += f" ({', '.join(first)})" if first else ""
    return text + (f"; not on {', '.join(others)}." if others else ".")


def _not_run(ask: Ask) -> str:
    return f"**{ask.heading}**: ours has not been run yet; the table has the rules, the peers and the ceiling."


def _rank(row: Row, metric: str) -> int:
    own: float = row["ours"][metric]["mean"]
    return 1 + sum(bool(round(value, 2) > round(own, 2)) for value in field_of(row, metric).values())


def _blind(ask: Ask, rows: list[Row]) -> Iterator[str]:
    """How far one gets without a look at the candidate."""
    rows = [row for row in rows if "source-recency" in row["baselines"] and peers_of(row, "ap")]
    if not rows:
        return
    told = []
    for row in rows:
        own, peers = row["baselines"]["source-recency"]["ap"]["mean"], peers_of(row, "ap")
        told.append(f"{name(row)} {own:.1f}, above {sum(own > value for value in peers.values())} of {len(peers)}")
    yield (
        f"{ask.heading} ask who is active: `source-recency`, which never looks at the candidate, "
        f"beside published methods: {'; '.join(told)}."
    )


def _reach(stored: Tables) -> Iterator[str]:
    """One line for all ways of choosing negatives."""
    told = []
    for ask in SEEN:
        reach = {name(row): row["ceiling"]["ap"] for row in ask.rows(stored) if "ap" in row.get("ceiling", {})}
        if reach:
            low, high = (f"{value:.2f}" for value in (min(reach.values()), max(reach.values())))
            least = min(reach, key=lambda data: reach[data])
            span = f"{low} on every set" if low == high else f"{low} ({least}) to {high}"
            told.append(f"{span} with {ask.short} ones")
    if told:
        yield f"Some negatives happen, so that the ceiling is below 100: AP {'; '.join(told)}."


def _impossible(stored: Tables) -> Iterator[str]:
    """Published figures above what can be had under the visibility that they were made with."""
    made = [(row, method) for row in SEEN[0].rows(stored) for method in SAME_VISIBILITY["strict"]]
    made += [(row, PAPER) for row in SEEN[0].rows(stored, "arrival")]
    found = []
    for row, method in made:
        cell, reach = paper_figure("dgb", "ap", row["data"], method), row.get("ceiling", {}).get("ap")
        if cell and reach is not None and round(cell["mean"], 2) > round(reach, 2):
            under = f"ceiling {reach:.2f} under `{row['visibility']}`"
            found.append(f"{method} on {name(row)} ({cell['mean']:.2f}, {under})")
    if found:
        yield f"Published above what can be had, so made with other negatives or a leak: {'; '.join(found)}."


def _file_order(stored: Tables) -> Iterator[str]:
    strict = {row["data"]: row for row in SEEN[0].rows(stored) if "ap" in row["ours"]}
    gaps = {
        name(row): row["ours"]["ap"]["mean"] - strict[row["data"]]["ours"]["ap"]["mean"]
        for row in SEEN[0].rows(stored, "arrival")
        if row["data"] in strict and "ap" in row["ours"]
    }
    told = [f"{data} {gap:.1f}" for data, gap in sorted(gaps.items(), key=lambda item: -item[1]) if gap >= 1]
    if told:
        yield f"Points that ours gains from the order of the file, `arrival` against `strict`: {', '.join(told)}."


def _states(stored: Tables) -> Iterator[str]:
    rows = [row for row in SEEN[0].rows(stored) if row["ours"]]
    runs, without = sum(row["seeds"] for row in rows), sum(row.get("stateless") or 0 for row in rows)
    if without:
        yield f"Of the {runs} runs of ours with random negatives, validation kept {without} without states."


def name(row: Row) -> str:
    """A data set without its suite."""
    return str(row["data"]).rpartition(":")[2]


def question_lines(ask: Ask, rows: list[Row]) -> list[str]:
    """A heading, and a table for each metric."""
    lines = [f"## {ask.heading}", ""]
    for metric in metrics_of(rows):
        lines += [f"{metric.upper()}, test, `strict`:", "", *table(rows, metric), ""]
    return lines


def table(rows: Sequence[Row], metric: str) -> list[str]:
    """A line for each data set: ours, the ceiling, the rules, the peers; the best in bold, the second in italics."""
    known = [row for row in rows if field_of(row, metric)]
    names = list(dict.fromkeys(method for row in known for method in field_of(row, metric) if method != OURS))
    rules = [method for method in names if any(method in row["baselines"] for row in known)]
    peers = [method for method in names if method not in rules]
    head = ["data", OURS, "ceiling", *rules, *peers]
    lines = []
    for row in known:
        marks = _marks(field_of(row, metric))
        reach = (row.get("ceiling") or {}).get(metric)
        cells = [name(row), _own(row, metric, marks), UNKNOWN if reach is None else f"{reach:.2f}"]
        cells += [_marked(field_of(row, metric).get(method), marks.get(method, "")) for method in (*rules, *peers)]
        lines.append(cells)
    return markdown(Grid("", head, lines))


def _own(row: Row, metric: str, marks: dict[str, str]) -> str:
    if metric not in row["ours"]:
        return "not run"
    mark = marks.get(OURS, "")
    return f"{mark}{Figure.read(row['ours'][metric])}{mark}"


def _marked(value: float | None, mark: str) -> str:
    return "" if value is None else f"{mark}{value:.2f}{mark}"


def _marks(values: dict[str, float]) -> dict[str, str]:
    """Bold for the best and italics for the second, as printed."""
    shown = {method: round(value, 2) for method, value in values.items()}
    best = sorted(set(shown.values()), reverse=True)[:2]
    return {method: "**" if value == best[0] else "*" for method, value in shown.items() if value in best}


def distance_figure(stored: Tables) -> Drawing:
    """How far every method is from the ceiling: a panel for each way of choosing negatives, a line for each set."""
    figure = Drawing(figsize=(11, 4.2), layout="constrained")
    data = sorted({name(row) for ask in SEEN for row in ask.rows(stored)}, key=str.lower)
    for axis, ask in zip(figure.subplots(1, len(SEEN), sharex=True, sharey=True), SEEN, strict=True):
        for row in ask.rows(stored):
            _draw(axis, row, data.index(name(row)))
        axis.set_title(ask.heading)
        axis.set_xscale("log")
        axis.set_xticks([0.1, 1, 10, 50], ["0.1", "1", "10", "50"])
        axis.minorticks_off()
        axis.set_yticks(range(len(data)), data)
        axis.set_ylim(len(data) - 0.5, -0.5)
        axis.grid(alpha=0.3)
        axis.set_xlabel("points of AP below the ceiling")
    drawn = (zip(*axis.get_legend_handles_labels(), strict=True) for axis in figure.axes)
    handles = {label: handle for pairs in drawn for handle, label in pairs}
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=len(handles) or 1, frameon=False)
    return figure


_LOOKS: dict[str, dict[str, Any]] = {
    OURS: {"marker": "o", "color": "C3", "s": 60, "zorder": 4},
    "features": {"marker": "x", "color": "C0", "zorder": 3},
    "source-recency": {"marker": "+", "color": "C2", "s": 60, "zorder": 3},
}


def _draw(axis: Any, row: Row, line: int) -> None:
    reach = (row.get("ceiling") or {}).get("ap")
    if reach is None:
        return
    for method, value in field_of(row, "ap").items():
        if method in _LOOKS or method in row["peers_alike"]:
            label = method if method in _LOOKS else "published, sees the same"
            look = _LOOKS.get(method, {"marker": "|", "color": "0.45", "s": 50})
            axis.scatter([max(reach - value, _BELOW)], [line], label=label, **look)
