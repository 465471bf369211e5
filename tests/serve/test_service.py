"""The live service as its clients meet it: exactly once, all or nothing, bounded, and the same after a restart."""

from __future__ import annotations

import asyncio
import json
import logging
import resource
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.serve.runs import CLOCK, RELATIONS, as_event, some_events
from tests.serve.states import fingerprint, replay_one_by_one
from tsnn.errors import ConfigError, RunError
from tsnn.online.checks import check_event
from tsnn.online.event import Event
from tsnn.serve.drift import turn
from tsnn.serve.gate import JsonLines, logger
from tsnn.serve.http import build_application
from tsnn.serve.service import Service
from tsnn.sheaf.householder import frame_matrix

EVENT = some_events(1)[0]


def state_of(service: Service) -> tuple[str, int, int]:
    return fingerprint(service.predictor), service.log.position, service.applied


def logged(service: Service):
    return [event for block in service.log.read(0) for event in block]


# One event, one type


def test_an_event_is_the_same_thing_from_the_request_to_the_replay(serve, run, monkeypatch):
    """Parsed into an Event, checked once, logged and observed as what the check made of it, and replayed unchecked."""
    checked = []

    def counting(event, *rules):
        checked.append(event)
        return check_event(event, *rules)

    monkeypatch.setattr("tsnn.online.predictor.check_event", counting)
    sent = [as_event(fields) for fields in some_events(5, prefix="k")]
    client = serve()
    client.post("/events", json=some_events(5, prefix="k"))
    assert checked == sent
    assert logged(client.service) == sent
    assert all(type(event) is Event for event in logged(client.service))
    before = fingerprint(client.service.predictor)
    copy = Path(shutil.copytree(run, run.with_name("copy")))
    again = serve(copy)
    assert fingerprint(again.service.predictor) == before
    assert len(checked) == 5


# Exactly once


def test_one_event_or_many(serve):
    client = serve()
    one = client.post("/events", json=EVENT)
    assert (one.status_code, one.json()) == (
        200,
        {"applied": 1, "duplicates": 0, "position": 1, "clock": EVENT["t"]},
    )
    many = client.post("/events", json=some_events(10, start=EVENT["t"], seed=2))
    assert many.json()["position"] == 11


def test_an_event_with_a_key_happens_once(serve):
    client = serve()
    events = some_events(6, prefix="k")
    assert client.post("/events", json=events[:4]).json()["applied"] == 4
    before = state_of(client.service)
    again = client.post("/events", json=events[:4]).json()
    assert (again["applied"], again["duplicates"], again["position"]) == (0, 4, 4)
    assert state_of(client.service) == before
    overlapping = client.post("/events", json=[*events[2:], events[5]]).json()
    assert (overlapping["applied"], overlapping["duplicates"], overlapping["position"]) == (2, 3, 6)


def test_a_request_with_a_key_happens_once(serve):
    client = serve()
    headers = {"Idempotency-Key": "monday"}
    first = client.post("/events", json=some_events(3), headers=headers).json()
    before = state_of(client.service)
    again = client.post("/events", json=some_events(3), headers=headers).json()
    assert (first["applied"], again["applied"], again["duplicates"]) == (3, 0, 3)
    other = client.post("/events", json=some_events(3, start=CLOCK + 50), headers=headers)
    assert other.status_code == 422
    assert "another request" in other.json()["error"]
    assert state_of(client.service) == before


def test_keys_are_remembered_over_a_restart(serve, run):
    client = serve()
    client.post("/events", json=some_events(5, prefix="k"), headers={"Idempotency-Key": "r"})
    client.service.close()
    again = serve()
    assert again.post("/events", json=some_events(5, prefix="k")).json()["applied"] == 0
    assert again.post("/events", json=some_events(5, prefix="k"), headers={"Idempotency-Key": "r"}).is_success


def test_a_key_used_for_another_event_is_refused(serve):
    client = serve()
    client.post("/events", json={**EVENT, "key": "k"})
    before = state_of(client.service)
    answer = client.post("/events", json={**EVENT, "key": "k", "dst": "somebody else"})
    assert answer.status_code == 422
    assert state_of(client.service) == before


