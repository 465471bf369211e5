"""Draws the pictures of docs/concepts.md into docs/images: `python scripts/concept_figures.py`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

IMAGES = Path(__file__).resolve().parents[1] / "docs" / "images"
INK, FAINT = "#1f2933", "#9aa5b1"
BLUE, ORANGE, GREEN = "#2563a8", "#d97706", "#178a62"
STYLE: Any = {"svg.fonttype": "none", "svg.hashsalt": "tsnn", "font.size": 10, "axes.titlesize": 10.5}
Vector = NDArray[np.float64]


def rotation(degrees: float) -> Vector:
    """A turn in the plane."""
    a = np.radians(degrees)
    return np.array([[np.cos(a), -np.sin(a)], [np.sin(a), np.cos(a)]])


def arrow(axes: Axes, start: Vector, vector: Vector, color: str, label: str = "", width: float = 2.0) -> None:
    """A vector with its name at the tip."""
    end = start + vector
    style = {"arrowstyle": "-|>", "color": color, "lw": width, "shrinkA": 0, "shrinkB": 0, "mutation_scale": 13}
    axes.annotate("", xy=end, xytext=start, arrowprops=style)
    if label:
        axes.text(*(end + 0.16 * vector / np.linalg.norm(vector)), label, color=color, ha="center", va="center")


def frame(axes: Axes, center: Vector, degrees: float, color: str) -> None:
    """The two axes of a node's frame."""
    for column in rotation(degrees).T:
        arrow(axes, center, 0.8 * column, color, width=1.0)
    axes.plot(*center, "o", color=color, markersize=6)


def panel(axes: Axes, title: str, box: tuple[float, float, float, float]) -> None:
    """A drawing without ticks."""
    axes.set(xlim=box[:2], ylim=box[2:], aspect="equal", title=title)
    axes.axis("off")


def draw_frames() -> Figure:
    """Two nodes, one thing said in two coordinate systems."""
    figure = Figure(figsize=(7.4, 2.1), layout="constrained")
    left, right = figure.subplots(1, 2)
    meant = np.array([0.75, 0.6])
    for axes, title in ((left, "each stalk in its node's own frame"), (right, "both in common coordinates, U h")):
        panel(axes, title, (-1.2, 3.8, -1.1, 1.2))
    for center, degrees, color, name in ((0.0, 65.0, BLUE, "u"), (2.4, -25.0, ORANGE, "v")):
        at = np.array([center, 0.0])
        frame(left, at, degrees, color)
        arrow(left, at, meant, INK)
        numbers = rotation(degrees).T @ meant
        left.text(center, -0.85, f"h_{name} = ({numbers[0]:.2f}, {numbers[1]:.2f})", ha="center", color=color)
        frame(right, at, 0.0, FAINT)
        arrow(right, at, meant, color)
        right.text(center, -0.85, f"U_{name} h_{name} = ({meant[0]:.2f}, {meant[1]:.2f})", ha="center", color=color)
    return figure


def draw_transport() -> Figure:
    """The partner's stalk re-expressed before it is compared."""
    figure = Figure(figsize=(7.4, 2.9), layout="constrained")
    wrong, right = figure.subplots(1, 2)
    own, other = np.array([0.95, 0.35]), rotation(-80) @ np.array([0.8, 0.75])
    for axes, vector, title, name in (
        (wrong, other, "numbers compared as they are", "h_v"),
        (right, rotation(80) @ other, "transported first: Q_uv h_v = U_uᵀ U_v h_v", "Q_uv h_v"),
    ):
        panel(axes, title, (-1.0, 2.0, -1.1, 1.4))
        frame(axes, np.zeros(2), 0.0, FAINT)
        arrow(axes, np.zeros(2), own, BLUE, "h_u")
        arrow(axes, np.zeros(2), vector, ORANGE, name)
        axes.plot(*np.stack([own, vector], axis=1), linestyle=":", color=INK)
        axes.text(-0.95, -0.95, f"distance {np.linalg.norm(own - vector):.2f}", color=INK)
    return figure


