"""Events are taken back: the log and the state are as if they had never come, and a kill leaves one or the other."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.online.streams import dated_stream, save_stream
from tests.serve.runs import CLOCK, as_event, some_events
from tests.serve.states import fingerprint, replay_one_by_one
from tsnn.cli.main import app
from tsnn.data.times import read_span
from tsnn.errors import InputError, RunError
from tsnn.online.event import Event
from tsnn.online.predictor import Predictor
from tsnn.serve import rewrite
from tsnn.serve.eventlog import Chosen, EventLog, Receipt
from tsnn.serve.rewrite import drop_events, find_events
from tsnn.serve.service import HOME, Service
from tsnn.serve.snapshots import FOLDER

SENT = [as_event(fields) for fields in some_events(40, prefix="k")]


def fed(serve, snapshot_every: int = 15) -> Service:
    """A service that has taken all events, in a few requests, and has ended with a snapshot."""
    client = serve(snapshot_every=snapshot_every)
    for start in range(0, 40, 10):
        body = some_events(40, prefix="k")[start : start + 10]
        client.post("/events", json=body, headers={"Idempotency-Key": f"request {start}"}).raise_for_status()
    client.service.close()
    return client.service


def logged(run: Path) -> list[Event]:
    return [event for _, event in find_events(run, Chosen(), -1)]


def state_at(run: Path) -> str:
    """Of a service that is started now."""
    service = Service(run)
    try:
        return fingerprint(service.predictor)
    finally:
        service.close()


@pytest.mark.parametrize(
    ("chosen", "left"),
    [
        (Chosen(7, 9), [*SENT[:6], *SENT[9:]]),
        (Chosen(40, 40), SENT[:39]),
        (Chosen(1, 40), []),
        (Chosen(since=SENT[20].t), [event for event in SENT if event.t < SENT[20].t]),
        (Chosen(until=SENT[9].t), [event for event in SENT if event.t > SENT[9].t]),
        (Chosen(5, 20, since=SENT[18].t), [*SENT[:18], *SENT[20:]]),  # three events share a time
    ],
)
def test_dropped_events_have_never_come(serve, run, chosen, left):
    fed(serve)
    done = drop_events(run, chosen, print)
    assert [event for _, event in done.dropped] == [event for event in SENT if event not in left]
    assert logged(run) == left
    assert [position for position, _ in find_events(run, Chosen(), -1)] == list(range(1, len(left) + 1))
    assert (done.left, done.clock) == (len(left), left[-1].t if left else CLOCK)
    assert state_at(run) == fingerprint(replay_one_by_one(run, left))


def test_the_service_goes_on_from_there(serve, run):
    """The clock is back, the events are free to be sent again with their keys; the request's own key stays used."""
    fed(serve)
    drop_events(run, Chosen(since=SENT[30].t), print)
    client = serve()
    first = next(i for i, event in enumerate(SENT) if event.t == SENT[30].t)
    again = client.post("/events", json=some_events(40, prefix="k")[first:])
    assert again.json()["applied"] == 40 - first
    assert fingerprint(client.service.predictor) == fingerprint(replay_one_by_one(run, SENT))
    body, key = some_events(40, prefix="k")[30:40], {"Idempotency-Key": "request 30"}
    assert client.post("/events", json=body, headers=key).json()["applied"] == 0


def test_nothing_is_dropped_while_a_service_holds_the_run(serve, run):
    client = serve()
    client.post("/events", json=some_events(3))
    with pytest.raises(RunError, match="another process serves"):
        drop_events(run, Chosen(1, 1), print)
    assert client.service.log.position == 3


def test_nothing_to_drop_is_told(serve, run):
    with pytest.raises(RunError, match="has no log of events"):
        drop_events(run, Chosen(1, 1), print)
    fed(serve)
    with pytest.raises(InputError, match="is among those; tsnn log show"):
        drop_events(run, Chosen(41, 50), print)
    assert logged(run) == SENT


