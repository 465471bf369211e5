"""The log keeps what it took, whole transactions only, whatever the disk does; snapshots are whole or passed over."""

from __future__ import annotations

import json
import resource

import pytest

from tsnn.errors import RunError
from tsnn.online.event import Event
from tsnn.serve.eventlog import EventLog, FolderLock, LogError, Receipt
from tsnn.serve.snapshots import MANIFEST, newest_snapshot, sweep_partial, write_snapshot

EVENTS = [
    Event("alice", 7, 1.5, b"\x00\x00\x80?", 2, "a"),
    Event(-(2**63), "7", 2**53 + 1),  # an integer time that no float64 holds, and the text "7" beside the integer
    Event("nul\x00inside", "ünïcode", 9007199254740993, None, 0, "b"),
]


def all_events(log: EventLog, after: int = 0) -> list[Event]:
    return [event for block in log.read(after) for event in block]


def test_events_come_back_with_their_types(tmp_path):
    log = EventLog(tmp_path, "run")
    log.append(EVENTS)
    log.close()
    again = EventLog(tmp_path, "run")
    assert again.position == 3
    assert all_events(again) == EVENTS
    assert [type(e.src) for e in all_events(again)] == [str, int, str]
    assert all_events(again, after=2) == EVENTS[2:]


def test_keys_and_receipts_are_found(tmp_path):
    log = EventLog(tmp_path, "run")
    log.append(EVENTS, [Receipt("request", b"digest", 3)])
    assert log.events_of(["a", "b", "c"]) == {"a": EVENTS[0], "b": EVENTS[2]}
    assert log.receipt_of("request") == Receipt("request", b"digest", 3)
    assert log.receipt_of("other") is None
    many = [f"key-{i}" for i in range(2000)]
    log.append([Event(1, 2, 3, key=key) for key in many])
    assert set(log.events_of(many)) == set(many)


def test_a_transaction_that_fails_leaves_nothing(tmp_path):
    log = EventLog(tmp_path, "run")
    log.append(EVENTS)
    with pytest.raises(LogError):
        log.append([Event(1, 2, 3), Event(4, 5, 6, key="a")])  # the key is taken
    assert log.position == 3
    log.append([Event(1, 2, 3)])
    assert all_events(log) == [*EVENTS, Event(1, 2, 3)]


def test_a_log_of_another_run_is_refused(tmp_path):
    EventLog(tmp_path, "run").close()
    with pytest.raises(RunError, match="another run"):
        EventLog(tmp_path, "other")


def test_a_file_that_is_no_log_is_refused_and_kept(tmp_path):
    (tmp_path / "events.sqlite").write_bytes(b"something else" * 500)
    with pytest.raises(RunError, match="cannot be opened"):
        EventLog(tmp_path, "run")
    assert (tmp_path / "events.sqlite").read_bytes() == b"something else" * 500


def fill_up(log: EventLog) -> tuple[int, str]:
    for i in range(1000):
        try:
            log.append([Event(f"a long name of a node {j}" * 5, j, i) for j in range(100)])
        except LogError as error:
            return 100 * i, str(error)
    pytest.fail("the limit was never met")


def test_a_full_disk_loses_nothing_and_the_log_goes_on_once_there_is_room(tmp_path):
    log = EventLog(tmp_path, "run")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, hard))  # the system refuses to let a file grow beyond this
    try:
        kept, sentence = fill_up(log)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert kept > 0
    assert "took none of the events" in sentence
    log.recover()
    assert log.position == kept
    log.append([Event(1, 2, 10_000)])
    log.close()
    events = all_events(EventLog(tmp_path, "run"))
    assert [e.t for e in events] == [*(i // 100 for i in range(kept)), 10_000]


def test_one_process_at_a_time(tmp_path):
    lock = FolderLock(tmp_path)
    with pytest.raises(RunError, match="another process serves"):
        FolderLock(tmp_path)
    lock.release()
    FolderLock(tmp_path).release()


def fill(text: str):
    def save(folder):
        (folder / "state").write_text(text)
        (folder / "ids").write_text("ids")

    return save


def test_the_newest_snapshot_counts_and_few_are_kept(tmp_path):
    for position in (5, 30, 200):
        write_snapshot(tmp_path, position, fill(str(position)))
    newest = newest_snapshot(tmp_path, pytest.fail)
    assert newest.position == 200
    assert (newest.folder / "state").read_text() == "200"
    assert len(list((tmp_path / "snapshots").iterdir())) == 2


@pytest.mark.parametrize("damage", ["cut", "gone", "no manifest", "bad manifest", "moved"])
def test_a_torn_snapshot_is_passed_over_with_a_warning(tmp_path, damage):
    write_snapshot(tmp_path, 5, fill("old"))
    folder = write_snapshot(tmp_path, 9, fill("a longer text")).folder
    if damage == "cut":
        (folder / "state").write_text("a lo")
    elif damage == "gone":
        (folder / "ids").unlink()
    elif damage == "no manifest":
        (folder / MANIFEST).unlink()
    elif damage == "bad manifest":
        (folder / MANIFEST).write_text(json.dumps([]))
    else:
        folder.rename(folder.with_name("000000000011"))
    warnings: list[str] = []
    assert newest_snapshot(tmp_path, warnings.append).position == 5
    assert len(warnings) == 1
    assert "damaged" in warnings[0]


def test_a_snapshot_that_fails_leaves_the_old_one_and_no_trace(tmp_path):
    write_snapshot(tmp_path, 5, fill("old"))

    def full(folder):
        (folder / "state").write_text("half")
        raise OSError(28, "No space left on device")

    with pytest.raises(RunError, match="No space left"):
        write_snapshot(tmp_path, 9, full)
    assert [path.name for path in (tmp_path / "snapshots").iterdir()] == ["000000000005"]


def test_what_a_killed_snapshot_left_is_swept(tmp_path):
    write_snapshot(tmp_path, 5, fill("old"))
    (tmp_path / "snapshots" / ".partial-1-000000000009").mkdir()
    assert newest_snapshot(tmp_path, pytest.fail).position == 5
    sweep_partial(tmp_path)
    assert [path.name for path in (tmp_path / "snapshots").iterdir()] == ["000000000005"]
