"""The live service under load, on loopback only: durable events/s, and latency of recommendations while events come in.

Every measurement is bounded in count and time, and every server is a process of its own that is stopped at the end.
Weights are trained for an epoch, so that rankings, and what a shortlist misses of them, are those of a model that has
learned something. Times tick in whole units of `TICK` events, like seconds.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tsnn.bench.machine import machine_card
from tsnn.bench.scale import scale_stream
from tsnn.config import Config
from tsnn.data.question import Question
from tsnn.data.split import split_by_time
from tsnn.evaluation.evaluate import validation_metric
from tsnn.evaluation.model import ModelScorer
from tsnn.training.run import save_run
from tsnn.training.trainer import Trainer

NODES = (1_000, 10_000, 100_000)
BATCH, CLIENTS, STREAMS, TICK = 100, 16, 4, 200
# The events that come in while recommendations are timed: events/s, events a request, and enough clients for the rate
# to hold even while answers are slow.
BACKGROUND_RATE, BACKGROUND_BATCH, BACKGROUND_CLIENTS = 1000, 20, 25
PACE = BACKGROUND_CLIENTS * BACKGROUND_BATCH / BACKGROUND_RATE  # seconds from one request of a client to its next
HISTORY_PER_NODE, MAX_HISTORY = 5, 200_000
TOP, COMPARED = 10, 200  # recommendations asked for, and sources whose two answers are compared
MEMORY_READINGS = 5
START_SECONDS, STOP_SECONDS = 180.0, 60.0


class Server(NamedTuple):
    """A running server."""

    port: int
    pid: int


def bench_serve(
    nodes: tuple[int, ...] = NODES, seconds: float = 20.0, queries: int = 1000, max_events: int = 200_000
) -> dict[str, Any]:
    """All figures; each phase ends after `seconds` or its count, whichever comes first."""
    with tempfile.TemporaryDirectory() as scratch:
        by_nodes = [_with_nodes(Path(scratch), n, seconds, queries) for n in nodes]
        ingest = _ingest(Path(scratch), nodes[0], seconds, max_events)
    return {"machine": machine_card(), "config": Config().model_dump(), "ingest": ingest, "recommend": by_nodes}


def make_run(folder: Path, num_nodes: int, seed: int = 0) -> float:
    """A run after one epoch over a history of events; its clock."""
    stream = scale_stream(min(HISTORY_PER_NODE * num_nodes, MAX_HISTORY), num_nodes, seed)
    config, split = Config.build(overrides={"train.epochs": 1}), split_by_time(stream)
    measure = validation_metric(split, Question.of(config.train))
    trainer = Trainer(config, split, lambda model: measure(ModelScorer(model, stream)))
    folder.mkdir()
    save_run(folder, trainer.run().model.eval(), stream, {"metrics": {}})
    return float(stream.t[-1])


@contextmanager
def running_server(run: Path, *arguments: str) -> Iterator[Server]:
    """A server on a free port of this machine; it is stopped when the block ends."""
    log = run.with_suffix(".log")
    command = [sys.executable, "-m", "tsnn.cli.serve", str(run), "--port", "0", *arguments]
    with log.open("w") as sink:
        process = subprocess.Popen(command, stderr=sink, stdout=sink)
    try:
        yield Server(_wait_until_ready(process, log), process.pid)
    finally:
        process.terminate()
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait_until_ready(process: subprocess.Popen[bytes], log: Path) -> int:
    until = time.monotonic() + START_SECONDS
    while time.monotonic() < until and process.poll() is None:
        for line in log.read_text().splitlines():
            if '"ready"' in line:
                return int(json.loads(line)["url"].rpartition(":")[2])
        time.sleep(0.05)
    raise RuntimeError(f"the server did not start: {log.read_text()[-500:]}")


class Connection:
    """One HTTP connection, kept open. A full HTTP client would take more processor time than the service."""

    def __init__(self, port: int) -> None:
        self._port = port

    async def __aenter__(self) -> Connection:
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._writer.close()

    async def post(self, path: str, value: Any) -> tuple[int, Any]:
        """Send JSON; status and answer."""
        body = json.dumps(value).encode()
        head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        return await self._exchange(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)

    async def get(self, path: str) -> tuple[int, Any]:
        """Status and answer."""
        return await self._exchange(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())

    async def _exchange(self, request: bytes) -> tuple[int, Any]:
        self._writer.write(request)
        head = await self._reader.readuntil(b"\r\n\r\n")
        lines = head.decode("latin-1").lower().split("\r\n")
        length = next(int(line.partition(":")[2]) for line in lines if line.startswith("content-length"))
        body = await self._reader.readexactly(length)
        return int(lines[0].split()[1]), json.loads(body)


class EventSource:
    """Events whose times tick on; half of the pairs come again, as in real logs."""

    def __init__(self, num_nodes: int, clock: float, seed: int = 1) -> None:
        stream = scale_stream(100_000, num_nodes, seed)
        self.sources, self._dst = stream.src.tolist(), stream.dst.tolist()
        self._clock = int(clock) + 1
        self.sent = 0

    def take(self, n: int) -> list[dict[str, Any]]:
        """The next events."""
        rows = range(self.sent, self.sent + n)
        self.sent += n
        size = len(self._dst)
        return [{"src": self.sources[i % size], "dst": self._dst[i % size], "t": self._clock + i // TICK} for i in rows]

    def at_least_now(self, events: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """The same events with later times, for another try after events of other clients have moved the clock on."""
        now = self._clock + self.sent // TICK
        return [{**event, "t": now} for event in events]


class Tally:
    """Counts and latencies of one phase of the benchmark."""

    def __init__(self) -> None:
        self.events = self.refused = 0
        self.latencies: list[float] = []

    def row(self, seconds: float) -> dict[str, Any]:
        """Rates and percentiles."""
        return {"events": self.events, "seconds": seconds, "events_per_s": self.events / seconds,
                "requests": len(self.latencies), "overtaken": self.refused, **percentiles(self.latencies)}  # fmt: skip


def percentiles(seconds: list[float]) -> dict[str, float]:
    """Median and tail in milliseconds."""
    values = np.array(seconds or [np.nan]) * 1e3
    return {"p50_ms": float(np.percentile(values, 50)), "p99_ms": float(np.percentile(values, 99))}


async def send_events(
    port: int, source: EventSource, tally: Tally, *, size: int, until: Callable[[], bool], pause: float = 0.0
) -> None:
    """One client, which sends one request after another until it is told to stop; `pause` is the time between."""
    async with Connection(port) as connection:
        due = time.perf_counter()
        while not until():
            await _send_once(connection, source, tally, size)
            due += pause
            await asyncio.sleep(max(0.0, due - time.perf_counter()) if pause else 0.0)


async def _send_once(connection: Connection, source: EventSource, tally: Tally, size: int) -> None:
    events, began = source.take(size), time.perf_counter()
    while True:
        status, answer = await connection.post("/events", events)
        if status == 200:
            break
        if status != 422:
            raise RuntimeError(f"the server answered {status}: {answer}")
        tally.refused += 1
        events = source.at_least_now(events)
    tally.latencies.append(time.perf_counter() - began)
    tally.events += answer["applied"]


def _ingest(scratch: Path, num_nodes: int, seconds: float, max_events: int) -> dict[str, Any]:
    run = scratch / "ingest"
    source = EventSource(num_nodes, make_run(run, num_nodes))
    with running_server(run) as server:
        warm_up(server, source)
        batches = asyncio.run(_flood(server, source, STREAMS, BATCH, seconds, max_events))
        singles = asyncio.run(_flood(server, source, CLIENTS, 1, seconds, max_events))
    return {"batches_of_100": batches, "one_a_request_16_clients": singles}


async def _flood(
    server: Server, source: EventSource, clients: int, size: int, seconds: float, max_events: int
) -> dict[str, Any]:
    tally = Tally()
    began = time.perf_counter()
    spent = cpu_seconds(server.pid)

    memory: list[dict[str, float]] = []

    def over() -> bool:
        return time.perf_counter() - began > seconds or tally.events >= max_events

    async def watch_memory() -> None:
        """A reading at the start, now and then, and at the end."""
        ended = False
        while not ended:
            ended = over()
            if ended or tally.events >= max_events // MEMORY_READINGS * len(memory):
                memory.append({"events": tally.events, "resident_mb": resident_mb(server.pid)})
            await asyncio.sleep(0.0 if ended else 0.05)

    senders = [send_events(server.port, source, tally, size=size, until=over) for _ in range(clients)]
    await asyncio.gather(watch_memory(), *senders)
    cost = (cpu_seconds(server.pid) - spent) / max(tally.events, 1)
    return {**tally.row(time.perf_counter() - began), "server_cpu_us_per_event": 1e6 * cost, "memory": memory}


def _with_nodes(scratch: Path, num_nodes: int, seconds: float, queries: int) -> dict[str, Any]:
    run = scratch / f"nodes-{num_nodes}"
    source = EventSource(num_nodes, make_run(run, num_nodes))
    with running_server(run) as server:
        warm_up(server, source)
        row: dict[str, Any] = {"num_nodes": num_nodes}
        for name, exact in (("exact", True), ("two_stage", False)):
            row[name] = asyncio.run(_ask_while_ingesting(server, source, exact, seconds, queries))
        row["two_stage"][f"recall_at_{TOP}"] = asyncio.run(_recall(server, source, min(COMPARED, queries)))
        row["resident_mb"] = resident_mb(server.pid)
    return row


async def _ask_while_ingesting(
    server: Server, source: EventSource, exact: bool, seconds: float, queries: int
) -> dict[str, Any]:
    latencies: list[float] = []
    tally = Tally()
    done = asyncio.Event()

    async def feed(client: int) -> None:
        await asyncio.sleep(client / BACKGROUND_CLIENTS * PACE)
        await send_events(server.port, source, tally, size=BACKGROUND_BATCH, until=done.is_set, pause=PACE)

    feeding = asyncio.gather(*map(feed, range(BACKGROUND_CLIENTS)))
    await asyncio.sleep(PACE)  # by now every client has begun
    began, before = time.perf_counter(), tally.events
    async with Connection(server.port) as connection:
        while len(latencies) < queries and time.perf_counter() - began < seconds:
            asked = time.perf_counter()
            await _ranked(connection, _question(source, len(latencies), exact))
            latencies.append(time.perf_counter() - asked)
    rate = (tally.events - before) / (time.perf_counter() - began)
    done.set()
    await feeding
    return {"queries": len(latencies), **percentiles(latencies), "ingest_events_per_s": rate,
            "ingest_p99_ms": percentiles(tally.latencies)["p99_ms"]}  # fmt: skip


def _question(source: EventSource, index: int, exact: bool) -> str:
    asked = source.sources[(index * 7919) % len(source.sources)]
    return f"/recommend?src={asked}&k={TOP}&exact={str(exact).lower()}&candidates=all"


async def _recall(server: Server, source: EventSource, sources: int) -> float:
    """The share of the exact answers that the two-stage answers hold, measured while no events come in."""
    shares = []
    async with Connection(server.port) as connection:
        for index in range(sources):
            every, few = [await _ranked(connection, _question(source, index, exact)) for exact in (True, False)]
            shares.append(len(every & few) / len(every))
    return float(np.mean(shares))


async def _ranked(connection: Connection, path: str) -> set[Any]:
    status, answer = await connection.get(path)
    if status != 200:
        raise RuntimeError(f"the server answered {status}: {answer}")
    return {row["dst"] for row in answer["destinations"]}


def warm_up(server: Server, source: EventSource) -> None:
    """Let every kernel be compiled before the clock starts."""

    async def once() -> None:
        async with Connection(server.port) as connection:
            for size in (1, BACKGROUND_BATCH, BATCH):
                await _send_once(connection, source, Tally(), size)
            for exact in (True, False):
                await connection.get(_question(source, 0, exact))

    asyncio.run(once())


def cpu_seconds(pid: int) -> float:
    """Processor time that a process has used so far; unlike wall time, other work on the machine does not change it."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident_mb(pid: int) -> float:
    """Memory of a process at this moment."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024
