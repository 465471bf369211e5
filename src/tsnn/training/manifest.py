"""What the files of a run were when they were written: a digest of each, in `manifest.json`.

A byte that a disk has changed would change answers without a word; here it is told. A file may have two digests while
it is being replaced: a kill in the middle leaves the old one or the new one, and both are right.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from tsnn.errors import RunError
from tsnn.files import PARTIAL, sync, write_text

MANIFEST = "manifest.json"
Digests = dict[str, list[str]]


def file_digest(path: Path) -> str:
    """SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def text_digest(text: str) -> str:
    """The same of a file that will hold this text."""
    return hashlib.sha256(text.encode()).hexdigest()


def write_manifest(folder: Path, digests: Mapping[str, list[str]]) -> None:
    """Say what the files are."""
    write_text(folder / MANIFEST, json.dumps({"files": dict(digests)}, indent=1) + "\n")


def read_manifest(folder: Path) -> Digests | None:
    """What the files were; None for a run from before that was written down."""
    path = folder / MANIFEST
    if not path.is_file():
        return None
    try:
        found = json.loads(path.read_text(encoding="utf-8"))["files"]
        return {str(name): [str(digest) for digest in digests] for name, digests in found.items()}
    except (ValueError, KeyError, TypeError, AttributeError):
        raise RunError(f"{path} cannot be read, so nothing tells whether the run is whole; restore the run.") from None


def check_whole(folder: Path, names: Iterable[str]) -> None:
    """Refuse files that are not as they were written."""
    digests = read_manifest(folder) or {}
    for name in names:
        if name in digests and (not (folder / name).is_file() or file_digest(folder / name) not in digests[name]):
            raise RunError(f"{folder / name} is not as it was written; restore it from a copy, or train the run again.")


def replace_files(folder: Path, writers: Mapping[str, Callable[[Path], None]]) -> None:
    """Write some files of a run anew, in this order; each is the old one or the new one, whatever happens."""
    partial = {name: folder / f"{PARTIAL}{os.getpid()}-{name}" for name in writers}
    try:
        for name, write in writers.items():
            write(partial[name])
            sync(partial[name])
        old = read_manifest(folder) or {}
        new = {name: [file_digest(path)] for name, path in partial.items()}
        write_manifest(folder, old | {name: [*old.get(name, []), *digest] for name, digest in new.items()})
        for name, path in partial.items():
            os.replace(path, folder / name)
        sync(folder)
        write_manifest(folder, old | new)
    finally:
        for path in partial.values():
            path.unlink(missing_ok=True)
