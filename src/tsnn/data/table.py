"""Plain tables: CSV and Parquet files, data frames, arrays and PyG's TemporalData."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from tsnn.data.cleaning import clean_rows, without_repeats
from tsnn.data.columns import Column, as_numpy, is_numeric, open_column
from tsnn.data.csv_file import SUFFIXES, lines_of, read_csv, separator_of
from tsnn.data.description import Cleaning, Description, MessageColumn, Roles
from tsnn.data.events import EventStream, NodeIds, checked_stream, in_order, make_stream
from tsnn.data.messages import declared, encode, understood
from tsnn.data.node_types import types_by_side
from tsnn.data.preview import preview_of
from tsnn.data.times import Where, plain_row
from tsnn.errors import InputError
from tsnn.files import write_whole
from tsnn.types import I64, Bool
from tsnn.words import did_you_mean, kind_of, listed

MsgColumns = str | list[str] | tuple[str, ...] | None
"""Names of feature columns, with their kind behind a colon where it is declared (`level:category`, see
`tsnn.data.messages`); `"auto"` takes every numeric column that is not named otherwise."""

NodeTypes = Mapping[Any, Any] | Path | str | tuple[str | None, str | None] | None
"""Types by external id: a mapping, or a table whose first column is the node and whose second is its type. Or the two
columns that hold the types of a row's source and destination; None where a side is a type of its own."""

PARQUET_SUFFIXES = (".parquet", ".pq")
TRAINING = 0.7  # of the rows, as `split_by_time` cuts them: what is learned of a column is learned there
_LARGEST = 2**63 - 1  # of the integers that are kept as such
METADATA = b"tsnn"  # under which a Parquet file keeps its description


@dataclass(frozen=True)
class Table:
    """Columns as they came, by name, and what to call the table and its rows."""

    columns: Mapping[str, Any]
    name: str
    path: Path | None = None
    where: Where = plain_row
    separator: str | None = None  # of a CSV file


def read_table(
    path: Path | str,
    src: str | None = None,
    dst: str | None = None,
    t: str | None = None,
    msg: MsgColumns = None,
    edge_type: str | None = None,
    node_type: NodeTypes = None,
    sort: bool = False,
    drop_missing: bool = False,
    dedupe: bool = False,
    missing_relation: str | None = None,
    like: Description | None = None,
    undirected: bool = False,
) -> EventStream:
    """The events of a CSV or Parquet file (gzip too), by column name.

    A column that is not named is the one that played its part when `like` was made (the description of a run or of
    another stream), or when the file was written by `write_table`; the last resort is src, dst and t. `drop_missing`
    leaves out rows in which a cell that is read is empty, `sort` sorts by time, `dedupe` leaves out a row that repeats
    an earlier one in everything that is read, and `missing_relation` is the kind of events without one. Events are
    `undirected`, those of two equals, if `like` or the file says so as well.
    """
    table, own = open_file(path), stored_description(path)
    named = {"src": src, "dst": dst, "t": t, "msg": msg, "edge_type": edge_type, **_type_columns(node_type)}
    roles = _roles(table.columns, named, like, own)
    told = like or own or Description()
    cleaning = Cleaning(sort, drop_missing, dedupe, missing_relation).beside(told.cleaning)
    undirected = undirected or any(about.undirected for about in (like, own) if about)
    kinds = declared(table.columns, _msg_columns(table.columns, msg, set()))
    return _stream_of(table, roles, node_type, cleaning, like, undirected, kinds)


def from_pandas(
    frame: Any,
    src: str | None = None,
    dst: str | None = None,
    t: str | None = None,
    msg: MsgColumns = None,
    edge_type: str | None = None,
    node_type: NodeTypes = None,
    sort: bool = False,
    drop_missing: bool = False,
    dedupe: bool = False,
    missing_relation: str | None = None,
    name: str = "pandas",
    like: Description | None = None,
    undirected: bool = False,
) -> EventStream:
    """The events of a pandas frame, by column name; the rest is as in `read_table`."""
    if not is_pandas(frame):
        raise InputError(f"from_pandas was given {kind_of(frame)}; give a pandas frame, or call tsnn.load.")
    columns = {str(label): frame[label] for label in _distinct(frame.columns, name)}
    named = {"src": src, "dst": dst, "t": t, "msg": msg, "edge_type": edge_type, **_type_columns(node_type)}
    cleaning = Cleaning(sort, drop_missing, dedupe, missing_relation)
    return _stream_of_frame(Table(columns, name), named, node_type, cleaning, like, undirected)


