"""TGB folders (`tgbl-*`, `thgl-*`) read as py-tgb reads them, without py-tgb and without a network.

The dense index of a node is the id py-tgb maps it to, because the negative samples are stored under those ids. A name
is known by its edge list; version 2 of a set has `_v2` in its file names. Files may be gzipped.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tsnn.data.csv_file import read_csv
from tsnn.data.events import EventStream, NodeIds, make_stream
from tsnn.data.table import read_node_types
from tsnn.errors import InputError
from tsnn.types import I64

_Columns = list[pa.ChunkedArray]
_Features = NDArray[np.float32] | None


@dataclass(frozen=True)
class _Kind:
    """How the lines of a set read."""

    features: Callable[[_Columns], _Features]
    min_columns: int
    text_ids: bool = True
    offset: bool = False  # columns are u, i, ts, ...; destinations are numbered after the sources
    typed: bool = False  # a relation in column 3, and a file of node types


def folder_name(name: str) -> str:
    """Folder of a set, as py-tgb names it."""
    return name.replace("-", "_")


def _version(name: str) -> str:
    return "_v2" if name in _VERSION_2 else ""


def edge_file(name: str) -> str:
    """Name of the edge list of a set."""
    return f"{name}_edgelist{_version(name)}.csv"


def negative_file(name: str, segment: str) -> str:
    """Name of the negative samples of a set's `val` or `test`, without its ending."""
    return f"{name}_{segment}_ns{_version(name)}"


def find_edges(folder: Path) -> Path | None:
    """The edge list of a folder, if there is one."""
    name = folder.name.replace("_", "-")
    return find_file(folder, edge_file(name)) if name in NAMES else None


def find_file(folder: Path, file: str) -> Path | None:
    """A file of a folder, gzipped or not."""
    return next((path for path in (folder / file, folder / f"{file}.gz") if path.is_file()), None)


def load_tgb(folder: Path | str, name: str | None = None) -> EventStream:
    """The stream of a TGB folder; the set's name is the folder's unless it is given."""
    folder = Path(folder)
    name = name or folder.name.replace("_", "-")
    if name not in _KINDS:
        raise InputError(f"there is no TGB set {name!r}; the known ones are {', '.join(NAMES)}.")
    path = find_file(folder, edge_file(name))
    if path is None:
        raise InputError(f"{folder} holds no events; put {edge_file(name)} (or the same with .gz) there.")
    kind = _KINDS[name]
    columns = _read_lines(path, kind)
    return _offset_stream(columns, kind, name) if kind.offset else _mapped_stream(columns, kind, name, folder)


def _read_lines(path: Path, kind: _Kind) -> _Columns:
    table = read_csv(path, header=False, text_columns=("f1", "f2") if kind.text_ids else ())
    if table.num_columns < kind.min_columns:
        raise InputError(f"{path} has {table.num_columns} columns, {kind.min_columns} are needed; fetch it again.")
    if not table.num_rows:
        raise InputError(f"{path} holds no events; fetch it again.")
    return list(table.columns)


def _offset_stream(columns: _Columns, kind: _Kind, name: str) -> EventStream:
    src, item = whole_numbers(columns[0], "source"), whole_numbers(columns[1], "destination")
    dst = item + int(src.max()) + 1
    ids = NodeIds(range(int(max(src.max(), dst.max())) + 1))
    return make_stream(src, dst, _seconds(columns[2]), kind.features(columns), ids=ids, name=f"tgb:{name}", sort=True)


def _mapped_stream(columns: _Columns, kind: _Kind, name: str, folder: Path) -> EventStream:
    ids, src, dst = first_appearance(columns[1], columns[2])
    relation = whole_numbers(columns[3], "relation") if kind.typed else None
    types = _node_types(folder, name, ids) if kind.typed else None
    features = kind.features(columns)
    return make_stream(src, dst, _seconds(columns[0]), features, relation, types, ids, f"tgb:{name}", sort=True)


def first_appearance(src: pa.ChunkedArray, dst: pa.ChunkedArray) -> tuple[NodeIds, I64, I64]:
    """Number the ids as they appear line by line, a line's source before its destination, in one shared numbering."""
    both = pa.chunked_array([*src.chunks, *dst.cast(src.type).chunks]).dictionary_encode().combine_chunks()
    if both.null_count:
        raise InputError("a source or destination is missing; fetch the edge list again.")
    code = both.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    place = np.concatenate([np.arange(len(src)) * 2, np.arange(len(src)) * 2 + 1])
    first = np.full(len(both.dictionary), 2 * len(src), dtype=np.int64)
    np.minimum.at(first, code, place)
    order = np.argsort(first)
    number = np.empty(len(order), dtype=np.int64)
    number[order] = np.arange(len(order))
    index = number[code]
    return NodeIds(both.dictionary.take(pa.array(order)).to_pylist()), index[: len(src)], index[len(src) :]