def draw_carry_over() -> Figure:
    """A frame turns: the stalk keeps its meaning, not its numbers."""
    figure = Figure(figsize=(7.4, 2.4), layout="constrained")
    meant = np.array([0.95, 0.5])
    titles = ("before the event", "frame turned, numbers kept", "frame turned, carried over")
    for axes, title, degrees, vector in zip(
        figure.subplots(1, 3), titles, (0, 40, 40), (meant, rotation(40) @ meant, meant), strict=True
    ):
        panel(axes, title, (-0.8, 1.6, -0.75, 1.45))
        frame(axes, np.zeros(2), degrees, FAINT)
        arrow(axes, np.zeros(2), meant, GREEN, width=5)
        arrow(axes, np.zeros(2), vector, BLUE)
        numbers = rotation(degrees).T @ vector
        axes.text(-0.75, -0.65, f"h = ({numbers[0]:.2f}, {numbers[1]:.2f})", color=BLUE)
    return figure


def draw_diffusion() -> Figure:
    """Neighbors agree a little more, and the energy falls."""
    figure = Figure(figsize=(7.4, 2.9), layout="constrained")
    star, curve = figure.subplots(1, 2, width_ratios=(1, 1.1))
    angles = np.array([20.0, 95, 150, 230, 300])
    g = np.stack([rotation(a) @ np.array([0.9, 0.0]) for a in angles])
    adjacency = np.zeros((5, 5))
    adjacency[0, 1:] = adjacency[1:, 0] = 1
    degree = adjacency.sum(1)
    energies, states = [], [g]
    for _ in range(12):
        h = states[-1]
        energies.append(0.25 * sum(adjacency[a, b] * ((h[a] - h[b]) ** 2).sum() for a in range(5) for b in range(5)))
        states.append(h - 0.25 * (degree[:, None] * h - adjacency @ h) / degree[:, None])
    panel(star, "stalks in common coordinates, three rounds", (-1.3, 1.3, -1.2, 1.2))
    for step, shade in zip(states[:4], ("#d9e2ec", "#9fb3c8", "#627d98", BLUE), strict=True):
        for row in step:
            arrow(star, np.zeros(2), row, shade, width=1.6)
    curve.plot(range(12), energies, "o-", color=BLUE)
    curve.set(title="aligned Dirichlet energy", xlabel="round", ylim=(0, None))
    curve.spines[["top", "right"]].set_visible(False)
    return figure


def draw_visibility() -> Figure:
    """What the last event of a tie may see under each rule."""
    figure = Figure(figsize=(7.4, 2.7), layout="constrained")
    axes = figure.subplots()
    times = [1, 2, 2, 3, 3, 3, 3, 3, 4]
    scored, batch = 6, 4
    seen = {
        "strict": [t < times[scored] for t in times],
        "arrival": [i < scored for i in range(len(times))],
        f"batch:{batch}": [i < scored // batch * batch for i in range(len(times))],
    }
    for y, (name, mask) in enumerate(reversed(seen.items())):
        for i, (t, visible) in enumerate(zip(times, mask, strict=True)):
            color = ORANGE if i == scored else BLUE if visible else "#d9e2ec"
            axes.plot(i, y, "s", markersize=19, color=color)
            axes.text(
                i, y, f"t={t}", ha="center", va="center", fontsize=8, color="white" if color != "#d9e2ec" else INK
            )
        axes.text(-0.7, y, name, ha="right", va="center", color=INK)
    axes.set(xlim=(-2.4, 9), ylim=(-0.7, 2.7), title="rows in order of arrival; orange is scored, blue is what it sees")
    axes.axis("off")
    return figure


DRAWINGS: dict[str, Callable[[], Figure]] = {
    "frames": draw_frames,
    "transport": draw_transport,
    "carry-over": draw_carry_over,
    "diffusion": draw_diffusion,
    "visibility": draw_visibility,
}


def main(folder: Path = IMAGES) -> int:
    """Write every drawing as SVG."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, draw in DRAWINGS.items():
        with matplotlib.rc_context(STYLE):
            draw().savefig(folder / f"{name}.svg", metadata={"Date": None, "Creator": None})
    return 0


if __name__ == "__main__":
    sys.exit(main())
