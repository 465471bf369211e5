"""Who is recommended: those that figures and training drew from, and nobody else unless asked for."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import tsnn
from tests.online.streams import restless_model
from tests.online.test_cli_online import invoke
from tsnn.data.events import EventStream
from tsnn.data.question import Question
from tsnn.errors import InputError
from tsnn.online.predictor import Predictor
from tsnn.online.retrieve import eligible
from tsnn.training.run import Run, save_run

WARM_HEAD = tsnn.Config.build(overrides={"train.epochs": 0, "train.warmup": 1})


def trained(stream: EventStream, folder: Path) -> Predictor:
    tsnn.train(stream, folder, WARM_HEAD, compare=False)
    return Predictor.load(folder)


def ranked(predictor: Predictor) -> set[str]:
    """All that a question of somebody never seen ranks."""
    standpoint, _ = predictor.stand("a stranger", [], predictor.clock + 1, None)
    found = eligible(standpoint, predictor.run.question)
    return {predictor._state.ids.external[i] for i in found}


def test_the_table_of_the_page_recommends_items_to_a_user(tmp_path):
    """docs/how-to/own-data.md: nine users, seven items."""
    rows = "\n".join(f"user{i % 9},item{i % 7},{i * 10},{i % 5}" for i in range(300))
    table = tmp_path / "clicks.csv"
    table.write_text(f"who,what,when,amount\n{rows}\n")
    stream = tsnn.read_table(table, src="who", dst="what", t="when", msg=["amount"])
    predictor = trained(stream, tmp_path / "run")
    best = predictor.recommend("user3", predictor.question_time(None), 8)
    assert sorted(one.dst for one in best) == [f"item{i}" for i in range(7)]


@pytest.mark.slow
def test_no_user_of_a_shop_is_recommended_a_user(tmp_path):
    rng = np.random.default_rng(0)
    users = np.r_[np.arange(400), rng.integers(0, 400, 3600)]
    items = np.r_[np.arange(400) % 150, rng.integers(0, 150, 3600)]
    stream = tsnn.from_arrays([f"user{u}" for u in users], [f"item{i}" for i in items], np.arange(4000))
    predictor = trained(stream, tmp_path / "run")
    t = predictor.question_time(None)
    found = [one.dst for u in range(400) for one in predictor.recommend(f"user{u}", t, 10)]
    assert len(found) == 4000
    assert all(name.startswith("item") for name in found)


def visits(types: bool) -> EventStream:
    """People go to places; two of them are visited themselves, and one place only ever stands in the last rows."""
    rng = np.random.default_rng(0)
    src = [f"p{i}" for i in np.r_[np.arange(10), rng.integers(0, 10, 190)]]
    dst = [f"place{i}" for i in np.r_[rng.integers(0, 6, 195), np.full(5, 6)]]
    dst[20:22] = ["p1", "p2"]
    kinds = {name: name.rstrip("0123456789") for name in (*src, *dst)}
    return tsnn.from_arrays(src, dst, np.arange(200.0), rng.normal(size=(200, 2)), node_type=kinds if types else None)


@pytest.mark.parametrize("types", [False, True])
def test_what_figures_are_drawn_from_is_what_answers_rank(tmp_path, types):
    stream = visits(types)
    save_run(tmp_path, restless_model(stream), stream, {})
    drawn = {stream.ids.external[i] for i in Question().pool(stream).nodes}
    assert ranked(Predictor.load(tmp_path)) == drawn
    people = range(10) if types else (1, 2)
    assert drawn == {f"place{i}" for i in range(7)} | {f"p{i}" for i in people}


def test_training_does_not_draw_whom_later_rows_introduce():
    stream = visits(types=True)
    drawn = {stream.ids.external[i] for i in Question().pool(stream, 150).nodes}
    assert drawn == {f"place{i}" for i in range(6)} | {f"p{i}" for i in range(10)}


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("visits")
    stream = visits(types=False)
    save_run(folder, restless_model(stream), stream, {})
    return folder


def listed(run: Path, *options: str) -> set[str]:
    result = invoke("recommend", str(run), "--src", "p3", "--top", "99", "--json", *options)
    assert result.exit_code == 0, result.output
    answer = json.loads(result.stdout)
    assert answer["candidates"] == (options[1] if options else "destinations")
    return {one["dst"] for one in answer["recommendations"]}


def test_candidates_on_the_command_line(run, tmp_path):
    chosen = tmp_path / "chosen.txt"
    chosen.write_text("place2\n\np7\np7\n")
    assert listed(run) == listed(run, "--candidates", "destinations") == ranked(Predictor.load(run))
    assert listed(run, "--candidates", "all") == set(Run.load(run).ids.external) - {"p3"}
    assert listed(run, "--candidates", str(chosen)) == {"place2", "p7"}


def test_candidates_that_nobody_knows_are_refused(run, tmp_path):
    wrong = tmp_path / "wrong.txt"
    wrong.write_text("place2\nplace99\n")
    for text, words in ((str(wrong), "never heard of node 'place99'"), ("users", "neither destinations nor all nor")):
        refused = invoke("recommend", str(run), "--src", "p3", "--candidates", text).exception
        assert isinstance(refused, InputError)
        assert words in str(refused)