def _node_types(folder: Path, name: str, ids: NodeIds) -> dict[Any, Any]:
    path = find_file(folder, f"{name}_nodetype.csv")
    if path is None:
        raise InputError(f"tgb:{name} needs its node types; put {name}_nodetype.csv into {folder}.")
    return read_node_types(path)


def whole_numbers(column: pa.ChunkedArray, label: str) -> I64:
    """A column as integers, fractions cut off."""
    values = np.asarray(column.to_numpy())
    if values.dtype.kind not in "iuf" or not np.isfinite(values).all():
        raise InputError(f"the {label} column of the edge list must hold numbers only; fetch it again.")
    return values.astype(np.int64)


def _seconds(column: pa.ChunkedArray) -> I64:
    """Times as whole seconds, fractions cut off."""
    return whole_numbers(column, "time")


def _floats(column: pa.ChunkedArray, label: str) -> NDArray[np.float64]:
    values = np.asarray(column.to_numpy())
    if values.dtype.kind not in "iuf" or not np.isfinite(values).all():
        raise InputError(f"the {label} column of the edge list must hold numbers only; fetch it again.")
    return values.astype(np.float64)


def _trailing(columns: _Columns) -> _Features:
    """Columns 4 and on."""
    if len(columns) <= 4:
        return None
    return np.stack([_floats(column, "feature") for column in columns[4:]], axis=1).astype(np.float32)


def _log_weight(columns: _Columns) -> _Features:
    weight = _floats(columns[3], "weight")
    if weight.min() < 0:
        raise InputError("a weight of the edge list is negative; fetch it again.")
    return np.log2(np.where(weight == 0, 1.0, weight)).astype(np.float32)[:, None]


def _comment(columns: _Columns) -> _Features:
    words = _floats(columns[3], "words") / 5000
    return np.stack([words, words, _floats(columns[4], "score")], axis=1).astype(np.float32)


def _zeros(columns: _Columns) -> _Features:
    return np.zeros((len(columns[0]), 1), dtype=np.float32)


def _forum(columns: _Columns) -> _Features:
    pair = [_floats(columns[4], "words") / 10000, _floats(columns[5], "score") / 10000]
    return np.stack(pair, axis=1).astype(np.float32)


def _flight(columns: _Columns) -> _Features:
    return np.concatenate([_characters(columns[3]), _characters(columns[4], blank_long=True)], axis=1)


def _characters(column: pa.ChunkedArray, blank_long: bool = False) -> NDArray[np.float32]:
    """Eight characters as numbers: a digit is itself, a letter its code less 35, padding -1."""
    text = pc.utf8_upper(column.cast(pa.string()).fill_null(""))
    if blank_long:
        text = pc.if_else(pc.greater(pc.utf8_length(text), 8), "", text)
    padded = pc.utf8_rpad(text, width=8, padding="!")
    code = np.array(padded.to_pylist(), dtype="<U8").view(np.uint32).reshape(-1, 8).astype(np.float32)
    digit = (code >= ord("0")) & (code <= ord("9"))
    return np.where(digit, code - ord("0"), np.where(code == ord("!"), -1, code - 35)).astype(np.float32)


_OFFSET = _Kind(_trailing, 3, text_ids=False, offset=True)
_THGL = _Kind(_zeros, 4, text_ids=False, typed=True)
_KINDS = {
    "tgbl-wiki": _OFFSET,
    "tgbl-review": _Kind(_log_weight, 4),
    "tgbl-coin": _Kind(_log_weight, 4),
    "tgbl-flight": _Kind(_flight, 5),
    "tgbl-comment": _Kind(_comment, 5),
    "tgbl-uci": _OFFSET,
    "tgbl-enron": _OFFSET,
    "tgbl-lastfm": _OFFSET,
    "tgbl-subreddit": _OFFSET,
    "thgl-software": _THGL,
    "thgl-forum": _Kind(_forum, 6, text_ids=False, typed=True),
    "thgl-github": _THGL,
    "thgl-myket": _THGL,
}
_VERSION_2 = ("tgbl-wiki", "tgbl-review", "tgbl-coin", "tgbl-flight")
NAMES = tuple(_KINDS)
