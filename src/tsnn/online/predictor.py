"""The predictor: score, then observe, event after event, with nodes it has never met.

What a score sees is strict: every observed event with an earlier time, whether or not events of the very same time
have been observed already (tsnn.online.live). Scores read and observations write: no observation leaves work for the
next score to do, so a score changes nothing.
"""

from __future__ import annotations

import math
import shutil
import threading
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, overload

import numpy as np
import torch
from torch import Tensor

from tsnn.data.events import NodeIds
from tsnn.data.times import read_span
from tsnn.errors import InputError, RunError
from tsnn.files import write_whole
from tsnn.online.checks import check_ahead, check_event, check_id, check_relation, check_time
from tsnn.online.event import AnyTime, Event, Relation, Time
from tsnn.online.explain import Explanation, explain_score
from tsnn.online.ids import GrowingIds
from tsnn.online.live import LiveState
from tsnn.online.retrieve import eligible, shortlist
from tsnn.online.standpoint import Standpoint, score_candidates, stand
from tsnn.plan.tables import ROWS
from tsnn.training.checkpoint import write_tensors
from tsnn.training.run import CONFIG, DATA, FORMAT, IDS, METRICS, STATE, WEIGHTS, Run, read_tensors
from tsnn.types import F64, I64

Late = Literal["refuse", "aside"]
_COPIED = (CONFIG, WEIGHTS, DATA, "journal.jsonl")


@dataclass(frozen=True)
class Recommendation:
    """A destination with its score, the sum of its three parts."""

    dst: Hashable
    score: float
    geometric: float
    residual: float
    edgebank: float


