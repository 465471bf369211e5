"""Every suite there is, and how an address becomes a stream, its split and its questions.

A new suite is a file of its own and a line of `ROSTER`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tsnn.data.description import Description
from tsnn.data.events import EventStream
from tsnn.data.split import Split
from tsnn.errors import ConfigError, InputError
from tsnn.evaluation.dgb import DGB
from tsnn.evaluation.questions import Questions
from tsnn.evaluation.stream import SYNTHETIC, TABLE
from tsnn.evaluation.suite import DataEntry, Suite
from tsnn.evaluation.tgb import TGB

ROSTER = {suite.name: suite for suite in (DGB, TGB, SYNTHETIC, TABLE)}
PROTOCOLS: dict[str, type[Questions]] = {suite.questions.protocol: suite.questions for suite in ROSTER.values()}
ADDRESSES = f"{', '.join(suite.address for suite in ROSTER.values() if suite.name)}, or {TABLE.address}"


def suite_of(name: str) -> Suite:
    """The suite of an address or of a stream's name; plain tables where it is no other's."""
    return ROSTER.get(name.partition(":")[0], TABLE) if ":" in name else TABLE


def load(
    address: str | Path, like: Description | None = None, *, undirected: bool = False, **columns: Any
) -> EventStream:
    """The stream at an address; `columns` and `like` say how to read a plain table, as in `read_table`.

    Events are those of two equals where `undirected` or `like` says so, or the table itself.
    """
    undirected = undirected or (like is not None and like.undirected)
    stream = _load(address, like, undirected, **columns)
    return stream.as_undirected() if undirected else stream


def _load(address: str | Path, like: Description | None, undirected: bool, **columns: Any) -> EventStream:
    suite = suite_of(str(address))
    if suite is not TABLE:
        if columns:
            raise InputError(f"{address} has its own columns; name columns only for the path of a table.")
        return suite.load(str(address).partition(":")[2])
    path = Path(address)
    if not path.is_dir():
        if not path.exists() and ":" in str(path):
            raise InputError(f"{path} is no known address; use {ADDRESSES}.")
        return TABLE.load(path, like=like, undirected=undirected, **columns)
    for suite in ROSTER.values():
        stream = suite.read_folder(path)
        if stream is not None:
            return stream
    raise InputError(f"{path} is a folder of no suite; give the path of the table inside it.")


def default_split(data: str | Path | EventStream) -> Split:
    """The split of the stream's own suite, else 70 / 15 / 15 by time."""
    stream = data if isinstance(data, EventStream) else load(data)
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
        raise ConfigError(f"protocol {name!r} is none of {', '.join(PROTOCOLS)}.")
    return PROTOCOLS[name]
