"""The load generator, small: it measures what it says, against a real server process, and leaves none behind."""

from __future__ import annotations

import json
import os

import pytest

from tsnn.bench.serve import EventSource, bench_serve, make_run, percentiles, resident_mb, running_server


@pytest.mark.slow
def test_every_figure_is_there_and_bounded():
    result = bench_serve(nodes=(150,), seconds=1.5, queries=200, max_events=400)
    json.dumps(result)
    batches, singles = result["ingest"]["batches_of_100"], result["ingest"]["one_a_request_16_clients"]
    assert 400 <= batches["events"] <= 400 + 4 * 100  # each of the four streams may have had one on its way
    assert batches["events"] == 100 * batches["requests"]
    assert singles["events"] == singles["requests"] > 0
    (row,) = result["recommend"]
    assert row["num_nodes"] == 150
    for kind in ("exact", "two_stage"):
        assert 0 < row[kind]["queries"] <= 200
        assert 0 < row[kind]["p50_ms"] <= row[kind]["p99_ms"]
        assert row[kind]["ingest_events_per_s"] > 0
    assert 0 < row["two_stage"]["recall_at_10"] <= 1
    readings = batches["memory"]
    assert [reading["events"] for reading in readings] == sorted(reading["events"] for reading in readings)
    assert readings[0]["events"] == 0
    assert all(reading["resident_mb"] > 50 for reading in readings)


@pytest.mark.slow
def test_the_server_is_gone_afterwards(tmp_path):
    make_run(tmp_path / "run", 50)
    with running_server(tmp_path / "run") as server:
        assert resident_mb(server.pid) > 50
    with pytest.raises(ProcessLookupError):
        os.kill(server.pid, 0)


def test_times_of_the_source_never_go_back():
    source = EventSource(50, clock=99.5)
    events = source.take(500) + source.take(300)
    times = [event["t"] for event in events]
    assert times == sorted(times)
    assert times[0] >= 99.5
    assert all(event["t"] >= times[-1] for event in source.at_least_now(events))


def test_percentiles_are_in_milliseconds():
    assert percentiles([0.001] * 98 + [1.0, 1.0])["p50_ms"] == pytest.approx(1.0)
    assert percentiles([0.001] * 98 + [1.0, 1.0])["p99_ms"] == pytest.approx(1000.0)
