"""A small run to serve: texts and integers as ids, features, relations, ties."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tsnn.config import Config
from tsnn.data.events import EventStream, make_stream
from tsnn.intensity.acts import Grid
from tsnn.intensity.intensity import Intensity
from tsnn.model.tsnn import TSNN, StreamShape
from tsnn.online.event import Event
from tsnn.plan.planner import mean_gap
from tsnn.serve.schemas import read_events
from tsnn.training.run import save_run

FEATURES, RELATIONS, CLOCK = 2, 3, 400
INTENSITY = Intensity(Grid(2, 1, 0.5, 0.1), newcomers=0.01, base=0.001, weights=(0.2, 0.3, 0.0, 0.1))
SMALL = {
    "model.stalk_dim": 8,
    "model.num_reflectors": 2,
    "model.hidden_dim": 12,
    "model.time_dim": 4,
    "model.num_neighbors": 4,
    "model.score_dim": 8,
    "features.cn_neighbors": 5,
}


def small_stream(seed: int = 0, events: int = 200) -> EventStream:
    """Twenty nodes, every other one named by a text; times are integers and often equal."""
    rng = np.random.default_rng(seed)
    names: list[Any] = [i if i % 2 else f"node {i}" for i in range(20)]
    src, dst = ([names[i] for i in rng.integers(0, 20, events)] for _ in range(2))
    t = np.sort(rng.integers(0, CLOCK, events))
    t[-1] = CLOCK
    msg = rng.normal(size=(events, FEATURES)).astype(np.float32)
    relation = np.arange(events) % RELATIONS
    return make_stream(src, dst, t, msg, relation)


def make_small_run(folder: Path, seed: int = 0) -> Path:
    """A run folder whose weights are random: everything but the quality of its answers is as after training."""
    torch.manual_seed(seed)
    stream = small_stream(seed)
    model = TSNN(Config.build(overrides=SMALL), StreamShape(FEATURES, RELATIONS, 0, mean_gap(stream.t)))
    folder.mkdir(parents=True)
    save_run(folder, model.eval(), stream, {"metrics": {}}, intensity=INTENSITY)
    return folder


def some_events(n: int, start: float = CLOCK + 1, seed: int = 1, prefix: str | None = None) -> list[dict[str, Any]]:
    """Events as a client sends them: strangers among the nodes, two to four of them at a time."""
    rng = np.random.default_rng(seed)
    t = start + np.arange(n) // 3
    events = []
    for i in range(n):
        a, b = rng.integers(0, 30, 2).tolist()  # 20 and above are new
        event: dict[str, Any] = {"src": a if a % 2 else f"node {a}", "dst": b if b % 2 else f"node {b}", "t": int(t[i])}
        event |= {"msg": rng.normal(size=FEATURES).round(4).tolist(), "edge_type": int(rng.integers(0, RELATIONS))}
        if prefix is not None:
            event["key"] = f"{prefix}{i}"
        events.append(event)
    return events


def as_event(fields: dict[str, Any]) -> Event:
    """The event that the service makes of what a client sends."""
    return read_events(json.dumps(fields).encode())[0]
