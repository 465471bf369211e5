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
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar, Literal, overload

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tsnn.data.events import NodeIds, keys_of
from tsnn.data.times import read_span
from tsnn.errors import InputError, RunError
from tsnn.files import held, make_folder, write_whole
from tsnn.online.batch import as_column, score_pairs, side_by_side
from tsnn.online.checks import check_ahead, check_event, check_id, check_relation, check_time
from tsnn.online.event import AnyTime, Event, Relation, Time
from tsnn.online.explain import Explanation, explain_score
from tsnn.online.forecast import DuePair, Forecast, Outlook
from tsnn.online.ids import GrowingIds
from tsnn.online.live import LiveState
from tsnn.online.retrieve import best_places, eligible, shortlist
from tsnn.online.saved import check_state
from tsnn.online.standpoint import Standpoint, score_candidates, stand
from tsnn.plan.tables import ROWS
from tsnn.tabular import Brief, Columns, Rows, Tabular
from tsnn.training.checkpoint import write_tensors
from tsnn.training.manifest import MANIFEST, check_whole, replace_files
from tsnn.training.run import (
    CONFIG,
    DATA,
    FORMAT,
    IDS,
    INTENSITY,
    METRICS,
    SERVED,
    STATE,
    WEIGHTS,
    Run,
    check_finished,
    folder_of,
    read_tensors,
)
from tsnn.types import F64, I64
from tsnn.words import Helpful, kind_of

Late = Literal["refuse", "aside"]
FORECAST_GAPS = 100  # mean gaps that a forecast reaches, if nobody says how far
_COPIED = (MANIFEST, CONFIG, WEIGHTS, INTENSITY, DATA, "journal.jsonl")


@dataclass(frozen=True)
class Recommendation:
    """A destination with its score, the sum of its three parts."""

    dst: Hashable
    score: float
    geometric: float
    residual: float
    edgebank: float


@dataclass(frozen=True, repr=False, eq=False)
class Embedding(Tabular, Brief):
    """States of nodes as of a time, one row each, in synchronized coordinates: U h of every node's stalk and frame.

    These coordinates are common to all nodes of a run, so rows may be compared: the Euclidean distance of two is their
    transported distance, the inner product their transported one. Those of another run are turned otherwise.
    """

    ids: list[Hashable]
    values: NDArray[np.floating[Any]]  # (nodes, stalk_dim); of a node without an event, what it begins with
    t: Time | str

    def __len__(self) -> int:
        return len(self.ids)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.array(self.values, dtype=dtype)

    def columns(self) -> Columns:
        """The node, and a column for each coordinate."""
        return {"node": self.ids, **{f"g{i}": column for i, column in enumerate(self.values.T)}}

    def brief(self) -> dict[str, object]:
        """How many nodes and coordinates, and as of when."""
        return {"nodes": len(self), "coordinates": self.values.shape[1], "t": self.t}

    def _repr_html_(self) -> str:
        return Brief._repr_html_(self)


