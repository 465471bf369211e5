"""The report: everything is in the one file, it says what the run says, and a browser has nothing to complain of."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from html import escape
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from tsnn.cli.report import report as report_command
from tsnn.config import Config
from tsnn.data.split import Split
from tsnn.data.table import write_table
from tsnn.errors import InputError
from tsnn.evaluation.catalog import default_split, load
from tsnn.evaluation.health import MEASURES
from tsnn.evaluation.metrics import average_precision
from tsnn.report.figures import LOSSES, calibration, folded, share_bars, slice_bars, validation
from tsnn.report.page import write_comparison, write_report
from tsnn.report.trace import Trace
from tsnn.report.view import make_view, trace_run
from tsnn.training.run import Run
from tsnn.training.train import train
from tsnn.types import Visibility

DATA = "synthetic:roles:events=600,nodes=40"
TINY = {"train.epochs": 2, "train.warmup": 0, "model.partners": False, "model.stalk_dim": 8, "model.hidden_dim": 8}
BROWSER = "chromium"
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"]
FLAGS += ["--disable-component-update", "--disable-sync"]
SECTIONS = (
    "Figures",
    "What the states do",
    "Who acts next",
    "Protocol card",
    "Learning",
    "What the score is made of",
    "Results by slice",
    "Calibration",
)


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Run:
    folder = tmp_path_factory.mktemp("report") / "first"
    return train(DATA, folder, Config.build(overrides=TINY))


@pytest.fixture(scope="module")
def split() -> Split:
    return default_split(load(DATA))


@pytest.fixture(scope="module")
def trace(run, split) -> Trace:
    return trace_run(run, split)


@pytest.fixture(scope="module")
def written(run, trace) -> str:
    return write_report(run, trace).read_text()


# The replay


def test_the_trace_agrees_with_the_figures_of_the_run(run, split, trace):
    """Same rows, same negatives: the parts add up to the figures that the run holds, and the slices are theirs."""
    assert list(trace.rows) == list(range(split.val_end, 600))
    ap = 100 * average_precision(trace.positive.sum(1), trace.negative.sum(1))
    held, whole = run.metrics["metrics"]["test"], trace.slices[0]
    assert ap != 100.0
    assert held["ap_pooled"] == pytest.approx(ap, abs=1e-6) == pytest.approx(whole.ap, abs=1e-6)
    assert held["mrr"] == pytest.approx(whole.mrr, abs=1e-12)
    assert whole.count == len(trace.rows)


def test_energy_and_drift_follow_every_replayed_row(trace, split):
    assert len(trace.energy) == len(trace.smooth) == int(Visibility.parse("strict").cuts(split.stream.t)[-1])
    assert trace.smooth.max() > 0
    assert trace.eigenvalues.min() >= -1e-9
    assert trace.eigenvalues.max() <= 2 + 1e-9


def test_a_replay_finds_the_states_as_training_did(run, trace):
    assert trace.states == pytest.approx(run.metrics["states"], abs=1e-6)


def test_calibration_of_a_sure_and_right_model_is_perfect(trace):
    surely = np.tile([20.0, 0.0, 0.0], (100, 1))
    perfect = replace(trace, positive=surely, negative=0 * surely)
    assert calibration(perfect)[2] < 1e-6
    wrong = replace(perfect, positive=perfect.negative, negative=perfect.positive)
    assert calibration(wrong)[2] == pytest.approx(1)


# The page


class _Resources(HTMLParser):
    """Everything that a browser would fetch."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self.tags: list[str] = []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.found += [value for name, value in attrs if name in ("src", "href", "data", "action") and value]


def test_nothing_is_fetched(written):
    parser = _Resources()
    parser.feed(written)
    assert [link for link in parser.found if not link.startswith(("data:,", "#"))] == []
    assert not {"script", "iframe", "img"} & set(parser.tags)
    assert re.findall(r"url\((?!#)", written) == []
    assert "@import" not in written


def test_every_section_and_its_drawings_are_there(written):
    for title in SECTIONS:
        assert f"<h2>{title}</h2>" in written
    assert written.count('<svg role="img"') >= 12
    assert written.count("</svg>") == written.count("<svg ")


