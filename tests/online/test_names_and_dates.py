"""Relations by their names and times as dates, in and out of a running predictor and its command line."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pandas as pd
import pytest
from typer.testing import CliRunner

from tests.online.streams import LAST_DATE, dated_stream, save_stream
from tsnn.cli.main import app
from tsnn.data.table import from_pandas
from tsnn.errors import InputError
from tsnn.online.event import Event
from tsnn.online.predictor import Predictor


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> str:
    return str(save_stream(tmp_path_factory.mktemp("runs") / "dated", dated_stream()))


@pytest.fixture
def predictor(run) -> Predictor:
    return Predictor.load(run)


def test_a_question_takes_a_name_and_any_form_of_a_date(predictor):
    t = LAST_DATE + timedelta(hours=1)
    scores = {
        predictor.score("user1", "item1", time, "pay")
        for time in (t, t.isoformat(), "2024-03-03T20:00:00Z", "2024-03-03 20:00", int(t.timestamp() * 1e6))
    }
    assert len(scores) == 1
    assert predictor.score("user1", "item1", t, "buy") not in scores
    assert predictor.recommend("user1", "now", 2, edge_type="look")
    assert predictor.question_time("now") > predictor.ticks


def test_what_comes_out_are_names_and_dates(predictor):
    assert predictor.clock == LAST_DATE
    assert predictor.ticks == int(LAST_DATE.timestamp() * 1e6)
    predictor.observe("user1", "item1", LAST_DATE + timedelta(minutes=5), edge_type="pay")
    assert predictor.recent("user1", 1) == [("item1", LAST_DATE + timedelta(minutes=5), "pay")]
    predictor.observe("user1", "item2", "2024-03-03T19:30:00", edge_type="buy")
    assert predictor.clock == LAST_DATE + timedelta(minutes=30)


@pytest.mark.parametrize(
    ("t", "kind", "words"),
    [
        (
            "2024-03-03T21:00",
            "pey",
            "relation 'pey' is unknown, the known ones are buy, look, pay; did you mean 'pay'?",
        ),
        ("2024-03-03T21:00", 0, "relation 0 is unknown"),
        ("2024-03-03T21:00", None, "no relation is given, the known ones are buy, look, pay"),
        ("tomorrow", "pay", "time 'tomorrow' is no date; write it like 2024-03-01T08:00:00, or say now"),
        ("2024-03-01", "pay", "time 2024-03-01T00:00:00Z is before the clock, 2024-03-03T19:00:00Z"),
        (1709494800000000000, "pay", "is no date from 1970 on in microseconds"),
    ],
)
def test_what_cannot_be_meant_is_one_sentence(predictor, t, kind, words):
    with pytest.raises(InputError) as asked:
        predictor.score("user1", "item1", t, kind)
    assert words in str(asked.value)
    with pytest.raises(InputError):
        predictor.observe("user1", "item1", t, edge_type=kind)
    assert predictor.clock == LAST_DATE


def test_an_event_of_the_past_names_both_times(predictor):
    with pytest.raises(InputError, match="time 2024-03-01T00:00:00Z comes after the clock has reached 2024-03-03T19"):
        predictor.observe("user1", "item1", "2024-03-01", edge_type="pay")
    late = Predictor.load(predictor.run.folder, late="aside")
    late.observe("user1", "item1", "2024-03-01", edge_type="pay")
    assert late.aside == [Event("user1", "item1", int(datetime(2024, 3, 1, tzinfo=UTC).timestamp() * 1e6), None, 2)]


def test_dates_are_shown_in_the_zone_of_the_table(tmp_path):
    predictor = Predictor.load(save_stream(tmp_path / "run", dated_stream(zone="Europe/Berlin")))
    assert predictor.clock.isoformat() == "2024-03-03T20:00:00+01:00"
    assert predictor.question_time("2024-03-03T21:00") == int((LAST_DATE + timedelta(hours=1)).timestamp() * 1e6)


def test_a_relation_of_its_own_is_that_of_events_without_one(tmp_path):
    kinds = ["buy", None, "look"] * 10
    frame = pd.DataFrame({"src": ["a", "b"] * 15, "dst": ["x", "y", "z"] * 10, "t": range(30), "kind": kinds})
    stream = from_pandas(frame, edge_type="kind", missing_relation="none")
    predictor = Predictor.load(save_stream(tmp_path / "run", stream))
    t = predictor.clock + 1
    assert predictor.score("a", "x", t) == predictor.score("a", "x", t, "none") != predictor.score("a", "x", t, "buy")


def parsed(*arguments: str):
    result = CliRunner().invoke(app, [*arguments, "--json"])
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_the_command_line_takes_and_prints_them(run):
    asked = ("recommend", run, "--src", "user1", "--edge-type", "pay")
    told = parsed(*asked, "--at", "2024-03-03T20:00:00Z")
    assert told["t"] == "2024-03-03T20:00:00Z"
    assert parsed(*asked, "--at", "2024-03-03 20:00")["recommendations"] == told["recommendations"]
    assert parsed(*asked)["t"] == "2024-03-03T19:00:00.000001Z"  # a mean gap after the last
    assert parsed(*asked, "--at", "now")["t"] > "2024-03-04"
    printed = CliRunner().invoke(app, list(asked)).stdout
    assert "user1 at 2024-03-03 19:00:00" in printed
    refused = CliRunner().invoke(app, ["recommend", run, "--src", "user1", "--edge-type", "pays"])
    assert "did you mean 'pay'" in str(refused.exception)
