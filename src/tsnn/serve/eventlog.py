"""The event log: every acknowledged event, on the disk before anything else may see it.

One SQLite file in WAL mode with synchronous=FULL: `append` returns once the operating system says that the bytes are
on the disk, and a kill at any moment leaves a whole number of transactions. Events are numbered 1, 2, 3, ... in the
order in which they were applied. The log is never cut at its beginning: any snapshot may be lost, and replay still
reaches the state. Events can be taken back (`tsnn.serve.rewrite`); those behind them then move up.

SQLite alone does not see every damage: it takes a torn end for the end, and reads a changed byte as it stands. So each
transaction leaves a mark of all that is there (`tsnn.serve.marks`), which `tsnn.serve.verify` compares.
"""

from __future__ import annotations

import fcntl
import math
import os
import shutil
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from tsnn.errors import RunError
from tsnn.files import sync
from tsnn.online.event import Event, Time
from tsnn.serve.marks import FIRST, End, EndFile, next_mark, read_end, replace_end, with_requests

FILE = "events.sqlite"
FORMAT = "2"
UNMARKED = "1"  # the format before there were marks
NEXT = "next"  # a folder for the end of the log that a change in the making will leave
COLUMNS = "position, src, dst, t, msg, edge_type, key"
_REPLAY_ROWS = 2000
_PATIENCE = 30.0  # seconds that a reader waits for a writer who moves pages
_LOOKUP_KEYS = 500  # SQLite takes a limited number of parameters in one statement
_SCHEMA = """
CREATE TABLE IF NOT EXISTS meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS events (
    position INTEGER PRIMARY KEY, src ANY NOT NULL, dst ANY NOT NULL, t ANY NOT NULL,
    msg BLOB, edge_type INTEGER, key TEXT
) STRICT;
CREATE UNIQUE INDEX IF NOT EXISTS events_by_key ON events (key) WHERE key IS NOT NULL;
CREATE TABLE IF NOT EXISTS requests (
    key TEXT PRIMARY KEY, digest BLOB NOT NULL, position INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS marks (position INTEGER PRIMARY KEY, mark BLOB NOT NULL) STRICT;
"""


class LogError(RunError):
    """The log could not take the events; none of them was acknowledged."""


class Receipt(NamedTuple):
    """A request that carried a key: what it held and where its last event stands."""

    key: str
    digest: bytes
    position: int


class Chosen(NamedTuple):
    """Events of a log by position, by time, or by both; bounds are included."""

    first: int = 1
    last: int = 2**63 - 1
    since: Time = -math.inf
    until: Time = math.inf


_CHOSEN = "position BETWEEN ? AND ? AND t BETWEEN ? AND ?"
# Positions are distinct at any time, so the events behind the dropped ones move up by way of negative ones.
_DROP = f"""
CREATE TEMP TABLE dropped AS SELECT position FROM events WHERE {_CHOSEN};
DELETE FROM events WHERE position IN (SELECT position FROM dropped);
UPDATE events SET position = -moved.place
    FROM (SELECT position AS old, row_number() OVER (ORDER BY position) AS place FROM events) AS moved
    WHERE position = moved.old AND position > (SELECT min(position) FROM dropped);
UPDATE events SET position = -position WHERE position < 0;
UPDATE requests SET position = position - (SELECT count(*) FROM dropped WHERE dropped.position <= requests.position);
DROP TABLE dropped
"""


class FolderLock:
    """Held by the one process that may serve a run; the system releases it when that process ends, even by a kill."""

    def __init__(self, folder: Path) -> None:
        self._file = (folder / "lock").open("a")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._file.close()
            raise RunError(f"another process serves {folder.parent}; stop it first.") from None

    def release(self) -> None:
        """Let another process have the run."""
        self._file.close()