def test_the_page_shows_the_figures_and_the_card(run, written):
    test = run.metrics["metrics"]["test"]
    assert f"{test['ap']:.2f}" in written
    assert run.metrics["card"]["data"]["fingerprint"] in written
    assert "strict: a score sees every event with an earlier time" in written
    for baseline in run.metrics["baselines"]:
        assert baseline["scorer"] in written


def test_a_run_that_learned_nothing_beyond_counts_says_so(run, written, tmp_path):
    remark = "This run learned nothing beyond counts"
    assert remark not in written
    counts_only = Run.load(run.folder)
    counts_only.model.head.geometry_weight.fill_(0.0)
    text = write_report(counts_only, None, tmp_path / "counts.html").read_text()
    assert remark in text
    assert "The states were never trained:" in text


def test_every_number_of_the_states_is_shown_and_explained(run, written):
    for name, measure in MEASURES.items():
        cells = f'>{measure.show(run.metrics["states"][name])}</td><td class="n" data-head="">{measure.limit}</td>'
        assert escape(measure.says) in written
        assert cells in written
    assert 'aria-label="what states were like after each epoch"' in written


def test_a_run_from_before_states_were_measured_has_those_of_the_replay(run, trace, tmp_path):
    shutil.copytree(run.folder, tmp_path / "old")
    old = Run.load(tmp_path / "old")
    states = old.metrics.pop("states")
    (old.folder / "journal.jsonl").write_text("")
    text = write_report(old, trace).read_text()
    assert f">{MEASURES['reflector'].show(states['reflector'])}</td>" in text
    assert "after each epoch" not in text
    assert "<h2>What the states do</h2>" not in write_report(old, None).read_text()


def test_losses_are_explained(run, written):
    journal = [json.loads(line) for line in (run.folder / "journal.jsonl").read_text().splitlines()]
    assert set(journal[0]["losses"]) == set(LOSSES)
    for name, asks in LOSSES.values():
        assert f"<b>{name}</b>, {asks}" in written


def test_a_figure_says_on_how_many_events_it_rests_and_few_are_pale(run, trace, tmp_path):
    counts = run.metrics["card"]["positives"]
    assert counts["test"] == len(trace.rows)
    few = [replace(s, count=4 if s.slice == "repeat" else s.count) for s in trace.slices]
    shaky = Run.load(run.folder)
    shaky.metrics["card"]["positives"]["val"] = 4
    text = write_report(shaky, replace(trace, slices=few), tmp_path / "few.html").read_text()
    assert "<div class=few><h3>Validation, 4 events: too few to tell</h3>" in text
    assert f"<div><h3>Test, {counts['test']} events</h3>" in text
    assert "repeat (n=4)" in text
    assert re.search(r'<tr class="few"><td>kind of event</td><td>repeat</td>', text)


def test_no_axis_goes_beyond_what_a_figure_can_be(run, trace):
    best = [replace(s, ap=100.0, mrr=1.0) for s in trace.slices]
    views = [make_view(run, replace(trace, slices=best))]
    assert ">102" not in slice_bars(views, "ap", "AP, %", 100)
    assert ">1.02" not in slice_bars(views, "mrr", "MRR", 1)


def test_slices_of_runs_on_other_data_stand_in_their_group_with_all_counts(run, trace):
    one, *others = trace.slices
    other = replace(trace, slices=[replace(one, count=one.count + 1), replace(others[-1], slice="of its own")])
    drawn = slice_bars([make_view(run, trace), make_view(run, other)], "ap", "AP, %", 100)
    assert f"(n={one.count} or {one.count + 1})" in drawn
    assert drawn.count(f">{others[-1].by}<") == 1, "a group has one head"
    assert ">of its own (n=" in drawn


def test_a_long_name_of_a_run_is_shown_whole(run, trace):
    name = "a-run-with-a-name-that-is-longer-than-most-2026-11-19"
    views = [replace(make_view(run, trace), name=name), make_view(run, trace)]
    for drawn in (share_bars(views), validation(views), slice_bars(views, "ap", "AP, %", 100)):
        assert all(f">{line}<" in drawn for line in folded(name).splitlines())
    assert name not in share_bars(views[:1]), "one run needs no name in its own report"


def test_names_are_escaped(run, trace, tmp_path):
    folder = tmp_path / "<b>&run"
    shutil.copytree(run.folder, folder)
    text = write_report(Run.load(folder), trace, tmp_path / "out.html").read_text()
    assert "<b>&run" not in text
    assert "&lt;b&gt;&amp;run" in text