def from_polars(
    frame: Any,
    src: str | None = None,
    dst: str | None = None,
    t: str | None = None,
    msg: MsgColumns = None,
    edge_type: str | None = None,
    node_type: NodeTypes = None,
    sort: bool = False,
    drop_missing: bool = False,
    dedupe: bool = False,
    missing_relation: str | None = None,
    name: str = "polars",
    like: Description | None = None,
    undirected: bool = False,
) -> EventStream:
    """The events of a polars frame, by column name; the rest is as in `read_table`."""
    if not is_polars(frame):
        raise InputError(
            f"from_polars was given {kind_of(frame)}; give a polars frame (a lazy one collected), or call tsnn.load."
        )
    columns = {label: frame.get_column(label) for label in frame.columns}
    named = {"src": src, "dst": dst, "t": t, "msg": msg, "edge_type": edge_type, **_type_columns(node_type)}
    cleaning = Cleaning(sort, drop_missing, dedupe, missing_relation)
    return _stream_of_frame(Table(columns, name), named, node_type, cleaning, like, undirected)


def from_arrow(
    frame: pa.Table,
    name: str,
    like: Description | None = None,
    undirected: bool = False,
    node_type: NodeTypes = None,
    sort: bool = False,
    drop_missing: bool = False,
    dedupe: bool = False,
    missing_relation: str | None = None,
    **columns: Any,
) -> EventStream:
    """The events of an Arrow table, by column name; the rest is as in `read_table`."""
    named = {**dict.fromkeys(("src", "dst", "t", "msg", "edge_type")), **columns, **_type_columns(node_type)}
    cleaning = Cleaning(sort, drop_missing, dedupe, missing_relation)
    parts = {label: frame[label] for label in _distinct(frame.column_names, name)}
    return _stream_of_frame(Table(parts, name), named, node_type, cleaning, like, undirected)


def is_pandas(data: object) -> bool:
    """Whether it is a pandas frame; pandas itself need not be there to know."""
    return hasattr(data, "iloc") and hasattr(data, "columns")


def is_polars(data: object) -> bool:
    """Whether it is a polars frame that holds its rows."""
    return hasattr(data, "get_column") and hasattr(data, "columns")


def _stream_of_frame(
    table: Table,
    named: Mapping[str, Any],
    node_type: NodeTypes,
    cleaning: Cleaning,
    like: Description | None,
    undirected: bool,
) -> EventStream:
    """The stream of a frame, its columns those named, else those of `like`."""
    told = like or Description()
    roles = _roles(table.columns, named, like)
    undirected = undirected or told.undirected
    kinds = declared(table.columns, _msg_columns(table.columns, named["msg"], set()))
    return _stream_of(table, roles, node_type, cleaning.beside(told.cleaning), like, undirected, kinds)


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
    return make_stream(src, dst, t, msg, edge_type, node_type, ids, name, sort, undirected)


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
    """The columns of a CSV or Parquet file that has no empty cells, by name."""
    columns = open_file(path).columns
    for label, column in columns.items():
        if column.null_count and pa.types.is_integer(column.type):
            raise InputError(f"column {label!r} has {column.null_count} empty cells; fill them in or drop those rows.")
    return {label: as_numpy(column) for label, column in columns.items()}


def open_file(path: Path | str) -> Table:
    """The columns of a CSV or Parquet file as they are."""
    if not isinstance(path, str | Path):
        raise InputError(f"{kind_of(path)} is no path of a table; tsnn.load reads frames as well.")
    path = Path(path)
    if not path.is_file():
        raise InputError(f"there is no file {path}; give the path of a CSV or Parquet table.")
    separator: str | None = None
    where: Where = plain_row
    if path.name.endswith(SUFFIXES):
        separator = separator_of(path)
        table, where = read_csv(path, separator=separator), lines_of(path, separator)
    elif path.name.endswith(PARQUET_SUFFIXES):
        table = _read_parquet(path)
    else:
        known = ", ".join((*SUFFIXES, *PARQUET_SUFFIXES))
        raise InputError(f"{path} is of no known kind; give a file that ends in one of {known}.")
    columns = {label: table[label] for label in _distinct(table.column_names, str(path))}
    return Table(columns, f"table:{_stem(path)}", path, where, separator)


