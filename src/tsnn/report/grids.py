"""The figures of runs, laid out: one grid for each data set, question and set of events."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tsnn.data.question import Question
from tsnn.evaluation.formats import CEILING, UNKNOWN, Cell, Figure, Grid, csv_text, latex, markdown, summary, tidy
from tsnn.report.view import View

SETS = {"val": "Validation", "new_val": "Validation, new nodes", "test": "Test", "new_test": "Test, new nodes"}
METRICS = {"ap": "AP", "auc": "AUC", "mrr": "MRR", "hits@10": "hits@10"}


@dataclass(frozen=True)
class Method:
    """A scorer and its figures: one result, or one a seed."""

    name: str
    results: Sequence[dict[str, Any]]
    own: bool  # a run rather than a baseline

    def values(self, part: str, metric: str) -> list[float]:
        """A figure of each result that has it."""
        found = [result["metrics"].get(part, {}) for result in self.results]
        return [figures[metric] for figures in found if metric in figures]

    def figure(self, part: str, metric: str) -> Figure | None:
        """Mean and deviation over seeds."""
        values = self.values(part, metric)
        return Figure.read(summary(values)) if values else None

    def summary(self) -> dict[str, dict[str, Any]]:
        """All of its figures, by set and metric."""
        first = self.results[0]["metrics"]
        return {part: {metric: summary(self.values(part, metric)) for metric in first[part]} for part in first}


@dataclass(frozen=True)
class SetGrid:
    """The figures of one set of events."""

    grid: Grid
    own: Sequence[bool]  # rows that are a run rather than a baseline
    events: int | None


def methods(views: Sequence[View]) -> list[Method]:
    """Runs that differ in nothing but their seed are one method; each baseline counts once a seed."""
    groups = _but_for_seeds(views)
    found = []
    for group in groups:
        scorer = group[0].metrics["scorer"]
        name = scorer if len(groups) == 1 else f"{', '.join(view.name for view in group)} ({scorer})"
        found.append(Method(name, [view.metrics for view in group], own=True))
    baselines: dict[str, dict[Any, dict[str, Any]]] = {}
    for view in views:
        for result in view.metrics.get("baselines", []):
            baselines.setdefault(result["scorer"], {})[_seed(view)] = result
    return found + [Method(name, _distinct(list(of.values())), own=False) for name, of in baselines.items()]


def _distinct(results: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One result of a heuristic, whose figures no seed changes."""
    same = all(result["metrics"] == results[0]["metrics"] for result in results)
    return results[:1] if same else results


def _seed(view: View) -> Any:
    return view.settings.get("train.seed")


def _but_for_seeds(views: Sequence[View]) -> list[list[View]]:
    groups: dict[str, list[View]] = {}
    for i, view in enumerate(views):
        others = {name: value for name, value in view.settings.items() if name != "train.seed"}
        key = json.dumps(others, default=str, sort_keys=True)
        if _seed(view) in map(_seed, groups.get(key, [])):
            key += str(i)  # the very same run once more
        groups.setdefault(key, []).append(view)
    return list(groups.values())


def alike(views: Sequence[View]) -> list[list[View]]:
    """Runs whose figures may be compared: the same events, asked the same."""
    groups: dict[str, list[View]] = {}
    for view in views:
        card = view.card
        asked = (card["data"]["fingerprint"], card["protocol"], card["visibility"], card["negatives"]["strategy"])
        key = json.dumps([*asked, Question.from_card(card).to_card()], sort_keys=True)
        groups.setdefault(key, []).append(view)
    return list(groups.values())


def set_grids(views: Sequence[View]) -> Iterator[SetGrid]:
    """The grids of runs that are alike."""
    compared = methods(views)
    counts = views[0].card.get("positives", {})
    for part, title in SETS.items():
        metrics = [m for m in METRICS if any(method.values(part, m) for method in compared)]
        there = [method for method in compared if any(method.values(part, m) for m in metrics)]
        if there:
            rows: list[list[Cell]] = [[method.name, *((method.figure(part, m),) for m in metrics)] for method in there]
            head = ["scorer", *(METRICS[m] for m in metrics)]
            own = [method.own for method in there]
            if reach := views[0].card.get("ceilings", {}).get(part):
                rows.append([CEILING, *(str(Figure(reach[m])) if m in reach else UNKNOWN for m in metrics)])
                own.append(False)
            yield SetGrid(Grid(title, head, rows, down=True), own, counts.get(part))


def counted(title: str, events: int | None) -> str:
    """The title of a grid, which says how many events it rests on."""
    return title if events is None else f"{title}, {events:,} {'event' if events == 1 else 'events'}"


def headline(views: Sequence[View]) -> str:
    """What all figures of runs that are alike hold under."""
    card = views[0].card
    seeds = [str(_seed(view)) for view in views]
    over = f", mean ± standard deviation over seeds {', '.join(seeds)}" if len(set(seeds)) > 1 else ""
    return (
        f"{card['data']['name']}, visibility {card['visibility']}, protocol {card['protocol']}, "
        f"negatives {card['negatives']['strategy']}{over}{_without_states(views)}"
    )


def _without_states(views: Sequence[View]) -> str:
    """Which of the runs learned nothing beyond counts, where some did."""
    names = stateless(views)
    if not names:
        return ""
    return "; without states" + ("" if len(names) == len(views) else f": {', '.join(names)}")


def stateless(views: Sequence[View]) -> list[str]:
    """The runs that learned nothing beyond counts."""
    return [view.name for view in views if view.remark]


def markdown_text(views: Sequence[View]) -> str:
    """The figures as a Markdown page."""
    lines = []
    for same in alike(views):
        lines += [f"## {headline(same)}", ""]
        for found in set_grids(same):
            lines += [f"### {counted(found.grid.title, found.events)}", "", *markdown(found.grid), ""]
    return "\n".join(lines).rstrip() + "\n"


def latex_text(views: Sequence[View]) -> str:
    """The figures as LaTeX tables."""
    return latex(
        replace(found.grid, title=f"{counted(found.grid.title, found.events)}: {headline(same)}")
        for same in alike(views)
        for found in set_grids(same)
    )


def csv_figures(views: Sequence[View]) -> str:
    """Every figure of every run and of the baselines beside it, a row each."""
    return csv_text(
        row
        for view in views
        for result in view.results
        for row in tidy(
            result, run=view.name, seed=_seed(view), stateless=bool(view.remark) if result is view.metrics else None
        )
    )


def json_figures(views: Sequence[View]) -> str:
    """For runs that are alike: their card, their names and seeds, and every figure as mean, deviation and values."""
    return json.dumps([summary_of(same) for same in alike(views)], indent=2) + "\n"


def summary_of(views: Sequence[View]) -> dict[str, Any]:
    """Runs that are alike as one dictionary."""
    return {
        "card": views[0].card,
        "runs": [view.name for view in views],
        "seeds": [_seed(view) for view in views],
        "stateless": stateless(views),
        "figures": {method.name: method.summary() for method in methods(views)},
    }
