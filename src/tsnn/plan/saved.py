"""Whether saved counters can be what they say: compiled code reads them without looking where it reads."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from tsnn.errors import RunError
from tsnn.plan.counters import with_actors
from tsnn.plan.layout import columns
from tsnn.plan.tables import HASHED, QUEUE_HEAD, QUEUE_TAIL, ROWS, Tables
from tsnn.types import I64

Saved = Mapping[str, NDArray[np.generic]]
_NEVER = ("last_t", "last_in_t")  # minus infinity for a node that was never seen
_COUNTS = (
    "degree",
    "in_degree",
    "ring_len",
    "succ_total",
    "actor_acts",
    *(f"{table}_count" for table in HASHED if table != "act"),
)


def check_counts(saved: Saved, nodes: int, walk_dim: int) -> None:
    """Refuse columns of other shapes, keys of nodes that are not there, and numbers that are none."""
    saved = with_actors(saved)
    missing = set(Tables._fields) - set(saved)
    if missing:
        raise RunError(f"the saved counters lack {', '.join(sorted(missing))}; train the run again.")
    sizes: dict[str | int, int] = {"node": nodes, "walk_dim": walk_dim}
    for name, column in columns(Tables).items():
        found = saved[name]
        _must(found.dtype == column.dtype and found.ndim == len(column.axes), name)
        for axis, size in zip(column.axes, found.shape, strict=True):
            _must(size == (axis if isinstance(axis, int) else sizes.setdefault(axis, size)), name)
        finite = np.isfinite(found) | ((found == -np.inf) if name in _NEVER else False)
        _must(bool(finite.all()), name)
    _must(sizes["ring"] > 0, "ring_id")
    _check_ranges(saved, nodes)


def _check_ranges(saved: Saved, nodes: int) -> None:
    ints = _whole(saved, "ints")
    for name in _COUNTS:
        _within(saved, name, 0, 2**62)
    _within(saved, "ring_id", 0, nodes)
    _within(saved, "last_dst", -1, nodes)
    _within(saved, "last_in_row", -1, int(ints[ROWS]))
    _within(saved, "bank_rel", 0, 2**31)
    _within(saved, "trip_key", 0, 2**63 - 1)
    _within(saved, "act_row", 0, len(saved["actor_key"]))
    for table in ("act", "actor"):  # a source, and a relation that no list of them bounds
        keys = _whole(saved, f"{table}_key")
        _must(bool(((keys >= 0) & (keys >> 32 < nodes)).all()), f"{table}_key")
    for table in ("pair", "bank", "succ"):
        keys = _whole(saved, f"{table}_key")
        _must(bool(((keys >= 0) & (keys >> 32 < nodes) & (keys & 0xFFFFFFFF < nodes)).all()), f"{table}_key")
    for table, used in HASHED.items():
        keys = _whole(saved, f"{table}_key")
        rising = keys[1:] > keys[:-1]
        if table == "bank":
            relations = _whole(saved, "bank_rel")
            rising |= (keys[1:] == keys[:-1]) & (relations[1:] > relations[:-1])
        _must(bool(rising.all()) and len(keys) == ints[used], f"{table}_key")
    head, tail = int(ints[QUEUE_HEAD]), int(ints[QUEUE_TAIL])
    _must(0 <= head <= tail and tail - head == len(saved["queue_t"]), "ints")
    _within(saved, "queue_slot", 0, len(saved["bank_key"]))
    for name in ("queue_next", "bank_first_event", "bank_last_event"):
        _within(saved, name, -1, tail)


def _whole(saved: Saved, name: str) -> I64:
    return saved[name].astype(np.int64, copy=False)


def _within(saved: Saved, name: str, low: int, high: int) -> None:
    """Every value from `low` on and below `high`."""
    values = _whole(saved, name)
    _must(not values.size or (int(values.min()) >= low and int(values.max()) < high), name)


def _must(holds: bool, name: str) -> None:
    if not holds:
        raise RunError(f"the saved counters are damaged: {name} holds what it cannot hold; restore the run.")
