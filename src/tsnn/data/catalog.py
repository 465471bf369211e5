"""Addresses of data: `dgb:uci`, `tgb:tgbl-wiki`, `synthetic:roles`, or the path of a table or a suite's folder."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tsnn.data import dgb, synthetic, table, tgb
from tsnn.data.events import EventStream
from tsnn.data.split import Split, split_by_time
from tsnn.data.tgb_negatives import TgbNegatives
from tsnn.errors import InputError

SCHEMES = ("dgb", "tgb", "synthetic")

# (nodes, events) as measured on the files themselves
_COUNTS = {
    "dgb:uci": (1_899, 59_835),
    "dgb:USLegis": (225, 60_396),
    "dgb:CanParl": (734, 74_478),
    "dgb:enron": (184, 125_235),
    "dgb:mooc": (7_144, 411_749),
    "dgb:wikipedia": (9_227, 157_474),
    "tgb:tgbl-wiki": (9_227, 157_474),
}


@dataclass(frozen=True)
class DataEntry:
    """One line of `list_data`."""

    address: str
    where: str
    present: bool
    num_nodes: int | None = None
    num_events: int | None = None


def data_root() -> Path:
    """Folder of the suites: `TSNN_DATA`, else `../shared/data` beside the project the current folder is in."""
    told = os.environ.get("TSNN_DATA")
    if told:
        return Path(told)
    here = Path.cwd()
    project = next((folder for folder in (here, *here.parents) if (folder / "pyproject.toml").is_file()), here)
    return project.parent / "shared" / "data"


def load(address: str | Path, **columns: Any) -> EventStream:
    """The stream at an address; `columns` name the columns of a plain table, as in `read_table`."""
    scheme, _, name = str(address).partition(":")
    if scheme in SCHEMES and columns:
        raise InputError(f"{address} has its own columns; name columns only for the path of a table.")
    if scheme == "dgb":
        return dgb.load_dgb(_dgb_folder(name))
    if scheme == "tgb":
        return tgb.load_tgb(_tgb_folder(name), name)
    if scheme == "synthetic":
        return synthetic.load_synthetic(name)
    return _load_path(Path(address), columns)


def default_split(data: str | Path | EventStream) -> Split:
    """The split of the stream's own suite, else 70 / 15 / 15 by time."""
    stream = data if isinstance(data, EventStream) else load(data)
    scheme = stream.name.partition(":")[0]
    if scheme == "dgb":
        return dgb.split_dgb(stream)
    if scheme == "tgb":
        return tgb.split_tgb(stream)
    return split_by_time(stream)


def tgb_negatives(split: Split) -> TgbNegatives:
    """The negatives of a TGB split, stored beside its edge list or generated."""
    name = split.stream.name.removeprefix("tgb:")
    return TgbNegatives(split, data_root() / "tgb" / tgb.folder_name(name))


def list_data() -> list[DataEntry]:
    """Every address that is known by name, the tables under the data folder, and whether they are there."""
    root = data_root()
    entries = [_entry(f"dgb:{name}", root / "dgb" / name, dgb.find_csv) for name in dgb.NAMES]
    entries += [_entry(f"tgb:{name}", root / "tgb" / tgb.folder_name(name), tgb.find_edges) for name in tgb.NAMES]
    entries += [DataEntry(str(path), str(path.parent), True) for path in sorted(root.glob("tables/*/edges.csv*"))]
    spec = synthetic.RolesSpec()
    return [*entries, DataEntry("synthetic:roles", "generated", True, spec.nodes, spec.events)]


def _entry(address: str, folder: Path, find: Callable[[Path], Path | None]) -> DataEntry:
    present = find(folder) is not None
    nodes, events = _COUNTS.get(address, (None, None)) if present else (None, None)
    return DataEntry(address, str(folder), present, nodes, events)


def _dgb_folder(name: str) -> Path:
    if name not in dgb.NAMES:
        raise InputError(f"there is no DGB set {name!r}; the known ones are {', '.join(dgb.NAMES)}.")
    folder = data_root() / "dgb" / name
    if not folder.is_dir():
        raise InputError(f"dgb:{name} is not here; put ml_{name}.csv (or .csv.gz) into {folder}, or set TSNN_DATA.")
    return folder


def _tgb_folder(name: str) -> Path:
    if name not in tgb.NAMES:
        raise InputError(f"there is no TGB set {name!r}; the known ones are {', '.join(tgb.NAMES)}.")
    folder = data_root() / "tgb" / tgb.folder_name(name)
    if not folder.is_dir():
        file = tgb.edge_file(name)
        raise InputError(f"tgb:{name} is not here; put {file} (or {file}.gz) into {folder}, or set TSNN_DATA.")
    return folder


def _load_path(path: Path, columns: dict[str, Any]) -> EventStream:
    if not path.is_dir():
        if not path.exists() and ":" in str(path):
            raise InputError(f"{path} is no known address; use dgb:NAME, tgb:NAME, synthetic:roles or a path.")
        return table.read_table(path, **columns)
    if dgb.find_csv(path) is not None:
        return dgb.load_dgb(path)
    if tgb.find_edges(path) is not None:
        return tgb.load_tgb(path)
    raise InputError(f"{path} is a folder of neither DGB nor TGB; give the path of the table inside it.")