class Predictor:
    """A trained run that goes on: `score` reads, `observe` writes. Safe to use from several threads."""

    def __init__(self, run: Run, saved: dict[str, Tensor], late: Late = "refuse", max_ahead: float = math.inf) -> None:
        if late not in ("refuse", "aside"):
            raise InputError(f"late is {late!r}; use 'refuse' or 'aside'.")
        if "tie/src" not in saved:
            raise RunError(f"{run.folder / STATE} was written by an earlier version; train the run again.")
        torch.set_num_threads(1)
        self.run, self.late, self.max_ahead = run, late, max_ahead
        self.aside: list[Event] = []  # late events, where they are not refused
        self._lock = threading.RLock()
        self._state = LiveState(run.model, GrowingIds(run.ids.external[: len(saved["h"])]), saved)

    @classmethod
    def load(cls, run: str | Path, late: Late = "refuse", max_ahead: float | str = math.inf) -> Predictor:
        """Continue a run folder. `late` says what becomes of an event older than the clock.

        An event more than `max_ahead` behind the one before it in time is refused; a run of dates takes "30d" as well.
        """
        folder = Path(run)
        if not (folder / STATE).is_file():
            raise RunError(f"{folder} is not a finished run: {STATE} is missing; train it with tsnn train.")
        saved, _ = read_tensors(folder / STATE)  # before the ids, which a save writes first: none is missing then
        loaded = Run.load(folder)
        return cls(loaded, saved, late, read_span(max_ahead, loaded.description.dates))

    @property
    def clock(self) -> Time | datetime:
        """Time of the last observed event: a number, or a date where the run's times are dates."""
        return self.run.description.moment(self.ticks)

    @property
    def ticks(self) -> Time:
        """The clock as the run counts: the number itself, of dates microseconds since 1970."""
        value: Time = self._state.clock.item()
        return value

    @property
    def span(self) -> Time:
        """Time from the first event to the last, those of training included."""
        return self.ticks - self._state.origin.item()  # type: ignore[no-any-return]

    def question_time(self, t: AnyTime | None) -> Time:
        """The time of a question: the one given, or a mean gap after the last event, so that every event counts."""
        if t is not None:
            return self.run.description.parse_time(t)
        clock = self.ticks
        gap = self.run.model.shape.mean_gap
        return clock + max(1, round(gap)) if isinstance(clock, int) else clock + gap

    @property
    def num_nodes(self) -> int:
        """Nodes heard of so far."""
        return len(self._state.ids)

    @property
    def num_events(self) -> int:
        """Events observed so far, those of training included."""
        return int(self._state.latest.tables.ints[ROWS])

    def knows(self, node_id: Hashable) -> bool:
        """Whether an id has been heard of."""
        check_id(node_id)
        return self._state.ids.find(node_id) is not None

    @overload
    def score(self, src: Hashable, dst: list[Any], t: AnyTime, edge_type: Relation | None = None) -> list[float]: ...
    @overload
    def score(self, src: Hashable, dst: Hashable, t: AnyTime, edge_type: Relation | None = None) -> float: ...
    def score(self, src: Hashable, dst: Any, t: AnyTime, edge_type: Relation | None = None) -> float | list[float]:
        """The score of a destination, or of each of a list, for this source at this time."""
        many = isinstance(dst, list)
        with self._lock:
            standpoint, cand = self.stand(src, dst if many else [dst], t, edge_type)
            total: list[float] = score_candidates(standpoint, cand).total.tolist()
        return total if many else total[0]

    def recommend(
        self,
        src: Hashable,
        t: AnyTime,
        k: int = 10,
        candidates: Sequence[Hashable] | str | None = None,
        exclude_seen: bool = False,
        edge_type: Relation | None = None,
        exact: bool = True,
    ) -> list[Recommendation]:
        """The k best destinations, best first.

        Without `candidates` they are the best of those that the run's question ranks: nodes that have been a
        destination so far or, where nodes have types, nodes of a type that has. "all" ranks every known node, a list
        the nodes in it. The source itself counts only if it is in the list or has linked to itself before.
        `exclude_seen` leaves out destinations that the source has linked to. `exact=False` ranks a shortlist of the
        candidates; a list is always ranked whole.
        """
        if k < 1:
            raise InputError(f"k is {k}; ask for at least one destination.")
        listed = candidates is not None and not isinstance(candidates, str)
        names = list(candidates or ()) if listed else []
        question = self.run.question
        if isinstance(candidates, str):
            question = replace(question, candidates=candidates)
        with self._lock:
            standpoint, cand = self.stand(src, names, t, edge_type)
            if not listed:
                cand = eligible(standpoint, question) if exact else shortlist(standpoint, question)
            scores = score_candidates(standpoint, cand)
        keep = ~scores.seen if exclude_seen else np.ones(len(cand), np.bool_)
        if not listed:
            keep &= (cand != standpoint.src) | scores.seen
        worth = np.flatnonzero(keep)
        best = worth[_top(scores.total[worth], k)].tolist()
        external = self._state.ids.external
        return [
            Recommendation(names[i] if listed else external[cand[i]], *(float(part[i]) for part in scores[:4]))
            for i in best
        ]

    def explain(self, src: Hashable, dst: Hashable, t: AnyTime, edge_type: Relation | None = None) -> Explanation:
        """Why this destination has this score."""
        with self._lock:
            standpoint, cand = self.stand(src, [dst], t, edge_type)
            return explain_score(standpoint, int(cand[0]), src, dst, self.run)

    def recent(self, node_id: Hashable, n: int = 10) -> list[tuple[Hashable, Time | datetime, Relation | None]]:
        """The last events of a node, newest first: the other end, the time, the relation (None without relations)."""
        check_id(node_id)
        with self._lock:
            index = self._state.ids.find(node_id)
            events = [] if index is None else self._state.recent(self._state.latest, index, n)
        about = self.run.description
        return [
            (other, about.moment(t), None if relation is None else about.relation_name(relation))
            for other, t, relation in events
        ]

    def stand(
        self, src: Hashable, candidates: Sequence[Hashable], t: AnyTime, edge_type: Relation | None
    ) -> tuple[Standpoint, I64]:
        """Where a source stands at a time, once all of this is checked, and the candidates' indices."""
        for name in (src, *candidates):
            check_id(name)
        time = self._asked_at(t)
        relation = check_relation(edge_type, self.run.description, self.run.model.shape.num_relations)
        return stand(self._state, src, candidates, time, relation or 0)

    def _asked_at(self, t: AnyTime) -> Time:
        """The time of a question, which cannot lie before what has been observed."""
        about = self.run.description
        time = check_time(t, about, isinstance(self.ticks, int))
        if time < self.ticks:
            asked, clock = (about.show_time(x) for x in (time, self.ticks))
            raise InputError(f"time {asked} is before the clock, {clock}; ask at the clock or later.")
        return time

    def observe(
        self, src: Hashable, dst: Hashable, t: AnyTime, msg: Any = None, edge_type: Relation | None = None
    ) -> None:
        """Let one event happen. Ids not heard of before become nodes."""
        self.observe_many([Event(src, dst, t, msg, edge_type)])

    def observe_many(self, events: Iterable[Event | tuple[Any, ...]]) -> None:
        """Let events happen in order: the same as one by one, bit for bit, and faster. If one is bad, none happens."""
        with self._lock:
            timely, late = self._sorted_out([self.check(Event(*event)) for event in events])
            self.aside += late
            if timely:
                self._state.observe(timely)

    def _sorted_out(self, events: list[Event]) -> tuple[list[Event], list[Event]]:
        """Timely events and late ones; an event is late if one before it has a later time."""
        clock = self.ticks
        timely: list[Event] = []
        late: list[Event] = []
        for event in events:
            if event.t >= clock:
                self.check_ahead(event.t, clock)
                timely.append(event)
                clock = event.t
            elif self.late == "aside":
                late.append(event)
            else:
                came, reached = (self.run.description.show_time(t) for t in (event.t, clock))
                raise InputError(
                    f"an event at time {came} comes after the clock has reached {reached}; send it in order."
                )
        return timely, late

    def check(self, event: Event) -> Event:
        """The event in the form in which it is logged and observed; InputError if it is none this run can use."""
        return check_event(event, self.run.model.shape, self.run.description, isinstance(self.ticks, int))

    def check_ahead(self, t: Time, clock: Time) -> None:
        """Refuse an event too far ahead of the one before it."""
        check_ahead(t, clock, self.max_ahead, self.run.description)

    def observe_checked(self, events: Sequence[Event]) -> None:
        """Let events happen that `check` has passed and whose times are in order, as those of a log are."""
        with self._lock:
            self._state.observe(events)

    def snapshot(self) -> Snapshot:
        """A copy of the present state, to be saved at leisure while events go on."""
        with self._lock:
            return Snapshot(self.run.folder, NodeIds(self._state.ids.external), self._state.snapshot())

    def save(self, run: str | Path) -> None:
        """Write the state into a run folder, the same or another, so that `load` goes on from here."""
        self.snapshot().save(run)