def _distinct(labels: Sequence[Any], table: str) -> Sequence[Any]:
    seen: set[Any] = set()
    for label in labels:
        if label in seen:
            raise InputError(f"{table} has two columns named {label!r}; rename one of them.")
        seen.add(label)
    return labels


def _read_parquet(path: Path) -> pa.Table:
    try:
        return pq.read_table(path)
    except (pa.ArrowException, OSError):
        raise InputError(f"{path} cannot be read as Parquet; write it again as a Parquet table.") from None


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
    return replace(roles, msg=tuple(declared(table, _msg_columns(table, named["msg"], taken))))


def _msg_columns(table: Mapping[str, Any], msg: MsgColumns, taken: set[str | None]) -> tuple[str, ...]:
    if msg == "auto":
        return tuple(label for label in table if label and label not in taken and is_numeric(table[label]))
    return (msg,) if isinstance(msg, str) else tuple(msg or ())


def _stream_of(
    table: Table,
    roles: Roles,
    node_type: NodeTypes,
    cleaning: Cleaning,
    like: Description | None = None,
    undirected: bool = False,
    kinds: Mapping[str, str | None] | None = None,
) -> EventStream:
    """The stream of a table: its columns by role, its rows cleaned as asked for, and what became of both."""
    if cleaning.missing_relation is not None and roles.edge_type is None:
        raise InputError(
            "--missing-relation names a kind of relation, but no column has relations; name --edge-type too."
        )
    table = _with_ids_apart(table, (roles.src, roles.dst))
    used, messages = _understood(table, roles, like, kinds or {})
    rows, cleaned = clean_rows(used, cleaning, table.where)
    kept = [column.take(rows) for column in used]

    def where(row: int) -> str:
        return table.where(int(rows[row]))

    features = [_features(column, messages, where) for column in kept if column.part == "msg"]
    stream = _as_they_come(kept, [values for values, _ in features], node_type, cleaning, like, table.name, where)
    _check_kind_of_times(stream, like)
    late = int((stream.t < np.maximum.accumulate(stream.t)).sum())
    stream, repeated = in_order(stream, cleaning.sort, where), 0
    if undirected:  # before repeats are sought: an event written from either end is one
        stream = stream.as_undirected()
    if cleaning.dedupe:
        stream, repeated = without_repeats(stream)
    path = None if table.path is None else str(table.path.resolve())
    about = replace(stream.description, roles=roles, cleaning=cleaning, path=path, messages=tuple(messages.values()))
    stream = replace(stream, description=about)
    cleaned = replace(cleaned, late=late, repeated=repeated)
    called, currencies = str(table.path or table.name), [currency for _, currency in features]
    preview = preview_of(called, table.separator, table.columns, kept, currencies, stream, cleaned)
    return replace(stream, preview=preview)


def _understood(
    table: Table, roles: Roles, like: Description | None, kinds: Mapping[str, str | None]
) -> tuple[list[Column], dict[str, MessageColumn]]:
    """Every column that is read, and those of messages that are more than plain numbers."""
    used = [_column(table, label, part, kinds.get(label)) for part, label in roles.by_part()]
    known = {own.column: own for own in like.messages} if like else {}
    if not any(column.part == "msg" for column in used):
        return used, {}
    training = _training_rows(next(column for column in used if column.part == "t"))
    messages = {}
    for i, column in enumerate(used):
        if column.part != "msg":
            continue
        own = understood(column, kinds.get(column.label), known.get(column.label), training)
        if own is not None:
            messages[column.label] = own
            used[i] = replace(column, may_be_empty=True)
    return used, messages


def _training_rows(column: Column) -> Bool:
    """The rows that `split_by_time` will train on, found before the table is put in order."""
    if column.missing.all():
        return ~column.missing
    present = np.flatnonzero(~column.missing)
    times = column.take(present).times(plain_row).values.astype(np.float64)
    training = np.zeros(len(column.missing), np.bool_)
    training[present] = times <= np.quantile(times, TRAINING)
    return training


