"""The live service without its HTTP: one predictor, one log, one writer.

    submit -> bounded queue -> writer: check, append to the log (one transaction for all that wait), apply, acknowledge
    answer -> bounded queue -> one reader: asks the predictor between two writes

Requests that wait together are one group: they are taken in order of their times, so that clients that race with
neighboring times are not refused for it. An event touches the state only after the log has it.
"""

from __future__ import annotations

import hashlib
import math
import os
import queue
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

from tsnn.data.times import read_span
from tsnn.errors import InputError, RunError, TsnnError
from tsnn.files import make_folder
from tsnn.online.checks import BrokenStateError
from tsnn.online.event import Event, Time
from tsnn.online.predictor import Predictor
from tsnn.serve.drift import DriftTrace
from tsnn.serve.eventlog import EventLog, FolderLock, LogError, Receipt
from tsnn.serve.metrics import Metrics
from tsnn.serve.schemas import EventsOut
from tsnn.serve.snapshots import Say, newest_snapshot, sweep_partial, write_snapshot
from tsnn.serve.verify import check_log
from tsnn.training.manifest import file_digest
from tsnn.training.run import SERVED, STATE_FILES, check_finished, read_description

HOME = SERVED  # for everything that the service writes
AHEAD = 10  # times the span of all events so far: nothing is that much later by chance
GROUP_EVENTS = 4000  # events that one transaction takes at most, unless a single request has more
NODE_BYTES = 8 * 2**10  # that a newcomer costs: state, coordinates, counters at two moments
SLICE_EVENTS = 500  # events applied before readers get their turn
EARLY = 1000  # events before the first snapshot, which is there in case the log is lost
SYNC_SECONDS = 1.0  # between two times that the end of the log is put on the disk, which the log itself always is
GATHER_SECONDS = 0.002  # a pause for more requests to arrive, after a group of several; shorter than a commit
Answer = TypeVar("Answer")
Given = ParamSpec("Given")


class BusyError(TsnnError):
    """More requests wait than the service was told to hold."""


class UnavailableError(TsnnError):
    """The service cannot take the request now, though nothing is wrong with the request."""


@dataclass
class _Request:
    sent: list[Event]
    key: str | None
    events: list[Event]  # as the log shall keep them
    done: Future[EventsOut] = field(default_factory=Future)

    def __post_init__(self) -> None:
        self.done.set_running_or_notify_cancel()  # a client that hangs up cannot take its events back

    def digest(self) -> bytes:
        """Of what was sent; a time as it is kept, so that 5 and 5.0 are one (now is none, and stays as it was sent)."""
        numbers = [isinstance(event.t, int | float) for event in self.sent]
        both = zip(self.sent, self.events, numbers, strict=True)
        told = [sent._replace(t=kept.t) if is_number else sent for sent, kept, is_number in both]
        return hashlib.sha256(repr(told).encode()).digest()

    def digest_as_sent(self) -> bytes:
        """What logs of earlier versions hold."""
        return hashlib.sha256(repr(self.sent).encode()).digest()


@dataclass
class _Draft:
    """What one transaction will hold, in the making."""

    clock: Any
    events: list[Event] = field(default_factory=list)
    keyed: dict[str, Event] = field(default_factory=dict)
    receipts: dict[str, Receipt] = field(default_factory=dict)
    admitted: list[tuple[_Request, int]] = field(default_factory=list)  # with its number of new events