@pytest.mark.parametrize("stage", ["drop_snapshots", "replay"])
def test_interrupted_it_is_the_old_log_or_the_new_one(serve, run, monkeypatch, stage):
    """Snapshots go before the log changes, so that none is ever ahead of it or holds what it no longer has."""
    fed(serve)

    def stopped(*_args, **_kwargs):
        raise KeyboardInterrupt

    if stage == "drop_snapshots":
        monkeypatch.setattr(EventLog, "drop", stopped)
    else:
        monkeypatch.setattr(rewrite, stage, stopped)
    with pytest.raises(KeyboardInterrupt):
        drop_events(run, Chosen(11, 12), print)
    left = SENT if stage == "drop_snapshots" else [*SENT[:10], *SENT[12:]]
    assert logged(run) == left
    assert all(int(path.name) <= 10 for path in (run / HOME / FOLDER).iterdir())
    assert state_at(run) == fingerprint(replay_one_by_one(run, left))


DROPPING = """
import sys
from pathlib import Path
from tsnn.serve.eventlog import Chosen, EventLog
log = EventLog(Path(sys.argv[1]), "run")
print("now", flush=True)
log.drop(Chosen(since=1000, until=1499))
"""


def test_a_kill_in_the_middle_leaves_the_log_old_or_new(tmp_path):
    """Real kills, at moments in and around the transaction; receipts move with their events."""
    old = [(place, place - 1) for place in range(1, 3001)]
    new = [*old[:1000], *((place - 500, t) for place, t in old[1500:])]
    for attempt in range(8):
        folder = tmp_path / str(attempt)
        folder.mkdir()
        log = EventLog(folder, "run")
        log.append([Event(1, 2, t) for _, t in old], [Receipt("r", b"", 2000)])
        log.close()
        with subprocess.Popen([sys.executable, "-c", DROPPING, str(folder)], stdout=subprocess.PIPE) as child:
            child.stdout.readline()
            time.sleep(attempt * 0.004)
            child.kill()
        log = EventLog(folder, "run")
        events = [(place, event.t) for place, event in log.find(Chosen())]
        assert events in (old, new)
        assert log.receipt_of("r").position == (2000 if events == old else 1500)
        log.close()


# The command line


def invoke(*arguments: str):
    return CliRunner().invoke(app, ["log", *arguments])


def test_show_and_drop_on_the_command_line(serve, run):
    fed(serve)
    shown = json.loads(invoke("show", str(run), "--last", "2", "--json").stdout)["events"]
    assert [(one["position"], one["t"], one["key"]) for one in shown] == [
        (39, SENT[38].t, "k38"),
        (40, SENT[39].t, "k39"),
    ]
    assert {key: shown[1][key] for key in ("src", "dst", "msg", "edge_type")} == {
        key: value for key, value in some_events(40)[39].items() if key != "t"
    } | {"msg": pytest.approx(some_events(40)[39]["msg"])}
    table = invoke("show", str(run), "--positions", "3-4").stdout
    assert "k2" in table
    assert "k3" in table
    assert "k4" not in table
    done = invoke("drop", str(run), "--positions", "3-4")
    assert done.exit_code == 0, done.output
    assert f"2 events dropped, 38 left in the log; the clock stands at {SENT[39].t}." in done.stdout
    told = json.loads(invoke("drop", str(run), "--from", str(SENT[39].t), "--json").stdout)
    assert (told["left"], told["clock"]) == (37, SENT[38].t)
    assert [one["key"] for one in told["dropped"]] == ["k39"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "name the events to drop with --positions, --from or --to"),
        (("--positions", "a-b"), "neither a position nor a range"),
        (("--from", "yesterday"), "time 'yesterday' is not a finite number"),
    ],
)
def test_what_cannot_be_dropped_is_told_in_a_sentence(serve, run, arguments, words):
    fed(serve)
    refused = invoke("drop", str(run), *arguments).exception
    assert isinstance(refused, InputError)
    assert words in str(refused)
    assert logged(run) == SENT


# The guard


