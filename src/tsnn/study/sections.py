"""One table in full: how it was made, its figures under every visibility, what the comparison says, and the notes.

Explanations, which only a person can write, stand in `results/notes/<table>.md`; each is put under its table.
"""

from __future__ import annotations

from pathlib import Path

from tsnn.evaluation.formats import Figure
from tsnn.study.grids import Row, by_visibility, counts, difference, has_removals, metrics_of, table_lines, title
from tsnn.study.published import table_of
from tsnn.study.statistics import OURS, average_ranks, collect, friedman, wilcoxon

HEADINGS = {
    "dgb": "DGB, transductive",
    "dgb-inductive": "DGB, inductive",
    "dgb-historical": "DGB, historical negatives",
    "dgb-inductive-negatives": "DGB, inductive negatives",
    "tgb": "TGB",
    "ablation": "Ablation, EdgeBank off",
    "sheaf": "What states and frames add",
}
INTRODUCTION = """Figures are per cent, mean ± standard deviation (n - 1) over seeds. Each table says what a scored
event was allowed to see:

- `strict`: every event with an earlier time. The honest one.
- `arrival`: every earlier row, also of the same time. The paper's Algorithm 1; its figures belong to this table alone.
- `batch:200`: every row of earlier batches of 200. What the memory-based peers (TGN, NAT, PINT) see.

The paper's and the peers' figures are published ones; ours are measured here, and the baselines too. "Best peer that
sees the same" leaves out methods whose own code shows an event more or less than the table does; under `strict` it
takes figures with leaks closed (arXiv 2610.04869) where there are some. The
[ceiling](../how-to/evaluation.md#the-ceiling) is what a scorer gets that knows every event.

"Without states" says of how many seeds validation kept the weights from before the first epoch: such a run scores by
counts, gaps and paths alone, whatever stands at the head of its table.
"""


def section(name: str, rows: list[Row], folder: Path) -> list[str]:
    """One table: how it was made, its figures, what the comparison says, and the notes."""
    lines = [f"# {HEADINGS[name]}", "", INTRODUCTION, f"Made by `tsnn reproduce {name} --out results`.", ""]
    lines += table_lines(rows)
    if (folder / f"{name}.svg").is_file():
        lines += [f"![{HEADINGS[name]}](../images/results-{name}.svg)", ""]
    lines += removals(rows) if has_removals(rows) else agreement(name, rows)
    notes = folder / "notes" / f"{name}.md"
    return [*lines, notes.read_text().rstrip(), ""] if notes.is_file() else lines


def agreement(name: str, rows: list[Row]) -> list[str]:
    """Per visibility: where ours is at or above each yardstick, where it is below, and by how much."""
    lines = ["**What agrees and what does not** (means; the difference in points):", ""]
    for visibility, same in by_visibility(rows).items():
        for metric in metrics_of(same):
            statements = [
                _statement("the paper's figure", [(row, row["paper"]) for row in same], metric),
                _statement("the best peer's", [(row, row["best_peer"]) for row in same], metric),
                _statement("`features`", [(row, row["baselines"].get("features")) for row in same], metric),
            ]
            lines += [f"- `{visibility}` {metric.upper()}, {text}" for text in statements if text]
            lines += _ranks(name, metric, [row for row in same if not row["kind"]], visibility)
    return [*lines, "", *_shuffled(rows)]


def _statement(label: str, compared: list[tuple[Row, Row | None]], metric: str) -> str:
    gaps = [(title(row), difference(row, theirs, metric)) for row, theirs in compared]
    known = [(name, gap) for name, gap in gaps if gap is not None]
    if not known:
        return ""
    above = [f"{name} ({gap:+.2f})" for name, gap in known if round(gap, 2) >= 0]
    below = [f"{name} ({gap:+.2f})" for name, gap in known if round(gap, 2) < 0]
    text = f"at or above {label} on {len(above)} of {len(known)}"
    return text + (f": {', '.join(above)}" if above else "") + (f"; below on {', '.join(below)}" if below else "") + "."


def _ranks(name: str, metric: str, rows: list[Row], visibility: str) -> list[str]:
    """Average ranks and tests, where enough data sets are there for them to mean anything."""
    known = [row for row in rows if (row["paper"] or row["best_peer"]) and metric in row["ours"]]
    ours = {row["data"]: row["ours"][metric]["mean"] for row in known}
    if len(ours) < 3 or name == "tgb":
        return []
    scores = collect(table_of(name, rows[0]["setting"]), metric, ours)
    best = sorted(average_ranks(scores).items(), key=lambda item: item[1])[:4]
    test, pair = friedman(scores), wilcoxon(scores, OURS, "TPNet")
    ranks = ", ".join(f"{method} {rank:.2f}" for method, rank in best)
    text = f"- `{visibility}` {metric.upper()}, average ranks over {len(scores.data)} data sets: {ranks}"
    text += f"; Friedman p = {test['p']:.2g}, critical difference {test['critical_difference']:.2f}"
    return [text + f"; Wilcoxon against TPNet p = {pair['p']:.2g}."]


def _shuffled(rows: list[Row]) -> list[str]:
    """Each row with shuffled ties, beside the row in the file's own order; under `strict` the two should be equal."""
    ordered = {(row["data"], row["visibility"]): row for row in rows if not row["kind"]}
    lines = []
    for row in rows:
        base = ordered.get((row["data"], row["visibility"]))
        if row["kind"] == "shuffled" and base is not None:
            found = {m: (Figure.read(row["ours"][m]), Figure.read(base["ours"][m])) for m in row["ours"]}
            pairs = [f"{ours} against {theirs} {metric.upper()}" for metric, (ours, theirs) in found.items()]
            place = f"{row['data']} `{row['visibility']}`"
            lines.append(f"- {place}, rows shuffled inside their timestamps: {'; '.join(pairs)}.")
    return [*lines, ""] if lines else []


def removals(rows: list[Row]) -> list[str]:
    """How many removals cost something, and how many point the way the paper's do; of comparisons that count."""
    lines = ["**What the removals say:**", ""]
    for visibility, same in by_visibility(rows).items():
        changed = [row for row in same if "change" in row]
        counted = [row for row in changed if counts(row)]
        costly = [row for row in counted if row["change"]["ours"] < 0]
        left_out = len(changed) - len(counted)
        if not counted:
            lines.append(f"- `{visibility}`: none counts: each of {left_out} has runs without states on a side.")
            continue
        text = f"- `{visibility}`: {len(costly)} of {len(counted)} removals lower AP"
        told = [row["change"]["same_direction"] for row in counted if "same_direction" in row["change"]]
        text += f"; {sum(told)} of {len(told)} point the way the paper's do." if told else "."
        lines.append(text + (f" Not counted, for runs without states: {left_out} more." if left_out else ""))
        for data in dict.fromkeys(row["data"] for row in changed):
            ordered = sorted((r for r in counted if r["data"] == data), key=lambda r: r["change"]["ours"])
            effects = ", ".join(f"{row['variant']} {row['change']['ours']:+.2f}" for row in ordered)
            lines.append(f"  - {data}: {effects or 'no comparison counts'}.")
    return [*lines, ""]
