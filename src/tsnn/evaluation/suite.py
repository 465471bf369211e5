"""What a suite is: how its streams are named, read and split, and what it asks of them.

A suite has a file of its own and a line in `tsnn.evaluation.catalog`; nothing else knows it by name.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from numpy.typing import NDArray

from tsnn.data.events import EventStream
from tsnn.data.split import Split
from tsnn.errors import InputError
from tsnn.evaluation.questions import Questions
from tsnn.words import did_you_mean


class DataEntry(NamedTuple):
    """One line of `tsnn data list`."""

    address: str
    where: str
    present: bool
    num_nodes: int | None = None
    num_events: int | None = None


@dataclass(frozen=True)
class Suite:
    """A benchmark, or a kind of data: everything that is particular to it."""

    name: str  # what stands before the colon of an address and of a stream's name; nothing for plain tables
    address: str  # how a stream of it is addressed, for help
    load: Callable[..., EventStream]  # from what stands behind the colon
    split: Callable[[EventStream], Split]
    questions: type[Questions]
    entries: Callable[[], list[DataEntry]]
    read_folder: Callable[[Path], EventStream | None] = lambda folder: None  # the stream in a folder, if it is its own
    labels: Callable[[str, str], NDArray[Any]] | None = None  # a column beside the events of that name, if it has any
    is_table: bool = False  # read with the options of a table, to which `load` listens
    rivals: tuple[str, ...] = ()  # baselines of its own that are set beside a model, with those that always are


def data_root() -> Path:
    """Folder of the benchmarks: `TSNN_DATA`, else `../shared/data` beside the project the current folder is in."""
    told = os.environ.get("TSNN_DATA")
    return Path(told) if told else project_root().parent / "shared" / "data"


def project_root() -> Path:
    """The project the current folder is in, else the folder itself."""
    here = Path.cwd()
    return next((folder for folder in (here, *here.parents) if (folder / "pyproject.toml").is_file()), here)


def benchmark(
    suite: str,
    sets: Mapping[str, tuple[str, str]],  # name, folder and event file
    counts: Mapping[str, tuple[int, int]],  # nodes and events of those that were measured
    find: Callable[[Path], Path | None],  # the event file of a folder, if it is there
    read: Callable[[Path], EventStream],
    split: Callable[[EventStream], Split],
    questions: type[Questions],
    labels: Callable[[Path, str], NDArray[Any]] | None = None,
) -> Suite:
    """A suite of named sets, each in a folder of its own below the data folder."""

    def folder_of(name: str) -> Path:
        if name not in sets:
            meant = did_you_mean(name, sets) or f"the known ones are {', '.join(sets)}."
            raise InputError(f"there is no {suite.upper()} set {name!r}; {meant}")
        folder, file = sets[name]
        path = data_root() / suite / folder
        if not path.is_dir():
            raise InputError(f"{suite}:{name} is not here; put {file} (or {file}.gz) into {path}, or set TSNN_DATA.")
        return path

    def load(name: str) -> EventStream:
        return read(folder_of(name))

    def labels_of(name: str, column: str) -> NDArray[Any]:
        assert labels is not None
        return labels(folder_of(name), column)

    def entries() -> list[DataEntry]:
        lines = []
        for name, (folder, _) in sets.items():
            path = data_root() / suite / folder
            present = find(path) is not None
            lines.append(DataEntry(f"{suite}:{name}", str(path), present, *(counts.get(name, ()) if present else ())))
        return lines

    def read_folder(folder: Path) -> EventStream | None:
        return read(folder) if find(folder) else None

    return Suite(suite, f"{suite}:NAME", load, split, questions, entries, read_folder, labels_of if labels else None)
