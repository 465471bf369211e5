"""What is asked about the past, and the columns that stand beside the answers.

Three kinds of sheet: all nodes at one time, the rows of a user's table, and the events of the stream itself.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tsnn.data.columns import open_column
from tsnn.data.description import Roles
from tsnn.data.events import EventStream, NodeIds
from tsnn.data.queries import Asked, Queries, Ranking
from tsnn.data.question import Asks, Question, asks
from tsnn.data.split import SEGMENTS, Split
from tsnn.data.table import as_written, open_file
from tsnn.data.times import Time, Where, plain_row
from tsnn.errors import ConfigError, InputError
from tsnn.evaluation.stream import draw_negatives
from tsnn.types import I64, Visibility

Columns = dict[str, pa.Array]
_PARTS = ("src", "dst", "t", "edge_type")


class Sheet(Protocol):
    """Questions in the order of their cuts."""

    about: str  # "pair" or "node": what an answer is about

    @property
    def asked(self) -> Asked:
        """The questions."""

    @property
    def order(self) -> I64 | None:
        """The row that each question stands in, where that is not the order of the cuts."""

    def beside(self, queries: Queries, first: int, last: int) -> Columns:
        """These columns for queries first .. last-1, one row a candidate."""


# Nodes


class NodeSheet:
    """Every node with an event by a time; each is asked about as a candidate of its own."""

    about, order = "node", None

    def __init__(self, stream: EventStream, at: Time, visibility: Visibility) -> None:
        self._stream, self._ids = stream, names_of(stream.ids)
        cut = cuts_at(stream, np.array([at]), visibility)
        nodes = np.unique(np.concatenate([stream.src[: cut[0]], stream.dst[: cut[0]]]))
        if not len(nodes):
            shown = stream.description.show_time(at)
            raise InputError(f"there is no event before {shown}; ask as of a later time.")
        n = len(nodes)
        self.asked = _single(np.repeat(cut, n), nodes, nodes, np.repeat(np.array([at]), n), np.zeros(n, np.int64))

    def beside(self, queries: Queries, first: int, last: int) -> Columns:
        """The node and the time."""
        return {"node": self._ids.take(pa.array(queries.cand)), "t": times_of(self._stream, queries.t)}


# Rows of a user's own


class RowSheet:
    """The rows of a table: a source, a destination, a time and, where the stream has relations, a relation.

    The whole table stands beside the answers, in its own order.
    """

    about = "pair"

    def __init__(self, table: pa.Table, src: I64, dst: I64, t: NDArray[Any], kinds: I64, cut: I64) -> None:
        order = np.argsort(cut, kind="stable")
        self.order = None if (order == np.arange(len(order))).all() else order
        self._table = table if self.order is None else table.take(pa.array(order))
        self.asked = _single(cut[order], src[order], dst[order], t[order], kinds[order])

    def beside(self, queries: Queries, first: int, last: int) -> Columns:
        """The rows themselves."""
        part = self._table.slice(first, last - first)
        return {name: part[name].combine_chunks() for name in part.column_names}


def row_sheet(
    stream: EventStream, events: Any, at: Time | None, visibility: Visibility
) -> tuple[EventStream, RowSheet, list[Hashable]]:
    """The sheet of a table of questions, the stream with their nodes, and which of these it has no event of.

    Columns are named as those of the stream's own table are, or src, dst, t and edge_type; with `at`, every question is
    as of that time and the table needs none.
    """
    table, where = _open(events)
    label = _labels(table, stream.description.roles, with_times=at is None, relations=stream.edge_type is not None)
    strangers: dict[Hashable, int] = {}
    ends = (label["src"], label["dst"])
    # Where ids are text, 007 and 7 may be two of them, which only the file itself tells apart.
    texts = as_written(events, ends) if isinstance(events, str | Path) and stream.ids.integers is None else {}
    src, dst = (_nodes(texts.get(end, table[end]), end, where, stream.ids, strangers) for end in ends)
    t = _question_times(table[label["t"]], label["t"], where, stream) if at is None else np.full(table.num_rows, at)
    kinds = np.zeros(len(src), np.int64)
    if "edge_type" in label:
        kinds = _relations(table[label["edge_type"]], label["edge_type"], stream)
    if strangers:
        stream = replace(stream, ids=NodeIds([*stream.ids.external, *strangers]), node_type=None)
    return stream, RowSheet(table, src, dst, t, kinds, cuts_at(stream, t, visibility)), list(strangers)


def cuts_at(stream: EventStream, t: NDArray[Any], visibility: Visibility) -> I64:
    """The rows that questions at these times may see: all before; under `arrival` those of the very time too."""
    if visibility.kind == "batch":
        raise ConfigError(f"{visibility} is about events in batches; ask as of a time with strict or arrival.")
    side = "left" if visibility.kind == "strict" else "right"
    cuts: I64 = np.searchsorted(stream.t, t, side).astype(np.int64)  # type: ignore[call-overload]
    return cuts


def _open(events: Any) -> tuple[pa.Table, Where]:
    """A table of questions, whatever it comes as, and what to call its rows."""
    where: Where = plain_row
    if isinstance(events, str | Path):
        opened = open_file(events)
        columns: Any = dict(opened.columns)
        where = opened.where
    else:
        columns = events.reset_index(drop=True) if hasattr(events, "reset_index") else events  # pandas
    try:
        table = pa.table(columns).replace_schema_metadata(None)
    except (TypeError, ValueError, pa.ArrowException) as error:
        reason = str(error).splitlines()[0].rstrip(".")
        raise InputError(f"the questions are no table ({reason}); give a file, a frame or columns by name.") from None
    if not table.num_rows:
        raise InputError("the table of questions is empty; give at least one row.")
    return table, where


def _labels(table: pa.Table, roles: Roles | None, with_times: bool, relations: bool) -> dict[str, str]:
    """The column of each part that a question has."""
    wanted = [part for part in _PARTS if (part != "t" or with_times) and (part != "edge_type" or relations)]
    there = table.column_names
    found: dict[str, str] = {}
    for part in wanted:
        usual: str = (getattr(roles, part) if roles else None) or part
        label = usual if usual in there else part
        if label not in there:
            called = repr(part) if usual == part else f"{usual!r} or {part!r}"
            raise InputError(f"the questions have no column {called}; they have {', '.join(there)}.")
        found[part] = label
    return found


def _nodes(raw: Any, label: str, where: Where, ids: NodeIds, strangers: dict[Hashable, int]) -> I64:
    """Indices of a column of ids; an id that the stream lacks gets one behind its nodes."""
    column = open_column(raw, label, "node", of_numbers=False)
    if column.missing.any():
        row = int(np.flatnonzero(column.missing)[0])
        raise InputError(f"{label!r} of {where(row)} is missing; drop rows without a node.")
    coded = pa.array(column.values).dictionary_encode()
    return _decoded(coded, [_index(name, ids, strangers) for name in coded.dictionary.to_pylist()])


def _decoded(coded: pa.DictionaryArray, numbers: list[int]) -> I64:
    """A number for every cell, from one for each different value."""
    cells: I64 = np.array(numbers, np.int64).take(coded.indices.to_numpy())
    return cells


def _index(name: Hashable, ids: NodeIds, strangers: dict[Hashable, int]) -> int:
    """Of a name as it is, or as the other file may have written it: 7 as "7"."""
    spelled: Hashable = int(name) if isinstance(name, str) and name.removeprefix("-").isdecimal() else str(name)
    known = next((guise for guise in (name, spelled) if guise in ids), None)
    return strangers.setdefault(name, len(ids) + len(strangers)) if known is None else ids.index(known)


def _question_times(raw: Any, label: str, where: Where, stream: EventStream) -> NDArray[Any]:
    times = open_column(raw, label, "t", of_numbers=True).times(where)
    if times.dates != stream.description.dates:
        own, asked = ("dates", "plain numbers") if stream.description.dates else ("plain numbers", "dates")
        raise InputError(f"the times of the questions are {asked}, those of {stream.name} are {own}; convert them.")
    return times.values


def _relations(raw: Any, label: str, stream: EventStream) -> I64:
    coded = raw.combine_chunks().dictionary_encode()
    if coded.null_count:
        raise InputError(f"{label!r} is missing in {coded.null_count} questions; name the relation asked about.")
    about, number = stream.description, stream.num_relations
    return _decoded(coded, [about.relation_number(name, number) for name in coded.dictionary.to_pylist()])


# Events of the stream


class Negatives(NamedTuple):
    """How many other destinations each event is set against, and the seed they are drawn by."""

    per_event: int = 0
    seed: int = 0


NO_NEGATIVES = Negatives()


class EventSheet:
    """Every event of a split's stream as the question it answers, of an undirected one both; then its negatives."""

    about, order = "pair", None

    def __init__(self, split: Split, question: Question, negatives: Negatives) -> None:
        self._split, self._labeled = split, negatives.per_event > 0
        stream = self._stream = split.stream
        self._ids = names_of(stream.ids)
        about = stream.description
        self._relations = pa.array([about.relation_name(i) for i in range(stream.num_relations)])
        own = asks(stream, np.arange(stream.num_events))
        drawn = _drawn(split, own, question, negatives) if self._labeled else _nobody(len(own.rows))
        self._ranking = Ranking(stream, own, question.cuts(split)[own.rows], *drawn)

    @property
    def asked(self) -> Ranking:
        """The event's own destination, then the others."""
        return self._ranking

    def beside(self, queries: Queries, first: int, last: int) -> Columns:
        """Who asks whom and when, in which part of the split; with negatives, what belongs together."""
        sizes = np.diff(queries.ptr)
        rows = np.repeat(self._ranking.asks.rows[first:last], sizes)
        columns: Columns = {}
        if self._labeled:
            is_event = np.zeros(len(rows), np.int8)
            is_event[queries.ptr[:-1]] = 1
            columns = {"query": pa.array(np.repeat(np.arange(first, last), sizes)), "label": pa.array(is_event)}
        columns["src"] = self._ids.take(pa.array(np.repeat(queries.src, sizes)))
        columns["dst"] = self._ids.take(pa.array(queries.cand))
        columns["t"] = times_of(self._stream, np.repeat(queries.t, sizes))
        if self._stream.edge_type is not None:
            columns["edge_type"] = self._relations.take(pa.array(np.repeat(queries.edge_type, sizes)))
        segment = np.searchsorted([self._split.train_end, self._split.val_end], rows, side="right")
        return columns | {"split": pa.array(SEGMENTS).take(pa.array(segment))}


