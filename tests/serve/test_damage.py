"""What a disk, or a person, can do to a log: each damage is told before anything is answered, and can be mended."""

from __future__ import annotations

import json
import shutil
import sqlite3
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.serve.runs import as_event, some_events
from tests.serve.states import fingerprint, replay_one_by_one
from tsnn.cli.main import app
from tsnn.errors import InputError, RunError
from tsnn.online.event import Event
from tsnn.serve.eventlog import FILE, Chosen, EventLog, Receipt
from tsnn.serve.marks import END, End, EndFile, read_end
from tsnn.serve.repair import WAL, repair_log
from tsnn.serve.rewrite import drop_events
from tsnn.serve.service import HOME, Service, run_identity
from tsnn.serve.snapshots import FOLDER
from tsnn.serve.verify import verify_log

COUNT, STEP = 60, 5
SENT = [as_event(fields) for fields in some_events(COUNT, prefix="k")]


@pytest.fixture
def killed(run, tmp_path) -> Path:
    """A run whose service was killed after all events: the newest of them are in the write-ahead log alone."""
    home = run / HOME
    home.mkdir()
    log = EventLog(home, run_identity(run))
    for start in range(0, COUNT, STEP):
        if start == COUNT // 2:  # half of the events have been moved to the main file
            log.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        log.append(SENT[start : start + STEP], [Receipt(f"request {start}", b"digest", start + STEP)])
    left = Path(shutil.copytree(run, tmp_path / "killed"))  # as the system keeps the files through a kill
    log.close()
    return left


def flip(path: Path, place: int) -> None:
    data = bytearray(path.read_bytes())
    data[place // 8] ^= 1 << place % 8
    path.write_bytes(data)


def place_of(path: Path, what: bytes) -> int:
    """The bit at which these bytes stand for the last time."""
    at = path.read_bytes().rfind(what)
    assert at >= 0
    return 8 * at


def state_of(run: Path) -> str:
    service = Service(run)
    try:
        return fingerprint(service.predictor)
    finally:
        service.close()


def logged(run: Path) -> list[Event]:
    service = Service(run)
    try:
        return [event for block in service.log.read(0) for event in block]
    finally:
        service.close()


# What the log says of itself


def test_after_a_kill_everything_is_there(killed, run):
    assert verify_log(killed / HOME)._replace(transactions=0) == (COUNT, 0, None, True)
    assert verify_log(killed / HOME).transactions == COUNT // STEP
    assert state_of(killed) == fingerprint(replay_one_by_one(run, SENT))


def test_looking_changes_no_byte(killed):
    def files() -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in (killed / HOME).iterdir() if not path.name.endswith("-shm")}

    before = files()
    assert WAL in before
    verify_log(killed / HOME)
    assert files() == before


def test_a_flipped_byte_in_the_write_ahead_log_is_not_taken_for_its_end(killed):
    flip(killed / HOME / WAL, place_of(killed / HOME / WAL, b"k40"))
    with pytest.raises(RunError, match="60 were acknowledged; nothing was changed"):
        Service(killed)
    with pytest.raises(RunError, match="60 were acknowledged"):  # looking twice does not make it right
        Service(killed)


@pytest.mark.parametrize("left", [0, 40, 0.3, 0.6, 0.9])
def test_a_write_ahead_log_cut_short_is_told(killed, left):
    data = (killed / HOME / WAL).read_bytes()
    (killed / HOME / WAL).write_bytes(data[: int(left * len(data)) if isinstance(left, float) else left])
    with pytest.raises(RunError, match="60 were acknowledged"):
        Service(killed)


def test_a_changed_row_in_the_main_file_is_told(killed):
    Service(killed).close()  # which moves all that is in the write-ahead log
    flip(killed / HOME / FILE, place_of(killed / HOME / FILE, b"k12") + 8)
    with pytest.raises(RunError, match=r"damaged: (events 11 to 15 are not as they were|events.sqlite is torn)"):
        Service(killed)


