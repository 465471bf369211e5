"""The report: one HTML file with everything in it, readable on paper and on a phone."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

from tsnn.errors import InputError
from tsnn.evaluation.catalog import PROTOCOLS
from tsnn.evaluation.health import BRANCHES, MEASURES
from tsnn.evaluation.slices import FEW, FIRM, Slice
from tsnn.files import write_text
from tsnn.report import figures
from tsnn.report.grids import (
    SetGrid,
    alike,
    counted,
    csv_figures,
    headline,
    json_figures,
    latex_text,
    markdown_text,
    methods,
    set_grids,
)
from tsnn.report.trace import Trace
from tsnn.report.view import View, make_view
from tsnn.theory.verify import slack_text
from tsnn.training.run import Run

REPORT = "report.html"
FORMATS = {".md": markdown_text, ".tex": latex_text, ".csv": csv_figures, ".json": json_figures}  # of the figures


def write_report(run: Run, trace: Trace | None, path: Path | None = None) -> Path:
    """Write a run's report, by default into its folder; without a replay, the parts that need one stay out."""
    return write_comparison([(run, trace)], path or run.folder / REPORT)


def write_comparison(runs: Sequence[tuple[Run, Trace | None]], path: Path) -> Path:
    """Write one report of several runs, side by side; and its figures beside it as Markdown, LaTeX, CSV and JSON."""
    if not runs:
        raise InputError("there is no run to report on; name at least one.")
    views = _named_apart([make_view(run, trace) for run, trace in runs])
    write_text(path, page(views))
    for ending, write in FORMATS.items():
        write_text(path.with_suffix(ending), write(views))
    return path


def page(views: Sequence[View]) -> str:
    """The whole document."""
    title = f"{views[0].name} on {views[0].card['data']['name']}" if len(views) == 1 else "Runs side by side"
    style = files("tsnn.report").joinpath("style.css").read_text("utf-8").strip()
    lead = "".join(f'<p class="lead">{_verdict(view, len(views) > 1)}</p>' for view in views)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1"><link rel="icon" href="data:,">'
        f"<title>{escape(title)}</title><style>{style}</style></head><body><main>"
        f"<header><h1>{escape(title)}</h1>{lead}</header>{''.join(_sections(views))}"
        "</main></body></html>\n"
    )


def _sections(views: Sequence[View]) -> Iterable[str]:
    yield _figures(views)
    yield _cards(views)
    yield _differences(views)
    yield _learning(views)
    yield _states([view for view in views if view.states])
    yield _activity([view for view in views if "brier" in view.metrics.get("intensity", {})])
    traced = [view for view in views if view.trace is not None]
    if not traced:
        yield _section("More", "The data was not at hand, so nothing was replayed; name it with <code>--data</code>.")
    else:
        yield _made_of(traced)
        yield _slices(traced)
        yield _calibration(traced)
        yield _inside(traced)
    yield from (_statements(view, len(views) > 1) for view in views)


def _verdict(view: View, named: bool) -> str:
    """The one sentence that matters."""
    metric = PROTOCOLS[view.card["protocol"]].metric
    own = view.metrics["metrics"]["test"][metric]
    who = f"<b>{escape(view.name)}</b>: test" if named else "Test"
    text = f"{who} {metric.upper()} <b>{figures.number(own)}</b> under visibility <b>{view.card['visibility']}</b>"
    rivals = [(r["metrics"]["test"][metric], r["scorer"]) for r in view.metrics.get("baselines", [])]
    if rivals:
        best, scorer = max(rivals)
        text += f"; the best baseline, {escape(scorer)}, reaches {figures.number(best)}"
    return f"{text}. {escape(view.remark)}".rstrip()


def _figures(views: Sequence[View]) -> str:
    if len(views) > 1:
        return _section("Figures", after=_figure_tables(views))
    view = views[0]
    there = [key for key in ("ap", "mrr", "auc") if key in view.metrics["metrics"]["test"]]
    drawn = [figures.scorers(view, key, f"Test {key.upper()}") for key in there[:2]]
    note = "The run first, then what simple rules reach on the same events."
    if view.card.get("ceilings"):
        note += " The ceiling, dashed, is what a scorer gets that knows every event: some of the negatives are true."
    return _section("Figures", note, drawn, _figure_tables(views))


