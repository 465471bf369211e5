"""Queries as streams: each kind of file, columns by name, and what is refused."""

from __future__ import annotations

import builtins
import json
import sqlite3
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tsnn
from tsnn.errors import InputError
from tsnn.evaluation.catalog import load

duckdb = pytest.importorskip("duckdb")

LOG = {"who": ["ann", "bob", "ann", "eve"], "what": ["tea", "tea", "milk", "milk"], "day": [1, 2, 3, 4]}
COLUMNS = {"src": "who", "dst": "what", "t": "day"}
QUERY = "SELECT who AS src, what AS dst, day AS t FROM {} WHERE day < 4 ORDER BY day"


def rows(stream: tsnn.EventStream) -> list[tuple[str, str, int]]:
    name = stream.ids.external
    return [(name[u], name[v], int(t)) for u, v, t in zip(stream.src, stream.dst, stream.t, strict=True)]


EXPECTED = [("ann", "tea", 1), ("bob", "tea", 2), ("ann", "milk", 3)]


def write(folder: Path, kind: str) -> Path:
    path = folder / f"log.{kind}"
    records = [dict(zip(LOG, row, strict=True)) for row in zip(*LOG.values(), strict=True)]
    if kind == "parquet":
        pq.write_table(pa.table(LOG), path)
    elif kind == "csv":
        path.write_text("\n".join([",".join(LOG), *(",".join(map(str, record.values())) for record in records)]) + "\n")
    elif kind == "jsonl":
        path.write_text("\n".join(map(json.dumps, records)))
    else:
        base = sqlite3.connect(path) if kind == "sqlite" else duckdb.connect(str(path))
        base.execute("CREATE TABLE log (who TEXT, what TEXT, day INTEGER)")
        base.executemany("INSERT INTO log VALUES (?, ?, ?)", list(zip(*LOG.values(), strict=True)))
        if kind == "sqlite":
            base.commit()
        base.close()
    return path


@pytest.mark.parametrize("kind", ["parquet", "csv", "jsonl", "sqlite", "duckdb"])
def test_every_kind_of_file_answers(tmp_path: Path, kind: str) -> None:
    path = write(tmp_path, kind)
    table = "log" if kind in ("sqlite", "duckdb") else "events"
    stream = load(f"duckdb:{path}?query={QUERY.format(table)}")
    assert rows(stream) == EXPECTED
    again = load(stream.name)
    assert again.fingerprint() == stream.fingerprint()


def test_a_file_is_read_whole_and_by_the_names_of_its_columns(tmp_path: Path) -> None:
    path = write(tmp_path, "parquet")
    assert rows(load(f"duckdb:{path}", **COLUMNS)) == [*EXPECTED, ("eve", "milk", 4)]
    later = tmp_path / "logs"
    later.mkdir()
    for year in (1, 2):
        shifted = {**LOG, "day": [10 * year + t for t in LOG["day"]]}
        pq.write_table(pa.table(shifted), later / f"{year}.parquet")
    assert load(f"duckdb:{later}/*.parquet", **COLUMNS).num_events == 8
    with pytest.raises(InputError, match="there is no column 'when'; name one"):
        load(f"duckdb:{path}", **{**COLUMNS, "t": "when"})


def test_a_run_reads_its_query_again(tmp_path: Path) -> None:
    many = {"who": [f"u{i % 5}" for i in range(80)], "what": [f"i{i % 3}" for i in range(80)], "day": list(range(80))}
    pq.write_table(pa.table(many), tmp_path / "log.parquet")
    tiny = {"train.epochs": 1, "train.warmup": 1, "model.stalk_dim": 4, "model.hidden_dim": 4}
    run = tsnn.train(f"duckdb:{tmp_path}/log.parquet", tmp_path / "run", tiny, compare=False, progress=False, **COLUMNS)
    found = tsnn.evaluate(run, f"duckdb:{tmp_path}/log.parquet", progress=False)
    assert found.metrics["test"] == run.metrics["metrics"]["test"]


@pytest.mark.parametrize("kind", ["sqlite", "duckdb", "parquet"])
def test_a_query_that_fails_or_answers_nothing(tmp_path: Path, kind: str) -> None:
    path = write(tmp_path, kind)
    table = "events" if kind == "parquet" else "log"
    with pytest.raises(InputError, match=r"the query on .* failed"):
        load(f"duckdb:{path}?query=SELECT nothing FROM {table}")
    with pytest.raises(InputError, match="has no rows"):
        load(f"duckdb:{path}?query=SELECT who AS src, what AS dst, day AS t FROM {table} WHERE day > 9")
    before = path.read_bytes()
    with pytest.raises(InputError, match=r"failed|answers nothing"):
        load(f"duckdb:{path}?query=DROP TABLE log")
    assert path.read_bytes() == before


def test_what_is_no_file_of_events_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match=r"there is no file '.*gone.parquet'; write duckdb:FILE"):
        load(f"duckdb:{tmp_path}/gone.parquet")
    with pytest.raises(InputError, match="Postgres is not read"):
        load("duckdb:postgres://host/base?query=SELECT 1")
    path = write(tmp_path, "duckdb")
    with pytest.raises(InputError, match="is a database; say which rows are events"):
        load(f"duckdb:{path}")
    with pytest.raises(InputError, match="has an empty query"):
        load(f"duckdb:{path}?query= ")
    true = builtins.__import__

    def without(name: str, *args: object, **kwargs: object) -> object:
        if name == "duckdb":
            raise ImportError(name)
        return true(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(InputError, match=r"duckdb is not installed; install tsnn\[duckdb\]"):
        load(f"duckdb:{path}?query=SELECT 1")