CHANGES = {
    "a time": "UPDATE events SET t = t + 1 WHERE position = 7",
    "a name": "UPDATE events SET src = 'another' WHERE position = 7",
    "a feature": "UPDATE events SET msg = zeroblob(8) WHERE position = 7",
    "a missing row": "DELETE FROM events WHERE position = 7",
    "the last row": "DELETE FROM events WHERE position = 60",
    "a mark": "UPDATE marks SET mark = zeroblob(32) WHERE position = 10",
    "the last mark": "UPDATE marks SET mark = zeroblob(32) WHERE position = 60",
    "a missing mark": "DELETE FROM marks WHERE position = 10",
    "no last transaction": "DELETE FROM events WHERE position > 55; DELETE FROM marks WHERE position > 55",
    "a lost key of a request": "DELETE FROM requests WHERE key = 'request 5'",
    "a row behind the end": "INSERT INTO events VALUES (61, 1, 2, 900, zeroblob(8), 0, NULL)",
}


@pytest.mark.parametrize("change", CHANGES)
def test_whatever_changes_in_the_log_is_told(killed, change):
    with sqlite3.connect(killed / HOME / FILE) as connection:
        connection.executescript(CHANGES[change])
    connection.close()
    with pytest.raises(RunError, match="nothing was changed"):
        Service(killed)


def test_a_deleted_log_does_not_begin_anew(killed):
    for name in (FILE, WAL):
        (killed / HOME / name).unlink()
    with pytest.raises(RunError, match="60 acknowledged events"):
        Service(killed)


@pytest.mark.parametrize("damage", ["gone", "empty", "noise", "older"])
def test_a_damaged_end_file_is_told(killed, damage, tmp_path):
    path = killed / HOME / END
    if damage == "gone":
        path.unlink()
    elif damage == "older":  # of another log: longer, and of other events
        other = EndFile(path.parent)
        other.begin(End(20, b"x" * 32))
        other.close()
    else:
        path.write_bytes(b"" if damage == "empty" else b"n" * 1024)
    with pytest.raises(RunError, match="damaged"):
        Service(killed)


def test_one_torn_slot_of_the_end_file_leaves_the_other(killed):
    data = (killed / HOME / END).read_bytes()
    for slot in (0, 512):
        torn = bytearray(data)
        torn[slot + 3] ^= 1
        (killed / HOME / END).write_bytes(torn)
        assert read_end(killed / HOME).position in (COUNT, COUNT - STEP)
        assert verify_log(killed / HOME).fault is None


def test_a_log_from_before_there_were_marks_gets_them(run, tmp_path):
    (run / HOME).mkdir()
    log = EventLog(run / HOME, run_identity(run))
    log.append(SENT, [Receipt("request", b"digest", COUNT)])
    log.connection.execute("DROP TABLE marks")
    log.connection.execute("UPDATE meta SET value = '1' WHERE name = 'format'")
    log.close()
    (run / HOME / END).unlink()
    said: list[str] = []
    service = Service(run, say=said.append)
    assert said == ["the log was written without checksums; its 60 events have them from now on."]
    assert fingerprint(service.predictor) == fingerprint(replay_one_by_one(run, SENT))
    service.close()
    assert verify_log(run / HOME) == (COUNT, 1, None, True)
    with sqlite3.connect(run / HOME / FILE) as connection:
        connection.execute("UPDATE events SET t = t + 1 WHERE position = 7")
    connection.close()
    with pytest.raises(RunError, match="events 1 to 60 are not as they were"):
        Service(run)


def test_events_taken_back_leave_a_log_that_agrees_with_itself(killed, run):
    Service(killed).close()
    for chosen in (Chosen(7, 9), Chosen(57, 57), Chosen(1, 1)):
        drop_events(killed, chosen, print)
        assert verify_log(killed / HOME).fault is None
    left = [event for i, event in enumerate(SENT, 1) if i not in (1, 7, 8, 9, 60)]
    assert state_of(killed) == fingerprint(replay_one_by_one(run, left))