class Service:
    """A run that is asked and fed at the same time; every acknowledged event survives a kill at any moment."""

    def __init__(
        self,
        run: str | Path,
        *,
        queue_length: int = 1024,
        snapshot_every: int = 100_000,
        max_ahead: float | str | None = None,
        max_nodes: int | None = None,
        say: Say | None = None,
    ) -> None:
        """Restore the newest whole snapshot and replay what the log holds behind it.

        An event more than `max_ahead` ahead of the one before it is refused; by default `AHEAD` times the time seen. So
        are newcomers beyond `max_nodes`; by default as many nodes as fill half of the memory of the machine.
        """
        self._say = say or (lambda _: None)
        run = Path(run)
        identity = run_identity(run)
        limit = None if max_ahead is None else read_span(max_ahead, read_description(run).dates)
        self.home = run / HOME
        make_folder(self.home)
        self.metrics = Metrics()
        self.lock = threading.Lock()  # held by whoever reads or writes the predictor
        self._transaction = threading.Lock()  # held while the log is ahead of the predictor
        self._folder_lock = FolderLock(self.home)
        try:
            self.log, self.predictor, self.snapshot_position = restore(run, identity, self._say)
            self.applied = self.snapshot_position
            self.drift = DriftTrace()
            self._catch_up()
            # One wrong time would be in the log for good, and no right one could follow it.
            self.predictor.max_ahead = (AHEAD * self.predictor.span or math.inf) if limit is None else limit
            self._max_nodes = max_nodes or max(nodes_that_fit(), 2 * self.predictor.num_nodes)
        except BaseException:
            self._folder_lock.release()
            raise
        self._queue: queue.Queue[_Request | None] = queue.Queue(queue_length)
        self._snapshot_every = snapshot_every
        self._reader = ThreadPoolExecutor(1, "reader")
        self._reads = threading.BoundedSemaphore(queue_length)
        self._snapshot_due = threading.Event()
        self._closing = self._ended = False
        self._suspect: LogError | None = None  # the log failed, and what it holds is not known yet
        self._broken: Exception | None = None  # the state failed; only a restart helps
        self._threads = [threading.Thread(target=t, daemon=True) for t in (self._write_forever, self._snapshot_forever)]
        for thread in self._threads:
            thread.start()

    def _catch_up(self) -> None:
        """Apply what the log holds behind the state."""
        for events in self.log.read(self.applied):
            self._observe(events)

    # Writing

    def submit(self, events: Sequence[Event], key: str | None = None) -> Future[EventsOut]:
        """Queue a request: all of its events or none. The future ends when they are durable and applied."""
        request = _Request(list(events), key, self._checked(events))
        if self._closing:
            raise UnavailableError("the service is stopping; send the events again once it is back.")
        try:
            self._queue.put_nowait(request)
        except queue.Full:
            raise BusyError(
                f"{self._queue.maxsize} requests wait already; send the events again in a moment."
            ) from None
        return request.done

    @property
    def waiting(self) -> int:
        """Requests in the queue."""
        return self._queue.qsize()

    def _write_forever(self) -> None:
        crowd = False
        while not self._ended:
            group = self._gather(wait=crowd)
            crowd = len(group) > 1
            self._write(sorted(group, key=lambda request: request.events[0].t))

    def _gather(self, wait: bool) -> list[_Request]:
        """Wait for a request and take all that stand behind it; `wait` gives others a moment to arrive first."""
        group: list[_Request] = []
        events = 0
        while events < GROUP_EVENTS:
            try:
                request = self._queue.get(block=not group)
            except queue.Empty:
                break
            if request is None:
                self._ended = True
                break
            if wait and not group:
                time.sleep(GATHER_SECONDS)
            group.append(request)
            events += len(request.events)
        return group

    def _write(self, group: list[_Request]) -> None:
        try:
            self._catch_up_if_suspect()
            draft = _Draft(self.predictor.ticks)
            for request in group:
                self._admit(request, draft)
            if draft.events:
                with self._transaction:
                    self.log.append(draft.events, list(draft.receipts.values()))
                    self._apply(draft)
            self._acknowledge(draft)
        except Exception as error:
            self._fail(group, error)

    def _catch_up_if_suspect(self) -> None:
        """After a failed commit: apply what reached the log all the same, though nobody was told so."""
        if self._broken:
            raise UnavailableError("the state could not take a logged event; restart the service.")
        if self._suspect:
            self.log.recover()
            self._catch_up()
            self._suspect = None

    def _fail(self, group: list[_Request], error: Exception) -> None:
        if isinstance(error, LogError):
            self._suspect = error
            self.metrics.commit_errors.inc()
        elif self.applied != self.log.position:
            self._broken = error
        self._say(f"events were not acknowledged: {error}")
        if not isinstance(error, TsnnError):
            error = UnavailableError("the events were not acknowledged; send them again.")
        for request in group:
            if not request.done.done():
                request.done.set_exception(error)

    def _admit(self, request: _Request, draft: _Draft) -> None:
        try:
            fresh = self._timely(self._fresh(request, draft), draft.clock)
            self._check_room(fresh, draft)
        except InputError as error:
            request.done.set_exception(error)
            return
        draft.clock = fresh[-1].t if fresh else draft.clock
        draft.events += fresh
        draft.keyed |= {event.key: event for event in fresh if event.key is not None}
        if request.key is not None and fresh:
            position = self.log.position + len(draft.events)
            draft.receipts[request.key] = Receipt(request.key, request.digest(), position)
        draft.admitted.append((request, len(fresh)))

    def _checked(self, events: Sequence[Event]) -> list[Event]:
        """These events as the log shall keep them; InputError if the run can use one of them at no time."""
        checked = []
        for place, event in enumerate(events):
            try:
                checked.append(self.predictor.check(event))
            except InputError as error:
                raise InputError(f"event {place}: {error}") from None
        return checked

    def _timely(self, events: dict[int, Event], clock: Time) -> list[Event]:
        """These events, each of which can follow the one before it."""
        for place, event in events.items():
            try:
                self._check_order(event.t, clock)
            except InputError as error:
                raise InputError(f"event {place}: {error}") from None
            clock = event.t
        return list(events.values())

    def _check_room(self, fresh: list[Event], draft: _Draft) -> None:
        """Refuse events that would bring more nodes than there is room for."""
        known, events = self.predictor.num_nodes, [draft.events, fresh]
        if known + 2 * sum(map(len, events)) <= self._max_nodes:  # even if nobody of them were known
            return
        names = {name for some in events for event in some for name in (event.src, event.dst)}
        if known + sum(not self.predictor.has_met(name) for name in names) > self._max_nodes:
            raise InputError(
                f"with these events there would be more than {self._max_nodes} nodes, the limit of this service; send "
                "events of known nodes, or allow more with --max-nodes."
            )

    def _check_order(self, t: Time, clock: Time) -> None:
        if t < clock:
            came, reached = (self.predictor.run.description.show_time(t) for t in (t, clock))
            raise InputError(f"time {came} is before the clock, {reached}; send events in order of time.")
        self.predictor.check_ahead(t, clock)

    def _fresh(self, request: _Request, draft: _Draft) -> dict[int, Event]:
        """The request's events that neither the log nor this transaction holds, by their place in it."""
        if request.key is not None:
            earlier = draft.receipts.get(request.key) or self.log.receipt_of(request.key)
            if earlier and earlier.digest not in (request.digest(), request.digest_as_sent()):
                raise InputError(f"the key {request.key!r} was used for another request; choose a new one.")
            if earlier:
                return {}
        known = draft.keyed | self.log.events_of({event.key for event in request.events if event.key is not None})
        fresh = {}
        for place, event in enumerate(request.events):
            if event.key is None:
                fresh[place] = event
            elif event.key not in known:
                fresh[place] = known[event.key] = event
            elif known[event.key] != event:
                raise InputError(f"the key {event.key!r} was used for another event; choose a new one.")
        return fresh

    def _apply(self, draft: _Draft) -> None:
        """In slices that end where a request does, so that a reader never sees half of one."""
        start = stop = 0
        for _, fresh in draft.admitted:
            stop += fresh
            if stop - start >= SLICE_EVENTS:
                self._observe(draft.events[start:stop])
                start = stop
        if stop > start:
            self._observe(draft.events[start:stop])
        wanted = self._snapshot_every if self.snapshot_position else min(EARLY, self._snapshot_every)
        if self.applied - self.snapshot_position >= wanted:
            self._snapshot_due.set()

    def _observe(self, events: list[Event]) -> None:
        with self.lock:
            self.predictor.observe_checked(events)
            self.applied += len(events)
            self.drift.observe(self.predictor, events)

    def _acknowledge(self, draft: _Draft) -> None:
        duplicates = sum(len(request.events) - fresh for request, fresh in draft.admitted)
        self.metrics.saw_events(len(draft.events), duplicates)
        shown = self.predictor.run.description.show_time(self.predictor.ticks)
        for request, fresh in draft.admitted:
            numbers = {"applied": fresh, "duplicates": len(request.events) - fresh, "position": self.log.position}
            request.done.set_result(EventsOut(**numbers, clock=shown))

    # Reading

    def answer(
        self, read: Callable[Concatenate[Predictor, Given], Answer], *args: Given.args, **kwargs: Given.kwargs
    ) -> Future[Answer]:
        """What `read` makes of the predictor, and of these arguments, between two writes. It must not write."""
        if self._closing:
            raise UnavailableError("the service is stopping; ask again once it is back.")
        if isinstance(self._broken, BrokenStateError):
            raise self._broken
        if not self._reads.acquire(blocking=False):
            raise BusyError(f"{self._queue.maxsize} questions wait already; ask again in a moment.")

        def locked() -> Answer:
            with self.lock:
                try:
                    return read(self.predictor, *args, **kwargs)
                except BrokenStateError as error:
                    self._broken = error
                    raise

        future = self._reader.submit(locked)
        future.add_done_callback(lambda _: self._reads.release())  # also of one that was given up before its turn
        return future

    # Snapshots and the end

    def _snapshot_forever(self) -> None:
        while not self._closing:
            if self._snapshot_due.wait(SYNC_SECONDS) and not self._closing:
                self._snapshot_due.clear()
                self.snapshot()
            self.log.sync_end()

    def snapshot(self) -> None:
        """Write the state with its log position; a failure is told and costs only a longer replay."""
        with self._transaction, self.lock:
            position, mark = self.applied, self.log.mark
            if position == self.snapshot_position or position != self.log.position:
                return
            # The folder that the predictor came from may be an older snapshot, which will be dropped.
            frozen = replace(self.predictor.snapshot(), folder=self.home.parent)
        try:
            self.snapshot_position = write_snapshot(self.home, position, frozen.save, mark).position
        except TsnnError as error:
            self.metrics.snapshot_errors.inc()
            self._say(str(error))
        else:
            self.metrics.snapshots.inc()

    @property
    def fault(self) -> str | None:
        """Why the service does not take events at present."""
        error = self._broken or self._suspect or (None if self._closing else self.log.misplaced())
        return str(error) if error else None

    def close(self) -> None:
        """Write what waits, snapshot, and let go of the run."""
        if self._closing:
            return
        self._closing = True
        self._queue.put(None)
        self._snapshot_due.set()
        for thread in self._threads:
            thread.join()
        while not self._queue.empty():  # requests that came in while the end was already in the queue
            request = self._queue.get()
            if request is not None:
                request.done.set_exception(UnavailableError("the service is stopping; send the events again later."))
        self._reader.shutdown()
        if self._broken is None:
            self.snapshot()
        self.log.close()
        self._folder_lock.release()


