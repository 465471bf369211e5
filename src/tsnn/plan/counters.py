"""Counters: the state of the data-only pass, with the growth that compiled code cannot do itself."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tsnn.errors import RunError
from tsnn.plan import kernels
from tsnn.plan.kernels import EMPTY, N_BANK, N_PAIRS, N_SUCC, QUEUE_HEAD, QUEUE_TAIL, Scratch, Tables

_NODE_COLUMNS: dict[str, tuple[type[np.generic], float, tuple[int, ...]]] = {
    "last_t": (np.float64, -np.inf, ()),
    "last_in_row": (np.int64, -1, ()),
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
}
_USED = {"pair": N_PAIRS, "bank": N_BANK, "succ": N_SUCC}
_QUEUE: dict[str, type[np.generic]] = {"queue_t": np.float64, "queue_slot": np.int64, "queue_next": np.int64}
_FIRST_CAPACITY = 64


class Counters:
    """Tables and scratch for up to `num_nodes` nodes; both grow on request, before a sweep and never inside it."""

    def __init__(self, num_nodes: int, ring: int) -> None:
        columns: dict[str, NDArray[np.generic]] = {
            name: np.full((num_nodes, *shape), fill, dtype) for name, (dtype, fill, shape) in _NODE_COLUMNS.items()
        }
        columns["ring_id"] = np.zeros((num_nodes, ring), np.int32)
        columns["ring_t"] = np.zeros((num_nodes, ring), np.float64)
        columns["ring_type"] = np.zeros((num_nodes, ring), np.int32)
        for table in _TABLES.values():
            for name, (dtype, fill) in table.items():
                columns[name] = np.full(_FIRST_CAPACITY, fill, dtype)
        for name, dtype in _QUEUE.items():
            columns[name] = np.zeros(_FIRST_CAPACITY, dtype)
        columns["ints"] = np.zeros(6, np.int64)
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
        for name in ("ring_id", "ring_t", "ring_type"):
            column = getattr(old, name)
            grown[name] = np.concatenate([column, np.zeros((extra, column.shape[1]), column.dtype)])
        self._replace(**grown)
        self.scratch = _scratch(num_nodes)

    def _grow_table(self, name: str, entries: int) -> None:
        """Keep the load below a half: linear probing stays short."""
        columns = _TABLES[name]
        capacity = len(getattr(self.tables, f"{name}_key"))
        if 2 * entries <= capacity:
            return
        capacity = 1 << (4 * entries - 1).bit_length()
        new = {column: np.full(capacity, fill, dtype) for column, (dtype, fill) in columns.items()}
        old = self.tables
        if name == "bank":
            moved = kernels.rehash_bank(old.bank_key, old.bank_rel, new["bank_key"], new["bank_rel"])
            live = np.arange(old.ints[QUEUE_HEAD], old.ints[QUEUE_TAIL]) % len(old.queue_slot)
            old.queue_slot[live] = moved[old.queue_slot[live]]
        else:
            moved = kernels.rehash(getattr(old, f"{name}_key"), new[f"{name}_key"])
        kept = moved >= 0
        for column, values in new.items():
            if column not in ("bank_key", "bank_rel", f"{name}_key"):
                values[moved[kept]] = getattr(old, column)[kept]
        self._replace(**new)

    def _grow_queue(self, entries: int) -> None:
        old = self.tables
        if entries <= len(old.queue_t):
            return
        capacity = 1 << (2 * entries - 1).bit_length()
        events = np.arange(old.ints[QUEUE_HEAD], old.ints[QUEUE_TAIL])
        grown = {}
        for name, dtype in _QUEUE.items():
            values = np.zeros(capacity, dtype)
            values[events % capacity] = getattr(old, name)[events % len(old.queue_t)]
            grown[name] = values
        self._replace(**grown)

    def snapshot(self) -> dict[str, NDArray[np.generic]]:
        """Copies of every column, for saving."""
        return {name: column.copy() for name, column in self.tables._asdict().items()}

    def restore(self, columns: dict[str, NDArray[np.generic]]) -> None:
        """Take saved columns in place of the present ones."""
        missing = set(Tables._fields) - set(columns)
        if missing:
            raise RunError(f"the saved counters lack {', '.join(sorted(missing))}; train the run again.")
        self.tables = Tables(**{name: columns[name].copy() for name in Tables._fields})  # type: ignore[arg-type]
        self.scratch = _scratch(self.num_nodes)


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
    )