def test_an_event_far_ahead_of_the_clock_is_refused(serve, run):
    """Seconds sent as nanoseconds: refused with a sentence, and the right ones go on."""
    client = serve()
    event, wrong = some_events(1)[0], some_events(1)[0] | {"t": (CLOCK + 1) * 10**9}
    for body in (wrong, [event, wrong]):
        refused = client.post("/events", json=body)
        assert refused.status_code == 422
        assert "is too far ahead of the clock" in refused.json()["error"]
        assert "check its unit" in refused.json()["error"]
    assert client.service.log.position == 0
    assert client.post("/events", json=event).json()["applied"] == 1


def test_how_far_ahead_is_ten_spans_or_what_one_says(serve, run):
    strict = serve(max_ahead="50")
    assert strict.post("/events", json=some_events(1, start=CLOCK + 51)[0]).status_code == 422
    assert strict.post("/events", json=some_events(1, start=CLOCK + 50)[0]).status_code == 200
    strict.service.close()
    usual = serve()
    clock, span = CLOCK + 50, usual.service.predictor.span
    assert 300 < span <= clock
    assert usual.post("/events", json=some_events(1, start=clock + 10 * span + 1)[0]).status_code == 422
    assert usual.post("/events", json=some_events(1, start=clock + 10 * span)[0]).status_code == 200
    usual.service.close()
    assert serve(max_ahead="inf").post("/events", json=some_events(1, start=10**15)[0]).status_code == 200


def test_a_limit_that_is_none_is_refused_before_anything_is_written(run):
    with pytest.raises(InputError, match="'soon' is no length of time"):
        Service(run, max_ahead="soon")
    assert not (run / HOME).exists()


def test_a_predictor_has_the_guard_if_asked(run):
    free, careful = Predictor.load(run), Predictor.load(run, max_ahead=100)
    event = SENT[0]._replace(t=CLOCK + 101)
    for kind in ("refuse", "aside"):
        careful.late = kind
        with pytest.raises(InputError, match=f"nothing later than {CLOCK + 100} is taken"):
            careful.observe_many([event])
    assert careful.clock == CLOCK
    careful.observe_many([event._replace(t=CLOCK + 60), event])
    free.observe_many([event._replace(t=10**15)])
    with pytest.raises(InputError, match="'30d' is no length of time; give a number in the unit of the data"):
        Predictor.load(run, max_ahead="30d")


def test_dates_that_have_come_are_never_too_far_ahead(serve, tmp_path):
    """Twelve hours of 2024 are served today; a date of the next century is refused, and one taken by mistake goes."""
    run = save_stream(tmp_path / "dated", dated_stream())
    client = serve(run, max_ahead="30d")
    event = {"src": "user1", "dst": "item1", "edge_type": "pay"}
    refused = client.post("/events", json={**event, "t": "2101-01-01T00:00:00Z"})
    assert "time 2101-01-01T00:00:00Z is too far ahead of the clock, 2024-03-03T19:00:00Z" in refused.json()["error"]
    for t in ("2024-03-03T20:00:00Z", "now"):
        assert client.post("/events", json={**event, "t": t}).json()["applied"] == 1
    client.service.close()
    done = json.loads(invoke("drop", str(run), "--from", "2024-03-04", "--json").stdout)
    assert (len(done["dropped"]), done["clock"]) == (1, "2024-03-03T20:00:00Z")
    shown = json.loads(invoke("show", str(run), "--json").stdout)["events"]
    assert [(one["t"], one["edge_type"]) for one in shown] == [("2024-03-03T20:00:00Z", "pay")]


@pytest.mark.parametrize(("text", "microseconds"), [("90s", 90e6), ("1.5 h", 5.4e9), ("30d", 2.592e12), ("7", 7.0)])
def test_a_length_of_time_of_dates_has_a_unit(text, microseconds):
    assert read_span(text, dates=True) == microseconds
    assert read_span("inf", dates=True) == float("inf")
    for wrong in ("30 days", "-3", "nan", None, True):
        with pytest.raises(InputError, match="write it like 12h or 30d"):
            read_span(wrong, dates=True)
