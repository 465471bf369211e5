"""`duckdb:FILE?query=SELECT ...`: what a query answers, as a table of events.

FILE is a Parquet, CSV or JSON file (or several, as logs/*.parquet), which the query knows as `events` and which is
taken whole without a query; or a database of DuckDB or SQLite, whose own tables the query names. Files are only read.
Nothing is fetched: SQLite is read by Python itself, and Postgres, whose extension would have to be downloaded, is not.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pyarrow as pa

from tsnn.data.description import Description
from tsnn.data.events import EventStream
from tsnn.data.table import from_arrow
from tsnn.errors import InputError

_READERS = {
    "read_parquet": (".parquet", ".pq"),
    "read_csv_auto": (".csv", ".csv.gz", ".tsv", ".tsv.gz", ".txt", ".txt.gz"),
    "read_json_auto": (".json", ".json.gz", ".jsonl", ".jsonl.gz", ".ndjson", ".ndjson.gz"),
}
_SQLITE = b"SQLite format 3\0"  # how such a file begins
_KEY = "?query="
_FETCHING = ("autoinstall_known_extensions", "autoload_known_extensions")


def load_duckdb(address: str, like: Description | None = None, undirected: bool = False, **columns: Any) -> EventStream:
    """The stream of a query's answer, by what stands behind `duckdb:`; columns are named as in `read_table`."""
    file, key, query = address.partition(_KEY)
    if file.startswith(("postgres:", "postgresql:")):
        raise InputError(
            "Postgres is not read: DuckDB would have to download an extension for it; export the query with "
            "COPY (SELECT ...) TO 'events.csv', and read that."
        )
    several = "*" in file
    path = Path(file)
    if not file or not (path.is_file() or (several and any(path.parent.glob(path.name)))):
        raise InputError(f"there is no file {file!r}; write duckdb:FILE{_KEY}SELECT ...")
    if key and not query.strip():
        raise InputError(f"duckdb:{file} has an empty query; write duckdb:{file}{_KEY}SELECT ...")
    reader = next((name for name, endings in _READERS.items() if file.endswith(endings)), None)
    if reader is None and not key:
        raise InputError(f"{file} is a database; say which rows are events, as duckdb:{file}{_KEY}SELECT ...")
    if not several and _begins_with(path, _SQLITE):
        frame = _from_sqlite(path, query)
    else:
        frame = _from_duckdb(path, reader, query or "SELECT * FROM events")
    if not frame.num_rows:
        raise InputError(f"the query on {file} has no rows; ask for events.")
    return from_arrow(frame, f"duckdb:{path.resolve()}{key}{query}", like, undirected, **columns)


def _begins_with(path: Path, mark: bytes) -> bool:
    with path.open("rb") as file:
        return file.read(len(mark)) == mark


def _from_duckdb(path: Path, reader: str | None, query: str) -> pa.Table:
    try:
        import duckdb
    except ImportError:
        raise InputError("duckdb is not installed; install tsnn[duckdb].") from None
    offline: dict[str, str | bool | int | float | list[str]] = {
        "autoinstall_known_extensions": "false",
        "autoload_known_extensions": "false",
    }
    try:
        with duckdb.connect(":memory:" if reader else str(path), read_only=reader is None, config=offline) as base:
            if reader:
                quoted = str(path).replace("'", "''")
                base.execute(f"CREATE VIEW events AS SELECT * FROM {reader}('{quoted}')")
            answer = base.sql(query)
            if answer is None:
                raise InputError(f"the query on {path} answers nothing; it has to be a SELECT.")
            return pa.table(answer.to_arrow_table())
    except duckdb.Error as error:
        raise _refusal(path, error) from None


def _from_sqlite(path: Path, query: str) -> pa.Table:
    try:
        base = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)
        try:
            cursor = base.execute(query)
            names = [name for name, *_ in cursor.description or ()]
            rows = cursor.fetchall()
        finally:
            base.close()
    except sqlite3.Error as error:
        raise _refusal(path, error) from None
    if not names:
        raise InputError(f"the query on {path} answers nothing; it has to be a SELECT.")
    columns = list(zip(*rows, strict=True)) or [() for _ in names]
    try:
        return pa.table(list(map(pa.array, columns)), names=names)
    except pa.ArrowException:
        raise InputError(f"a column of the query on {path} mixes kinds of values; CAST it in the query.") from None


def _refusal(path: Path, error: Exception) -> InputError:
    reason = str(error).splitlines()[0].rstrip(".")
    return InputError(f"the query on {path} failed ({reason}); mend the query, or name the file it is meant for.")
