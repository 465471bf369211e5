"""Plain tables: CSV and Parquet files, data frames, arrays and PyG's TemporalData."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
from numpy.typing import NDArray

from tsnn.data.events import EventStream, NodeIds, make_stream
from tsnn.errors import InputError
from tsnn.files import write_whole

MsgColumns = str | list[str] | tuple[str, ...] | None
"""Names of feature columns; `"auto"` takes every numeric column that is not named otherwise."""

NodeTypes = Mapping[Any, Any] | Path | str | None
"""Types by external id: a mapping, or a table whose first column is the node and whose second is its type."""

_CSV_SUFFIXES = (".csv", ".csv.gz", ".tsv", ".tsv.gz", ".txt", ".txt.gz")
_PARQUET_SUFFIXES = (".parquet", ".pq")


def read_table(
    path: Path | str,
    src: str = "src",
    dst: str = "dst",
    t: str = "t",
    msg: MsgColumns = None,
    edge_type: str | None = None,
    node_type: NodeTypes = None,
    sort: bool = False,
) -> EventStream:
    """The events of a CSV or Parquet file (gzip too), by column name."""
    table = open_table(path)
    return _from_columns(table, src, dst, t, msg, edge_type, node_type, sort, f"table:{_stem(Path(path))}")


def from_pandas(
    frame: Any,
    src: str = "src",
    dst: str = "dst",
    t: str = "t",
    msg: MsgColumns = None,
    edge_type: str | None = None,
    node_type: NodeTypes = None,
    sort: bool = False,
    name: str = "pandas",
) -> EventStream:
    """The events of a pandas frame, by column name."""
    columns = {str(label): frame[label] for label in frame.columns}
    return _from_columns(columns, src, dst, t, msg, edge_type, node_type, sort, name)


def from_polars(
    frame: Any,
    src: str = "src",
    dst: str = "dst",
    t: str = "t",
    msg: MsgColumns = None,
    edge_type: str | None = None,
    node_type: NodeTypes = None,
    sort: bool = False,
    name: str = "polars",
) -> EventStream:
    """The events of a polars frame, by column name."""
    columns = {label: frame.get_column(label) for label in frame.columns}
    return _from_columns(columns, src, dst, t, msg, edge_type, node_type, sort, name)


def from_arrays(
    src: Any,
    dst: Any,
    t: Any,
    msg: Any = None,
    edge_type: Any = None,
    node_type: Any = None,
    ids: NodeIds | None = None,
    sort: bool = False,
    name: str = "arrays",
) -> EventStream:
    """The events of columns held in memory: numpy, torch, lists."""
    return make_stream(src, dst, t, msg, edge_type, node_type, ids, name, sort)


def from_temporal_data(data: Any, sort: bool = False, name: str = "temporal_data") -> EventStream:
    """The events of a PyG `TemporalData`, or of anything with `src`, `dst`, `t` and optionally `msg`, `edge_type`."""
    for column in ("src", "dst", "t"):
        if getattr(data, column, None) is None:
            raise InputError(f"the object has no {column!r}; give a TemporalData with src, dst and t.")
    msg, edge_type = getattr(data, "msg", None), getattr(data, "edge_type", None)
    if msg is not None and len(msg.shape) == 2 and msg.shape[1] == 0:
        msg = None
    return make_stream(data.src, data.dst, data.t, msg, edge_type, name=name, sort=sort)


def open_table(path: Path | str) -> dict[str, NDArray[Any]]:
    """The columns of a CSV or Parquet file, by name."""
    path = Path(path)
    if not path.is_file():
        raise InputError(f"there is no file {path}; give the path of a CSV or Parquet table.")
    if path.name.endswith(_CSV_SUFFIXES):
        table = read_csv(path)
    elif path.name.endswith(_PARQUET_SUFFIXES):
        table = _read_parquet(path)
    else:
        known = ", ".join((*_CSV_SUFFIXES, *_PARQUET_SUFFIXES))
        raise InputError(f"{path} is of no known kind; give a file that ends in one of {known}.")
    return {label: to_numpy(table[label], label) for label in table.column_names}


def read_csv(path: Path, header: bool = True, text_columns: tuple[str, ...] = ()) -> pa.Table:
    """A CSV file; with `header=False` its first line is skipped and columns are named f0, f1, ..."""
    read = pa_csv.ReadOptions(use_threads=False, skip_rows=0 if header else 1, autogenerate_column_names=not header)
    if not path.stat().st_size:
        raise InputError(f"{path} is empty; give a table with a line of column names and a line for each event.")
    delimiter = "\t" if ".tsv" in path.name else ","
    convert = pa_csv.ConvertOptions(column_types={name: pa.string() for name in text_columns})
    try:
        return pa_csv.read_csv(str(path), read, pa_csv.ParseOptions(delimiter=delimiter), convert)
    except (pa.ArrowException, OSError, EOFError) as error:
        reason = str(error).splitlines()[0].rstrip(".")
        raise InputError(f"{path} cannot be read as CSV ({reason}); write it again as a plain CSV table.") from None


def _read_parquet(path: Path) -> pa.Table:
    try:
        return pq.read_table(path)
    except (pa.ArrowException, OSError):
        raise InputError(f"{path} cannot be read as Parquet; write it again as a Parquet table.") from None


def to_numpy(column: pa.ChunkedArray, label: str) -> NDArray[Any]:
    """A column as numpy, integers never through floats."""
    if column.null_count and pa.types.is_integer(column.type):
        raise InputError(f"column {label!r} has {column.null_count} empty cells; fill them in or drop those rows.")
    return np.asarray(column.to_numpy())


def _from_columns(
    table: Mapping[str, Any],
    src: str,
    dst: str,
    t: str,
    msg: MsgColumns,
    edge_type: str | None,
    node_type: NodeTypes,
    sort: bool,
    name: str,
) -> EventStream:
    named = [src, dst, t] + ([] if edge_type is None else [edge_type])
    columns = {label: _pick(table, label) for label in named}
    features = _features(table, msg, set(named))
    relations = None if edge_type is None else columns[edge_type]
    types = read_node_types(node_type) if isinstance(node_type, str | Path) else node_type
    return make_stream(columns[src], columns[dst], columns[t], features, relations, types, name=name, sort=sort)


def _pick(table: Mapping[str, Any], label: str) -> Any:
    if label not in table:
        there = ", ".join(table)
        raise InputError(f"there is no column {label!r}; name one of the columns that are there: {there}.")
    return table[label]


def _features(table: Mapping[str, Any], msg: MsgColumns, taken: set[str]) -> NDArray[np.float32] | None:
    if msg is None:
        return None
    if msg == "auto":
        wanted = [label for label in table if label and label not in taken and _is_numeric(table[label])]
    else:
        wanted = [msg] if isinstance(msg, str) else list(msg)
    parts = [_feature_column(_pick(table, label), label) for label in wanted]
    return np.concatenate(parts, axis=1) if parts else None


def _is_numeric(column: Any) -> bool:
    return np.asarray(column).dtype.kind in "iufb"


def _feature_column(column: Any, label: str) -> NDArray[np.float32]:
    """One column of numbers, or one of lists of equal length, as (E, width)."""
    values = np.asarray(column)
    try:
        if values.dtype.kind == "O":
            values = np.array([np.asarray(x, dtype=np.float32) for x in values], dtype=np.float32)
        features = values.astype(np.float32)
    except (TypeError, ValueError):
        kind: Literal["ragged or not numeric"] = "ragged or not numeric"
        raise InputError(f"feature column {label!r} is {kind}; give every event the same number of numbers.") from None
    return features[:, None] if features.ndim == 1 else features


def read_node_types(path: Path | str) -> dict[Any, Any]:
    """Types by node from a table whose first column is the node and whose second is its type."""
    columns: Iterable[NDArray[Any]] = open_table(path).values()
    node, kind, *_ = (*columns, None, None)
    if node is None or kind is None:
        raise InputError(f"{path} has fewer than two columns; give a table of node and type.")
    return dict(zip(node.tolist(), kind.tolist(), strict=True))


def _stem(path: Path) -> str:
    return path.name.split(".")[0]


def write_table(stream: EventStream, path: Path | str) -> None:
    """A stream as Parquet, in the columns that `read_table` reads by default; features are f0, f1, ..."""
    if not str(path).endswith(_PARQUET_SUFFIXES):
        raise InputError(f"{path} would be a Parquet file; let its name end in .parquet.")
    external = np.array(stream.ids.external, dtype=object)
    ends = {name: external[getattr(stream, name)].tolist() for name in ("src", "dst")}
    columns: dict[str, Any] = {**ends, "t": stream.t}
    if stream.edge_type is not None:
        columns["edge_type"] = stream.edge_type
    for i in range(stream.msg_dim):
        assert stream.msg is not None
        columns[f"f{i}"] = stream.msg[:, i]
    write_whole(Path(path), lambda partial: pq.write_table(pa.table(columns), partial))
