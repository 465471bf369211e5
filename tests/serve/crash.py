"""Kill -9 at random moments during mixed ingest and query at full load.

After each kill the log must hold every acknowledged event exactly once, and what start-up makes of snapshot and tail
must equal, bit for bit, a predictor that was fed the same events one by one and never interrupted. The restarted server
must then give exactly that predictor's scores.

    python -m tests.serve.crash --kills 200
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.serve.runs import CLOCK, FEATURES, RELATIONS, as_event, make_small_run
from tests.serve.states import differences, fingerprint
from tsnn.bench.serve import Connection
from tsnn.online.event import Event
from tsnn.online.predictor import Predictor
from tsnn.serve.service import restore, run_identity

SENDERS, SINGLES, ASKERS, TICK = 4, 4, 2, 40
SNAPSHOT_EVERY = 150


@dataclass
class Client:
    """Everything the outside world knows: what was sent, what was acknowledged, what is still open."""

    rng: random.Random
    sent: dict[str, Event] = field(default_factory=dict)
    acknowledged: set[str] = field(default_factory=set)
    open: list[list[dict[str, Any]]] = field(default_factory=list)
    answers: int = 0

    def batch(self, size: int) -> list[dict[str, Any]]:
        """New events, with their own keys."""
        events = []
        for _ in range(size):
            number = len(self.sent)
            a, b = (self.rng.randrange(20 + number // 10) for _ in range(2))  # somebody new all the time
            event = {
                "src": a if a % 2 else f"node {a}",
                "dst": b if b % 2 else f"node {b}",
                "t": CLOCK + 1 + number // TICK,
                "msg": [round(self.rng.gauss(0, 1), 3) for _ in range(FEATURES)],
                "edge_type": self.rng.randrange(RELATIONS),
                "key": f"event-{number}",
            }
            self.sent[event["key"]] = as_event(event)
            events.append(event)
        return events

    async def send(self, port: int, size: int) -> None:
        """Send until the server dies; what it has not answered then stays open."""
        async with Connection(port) as connection:
            while True:
                await self.post(connection, self.batch(self.rng.randint(1, size)))

    async def post(self, connection: Connection, events: list[dict[str, Any]]) -> None:
        """One request; a refusal (overtaken by a later time) closes it, no answer leaves it open."""
        self.open.append(events)
        status, answer = await connection.post("/events", events)
        self.open.remove(events)
        self.answers += 1
        if status == 200:
            assert answer["applied"] + answer["duplicates"] == len(events)
            self.acknowledged |= {event["key"] for event in events}
        elif status not in (422, 429):
            raise AssertionError(f"status {status}: {answer}")

    async def resend(self, port: int) -> None:
        """Try again what was open when the server died; the keys keep it from happening twice."""
        pending, self.open = self.open, []
        async with Connection(port) as connection:
            for events in pending:
                await self.post(connection, events)

    async def ask(self, port: int) -> None:
        """Ask until the server dies."""
        async with Connection(port) as connection:
            while True:
                status, answer = await connection.get(f"/recommend?src={self.rng.randrange(1, 60, 2)}&edge_type=1&k=5")
                assert status == 200, answer
                self.answers += 1


def start(run: Path, log: Path) -> tuple[subprocess.Popen[bytes], int]:
    """A server process and its port."""
    command = [sys.executable, "-m", "tsnn.cli.serve", str(run), "--port", "0"]
    with log.open("wb") as sink:
        process = subprocess.Popen([*command, "--snapshot-every", str(SNAPSHOT_EVERY)], stdout=sink, stderr=sink)
    until = time.monotonic() + 120
    while time.monotonic() < until and process.poll() is None:
        for line in log.read_text().splitlines():
            if '"ready"' in line:
                return process, int(json.loads(line)["url"].rpartition(":")[2])
        time.sleep(0.02)
    process.kill()
    raise AssertionError(f"the server did not start: {log.read_text()[-2000:]}")


async def load_and_kill(process: subprocess.Popen[bytes], port: int, client: Client) -> None:
    """Full load from all sides, and a kill in the middle of it."""
    await client.resend(port)
    work = [client.send(port, 20) for _ in range(SENDERS)] + [client.send(port, 1) for _ in range(SINGLES)]
    tasks = [asyncio.create_task(job) for job in work + [client.ask(port) for _ in range(ASKERS)]]
    await asyncio.sleep(client.rng.uniform(0.02, 1.0))
    process.send_signal(signal.SIGKILL)
    process.wait()
    ended = await asyncio.gather(*tasks, return_exceptions=True)
    for error in ended:
        if not isinstance(error, OSError | asyncio.IncompleteReadError):
            raise AssertionError(f"a client ended with {error!r}")


def check(run: Path, client: Client, reference: Predictor, applied: int) -> int:
    """The log against the clients, and the restored state against the uninterrupted one; events in the log."""
    log, restored, position = restore(run, run_identity(run), lambda sentence: print(sentence, file=sys.stderr))
    events = [event for block in log.read(0) for event in block]
    assert log.position == len(events)
    keys = [event.key for event in events]
    assert len(set(keys)) == len(keys), "an event is there twice"
    assert client.acknowledged <= set(keys), "an acknowledged event is lost"
    assert all(client.sent[event.key] == event for event in events), "an event has changed"
    for block in log.read(position):
        restored.observe_checked(block)
    for event in events[applied:]:
        reference.observe_checked([event])
    if fingerprint(restored) != fingerprint(reference):
        apart = ", ".join(differences(restored, reference))
        raise AssertionError(f"the state differs from that of an uninterrupted replay: {apart}")
    log.close()
    return len(events)


async def compare_scores(port: int, reference: Predictor, position: int) -> None:
    """The running server against the uninterrupted predictor."""
    async with Connection(port) as connection:
        _, health = await connection.get("/health")
        assert (health["position"], health["clock"]) == (position, reference.clock)
        for src in ("node 4", 7, "node 58"):
            question = {"src": src, "dst": [1, 3, "node 6", 59, "nobody"], "t": reference.clock + 1, "edge_type": 2}
            _, answer = await connection.post("/score", question)
            expected = reference.score(src, question["dst"], question["t"], 2)
            assert answer["scores"] == expected, "the server's scores differ"


@contextlib.contextmanager
def serving(run: Path, log: Path) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """A server that does not outlive the block."""
    process, port = start(run, log)
    try:
        yield process, port
    finally:
        process.kill()
        process.wait()


def crash(folder: Path, kills: int, seed: int = 0, report: bool = False) -> dict[str, int]:
    """The whole test; raises AssertionError with what went wrong."""
    run = make_small_run(folder / "run")
    client, reference, applied = Client(random.Random(seed)), Predictor.load(run), 0
    for kill in range(1, kills + 1):
        with serving(run, folder / "server.log") as (process, port):
            asyncio.run(compare_scores(port, reference, applied))
            asyncio.run(load_and_kill(process, port, client))
        applied = check(run, client, reference, applied)
        if report:
            print(
                f"kill {kill}: {applied} events, {len(client.acknowledged)} acknowledged", file=sys.stderr, flush=True
            )
    with serving(run, folder / "server.log") as (process, port):
        asyncio.run(compare_scores(port, reference, applied))
        process.terminate()
        assert process.wait(60) == 0
    assert check(run, client, reference, applied) == applied
    return {"kills": kills, "events": applied, "acknowledged": len(client.acknowledged), "answers": client.answers}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Kill the server many times and see that nothing is lost.")
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        print(json.dumps(crash(Path(scratch), arguments.kills, arguments.seed, report=True)))
