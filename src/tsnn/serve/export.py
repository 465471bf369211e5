"""The log as a Parquet table, which `tsnn train` and every other tool reads."""

from __future__ import annotations

import sqlite3
from collections.abc import Hashable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tsnn.data.description import Cleaning, Description, Roles
from tsnn.data.table import METADATA, PARQUET_SUFFIXES
from tsnn.errors import InputError, RunError
from tsnn.files import check_file_target, write_whole
from tsnn.online.event import Event
from tsnn.serve.eventlog import LogReader, check_meta
from tsnn.serve.rewrite import check_there
from tsnn.serve.service import HOME, run_identity
from tsnn.serve.verify import check_log
from tsnn.training.run import read_description


def export_log(run: Path, target: Path) -> int:
    """Write all logged events, in order, and return how many; also while a service goes on appending."""
    check_there(run)
    check_file_target(target)
    if target.suffix not in PARQUET_SUFFIXES:
        raise InputError(f"{target} would be a Parquet file; let its name end in .parquet.")
    check_log(run, run / HOME)
    try:
        with closing(LogReader(run / HOME)) as reader:
            check_meta(run / HOME, reader.connection, run_identity(run))
            reader.connection.execute("BEGIN")  # one moment of the log
            count = reader.last_position()
            if not count:
                raise InputError(f"the log of {run} holds no events yet; there is nothing to export.")
            table = _Table(reader, read_description(run))
            write_whole(target, lambda partial: table.write(partial))
            return count
    except sqlite3.Error as error:
        raise RunError(f"the event log of {run} cannot be read ({error}); run tsnn log verify {run}.") from None


class _Table:
    """Columns of one kind each, found by a look at all rows before the first is written."""

    def __init__(self, reader: LogReader, about: Description) -> None:
        self._reader, self._about = reader, about
        ask = reader.connection.execute
        texts, fractions, width = ask(
            "SELECT max(typeof(src) = 'text' OR typeof(dst) = 'text'), max(typeof(t) = 'real'), max(length(msg)) "
            "FROM events"
        ).fetchone()
        self._relations = ask("SELECT max(edge_type IS NOT NULL) FROM events").fetchone()[0]
        self._texts = bool(texts)
        if self._texts:
            self._refuse_twins()
        self._time = pa.timestamp("us", about.zone) if about.dates else pa.float64() if fractions else pa.int64()
        self._width = (width or 0) // 4
        names = about.roles.msg if about.roles and len(about.roles.msg) == self._width else ()
        taken = {"position", "src", "dst", "t", "edge_type", "key"}
        self._features = names if names and not taken & set(names) else tuple(f"f{i}" for i in range(self._width))

    def _refuse_twins(self) -> None:
        """7 and "7" are two nodes, which a column of text would make one."""
        numbers: set[Hashable] = set()
        texts: set[Hashable] = set()
        for events in self._reader.read(0):
            for event in events:
                for name in (event.src, event.dst):
                    (texts if isinstance(name, str) else numbers).add(str(name))
        if both := numbers & texts:
            raise InputError(
                f"{min(map(str, both))} is the name of two nodes, a number and a text; no table tells them."
            )

    def write(self, path: Path) -> None:
        with closing(pq.ParquetWriter(path, self._schema())) as writer:
            for columns in self._blocks():
                writer.write_table(pa.table(columns, schema=self._schema()))

    def _schema(self) -> pa.Schema:
        node = pa.string() if self._texts else pa.int64()
        fields = [("position", pa.int64()), ("src", node), ("dst", node), ("t", self._time)]
        if self._relations:
            fields.append(("edge_type", pa.string() if self._about.relations else pa.int64()))
        fields += [(name, pa.float32()) for name in self._features] + [("key", pa.string())]
        roles = Roles(msg=self._features, edge_type="edge_type" if self._relations else None)
        cleaning = Cleaning(missing_relation=self._about.cleaning.missing_relation)
        described = replace(self._about, roles=roles, cleaning=cleaning, path=None, types=())
        return pa.schema(fields, metadata={METADATA: described.to_json()})

    def _blocks(self) -> Iterator[dict[str, Any]]:
        first = 1
        for events in self._reader.read(0):
            yield self._columns(events, first)
            first += len(events)

    def _columns(self, events: list[Event], first: int) -> dict[str, Any]:
        def name(node: Hashable) -> Hashable:
            return str(node) if self._texts else node

        src, dst, t, msg, kinds, keys = zip(*events, strict=True)
        columns: dict[str, Any] = {"position": range(first, first + len(events))}
        columns |= {"src": map(name, src), "dst": map(name, dst), "t": t}
        columns = {label: list(values) for label, values in columns.items()}
        if self._relations:
            columns["edge_type"] = [self._about.relation_name(kind) for kind in kinds]
        if self._width:
            features = np.frombuffer(b"".join(msg), "<f4").reshape(-1, self._width)
            columns |= {label: features[:, i] for i, label in enumerate(self._features)}
        return {**columns, "key": list(keys)}
