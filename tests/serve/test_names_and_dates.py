"""The service of a run whose times are dates and whose relations have names."""

from __future__ import annotations

import shutil

import pytest

from tests.online.streams import dated_stream, save_stream

EVENT = {"src": "user1", "dst": "item1", "t": "2024-03-03T20:00:00Z", "edge_type": "pay"}


@pytest.fixture(scope="module")
def dated_run(tmp_path_factory):
    return save_stream(tmp_path_factory.mktemp("served") / "run", dated_stream())


@pytest.fixture
def client(serve, dated_run, tmp_path):
    return serve(shutil.copytree(dated_run, tmp_path / "dated"))


def test_events_and_answers_speak_of_dates_and_names(client):
    assert client.get("/health").json()["clock"] == "2024-03-03T19:00:00Z"
    assert client.get("/health").json()["relation_names"] == ["buy", "look", "pay"]
    assert client.post("/events", json=EVENT).json()["clock"] == "2024-03-03T20:00:00Z"
    node = client.get("/node", params={"id": "user1"}).json()
    assert node["recent"][0] == {"node": "item1", "t": "2024-03-03T20:00:00Z", "edge_type": "pay"}
    assert node["drift"][-1]["t"] == "2024-03-03T20:00:00Z"
    question = {"src": "user1", "edge_type": "pay", "t": "2024-03-03 21:00"}
    ranked = client.get("/recommend", params=question).json()
    assert ranked["t"] == "2024-03-03T21:00:00Z"
    first = ranked["destinations"][0]
    scored = client.post("/score", json={**question, "dst": [first["dst"]]}).json()
    assert scored["t"] == ranked["t"]
    assert scored["scores"] == [pytest.approx(first["score"])]
    assert client.get("/explain", params={**question, "dst": "item1"}).is_success
    assert client.get("/recommend", params={**question, "t": "now"}).json()["t"] > "2024-03-04"


def test_the_log_keeps_numbers_and_a_restart_reads_them(client, serve):
    client.post("/events", json=EVENT)
    folder, service = client.service.home.parent, client.service
    [[logged]] = service.log.read(0)
    assert (logged.t, logged.edge_type) == (1709496000000000, 2)
    service.close()
    assert serve(folder).get("/health").json()["clock"] == "2024-03-03T20:00:00Z"


def test_sent_again_in_another_form_it_is_the_same_event(client):
    keyed = {**EVENT, "key": "visit-1"}
    assert client.post("/events", json=keyed).json()["applied"] == 1
    for same in ("2024-03-03T21:00:00+01:00", "2024-03-03 20:00", 1709496000000000):
        assert client.post("/events", json={**keyed, "t": same}).json()["duplicates"] == 1
    assert "another event" in client.post("/events", json={**keyed, "edge_type": "buy"}).json()["error"]


def test_an_event_of_now_is_taken_once(client):
    now = {**EVENT, "t": "now"}
    header = {"Idempotency-Key": "request-1"}
    assert client.post("/events", json=now, headers=header).json()["applied"] == 1
    assert client.post("/events", json=now, headers=header).json()["duplicates"] == 1
    answer = client.post("/events", json={**now, "key": "visit-2"})
    assert answer.status_code == 422
    assert "cannot be of now" in answer.json()["error"]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"edge_type": "pey"}, "event 0: relation 'pey' is unknown, the known ones are buy, look, pay; did you mean"),
        ({"edge_type": 2}, "event 0: relation 2 is unknown"),
        ({"edge_type": None}, "event 0: no relation is given"),
        ({"edge_type": 1.5}, "edge_type: must be the name of a relation"),
        ({"t": "soon"}, "t: must be a number from 0 to below 2^62 or, where times are dates, an ISO date or now"),
        ({"t": "2024-03-01"}, "event 0: time 2024-03-01T00:00:00Z is before the clock, 2024-03-03T19:00:00Z"),
        ({"t": 1709496000000000000}, "event 0: time 1709496000000000000 is no date from 1970 on in microseconds"),
    ],
)
def test_what_cannot_be_meant_changes_nothing(client, changes, words):
    answer = client.post("/events", json={**EVENT, **changes})
    assert answer.status_code == 422
    assert answer.json()["error"].startswith(words)
    assert client.service.log.position == 0


def test_a_run_of_numbers_takes_no_dates(serve):
    client = serve()
    for url in ("/recommend?src=1&edge_type=0&t=now", "/recommend?src=1&edge_type=0&t=2024-03-01"):
        assert client.get(url).json()["error"].endswith("give it in the unit of the training data.")
    assert client.get("/recommend?src=1&edge_type=0&t=soon").json()["error"].startswith("t: 'soon' must be a number")
    assert isinstance(client.get("/health").json()["clock"], int)
