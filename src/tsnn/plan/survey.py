"""Facts of everybody for one source: in columns for the many it has nothing to do with, row by row for the few."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tsnn.kernel_cache import kernel
from tsnn.plan import kernels
from tsnn.plan.counters import Counters
from tsnn.plan.facts import FACTS
from tsnn.plan.kernels import (
    BANK_GAP,
    DST_COUNT,
    DST_GAP,
    DST_IN_AGE,
    DST_IN_COUNT,
    DST_IN_GAP,
    DST_RECENT,
    PAIR_GAP,
    ROWS,
    SRC_COUNT,
    SRC_GAP,
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
    _plain_facts(tables, options.activity_rate, src, t, cand, facts)
    if tables.walk.shape[2]:
        _walk_facts(tables.walk, tables.last_t, tables.degree, options.walk_rate, src, t, cand, facts)
    few = np.flatnonzero(near)
    probed = np.empty((len(few), len(FACTS)))
    kernels.probe(tables, scratch, options, src, t, edge_type, cand[few], probed)
    facts[few] = probed
    return facts


@kernel()
def _plain_facts(tab: Tables, rate: float, src: int, t: float, cand: I64, facts: Any) -> None:
    """What either says by itself; everything else as for two nodes that never met."""
    degree, in_degree, last_t, last_in_t = tab.degree, tab.in_degree, tab.last_t, tab.last_in_t
    last_in_row, recent, rows = tab.last_in_row, tab.recent, tab.ints[ROWS]
    own = np.zeros(3)
    own[1] = 0.5
    if degree[src]:
        events = recent[src, 0] + recent[src, 1]
        own[0] = math.exp(-rate * (t - last_t[src])) * events
        own[1], own[2] = recent[src, 1] / events, recent[src, 2] / events
    for j in range(len(cand)):
        c = cand[j]
        facts[j, SRC_GAP] = t - last_t[src] if degree[src] else -1.0
        facts[j, SRC_COUNT] = degree[src]
        facts[j, PAIR_GAP] = facts[j, BANK_GAP] = facts[j, DST_GAP] = facts[j, DST_IN_AGE] = facts[j, DST_IN_GAP] = -1.0
        for i in range(3):
            facts[j, SRC_RECENT + i] = own[i]
        facts[j, DST_RECENT + 1] = 0.5
        if degree[c]:
            facts[j, DST_GAP] = t - last_t[c]
            facts[j, DST_COUNT] = degree[c]
            events = recent[c, 0] + recent[c, 1]
            facts[j, DST_RECENT] = math.exp(-rate * (t - last_t[c])) * events
            facts[j, DST_RECENT + 1] = recent[c, 1] / events
            facts[j, DST_RECENT + 2] = recent[c, 2] / events
        if in_degree[c]:
            facts[j, DST_IN_AGE] = rows - last_in_row[c]
            facts[j, DST_IN_COUNT] = in_degree[c]
            facts[j, DST_IN_GAP] = t - last_in_t[c]


@kernel(fastmath={"reassoc", "contract"})
def _walk_facts(walk: Any, last_t: Any, degree: Any, rate: float, src: int, t: float, cand: I64, facts: Any) -> None:
    """`kernels._walk_facts` of all candidates, each candidate's walks being read once."""
    own, dim = walk[src], walk.shape[2]
    fade_src = math.exp(-rate * (t - last_t[src])) if degree[src] else 0.0
    product = np.empty((STEPS + 1, STEPS + 2))
    mine, theirs = np.ones(STEPS + 1), np.ones(STEPS + 1)
    near, far = np.ones(STEPS + 1), np.ones(STEPS + 1)  # powers of either side's fading
    for i in range(1, STEPS + 1):
        square = np.float32(0.0)
        for x in range(dim):
            square += own[i, x] * own[i, x]
        near[i] = near[i - 1] * fade_src
        mine[i] = near[i] * near[i] * square
    for r in range(len(cand)):
        for j in range(STEPS + 1):
            a, b, c, d = np.float32(0.0), np.float32(0.0), np.float32(0.0), np.float32(0.0)
            for x in range(dim):
                w = walk[cand[r], j, x]
                a += w * own[0, x]
                b += w * own[1, x]
                c += w * own[2, x]
                d += w * w
            product[j, 0], product[j, 1], product[j, 2], product[j, 3] = a, b, c, d
        fade = math.exp(-rate * (t - last_t[cand[r]])) if degree[cand[r]] else 0.0
        for j in range(1, STEPS + 1):
            far[j] = far[j - 1] * fade
            theirs[j] = far[j] * far[j] * product[j, STEPS + 1]
            facts[r, WALK_SRC + j - 1] = mine[j]
            facts[r, WALK_DST + j - 1] = theirs[j]
        column = 0
        for i in range(STEPS + 1):
            for j in range(STEPS + 1):
                if i + j > 0:
                    meeting = near[i] * far[j] * product[j, i]
                    facts[r, WALK + column] = meeting
                    facts[r, WALK_COS + column] = meeting / math.sqrt(max(mine[i] * theirs[j], TINY))
                    column += 1
