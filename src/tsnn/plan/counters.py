"""Counters: the state of the data-only pass, with the growth that compiled code cannot do itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tsnn.errors import RunError
from tsnn.plan import kernels
from tsnn.plan.facts import FACTS
from tsnn.plan.kernels import EMPTY, N_BANK, N_PAIRS, N_SUCC, N_TRIPS, QUEUE_HEAD, QUEUE_TAIL, Scratch, Tables
from tsnn.random import random_words
from tsnn.types import I64, U64

_NODE_COLUMNS: dict[str, tuple[type[np.generic], float, tuple[int, ...]]] = {
    "last_t": (np.float64, -np.inf, ()),
    "last_in_row": (np.int64, -1, ()),
    "last_in_t": (np.float64, -np.inf, ()),
    "recent": (np.float64, 0, (3,)),
    "degree": (np.int64, 0, ()),
    "in_degree": (np.int64, 0, ()),
    "ring_len": (np.int64, 0, ()),
    "last_dst": (np.int32, -1, (3,)),
    "succ_total": (np.int64, 0, ()),
}
_TABLES: dict[str, dict[str, tuple[type[np.generic], float]]] = {
    "pair": {
        "pair_key": (np.int64, EMPTY),
        "pair_count": (np.int64, 0),
        "pair_last": (np.float64, 0),
        "pair_strength": (np.float64, 0),
    },
    "bank": {
        "bank_key": (np.int64, EMPTY),
        "bank_rel": (np.int64, 0),
        "bank_count": (np.int64, 0),
        "bank_last": (np.float64, 0),
        "bank_first_event": (np.int64, -1),
        "bank_last_event": (np.int64, -1),
    },
    "succ": {"succ_key": (np.int64, EMPTY), "succ_count": (np.int64, 0)},
    "trip": {"trip_key": (np.int64, EMPTY), "trip_count": (np.int64, 0)},
}
_USED = {"pair": N_PAIRS, "bank": N_BANK, "succ": N_SUCC, "trip": N_TRIPS}
_QUEUE: dict[str, type[np.generic]] = {"queue_t": np.float64, "queue_slot": np.int64, "queue_next": np.int64}
_RINGS: dict[str, type[np.generic]] = {"ring_id": np.int32, "ring_t": np.float64, "ring_type": np.int32}
_FIRST_CAPACITY = 64


class Counters:
    """Tables and scratch for up to `num_nodes` nodes; both grow on request, before a sweep and never inside it."""

    def __init__(self, num_nodes: int, ring: int, walk_dim: int = 0) -> None:
        columns: dict[str, NDArray[np.generic]] = {
            name: np.full((num_nodes, *shape), fill, dtype) for name, (dtype, fill, shape) in _NODE_COLUMNS.items()
        }
        columns |= {name: np.zeros((num_nodes, ring), dtype) for name, dtype in _RINGS.items()}
        columns["walk"] = np.zeros((num_nodes, kernels.STEPS + 1, walk_dim), np.float32)
        self._introduced = 0
        for table in _TABLES.values():
            for name, (dtype, fill) in table.items():
                columns[name] = np.full(_FIRST_CAPACITY, fill, dtype)
        for name, dtype in _QUEUE.items():
            columns[name] = np.zeros(_FIRST_CAPACITY, dtype)
        columns["ints"] = np.zeros(kernels.NUM_INTS, np.int64)
        self.tables = Tables(**columns)  # type: ignore[arg-type]
        self.scratch = _scratch(num_nodes)

    @property
    def num_nodes(self) -> int:
        """Nodes there is room for."""
        return len(self.tables.degree)

    def make_room(self, events: int, nodes: int) -> None:
        """Room for that many more events and, in all, that many nodes."""
        if nodes > self.num_nodes:
            self._grow_nodes(max(nodes, 2 * self.num_nodes))
        for name, column in _USED.items():
            self._grow_table(name, int(self.tables.ints[column]) + events)
        self._grow_queue(int(self.tables.ints[QUEUE_TAIL] - self.tables.ints[QUEUE_HEAD]) + events)

    def _replace(self, **columns: NDArray[np.generic]) -> None:
        self.tables = self.tables._replace(**columns)  # type: ignore[arg-type]

    def _grow_nodes(self, num_nodes: int) -> None:
        old, extra = self.tables, num_nodes - self.num_nodes
        grown = {
            name: np.concatenate([getattr(old, name), np.full((extra, *shape), fill, dtype)])
            for name, (dtype, fill, shape) in _NODE_COLUMNS.items()
        }
        for name, dtype in _RINGS.items():
            column = getattr(old, name)
            grown[name] = np.concatenate([column, np.zeros((extra, column.shape[1]), dtype)])
        grown["walk"] = np.concatenate([old.walk, np.zeros((extra, *old.walk.shape[1:]), np.float32)])
        self._replace(**grown)
        self.scratch = _scratch(num_nodes)

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
            live = self._queued() % len(old.queue_slot)
            old.queue_slot[live] = moved[old.queue_slot[live]]
        self._replace(**new)

    def _queued(self) -> I64:
        """Numbers of the events inside EdgeBank's window."""
        return np.arange(self.tables.ints[QUEUE_HEAD], self.tables.ints[QUEUE_TAIL])

    def _grow_queue(self, entries: int) -> None:
        old = self.tables
        if entries <= len(old.queue_t):
            return
        capacity = 1 << (2 * entries - 1).bit_length()
        events = self._queued()
        grown: dict[str, NDArray[np.generic]] = {}
        for name, dtype in _QUEUE.items():
            values = np.zeros(capacity, dtype)
            values[events % capacity] = getattr(old, name)[events % len(old.queue_t)]
            grown[name] = values
        self._replace(**grown)

    def snapshot(self, nodes: int | None = None) -> dict[str, NDArray[np.generic]]:
        """Copies of all that was counted (of the first `nodes` nodes), for saving.

        Hash tables are listed by key and the queue by age, so equal histories give equal snapshots however they grew.
        """
        tables = self.tables
        saved = {name: getattr(tables, name)[:nodes].copy() for name in (*_NODE_COLUMNS, *_RINGS, "walk")}
        for name, columns in _TABLES.items():
            order = _by_key(name, tables)
            saved |= {column: getattr(tables, column)[order] for column in columns}
            if name == "bank":
                place = np.empty(len(tables.bank_key), np.int64)
                place[order] = np.arange(len(order))
        at = self._queued() % len(tables.queue_t)
        saved |= {name: getattr(tables, name)[at] for name in _QUEUE}
        saved["queue_slot"] = place[saved["queue_slot"]]
        return {**saved, "ints": tables.ints.copy()}

    def restore(self, columns: dict[str, NDArray[np.generic]]) -> None:
        """Take what `snapshot` saved in place of the present counts."""
        missing = set(Tables._fields) - set(columns)
        if missing:
            raise RunError(f"the saved counters lack {', '.join(sorted(missing))}; train the run again.")
        nodes, ring = columns["ring_id"].shape
        fresh = Counters(nodes, ring, columns["walk"].shape[2])
        self.tables, self.scratch, self._introduced = fresh.tables, fresh.scratch, 0
        self._replace(**{name: columns[name].copy() for name in (*_NODE_COLUMNS, *_RINGS, "walk", "ints")})
        for name, table in _TABLES.items():
            new, moved = _rehashed(name, columns, max(len(columns[f"{name}_key"]), len(table)))
            self._replace(**new)
            if name == "bank":
                slots = moved[columns["queue_slot"]]
        events = self._queued()
        capacity = max(_FIRST_CAPACITY, 1 << (2 * len(events) - 1).bit_length())
        for name, dtype in _QUEUE.items():
            values = np.zeros(capacity, dtype)
            values[events % capacity] = slots if name == "queue_slot" else columns[name]
            self._replace(**{name: values})