class LogReader:
    """Finds events. It never changes a byte, not even of a log that a kill has left."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / FILE
        where = f"{self._path.resolve().as_uri()}?mode=ro"
        self._connection = sqlite3.connect(where, timeout=_PATIENCE, uri=True, isolation_level=None)

    @property
    def connection(self) -> sqlite3.Connection:
        """To read what only a check looks at."""
        return self._connection

    def events_of(self, keys: Iterable[str]) -> dict[str, Event]:
        """The logged events among these keys."""
        wanted = list(keys)
        found: dict[str, Event] = {}
        for start in range(0, len(wanted), _LOOKUP_KEYS):
            some = wanted[start : start + _LOOKUP_KEYS]
            marks = ",".join("?" * len(some))
            query = f"SELECT src, dst, t, msg, edge_type, key FROM events WHERE key IN ({marks})"
            found |= {row[-1]: Event(*row) for row in self._connection.execute(query, some)}
        return found

    def receipt_of(self, key: str) -> Receipt | None:
        """The earlier request of this key."""
        row = self._connection.execute("SELECT key, digest, position FROM requests WHERE key = ?", (key,)).fetchone()
        return Receipt(*row) if row else None

    def read(self, after: int) -> Iterator[list[Event]]:
        """The events after a position, in order, a block at a time; RunError where one is missing."""
        query = f"SELECT {COLUMNS} FROM events WHERE position > ? ORDER BY position LIMIT ?"
        while rows := self._connection.execute(query, (after, _REPLAY_ROWS)).fetchall():
            if rows[-1][0] != after + len(rows):
                raise RunError(
                    f"the event log {self._path} lacks an event behind position {after}; run tsnn log verify."
                )
            yield [Event(*row[1:]) for row in rows]
            after = rows[-1][0]

    def find(self, chosen: Chosen, most: int = -1) -> list[tuple[int, Event]]:
        """The last `most` of the events chosen, or all of them, with their positions, in order."""
        query = f"SELECT {COLUMNS} FROM events WHERE {_CHOSEN}"
        rows = self._connection.execute(f"{query} ORDER BY position DESC LIMIT ?", (*chosen, most)).fetchall()
        return [(row[0], Event(*row[1:])) for row in reversed(rows)]

    def last_position(self) -> int:
        """Of the last event; 0 in an empty log."""
        return int(self._connection.execute("SELECT coalesce(max(position), 0) FROM events").fetchone()[0])

    def mark_at(self, position: int) -> bytes | None:
        """The mark of a position at which a transaction ended."""
        row = self._connection.execute("SELECT mark FROM marks WHERE position = ?", (position,)).fetchone()
        return bytes(row[0]) if row else None if position else FIRST

    def close(self) -> None:
        """Close the file; a reader finds everything that was appended."""
        self._connection.close()


class EventLog(LogReader):
    """Appends events. One thread appends, of the one process that holds the folder; any may read `position`."""

    def __init__(self, folder: Path, run: str) -> None:
        """Open or begin the log in `folder`; `run` names the state that its first event was applied to."""
        self._folder = folder
        self._path = folder / FILE
        self._run = run
        self._end_file = EndFile(folder)
        self._open()
        self._end_file.begin(self.end)
        forget_announced(folder)

    def _open(self) -> None:
        try:
            connection = sqlite3.connect(self._path, check_same_thread=False, isolation_level=None)
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("PRAGMA journal_size_limit = 67108864")
            connection.execute("PRAGMA cache_size = -32768")
            connection.executescript(f"BEGIN IMMEDIATE; {_SCHEMA} COMMIT;")  # all tables or none, even in a kill
            meta = {"format": FORMAT, "run": self._run}
            connection.executemany("INSERT OR IGNORE INTO meta VALUES (?, ?)", meta.items())
            sync(self._folder)  # the names of the files; SQLite sees to what is in them
            check_meta(self._path, connection, self._run)
        except sqlite3.Error as error:
            raise RunError(f"the event log {self._path} cannot be opened ({error}); see to the disk first.") from None
        self._connection = connection
        self._file = self._path.stat().st_ino
        self._go_to_end()

    def _go_to_end(self) -> None:
        self.position = self.last_position()
        self.mark = self._marked() or self.mark_at(self.position) or FIRST

    def _marked(self) -> bytes | None:
        """The mark of a log from before there were any, which now gets one; None where it has them."""
        if self._connection.execute("SELECT value FROM meta WHERE name = 'format'").fetchone()[0] != UNMARKED:
            return None
        self._connection.execute("BEGIN IMMEDIATE")
        mark = self._mark_again(after=0)
        self._connection.execute("UPDATE meta SET value = ? WHERE name = 'format'", (FORMAT,))
        replace_end(self._folder, End(self.position, mark))  # not looked at before the commit makes it true
        self._connection.execute("COMMIT")
        return mark

    @property
    def end(self) -> End:
        """Where the log ends."""
        return End(self.position, self.mark)

    def append(self, events: Sequence[Event], receipts: Sequence[Receipt] = ()) -> None:
        """Put all of this on the disk, or none of it and raise LogError."""
        rows = [(self.position + 1 + i, *event) for i, event in enumerate(events)]
        mark = next_mark(self.mark, rows, (receipt[:2] for receipt in receipts))
        end = End(self.position + len(rows), mark)
        try:
            if gone := self.misplaced():
                raise gone
            self._connection.execute("BEGIN IMMEDIATE")
            self._connection.executemany("INSERT INTO events VALUES (?, ?, ?, ?, ?, ?, ?)", rows)
            self._connection.executemany("INSERT INTO requests VALUES (?, ?, ?)", receipts)
            self._connection.execute("INSERT INTO marks VALUES (?, ?)", end)
            self._connection.execute("COMMIT")
            self._end_file.write(end)
        except (sqlite3.Error, OSError) as error:
            with suppress(sqlite3.Error):  # there may be nothing to undo; `recover` opens the file anew
                self._connection.execute("ROLLBACK")
            raise LogError(f"the event log took none of the events ({error}); free the disk and send again.") from None
        self.position, self.mark = end

    def misplaced(self) -> OSError | None:
        """That the file was removed: it can still be written to, but nobody will ever find it again."""
        with suppress(FileNotFoundError):
            if os.stat(self._path).st_ino == self._file:
                return None
        return FileNotFoundError(f"{self._path} has been removed or replaced")

    def sync_end(self) -> None:
        """Put the end file on the disk, where it is not: every event is in the log before that."""
        with suppress(OSError):  # a disk that fails is told by the next commit
            self._end_file.sync()

    def recover(self) -> None:
        """Open the file again and see where it ends: a commit that reported an error may have reached the disk."""
        if gone := self.misplaced():  # to open it anew would begin another log
            raise LogError(f"the event log takes no events ({gone}); put it back and restart the service.")
        self._connection.close()
        self._open()
        self._end_file.begin(self.end)

    def drop(self, chosen: Chosen) -> None:
        """Take events back, in one transaction; those behind them move up. An idempotency key stays used."""
        first, *others = _DROP.split(";")
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            self._connection.execute(first, chosen)
            lowest = self._connection.execute("SELECT min(position) FROM dropped").fetchone()[0]
            for statement in others:
                self._connection.execute(statement)
            if lowest is not None:
                self._announce(self._mark_again(after=lowest - 1))
            self._connection.execute("COMMIT")
        except (sqlite3.Error, OSError) as error:
            with suppress(sqlite3.Error):
                self._connection.execute("ROLLBACK")
            raise LogError(f"no event was dropped ({error}); see to the disk and try again.") from None
        self._go_to_end()
        self._end_file.begin(self.end)
        forget_announced(self._folder)

    def fill(self, rows: Iterable[Sequence[Any]], requests: Iterable[Sequence[Any]], marks: Iterable[End]) -> None:
        """Make an empty log hold these rows, and the marks of some of the first of them; the rest gets new ones."""
        ask, many = self._connection.execute, self._connection.executemany
        ask("BEGIN IMMEDIATE")
        many("INSERT INTO events VALUES (?, ?, ?, ?, ?, ?, ?)", rows)
        many("INSERT INTO requests VALUES (?, ?, ?)", requests)
        many("INSERT INTO marks VALUES (?, ?)", marks)
        self._mark_again(after=self.last_position())
        ask("COMMIT")
        self._go_to_end()
        self._end_file.begin(self.end)

    def _mark_again(self, after: int) -> bytes:
        """New marks for all events behind the last transaction that ended at `after` or before, in place of theirs."""
        ask = self._connection.execute
        ask("DELETE FROM marks WHERE position > ?", (after,))
        kept = ask("SELECT position, mark FROM marks ORDER BY position DESC LIMIT 1").fetchone()
        start, mark = kept or (0, FIRST)
        cursor = ask(f"SELECT {COLUMNS} FROM events WHERE position > ? ORDER BY position", (start,))
        while rows := cursor.fetchmany(_REPLAY_ROWS):
            start, mark = rows[-1][0], next_mark(mark, rows)
            ask("INSERT INTO marks VALUES (?, ?)", (start, mark))
        mark = with_requests(mark, ask("SELECT key, digest FROM requests"))
        ask("INSERT OR REPLACE INTO marks VALUES (?, ?)", (start, mark))
        return mark

    def _announce(self, mark: bytes) -> None:
        """Before the log changes: whoever finds it changed shall know that this end is right."""
        announced = self._folder / NEXT
        announced.mkdir(exist_ok=True)
        replace_end(announced, End(self.last_position(), mark))

    def close(self) -> None:
        """Close the files; a reader finds everything that was appended."""
        super().close()
        self._end_file.close()


def check_meta(path: Path, connection: sqlite3.Connection, run: str) -> None:
    """Refuse the log of another run, or of a version to come."""
    found = dict(connection.execute("SELECT name, value FROM meta"))
    if found.get("format") not in (FORMAT, UNMARKED):
        connection.close()
        raise RunError(f"the event log {path} is of format {found.get('format')}; this version reads up to {FORMAT}.")
    if found.get("run") != run:
        connection.close()
        raise RunError(f"the event log {path} belongs to another run; move it away or serve its own run.")


def announced_end(folder: Path) -> End | None:
    """The end that a change of the log, perhaps interrupted, would leave."""
    return read_end(folder / NEXT) if (folder / NEXT).is_dir() else None


def forget_announced(folder: Path) -> None:
    """The change is done."""
    shutil.rmtree(folder / NEXT, ignore_errors=True)