def test_a_snapshot_of_another_history_is_passed_over(killed, run):
    Service(killed).close()
    snapshot = killed / HOME / FOLDER / f"{COUNT:012d}"
    told = json.loads((snapshot / "snapshot.json").read_text())
    (snapshot / "snapshot.json").write_text(json.dumps({**told, "mark": "00" * 16}))
    said: list[str] = []
    service = Service(killed, say=said.append)
    assert service.snapshot_position == 0
    assert "of another log" in said[0]
    assert fingerprint(service.predictor) == fingerprint(replay_one_by_one(run, SENT))
    service.close()


def test_the_first_snapshot_comes_early(run, monkeypatch):
    monkeypatch.setattr("tsnn.serve.service.EARLY", 10)
    service = Service(run)
    service.submit(SENT[:12]).result()
    service.submit(SENT[12:14]).result()
    for _ in range(1000):
        if service.snapshot_position:
            break
        time.sleep(0.01)
    assert service.snapshot_position in (12, 14)
    service.close()


@pytest.mark.parametrize("what", ["the folder", "its file", "all files of it"])
def test_a_log_that_is_removed_while_it_is_served_takes_nothing_more(serve, run, what):
    client = serve()
    assert client.post("/events", json=some_events(4)).is_success
    if what == "the folder":
        shutil.rmtree(run / HOME)
    else:
        for path in (run / HOME).glob("events.*" if what == "all files of it" else FILE):
            path.unlink()
    assert client.get("/health").status_code == 503
    for start in (500, 510, 520):
        answer = client.post("/events", json=some_events(4, start=start))
        assert answer.status_code == 503
        assert "has been removed" in answer.json()["error"]
    assert client.get("/health").status_code == 503
    client.service.close()
    with pytest.raises(RunError, match=r"events\.sqlite is gone|put the log back"):
        Service(run)


# Repair


def test_a_flip_in_the_write_ahead_log_costs_nothing_where_the_page_was_written_again(killed, run):
    data = (killed / HOME / WAL).read_bytes()
    flip(killed / HOME / WAL, 8 * data.find(b"k40"))
    done = repair_log(killed, print)
    assert (done.lost, done.readable, done.kept) == ([], [], COUNT)
    assert logged(killed) == SENT
    assert state_of(killed) == fingerprint(replay_one_by_one(run, SENT))
    assert (done.aside / WAL).read_bytes() != data  # as it was found
    (killed / HOME / "snapshots").rename(killed / "elsewhere")
    assert state_of(killed) == fingerprint(replay_one_by_one(run, SENT))


def test_a_changed_event_costs_its_transaction_and_no_other(killed, run):
    with sqlite3.connect(killed / HOME / FILE) as connection:
        connection.execute("UPDATE events SET t = t + 1 WHERE position = 43")
    connection.close()
    done = repair_log(killed, print)
    assert done.lost == [(41, 45)]
    assert [position for position, _ in done.readable] == [41, 42, 43, 44, 45]
    left = SENT[:40] + SENT[45:]
    assert logged(killed) == left
    assert state_of(killed) == fingerprint(replay_one_by_one(run, left))


def test_what_is_repaired_can_be_sent_again(killed):
    with sqlite3.connect(killed / HOME / FILE) as connection:
        connection.execute("UPDATE events SET t = t + 1 WHERE position = 60")
    connection.close()
    assert repair_log(killed, print).lost == [(56, 60)]
    service = Service(killed)
    assert service.submit(SENT[55:], "request 55").result().applied == 5
    assert service.submit(SENT[50:55], "request 50") is not None
    service.close()
    assert logged(killed) == SENT


