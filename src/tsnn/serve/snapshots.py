"""Snapshots: the state at a position of the log, so that start-up need not replay all of it.

    RUN/online/snapshots/000000012345/     what Predictor.save writes, and snapshot.json with a digest of every file

A snapshot is filled under another name, forced to the disk and then renamed: it is whole or absent. One that the disk
has damaged since is recognized by its digests and passed over; an older one and a longer replay reach the same state.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from tsnn.errors import RunError

FOLDER = "snapshots"
MANIFEST = "snapshot.json"
PARTIAL = ".partial-"
KEPT = 2
Say = Callable[[str], None]


class Snapshot(NamedTuple):
    """A whole snapshot and the number of logged events in it."""

    folder: Path
    position: int


def write_snapshot(home: Path, position: int, save: Callable[[Path], None]) -> Snapshot:
    """Let `save` fill a folder, put it in place, and drop all but the newest few."""
    parent = home / FOLDER
    target = parent / f"{position:012d}"
    partial = parent / f"{PARTIAL}{os.getpid()}-{target.name}"
    try:
        partial.mkdir(parents=True)
        save(partial)
        _write_manifest(partial, position)
        if target.exists():  # it is damaged: a whole one would not be written again
            shutil.rmtree(target)
        os.rename(partial, target)
        _sync(parent)
    except Exception as error:  # on a full disk, each of the file formats raises an error of its own
        raise RunError(f"no snapshot was written ({error}); see to the disk, the log has every event.") from None
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    for path in _newest_first(parent)[KEPT:]:
        shutil.rmtree(path, ignore_errors=True)
    return Snapshot(target, position)


def _write_manifest(folder: Path, position: int) -> None:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    for path in files:
        _sync(path)
    digests = {str(path.relative_to(folder)): file_digest(path) for path in files}
    manifest = folder / MANIFEST
    manifest.write_text(json.dumps({"position": position, "files": digests}, indent=1))
    _sync(manifest)
    _sync(folder)


def file_digest(path: Path) -> str:
    """SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _newest_first(parent: Path) -> list[Path]:
    return sorted((path for path in parent.glob("*") if path.name.isdigit()), reverse=True)


def newest_snapshot(home: Path, warn: Say) -> Snapshot | None:
    """The newest whole snapshot; damaged ones are named in a warning and left as they are."""
    for path in _newest_first(home / FOLDER):
        fault = _fault(path)
        if fault is None:
            return Snapshot(path, int(path.name))
        warn(f"snapshot {path.name} is damaged ({fault}) and is passed over; the log makes up for it.")
    return None


def _fault(folder: Path) -> str | None:
    try:
        manifest = json.loads((folder / MANIFEST).read_text())
        if int(manifest["position"]) != int(folder.name):
            return "its manifest names another position"
        for name, digest in manifest["files"].items():
            if file_digest(folder / name) != digest:
                return f"{name} has changed"
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return "its manifest or a file is missing or unreadable"
    return None


def drop_snapshots(home: Path, after: int) -> None:
    """Remove the snapshots that hold more than the first `after` events; call it with the folder's lock held."""
    for path in _newest_first(home / FOLDER):
        if int(path.name) > after:
            os.rename(path, path.with_name(f"{PARTIAL}{path.name}"))  # whole or absent, even if this is interrupted
            _sync(path.parent)
    sweep_partial(home)


def sweep_partial(home: Path) -> None:
    """Remove what an interrupted snapshot left behind; call it with the folder's lock held."""
    for path in (home / FOLDER).glob(f"{PARTIAL}*"):
        shutil.rmtree(path, ignore_errors=True)
