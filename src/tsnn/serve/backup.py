"""A copy of a served run while it is served, proved by starting from it.

    the newest snapshot -> the end of the log -> the log -> what a start from all of it gives -> the name of the copy

Each step copies what is at least as new as what the step before has copied, so the snapshot is never ahead of the log
and the log holds the end that was acknowledged before it.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from tsnn.errors import InputError, RunError
from tsnn.files import PARTIAL, check_folder_target, make_folder, sync
from tsnn.online.event import Time
from tsnn.serve.eventlog import FILE, LogReader
from tsnn.serve.marks import read_end, replace_end
from tsnn.serve.service import HOME, restore, run_identity
from tsnn.serve.snapshots import FOLDER, Say, newest_snapshot
from tsnn.training.run import check_finished
from tsnn.types import Progress, unwatched

_TRIES = 3  # a snapshot may be dropped for a newer one while it is copied


class BackedUp(NamedTuple):
    """What a copy holds."""

    folder: Path
    events: int  # of the log
    clock: Time


def back_up(run: Path, target: Path, say: Say, progress: Progress = unwatched) -> BackedUp:
    """Copy a run, with the log and the newest snapshot of its service, and start from the copy to see that it is whole.

    The copy is a run like any other: tsnn serve goes on from it.
    """
    check_finished(run)
    check_folder_target(target)
    if target.exists():
        raise InputError(f"{target} is there already; name a folder that is not.")
    partial = target.parent / f"{PARTIAL}{os.getpid()}-{target.name}"
    try:
        make_folder(partial)
        _copy_files(run, partial)
        if (run / HOME / FILE).is_file():
            _copy_home(run / HOME, partial / HOME)
        found = _proved(partial, say, progress)
        for folder, _, names in os.walk(partial):
            for path in (*(Path(folder) / name for name in names), Path(folder)):
                sync(path)
        os.rename(partial, target)
        sync(target.parent)
    except (OSError, sqlite3.Error, shutil.Error) as error:
        raise RunError(f"no copy of {run} was made ({error}); see to the disk and try again.") from None
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return found._replace(folder=target)


def _copy_files(run: Path, partial: Path) -> None:
    """What training has left."""
    for path in run.iterdir():
        if path.is_file() and not path.name.startswith(PARTIAL):
            shutil.copyfile(path, partial / path.name)


def _copy_home(home: Path, copy: Path) -> None:
    make_folder(copy)
    _copy_snapshot(home, copy)
    end = read_end(home)
    with closing(LogReader(home)) as reader, closing(sqlite3.connect(copy / FILE)) as into:
        reader.connection.backup(into)  # one moment of the log; whoever appends goes on meanwhile
    if end is not None:
        replace_end(copy, end)


def _copy_snapshot(home: Path, copy: Path) -> None:
    for left in reversed(range(_TRIES)):
        newest = newest_snapshot(home, lambda _: None)
        if newest is None:
            return
        try:
            shutil.copytree(newest.folder, copy / FOLDER / newest.folder.name)
            return
        except (OSError, shutil.Error):
            shutil.rmtree(copy / FOLDER, ignore_errors=True)
            if not left:
                raise


def _proved(partial: Path, say: Say, progress: Progress) -> BackedUp:
    """What a start from the copy gives; RunError where there is anything wrong with it."""
    if not (partial / HOME).is_dir():
        from tsnn.online.predictor import Predictor

        return BackedUp(partial, 0, Predictor.load(partial).ticks)
    log, predictor, position = restore(partial, run_identity(partial), say)
    with closing(log):
        behind, done = log.position - position, 0
        for events in log.read(position):
            predictor.observe_checked(events)
            done += len(events)
            progress(done, behind, "starting from the copy")
        return BackedUp(partial, log.position, predictor.ticks)