class Predictor(Brief, Helpful):
    """A trained run that goes on: `score` reads, `observe` writes. Safe to use from several threads."""

    _instead: ClassVar = {
        "fit": "a run is trained with tsnn.train(data); observe(src, dst, t) tells a predictor of an event.",
        "predict": "score_pairs(src, dst, t) scores pairs, recommend(src, t) ranks destinations.",
        "predict_proba": "score_pairs(src, dst, t) scores pairs; a score ranks, it is no probability.",
        "transform": "embed(nodes, at=t) gives the states of nodes.",
        "evaluate": "call tsnn.evaluate(predictor.run, data).",
        "update": "observe(src, dst, t) tells it of an event.",
    }

    def __init__(
        self,
        run: Run,
        saved: dict[str, Tensor] | None = None,
        late: Late = "refuse",
        max_ahead: float = math.inf,
    ) -> None:
        if saved is None:
            raise InputError("a predictor is made of a run's folder; call tsnn.Predictor.load(run).")
        if late not in ("refuse", "aside"):
            raise InputError(f"late is {late!r}; use 'refuse' or 'aside'.")
        if "tie/src" not in saved:
            raise RunError(f"{run.folder / STATE} was written by an earlier version; train the run again.")
        check_state(saved, run.model, len(run.ids))
        torch.set_num_threads(1)
        self.run, self.late, self.max_ahead = run, late, max_ahead
        self.aside: list[Event] = []  # late events, where they are not refused
        self._lock = threading.RLock()
        self._state = LiveState(run.model, GrowingIds(run.ids.external[: len(saved["h"])]), saved, run.intensity)

    @classmethod
    def load(cls, run: Run | str | Path, late: Late = "refuse", max_ahead: float | str = math.inf) -> Predictor:
        """Continue a run, or the one in a folder. `late` says what becomes of an event older than the clock.

        An event more than `max_ahead` behind the one before it in time is refused; a run of dates takes "30d" as well.
        """
        folder = folder_of(run)
        check_finished(folder)
        check_whole(folder, (STATE,))
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

    def has_met(self, node_id: Hashable) -> bool:
        """`knows` of an id that has been checked."""
        return self._state.ids.find(node_id) is not None

    def knows(self, node_id: Hashable) -> bool:
        """Whether an id has been heard of."""
        check_id(node_id)
        return self.has_met(node_id)

    def brief(self) -> dict[str, object]:
        """Its run, and how far it has come."""
        clock = self.run.description.show_time(self.ticks)
        return {"run": self.run.folder, "nodes": self.num_nodes, "events": self.num_events, "clock": clock}

    @overload
    def score(
        self, src: Hashable, dst: list[Any], t: AnyTime | None = None, edge_type: Relation | None = None
    ) -> list[float]: ...
    @overload
    def score(
        self, src: Hashable, dst: Hashable, t: AnyTime | None = None, edge_type: Relation | None = None
    ) -> float: ...
    def score(
        self, src: Hashable, dst: Any, t: AnyTime | None = None, edge_type: Relation | None = None
    ) -> float | list[float]:
        """The score of a destination, or of each of a list, for this source at this time."""
        many = as_column(dst)
        with self._lock:
            standpoint, cand = self.stand(src, [dst] if many is None else many, t, edge_type)
            total: list[float] = score_candidates(standpoint, cand).total.tolist()
        return total[0] if many is None else total

    def score_pairs(self, src: Any, dst: Any, t: Any = None, edge_type: Any = None) -> F64:
        """The scores of many pairs at once, in the order of the pairs.

        Each of the four is a list, an array or a column of a frame, with a value for each pair, or one value for all.
        """
        pairs = side_by_side(src=src, dst=dst, t=t, edge_type=edge_type)
        for name in chain(pairs["src"], pairs["dst"]):
            check_id(name)
        about, relations = self.run.description, self.run.model.shape.num_relations
        with self._lock:
            asked_at, number = cache(self._asked_at), cache(lambda name: check_relation(name, about, relations) or 0)
            times = np.array([asked_at(when) for when in pairs["t"]])
            kinds = np.array([number(kind) for kind in pairs["edge_type"]], np.int64)
            return score_pairs(self._state, pairs["src"], pairs["dst"], times, kinds)

    def embed(self, nodes: Any = None, at: AnyTime | None = None) -> Embedding:
        """The states of nodes (by default of all) as of a time, in coordinates in which they can be compared."""
        with self._lock:
            names = self._state.ids.external if nodes is None else side_by_side(nodes=nodes)["nodes"]
            for name in names:
                check_id(name)
            time = self._asked_at(at)
            found = [self._state.ids.find(name) for name in names]
            known = np.array([index is not None for index in found], np.bool_)
            index = np.array([index or 0 for index in found], np.int64)
            store = self._state.store
            values = store.synchronized(index, self._state.moment(time).settled)[0].numpy().copy()
            unseen, _ = store.unseen(keys_of(name for name, is_known in zip(names, known, strict=True) if not is_known))
            values[~known] = unseen.numpy()
        return Embedding(list(names), values, self.run.description.show_time(time))

    def recommend(
        self,
        src: Hashable,
        t: AnyTime | None = None,
        k: int = 10,
        candidates: Sequence[Hashable] | str | None = None,
        exclude_seen: bool = False,
        edge_type: Relation | None = None,
        exact: bool = True,
    ) -> Rows[Recommendation]:
        """The k best destinations, best first: a list, and with `to_pandas` and its like a table.

        Without `candidates` they are the best of those that the run's question ranks: nodes that have been a
        destination so far or, where nodes have types, nodes of a type that has. "all" ranks every known node, a list
        the nodes in it. The source itself counts only if it is in the list or has linked to itself before.
        `exclude_seen` leaves out destinations that the source has linked to. `exact=False` ranks a shortlist of the
        candidates; a list is always ranked whole.
        """
        if not isinstance(k, int | np.integer) or k < 1:
            raise InputError(f"k is {k!r}; ask for at least one destination.")
        listed = candidates is not None and not isinstance(candidates, str)
        names = _nodes(candidates) if listed else []
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
        best = worth[best_places(scores.total[worth], k)].tolist()
        external = self._state.ids.external
        found = (
            Recommendation(names[i] if listed else external[cand[i]], *(float(part[i]) for part in scores[:4]))
            for i in best
        )
        return Rows(found, Recommendation)

    def forecast(
        self, within: float | str | None = None, top: int = 20, t: AnyTime | None = None, pairs: bool = True
    ) -> Forecast:
        """Who is due: the sources, and the pairs, most likely to act within a length of time, from `t` on.

        A run of dates takes "1h" as well; by default it is a hundred mean gaps. Rates fade as if nothing new happened
        until then. Pairs are the best of all; `pairs=False` leaves them out, which is faster.
        """
        if not isinstance(top, int | np.integer) or top < 1:
            raise InputError(f"top is {top!r}; ask for at least one source.")
        intensity, about = self.run.intensity, self.run.description
        if intensity is None:
            raise InputError("this run does not say who acts when; train it again, with train.intensity=true.")
        horizon = FORECAST_GAPS * self.run.model.shape.mean_gap if within is None else read_span(within, about.dates)
        if not 0 < horizon < math.inf:
            raise InputError(f"within is {within!r}; give a length of time that is more than nothing and has an end.")
        with self._lock:
            time = self._asked_at(t)
            outlook = Outlook(self._state, intensity, time, horizon)
            found = outlook.pairs(top, self.run.question) if pairs else []
            sources, names = outlook.sources(top), self._state.ids.external
        kinds = self.run.model.shape.num_relations
        due = (
            DuePair(names[u], names[v], about.relation_name(kind) if kinds else None, value, -math.expm1(-value))
            for u, v, kind, value in found
        )
        total, new = float(outlook.expected.sum()), intensity.newcomers * horizon
        if not math.isfinite(total + new):
            raise InputError(f"within is {within!r}, of which nothing can be said; give a shorter length of time.")
        return Forecast(about.show_time(time), horizon, sources, Rows(due, DuePair), total, new)

    def explain(
        self, src: Hashable, dst: Hashable, t: AnyTime | None = None, edge_type: Relation | None = None
    ) -> Explanation:
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
        self, src: Hashable, candidates: Sequence[Hashable], t: AnyTime | None, edge_type: Relation | None
    ) -> tuple[Standpoint, I64]:
        """Where a source stands at a time, once all of this is checked, and the candidates' indices."""
        for name in (src, *candidates):
            check_id(name)
        time = self._asked_at(t)
        relation = check_relation(edge_type, self.run.description, self.run.model.shape.num_relations)
        return stand(self._state, src, candidates, time, relation or 0)

    def _asked_at(self, t: AnyTime | None) -> Time:
        """The time of a question, which cannot lie before what has been observed; `question_time` if none is given."""
        if t is None:
            return self.question_time(None)
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
        if not isinstance(events, Iterable):
            raise InputError(f"{kind_of(events)} holds no events; give a list of tuples of src, dst and t.")
        with self._lock:
            timely, late = self._sorted_out([self.check(_event_of(event)) for event in events])
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


