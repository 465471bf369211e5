"""Counters: the state of the data-only pass, with the growth that compiled code cannot do itself."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tsnn.errors import RunError
from tsnn.plan.layout import Column, columns
from tsnn.plan.tables import EMPTY, HASHED, N_ACTORS, NUM_INTS, QUEUE_HEAD, QUEUE_TAIL, Scratch, Tables, rehash
from tsnn.random import random_words
from tsnn.types import I64, U64

_COLUMNS = columns(Tables)
_FIRST_CAPACITY = 64


def _of(axis: str) -> dict[str, Column]:
    """Columns with this first axis."""
    return {name: column for name, column in _COLUMNS.items() if column.axes[0] == axis}


_ACTORS = (*_of("act"), *_of("actor"))


def with_actors(saved: Mapping[str, NDArray[np.generic]]) -> dict[str, NDArray[np.generic]]:
    """Saved counts, also of a run from before sources were counted: nobody is counted then."""
    if set(Tables._fields) - set(saved) != set(_ACTORS):
        return dict(saved)
    nobody = {name: _COLUMNS[name].make({"act": 0, "actor": 0, "fading": 0}) for name in _ACTORS}
    return {**saved, **nobody, "ints": np.pad(saved["ints"], (0, NUM_INTS - len(saved["ints"])))}


class Counters:
    """Tables and scratch for up to `num_nodes` nodes; both grow on request, before a sweep and never inside it."""

    def __init__(self, num_nodes: int, ring: int, walk_dim: int = 0, fading: int = 0) -> None:
        sizes = {"node": num_nodes, "ring": ring, "walk_dim": walk_dim, "fading": fading, "actor": 0}
        sizes |= dict.fromkeys((*HASHED, "queue"), _FIRST_CAPACITY)
        made: dict[str, Any] = {name: column.make(sizes) for name, column in _COLUMNS.items()}
        self._introduced = 0
        self.tables = Tables(**made)
        self.scratch = _scratch(num_nodes)

    @property
    def num_nodes(self) -> int:
        """Nodes there is room for."""
        return len(self.tables.degree)

    def beside(self) -> Counters:
        """The same counts with a scratch of their own, for another thread; both only read them."""
        other = copy.copy(self)
        other.scratch = _scratch(self.num_nodes)
        return other

    def make_room(self, events: int, nodes: int, relations: int = 1) -> None:
        """Room for that many more events, whose relations are so many, and, in all, that many nodes."""
        if nodes > self.num_nodes:
            self._grow_nodes(max(nodes, 2 * self.num_nodes))
        more = dict.fromkeys(HASHED, events)
        more["act"] = min(2 * events, nodes * relations) if self.tables.actor_recent.shape[1] else 0
        for name, used in HASHED.items():
            self._grow_table(name, int(self.tables.ints[used]) + more[name])
        self._grow_actors(int(self.tables.ints[N_ACTORS]) + more["act"])
        queued = len(self._queued()) + events
        if queued > len(self.tables.queue_t):
            self._fill_queue(self._queue(), queued)

    def _replace(self, **columns: NDArray[np.generic]) -> None:
        self.tables = self.tables._replace(**columns)  # type: ignore[arg-type]

    def _grow_nodes(self, num_nodes: int) -> None:
        old = self.tables
        sizes = {"node": num_nodes - self.num_nodes, "ring": old.ring_id.shape[1], "walk_dim": old.walk.shape[2]}
        grown = {name: np.concatenate([getattr(old, name), column.make(sizes)]) for name, column in _of("node").items()}
        self._replace(**grown)
        self.scratch = _scratch(num_nodes)

    def _grow_actors(self, wanted: int) -> None:
        """Room for so many actors, by doubling."""
        old = self.tables
        have, fading = old.actor_recent.shape
        if wanted > have:
            sizes = {"actor": max(wanted, 2 * have) - have, "fading": fading}
            added = {name: column.make(sizes) for name, column in _of("actor").items()}
            self._replace(**{name: np.concatenate([getattr(old, name), more]) for name, more in added.items()})

    def introduce(self, keys: U64) -> None:
        """Give nodes their signatures; `keys` are those of all nodes, in index order."""
        new = slice(self._introduced, len(keys))
        if self.tables.walk.shape[2] and len(keys) > self._introduced:
            self.tables.walk[new, 0] = signatures(keys[new], self.tables.walk.shape[2])
        self._introduced = len(keys)

    def _grow_table(self, name: str, entries: int) -> None:
        """Keep the load below a half: linear probing stays short."""
        old = self.tables
        if 2 * entries <= len(getattr(old, f"{name}_key")):
            return
        new, moved = _rehashed(name, old._asdict(), entries)
        if name == "bank":
            places = self._queued() % len(old.queue_slot)
            old.queue_slot[places] = moved[old.queue_slot[places]]
        self._replace(**new)

    def _queued(self) -> I64:
        """Numbers of the events inside EdgeBank's window."""
        return np.arange(self.tables.ints[QUEUE_HEAD], self.tables.ints[QUEUE_TAIL])

    def _queue(self) -> dict[str, NDArray[np.generic]]:
        """The columns of the queue, oldest event first."""
        places = self._queued() % len(self.tables.queue_t)
        return {name: getattr(self.tables, name)[places] for name in _of("queue")}

    def _fill_queue(self, values: Mapping[str, NDArray[np.generic]], entries: int) -> None:
        """A new queue with room for `entries`, in which the events inside the window have these values."""
        capacity = _capacity(entries)
        places = self._queued() % capacity
        for name, column in _of("queue").items():
            filled = column.make({"queue": capacity})
            filled[places] = values[name]
            self._replace(**{name: filled})

    def snapshot(self, nodes: int | None = None) -> dict[str, NDArray[np.generic]]:
        """Copies of all that was counted (of the first `nodes` nodes), for saving.

        Hash tables are listed by key and the queue by age, so equal histories give equal snapshots however they grew.
        """
        tables = self.tables
        saved = {name: getattr(tables, name)[:nodes].copy() for name in _of("node")}
        for name in HASHED:
            order = _by_key(name, tables)
            saved |= {column: getattr(tables, column)[order] for column in _of(name)}
            if name == "bank":
                place = np.empty(len(tables.bank_key), np.int64)
                place[order] = np.arange(len(order))
        saved |= {name: getattr(tables, name)[saved["act_row"]] for name in _of("actor")}  # by key as well
        saved["act_row"] = np.arange(len(saved["act_row"]))
        saved |= self._queue()
        saved["queue_slot"] = place[saved["queue_slot"]]
        return {**saved, "ints": tables.ints.copy()}

    def restore(self, saved: dict[str, NDArray[np.generic]]) -> None:
        """Take what `snapshot` saved in place of the present counts."""
        saved = with_actors(saved)
        if missing := set(Tables._fields) - set(saved):
            raise RunError(f"the saved counters lack {', '.join(sorted(missing))}; train the run again.")
        nodes, ring = saved["ring_id"].shape
        fresh = Counters(nodes, ring, saved["walk"].shape[2], saved["actor_recent"].shape[1])
        self.tables, self.scratch, self._introduced = fresh.tables, fresh.scratch, 0
        self._replace(**{name: saved[name].copy() for name in (*_of("node"), *_of("actor"), "ints")})
        for name in HASHED:
            new, moved = _rehashed(name, saved, len(saved[f"{name}_key"]))
            self._replace(**new)
            if name == "bank":
                slots = moved[saved["queue_slot"]]
        self._fill_queue({**saved, "queue_slot": slots}, len(slots))


