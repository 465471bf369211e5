"""Who is due: against plain sums over the events, every pair scored, and the counts that a live state keeps."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from tests.online.streams import KNOWN, live_stream, prefix, restless_model
from tests.online.test_predictor import events_of
from tsnn.cli.forecast import forecast
from tsnn.errors import InputError
from tsnn.intensity.acts import Grid
from tsnn.intensity.intensity import Intensity
from tsnn.online import forecast as module
from tsnn.online.predictor import Predictor
from tsnn.training.run import save_run

INTENSITY = Intensity(
    Grid(3, 2, 1.0, 0.2), newcomers=0.02, base=0.01, weights=(0.3, 0.0, 0.2, 0.1, 0.05, 0.0, 0.2, 0.1, 0.3)
)
CARD = {"card": {"visibility": "strict", "question": {"candidates": "all"}}}


def saved(folder: Path, stream, rows: int = KNOWN, intensity: Intensity | None = INTENSITY) -> Predictor:
    folder.mkdir(parents=True)
    run = save_run(folder, restless_model(stream), prefix(stream, rows), CARD, intensity=intensity)
    return Predictor.load(run)


def by_hand(stream, rows: int, t: float, horizon: float) -> np.ndarray:
    """Expected events of every node, summed over its relations, from the events as they are."""
    grid, total = INTENSITY.grid, np.zeros(stream.num_nodes)
    gains = np.array(INTENSITY.weights) * np.tile(1 - np.exp(-grid.rates * horizon), 3)
    kinds = np.zeros(rows, np.int64) if stream.edge_type is None else stream.edge_type[:rows]
    for node in range(stream.num_nodes):
        for kind in np.unique(kinds):
            did = (stream.src[:rows] == node) & (kinds == kind)
            befell = (stream.dst[:rows] == node) & (kinds == kind) & ~did
            faded = np.exp(-grid.rates * (t - stream.t[:rows])[:, None])
            x = np.zeros((3, 3))
            x[0], x[1] = faded[did].sum(0), faded[befell].sum(0)
            if did.any():
                x[2] = faded[np.flatnonzero(did | befell)[-1]]
            total[node] += INTENSITY.base * horizon * did.any() + x.ravel() @ gains
    return total


@pytest.mark.parametrize("relations", [False, True])
def test_sources_expect_what_the_events_say(tmp_path, relations):
    stream = live_stream(relations=relations)
    predictor = saved(tmp_path / "run", stream)
    predictor.observe_many(events_of(stream, KNOWN, 120))
    t = float(predictor.ticks) + 1.5
    found = predictor.forecast(4.0, 500, t, pairs=False)
    wanted = by_hand(stream, 120, t, 4.0)
    names = stream.ids.external
    np.testing.assert_allclose([one.expected for one in found.sources], np.sort(wanted[wanted > 0])[::-1], rtol=1e-9)
    assert {one.src for one in found.sources} == {names[u] for u in np.flatnonzero(wanted)}
    for one in found.sources:
        assert one.probability == pytest.approx(1 - np.exp(-one.expected))
    assert found.expected == pytest.approx(wanted.sum())
    assert found.newcomers == pytest.approx(0.08)
    assert found.pairs == []


def test_at_the_clock_itself_its_events_are_not_seen(tmp_path):
    stream = live_stream()
    predictor = saved(tmp_path / "run", stream)
    predictor.observe_many(events_of(stream, KNOWN, 120))
    before = int(np.searchsorted(stream.t, predictor.ticks))
    wanted = by_hand(stream, before, float(predictor.ticks), 4.0)
    assert predictor.forecast(4.0, 1, predictor.ticks, pairs=False).expected == pytest.approx(wanted.sum())


@pytest.mark.parametrize("relations", [False, True])
def test_the_best_pairs_are_those_of_scoring_everybody(tmp_path, relations, monkeypatch):
    stream = live_stream(relations=relations)
    predictor = saved(tmp_path / "run", stream)
    asked = []
    monkeypatch.setattr(module, "shares", lambda *given, own=module.shares: asked.append(given[1]) or own(*given))
    found = predictor.forecast(4.0, 5)
    few = len(asked)
    everybody = predictor.forecast(4.0, 10_000)  # more than there are pairs: none is left out
    assert few < len(asked) - few or not relations  # of fourteen actors much alike, all have to be looked into
    assert found.pairs == everybody.pairs[:5]
    assert predictor.forecast(4.0, 1).pairs == found.pairs[:1]
    of_source = {}
    for one in everybody.pairs:
        of_source[one.src] = of_source.get(one.src, 0.0) + one.expected
    assert of_source == {one.src: pytest.approx(one.expected) for one in everybody.sources}
    best = found.pairs[0]
    kinds = sorted({one.edge_type for one in everybody.pairs}, key=str)
    assert (kinds == [None]) != relations
    own = [one for one in everybody.pairs if (one.src, one.edge_type) == (best.src, best.edge_type)]
    names = [one.dst for one in own]
    scores = np.array(predictor.score(best.src, names, found.t, best.edge_type))
    odds = np.exp(scores - scores.max())
    total = sum(one.expected for one in own)
    np.testing.assert_allclose([one.expected for one in own], total * odds / odds.sum(), rtol=1e-5)


def test_a_forecast_changes_nothing_and_is_saved_with_the_state(tmp_path):
    stream = live_stream()
    predictor = saved(tmp_path / "run", stream)
    predictor.observe_many(events_of(stream, KNOWN, 110))
    first = predictor.forecast(3.0, 4)
    assert asdict(predictor.forecast(3.0, 4)) == asdict(first)
    predictor.save(tmp_path / "later")
    again = Predictor.load(tmp_path / "later")
    assert asdict(again.forecast(3.0, 4)) == asdict(first)
    for one in (predictor, again):
        one.observe_many(events_of(stream, 110, 130))
    assert asdict(again.forecast(3.0, 4)) == asdict(predictor.forecast(3.0, 4))
    assert again.forecast(3.0, 4).expected != first.expected


def test_what_cannot_be_asked_is_said_in_a_sentence(tmp_path):
    stream = live_stream()
    predictor = saved(tmp_path / "run", stream)
    for within in (0, -1.0, "soon", float("inf")):
        with pytest.raises(InputError, match="length of time"):
            predictor.forecast(within)
    with pytest.raises(InputError, match="at least one source"):
        predictor.forecast(1.0, 0)
    with pytest.raises(InputError, match="before the clock"):
        predictor.forecast(1.0, t=predictor.ticks - 1)
    silent = saved(tmp_path / "silent", stream, intensity=None)
    with pytest.raises(InputError, match="does not say who acts when"):
        silent.forecast(1.0)


def test_on_a_clock_only_ticks_are_counted():
    grid = replace(INTENSITY, grid=INTENSITY.grid._replace(tick=1.0)).grid
    ticks = np.exp(-np.outer(grid.rates, [1.0, 2.0]))
    np.testing.assert_allclose(grid.faded(2.9), grid.rates * ticks.sum(1))
    assert (grid.faded(0.9) == 0).all()


def test_the_command_prints_what_the_predictor_says(tmp_path):
    predictor = saved(tmp_path / "run", live_stream(relations=True))
    app = typer.Typer()
    app.command()(forecast)
    folder = str(tmp_path / "run")
    told = CliRunner().invoke(app, [folder, "--within", "4", "--top", "3", "--json"])
    assert told.exit_code == 0, told.output
    assert json.loads(told.stdout) == json.loads(json.dumps(asdict(predictor.forecast(4.0, 3))))
    table = CliRunner().invoke(app, [folder, "--within", "4", "--top", "3"]).stdout
    best = predictor.forecast(4.0, 3)
    assert f"{best.sources[0].expected:.3g}" in table
    assert f"{100 * best.pairs[0].probability:.1f} %" in table