def _features(column: Column, messages: Mapping[str, MessageColumn], where: Where) -> tuple[NDArray[np.float32], str]:
    """The features of a column, and its currency."""
    own = messages.get(column.label)
    return column.features(where) if own is None else (encode(own, column, where), "")


def _as_they_come(
    columns: Sequence[Column],
    features: Sequence[NDArray[np.float32]],
    node_type: NodeTypes,
    cleaning: Cleaning,
    like: Description | None,
    name: str,
    where: Where,
) -> EventStream:
    """The checked stream of complete rows, in the order of the table."""
    by_part = {column.part: column for column in columns}
    return checked_stream(
        by_part["src"].values,
        by_part["dst"].values,
        by_part["t"].times(where),
        np.concatenate(features, axis=1) if features else None,
        by_part["edge_type"].labels(cleaning.missing_relation) if "edge_type" in by_part else None,
        _types_by_id(by_part, node_type),
        name=name,
        relations=like.relations if like else (),
        where=where,
    )


def _check_kind_of_times(stream: EventStream, like: Description | None) -> None:
    """A run on plain numbers would take microseconds for its own unit, and the other way round."""
    if like and like.roles and like.dates != stream.description.dates:
        own, told = ("plain numbers", "dates") if like.dates else ("dates", "plain numbers")
        raise InputError(f"the times of {stream.name} are {own}, but those of the run are {told}; convert them.")


def _column(table: Table, label: str, part: str, kind: str | None = None) -> Column:
    if label not in table.columns:
        there = tuple(table.columns)
        meant = did_you_mean(label, there)
        raise InputError(
            f"there is no column {label!r}{meant and f' ({meant})'}; name one of the columns that are there: "
            f"{listed(there, 20)}."
        )
    of_numbers = part == "t" or (part == "msg" and kind in (None, "number"))
    return open_column(table.columns[label], label, part, of_numbers=of_numbers)


def _with_ids_apart(table: Table, labels: tuple[str, ...]) -> Table:
    """The table with both columns of ids as text where a number would take two ids for one: 007 and 7, or two beyond
    what the number holds. Dates and yes or no are text in a CSV file, too: ids are what stands there."""
    columns = {label: table.columns[label] for label in labels if label in table.columns}
    values = {label: raw for label, raw in columns.items() if not _is_text(raw)}
    written = as_written(table.path, tuple(values)) if values else {}
    if not any(_merges(raw, written.get(label)) for label, raw in values.items()):
        return table
    texts = {label: written.get(label, _as_text(raw)) for label, raw in values.items()}
    return replace(table, columns={**table.columns, **texts})


def _is_text(raw: Any) -> bool:
    kind = getattr(raw, "type", None)
    if isinstance(kind, pa.DataType):
        return any(is_kind(kind) for is_kind in (pa.types.is_string, pa.types.is_binary, pa.types.is_null))
    return False


def as_written(path: Path | str | None, labels: tuple[str, ...]) -> dict[str, Any]:
    """The cells of these columns as they stand in a CSV file; nothing of anything else."""
    if path is None or not str(path).endswith(SUFFIXES):
        return {}
    path = Path(path)
    texts = read_csv(path, text_columns=labels, separator=separator_of(path), only=True)
    return {label: pc.utf8_trim_whitespace(texts[label]) for label in labels}


def _merges(raw: Any, written: Any) -> bool:
    """Whether ids of a column may fall together, or become what they are not, when its cells are read as values."""
    if written is None:
        column = raw.to_arrow() if hasattr(raw, "to_arrow") else raw
        if isinstance(column, pa.Array | pa.ChunkedArray):
            return pa.types.is_uint64(column.type) and (pc.max(column).as_py() or 0) > _LARGEST
        values = np.asarray(raw.to_numpy() if hasattr(raw, "to_numpy") else raw)
        return values.dtype.kind == "u" and int(values.max(initial=0)) > _LARGEST
    if pa.types.is_integer(raw.type):
        return bool(pc.any(pc.match_substring_regex(written, r"^-?0\d")).as_py())
    if pa.types.is_floating(raw.type):  # one of the cells is no 64-bit integer
        return bool(pc.any(pc.match_substring_regex(written, r"^-?(0\d|\d{16,}$)")).as_py())
    return True


