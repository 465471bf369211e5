"""Whether a log holds what was acknowledged: read only, so nothing is lost by looking.

every row of a transaction, and the mark before it, give its mark    a changed, missing or moved event
the keys of requests add up to the last mark                        a lost key, by which an event could come twice
the log holds the mark in the end file                              a torn end, an older copy, a deleted file
SQLite's own check of its pages and indexes                         what no row shows
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from tsnn.errors import RunError
from tsnn.serve.eventlog import COLUMNS, FILE, UNMARKED, LogReader, announced_end
from tsnn.serve.marks import FIRST, End, events_half, next_mark, read_end, with_requests

Rows = list[tuple[Any, ...]]


class Verdict(NamedTuple):
    """What was found in a log."""

    events: int
    transactions: int
    fault: str | None = None  # what is wrong, in words; None where nothing is
    marked: bool = True  # False for a log of an earlier version, in which only order and pages can be checked


def check_log(run: Path, home: Path) -> Verdict:
    """`verify_log`, and RunError where something is wrong; the log is as it was, and a service must not touch it."""
    verdict = verify_log(home)
    if verdict.fault:
        raise RunError(
            f"the event log of {run} is damaged: {verdict.fault}; nothing was changed. Put a whole copy of "
            f"{home.name}/ back, or let tsnn log repair {run} mend what can be mended and say what is lost."
        )
    return verdict


def verify_log(home: Path) -> Verdict:
    """All that can be said of the log in a folder."""
    try:
        end, announced = read_end(home), announced_end(home)
    except RunError as error:
        return Verdict(0, 0, str(error).partition(";")[0])
    if not (home / FILE).is_file():
        gone = f"{FILE} is gone, and with it {end.position} acknowledged events" if end and end.position else None
        return Verdict(0, 0, gone)
    reader = None
    try:
        reader = LogReader(home)
        reader.connection.execute("BEGIN")  # one moment of the log, whoever writes to it meanwhile
        return _verdict(reader, end, announced)
    except (sqlite3.Error, UnicodeError) as error:
        return Verdict(0, 0, f"{FILE} cannot be read ({error})")
    finally:
        if reader is not None:
            reader.close()


def _verdict(reader: LogReader, end: End | None, announced: End | None) -> Verdict:
    ask = reader.connection.execute
    tables = {name for (name,) in ask("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if "events" not in tables:  # a kill came before anything was in it
        lost = f"{FILE} is empty, but {end.position} events were acknowledged" if end and end.position else None
        return Verdict(0, 0, lost)
    events, transactions, fault = reader.last_position(), 0, _fault_of_pages(reader)
    marked = dict(ask("SELECT name, value FROM meta")).get("format") != UNMARKED
    if fault or not marked:
        return Verdict(events, 0, fault or _gap(reader), marked)
    last = End(0, reader.mark_at(0) or FIRST)
    for rows, mark, position in transactions_of(reader):
        if not agrees(last, rows, End(position, mark)):
            return Verdict(events, transactions, f"events {last.position + 1} to {position} are not as they were")
        last, transactions = End(position, mark), transactions + 1
    return Verdict(events, transactions, _fault_of_end(reader, last, events, end, announced))


def _fault_of_pages(reader: LogReader) -> str | None:
    found = reader.connection.execute("PRAGMA integrity_check(1)").fetchone()[0]
    return None if found == "ok" else f"{FILE} is torn ({str(found).splitlines()[-1]})"


def _gap(reader: LogReader) -> str | None:
    count, last = reader.connection.execute("SELECT count(*), coalesce(max(position), 0) FROM events").fetchone()
    return None if count == last else f"{last - count} of its {last} events are missing"


def _fault_of_end(reader: LogReader, last: End, events: int, end: End | None, announced: End | None) -> str | None:
    """What the end of the log shows: nothing lies behind the last mark, no key and no acknowledged event is missing."""
    if last.position != events:
        return f"events {last.position + 1} to {events} belong to no transaction"
    if with_requests(last.mark, reader.connection.execute("SELECT key, digest FROM requests")) != last.mark:
        return "the keys of requests are not as they were"
    if end is None:
        return "the file that says where it ends is gone" if events else None
    held = reader.mark_at(end.position)
    if (held is not None and events_half(held) == events_half(end.mark)) or announced == last:
        return None
    if end.position > events:
        return f"it holds {events} events, but {end.position} were acknowledged"
    return f"its first {end.position} events are not those that were acknowledged"


def agrees(before: End, rows: Rows, after: End) -> bool:
    """Whether these rows are what lay between two marks."""
    whole = [row[0] for row in rows] == list(range(before.position + 1, after.position + 1))
    return whole and events_half(next_mark(before.mark, rows)) == events_half(after.mark)


def transactions_of(reader: LogReader) -> Iterator[tuple[Rows, bytes, int]]:
    """The rows of every transaction, its mark, and the position at which it ended, in order."""
    ask = reader.connection.execute
    rows = ask(f"SELECT {COLUMNS} FROM events ORDER BY position")
    row = next(rows, None)
    for position, mark in ask("SELECT position, mark FROM marks WHERE position > 0 ORDER BY position"):
        own: Rows = []
        while row is not None and row[0] <= position:
            own.append(row)
            row = next(rows, None)
        yield own, bytes(mark), position
