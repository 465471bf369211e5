"""Every suite there is, and how an address becomes a stream, its split and its questions.

A new suite is a file of its own and a line of `ROSTER`.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tsnn.data.description import Description
from tsnn.data.events import EventStream
from tsnn.data.split import Split
from tsnn.data.table import from_pandas, from_polars, from_temporal_data, is_pandas, is_polars, read_table
from tsnn.errors import ConfigError, InputError
from tsnn.evaluation.dgb import DGB
from tsnn.evaluation.questions import Questions
from tsnn.evaluation.stream import DUCKDB, GIT, SYNTHETIC, TABLE
from tsnn.evaluation.suite import DataEntry, Suite
from tsnn.evaluation.tgb import TGB
from tsnn.evaluation.tkg import TKG
from tsnn.words import did_you_mean, kind_of

ROSTER = {suite.name: suite for suite in (DGB, TGB, TKG, GIT, DUCKDB, SYNTHETIC, TABLE)}
PROTOCOLS: dict[str, type[Questions]] = {suite.questions.protocol: suite.questions for suite in ROSTER.values()}
ADDRESSES = f"{', '.join(suite.address for suite in ROSTER.values() if suite.name)}, or {TABLE.address}"


Data = Any
"""What holds events: an address, a path, a frame of pandas or polars, a PyG TemporalData, or a stream."""

_IN_MEMORY = ((is_pandas, from_pandas), (is_polars, from_polars))


def suite_of(name: str) -> Suite:
    """The suite of an address or of a stream's name; plain tables where it is no other's."""
    return ROSTER.get(name.partition(":")[0], TABLE) if ":" in name else TABLE


def load(data: Data, like: Description | None = None, *, undirected: bool = False, **columns: Any) -> EventStream:
    """The stream at an address or path, or of a frame; `columns` and `like` say how to read it, as in `read_table`.

    Events are those of two equals where `undirected` or `like` says so, or the table itself.
    """
    _check_options(columns)
    undirected = undirected or (like is not None and like.undirected)
    stream = _load(data, like, undirected, **columns)
    return stream.as_undirected() if undirected else stream


_OPTIONS = tuple(name for name in inspect.signature(read_table).parameters if name not in ("path", "like"))


def _check_options(columns: Mapping[str, Any]) -> None:
    for name in columns:
        if name not in _OPTIONS:
            meant = did_you_mean(name, _OPTIONS) or f"use one of {', '.join(_OPTIONS)}."
            raise InputError(f"a table is not read with {name!r}; {meant}")


def _load(data: Data, like: Description | None, undirected: bool, **columns: Any) -> EventStream:
    if isinstance(data, str | Path):
        return _at_address(data, like, undirected, **columns)
    for is_frame, read in _IN_MEMORY:
        if is_frame(data):
            return read(data, like=like, undirected=undirected, **columns)
    has_events = isinstance(data, EventStream) or all(hasattr(data, name) for name in ("src", "dst", "t"))
    if not has_events or isinstance(data, type):
        raise InputError(
            f"{kind_of(data)} is no table of events; give a pandas or polars frame, the path of a table, an address "
            "such as dgb:uci, or a stream (tsnn.from_arrays makes one of lists and arrays)."
        )
    if columns:
        raise InputError(f"{kind_of(data)} has its own columns; name columns only for a frame or the path of a table.")
    return data if isinstance(data, EventStream) else from_temporal_data(data)


def _at_address(address: str | Path, like: Description | None, undirected: bool, **columns: Any) -> EventStream:
    suite = suite_of(str(address))
    if suite.is_table:
        return suite.load(str(address).partition(":")[2], like=like, undirected=undirected, **columns)
    if suite is not TABLE:
        if columns:
            raise InputError(f"{address} has its own columns; name columns only for the path of a table.")
        return suite.load(str(address).partition(":")[2])
    path = Path(address)
    if not path.is_dir():
        if not path.exists() and ":" in str(path):
            prefix = did_you_mean(str(path).partition(":")[0], tuple(name for name in ROSTER if name))
            raise InputError(f"{path} is no known address; {prefix or f'use {ADDRESSES}.'}")
        return TABLE.load(path, like=like, undirected=undirected, **columns)
    for suite in ROSTER.values():
        stream = suite.read_folder(path)
        if stream is not None:
            return stream
    raise InputError(f"{path} is a folder of no suite; give the path of the table inside it.")


def default_split(data: Data, **columns: Any) -> Split:
    """The split of the stream's own suite, else 70 / 15 / 15 by time; `columns` say how to read a table, as in `load`.

    A split is taken as it is.
    """
    if isinstance(data, Split):
        return data
    stream = load(data, **columns)
    return suite_of(stream.name).split(stream)


def list_data() -> list[DataEntry]:
    """Every address that is known by name, the tables under the data folder, and whether they are there."""
    return [entry for suite in ROSTER.values() for entry in suite.entries()]


def protocol_of(stream: EventStream, name: str | None = None) -> type[Questions]:
    """The protocol of this name, by default that of the stream's own suite.

    No suite has questions for undirected events, which are asked about from both ends: they get those of a plain table.
    """
    if name is None:
        return (TABLE if stream.undirected else suite_of(stream.name)).questions
    if name not in PROTOCOLS:
        meant = did_you_mean(name, PROTOCOLS)
        raise ConfigError(f"protocol {name!r} is none of {', '.join(PROTOCOLS)}{(meant and f'; {meant}') or '.'}")
    return PROTOCOLS[name]