def _single(cut: I64, src: I64, dst: I64, t: NDArray[Any], kinds: I64) -> Queries:
    """Questions with one candidate each."""
    return Queries(cut, src, t, kinds, np.arange(len(cut) + 1, dtype=np.int64), dst)


def _nobody(queries: int) -> tuple[I64, I64]:
    return np.zeros(queries + 1, np.int64), np.zeros(0, np.int64)


def _drawn(split: Split, own: Asks, question: Question, negatives: Negatives) -> tuple[I64, I64]:
    """Negatives of every ask, from the candidates that are known by the end of its part of the split."""
    bounds, nodes = [np.zeros(1, np.int64)], []
    for i, segment in enumerate(SEGMENTS):
        start, end = split.bounds(segment)
        part = own.take(slice(*np.searchsorted(own.rows, (start, end))))
        rng = np.random.default_rng([negatives.seed, i])
        ptr, drawn = draw_negatives(split.stream, part, question, negatives.per_event, rng, end)
        nodes.append(np.delete(drawn, ptr[:-1]))  # the one that may be the positive itself
        bounds.append(bounds[-1][-1] + ptr[1:] - np.arange(1, len(ptr)))
    return np.concatenate(bounds), np.concatenate(nodes)


# Columns


def names_of(ids: NodeIds) -> pa.Array:
    """External ids as a column: integers, or texts."""
    return pa.array(ids.integers) if ids.integers is not None else pa.array([str(name) for name in ids.external])


def times_of(stream: EventStream, t: NDArray[Any]) -> pa.Array:
    """Times as a column: numbers, or dates in the stream's zone."""
    about = stream.description
    return pa.array(np.round(t).astype(np.int64), pa.timestamp("us", about.zone)) if about.dates else pa.array(t)