def _nodes(candidates: Any) -> list[Hashable]:
    """The nodes that somebody lists."""
    listed = as_column(candidates)
    if listed is None and not isinstance(candidates, Iterable):
        raise InputError(f"candidates are {kind_of(candidates)}; give a list of nodes, 'destinations' or 'all'.")
    return list(candidates) if listed is None else listed


def _event_of(given: Any) -> Event:
    """An event, or the tuple of its parts."""
    if not isinstance(given, tuple | list) or not 3 <= len(given) <= len(Event._fields):
        raise InputError(
            f"{given!r} is no event; give tuples of src, dst and t, and of msg and edge_type where the run has them "
            "(of a frame, df.itertuples(index=False))."
        )
    return Event(*given)


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
        folder = folder_of(run)
        if (folder / SERVED).is_dir():
            raise RunError(
                f"a service has logged events that follow on the state in {folder}, which must stay what it is; "
                "save to another folder."
            )
        elsewhere = folder.resolve() != self.folder.resolve()
        make_folder(folder)
        with held(folder, f"another process writes to {folder}; wait for it, or save to another folder."):
            if elsewhere:
                (folder / MANIFEST).unlink(missing_ok=True)  # of what is about to be replaced
                _copy_run(self.folder, folder, _COPIED)
            state = {"format": FORMAT}
            replace_files(
                folder, {IDS: self.ids.save, STATE: lambda partial: write_tensors(partial, self.tensors, state)}
            )
            if elsewhere:  # the figures mark a finished run, so they come last
                _copy_run(self.folder, folder, (METRICS,))


def _copy_run(source: Path, target: Path, names: Iterable[str]) -> None:
    for name in names:
        if (source / name).is_file():
            write_whole(target / name, lambda partial, name=name: _copy(source / name, partial))  # type: ignore[misc]


def _copy(source: Path, target: Path) -> None:
    shutil.copyfile(source, target)