def signatures(keys: U64, dim: int) -> NDArray[np.float32]:
    """A random sign vector of length 1 for each node key: nearly orthogonal for different nodes."""
    words = -(-dim // 64)
    bits = random_words(0, keys, words).view(np.uint8)
    signs = np.unpackbits(bits, axis=1)[:, :dim].astype(np.float32) * 2 - 1
    return signs / np.float32(np.sqrt(dim))


def _capacity(entries: int) -> int:
    """Places for so many entries: a power of two, at least twice as many."""
    return max(_FIRST_CAPACITY, 1 << (2 * entries - 1).bit_length())


def _by_key(name: str, tables: Tables) -> I64:
    """Slots in use, in order of their keys."""
    keys, relations = _key_columns(name, tables._asdict())
    used = np.flatnonzero(keys != EMPTY)
    return used[np.lexsort((relations[used], keys[used]))]


def _key_columns(name: str, columns: Mapping[str, NDArray[Any]]) -> tuple[I64, I64]:
    """Keys and relations of a table's slots; only EdgeBank's slots have relations."""
    keys = columns[f"{name}_key"]
    return keys, columns["bank_rel"] if name == "bank" else np.zeros_like(keys)


def _rehashed(table: str, old: Mapping[str, NDArray[Any]], entries: int) -> tuple[dict[str, NDArray[np.generic]], I64]:
    """A table's columns in a new one with room for `entries`, and the slot that each old slot went to."""
    capacity = _capacity(entries)
    new = {name: column.make({table: capacity}) for name, column in _of(table).items()}
    moved = rehash(*_key_columns(table, old), *_key_columns(table, new))
    kept = moved >= 0
    for column in new:
        new[column][moved[kept]] = old[column][kept]
    return new, moved


def _scratch(num_nodes: int) -> Scratch:
    made: dict[str, Any] = {name: column.make({"node": num_nodes}) for name, column in columns(Scratch).items()}
    return Scratch(**made)
