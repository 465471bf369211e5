"""`tsnn recommend` and `tsnn explain` as a user meets them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
import typer
from typer.testing import CliRunner

from tests.online.streams import live_stream, restless_model, save_prefix
from tests.serve.runs import make_small_run
from tsnn.cli.explain import explain
from tsnn.cli.recommend import recommend
from tsnn.config import Config
from tsnn.data.events import make_stream
from tsnn.errors import InputError, RunError
from tsnn.model.tsnn import TSNN, StreamShape
from tsnn.online.predictor import Predictor
from tsnn.plan.planner import mean_gap
from tsnn.training.run import save_run

app = typer.Typer()
app.command()(recommend)
app.command()(explain)


def invoke(*arguments: str):
    return CliRunner().invoke(app, list(arguments))


def parsed(*arguments: str):
    result = invoke(*arguments, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> str:
    folder: Path = tmp_path_factory.mktemp("runs") / "small"
    save_prefix(folder, live_stream())
    return str(folder)


def test_recommend_prints_what_the_predictor_says(run):
    """Ids of both kinds; without --at, one mean gap after the last event."""
    predictor = Predictor.load(run)
    for text, name in (("0", 0), ("n1", "n1")):
        printed = parsed("recommend", run, "--src", text, "--top", "3")
        assert printed["src"] == name
        assert printed["t"] == predictor.clock + predictor.run.model.shape.mean_gap
        best = predictor.recommend(name, printed["t"], 3)
        assert [(r["dst"], r["score"]) for r in printed["recommendations"]] == [(r.dst, r.score) for r in best]
    table = invoke("recommend", run, "--src", "0", "--top", "3").stdout
    assert f"{predictor.recommend(0, printed['t'], 1)[0].score:.4f}" in table


def test_recommend_says_why(run):
    predictor = Predictor.load(run)
    asked = ("recommend", run, "--src", "0", "--top", "2")
    for told in parsed(*asked)["recommendations"]:
        assert told["why"] == predictor.explain(0, told["dst"], predictor.question_time(None)).why
    plain, numbers = invoke(*asked).stdout, invoke(*asked, "--numbers").stdout
    assert "why" in plain
    assert "EdgeBank" not in plain
    assert "EdgeBank" in numbers


def test_of_many_the_first_few_get_a_reason(run, monkeypatch):
    monkeypatch.setattr("tsnn.cli.recommend.EXPLAINED", 2)
    told = parsed("recommend", run, "--src", "0", "--top", "4")["recommendations"]
    assert [bool(one["why"]) for one in told] == [True, True, False, False]
    assert invoke("recommend", run, "--src", "0", "--top", "4").exit_code == 0


def test_a_run_that_learned_nothing_beyond_counts_says_so(tmp_path):
    stream = live_stream()
    model = restless_model(stream)
    model.head.geometry_weight.fill_(0.0)
    save_run(tmp_path, model, stream, {})
    remark = "This run learned nothing beyond counts"
    assert remark in invoke("explain", str(tmp_path), "--src", "0", "--dst", "n1").stdout
    assert remark in invoke("recommend", str(tmp_path), "--src", "0").output
    assert parsed("explain", str(tmp_path), "--src", "0", "--dst", "n1")["remark"].startswith(remark)
    assert parsed("recommend", str(tmp_path), "--src", "0")["remark"].startswith(remark)


def test_recommend_takes_its_options(run):
    predictor = Predictor.load(run)
    at = predictor.clock + 2.5
    asked = ("recommend", run, "--src", "0", "--top", "100", "--at", str(at))
    everybody = parsed(*asked)
    assert everybody["t"] == at
    assert {r["dst"] for r in parsed(*asked, "--two-stage")["recommendations"]} == {
        r["dst"] for r in everybody["recommendations"]
    }
    fresh = {r["dst"] for r in parsed(*asked, "--exclude-seen")["recommendations"]}
    assert fresh < {r["dst"] for r in everybody["recommendations"]}


def test_explain_prints_and_draws(run, tmp_path):
    predictor, figure = Predictor.load(run), tmp_path / "why.svg"
    printed = parsed("explain", run, "--src", "0", "--dst", "n1", "--figure", str(figure))
    assert printed["score"] == predictor.explain(0, "n1", printed["t"]).score
    assert figure.read_bytes().startswith(b"<?xml")
    said, numbers = (invoke("explain", run, "--src", "0", "--dst", "n1", *more).stdout for more in ([], ["--numbers"]))
    assert f"score {printed['score']:.4f}" in said
    assert numbers.startswith(said.rstrip())
    assert "degrees" in numbers


def test_bad_questions_are_one_sentence(run, tmp_path):
    unknown = invoke("recommend", run, "--src", "nobody").exception
    assert isinstance(unknown, InputError)
    assert "never heard of node 'nobody'" in str(unknown)
    assert isinstance(invoke("recommend", run, "--src", "0", "--at", "0").exception, InputError)
    assert isinstance(invoke("recommend", run, "--src", "0", "--top", "0").exception, InputError)
    assert isinstance(invoke("explain", run, "--src", "0", "--dst", "n99").exception, InputError)
    assert isinstance(invoke("recommend", str(tmp_path), "--src", "0").exception, RunError)


def test_names_reach_the_terminal_to_the_letter_and_steer_nothing(tmp_path):
    names = ["[team0] bob", "[/b]", "red\x1b[31m", "[bold]x[/bold]"]
    src, dst = ([names[(i * k + k) % 4] for i in range(80)] for k in (1, 3))
    stream = make_stream(src, [f"to {name}" for name in dst], range(80))
    torch.manual_seed(0)
    model = TSNN(Config.build(overrides={"model.stalk_dim": 8}), StreamShape(0, 0, 0, mean_gap(stream.t)))
    (tmp_path / "run").mkdir()
    save_run(tmp_path / "run", model.eval(), stream, {"metrics": {}})
    for command in (["recommend"], ["explain", "--dst", "to [/b]"]):
        told = CliRunner().invoke(app, [command[0], str(tmp_path / "run"), "--src", names[0], *command[1:]])
        assert told.exit_code == 0, told.output
        assert "[team0] bob" in told.output.replace("\n", " ")
        assert "\x1b[31m" not in told.output
    assert "[/b]" in told.output


def test_an_answer_beside_a_service_says_that_it_is_not_of_now(tmp_path):
    from tsnn.serve.marks import End, EndFile

    run = make_small_run(tmp_path / "run")
    command = ["recommend", str(run), "--src", "node 4", "--edge-type", "1"]
    assert "has logged" not in CliRunner().invoke(app, command).output
    (run / "online").mkdir()
    EndFile(run / "online").begin(End(7, b"x" * 32))
    assert "before the 7 events" in " ".join(CliRunner().invoke(app, command).output.split())
    assert "before the 7 events" in json.loads(CliRunner().invoke(app, [*command, "--json"]).stdout)["remark"]
    command = ["explain", str(run), "--src", "node 4", "--dst", "3", "--edge-type", "1"]
    assert "before the 7 events" in " ".join(CliRunner().invoke(app, command).output.split())
