"""The explanation of a score as a figure."""

from __future__ import annotations

from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any

from tsnn.errors import InputError
from tsnn.files import write_whole
from tsnn.online.sentences import shortened

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from tsnn.online.explain import Explanation

FOR, AGAINST, PLAIN = "#2a6f97", "#c1553b", "#9aa5b1"
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

    reasons = [(fill(f"{reason.title}: {reason.sentence}", 64), reason.contribution) for reason in e.reasons]
    panels = [(fill(e.baseline.says, 90), reasons)]
    if numbers:
        parts = ("geometric", e.geometric), ("residual", e.residual), ("EdgeBank", e.edgebank), ("score", e.score)
        panels += [("the score as the sum of its parts", list(parts)), (f"distance from {_name(e.src)}", _near(e))]
    heights = [0.7 + sum(_height(label) for label, _ in bars) for _, bars in panels]
    drawn = Figure(figsize=(WIDTH, 0.5 + sum(heights)), layout="constrained")
    drawn.suptitle(f"{_name(e.src)} → {_name(e.dst)} at {e.t}, score {e.score:.2f}", parse_math=False)
    axes = drawn.subplots(len(panels), height_ratios=heights, squeeze=False)[:, 0]
    for panel, (title, bars) in zip(axes, panels, strict=True):
        panel.set_title(title, loc="left", fontsize=10, parse_math=False)
        _bars(panel, bars)
    return drawn


def _name(node: object) -> str:
    return shortened(str(node))


def _height(label: str) -> float:
    return LINE * (label.count("\n") + 1) + 0.16


def _near(e: Explanation) -> list[Bar]:
    """The nearest nodes and the one asked about, nearest first."""
    near = [(f"{_name(n.node)} (partner)", n.distance) for n in e.nearest_partners]
    near += [(_name(n.node), n.distance) for n in e.nearest]
    near.append((f"{_name(e.dst)} (asked about)", e.distance))
    return sorted(near, key=lambda pair: pair[1])


def _bars(axes: Any, bars: list[Bar]) -> None:
    """One below the other, each as high as its label, with its value at its end."""
    at, heights, y = [], [], 0.0
    for label, _ in bars:
        heights.append(0.7 * _height(label))
        at.append(y + 0.5 * _height(label))
        y += _height(label)
    values = [value for _, value in bars]
    drawn = axes.barh(at, values, heights, color=[FOR if value >= 0 else AGAINST for value in values])
    axes.bar_label(drawn, [f"{value:+.2f}" for value in values], padding=3, fontsize=9)
    axes.set_yticks(at, [label for label, _ in bars], fontsize=9, parse_math=False)
    axes.set_ylim(y, 0.0)
    axes.margins(x=0.16)
    axes.axvline(0.0, color="black", linewidth=0.8)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(axis="y", length=0)
