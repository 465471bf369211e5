"""Figures for other programs and for papers: CSV with a row a figure; grids as Markdown, LaTeX and text.

A grid is laid out once; every format is written from it.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any

UNKNOWN = "n/a"
CEILING = "ceiling"  # what nobody can exceed but by luck, beside the figures of scorers
COLUMNS = (
    *("run", "scorer", "seed", "data", "fingerprint", "protocol", "visibility"),
    *("candidates", "negatives", "negatives_seed", "set", "events", "metric", "value", CEILING, "stateless"),
)
_LATEX = {char: f"\\{char}" for char in "&%$#_{}"} | {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "±": r"$\pm$",
}
_HEAD = r"""% In the preamble: \usepackage{booktabs} and \usepackage{graphicx}. In bold: the best of what is compared.
"""


def summary(values: Sequence[float]) -> dict[str, Any]:
    """Mean and standard deviation (n - 1) over seeds; of one seed there is no deviation."""
    return {"mean": fmean(values), "std": stdev(values) if len(values) > 1 else None, "values": list(values)}


@dataclass(frozen=True)
class Figure:
    """A mean, its deviation where it has one, and whose it is where the column does not say."""

    mean: float
    std: float | None = None
    of: str = ""

    @classmethod
    def read(cls, cell: Mapping[str, Any]) -> Figure:
        """What `summary` wrote, or a published figure."""
        return cls(cell["mean"], cell.get("std"))

    @property
    def shown(self) -> str:
        """The mean as it is printed: per cent with two digits, fractions with four."""
        return f"{self.mean:.{self._digits}f}"

    def __str__(self) -> str:
        spread = "" if self.std is None else f" ± {self.std:.{self._digits}f}"
        return f"{self.of} {self.shown}{spread}".lstrip()

    @property
    def _digits(self) -> int:
        return 2 if abs(self.mean) > 1 else 4


Cell = str | tuple[Figure | None, ...]  # words, or a figure for each metric


@dataclass(frozen=True)
class Grid:
    """Rows of cells under their heads. What is compared stands side by side in a row, or `down` a column."""

    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    down: bool = False

    def texts(self) -> list[list[str]]:
        """Every cell as it is read."""
        return [[_text(cell) for cell in row] for row in self.rows]

    def best(self) -> set[tuple[int, int]]:
        """Places, row and column, of cells with a single figure that no other beats as printed."""
        alone = {
            (i, j): float(cell[0].shown)
            for i, row in enumerate(self.rows)
            for j, cell in enumerate(row)
            if isinstance(cell, tuple) and len(cell) == 1 and cell[0] is not None
        }
        lines: dict[int, list[float]] = {}
        for place, value in alone.items():
            lines.setdefault(place[self.down], []).append(value)
        return {
            place for place, value in alone.items() if len(line := lines[place[self.down]]) > 1 and value == max(line)
        }


def _text(cell: Cell) -> str:
    if isinstance(cell, str):
        return cell
    return " / ".join(UNKNOWN if figure is None else str(figure) for figure in cell) or UNKNOWN


def markdown(grid: Grid) -> list[str]:
    """Lines of a Markdown table."""
    return [_line(grid.head), _line("---" for _ in grid.head), *map(_line, grid.texts())]


def _line(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def latex(grids: Iterable[Grid]) -> str:
    """Tables to be put into a document with `\\input`."""
    return _HEAD + "\n" + "\n".join(map(_float, grids))


def _float(grid: Grid) -> str:
    """One floating table; a wide one is made as narrow as the text."""
    best = grid.best()
    texts = [
        [rf"\textbf{{{tex(text)}}}" if (i, j) in best else tex(text) for j, text in enumerate(row)]
        for i, row in enumerate(grid.texts())
    ]
    figures = [any(isinstance(row[j], tuple) for row in grid.rows) for j in range(len(grid.head))]
    lines = [
        r"\begin{table}[htbp]",
        r"\centering",
        rf"\caption{{{tex(grid.title)}}}",
        r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%",
        rf"\begin{{tabular}}{{{''.join('r' if right else 'l' for right in figures)}}}",
        r"\toprule",
        " & ".join(map(tex, grid.head)) + r" \\",
        r"\midrule",
        *(" & ".join(row) + r" \\" for row in texts),
        r"\bottomrule",
        r"\end{tabular}}",
        r"\end{table}",
    ]
    return "\n".join(lines) + "\n"


def tex(text: str) -> str:
    """Any text, as LaTeX prints it; a number below zero with a minus, not with a hyphen."""
    escaped = "".join(_LATEX.get(char, char) for char in text)
    return re.sub(r"(?<![\w.-])-(?=\d)", "$-$", escaped)


def tidy(result: Mapping[str, Any], **known: Any) -> Iterator[dict[str, Any]]:
    """A row for each figure of a result, with what it holds under; `known` are further columns, the same for all."""
    card = result["card"]
    negatives = card["negatives"]
    seeds = negatives.get("seeds", {})
    for part, figures in result["metrics"].items():
        events = card.get("positives") or negatives.get("positives", {})
        for metric, value in figures.items():
            yield {
                "scorer": result["scorer"],
                "data": card["data"]["name"],
                "fingerprint": card["data"]["fingerprint"],
                "protocol": card["protocol"],
                "visibility": card["visibility"],
                "candidates": card.get("question", {}).get("candidates", "destinations"),
                "negatives": negatives["strategy"],
                "negatives_seed": seeds.get(part, negatives.get("seed")),
                "set": part,
                "events": events.get(part),
                "metric": metric,
                "value": value,
                CEILING: card.get("ceilings", {}).get(part, {}).get(metric),
                **known,
            }


def csv_text(rows: Iterable[Mapping[str, Any]], columns: Sequence[str] = COLUMNS) -> str:
    """Rows of `tidy` as a CSV file; what a row does not know is left empty."""
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()
