"""What is done to a service from outside, or by a damaged state: it survives, or refuses in a sentence."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import threading
import time

import numpy as np
import pytest

from tests.serve.crash import serving
from tests.serve.runs import some_events
from tsnn.bench.serve import resident_mb
from tsnn.errors import RunError
from tsnn.online.predictor import Predictor
from tsnn.serve.gate import BODIES, Gate, is_loopback
from tsnn.serve.metrics import Metrics
from tsnn.serve.protocol import MAX_HEAD
from tsnn.serve.schemas import MAX_EVENTS

LINE = b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n"


def answer_to(port: int, parts, timeout: float = 20.0) -> bytes:
    """What the service says to these bytes before it hangs up."""
    with socket.create_connection(("127.0.0.1", port), timeout) as client:
        try:
            for part in parts:
                client.sendall(part)
        except OSError:
            pass  # it has hung up; what it said may still be there
        try:
            return client.recv(65_536)
        except OSError:
            return b""


@pytest.mark.slow
def test_heads_and_clients_that_do_not_read(run, tmp_path):
    with serving(run, tmp_path / "log") as (process, port):
        before = resident_mb(process.pid)
        piece = b"x" * 2**20
        for head in (b"X-Long: ", b"GET /"):  # in a field, and in the address
            start = [LINE + head] if head.startswith(b"X") else [head]
            said = answer_to(port, [*start, *[piece] * 64])
            assert said[:12] in (b"HTTP/1.1 431", b"HTTP/1.1 400", b"")  # or it has hung up already
        many = [b"X-%d: %s\r\n" % (i, b"y" * 100) for i in range(40 * MAX_HEAD // 100)]
        assert answer_to(port, [LINE, *many, b"\r\n"])[:12] in (b"HTTP/1.1 431", b"HTTP/1.1 400", b"")
        assert resident_mb(process.pid) < before + 60
        began = time.monotonic()
        assert answer_to(port, [b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"]).startswith(b"HTTP/1.1 200")
        assert time.monotonic() - began < 2
        chunked = b"POST /events HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX-Trailer: "
        answer_to(port, [chunked, *[piece] * 16])
        assert resident_mb(process.pid) < before + 60
        body = json.dumps(some_events(4)).encode()
        post = (
            b"POST /events HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
        )
        assert answer_to(port, [post % len(body) + body]).startswith(b"HTTP/1.1 200")
        assert slowest_health_during(port, post, large_and_wrong()) < 2
        deaf = socket.create_connection(("127.0.0.1", port))
        threading.Thread(target=_send_until_full, args=(deaf, (LINE + b"\r\n") * 2000), daemon=True).start()
        time.sleep(1.0)
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
        deaf.close()
    assert (run / "online" / "snapshots" / "000000000004").is_dir()


def large_and_wrong() -> bytes:
    """As many events as one request may have, of long names; the last is refused, and so are all."""
    events = [{**some_events(1)[0], "src": f"{i:0140d}"} for i in range(MAX_EVENTS)]
    body = json.dumps([*events[:-1], {**events[-1], "edge_type": 99}], separators=(",", ":")).encode()
    assert 3 * 2**20 < len(body) <= 4 * 2**20
    return body


def slowest_health_during(port: int, post: bytes, body: bytes) -> float:
    """The longest wait for another answer, in seconds, while such bodies are parsed."""
    said: list[bytes] = []
    parts = [post % len(body), body]
    senders = [threading.Thread(target=lambda: said.append(answer_to(port, parts))) for _ in range(3)]
    for sender in senders:
        sender.start()
    slowest = 0.0
    while any(sender.is_alive() for sender in senders):
        began = time.monotonic()
        assert answer_to(port, [b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"]).startswith(b"HTTP/1.1 200")
        slowest = max(slowest, time.monotonic() - began)
    assert [one[:12] for one in said] == [b"HTTP/1.1 422"] * 3
    return slowest


def _send_until_full(client: socket.socket, data: bytes) -> None:
    client.settimeout(5)
    try:
        client.sendall(data)
    except OSError:
        return


def test_scores_that_are_no_numbers_are_told_not_served(serve, run):
    client = serve()
    predictor = client.service.predictor
    predictor._state.store.h[:, 0] = float("nan")
    predictor._state.store._fresh[:] = False
    with pytest.raises(RunError, match="no numbers"):
        predictor.recommend(1, edge_type=0)
    with pytest.raises(RunError, match="no numbers"):
        predictor.score_pairs([1, 3], [3, 1], edge_type=0)
    assert client.get("/health").status_code == 200
    answer = client.get("/recommend?src=1&edge_type=0")
    assert answer.status_code == 503
    assert "no numbers" in answer.json()["error"]
    health = client.get("/health")
    assert health.status_code == 503
    assert "no numbers" in health.json()["status"]
    assert client.post("/events", json=some_events(2)).status_code == 503
    client.service.close()
    assert not list((run / "online").glob("snapshots/*"))  # what is damaged is not saved
    assert np.isfinite(Predictor.load(run).score(1, 3, edge_type=0))


def gate(max_body: int, application) -> Gate:
    return Gate(application, Metrics(), frozenset(), None, max_body)


def scope(length: int | None = None):
    headers = [(b"host", b"localhost")] + ([(b"content-length", b"%d" % length)] if length else [])
    return {"type": "http", "method": "POST", "path": "/events", "headers": headers, "query_string": b""}


def test_a_body_that_is_too_large_is_taken_off_the_line_before_it_is_refused():
    parts = [{"type": "http.request", "body": b"x" * 500, "more_body": i < 9} for i in range(10)]
    taken, sent = [], []

    async def receive():
        taken.append(parts[len(taken)])
        return taken[-1]

    async def send(message):
        sent.append((message, len(taken)))

    asyncio.run(gate(1000, None)(scope(5000), receive, send))
    assert sent[0][0]["status"] == 413
    assert sent[0][1] == 10


def test_bodies_at_work_are_bounded_by_bytes():
    statuses, leave = [], asyncio.Event()

    async def application(_scope, _receive, send):
        await leave.wait()
        await send({"type": "http.response.start", "status": 200, "headers": []})

    async def send(message):
        if message["type"] == "http.response.start":
            statuses.append(message["status"])

    async def receive():
        return {"type": "http.request", "body": b"x" * 900, "more_body": False}

    async def crowd():
        bounded = gate(1000, application)
        at_once = [asyncio.create_task(bounded(scope(), receive, send)) for _ in range(BODIES + 3)]
        await asyncio.sleep(0.1)
        leave.set()
        await asyncio.gather(*at_once)
        before = list(statuses)
        await bounded(scope(), receive, send)  # room again
        return before, statuses[-1]

    before, after = asyncio.run(crowd())
    assert sorted(before) == [200] * BODIES + [429] * 3
    assert after == 200


def test_too_many_events_in_one_request_are_refused(serve):
    client = serve(max_body=2**24)
    event = {"src": 1, "dst": 3, "t": 500, "msg": [0.0, 1.0], "edge_type": 0}
    answer = client.post("/events", json=[event] * (MAX_EVENTS + 1))
    assert answer.status_code == 422
    assert f"at most {MAX_EVENTS} items" in answer.json()["error"]


def test_every_loopback_address_answers_under_its_own_name(serve):
    client = serve()
    for name in ("localhost:8000", "127.0.0.1", "127.0.0.2:9", "[::1]:8000"):
        assert client.get("/health", headers={"Host": name}).status_code == 200
    for name in ("evil.example", "127.0.0.1.evil.example", "203.0.113.1", "localhost.evil.example", ""):
        assert client.get("/health", headers={"Host": name}).status_code == 403
    assert is_loopback("::1")


def test_five_and_five_as_a_fraction_are_one_request(serve):
    client = serve()
    event = {"src": 1, "dst": 3, "msg": [0.0, 1.0], "edge_type": 0}
    first = client.post("/events", json={**event, "t": 500}, headers={"Idempotency-Key": "once"})
    again = client.post("/events", json={**event, "t": 500.0}, headers={"Idempotency-Key": "once"})
    assert (first.status_code, again.status_code) == (200, 200)
    assert again.json()["duplicates"] == 1


def test_newcomers_beyond_the_limit_are_refused_and_known_nodes_go_on(serve):
    client = serve(max_nodes=22)
    event = {"src": 1, "dst": 3, "t": 500, "msg": [0.0, 1.0], "edge_type": 0}
    assert client.post("/events", json=[event, {**event, "src": "new"}, {**event, "dst": "newer"}]).is_success
    refused = client.post("/events", json=[event, {**event, "src": "newest"}])
    assert refused.status_code == 422
    assert "more than 22 nodes" in refused.json()["error"]
    assert client.service.predictor.num_nodes == 22
    assert client.post("/events", json={**event, "src": "new", "dst": "newer"}).is_success


def test_whoever_watches_needs_no_token_and_learns_nothing(serve):
    client = serve(token="secret")
    nobody = {"Authorization": "", "Host": "203.0.113.7:8000"}
    for path in ("/health/live", "/health/ready"):
        answer = client.get(path, headers=nobody)
        assert (answer.status_code, answer.json()) == (200, {"status": "ok"})
    client.service._broken = RunError("a secret reason.")
    answer = client.get("/health/ready", headers=nobody)
    assert (answer.status_code, answer.json()) == (503, {"status": "not ready"})
    assert client.get("/health/live", headers=nobody).status_code == 200
    assert client.get("/health", headers=nobody).status_code == 401