def restore(run: Path, identity: str, say: Say) -> tuple[EventLog, Predictor, int]:
    """The log, the predictor of its newest whole snapshot (or of the run itself), and the position it stands at.

    The caller holds the folder's lock, so nobody else is at work on the log or on a snapshot.
    """
    home = run / HOME
    sweep_partial(home)
    verdict = check_log(run, home)  # before anything opens the log that could change it
    log = EventLog(home, identity)
    if not verdict.marked:
        say(f"the log was written without checksums; its {verdict.events} events have them from now on.")
    snapshot = newest_snapshot(home, say, log)
    position = snapshot.position if snapshot else 0
    if snapshot and position > log.position:
        log.close()
        raise RunError(
            f"snapshot {position} is ahead of the event log, which holds {log.position} events; "
            f"put the log back. The state itself is whole: tsnn.Predictor.load('{snapshot.folder}') reads it."
        )
    return log, Predictor.load(snapshot.folder if snapshot else run), position


def nodes_that_fit() -> int:
    """How many nodes fill half of the memory of this machine."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2 // NODE_BYTES


def run_identity(run: Path) -> str:
    """A digest of what the log's first event was applied to."""
    check_finished(run)
    digests = "".join(file_digest(run / name) for name in STATE_FILES)
    return hashlib.sha256(digests.encode()).hexdigest()[:32]
