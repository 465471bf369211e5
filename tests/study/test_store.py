"""The store of results: one file a table, always whole, shared by all who fill a folder."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from tsnn.errors import RunError
from tsnn.study.store import ResultStore


def record(key: str, value: float = 0.0) -> dict:
    return {"key": key, "metrics": {"test": {"ap": value}}}


def test_a_table_has_one_file_sorted_by_key(tmp_path):
    store = ResultStore(tmp_path)
    for table, key in (("dgb", "b"), ("dgb", "a"), ("sheaf", "c")):
        store.save(table, record(key))
    assert {path.name for path in (tmp_path / "jobs").iterdir()} == {"dgb.jsonl", "sheaf.jsonl"}
    assert [line[:11] for line in (tmp_path / "jobs" / "dgb.jsonl").read_text().splitlines()] == [
        '{"key": "a"',
        '{"key": "b"',
    ]


def test_a_look_up_asks_all_files(tmp_path):
    store = ResultStore(tmp_path)
    store.save("dgb", record("a"))
    store.save("sheaf", record("b"))
    assert store.load() == {"a": record("a"), "b": record("b")}
    assert ResultStore(tmp_path / "nowhere").load() == {}


def test_saving_again_replaces(tmp_path):
    store = ResultStore(tmp_path)
    store.save("dgb", record("a", 0.5))
    store.save("dgb", record("a", 0.75))
    assert store.load() == {"a": record("a", 0.75)}


def test_writers_at_the_same_time_lose_nothing(tmp_path):
    keys = [f"{i:02}" for i in range(40)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda key: ResultStore(tmp_path).save("dgb", record(key)), keys))
    assert list(ResultStore(tmp_path).load()) == keys


def test_records_that_nobody_needs_are_dropped(tmp_path):
    store = ResultStore(tmp_path)
    for table, key in (("dgb", "a"), ("dgb", "b"), ("sheaf", "c")):
        store.save(table, record(key))
    store.keep_only({"a", "c"})
    assert list(store.load()) == ["a", "c"]


def test_a_torn_record_is_named(tmp_path):
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs" / "dgb.jsonl").write_text('{"key": "a"}\n{"key')
    with pytest.raises(RunError, match="remove that line"):
        ResultStore(tmp_path).load()