def _as_text(raw: Any) -> Any:
    """A column of numbers as they are spelled."""
    if hasattr(raw, "to_arrow"):
        raw = raw.to_arrow()
    if isinstance(raw, pa.Array | pa.ChunkedArray):
        return raw.cast(pa.string())
    listed = raw.to_list() if hasattr(raw, "to_list") else np.asarray(raw).tolist()
    return np.array([None if x is None else str(x) for x in listed], dtype=object)


def _types_by_id(by_part: Mapping[str, Column], node_type: NodeTypes) -> Mapping[Any, Any] | None:
    if isinstance(node_type, Mapping):
        return node_type
    if isinstance(node_type, str | Path):
        return read_node_types(node_type)
    kinds = tuple(by_part[part].values if part in by_part else None for part in ("src_type", "dst_type"))
    if all(kind is None for kind in kinds):
        return None
    return types_by_side((by_part["src"].values, by_part["dst"].values), kinds)


def read_node_types(path: Path | str) -> dict[Any, Any]:
    """Types by node from a table whose first column is the node and whose second is its type."""
    columns = open_table(path)
    label, kind, *_ = (*columns, None, None)
    if label is None or kind is None:
        raise InputError(f"{path} has fewer than two columns; give a table of node and type.")
    types = columns[kind].tolist()
    found = dict(zip(columns[label].tolist(), types, strict=True))
    written = as_written(path, (label,))  # the stream may have had reasons to read its ids as text
    return found | dict(zip(written[label].to_pylist(), types, strict=True)) if written else found


def _stem(path: Path) -> str:
    return path.name.split(".")[0]


def write_table(stream: EventStream, path: Path | str) -> None:
    """A stream as Parquet that `read_table` reads without further words; features keep their names, or are f0, ..."""
    if not str(path).endswith(PARQUET_SUFFIXES):
        raise InputError(f"{path} would be a Parquet file; let its name end in .parquet.")
    external = np.array(stream.ids.external, dtype=object)
    columns: dict[str, Any] = {name: external[getattr(stream, name)].tolist() for name in ("src", "dst")}
    about = stream.description
    columns["t"] = pa.array(stream.t, pa.timestamp("us", about.zone)) if about.dates else stream.t
    if stream.edge_type is not None:
        columns["edge_type"] = _named(stream.edge_type, about.relations)
    if stream.node_type is not None:
        kinds = _named(stream.node_type, about.types)
        columns |= {"src_type": kinds[stream.src], "dst_type": kinds[stream.dst]}
    msg = _feature_names(stream, set(columns))
    for i, label in enumerate(msg):
        assert stream.msg is not None
        columns[label] = stream.msg[:, i]
    optional = {part: part for part in ("edge_type", "src_type", "dst_type") if part in columns}
    roles = Roles(msg=msg, **optional)
    clean = Cleaning(missing_relation=about.cleaning.missing_relation)
    described = replace(about, roles=roles, cleaning=clean, path=None, messages=())  # they are numbers by now
    table = pa.table(columns).replace_schema_metadata({METADATA: described.to_json()})
    write_whole(Path(path), lambda partial: pq.write_table(table, partial))


def _named(codes: I64, names: tuple[str, ...]) -> NDArray[Any]:
    """What the numbers stand for, where they stand for names."""
    return np.array(names, dtype=object)[codes] if names else codes


def _feature_names(stream: EventStream, taken: set[str]) -> tuple[str, ...]:
    """The columns the features came from, where each was one of them and its name is free."""
    roles = stream.description.roles
    if roles and len(roles.msg) == stream.msg_dim and not taken & set(roles.msg):
        return roles.msg
    return tuple(f"f{i}" for i in range(stream.msg_dim))


def stored_description(path: Path | str) -> Description | None:
    """What `write_table` said of a Parquet file; None for any other."""
    if not str(path).endswith(PARQUET_SUFFIXES):
        return None
    told = (pq.read_schema(path).metadata or {}).get(METADATA)
    return None if told is None else Description.from_json(told)
