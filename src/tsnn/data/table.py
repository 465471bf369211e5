"""Plain tables: CSV and Parquet files, data frames, arrays and PyG's TemporalData."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
from numpy.typing import NDArray

from tsnn.data.description import Cleaning, Description, Roles
from tsnn.data.events import EventStream, NodeIds, make_stream
from tsnn.data.node_types import types_by_side
from tsnn.errors import InputError
from tsnn.files import write_whole

MsgColumns = str | list[str] | tuple[str, ...] | None
"""Names of feature columns; `"auto"` takes every numeric column that is not named otherwise."""

NodeTypes = Mapping[Any, Any] | Path | str | tuple[str | None, str | None] | None
"""Types by external id: a mapping, or a table whose first column is the node and whose second is its type. Or the two
columns that hold the types of a row's source and destination; None where a side is a type of its own."""

_CSV_SUFFIXES = (".csv", ".csv.gz", ".tsv", ".tsv.gz", ".txt", ".txt.gz")
_PARQUET_SUFFIXES = (".parquet", ".pq")
METADATA = b"tsnn"  # under which a Parquet file keeps its description


def read_table(
    path: Path | str,
    src: str | None = None,
    dst: str | None = None,
    t: str | None = None,
    msg: MsgColumns = None,
    edge_type: str | None = None,
    node_type: NodeTypes = None,
    sort: bool = False,
    like: Description | None = None,
    undirected: bool = False,
) -> EventStream:
    """The events of a CSV or Parquet file (gzip too), by column name.

    A column that is not named is the one that played its part when `like` was made (the description of a run or of
    another stream), or when the file was written by `write_table`; the last resort is src, dst and t. Events are
    `undirected` where one of them says so.
    """
    table = open_table(path)
    named = {"src": src, "dst": dst, "t": t, "msg": msg, "edge_type": edge_type, **_type_columns(node_type)}
    own = stored_description(path)
    roles = _roles(table, named, like, own)
    cleaning = like.cleaning if like else Cleaning()
    if sort:
        cleaning = replace(cleaning, sort=True)
    told = undirected or any(about.undirected for about in (like, own) if about)
    return _from_columns(table, roles, node_type, cleaning, like, f"table:{_stem(Path(path))}", told)


def from_pandas(
    frame: Any,
    src: str | None = None,
    dst: str | None = None,
    t: str | None = None,
    msg: MsgColumns = None,
    edge_type: str | None = None,
    node_type: NodeTypes = None,
    sort: bool = False,
    name: str = "pandas",
    undirected: bool = False,
) -> EventStream:
    """The events of a pandas frame, by column name."""
    columns = {str(label): frame[label] for label in frame.columns}
    named = {"src": src, "dst": dst, "t": t, "msg": msg, "edge_type": edge_type, **_type_columns(node_type)}
    return _from_columns(columns, _roles(columns, named), node_type, Cleaning(sort=sort), None, name, undirected)


def from_polars(
    frame: Any,
    src: str | None = None,
    dst: str | None = None,
    t: str | None = None,
    msg: MsgColumns = None,
    edge_type: str | None = None,
    node_type: NodeTypes = None,
    sort: bool = False,
    name: str = "polars",
    undirected: bool = False,
) -> EventStream:
    """The events of a polars frame, by column name."""
    columns = {label: frame.get_column(label) for label in frame.columns}
    named = {"src": src, "dst": dst, "t": t, "msg": msg, "edge_type": edge_type, **_type_columns(node_type)}
    return _from_columns(columns, _roles(columns, named), node_type, Cleaning(sort=sort), None, name, undirected)


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
    undirected: bool = False,
) -> EventStream:
    """The events of columns held in memory: numpy, torch, lists."""
    return make_stream(src, dst, t, msg, edge_type, node_type, ids, name, sort, undirected=undirected)


def from_temporal_data(
    data: Any, sort: bool = False, name: str = "temporal_data", undirected: bool = False
) -> EventStream:
    """The events of a PyG `TemporalData`, or of anything with `src`, `dst`, `t` and optionally `msg`, `edge_type`."""
    for column in ("src", "dst", "t"):
        if getattr(data, column, None) is None:
            raise InputError(f"the object has no {column!r}; give a TemporalData with src, dst and t.")
    msg, edge_type = getattr(data, "msg", None), getattr(data, "edge_type", None)
    if msg is not None and len(msg.shape) == 2 and msg.shape[1] == 0:
        msg = None
    return make_stream(data.src, data.dst, data.t, msg, edge_type, name=name, sort=sort, undirected=undirected)


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


def _type_columns(node_type: NodeTypes) -> dict[str, str | None]:
    return dict(zip(("src_type", "dst_type"), node_type, strict=True)) if isinstance(node_type, tuple) else {}


