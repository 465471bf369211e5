"""Drawings, each as an SVG element to be put into the page: no file, no font, no request."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby
from textwrap import wrap
from typing import Any

import matplotlib
import numpy as np
from cycler import cycler
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing
from matplotlib.ticker import MaxNLocator, StrMethodFormatter

from tsnn.evaluation.formats import Figure
from tsnn.evaluation.health import BRANCHES, MEASURES
from tsnn.evaluation.slices import FIRM, Slice
from tsnn.report.trace import Trace
from tsnn.report.view import View
from tsnn.types import F64

INK = "#1f2933"
FAINT = "#7b8794"
GRID = "#e4e7eb"
RUNS = ("#2563a8", "#d97706", "#178a62", "#a83279", "#6b4fbb", "#8a6d1f")  # C0, C1, ... below; told apart in gray too
PART = {"geometric": "#2563a8", "residual": "#d97706", "edgebank": "#178a62"}
LOSSES = {  # what each loss asks for, by the name that the journal has for it
    "ce": ("ranking", "the event above its negatives"),
    "binary": ("binary", "is it the event or a negative, each by itself"),
    "geo": ("contrast", "states of the two that meet point the same way, more than those of others"),
    "bias": ("residual size", "the network on features corrects little"),
    "smooth": ("frame drift", "frames turn little"),
    "energy": ("energy", "after an event the states of the two agree"),
}
STYLE: Any = {
    "svg.fonttype": "none",
    "font.size": 8.5,
    "axes.prop_cycle": cycler(color=RUNS),
    "axes.edgecolor": FAINT,
    "axes.labelcolor": INK,
    "axes.titlesize": 9,
    "axes.titlelocation": "left",
    "axes.titlecolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": GRID,
    "grid.linewidth": 0.7,
    "axes.axisbelow": True,
    "xtick.color": FAINT,
    "ytick.color": FAINT,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "legend.frameon": False,
    "legend.fontsize": 8,
    "lines.linewidth": 1.6,
}
_FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif"


@contextmanager
def drawing(label: str, height: float = 2.7) -> Iterator[tuple[Axes, io.StringIO]]:
    """Axes in the page's style, and a text that holds their SVG element once the block is left."""
    svg = io.StringIO()
    with matplotlib.rc_context(STYLE | {"svg.hashsalt": label}):
        figure = Drawing(figsize=(4.3, height), layout="constrained")
        yield figure.subplots(), svg
        svg.write(_element(figure, label))


def _element(figure: Drawing, label: str) -> str:
    """`label` says in words what the figure shows."""
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    text = buffer.getvalue()
    text = re.sub(r"\s*<metadata>.*?</metadata>", "", text[text.index("<svg") :], flags=re.DOTALL)
    head, _, body = text.partition(">")
    box = re.search(r'viewBox="[^"]*"', head)
    assert box is not None
    spaces = 'xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink"'
    body = re.sub(r"'DejaVu Sans'[^;\"]*", _FONT, body)  # the page's fonts, not the one the layout was measured with
    return f'<svg role="img" aria-label="{label}" {box.group()} {spaces}>' + body


def scorers(view: View, metric: str, title: str) -> str:
    """The run and the baselines beside it, by one test figure."""
    pairs = [(r["scorer"], r["metrics"]["test"][metric]) for r in view.results if metric in r["metrics"]["test"]]
    with drawing(f"{title} of the run and of the baselines", height=0.55 + 0.34 * len(pairs)) as (axes, svg):
        names, values = zip(*reversed(pairs), strict=True)
        shades = [*(["#b8c4d0"] * (len(pairs) - 1)), RUNS[0]]
        bars = axes.barh(names, values, color=shades, height=0.66)
        axes.bar_label(bars, labels=[number(v) for v in values], padding=3, color=INK)
        ceiling = view.card.get("ceilings", {}).get("test", {}).get(metric)
        if ceiling is not None:
            axes.axvline(ceiling, color=INK, linewidth=1, linestyle="--")
        axes.set(title=title, xlim=(0, max(values) * 1.16))
        axes.grid(axis="y", visible=False)
    return svg.getvalue()