def test_racing_clients_with_one_key_get_one_event(serve):
    """Sixteen at once, each event sent by four of them."""
    client = serve()
    events = some_events(40, prefix="race")
    with ThreadPoolExecutor(16) as pool:
        futures = [client.service.submit([as_event(e)]) for e in events for _ in range(4)]
        outcomes = list(pool.map(lambda future: future.result(timeout=30), futures))
    assert sum(o.applied for o in outcomes) == 40
    assert sum(o.duplicates for o in outcomes) == 120
    assert sorted(e.key for e in logged(client.service)) == sorted(e["key"] for e in events)


# All or nothing

BAD_EVENTS = {
    "no source": {"dst": 1, "t": CLOCK + 9},
    "fractional id": {**EVENT, "src": 1.5},
    "boolean id": {**EVENT, "src": True},
    "empty id": {**EVENT, "dst": ""},
    "long id": {**EVENT, "dst": "x" * 300},
    "huge id": {**EVENT, "dst": 2**63},
    "null id": {**EVENT, "dst": None},
    "before the clock": {**EVENT, "t": 0},
    "out of order": {**EVENT, "t": CLOCK + 1},
    "negative time": {**EVENT, "t": -1},
    "fractional time": {**EVENT, "t": CLOCK + 9.5},
    "huge time": {**EVENT, "t": 2**63},
    "text as time": {**EVENT, "t": "10"},
    "narrow features": {**EVENT, "t": CLOCK + 9, "msg": [1.0]},
    "wide features": {**EVENT, "t": CLOCK + 9, "msg": [1.0, 2.0, 3.0]},
    "no features": {**EVENT, "t": CLOCK + 9, "msg": None},
    "huge features": {**EVENT, "t": CLOCK + 9, "msg": [1e38, 0.0]},
    "text as features": {**EVENT, "t": CLOCK + 9, "msg": "ab"},
    "unknown relation": {**EVENT, "t": CLOCK + 9, "edge_type": RELATIONS},
    "no relation": {**EVENT, "t": CLOCK + 9, "edge_type": None},
    "negative relation": {**EVENT, "t": CLOCK + 9, "edge_type": -1},
    "unknown field": {**EVENT, "t": CLOCK + 9, "weight": 3},
    "empty key": {**EVENT, "t": CLOCK + 9, "key": ""},
}


@pytest.mark.parametrize("case", BAD_EVENTS)
def test_one_bad_event_refuses_the_whole_request_and_changes_nothing(serve, case):
    client = serve()
    client.post("/events", json=some_events(3))
    before = state_of(client.service)
    good = some_events(2, start=CLOCK + 8)
    answer = client.post("/events", json=[good[0], good[1], BAD_EVENTS[case]])
    assert answer.status_code == 422, answer.text
    assert set(answer.json()) == {"error"}
    assert answer.json()["error"].endswith(".")
    assert "\n" not in answer.json()["error"]
    assert state_of(client.service) == before
    assert client.post("/events", json=good).json()["applied"] == 2


BAD_BODIES = [
    b"",
    b"{",
    b"[]",
    b"3",
    b'"x"',
    b"null",
    b"[[]]",
    b'{"src": NaN}',
    b'[{"src": "\\ud800"}]',
    b"\xff\xfe",
    b"6\x80a",
]


