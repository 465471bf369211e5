"""Taking back logged events: the log without them, and the state as if they had never come.

    snapshots that hold one of them go -> the log changes in one transaction -> replay -> a snapshot of the new state

A kill leaves the old events or the new ones, nothing between: up to the transaction a restart replays the old log from
an older snapshot, and after it the new one.
"""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from tsnn.errors import InputError, RunError
from tsnn.online.event import Event, Time
from tsnn.serve.eventlog import FILE, Chosen, EventLog, FolderLock, LogReader, check_meta
from tsnn.serve.marks import END
from tsnn.serve.service import HOME, restore, run_identity
from tsnn.serve.snapshots import Say, drop_snapshots, write_snapshot
from tsnn.serve.verify import check_log
from tsnn.training.run import check_finished
from tsnn.types import Progress, unwatched

Logged = list[tuple[int, Event]]  # with their positions


class Rewritten(NamedTuple):
    """What became of a log."""

    dropped: Logged
    left: int  # events
    clock: Time


def find_events(run: Path, chosen: Chosen, most: int) -> Logged:
    """The last `most` logged events among those chosen."""
    check_there(run)
    try:
        reader = LogReader(run / HOME)
        try:
            check_meta(run / HOME / FILE, reader.connection, run_identity(run))
            return reader.find(chosen, most)
        finally:
            reader.close()
    except sqlite3.Error as error:
        raise RunError(f"the event log of {run} cannot be read ({error}); run tsnn log verify {run}.") from None


def drop_events(run: Path, chosen: Chosen, say: Say, progress: Progress = unwatched) -> Rewritten:
    """Take the chosen events back; refused while a service holds the run."""
    check_there(run)
    lock = FolderLock(run / HOME)
    try:
        check_log(run, run / HOME)
        log = EventLog(run / HOME, run_identity(run))
        try:
            dropped = log.find(chosen)
            if not dropped:
                raise InputError(f"no event of {run} is among those; tsnn log show {run} lists them.")
            drop_snapshots(run / HOME, after=dropped[0][0] - 1)
            log.drop(chosen)
        finally:
            log.close()
        return Rewritten(dropped, log.position, replay(run, say, progress))
    finally:
        lock.release()


def check_there(run: Path) -> None:
    """Refuse a run that no service has held."""
    check_finished(run)
    if not any((run / HOME / name).is_file() for name in (FILE, END)):
        raise RunError(f"{run} has no log of events; tsnn serve writes one.")


def replay(run: Path, say: Say, progress: Progress) -> Time:
    """The clock of the log as it now is. Its state is kept as a snapshot: the next service need not wait for it."""
    log, predictor, position = restore(run, run_identity(run), say)
    behind = log.position - position
    done = 0
    for events in log.read(position):
        predictor.observe_checked(events)
        done += len(events)
        progress(done, behind, "replaying the log")
    log.close()
    if behind:
        frozen = replace(predictor.snapshot(), folder=run)  # the one it came from may be dropped as too old
        write_snapshot(run / HOME, position + behind, frozen.save, log.mark)
    return predictor.ticks
