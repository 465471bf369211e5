"""Snapshots: the state at a position of the log, so that start-up need not replay all of it.

    RUN/online/snapshots/000000012345/     what Predictor.save writes, and snapshot.json with a digest of every file
                                           and the mark of the log (tsnn.serve.marks) at that position

A snapshot is filled under another name, forced to the disk and then renamed: it is whole or absent. One that the disk
has damaged since is recognized by its digests and passed over; an older one and a longer replay reach the same state.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from tsnn.errors import RunError
from tsnn.files import PARTIAL, make_folder, sync
from tsnn.serve.eventlog import LogReader
from tsnn.serve.marks import events_half
from tsnn.training.manifest import file_digest

FOLDER = "snapshots"
MANIFEST = "snapshot.json"
KEPT = 2
Say = Callable[[str], None]


class Snapshot(NamedTuple):
    """A whole snapshot and the number of logged events in it."""

    folder: Path
    position: int
    mark: bytes | None = None  # of the events in it; None in one from before there were marks


def write_snapshot(home: Path, position: int, save: Callable[[Path], None], mark: bytes | None = None) -> Snapshot:
    """Let `save` fill a folder, put it in place, and drop all but the newest few."""
    parent = home / FOLDER
    target = parent / f"{position:012d}"
    partial = parent / f"{PARTIAL}{os.getpid()}-{target.name}"
    try:
        make_folder(partial)
        save(partial)
        _write_manifest(partial, position, mark)
        if target.exists():  # it is damaged: a whole one would not be written again
            shutil.rmtree(target)
        os.rename(partial, target)
        sync(parent)
    except Exception as error:  # on a full disk, each of the file formats raises an error of its own
        raise RunError(f"no snapshot was written ({error}); see to the disk, the log has every event.") from None
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    for path in _newest_first(parent)[KEPT:]:
        shutil.rmtree(path, ignore_errors=True)
    return Snapshot(target, position, mark)


def _write_manifest(folder: Path, position: int, mark: bytes | None) -> None:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    for path in files:
        sync(path)
    digests = {str(path.relative_to(folder)): file_digest(path) for path in files}
    told = {"position": position, "mark": None if mark is None else events_half(mark).hex(), "files": digests}
    manifest = folder / MANIFEST
    manifest.write_text(json.dumps(told, indent=1))
    sync(manifest)
    sync(folder)


def _newest_first(parent: Path) -> list[Path]:
    return sorted((path for path in parent.glob("*") if path.name.isdigit()), reverse=True)


def newest_snapshot(home: Path, warn: Say, log: LogReader | None = None) -> Snapshot | None:
    """The newest whole snapshot of this log; others are named in a warning and left as they are."""
    for path in _newest_first(home / FOLDER):
        fault = _fault(path) or (log and _fault_beside(path, log))
        if fault is None:
            return Snapshot(path, int(path.name), _mark_of(path))
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
        _mark_of(folder)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return "its manifest or a file is missing or unreadable"
    return None


def _mark_of(folder: Path) -> bytes | None:
    """The half of the log's mark that the snapshot has kept."""
    kept = json.loads((folder / MANIFEST).read_text()).get("mark")
    return None if kept is None else bytes.fromhex(kept)


def _fault_beside(folder: Path, log: LogReader) -> str | None:
    """Why it cannot be the state after the first so many events of the log; one beyond its end is for others to see."""
    position, mark = int(folder.name), _mark_of(folder)
    if mark is None or position > log.last_position():
        return None
    own = log.mark_at(position)
    return None if own is not None and events_half(own) == mark else "it is of another log"


def drop_snapshots(home: Path, after: int) -> None:
    """Remove the snapshots that hold more than the first `after` events; call it with the folder's lock held."""
    for path in snapshots_after(home, after):
        os.rename(path, path.with_name(f"{PARTIAL}{path.name}"))  # whole or absent, even if this is interrupted
        sync(path.parent)
    sweep_partial(home)


def snapshots_after(home: Path, after: int) -> list[Path]:
    """The folders of snapshots that hold more than the first `after` events."""
    return [path for path in _newest_first(home / FOLDER) if int(path.name) > after]


def sweep_partial(home: Path) -> None:
    """Remove what an interrupted snapshot left behind; call it with the folder's lock held."""
    for path in (home / FOLDER).glob(f"{PARTIAL}*"):
        shutil.rmtree(path, ignore_errors=True)