def _figure_tables(views: Sequence[View]) -> str:
    """A table for each set of events, so that each fits on a page; of few events it is pale."""
    groups = alike(views)
    parts = []
    for same in groups:
        if len(views) > 1:
            parts.append(f'<p class="note">{escape(headline(same))}</p>')
        beside = "" if any(len(method.results) > 1 for method in methods(same)) else ' class="grid"'  # ± needs room
        parts.append(f"<div{beside}>{''.join(map(_figure_table, set_grids(same)))}</div>")
    return "".join(parts)


def _figure_table(found: SetGrid) -> str:
    """A grid under its title."""
    few = found.events is not None and found.events < FIRM
    marks = ["own" if own else "" for own in found.own]
    table = _table(found.grid.head, list(zip(found.grid.texts(), marks, strict=True)))
    title = counted(found.grid.title, found.events) + (": too few to tell" if few else "")
    return f"<div{' class=few' if few else ''}><h3>{title}</h3>{table}</div>"


def _cards(views: Sequence[View]) -> str:
    """One card; of several runs what they share once, then what is each run's own."""
    cards = [_card(view) for view in views]
    shared = {name: line for name, line in cards[0].items() if all(card.get(name) == line for card in cards)}
    listed = _listing(shared)
    for view, card in zip(views, cards, strict=True):
        own = {name: line for name, line in card.items() if name not in shared}
        listed += f"<h3>{escape(view.name)}</h3>{_listing(own)}" if own else ""
    note = "What the figures hold under" + (": first what all runs share." if len(views) > 1 else ".")
    return _section("Protocol card", note, after=listed)


def _listing(lines: dict[str, str]) -> str:
    items = "".join(f"<dt>{name}</dt><dd>{escape(line)}</dd>" for name, line in lines.items())
    return f"<dl>{items}</dl>"


def _card(view: View) -> dict[str, str]:
    card = view.card
    data = card["data"]
    lines = {
        "data": f"{data['name']}, {data['events']:,} events of {data['nodes']:,} nodes",
        "fingerprint": data["fingerprint"],
        "protocol": card["protocol"],
        "visibility": f"{card['visibility']}: {card['updates']}",
        "split": _listed(card["split"]),
        "negatives": _listed(card["negatives"]),
        "aggregation": card["aggregation"],
        "training": _trained(view.metrics.get("training", {})),
        "notes": "; ".join(card.get("notes", [])),
        "versions": _listed(card["versions"]),
    }
    return {name: str(line) for name, line in lines.items() if line}


def _trained(training: dict[str, Any]) -> str:
    """How long it was trained and which weights were kept; the journal counts epochs from 0."""
    if "best_epoch" not in training:
        return _listed(training)
    best = training["best_epoch"]
    before = "from before the first epoch, where states and frames add nothing yet"
    others = {name: value for name, value in training.items() if name != "best_epoch"}
    return f"{_listed(others)}; weights {f'of epoch {best + 1}' if best >= 0 else before}"


def _differences(views: Sequence[View]) -> str:
    """Settings that the runs do not share."""
    if len(views) < 2:
        return ""
    rows = []
    for name in dict.fromkeys(name for view in views for name in view.settings):
        values = [view.settings.get(name) for view in views]
        if len({str(value) for value in values}) > 1:
            rows.append(([name, *map(_plain, values)], ""))
    if not rows:
        return _section("Settings that differ", "The runs share every setting.")
    return _section("Settings that differ", after=_table(["setting", *(view.name for view in views)], rows))


def _learning(views: Sequence[View]) -> str:
    with_journal = [view for view in views if view.journal]
    if not with_journal:
        return ""
    drawn = [figures.validation(with_journal)]
    drawn += [_named(figures.losses(view), view, views) for view in with_journal]
    note = "By epoch; dashed is the validation figure of the weights that were kept, the best of all. The losses"
    names = dict.fromkeys(name for view in with_journal for entry in view.journal for name in entry["losses"])
    words = [figures.LOSSES[name] for name in names if name in figures.LOSSES]
    note += " ask: " + "; ".join(f"<b>{name}</b>, {asks}" for name, asks in words) + "."
    return _section("Learning", note, drawn)