def validation(views: Sequence[View]) -> str:
    """The validation figure by epoch."""
    with drawing("validation figure by epoch") as (axes, svg):
        for i, view in enumerate(views):
            epochs = [entry["epoch"] + 1 for entry in view.journal]
            values = [entry["validation"] for entry in view.journal]
            axes.plot(epochs, values, marker="o", markersize=3, label=folded(view.name))
            kept = view.metrics.get("training", {}).get("validation")
            if kept is not None:
                axes.axhline(kept, color=f"C{i}", linewidth=1, linestyle="--")
        _epochs(axes, "Validation")
        if len(views) > 1:
            _legend_below(axes, 2)
    return svg.getvalue()


def losses(view: View) -> str:
    """Every loss by epoch, on a logarithmic scale."""
    epochs = [entry["epoch"] + 1 for entry in view.journal]
    with drawing("training losses by epoch") as (axes, svg):
        for i, name in enumerate(view.journal[0]["losses"]):
            values = [entry["losses"][name] for entry in view.journal]
            if max(values) > 0:
                label = LOSSES.get(name, (name, ""))[0]
                axes.plot(epochs, values, color=f"C{i}", marker="o", markersize=3, label=label)
        axes.set_yscale("log")
        _epochs(axes, "Training losses, unweighted")
        _legend_below(axes, 3)
    return svg.getvalue()


def _epochs(axes: Axes, title: str) -> None:
    axes.set(title=title, xlabel="epoch")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=8, min_n_ticks=1))


def _legend_below(axes: Axes, columns: int) -> None:
    """A legend that covers nothing."""
    figure = axes.get_figure(root=True)
    assert figure is not None
    figure.legend(loc="outside lower left", ncols=columns, handlelength=1.2)


def folded(name: str) -> str:
    """A name of a run on lines short enough to stand beside an axis."""
    return "\n".join(wrap(name, 22)) or name


def margin_over_time(trace: Trace) -> str:
    """Contribution of each part to the margin of the event over its negative, along the test rows."""
    with drawing("what separates an event from its negative, along the test rows") as (axes, svg):
        at, means = _binned(trace.rows, trace.positive - trace.negative, 30)
        for j, name in enumerate(BRANCHES):
            axes.plot(at, means[:, j], color=PART[name], label=name)
        axes.plot(at, means.sum(1), color=INK, linestyle=":", label="score")
        axes.axhline(0, color=FAINT, linewidth=0.8)
        _rows(axes, "Score of the event minus its negative's, mean")
        _legend_below(axes, 4)
    return svg.getvalue()


def share_bars(views: Sequence[View]) -> str:
    """Shares of the parts in the variance of the score, a bar for each run."""
    with drawing("share of each part in the variance of the score", height=1.1 + 0.4 * len(views)) as (axes, svg):
        for i, view in enumerate(reversed(views)):
            left = 0.0
            for name in BRANCHES:
                share = 100 * view.states[name]
                axes.barh(i, share, left=left, color=PART[name], height=0.6, label=name if i == 0 else None)
                left += share
        axes.set_yticks(range(len(views)), [folded(view.name) for view in reversed(views)] if len(views) > 1 else [""])
        axes.set(title="Share in the variance of the score, %")
        axes.margins(x=0)
        axes.grid(axis="y", visible=False)
        _legend_below(axes, 3)
    return svg.getvalue()


STATES_DRAWN = ("saturated", "cosine", "frames", "states")  # shares and cosines: all of one scale


def states_by_epoch(view: View) -> str:
    """What the states were like after each epoch."""
    entries = [entry for entry in view.journal if entry.get("states")]
    epochs = [entry["epoch"] + 1 for entry in entries]
    with drawing("what states were like after each epoch") as (axes, svg):
        for name in STATES_DRAWN:
            values = [entry["states"][name] for entry in entries]
            axes.plot(epochs, values, marker="o", markersize=3, label=MEASURES[name].title)
        axes.set_ylim(min(0.0, axes.get_ylim()[0]), max(1.0, axes.get_ylim()[1]))
        _epochs(axes, "States by epoch, at validation")
        _legend_below(axes, 2)
    return svg.getvalue()


