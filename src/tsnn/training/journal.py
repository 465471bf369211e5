"""The journal: one JSON object a line, appended as training goes and cut back when a run resumes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


class Journal:
    """Append-only record of a run; without a path it keeps nothing."""

    def __init__(self, path: Path | None) -> None:
        self._path = path

    @property
    def size(self) -> int:
        """Bytes written so far; a checkpoint remembers it."""
        return self._path.stat().st_size if self._path is not None and self._path.exists() else 0

    def truncate(self, size: int) -> None:
        """Forget what was written after a checkpoint: it will be written again."""
        if self._path is None:
            return
        with self._path.open("ab") as file:
            file.truncate(size)

    def write(self, **entry: Any) -> None:
        """Append one entry."""
        if self._path is None:
            return
        with self._path.open("a") as file:
            file.write(json.dumps(entry) + "\n")