def _made_of(views: Sequence[View]) -> str:
    drawn = [figures.share_bars(views)]
    notes = []
    for view in views:
        shares = ", ".join(f"{name} {MEASURES[name].show(view.states[name])}" for name in BRANCHES)
        notes.append(f"{_of(view, views)}{shares}.")
        drawn.append(_named(figures.margin_over_time(view.replayed), view, views))
    text = (
        "Geometric: the transported distance. Residual: the network on features, which reads that distance too. "
        "EdgeBank: the memory of pairs. Of the variance of scores over candidates, "
    )
    return _section("What the score is made of", text + " ".join(notes), drawn)


def _states(views: Sequence[View]) -> str:
    """What the states are like, and how much of the score they make."""
    if not views:
        return ""
    rows = []
    for name, measure in MEASURES.items():
        values = [measure.show(view.states[name]) for view in views]
        rows.append(([measure.title, measure.says, *values, measure.limit], ""))
    heads = [view.name for view in views] if len(views) > 1 else ["here"]
    table = _table(["", "what it is", *heads, ""], rows, text=2, stacked=True)
    drawn = [_named(figures.states_by_epoch(v), v, views) for v in views if any(e.get("states") for e in v.journal)]
    note = (
        "Stalks and frames of the nodes that have had an event, at the end of the stream. Where stalks are saturated "
        "or all alike, or where the score does not listen to them, a figure says nothing about states."
    )
    if untrained := [_of(view, views).removesuffix(": ") for view in views if view.remark]:
        whose = f" of {', '.join(untrained)}" if any(untrained) else ""
        note += f" <b>The states{whose} were never trained:</b> the weights are from before the first epoch."
    return _section("What the states do", note, drawn, table)


_RULES = {
    "intensity": "the intensity of the run",
    "poisson": "a rate of its own for each source: its events so far over the time so far",
    "recency": "whether it acted within the last such time",
}


def _activity(views: Sequence[View]) -> str:
    """How well the run says who acts next."""
    if not views:
        return ""
    told = [view.metrics["intensity"] for view in views]
    heads = [view.name for view in views] if len(views) > 1 else ["here"]
    rows = [
        (["Brier score", says, *(f"{one['brier'][rule]:.5f}" for one in told)], "") for rule, says in _RULES.items()
    ]
    rows.append((["of how many", "forecasts of one source each", *(f"{one['forecasts']:,}" for one in told)], ""))
    rows.append(
        (["acts", "share of them after which it did act", *(f"{one['share_that_acts']:.4f}" for one in told)], "")
    )
    distances = ["" if one.get("ks") is None else f"{one['ks']:.3f}" for one in told]
    rows.append(
        (["Kolmogorov-Smirnov", "distance of rescaled times from what they would be if it were true", *distances], "")
    )
    note = (
        "Among test rows, of every source that has acted: will it again, within a hundred mean gaps? The lower the "
        "Brier score, the better; the intensity knows training rows alone, and the counts up to that moment."
    )
    return _section("Who acts next", note, after=_table(["", "what it is", *heads], rows, text=2, stacked=True))


def _slices(views: Sequence[View]) -> str:
    drawn = [figures.slice_bars(views, "ap", "AP, %", 100), figures.slice_bars(views, "mrr", "MRR", 1)]
    head = ["run"] if len(views) > 1 else []
    rows = [
        ([*([view.name] if head else []), s.by, s.slice, f"{s.count:,}", f"{s.ap:.2f}", f"{s.mrr:.4f}"], _firmness(s))
        for view in views
        for s in view.replayed.slices
    ]
    table = _table([*head, "by", "slice", "events", "AP", "MRR"], rows, text=2 + len(head))
    note = (
        "Test events under the protocol's own questions: each against its first negative (AP, pooled) and among all "
        "that it is ranked with (MRR). Kind and counts as of what the score could see; "
        f"n events each; slices of fewer than {FEW} are left out, and where n is below {FIRM} "
        "the figure is pale: a few events decide it. A gap is the mean time between two events of training."
    )
    return _section("Results by slice", note, drawn, f"<details><summary>as a table</summary>{table}</details>")


def _firmness(s: Slice) -> str:
    return "few" if s.count < FIRM else ""


def _calibration(views: Sequence[View]) -> str:
    errors = ", ".join(f"{_of(view, views)}{100 * figures.calibration(view.replayed)[2]:.1f} %" for view in views)
    note = (
        "Of an event and its negative, the score says which is the event and how surely: the sigmoid of their "
        f"difference. On the diagonal it is as often right as it says. Mean distance from it: {errors}."
    )
    drawn = [figures.reliability(views), *(_named(figures.distributions(v.replayed), v, views) for v in views)]
    return _section("Calibration", note, drawn)