def test_repair_of_a_cut_log_says_how_many_are_gone(killed):
    (killed / HOME / WAL).write_bytes(b"")
    done = repair_log(killed, print)
    assert (done.lost, done.kept) == ([(31, 60)], 30)
    assert logged(killed) == SENT[:30]


def test_repair_of_a_log_that_is_gone(killed):
    for name in (FILE, WAL):
        (killed / HOME / name).unlink()
    done = repair_log(killed, print)
    assert (done.lost, done.kept) == ([(1, 60)], 0)
    assert logged(killed) == []


def test_repair_loses_nothing_where_only_the_end_file_is_gone(killed):
    (killed / HOME / END).unlink()
    assert repair_log(killed, print).lost == []
    assert logged(killed) == SENT


def test_a_whole_log_is_not_repaired(killed):
    with pytest.raises(InputError, match="nothing to repair"):
        repair_log(killed, print)


def test_verify_and_repair_on_the_command_line(killed):
    told = CliRunner().invoke(app, ["log", "verify", str(killed)])
    assert (told.exit_code, told.stdout) == (0, "60 events in 12 transactions, all as they were acknowledged\n")
    with sqlite3.connect(killed / HOME / FILE) as connection:
        connection.execute("UPDATE events SET t = t + 1 WHERE position = 7")
    connection.close()
    told = CliRunner().invoke(app, ["log", "verify", str(killed), "--json"])
    assert told.exit_code == 1
    assert json.loads(told.stdout)["fault"] == "events 6 to 10 are not as they were"
    told = CliRunner().invoke(app, ["log", "repair", str(killed), "--json"])
    assert told.exit_code == 0, told.output
    done = json.loads(told.stdout)
    assert (done["lost"], done["left"]) == ([[6, 10]], 55)
    assert [event["key"] for event in done["readable"]] == ["k5", "k6", "k7", "k8", "k9"]
    assert CliRunner().invoke(app, ["log", "verify", str(killed)]).exit_code == 0


@pytest.mark.parametrize("stage", ["before the commit", "after it"])
def test_a_kill_while_events_are_taken_back_is_no_damage(killed, run, monkeypatch, stage):
    Service(killed).close()

    def stopped(*_args):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        if stage == "after it":
            patch.setattr(EventLog, "_go_to_end", stopped_after(EventLog._go_to_end, calls=1))
        else:
            patch.setattr(EventLog, "_announce", lambda log, mark: (announce(log, mark), stopped()))
        with pytest.raises(KeyboardInterrupt):
            drop_events(killed, Chosen(31, 40), print)
    assert (killed / HOME / "next").is_dir()
    assert verify_log(killed / HOME).fault is None
    left = SENT if stage == "before the commit" else SENT[:30] + SENT[40:]
    assert logged(killed) == left
    assert state_of(killed) == fingerprint(replay_one_by_one(run, left))
    assert not (killed / HOME / "next").exists()


announce = EventLog._announce


def stopped_after(real, calls: int):
    """Works so many times, then is interrupted."""
    count = [0]

    def maybe(log):
        count[0] += 1
        if count[0] > calls:
            raise KeyboardInterrupt
        real(log)

    return maybe


def test_a_log_is_checked_while_it_grows(run):
    service = Service(run)
    futures = [service.submit(SENT[i : i + 1]) for i in range(COUNT)]
    verdicts = [verify_log(run / HOME) for _ in range(20)]
    for future in futures:
        future.result()
    service.close()
    assert [verdict.fault for verdict in verdicts] == [None] * 20


def test_a_kill_before_the_first_event_leaves_a_log_that_begins(run):
    (run / HOME).mkdir()
    (run / HOME / FILE).touch()  # made, and nothing in it yet
    assert verify_log(run / HOME) == (0, 0, None, True)
    service = Service(run)
    assert service.submit(SENT[:2]).result().position == 2
    service.close()
    assert logged(run) == SENT[:2]
