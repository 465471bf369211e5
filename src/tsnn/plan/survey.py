"""Facts of everybody for one source: in columns for the many it has nothing to do with, row by row for the few."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from tsnn.plan import kernels
from tsnn.plan.counters import Counters
from tsnn.plan.facts import COLUMN, FACTS
from tsnn.plan.kernels import (
    DST_RECENT,
    ROWS,
    SRC_RECENT,
    STEPS,
    TINY,
    WALK,
    WALK_COS,
    WALK_DST,
    WALK_SRC,
    Options,
    Tables,
)
from tsnn.types import I64, Bool

Facts = NDArray[np.floating[Any]]


def survey(
    counters: Counters,
    options: Options,
    src: int,
    t: float,
    edge_type: int,
    cand: I64,
    related: Bool,
    dtype: type[np.floating[Any]],
) -> Facts:
    """The facts that a sweep gives for these candidates, to rounding; `t` counts from the origin.

    `related` marks whoever ever met the source or followed one of its last three destinations: those, and candidates
    that share a neighbor with it, are looked up one by one.
    """
    tables, scratch = counters.tables, counters.scratch
    near = related.copy()
    if options.common or options.two_hop:
        kernels.mark_near(tables, scratch, options, src, cand, near)
    facts = np.zeros((len(cand), len(FACTS)), dtype, order="F")  # it is filled, and then read, column by column
    _plain_facts(tables, options.activity_rate, src, t, _as_slice(cand), facts)
    if tables.walk.shape[2]:
        _walk_facts(tables, options.walk_rate, src, t, cand, facts)
    few = np.flatnonzero(near)
    probed = np.empty((len(few), len(FACTS)))
    kernels.probe(tables, scratch, options, src, t, edge_type, cand[few], probed)
    facts[few] = probed
    return facts


def _as_slice(cand: I64) -> slice | I64:
    """Consecutive candidates as a slice: their columns are then views."""
    if len(cand) and cand[-1] - cand[0] == len(cand) - 1 and (np.diff(cand) == 1).all():
        return slice(int(cand[0]), int(cand[-1]) + 1)
    return cand


def _plain_facts(tables: Tables, rate: float, src: int, t: float, nodes: slice | I64, facts: Facts) -> None:
    """What either says by itself; everything else as for two nodes that never met."""
    degree, in_degree = tables.degree[nodes], tables.in_degree[nodes]
    facts[:, COLUMN["src_gap"]] = t - tables.last_t[src] if tables.degree[src] else -1.0
    facts[:, COLUMN["dst_gap"]] = np.where(degree > 0, t - tables.last_t[nodes], -1.0)
    facts[:, COLUMN["dst_in_age"]] = np.where(in_degree > 0, tables.ints[ROWS] - tables.last_in_row[nodes], -1)
    facts[:, COLUMN["src_count"]] = tables.degree[src]
    facts[:, COLUMN["dst_count"]] = degree
    facts[:, COLUMN["dst_in_count"]] = in_degree
    facts[:, COLUMN["dst_in_gap"]] = np.where(in_degree > 0, t - tables.last_in_t[nodes], -1.0)
    _activity_facts(tables, rate, t, slice(src, src + 1), facts[:, SRC_RECENT : SRC_RECENT + 3])
    _activity_facts(tables, rate, t, nodes, facts[:, DST_RECENT : DST_RECENT + 3])
    facts[:, COLUMN["pair_gap"]] = facts[:, COLUMN["bank_gap"]] = -1.0


def _activity_facts(tables: Tables, rate: float, t: float, nodes: slice | I64, facts: Facts) -> None:
    """`kernels._activity_facts` of all these nodes."""
    recent, seen = tables.recent[nodes], tables.degree[nodes] > 0
    events = np.where(seen, recent[:, 0] + recent[:, 1], 1.0)
    facts[:, 0] = np.where(seen, np.exp(-rate * (t - tables.last_t[nodes])) * events, 0.0)
    facts[:, 1] = np.where(seen, recent[:, 1] / events, 0.5)
    facts[:, 2] = recent[:, 2] / events


def _walk_facts(tables: Tables, rate: float, src: int, t: float, cand: I64, facts: Facts) -> None:
    """`kernels._walk_facts` of all candidates, each candidate's walks being read once."""
    products = np.empty((len(cand), STEPS + 1, STEPS + 2), np.float32)
    own = tables.walk[src]
    _multiply(tables.walk, own, cand, products)
    fade_src = np.exp(-rate * (t - tables.last_t[src])) if tables.degree[src] else 0.0
    fade_dst = np.where(tables.degree[cand] > 0, np.exp(-rate * (t - tables.last_t[cand])), 0.0)
    fades = [np.ones(len(cand)), fade_dst, fade_dst * fade_dst]
    selves = [np.float64(1.0), *(fade_src ** (2 * i) * (own[i] @ own[i]) for i in range(1, STEPS + 1))]
    others = [np.float64(1.0), *(fades[i] * fades[i] * products[:, i, STEPS + 1] for i in range(1, STEPS + 1))]
    for i in range(1, STEPS + 1):
        facts[:, WALK_SRC + i - 1] = selves[i]
        facts[:, WALK_DST + i - 1] = others[i]
    steps = [(i, j) for i in range(STEPS + 1) for j in range(STEPS + 1) if i + j > 0]
    for column, (i, j) in enumerate(steps):
        meetings = fade_src**i * fades[j] * products[:, j, i]
        facts[:, WALK + column] = meetings
        facts[:, WALK_COS + column] = meetings / np.sqrt(np.maximum(selves[i] * others[j], TINY))


@njit(cache=True, nogil=True, fastmath={"reassoc", "contract"})
def _multiply(walk: Any, own: Any, cand: Any, out: Any) -> None:
    """Of each layer of every candidate's walks: the products with the source's three layers and with itself."""
    for r in range(len(cand)):
        for j in range(walk.shape[1]):
            a, b, c, d = np.float32(0.0), np.float32(0.0), np.float32(0.0), np.float32(0.0)
            for x in range(walk.shape[2]):
                w = walk[cand[r], j, x]
                a += w * own[0, x]
                b += w * own[1, x]
                c += w * own[2, x]
                d += w * w
            out[r, j, 0], out[r, j, 1], out[r, j, 2], out[r, j, 3] = a, b, c, d
