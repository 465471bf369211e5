"""A live state of undirected events: one event counts for both ends, and which is written first cannot matter."""

from __future__ import annotations

import json

import numpy as np
import pytest
from typer.testing import CliRunner

import tsnn
from tests.data.test_direction import contacts, turned
from tests.online.streams import KNOWN, live_stream, save_prefix
from tests.online.test_predictor import assert_same_state, candidates_of, events_of, strict_scores
from tsnn.cli.main import app
from tsnn.online.event import Event
from tsnn.online.predictor import Predictor
from tsnn.training.run import final_state

WARM_HEAD = tsnn.Config.build(overrides={"train.epochs": 0, "train.warmup": 2})


def either_way(events: list[Event], seed: int) -> list[Event]:
    """The same events, about half of them written the other way round."""
    flip = np.random.default_rng(seed).random(len(events)) < 0.5
    return [e._replace(src=e.dst, dst=e.src) if turn else e for e, turn in zip(events, flip, strict=True)]


@pytest.mark.parametrize("switches", [{}, {"features__walks": True, "model__edgebank_window": 5.0}])
def test_which_end_is_written_first_cannot_matter(tmp_path, switches):
    """Scores, recommendations, shortlists and the state, to the bit; and the scores are those of the evaluation."""
    stream = live_stream(undirected=True)
    model = save_prefix(tmp_path, stream, **switches)
    predictors = [Predictor.load(tmp_path) for _ in range(3)]
    cand, names = candidates_of(stream), stream.ids.external
    expected = strict_scores(model, stream, cand)
    ways = [either_way(events_of(stream, KNOWN), seed) for seed in (1, 2, 3)]
    for row, events in enumerate(zip(*ways, strict=True), KNOWN):
        src, t = names[stream.src[row]], stream.t[row].item()
        asked = [names[c] for c in cand[row]]
        scores = [predictor.score(src, asked, t) for predictor in predictors]
        assert scores[0] == scores[1] == scores[2]
        np.testing.assert_allclose(scores[0], expected[row], rtol=1e-5, atol=1e-5)
        for predictor, event in zip(predictors, events, strict=True):
            predictor.observe_many([event])
    for predictor in predictors:
        assert_same_state(predictor, final_state(model, stream))
    for exact in (True, False):
        found = [predictor.recommend(names[3], predictor.clock + 1, 9, exact=exact) for predictor in predictors]
        assert found[0] == found[1] == found[2]
        assert len(found[0]) == 9


def test_everybody_who_took_part_is_recommended_and_the_shortlist_misses_nobody_near(tmp_path):
    stream = live_stream(undirected=True)
    save_prefix(tmp_path, stream)
    predictor = Predictor.load(tmp_path)
    predictor.observe("somebody new", stream.ids.external[0], predictor.clock + 1, msg=[0.0, 0.0])
    t = predictor.clock + 1
    for source in (stream.ids.external[0], "somebody new"):
        ranked = [predictor.recommend(source, t, 99, exact=exact) for exact in (True, False)]
        assert {one.dst for one in ranked[0]} == {one.dst for one in ranked[1]}
        assert len(ranked[0]) >= predictor.num_nodes - 1
    assert predictor.score("somebody new", stream.ids.external[0], t) == pytest.approx(
        predictor.recommend("somebody new", t, 1, candidates=[stream.ids.external[0]])[0].score
    )


@pytest.fixture(scope="module")
def school(tmp_path_factory):
    """People in two classes who meet inside their own, the smaller number always first."""
    folder = tmp_path_factory.mktemp("school")
    rng = np.random.default_rng(0)
    people, rows = 40, 900
    one = rng.integers(0, people, rows)
    ends = np.sort(np.stack([one, (one + 2 * rng.integers(1, 4, rows)) % people], axis=1), axis=1)
    lines = "\n".join(f"{u},{v},{t}" for t, (u, v) in enumerate(ends.tolist()))
    (folder / "meetings.csv").write_text(f"src,dst,t\n{lines}\n")
    return folder


def invoke(*arguments: str):
    return CliRunner().invoke(app, list(arguments))


def trained(folder, name: str, *options: str) -> dict:
    fast = [f"--set={text}" for text in ("train.epochs=1", "train.warmup=2", "model.stalk_dim=8", "model.hidden_dim=8")]
    arguments = ["train", str(folder / "meetings.csv"), "--out", str(folder / name), "--no-compare", "--json"]
    told = invoke(*arguments, *fast, *options)
    assert told.exit_code == 0, told.output
    return json.loads(told.stdout)


def hit_rate(folder, run: str, place: int) -> float:
    """How often the other end of one of the last meetings is among the ten best, asked from this end."""
    predictor = Predictor.load(folder / run)
    rows = [line.split(",") for line in (folder / "meetings.csv").read_text().splitlines()[-40:]]
    ends = [(int(row[place]), int(row[1 - place])) for row in rows]
    t = predictor.question_time(None)
    return float(np.mean([v in {one.dst for one in predictor.recommend(u, t, 10)} for u, v in ends]))


@pytest.mark.slow
def test_asked_from_either_end_a_meeting_is_found_as_well(school):
    with pytest.warns(UserWarning, match="the smaller of the two ids stands first"):
        trained(school, "directed")
    undirected = trained(school, "undirected", "--undirected")
    assert undirected["card"]["question"]["direction"] == "undirected"
    assert hit_rate(school, "undirected", 0) > 0.7
    assert hit_rate(school, "undirected", 1) > 0.7
    again = invoke("evaluate", str(school / "undirected"), str(school / "meetings.csv"), "--json")
    assert json.loads(again.stdout)["metrics"] == undirected["metrics"]
    shown = json.loads(invoke("data", "show", str(school / "meetings.csv"), "--json").stdout)
    assert "the smaller of the two ids" in shown["looks"]
    shown = json.loads(invoke("data", "show", str(school / "meetings.csv"), "--undirected", "--json").stdout)
    assert (shown["direction"], shown.get("looks")) == ("undirected", None)


@pytest.mark.slow
def test_a_table_with_turned_rows_trains_the_same_run(tmp_path):
    """Numbers as ids: the weights, the figures and the answers are the same to the last bit."""
    src, dst, t = contacts(300)
    runs = []
    for name, ends in (("one", (src, dst)), ("other", turned(src, dst))):
        stream = tsnn.from_arrays(*ends, t, undirected=True)
        run = tsnn.train(stream, tmp_path / name, WARM_HEAD, compare=False)
        predictor = Predictor.load(tmp_path / name)
        runs.append((run.metrics["metrics"], predictor.recommend(3, predictor.clock + 1, 10)))
    assert runs[0] == runs[1]