def signatures(keys: U64, dim: int) -> NDArray[np.float32]:
    """A random sign vector of length 1 for each node key: nearly orthogonal for different nodes."""
    words = -(-dim // 64)
    bits = random_words(0, keys, words).view(np.uint8)
    signs = np.unpackbits(bits, axis=1)[:, :dim].astype(np.float32) * 2 - 1
    return signs / np.float32(np.sqrt(dim))


def _by_key(name: str, tables: Tables) -> I64:
    """Slots in use, in order of their keys."""
    keys = getattr(tables, f"{name}_key")
    used = np.flatnonzero(keys != EMPTY)
    order = np.lexsort((tables.bank_rel[used], keys[used])) if name == "bank" else np.argsort(keys[used])
    return used[order]


def _rehashed(name: str, old: Mapping[str, NDArray[Any]], entries: int) -> tuple[dict[str, NDArray[np.generic]], I64]:
    """A table's columns in a new one with room for `entries`, and the slot that each old slot went to."""
    capacity = max(_FIRST_CAPACITY, 1 << (2 * entries - 1).bit_length())
    new = {column: np.full(capacity, fill, dtype) for column, (dtype, fill) in _TABLES[name].items()}
    key = f"{name}_key"
    if name == "bank":
        moved = kernels.rehash_bank(old[key], old["bank_rel"], new[key], new["bank_rel"])
    else:
        moved = kernels.rehash(old[key], new[key])
    kept = moved >= 0
    for column in set(new) - {key, "bank_rel"}:
        new[column][moved[kept]] = old[column][kept]
    return new, moved


def _scratch(num_nodes: int) -> Scratch:
    minus = np.full(num_nodes, -1, np.int32)
    stamps = [np.full(num_nodes, -1, np.int64) for _ in range(4)]
    return Scratch(
        slot=minus,
        cur_h=minus.copy(),
        cur_F=minus.copy(),
        mark=stamps[0],
        mark_t=np.zeros(num_nodes),
        seen=stamps[1],
        hop=stamps[2],
        hop_weight=np.zeros(num_nodes),
        local=stamps[3],
        local_index=np.zeros(num_nodes, np.int64),
        stamp=np.zeros(1, np.int64),
        source=np.empty(len(FACTS)),
    )