def _roles(
    table: Mapping[str, Any], named: Mapping[str, Any], like: Description | None = None, own: Description | None = None
) -> Roles:
    """The column of each part: the one named, else that of `like` where all of its columns are there, else its own."""
    told = [*(about.roles for about in (like, own) if about and about.roles), Roles()]
    usual = next((roles for roles in told if all(column in table for column in roles.columns)), told[0])
    given = {part: column for part, column in named.items() if column is not None and part != "msg"}
    roles = replace(usual, **given)
    if named["msg"] is None:
        return roles
    taken = {roles.src, roles.dst, roles.t, roles.edge_type, roles.src_type, roles.dst_type}
    return replace(roles, msg=_msg_columns(table, named["msg"], taken))


def _msg_columns(table: Mapping[str, Any], msg: MsgColumns, taken: set[str | None]) -> tuple[str, ...]:
    if msg == "auto":
        return tuple(label for label in table if label and label not in taken and _is_numeric(table[label]))
    return (msg,) if isinstance(msg, str) else tuple(msg or ())


def _from_columns(
    table: Mapping[str, Any],
    roles: Roles,
    node_type: NodeTypes,
    cleaning: Cleaning,
    like: Description | None,
    name: str,
    undirected: bool = False,
) -> EventStream:
    src, dst, t = (_pick(table, label) for label in (roles.src, roles.dst, roles.t))
    parts = [_feature_column(_pick(table, label), label) for label in roles.msg]
    features = np.concatenate(parts, axis=1) if parts else None
    kinds = None if roles.edge_type is None else _pick(table, roles.edge_type)
    types = _types_by_id(table, roles, (src, dst), node_type)
    known = like.relations if like else ()
    stream = make_stream(src, dst, t, features, kinds, types, None, name, cleaning.sort, roles, known, undirected)
    return replace(stream, description=replace(stream.description, cleaning=cleaning))


def _pick(table: Mapping[str, Any], label: str) -> Any:
    if label not in table:
        there = ", ".join(table)
        raise InputError(f"there is no column {label!r}; name one of the columns that are there: {there}.")
    return table[label]


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


def _types_by_id(
    table: Mapping[str, Any], roles: Roles, ends: tuple[Any, Any], node_type: NodeTypes
) -> Mapping[Any, Any] | None:
    if isinstance(node_type, Mapping):
        return node_type
    if isinstance(node_type, str | Path):
        return read_node_types(node_type)
    if roles.src_type is None and roles.dst_type is None:
        return None
    return types_by_side(ends, tuple([label and _pick(table, label) for label in (roles.src_type, roles.dst_type)]))


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
    """A stream as Parquet that `read_table` reads without further words; features keep their names, or are f0, ..."""
    if not str(path).endswith(_PARQUET_SUFFIXES):
        raise InputError(f"{path} would be a Parquet file; let its name end in .parquet.")
    external = np.array(stream.ids.external, dtype=object)
    columns: dict[str, Any] = {name: external[getattr(stream, name)].tolist() for name in ("src", "dst")}
    columns["t"] = pa.array(stream.t, pa.timestamp("us", "UTC")) if stream.description.dates else stream.t
    if stream.edge_type is not None:
        names = stream.description.relations
        columns["edge_type"] = np.array(names, dtype=object)[stream.edge_type] if names else stream.edge_type
    if stream.node_type is not None:
        columns |= {"src_type": stream.node_type[stream.src], "dst_type": stream.node_type[stream.dst]}
    msg = _feature_names(stream, set(columns))
    for i, label in enumerate(msg):
        assert stream.msg is not None
        columns[label] = stream.msg[:, i]
    optional = {part: part for part in ("edge_type", "src_type", "dst_type") if part in columns}
    roles = Roles(msg=msg, **optional)
    described = replace(stream.description, roles=roles, cleaning=Cleaning())
    table = pa.table(columns).replace_schema_metadata({METADATA: described.to_json()})
    write_whole(Path(path), lambda partial: pq.write_table(table, partial))


def _feature_names(stream: EventStream, taken: set[str]) -> tuple[str, ...]:
    """The columns the features came from, where each was one of them and its name is free."""
    roles = stream.description.roles
    if roles and len(roles.msg) == stream.msg_dim and not taken & set(roles.msg):
        return roles.msg
    return tuple(f"f{i}" for i in range(stream.msg_dim))


def stored_description(path: Path | str) -> Description | None:
    """What `write_table` said of a Parquet file; None for any other."""
    if not str(path).endswith(_PARQUET_SUFFIXES):
        return None
    told = (pq.read_schema(path).metadata or {}).get(METADATA)
    return None if told is None else Description.from_json(told)