def _inside(views: Sequence[View]) -> str:
    drawn = [
        figures.along_stream(views, "smooth", "Frame drift |ΔF|² of an event, mean"),
        figures.along_stream(views, "energy", "Dirichlet energy of the event's edge, mean"),
        *(_named(figures.spectrum(view.replayed), view, views) for view in views),
        *(_named(figures.stages(view.replayed), view, views) for view in views),
    ]
    steps = "; ".join(
        f"{_of(view, views)}step {view.step_size:g}, bound 1 / max D = {view.step_bound:.4g}" for view in views
    )
    return _section("Frames, diffusion, time", f"Along the replayed stream. Diffusion: {steps}. ", drawn)


def _statements(view: View, named: bool) -> str:
    title = f"The paper's statements on {view.name}" if named else "The paper's statements"
    if view.verification is None:
        text = "Not checked yet: <code>tsnn verify</code> checks them on this run, and the next report shows them here."
        return _section(title, text)
    facts = view.verification["facts"]
    note = (
        f"{'All hold' if view.verification['passed'] else 'Not all hold'}, checked on {facts['events']} events along "
        f"the stream, active sets of up to {facts['largest_active_set']} nodes, smallest reflector "
        f"{facts['smallest_reflector']:.3g}."
    )
    rows = []
    for s in view.verification["statements"]:
        slack = slack_text(s["slack"], s["tolerance"])
        slack = slack.replace(" ", "\N{NO-BREAK SPACE}").replace("-", "\N{NON-BREAKING HYPHEN}")
        verdict = "holds" if s["passed"] else f"fails on {s['failed']} of {s['events']}"
        rows.append(([s["label"], s["claim"], slack, f"row {s['row']:,}: {s['where']}", verdict], ""))
    head = ["statement", "claim", "worst slack", "worst at", ""]
    return _section(title, note, after=_table(head, rows, text=5, stacked=True))


def _section(title: str, note: str = "", drawn: Sequence[str] = (), after: str = "") -> str:
    grid = "".join(f"<figure>{svg}</figure>" for svg in drawn)
    noted = f'<p class="note">{note}</p>' if note else ""
    body = f'<div class="grid">{grid}</div>' if grid else ""
    return f"<section><h2>{escape(title)}</h2>{noted}{body}{after}</section>"


def _of(view: View, views: Sequence[View]) -> str:
    """Whose figure follows, where it could be another's."""
    return f"{escape(view.name)}: " if len(views) > 1 else ""


def _named(svg: str, view: View, views: Sequence[View]) -> str:
    """A drawing of one run among several, under its name."""
    return svg if len(views) == 1 else f"<figcaption>{escape(view.name)}</figcaption>{svg}"


def _table(head: Sequence[str], rows: Sequence[tuple[Sequence[str], str]], text: int = 1, stacked: bool = False) -> str:
    """Rows with a class each; the first `text` columns are words, the others numbers; `stacked` on a narrow screen."""
    kinds = ["" if i < text else ' class="n"' for i in range(len(head))]
    heads = [f' data-head="{escape(name)}"' if stacked else "" for name in head]
    top = "".join(f"<th{kind}>{escape(name)}</th>" for name, kind in zip(head, kinds, strict=True))
    body = "".join(
        f'<tr class="{mark}">'
        + "".join(f"<td{k}{h}>{escape(c)}</td>" for c, k, h in zip(cells, kinds, heads, strict=True))
        + "</tr>"
        for cells, mark in rows
    )
    kind = ' class="stacked"' if stacked else ""
    return f'<div class="wide"><table{kind}><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>'


def _listed(values: dict[str, Any]) -> str:
    """A dictionary in words."""
    return ", ".join(f"{name.replace('_', ' ')} {_plain(value)}" for name, value in values.items())


def _plain(value: Any) -> str:
    if isinstance(value, dict):
        return f"({_listed(value)})"
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:,}" if isinstance(value, int) else f"{value:.4g}" if isinstance(value, float) else str(value)


def _named_apart(views: list[View]) -> list[View]:
    """Runs of one folder name get a number."""
    names = [view.name for view in views]
    return [
        replace(view, name=f"{view.name} {i}") if names.count(view.name) > 1 else view
        for i, view in enumerate(views, 1)
    ]
