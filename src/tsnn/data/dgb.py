"""DGB folders in their native form, and the split that DyGLib and TPNet make of them.

A folder holds `ml_<name>.csv` (an unnamed index, then `u, i, ts, label, idx`) and, where the set has features,
`ml_<name>.npy`, whose row `idx` belongs to the event and whose row 0 is padding. Ids in the file start at 1 and are
kept as external ids: node 7 of the file is `ids.index(7)`.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tsnn.data.events import EventStream, NodeIds, make_stream
from tsnn.data.split import Split, make_split, quantile_times
from tsnn.data.table import open_table
from tsnn.errors import InputError
from tsnn.types import I64, Bool

NAMES = (
    "uci",
    "USLegis",
    "CanParl",
    "enron",
    "mooc",
    "wikipedia",
    "reddit",
    "lastfm",
    "SocialEvo",
    "Flights",
    "UNtrade",
    "UNvote",
    "Contacts",
    "myket",
)
SPLIT_SEED = 2020
HELD_OUT_SHARE = 0.1
_SPARSE = 10  # nodes an event that a file may number


def find_csv(folder: Path) -> Path | None:
    """The event file of a folder, if there is one."""
    for suffix in (".csv", ".csv.gz"):
        path = folder / f"ml_{folder.name}{suffix}"
        if path.is_file():
            return path
    return None


def load_dgb(folder: Path | str) -> EventStream:
    """The stream of a DGB folder; its name is the folder's."""
    folder = Path(folder)
    path = find_csv(folder)
    if path is None:
        raise InputError(f"{folder} holds no events; put ml_{folder.name}.csv (or .csv.gz) there.")
    src, dst, t, idx = _event_columns(path)
    ids = NodeIds(range(1, int(max(src.max(), dst.max())) + 1))
    features = _event_features(folder / f"ml_{folder.name}.npy", idx)
    return make_stream(src - 1, dst - 1, t, features, ids=ids, name=f"dgb:{folder.name}")


def read_labels(folder: Path, column: str) -> NDArray[Any]:
    """A column of labels, as they stand beside the events in the file of a DGB folder."""
    path = find_csv(folder)
    table = {} if path is None else open_table(path)
    if column not in table:
        raise InputError(f"{path or folder} has no column {column!r}; a DGB file keeps its labels in 'label'.")
    return table[column]


def _event_columns(path: Path) -> tuple[I64, I64, NDArray[np.float64], I64]:
    table = open_table(path)
    absent = [label for label in ("u", "i", "ts", "idx") if label not in table]
    if absent:
        raise InputError(f"{path} has no column {absent[0]!r}; a DGB file has the columns u, i, ts, label, idx.")
    src, dst, idx = (_whole(table[label], label, path) for label in ("u", "i", "idx"))
    if not len(src):
        raise InputError(f"{path} holds no events; fetch the file again.")
    if min(src.min(), dst.min()) < 1:
        raise InputError(f"{path} has a node id below 1; ids of a DGB file start at 1, add 1 to all of them.")
    most, largest = _SPARSE * len(src) + 1_000_000, int(max(src.max(), dst.max()))
    if largest > most:  # every number up to the largest is a node
        raise InputError(f"{path} has a node {largest}, but only {len(src)} events; number its nodes 1, 2, 3, ...")
    return src, dst, _times(table["ts"], path), idx


def _whole(column: NDArray[Any], label: str, path: Path) -> I64:
    if column.dtype.kind not in "iuf" or not np.isfinite(column).all() or (column % 1 != 0).any():
        raise InputError(f"column {label!r} of {path} must hold whole numbers only; fetch the file again.")
    return column.astype(np.int64)


def _times(column: NDArray[Any], path: Path) -> NDArray[np.float64]:
    if column.dtype.kind not in "iuf":
        raise InputError(f"column 'ts' of {path} must hold numbers only; fetch the file again.")
    return column.astype(np.float64)


def _event_features(path: Path, idx: I64) -> NDArray[np.float32] | None:
    if not path.is_file():
        return None
    try:
        table = np.load(path, allow_pickle=False)
    except (ValueError, OSError, EOFError):
        raise InputError(f"{path} is not a numpy array of numbers; fetch it again or remove it.") from None
    if table.ndim != 2 or idx.min() < 0 or idx.max() >= len(table):
        raise InputError(f"{path} has shape {table.shape}, but the events need row {idx.max()}; fetch both again.")
    return np.asarray(table[idx], dtype=np.float32)


def split_dgb(stream: EventStream) -> Split:
    """The suite's split: 70 / 15 / 15 by time, and a tenth of the nodes kept out of training.

    The held-out nodes are drawn from a Python set in its own iteration order, over the file's ids, as DyGLib does.
    """
    src, dst = file_ids(stream)
    val_time, test_time = quantile_times(stream)
    t = stream.t.astype(np.float64)
    late = t > val_time
    held_out = _held_out(src, dst, late)
    train = ~late & ~np.isin(src, held_out) & ~np.isin(dst, held_out)
    train_end = int(train.sum())
    val_end = train_end + int((late & (t <= test_time)).sum())
    kept = stream.take(train | late)
    if not 0 < train_end < val_end < kept.num_events:
        raise InputError(f"{stream.name} leaves a segment of the DGB split empty; use split_by_time instead.")
    return make_split(kept, train_end, val_end, full=stream)


def file_ids(stream: EventStream) -> tuple[I64, I64]:
    """Sources and destinations as the file numbers them."""
    external = stream.ids.integers
    if external is None:
        raise InputError("the DGB protocol draws from integer node ids; number the nodes or use split_by_time.")
    return external[stream.src], external[stream.dst]


def _held_out(src: I64, dst: I64, late: Bool) -> I64:
    num_nodes = len(set(src.tolist()) | set(dst.tolist()))
    pool = set(src[late].tolist()).union(set(dst[late].tolist()))
    wanted = int(HELD_OUT_SHARE * num_nodes)
    if wanted > len(pool):
        raise InputError(f"only {len(pool)} nodes have late events, {wanted} are to be held out; use split_by_time.")
    drawn = random.Random(SPLIT_SEED).sample(tuple(pool), wanted)
    return np.array(drawn, dtype=np.int64)
