"""Copies of a running service start where it stood; the log as a table says what the log does."""

from __future__ import annotations

import json
import sqlite3
import threading

import numpy as np
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from tests.online.streams import dated_stream, save_stream
from tests.serve.runs import as_event, some_events
from tests.serve.states import fingerprint, replay_one_by_one
from tsnn.cli.main import app
from tsnn.data.table import read_table
from tsnn.errors import InputError, RunError
from tsnn.serve.backup import back_up
from tsnn.serve.export import export_log
from tsnn.serve.service import HOME, Service
from tsnn.serve.verify import verify_log

EVENTS = [as_event(fields) for fields in some_events(400, prefix="k")]


def test_a_copy_that_is_made_under_load_starts_where_the_service_stood(run, tmp_path):
    service = Service(run, snapshot_every=20)
    sent, stop = [0], threading.Event()

    def feed() -> None:
        while not stop.is_set() and sent[0] < len(EVENTS):
            service.submit(EVENTS[sent[0] : sent[0] + 2]).result()
            sent[0] += 2

    service.submit(EVENTS[:60]).result()
    sent[0] = 60
    feeder = threading.Thread(target=feed)
    feeder.start()
    before = sent[0]
    try:
        done = [back_up(run, tmp_path / f"copy-{i}", print) for i in range(2)]
    finally:
        stop.set()
        feeder.join()
        service.close()
    for copy in done:
        assert before <= copy.events <= sent[0]
        assert verify_log(copy.folder / HOME).fault is None
        again = Service(copy.folder)
        assert fingerprint(again.predictor) == fingerprint(replay_one_by_one(run, EVENTS[: copy.events]))
        assert again.submit(EVENTS[copy.events - 2 : copy.events + 2]).result().duplicates == 2
        again.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["copy-0", "copy-1", "run"]


def test_a_copy_of_what_is_damaged_is_not_made(run, tmp_path):
    service = Service(run)
    service.submit(EVENTS[:20]).result()
    service.close()
    with sqlite3.connect(run / HOME / "events.sqlite") as connection:
        connection.execute("UPDATE events SET t = t + 1 WHERE position = 7")
    connection.close()
    with pytest.raises(RunError, match="damaged"):
        back_up(run, tmp_path / "copy", print)
    assert [path.name for path in tmp_path.iterdir()] == ["run"]
    (tmp_path / "there").mkdir()
    with pytest.raises(InputError, match="is there already"):
        back_up(run, tmp_path / "there", print)


def test_a_run_that_nobody_served_is_copied_too(run, tmp_path):
    told = CliRunner().invoke(app, ["backup", str(run), str(tmp_path / "copy"), "--json"])
    assert told.exit_code == 0, told.output
    assert json.loads(told.stdout) == {"folder": str(tmp_path / "copy"), "events": 0, "clock": 400}
    assert {path.name for path in (tmp_path / "copy").iterdir()} == {path.name for path in run.iterdir()}


# The log as a table


def test_the_table_holds_what_the_log_holds(run, tmp_path):
    service = Service(run)
    service.submit(EVENTS).result()
    told = CliRunner().invoke(app, ["log", "export", str(run), "--out", str(tmp_path / "log.parquet"), "--json"])
    service.close()
    assert told.exit_code == 0, told.output
    assert json.loads(told.stdout)["events"] == len(EVENTS)
    rows = pq.read_table(tmp_path / "log.parquet").to_pylist()
    assert [row["position"] for row in rows] == list(range(1, len(EVENTS) + 1))
    for row, event in zip(rows, EVENTS, strict=True):
        assert (row["src"], row["dst"]) == (str(event.src), str(event.dst))
        assert (row["t"], row["edge_type"], row["key"]) == (event.t, event.edge_type, event.key)
        assert np.array([row["f0"], row["f1"]], "<f4").tobytes() == event.msg
    stream = read_table(tmp_path / "log.parquet")
    assert (stream.num_events, stream.msg_dim, stream.num_relations) == (len(EVENTS), 2, 3)
    assert stream.t.tolist() == [event.t for event in EVENTS]


def test_dates_and_names_of_relations_go_with_it(tmp_path):
    run = save_stream(tmp_path / "run", dated_stream())
    service = Service(run)
    event = {"src": "u1", "dst": "v1", "t": "2024-03-03T19:30:00Z", "edge_type": "pay"}
    service.submit([as_event(event)]).result()
    service.close()
    assert export_log(run, tmp_path / "log.parquet") == 1
    stream = read_table(tmp_path / "log.parquet")
    assert stream.description.dates
    assert stream.description.show_time(int(stream.t[0])) == "2024-03-03T19:30:00Z"
    assert stream.description.relation_name(int(stream.edge_type[0])) == "pay"


def test_two_nodes_of_one_name_are_not_made_one(run, tmp_path):
    service = Service(run)
    service.submit([as_event({**some_events(1)[0], "src": 7, "dst": "7"})]).result()
    service.close()
    with pytest.raises(InputError, match="7 is the name of two nodes"):
        export_log(run, tmp_path / "log.parquet")
    with pytest.raises(InputError, match=r"end in \.parquet"):
        export_log(run, tmp_path / "log.csv")


def test_an_empty_log_is_no_table(run, tmp_path):
    Service(run).close()
    with pytest.raises(InputError, match="no events yet"):
        export_log(run, tmp_path / "log.parquet")
