"""Events/s and memory as streams grow: more events on the same nodes, more nodes under the same events.

Each size is measured in a process of its own, over the last rows of the stream: the counters hold all earlier ones.
The rate is the best of a few stretches of these rows, because other work on the machine can only slow a stretch down.
"""

from __future__ import annotations

import multiprocessing
import time
from typing import Any

import numpy as np
import torch

from tsnn.bench.machine import machine_card, peak_memory_mb
from tsnn.config import Config
from tsnn.data.events import EventStream, NodeIds
from tsnn.data.split import make_split
from tsnn.training.trainer import Trainer

EVENTS = (100_000, 1_000_000, 10_000_000)
NODES = (1_000, 10_000, 100_000, 1_000_000)
FIXED_NODES, FIXED_EVENTS = 10_000, 1_000_000
WINDOW = 25_000  # rows under the clock
STRETCH = 5_000


def scale_stream(num_events: int, num_nodes: int, seed: int = 0) -> EventStream:
    """Popularity falls off as a power law, half of the events repeat an earlier pair: what real logs look like."""
    rng = np.random.default_rng(seed)
    rank = (num_nodes * rng.random((2, num_events)) ** 3).astype(np.int64)
    src, dst = rng.permutation(num_nodes)[rank]
    repeat = np.flatnonzero(rng.random(num_events) < 0.5)[1:]
    earlier = (repeat * rng.random(len(repeat))).astype(np.int64)
    src[repeat], dst[repeat] = src[earlier], dst[earlier]
    t = np.cumsum(rng.exponential(1.0, num_events))
    return EventStream(src, dst, t, NodeIds(np.arange(num_nodes)), name=f"scale-{num_events}-{num_nodes}")


def bench_scale(config: Config, events: tuple[int, ...] = EVENTS, nodes: tuple[int, ...] = NODES) -> dict[str, Any]:
    """One row per size, each measured in a fresh process."""
    by_events = [_measure_apart(n, FIXED_NODES, config) for n in events]
    by_nodes = [_measure_apart(FIXED_EVENTS, n, config) for n in nodes]
    return {
        "machine": machine_card(),
        "config": config.model_dump(),
        "window": WINDOW,
        "events": by_events,
        "nodes": by_nodes,
        "slowest_over_fastest": {
            name: min(row["events_per_s"] for row in rows) / max(row["events_per_s"] for row in rows)
            for name, rows in (("events", by_events), ("nodes", by_nodes))
        },
    }


def _measure_apart(num_events: int, num_nodes: int, config: Config) -> dict[str, Any]:
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(measure, (num_events, num_nodes, config))


def measure(num_events: int, num_nodes: int, config: Config) -> dict[str, Any]:
    """Training events/s over the last rows of a stream, and the memory that it took."""
    torch.set_num_threads(1)
    stream = scale_stream(num_events, num_nodes)
    data_mb = peak_memory_mb()
    trainer = Trainer(config, make_split(stream, num_events, num_events), lambda model: 0.0)
    chunk = config.train.chunk
    start = max(num_events - WINDOW, 0) // chunk * chunk
    trainer.planner.advance(start)
    before_mb = peak_memory_mb()
    plans = trainer.train_chunks(start)
    next(plans)
    best, done = 0.0, 0
    began = time.perf_counter()
    for rows in plans:
        done += rows
        if done >= STRETCH:
            best = max(best, done / (time.perf_counter() - began))
            done = 0
            began = time.perf_counter()
    return {
        "num_events": num_events,
        "num_nodes": num_nodes,
        "events_per_s": best,
        "data_mb": data_mb,
        "chunk_mb": peak_memory_mb() - before_mb,
        "peak_mb": peak_memory_mb(),
    }