@pytest.mark.parametrize("body", BAD_BODIES)
@pytest.mark.parametrize("path", ["/events", "/score"])
def test_what_is_not_a_request_is_422(serve, path, body):
    answer = serve().post(path, content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == 422
    assert set(answer.json()) == {"error"}


def test_a_form_of_another_site_cannot_post_events(serve):
    """Browsers send text/plain across sites without asking first; JSON they do not."""
    client = serve()
    answer = client.post("/events", content=json.dumps(EVENT), headers={"Content-Type": "text/plain"})
    assert answer.status_code == 422
    assert client.get("/health", headers={"Host": "evil.example"}).status_code == 403
    assert client.service.log.position == 0


# Asking


def test_answers_are_those_of_a_predictor(serve, run):
    client = serve()
    client.post("/events", json=some_events(30))
    predictor = replay_one_by_one(run, logged(client.service))
    t = predictor.clock + 5
    body = {"src": "node 4", "dst": [3, "node 6", "a stranger"], "t": t, "edge_type": 1}
    assert client.post("/score", json=body).json()["scores"] == predictor.score("node 4", body["dst"], t, 1)
    ranked = client.get("/recommend", params={"src": "node 4", "t": t, "edge_type": 1, "k": 5}).json()
    expected = predictor.recommend("node 4", t, 5, edge_type=1)
    assert [(d["dst"], d["score"]) for d in ranked["destinations"]] == [(r.dst, r.score) for r in expected]
    for d in ranked["destinations"]:
        assert d["geometric"] + d["residual"] + d["edgebank"] == pytest.approx(d["score"], abs=1e-12)
    whole = {"src": "node 4", "t": t, "edge_type": 1, "k": 100, "candidates": "all"}
    everybody = predictor.recommend("node 4", t, 100, "all", edge_type=1)
    assert len(everybody) > len(predictor.recommend("node 4", t, 100, edge_type=1))
    assert [d["dst"] for d in client.get("/recommend", params=whole).json()["destinations"]] == [
        one.dst for one in everybody
    ]
    due = client.get("/forecast", params={"within": "30", "top": 4, "t": t, "pairs": True}).json()
    foreseen = predictor.forecast(30, 4, t)
    assert [(d["src"], d["expected"], d["probability"]) for d in due["sources"]] == [
        (one.src, one.expected, one.probability) for one in foreseen.sources
    ]
    assert [(d["src"], d["dst"], d["edge_type"]) for d in due["pairs"]] == [
        (one.src, one.dst, one.edge_type) for one in foreseen.pairs
    ]
    assert client.get("/forecast", params={"t": t}).json()["pairs"] == []
    assert client.get("/forecast", params={"within": "soon"}).status_code == 422
    explained = client.get("/explain", params={"src": "node 4", "dst": 3, "t": t, "edge_type": 1}).json()
    assert explained["score"] == predictor.explain("node 4", 3, t, 1).score


def test_by_default_a_question_is_asked_soon_after_the_clock(serve):
    client = serve()
    client.post("/events", json=some_events(10))
    answer = client.get("/recommend", params={"src": 1, "edge_type": 0}).json()
    assert answer["t"] == client.service.predictor.question_time(None) > client.service.predictor.clock
    node = client.get("/node", params={"id": some_events(10)[-1]["src"]}).json()
    assert node["recent"][0]["t"] == client.service.predictor.clock


def test_an_integer_and_a_text_are_different_nodes(serve):
    client = serve()
    assert client.get("/node", params={"id": "7"}).json()["known"]
    assert not client.get("/node", params={"id": '"7"'}).json()["known"]
    assert client.get("/node", params={"id": "node 4"}).json()["known"]


BAD_QUESTIONS = [
    "/recommend",
    "/recommend?src=1&k=0",
    "/recommend?src=1&k=5000",
    "/recommend?src=1&t=noon",
    "/recommend?src=1&t=nan",
    "/recommend?src=1&t=3&edge_type=0",
    "/recommend?src=1&edge_type=7",
    "/recommend?src=1",
    "/recommend?src=",
    "/recommend?src=1&edge_type=0&candidates=users",
    "/explain?src=1",
    "/node",
]


@pytest.mark.parametrize("path", BAD_QUESTIONS)
def test_a_question_that_makes_no_sense_is_422(serve, path):
    answer = serve().get(path)
    assert answer.status_code == 422, answer.text
    assert set(answer.json()) == {"error"}


def test_scores_do_not_depend_on_what_comes_later(serve, pristine_run, tmp_path):
    """Predict, then observe, through HTTP; then the same with other events after each question."""
    events = some_events(30)
    asked = [event["t"] for event in events]

    def scores(future_seed: int, cut: int) -> list[list[float]]:
        folder = shutil.copytree(pristine_run, tmp_path / f"run-{future_seed}-{cut}")
        client = serve(folder=Path(folder))
        rng = np.random.default_rng(future_seed)
        order = [*range(cut), *(cut + rng.permutation(len(events) - cut))]
        found = []
        for row, (position, t) in enumerate(zip(order, asked, strict=True)):
            event = {**events[position], "t": t}
            question = {"src": events[row]["src"], "dst": [events[row]["dst"], 3, "node 8"], "t": t, "edge_type": 0}
            found.append(client.post("/score", json=question).json()["scores"])
            assert client.post("/events", json=event).is_success
        return found

    tie = next(i for i in range(12, 20) if asked[i] == asked[i - 1])  # the cut stands inside a timestamp
    first, second = scores(1, tie), scores(2, tie)
    later = next(i for i in range(tie, len(asked)) if asked[i] > asked[tie])
    assert first[:later] == second[:later]  # bit for bit: events of one time do not see each other either
    assert first[later:] != second[later:]  # and what may be seen does matter


def test_asking_changes_nothing(serve):
    client = serve()
    client.post("/events", json=some_events(7))
    before = state_of(client.service)
    for path in (
        "/recommend?src=new&edge_type=0",
        "/explain?src=new&dst=newer&edge_type=0",
        "/node?id=new",
        "/metrics",
    ):
        assert client.get(path).status_code == 200
    client.post("/score", json={"src": "new", "dst": ["newer", 1], "edge_type": 0})
    assert state_of(client.service) == before


# Limits

PATHS = ["/health", "/metrics", "/openapi.json", "/recommend?src=1", "/nowhere"]


def test_without_the_token_nothing_is_answered(serve):
    client = serve(token="secret")
    for headers in ({"Authorization": ""}, {"Authorization": "Bearer wrong"}, {"Authorization": "Basic secret"}):
        for path in PATHS:
            assert client.get(path, headers=headers).status_code == 401
        answer = client.post("/events", json=EVENT, headers=headers)
        assert answer.status_code == 401
        assert answer.headers["www-authenticate"] == "Bearer"
    assert client.service.log.position == 0
    assert client.get("/health").status_code == 200
    assert client.get("/", headers={"Authorization": ""}).status_code == 200  # the page asks for the token itself


def test_with_a_wrong_token_the_body_is_not_read(serve):
    service = serve(token="secret").service
    application = build_application(service, token="secret")
    headers = [(b"host", b"localhost"), (b"content-type", b"application/json"), (b"content-length", b"1000")]
    scope = {"type": "http", "method": "POST", "path": "/events", "headers": headers, "query_string": b""}
    sent = []

    async def receive():
        pytest.fail("the body was read")

    async def send(message):
        sent.append(message)

    asyncio.run(application(scope, receive, send))
    assert sent[0]["status"] == 401


def test_a_body_over_the_limit_is_413(serve):
    client = serve(max_body=2000)
    large = json.dumps(some_events(100)).encode()
    head = {"Content-Type": "application/json"}
    assert client.post("/events", content=large, headers=head).status_code == 413
    pieces = (large[i : i + 500] for i in range(0, len(large), 500))  # sent in chunks, without a length
    assert client.post("/events", content=pieces, headers=head).status_code == 413
    assert client.service.log.position == 0
    assert client.post("/events", json=some_events(2)).status_code == 200


def test_a_full_queue_is_429_and_loses_nothing_it_took(serve):
    client = serve(queue_length=2)
    events = [as_event(e) for e in some_events(3)]
    with client.service.lock:  # the state is busy
        taken = [client.service.submit(events[:1])]
        while client.service.waiting:  # the writer holds the first one
            pass
        taken += [client.service.submit([event]) for event in events[1:]]
        answer = client.post("/events", json=EVENT)
        assert answer.status_code == 429
        assert answer.headers["retry-after"] == "1"
        asked = [client.service.answer(lambda predictor: predictor.clock) for _ in range(2)]
        assert client.get("/recommend?src=1&edge_type=0").status_code == 429
    assert [future.result(timeout=20).applied for future in taken] == [1, 1, 1]
    assert [future.result(timeout=20) for future in asked]
    assert client.get("/recommend?src=1&edge_type=0").status_code == 200
    assert client.service.log.position == 3


# Durability


def test_a_restart_reaches_the_same_state_bit_for_bit(serve, run):
    client = serve()
    for start in range(0, 60, 7):
        client.post("/events", json=some_events(60)[start : start + 7])
    state, events = fingerprint(client.service.predictor), logged(client.service)
    client.service.close()
    from_snapshot = serve()
    assert from_snapshot.service.snapshot_position == 60
    assert fingerprint(from_snapshot.service.predictor) == state
    from_snapshot.service.close()
    shutil.rmtree(run / "online" / "snapshots")
    from_log = serve()
    assert from_log.service.snapshot_position == 0
    assert fingerprint(from_log.service.predictor) == state
    assert fingerprint(replay_one_by_one(run, events)) == state


@pytest.mark.parametrize("size", [1, 2, 5, 24])
def test_neither_batches_nor_questions_show_in_the_state(serve, run, size):
    """Newcomers of the last timestamp are where the two moments of the state differ most."""
    events = [{**event, "dst": f"newcomer {i}", "t": CLOCK + 1 + i // 8} for i, event in enumerate(some_events(24))]
    client = serve()
    for start in range(0, 24, size):
        assert client.post("/events", json=events[start : start + size]).is_success
        question = {"src": f"stranger {start}", "dst": [1, "newcomer 3"], "edge_type": 0}
        for t in (client.service.predictor.clock, client.service.predictor.clock + 1):
            assert client.post("/score", json={**question, "t": t}).is_success
    assert fingerprint(client.service.predictor) == fingerprint(replay_one_by_one(run, logged(client.service)))


def test_snapshots_are_taken_while_events_come_in(serve, run):
    client = serve(snapshot_every=20)
    for start in range(0, 90, 10):
        client.post("/events", json=some_events(90)[start : start + 10])
    state = fingerprint(client.service.predictor)
    client.service._snapshot_due.set()
    while client.service.snapshot_position < 20:
        pass
    client.service.close()
    assert len(list((run / "online" / "snapshots").iterdir())) <= 2
    assert fingerprint(serve().service.predictor) == state


def test_a_torn_snapshot_costs_a_warning_and_a_longer_replay(serve, run):
    client = serve()
    client.post("/events", json=some_events(20))
    client.service.snapshot()
    client.post("/events", json=some_events(20, start=CLOCK + 30, seed=5))
    state = fingerprint(client.service.predictor)
    client.service.close()
    newest = max((run / "online" / "snapshots").iterdir())
    whole = (newest / "state.safetensors").read_bytes()
    (newest / "state.safetensors").write_bytes(whole[: len(whole) // 2])
    said: list[str] = []
    again = serve(say=said.append)
    assert again.service.snapshot_position == 20
    assert fingerprint(again.service.predictor) == state
    assert len(said) == 1
    assert "damaged" in said[0]


def test_a_full_disk_acknowledges_nothing_and_damages_nothing(serve, run):
    client = serve()
    assert client.post("/events", json=some_events(5)).status_code == 200
    before = state_of(client.service)
    size = max(path.stat().st_size for path in (run / "online").glob("events.sqlite*"))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))  # the system refuses to let a file grow beyond this
    try:
        answer = client.post("/events", json=some_events(200, start=CLOCK + 20))
        health = client.get("/health")
        asked = client.get("/recommend?src=1&edge_type=0")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert answer.status_code == 503
    assert "took none of the events" in answer.json()["error"]
    assert health.status_code == 503
    assert asked.status_code == 200  # what is known can still be asked
    assert state_of(client.service) == before
    assert client.post("/events", json=some_events(200, start=CLOCK + 20)).json()["position"] == 205
    assert client.get("/health").status_code == 200
    state = fingerprint(client.service.predictor)
    client.service.close()
    assert fingerprint(serve().service.predictor) == state


def test_a_commit_that_fails_after_it_reached_the_disk_is_found_again(serve, monkeypatch):
    """The worst case of an error: the client was told no, the log says yes. State follows the log."""
    client = serve()
    append = client.service.log.append

    def lost_answer(events, receipts=()):
        append(events, receipts)
        client.service.log.position -= len(events)  # as if the commit had been reported as failed
        from tsnn.serve.eventlog import LogError

        raise LogError("the event log took none of the events (disk I/O error); free the disk and send again.")

    monkeypatch.setattr(client.service.log, "append", lost_answer)
    events = some_events(4, prefix="k")
    assert client.post("/events", json=events).status_code == 503
    monkeypatch.setattr(client.service.log, "append", append)
    again = client.post("/events", json=events).json()
    assert (again["applied"], again["duplicates"], again["position"]) == (0, 4, 4)
    assert client.service.applied == 4


def test_a_snapshot_that_fails_is_told_and_nothing_stops(serve, run):
    said: list[str] = []
    client = serve(say=said.append)
    client.post("/events", json=some_events(5))
    (run / "online" / "snapshots").write_text("a file where the folder should be")
    client.service.snapshot()
    assert client.service.snapshot_position == 0
    assert len(said) == 1
    (run / "online" / "snapshots").unlink()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (3000, hard))  # room for some of its files
    try:
        client.service.snapshot()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert len(said) == 2
    assert list((run / "online" / "snapshots").iterdir()) == []
    assert client.post("/events", json=some_events(5, start=CLOCK + 9)).status_code == 200


def test_a_second_process_is_refused(serve, run):
    client = serve()
    with pytest.raises(RunError, match="another process serves"):
        Service(run)
    assert client.post("/events", json=EVENT).status_code == 200


def test_a_log_without_its_run_is_refused(serve, run):
    client = serve()
    client.post("/events", json=some_events(5))
    client.service.close()
    (run / "weights.safetensors").write_bytes((run / "weights.safetensors").read_bytes() + b" ")
    with pytest.raises(RunError, match="belongs to another run"):
        Service(run)


def test_snapshots_ahead_of_the_log_are_refused(serve, run):
    client = serve()
    client.post("/events", json=some_events(5))
    client.service.close()
    for path in (run / "online").glob("events.*"):
        path.unlink()
    with pytest.raises(RunError, match="ahead of the event log"):
        Service(run)
    assert (run / "online" / "snapshots" / "000000000005" / "state.safetensors").exists()


def test_a_folder_that_is_no_run_is_refused_and_left_alone(tmp_path):
    with pytest.raises(RunError, match="not a finished run"):
        Service(tmp_path)
    assert list(tmp_path.iterdir()) == []


# Looking at it


def test_health_and_metrics_say_where_it_stands(serve):
    client = serve()
    client.post("/events", json=some_events(9))
    client.get("/recommend?src=1&edge_type=0")
    health = client.get("/health").json()
    assert (health["status"], health["position"], health["events"]) == ("ok", 9, 209)
    assert health["events_per_second"] > 0
    assert health["latency_ms"]["/recommend"]["p99"] > 0
    text = client.get("/metrics").text
    assert "tsnn_events_applied_total 9.0" in text
    assert 'tsnn_requests_total{path="/events",status="200"} 1.0' in text
    assert "tsnn_log_position 9.0" in text
    client.get("/a/path/nobody/knows")
    assert 'path="other",status="404"' in client.get("/metrics").text


def test_every_request_is_one_json_line(serve):
    lines: list[str] = []

    class Keep(logging.Handler):
        def emit(self, record):
            lines.append(self.format(record))

    handler = Keep()
    handler.setFormatter(JsonLines())
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        serve().post("/events", json=EVENT)
    finally:
        logger.removeHandler(handler)
        logger.setLevel(logging.NOTSET)
    line = json.loads(lines[0])
    assert (line["event"], line["path"], line["status"], line["level"]) == ("request", "/events", 200, "info")
    assert line["ms"] > 0


def test_drift_is_the_distance_of_the_frames(serve):
    torch.manual_seed(0)
    F, F0 = torch.randn(4, 3, 6, dtype=torch.float64), torch.randn(4, 3, 6, dtype=torch.float64)
    F[1, 2] = 0.0  # a reflector that is none
    dense = [
        torch.linalg.matrix_norm(frame_matrix(a, 1e-6) - frame_matrix(b, 1e-6)) for a, b in zip(F, F0, strict=True)
    ]
    assert torch.allclose(turn(F, F0, 1e-6), torch.stack(dense))
    assert torch.allclose(turn(F, F, 1e-6), torch.zeros(4, dtype=torch.float64), atol=1e-6)
    client = serve()
    for event in some_events(6):
        client.post("/events", json={**event, "src": "node 4"})
    trace = client.get("/node", params={"id": "node 4"}).json()["drift"]
    assert len(trace) == 6
    assert len({point["drift"] for point in trace}) == 6
    assert [point["t"] for point in trace] == sorted(point["t"] for point in trace)


def test_an_open_address_needs_a_token(run):
    from tsnn.cli.serve import serve as verb

    with pytest.raises(ConfigError, match="set a token"):
        verb(run, host="0.0.0.0", token=None)
    with pytest.raises(ConfigError, match="cannot listen"):
        verb(run, host="192.0.2.1", token="secret")
    assert not (run / "online").exists()