@dataclass(frozen=True)
class Snapshot:
    """The state of a predictor at one moment."""

    folder: Path  # of the run it belongs to
    ids: NodeIds
    tensors: dict[str, Tensor]

    def save(self, run: str | Path) -> None:
        """Write a run folder, or replace the state of this one.

        Ids are written before the state: whatever an interruption leaves, every row of the state has its id.
        """
        folder = Path(run)
        elsewhere = folder.resolve() != self.folder.resolve()
        if elsewhere:
            _copy_run(self.folder, folder, _COPIED)
        self.ids.save(folder / IDS)
        write_tensors(folder / STATE, self.tensors, {"format": FORMAT})
        if elsewhere:  # the figures mark a finished run, so they come last
            _copy_run(self.folder, folder, (METRICS,))


def _copy_run(source: Path, target: Path, names: Iterable[str]) -> None:
    target.mkdir(parents=True, exist_ok=True)
    for name in names:
        if (source / name).is_file():
            write_whole(target / name, lambda partial, name=name: _copy(source / name, partial))  # type: ignore[misc]


def _copy(source: Path, target: Path) -> None:
    shutil.copyfile(source, target)


def _top(scores: F64, k: int) -> I64:
    """Positions of the k largest, largest first; equal scores in the order they came."""
    if k < len(scores):
        threshold = np.partition(scores, len(scores) - k)[len(scores) - k]
        few = np.flatnonzero(scores >= threshold)
    else:
        few = np.arange(len(scores))
    best: I64 = few[np.argsort(-scores[few], kind="stable")][:k]
    return best
