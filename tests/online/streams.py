"""Runs to predict from: small, untrained but not near zero, with everything that trips a live state."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from tests.engine.streams import config_of
from tsnn.data.description import Description
from tsnn.data.events import EventStream, NodeIds
from tsnn.data.split import split_by_time
from tsnn.data.table import from_pandas
from tsnn.model.tsnn import TSNN
from tsnn.training.run import save_run
from tsnn.training.trainer import build_model

LAST_DATE = datetime(2024, 3, 3, 19, tzinfo=UTC)
EVENTS, KNOWN = 160, 70  # rows, and rows the run has seen before it goes live
SWITCHES: dict[str, dict[str, object]] = {
    "plain": {},
    "walks": {"features__walks": True},
    "float32": {"train__dtype": "float32"},
    "attention": {"model__attention": True, "features__transported_difference": True},
    "window": {"model__edgebank_window": 5.0, "features__encoded_gaps": True},
    "two rounds": {"model__diffusion_steps": 2, "model__carry_over": False},
    "reference engine": {"train__engine": "reference"},
    "partners": {"model__partners": True},
    "codes": {"model__stalks": "keyed", "model__role": True, "model__frame_length": "kept"},
}


def live_stream(
    *, relations: bool = False, types: bool = False, kind: type = float, ties: int = 3, undirected: bool = False
) -> EventStream:
    """Nodes are numbered as they appear, about every third after the run was saved; times repeat `ties` at a time."""
    rng = np.random.default_rng(4)
    ends = np.minimum(rng.integers(0, 24, (EVENTS, 2)), np.arange(EVENTS)[:, None] // 6 + 2)
    ends[::17, 1] = ends[::17, 0]
    seen = list(dict.fromkeys(ends.ravel().tolist()))
    place = np.zeros(24, np.int64)
    place[seen] = np.arange(len(seen))
    t = np.sort(rng.integers(0, EVENTS // ties, EVENTS)).astype(kind)
    return EventStream(
        place[ends[:, 0]],
        place[ends[:, 1]],
        t,
        NodeIds([f"n{i}" if i % 2 else i for i in range(len(seen))]),
        msg=rng.normal(size=(EVENTS, 2)).astype(np.float32),
        edge_type=rng.integers(0, 3, EVENTS) if relations else None,
        node_type=np.arange(len(seen)) % 2 if types else None,
        description=Description(undirected=undirected),
    )


def prefix(stream: EventStream, rows: int) -> EventStream:
    """The first rows and the nodes that occur in them."""
    part = stream.take(slice(0, rows))
    nodes = int(max(part.src.max(), part.dst.max())) + 1
    types = None if stream.node_type is None else stream.node_type[:nodes]
    ids = NodeIds(stream.ids.external[:nodes])
    return replace(part, ids=ids, node_type=types)


def restless_model(stream: EventStream, **switches: object) -> TSNN:
    """Untrained weights, shaken so that frames move and every part of the score counts."""
    distinct = replace(stream, t=np.arange(stream.num_events, dtype=np.float64))  # any times can be split
    model = build_model(config_of(**switches), split_by_time(distinct)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1)))
    if model.config.model.partners:
        model.partners.on.fill_(1.0)
        known = int(max(stream.src[:KNOWN].max(), stream.dst[:KNOWN].max())) + 1
        model.partners.met[1 : known + 1] = torch.arange(known) % 3 > 0
    return model


def dated_stream(zone: str = "UTC") -> EventStream:
    """Users and items, an event an hour until `LAST_DATE`, of relations buy, look and pay."""
    rng = np.random.default_rng(0)
    times = pd.date_range(end=LAST_DATE, periods=60, freq="h").tz_convert(zone)
    names = {"src": "user", "dst": "item"}
    columns = {part: [f"{name}{i}" for i in rng.integers(0, 6, 60)] for part, name in names.items()}
    kinds = np.array(["buy", "look", "pay"])[rng.integers(0, 3, 60)]
    return from_pandas(pd.DataFrame({**columns, "t": times, "kind": kinds}), edge_type="kind")


def save_stream(folder: Path, stream: EventStream) -> Path:
    """A run that has seen all of a stream."""
    folder.mkdir(parents=True)
    save_run(folder, restless_model(stream), stream, {})
    return folder


def save_prefix(folder: Path, stream: EventStream, rows: int = KNOWN, **switches: object) -> TSNN:
    """A run that has seen the first rows of a stream."""
    model = restless_model(stream, **switches)
    folder.mkdir(parents=True, exist_ok=True)
    save_run(folder, model, prefix(stream, rows), {})
    return model
