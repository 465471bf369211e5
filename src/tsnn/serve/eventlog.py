"""The event log: every acknowledged event, on the disk before anything else may see it.

One SQLite file in WAL mode with synchronous=FULL: `append` returns once the operating system says that the bytes are
on the disk, and a kill at any moment leaves a whole number of transactions. Events are numbered 1, 2, 3, ... in the
order in which they were applied. The log is never cut at its beginning: any snapshot may be lost, and replay still
reaches the state. Events can be taken back (`tsnn.serve.rewrite`); those behind them then move up.
"""

from __future__ import annotations

import fcntl
import math
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from tsnn.errors import RunError
from tsnn.online.event import Event, Time

FILE = "events.sqlite"
FORMAT = "1"
_REPLAY_ROWS = 2000
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


class EventLog:
    """Appends and finds events. One thread appends; any thread may read `position`."""

    def __init__(self, folder: Path, run: str) -> None:
        """Open or begin the log in `folder`; `run` names the state that its first event was applied to."""
        self._path = folder / FILE
        self._run = run
        self._open()

    def _open(self) -> None:
        try:
            connection = sqlite3.connect(self._path, check_same_thread=False, isolation_level=None)
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("PRAGMA journal_size_limit = 67108864")
            connection.execute("PRAGMA cache_size = -32768")
            connection.executescript(_SCHEMA)
            meta = {"format": FORMAT, "run": self._run}
            connection.executemany("INSERT OR IGNORE INTO meta VALUES (?, ?)", meta.items())
            found = dict(connection.execute("SELECT name, value FROM meta"))
        except sqlite3.Error as error:
            raise RunError(f"the event log {self._path} cannot be opened ({error}); see to the disk first.") from None
        if found != meta:
            connection.close()
            raise RunError(f"the event log {self._path} belongs to another run; move it away or serve its own run.")
        self._connection = connection
        self.position = self._last_position()

    def append(self, events: Sequence[Event], receipts: Sequence[Receipt] = ()) -> None:
        """Put all of this on the disk, or none of it and raise LogError."""
        rows = ((self.position + 1 + i, *event) for i, event in enumerate(events))
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            self._connection.executemany("INSERT INTO events VALUES (?, ?, ?, ?, ?, ?, ?)", rows)
            self._connection.executemany("INSERT INTO requests VALUES (?, ?, ?)", receipts)
            self._connection.execute("COMMIT")
        except sqlite3.Error as error:
            with suppress(sqlite3.Error):  # there may be nothing to undo; `recover` opens the file anew
                self._connection.execute("ROLLBACK")
            raise LogError(f"the event log took none of the events ({error}); free the disk and send again.") from None
        self.position += len(events)

    def recover(self) -> None:
        """Open the file again and see where it ends: a commit that reported an error may have reached the disk."""
        self._connection.close()
        self._open()

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
        """The events after a position, in order, a block at a time."""
        query = "SELECT src, dst, t, msg, edge_type, key FROM events WHERE position > ? ORDER BY position LIMIT ?"
        while rows := self._connection.execute(query, (after, _REPLAY_ROWS)).fetchall():
            yield [Event(*row) for row in rows]
            after += len(rows)

    def find(self, chosen: Chosen, most: int = -1) -> list[tuple[int, Event]]:
        """The last `most` of the events chosen, or all of them, with their positions, in order."""
        query = f"SELECT position, src, dst, t, msg, edge_type, key FROM events WHERE {_CHOSEN}"
        rows = self._connection.execute(f"{query} ORDER BY position DESC LIMIT ?", (*chosen, most)).fetchall()
        return [(row[0], Event(*row[1:])) for row in reversed(rows)]

    def drop(self, chosen: Chosen) -> None:
        """Take events back, in one transaction; those behind them move up. An idempotency key stays used."""
        first, *others = _DROP.split(";")
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            self._connection.execute(first, chosen)
            for statement in others:
                self._connection.execute(statement)
            self._connection.execute("COMMIT")
        except sqlite3.Error as error:
            with suppress(sqlite3.Error):
                self._connection.execute("ROLLBACK")
            raise LogError(f"no event was dropped ({error}); see to the disk and try again.") from None
        self.position = self._last_position()

    def _last_position(self) -> int:
        return int(self._connection.execute("SELECT coalesce(max(position), 0) FROM events").fetchone()[0])

    def close(self) -> None:
        """Close the file; a reader finds everything that was appended."""
        self._connection.close()