def test_the_statements_are_shown_once_checked(run, trace, tmp_path):
    folder = tmp_path / "checked"
    shutil.copytree(run.folder, folder)
    assert "Not checked yet" in write_report(Run.load(folder), trace).read_text()
    line = {"label": "lem:low_rank", "claim": "low", "slack": -1.0, "tolerance": 1e-9, "where": "node", "row": 7}
    line |= {"passed": False, "failed": 1, "events": 2}
    facts = {"events": 2, "largest_active_set": 9, "smallest_reflector": 0.5}
    (folder / "verify.json").write_text(json.dumps({"passed": False, "facts": facts, "statements": [line]}))
    text = write_report(Run.load(folder), trace).read_text()
    assert "Not all hold" in text
    assert "fails on 1 of 2" in text


def test_without_data_the_rest_is_still_written(run, tmp_path):
    text = write_report(run, None, tmp_path / "bare.html").read_text()
    assert "<h2>Learning</h2>" in text
    assert "<h2>Results by slice</h2>" not in text
    assert "--data" in text


def test_several_runs_side_by_side(run, split, trace, tmp_path):
    other = train(DATA, tmp_path / "second", Config.build(overrides=TINY | {"model.residual": False}), compare=False)
    text = write_comparison([(run, trace), (other, trace_run(other, split))], tmp_path / "both.html").read_text()
    assert "first (tsnn)" in text
    assert "second (tsnn)" in text
    assert text.count("<figcaption>second</figcaption>") >= 4, "a drawing of one run says of which"
    assert "<td>model.residual</td>" in text
    assert "<td>model.stalk_dim</td>" not in text, "only what differs"


def test_runs_of_one_name_are_told_apart(run, split, tmp_path):
    text = write_comparison([(run, None), (run, None)], tmp_path / "twice.html").read_text()
    assert "first 1 (tsnn)" in text
    assert "first 2 (tsnn)" in text


# The command


def invoke(*arguments: str):
    app = typer.Typer()
    app.command()(report_command)
    return CliRunner().invoke(app, list(arguments))


def test_the_command_writes_into_the_run_folder(run):
    (run.folder / "report.html").unlink(missing_ok=True)
    assert invoke(str(run.folder)).exit_code == 0
    assert (run.folder / "report.html").stat().st_size > 50_000


def test_several_runs_need_a_file(run):
    error = invoke(str(run.folder), str(run.folder)).exception
    assert isinstance(error, InputError)
    assert "--out" in str(error)


def test_runs_on_two_tables_each_find_their_own(tmp_path):
    tables = [tmp_path / "one.parquet", tmp_path / "two.parquet"]
    runs = []
    for seed, table in enumerate(tables):
        write_table(load(f"synthetic:roles:events=200,nodes=30,seed={seed}"), table)
        settings = Config.build(overrides=TINY | {"train.epochs": 1})
        runs.append(str(train(table, tmp_path / f"run{seed}", settings, compare=False).folder))
    out = tmp_path / "both.html"
    named = [word for table in reversed(tables) for word in ("--data", str(table))]
    assert invoke(*runs, *named, "--out", str(out)).exit_code == 0
    assert out.stat().st_size > 50_000
    error = invoke(*runs, *named[:2], "--out", str(out)).exception
    assert isinstance(error, InputError)
    assert "two.parquet is not the data" in str(error)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which(BROWSER) is None, reason=f"needs {BROWSER}, absent here")
def test_a_browser_shows_it_without_a_request_or_an_error(run, trace, tmp_path):
    playwright = pytest.importorskip("playwright.sync_api")
    path: Path = write_report(run, trace, tmp_path / "report.html")
    requests, errors = [], []
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=shutil.which(BROWSER), args=FLAGS)
        for width in (390, 1120):
            page = browser.new_page(viewport={"width": width, "height": 900})
            page.on("request", lambda request: requests.append(request.url))
            page.on("console", lambda message: errors.append(message.text))
            page.on("pageerror", lambda error: errors.append(str(error)))
            page.goto(path.resolve().as_uri())
            assert page.evaluate("document.documentElement.scrollWidth") <= width, "nothing sticks out"
            assert page.locator("figure svg").count() >= 12
        browser.close()
    assert set(requests) == {path.resolve().as_uri()}
    assert errors == []