def distributions(trace: Trace) -> str:
    """Scores of events and of their negatives."""
    own = trace.positive.sum(1)
    other = trace.negative.sum(1)
    with drawing("scores of events and of their negatives") as (axes, svg):
        low, high = np.quantile(np.concatenate([own, other]), [0.005, 0.995])
        bins = np.linspace(low, high + 1e-9, 50).tolist()
        for values, shade, name in ((other, "#9aa5b1", "negatives"), (own, RUNS[0], "events")):
            axes.hist(np.clip(values, low, high), bins=bins, color=shade, alpha=0.65, label=name)
        axes.set(title="Scores", xlabel="score", ylabel="candidates")
        _legend_below(axes, 2)
    return svg.getvalue()


def slice_bars(views: Sequence[View], measure: str, title: str, best: float) -> str:
    """One figure by slice, groups apart, a dot for each run; those of few events are pale."""
    found = [{(s.by, s.slice): s for s in view.replayed.slices} for view in views]
    events: dict[tuple[str, str], list[int]] = {}  # of each slice; runs on other data have others
    for slices in found:
        for key, one in slices.items():
            events.setdefault(key, []).append(one.count)
    groups = list(dict.fromkeys(group for group, _ in events))
    order = sorted(events, key=lambda key: groups.index(key[0]))
    y = 0.0
    places: list[float] = []
    heads: list[tuple[float, str]] = []
    for group, names in groupby(order, key=lambda key: key[0]):
        y += 1.4
        heads.append((y - 0.85, group))
        for _ in names:
            places.append(y)
            y += 1.0
    with drawing(f"{title} by slice", height=0.6 + 0.24 * y) as (axes, svg):
        for i, (view, slices) in enumerate(zip(views, found, strict=True)):
            beside = 0.26 * (i - (len(views) - 1) / 2)  # equal values must not hide each other
            dots = [(slices[key], y + beside) for key, y in zip(order, places, strict=True) if key in slices]
            _dots(axes, dots, measure, f"C{i}", folded(view.name))
        axes.set_yticks(places, [f"{name} (n={_counts(events[by, name])})" for by, name in order])
        for label, key in zip(axes.get_yticklabels(), order, strict=True):
            label.set_color(INK if max(events[key]) >= FIRM else FAINT)
        place = axes.get_yaxis_transform()
        for height, group in heads:
            axes.text(0.01, height, group, transform=place, fontweight="bold", va="center", color=INK)
        axes.set(title=title, ylim=(y - 0.2, 0.1))
        axes.set_xlim(right=min(best, axes.get_xlim()[1]))  # no figure is above the best, so neither is the axis
        if len(views) > 1:
            _legend_below(axes, 2)
    return svg.getvalue()


def _counts(events: Sequence[int]) -> str:
    return " or ".join(f"{count:,}" for count in dict.fromkeys(events))


def _dots(axes: Axes, dots: Sequence[tuple[Slice, float]], measure: str, color: str, name: str) -> None:
    """A run's slices at their heights, those of few events pale."""
    for alpha, chosen in (
        (1.0, [dot for dot in dots if dot[0].count >= FIRM]),
        (0.35, [dot for dot in dots if dot[0].count < FIRM]),
    ):
        at = [getattr(s, measure) for s, _ in chosen]
        label = name if alpha == 1 else None
        axes.plot(at, [y for _, y in chosen], "o", color=color, alpha=alpha, label=label, clip_on=False)


def reliability(views: Sequence[View]) -> str:
    """Of two candidates, how sure the model is of the higher one, and how often that is the event."""
    with drawing("how sure the model is of the higher of two candidates, and how often it is right") as (axes, svg):
        axes.plot([50, 100], [50, 100], color=FAINT, linewidth=1, linestyle="--")
        for view in views:
            sure, right, _ = calibration(view.replayed)
            axes.plot(100 * sure, 100 * right, "o-", markersize=4, label=folded(view.name), clip_on=False)
        axes.set(title="Calibration", xlabel="sure of the higher candidate, %", ylabel="it is the event, %")
        axes.set(xlim=(50, 100), ylim=(min(50, axes.get_ylim()[0]), 100))
        if len(views) > 1:
            _legend_below(axes, 2)
    return svg.getvalue()


