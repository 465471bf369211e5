"""The records of finished jobs: OUT/jobs/<table>.jsonl, one JSON object a line, sorted by key.

A record stands once, in the file of the table it was first run for; other tables that need the same job find it there.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tsnn.errors import RunError
from tsnn.files import write_text

FOLDER = "jobs"
Record = dict[str, Any]


class ResultStore:
    """The records in a folder of results."""

    def __init__(self, out: Path) -> None:
        self.folder = out / FOLDER

    def load(self) -> dict[str, Record]:
        """All records by key, whichever table they were run for."""
        return {record["key"]: record for path in self._files() for record in _read(path)}

    def save(self, table: str, record: Record) -> None:
        """Keep a record that was run for a table."""
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / f"{table}.jsonl"
        with self._lock():
            _write(path, [*(old for old in _read(path) if old["key"] != record["key"]), record])

    def keep_only(self, keys: Collection[str]) -> None:
        """Drop every record with another key."""
        with self._lock():
            for path in self._files():
                records = _read(path)
                kept = [record for record in records if record["key"] in keys]
                if len(kept) < len(records):
                    _write(path, kept)

    def _files(self) -> list[Path]:
        return sorted(self.folder.glob("*.jsonl"))

    @contextmanager
    def _lock(self) -> Iterator[None]:
        """One process at a time reads a file and replaces it: several commands may fill one folder."""
        handle = os.open(self.folder, os.O_RDONLY)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)


def _read(path: Path) -> list[Record]:
    if not path.is_file():
        return []
    try:
        return [json.loads(line) for line in path.read_text().splitlines()]
    except json.JSONDecodeError as error:
        raise RunError(f"{path} holds something that is not a record ({error}); remove that line.") from None


def _write(path: Path, records: Iterable[Record]) -> None:
    lines = [json.dumps(record) + "\n" for record in sorted(records, key=lambda record: str(record["key"]))]
    write_text(path, "".join(lines))
