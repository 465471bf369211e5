"""Mending a damaged log: what is proved to be as it was stays, all else is named, and nothing is thrown away.

    the damaged files are copied aside -> what their marks prove goes into a new log -> snapshots that hold a lost event
    go aside -> the new log takes the old one's place -> replay

A transaction is proved by its own mark and the one before it, so those behind a damaged one stay.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from tsnn.errors import InputError, RunError
from tsnn.files import PARTIAL, make_folder, sync
from tsnn.online.event import Event, Time
from tsnn.serve.eventlog import COLUMNS, FILE, EventLog, FolderLock, LogReader, forget_announced
from tsnn.serve.marks import END, FIRST, End, read_end
from tsnn.serve.rewrite import Logged, check_there, replay
from tsnn.serve.service import HOME, run_identity
from tsnn.serve.snapshots import Say, snapshots_after
from tsnn.serve.verify import Rows, agrees, verify_log
from tsnn.serve.wal import mend_wal
from tsnn.types import Progress, unwatched

WAL, SHM = f"{FILE}-wal", f"{FILE}-shm"
_BLOCK = 2000


class Repaired(NamedTuple):
    """What became of a log."""

    lost: list[tuple[int, int]]  # positions that events had which are gone, as ranges
    readable: Logged  # what can still be read of them, which may be wrong
    kept: int
    aside: Path  # where the damaged files are
    clock: Time


class _Salvaged(NamedTuple):
    proved: list[tuple[Rows, End]]  # transactions, each with the mark it had
    lost: list[tuple[int, int]]
    readable: Rows
    requests: list[tuple[str, bytes, int]]


def repair_log(run: Path, say: Say, progress: Progress = unwatched) -> Repaired:
    """Mend the log of a run; refused while a service holds it, and where nothing is wrong."""
    home, identity = run / HOME, run_identity(run)
    check_there(run)
    lock = FolderLock(home)
    try:
        if not verify_log(home).fault:
            raise InputError(f"the event log of {run} is whole; there is nothing to repair.")
        aside = _copy_aside(home)
        work = home / f"{PARTIAL}repair"
        shutil.rmtree(work, ignore_errors=True)
        make_folder(work)
        found = _best(aside, work, _last_told(home))
        new = work / "new"
        make_folder(new)
        first_lost = found.lost[0][0] if found.lost else 2**62
        _rebuild(new, identity, found, first_lost)
        for folder in snapshots_after(home, first_lost - 1):
            shutil.move(folder, aside / folder.name)
        _put_in_place(new, home)
        shutil.rmtree(work, ignore_errors=True)
        readable = [(row[0], Event(*row[1:])) for row in found.readable]
        kept = sum(len(rows) for rows, _ in found.proved)
        return Repaired(found.lost, readable, kept, aside, replay(run, say, progress))
    finally:
        lock.release()


def _copy_aside(home: Path) -> Path:
    aside = next(path for n in range(1, 10_000) if not (path := home / f"damaged-{n}").exists())
    make_folder(aside)
    for name in (FILE, WAL, END):
        if (home / name).is_file():
            shutil.copyfile(home / name, aside / name)
            sync(aside / name)
    sync(aside)
    return aside


def _last_told(home: Path) -> int:
    """The number of events that the end file says there were."""
    try:
        end = read_end(home)
    except RunError:
        return 0
    return end.position if end else 0


def _best(aside: Path, work: Path, told: int) -> _Salvaged:
    """What can be proved as SQLite reads the log, or with its write-ahead log mended: whichever is more."""
    tries = []
    for mending in (False, True):
        folder = work / ("mended" if mending else "plain")
        make_folder(folder)
        for name in (FILE, WAL):
            if (aside / name).is_file():
                shutil.copyfile(aside / name, folder / name)
        if not mending or mend_wal(folder / WAL):
            tries.append(_salvage(folder, told))
    return max(tries, key=lambda found: sum(len(rows) for rows, _ in found.proved))


def _salvage(folder: Path, told: int) -> _Salvaged:
    """What is proved, and all else up to the last position that anything tells of."""
    if not (folder / FILE).is_file():
        return _Salvaged([], _ranges(1, told), [], [])
    reader = LogReader(folder)
    try:
        return _prove(reader, told)
    except sqlite3.Error:  # not even what its tables are called
        return _Salvaged([], _ranges(1, told), [], [])
    finally:
        reader.close()


def _prove(reader: LogReader, told: int) -> _Salvaged:
    ends = [End(position, bytes(mark)) for position, mark in _rows(reader, "marks", "position, mark", told)]
    proved: list[tuple[Rows, End]] = []
    lost: list[tuple[int, int]] = []
    readable: Rows = []
    before = End(0, reader.mark_at(0) or FIRST)
    for end in (end for end in ends if end.position > 0):
        rows = _between(reader, before.position + 1, end.position)
        if agrees(before, rows, end):
            proved.append((rows, end))
        else:
            lost += _ranges(before.position + 1, end.position)
            readable += rows
        before = end
    behind = _rows(reader, "events", COLUMNS, told, before.position + 1)
    readable += behind
    lost += _ranges(before.position + 1, max([told, *(row[0] for row in behind)]))
    return _Salvaged(proved, lost, readable, _requests(reader))


def _ranges(first: int, last: int) -> list[tuple[int, int]]:
    return [(first, last)] if last >= first else []


def _rows(reader: LogReader, table: str, columns: str, told: int, first: int = 0) -> Rows:
    """The rows of a table by position, as many as can be read."""
    try:
        last = int(reader.connection.execute(f"SELECT coalesce(max(position), 0) FROM {table}").fetchone()[0])
    except sqlite3.Error:
        last = told
    found: Rows = []
    for start in range(first, last + 1, _BLOCK):
        found += _between(reader, start, min(start + _BLOCK - 1, last), table, columns)
    return found


def _between(reader: LogReader, first: int, last: int, table: str = "events", columns: str = COLUMNS) -> Rows:
    """The rows of these positions; where some cannot be read, the others."""
    query = f"SELECT {columns} FROM {table} WHERE position BETWEEN ? AND ? ORDER BY position"
    try:
        return reader.connection.execute(query, (first, last)).fetchall()
    except (sqlite3.Error, UnicodeError):
        if first >= last:
            return []
    middle = (first + last) // 2
    return _between(reader, first, middle, table, columns) + _between(reader, middle + 1, last, table, columns)


def _requests(reader: LogReader) -> list[tuple[str, bytes, int]]:
    found = []
    try:
        for row in reader.connection.execute("SELECT key, digest, position FROM requests"):
            found.append(row)  # noqa: PERF402 - what came before an error counts
    except (sqlite3.Error, UnicodeError):
        pass
    return found


def _rebuild(folder: Path, identity: str, found: _Salvaged, first_lost: int) -> None:
    """A log of what is proved. A request of which an event is lost is forgotten, so that it can be sent again."""
    log = EventLog(folder, identity)

    def moved() -> Iterator[tuple[Any, ...]]:
        position = 0
        for rows, _ in found.proved:
            for row in rows:
                position += 1
                yield (position, *row[1:])

    def gone_before(position: int) -> int:
        return sum(max(0, min(last, position) - first + 1) for first, last in found.lost)

    held = [
        (key, digest, position - gone_before(position))
        for key, digest, position in found.requests
        if not any(first <= position <= last for first, last in found.lost)
    ]
    kept_marks = [end for _, end in found.proved if end.position < first_lost]
    log.fill(moved(), held, kept_marks)
    log.close()


def _put_in_place(new: Path, home: Path) -> None:
    for name in (WAL, SHM):
        (home / name).unlink(missing_ok=True)
    forget_announced(home)
    for name in (FILE, END):
        os.replace(new / name, home / name)
    sync(home)