def calibration(trace: Trace, bins: int = 10) -> tuple[F64, F64, float]:
    """Mean confidence and frequency in bins of equal size, and the mean distance of the two (the calibration error)."""
    sure = 1 / (1 + np.exp(-np.abs(trace.margin)))
    right = np.where(trace.margin == 0, 0.5, trace.margin > 0)
    parts = np.array_split(np.argsort(sure, kind="stable"), min(bins, len(sure)))
    mean_sure = np.array([sure[part].mean() for part in parts])
    mean_right = np.array([right[part].mean() for part in parts])
    weight = np.array([len(part) for part in parts]) / len(sure)
    return mean_sure, mean_right, float((weight * np.abs(mean_sure - mean_right)).sum())


def along_stream(views: Sequence[View], name: str, title: str) -> str:
    """A quantity of every event, averaged in bins along the stream."""
    with drawing(f"{title} along the stream") as (axes, svg):
        for view in views:
            values = getattr(view.replayed, name)
            at, means = _binned(np.arange(len(values)), values, 60)
            axes.plot(at, means, label=folded(view.name))
        if len(views) == 1:
            _segments(axes, views[0])
        else:
            _legend_below(axes, 2)
        _rows(axes, title)
        axes.set_ylim(0, 1.1 * axes.get_ylim()[1])
    return svg.getvalue()


def _rows(axes: Axes, title: str) -> None:
    axes.set(title=title, xlabel="row of the stream")
    axes.xaxis.set_major_locator(MaxNLocator(nbins=5))
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))


def _segments(axes: Axes, view: View) -> None:
    shifted: Any = {"xytext": (3, 0), "textcoords": "offset points", "xycoords": axes.get_xaxis_transform()}
    for name, start in {"train": 0, "val": view.train_end, "test": view.val_end}.items():
        if start:
            axes.axvline(start, color=FAINT, linewidth=0.8, linestyle="--")
        axes.annotate(name, (start, 0.02), color=FAINT, fontsize=7.5, **shifted)


def spectrum(trace: Trace) -> str:
    """Eigenvalues of the normalized sheaf Laplacians of sampled active graphs."""
    with drawing("eigenvalues of the normalized sheaf Laplacian") as (axes, svg):
        axes.hist(trace.eigenvalues, bins=np.linspace(0, 2, 41).tolist(), color=RUNS[0])
        axes.axvline(2, color=RUNS[1], linewidth=1)
        axes.set(title="Spectrum of the active graphs, bound 2", xlabel="eigenvalue", ylabel="eigenvalues")
        axes.set_xlim(-0.05, 2.1)
    return svg.getvalue()


def stages(trace: Trace) -> str:
    """Time of each stage of the replay."""
    events = max(len(trace.energy), 1)
    each = {  # in reverse order of work, because the first bar is drawn lowest
        "score, a candidate": 1e6 * trace.seconds["score"] / max(trace.num_candidates, 1),
        "update, an event": 1e6 * trace.seconds["update"] / events,
        "plan, an event": 1e6 * trace.seconds["plan"] / events,
    }
    with drawing("time of each stage of the replay", height=1.6) as (axes, svg):
        bars = axes.barh(list(each), list(each.values()), color=RUNS[0], height=0.6)
        axes.bar_label(bars, fmt="%.1f", padding=3, color=INK)
        axes.set(title="Stages of the replay, microseconds", xlim=(0, max(each.values()) * 1.16))
        axes.grid(axis="y", visible=False)
    return svg.getvalue()


def number(value: float) -> str:
    """A figure as tables print it."""
    return Figure(value).shown


def _binned(at: Any, values: F64, bins: int) -> tuple[F64, F64]:
    """Means of consecutive rows in about `bins` bins of equal size."""
    parts = np.array_split(np.arange(len(at)), min(bins, len(at)))
    return np.array([at[part].mean() for part in parts]), np.array([values[part].mean(0) for part in parts])
