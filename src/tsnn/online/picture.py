"""The explanation of a score as a figure."""

from __future__ import annotations

from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any

from tsnn.errors import InputError
from tsnn.files import write_whole
from tsnn.online.sentences import moment, shortened

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from tsnn.online.explain import Explanation

FOR, AGAINST = "#2a6f97", "#c1553b"
WIDTH = 11.0  # inches
LINE = 0.19  # of a line of text, in inches
Bar = tuple[str, float]  # its label, and how long it is


def draw(e: Explanation, path: Path, numbers: bool) -> None:
    """Draw it to a PNG or SVG file."""
    kind = path.suffix.lower()[1:]
    if kind not in ("png", "svg"):
        raise InputError(f"{path.name} is neither .png nor .svg; name the figure so.")
    drawn = figure(e, numbers)
    write_whole(path, lambda partial: drawn.savefig(partial, format=kind, dpi=120))


def figure(e: Explanation, numbers: bool) -> Figure:
    """What every reason adds, as bars; with the numbers, the parts of the score and the distances below."""
    from matplotlib.figure import Figure  # a second to import, and few explanations are drawn

    reasons = [(_wrapped(f"{reason.title}: {reason.sentence}"), reason.contribution) for reason in e.telling]
    panels = [(e.baseline.says, reasons, "{:+z.2f}")]
    if numbers:
        parts = ("geometric", e.geometric), ("residual", e.residual), ("EdgeBank", e.edgebank), ("score", e.score)
        panels.append(("the score as the sum of its parts", list(parts), "{:+z.4f}"))
        panels.append((f"distance from {shortened(e.src)}", _near(e), "{:.3f}"))
    heights = [0.7 + sum(_height(label) for label, _ in bars) for _, bars, _ in panels]
    drawn = Figure(figsize=(WIDTH, 0.5 + sum(heights)), layout="constrained")
    drawn.suptitle(f"{shortened(e.src)} → {shortened(e.dst)} at {moment(e.t)}, score {e.score:.2f}", parse_math=False)
    axes = drawn.subplots(len(panels), height_ratios=heights, squeeze=False)[:, 0]
    for panel, (title, bars, shown) in zip(axes, panels, strict=True):
        panel.set_title(title, loc="left", fontsize=10, parse_math=False)
        _bars(panel, bars, shown)
    return drawn


def _wrapped(text: str) -> str:
    return fill(text, 64, break_on_hyphens=False)


def _height(label: str) -> float:
    return LINE * (label.count("\n") + 1) + 0.16


def _near(e: Explanation) -> list[Bar]:
    """The nearest nodes and the one asked about, nearest first, each once."""
    near = {n.node: ("", n.distance) for n in e.nearest}
    near |= {n.node: (" (partner)", n.distance) for n in e.nearest_partners}
    near[e.dst] = (" (asked about)", e.distance)
    ordered = sorted(near.items(), key=lambda item: item[1][1])
    return [(shortened(node) + role, distance) for node, (role, distance) in ordered]


def _bars(axes: Any, bars: list[Bar], shown: str) -> None:
    """One below the other, with room for its label each, and its value at its end."""
    at, y = [], 0.0
    for label, _ in bars:
        at.append(y + 0.5 * _height(label))
        y += _height(label)
    values = [value for _, value in bars]
    drawn = axes.barh(at, values, LINE, color=[FOR if value >= 0 else AGAINST for value in values])
    axes.bar_label(drawn, [shown.format(value) for value in values], padding=3, fontsize=9)
    axes.set_yticks(at, [label for label, _ in bars], fontsize=9, parse_math=False)
    axes.set_ylim(y, 0.0)
    axes.margins(x=0.16)
    axes.axvline(0.0, color="black", linewidth=0.8)
    axes.set_xticks([])  # every bar has its value beside it
    axes.spines[:].set_visible(False)
    axes.tick_params(axis="y", length=0)
