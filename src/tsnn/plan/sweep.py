"""The data-only pass, compiled: one sweep over a chunk's rows that reads, then observes, row after row.

Version rows are coded while the number of initial rows is still unknown: codes below OUT are initial rows, the others
count outputs of the chunk from OUT on. `resolve` shifts them once the sweep is done.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tsnn.kernel_cache import inlined, kernel
from tsnn.plan.chunk import ScorePlan, UpdatePlan
from tsnn.plan.observing import observe
from tsnn.plan.query_facts import mark_source, own_facts, shared_facts, source_acts, source_facts, walk_facts
from tsnn.plan.tables import N_PAIRS, Int, Options, Rows, Scratch, Tables, borrow, ring_at, ring_size
from tsnn.types import F64, I32, I64

OUT = np.int32(1 << 30)


@inlined()
def _enter(scr: Scratch, nodes: I64, node: Int, n0: Int) -> Int:
    """Give the node a row among the chunk's initial states if it has none; returns the number of rows."""
    if scr.slot[node] < 0:
        scr.slot[node] = n0
        scr.cur_h[node] = n0
        scr.cur_F[node] = n0
        nodes[n0] = node
        n0 += 1
    return n0


@inlined()
def _append(scr: Scratch, out: UpdatePlan, node: Int, stamp: Int, m: Int) -> Int:
    """Make the node the event's next active entry; returns the number of entries."""
    scr.local[node] = stamp
    scr.local_index[node] = m
    out.act_h[m] = scr.cur_h[node]
    out.act_F[m] = scr.cur_F[node]
    out.mult_src[m] = 0
    out.mult_dst[m] = 0
    return m + 1


@inlined()
def _collect(
    tab: Tables, scr: Scratch, out: UpdatePlan, node: Int, limit: Int, stamp: Int, m: Int, n0: Int,
    mult: NDArray[np.float32],
) -> tuple[Int, Int]:  # fmt: skip
    """Append the node's recent neighbors to the event's active entries, counting repeats in `mult`."""
    for back in range(ring_size(tab, node, limit)):
        w = tab.ring_id[node, ring_at(tab, node, back)]
        if scr.local[w] != stamp:
            n0 = _enter(scr, out.nodes, w, n0)
            m = _append(scr, out, w, stamp, m)
        mult[scr.local_index[w]] += 1
    return m, n0


@inlined()
def _plan_update(
    tab: Tables, scr: Scratch, opt: Options, out: UpdatePlan, rows: Rows, r: int, e: Int, m: Int, n0: Int
) -> tuple[Int, Int]:
    """Row r as event e of the UpdatePlan; returns the next free active entry and initial row."""
    u, v, t = rows.src[r], rows.dst[r], rows.t[r]
    n0 = _enter(scr, out.nodes, u, n0)
    n0 = _enter(scr, out.nodes, v, n0)
    out.src_h[e] = scr.cur_h[u]
    out.dst_h[e] = scr.cur_h[v]
    out.src_F[e] = scr.cur_F[u]
    out.dst_F[e] = scr.cur_F[v]
    out.gap_src[e] = t - tab.last_t[u] if tab.degree[u] else 0.0
    out.gap_dst[e] = t - tab.last_t[v] if tab.degree[v] else 0.0
    scr.cur_F[u] = OUT + 2 * e
    if u != v:
        scr.cur_F[v] = OUT + 2 * e + 1
    scr.stamp[0] += 1
    stamp = scr.stamp[0]
    m = _append(scr, out, u, stamp, m)
    if u != v:
        m = _append(scr, out, v, stamp, m)
    m, n0 = _collect(tab, scr, out, u, opt.num_neighbors, stamp, m, n0, out.mult_src)
    if u != v:
        m, n0 = _collect(tab, scr, out, v, opt.num_neighbors, stamp, m, n0, out.mult_dst)
    for endpoint in range(1 if u == v else 2):
        node = v if endpoint else u
        scr.cur_h[node] = OUT + scr.local_index[node]
        for back in range(ring_size(tab, node, opt.num_neighbors)):
            w = tab.ring_id[node, ring_at(tab, node, back)]
            scr.cur_h[w] = OUT + scr.local_index[w]
    out.act_ptr[e + 1] = m
    return m, n0


@inlined()
def _plan_neighbors(
    tab: Tables, scr: Scratch, opt: Options, nodes: I64, u: Int, t: float, q: Int, out: ScorePlan, n0: Int
) -> Int:
    """The source's recent neighbors for alg:nbrattn, most recent first."""
    n = ring_size(tab, u, opt.attention)
    out.nbr_len[q] = n
    for back in range(n):
        at = ring_at(tab, u, back)
        w = tab.ring_id[u, at]
        n0 = _enter(scr, nodes, w, n0)
        out.nbr[q, back] = w
        out.nbr_h[q, back] = scr.cur_h[w]
        out.nbr_F[q, back] = scr.cur_F[w]
        out.nbr_gap[q, back] = t - tab.ring_t[u, at]
        out.nbr_type[q, back] = tab.ring_type[u, at]
    return n0


@inlined()
def _plan_score(tab: Tables, scr: Scratch, opt: Options, nodes: I64, q: Int, t: float, out: ScorePlan, n0: Int) -> Int:
    """Version rows and facts of query q."""
    u, rel = out.src[q], out.edge_type[q]
    n0 = _enter(scr, nodes, u, n0)
    out.src_h[q] = scr.cur_h[u]
    out.src_F[q] = scr.cur_F[u]
    out.num_pairs[q] = tab.ints[N_PAIRS]
    if out.acts.shape[1]:
        source_acts(tab, opt, u, rel, t, out.acts[q])
    worth = source_facts(tab, opt, u, t, scr.source)
    marked = mark_source(tab, scr, opt, u)
    for j in range(out.ptr[q], out.ptr[q + 1]):
        c = out.cand[j]
        n0 = _enter(scr, nodes, c, n0)
        out.cand_h[j] = scr.cur_h[c]
        out.cand_F[j] = scr.cur_F[c]
        row = out.facts[j]
        for i in range(len(row)):
            row[i] = scr.source[i]
        own_facts(tab, opt, c, t, row)
        shared_facts(tab, scr, opt, u, c, rel, t, marked, row)
        if tab.walk.shape[2]:
            walk_facts(tab, opt, u, c, t, worth, row)
    if opt.attention:
        n0 = _plan_neighbors(tab, scr, opt, nodes, u, t, q, out, n0)
    return n0


@kernel()
def sweep(
    tab: Tables, scr: Scratch, opt: Options, rows: Rows, start: Int, stop: Int, cut: I64, t: F64,
    update: UpdatePlan, score: ScorePlan,
) -> tuple[Int, Int]:  # fmt: skip
    """Rows [start, stop) and the queries cut inside them, asked at times `t`: read, then observe.

    Writes the columns of both plans, except those of `score` that say what is asked. Returns the numbers of initial
    rows and of active entries.
    """
    tab, scr, rows, update, score = borrow(tab), borrow(scr), borrow(rows), borrow(update), borrow(score)
    n0 = 0
    m = 0
    q = 0
    update.act_ptr[0] = 0
    for r in range(start, stop + 1):
        while q < len(cut) and cut[q] == r:
            n0 = _plan_score(tab, scr, opt, update.nodes, q, t[q], score, n0)
            q += 1
        if r < stop:
            m, n0 = _plan_update(tab, scr, opt, update, rows, r, r - start, m, n0)
            observe(tab, opt, rows, r)
    for i in range(n0):
        node = update.nodes[i]
        update.final_h[i] = scr.cur_h[node]
        update.final_F[i] = scr.cur_F[node]
        scr.slot[node] = -1
    return n0, m


@kernel()
def resolve(codes: tuple[I32, ...], n0: Int) -> None:
    """Turn the sweep's codes into version rows, now that the number of initial rows is known."""
    for column in codes:
        for i in range(len(column)):
            if column[i] >= OUT:
                column[i] += n0 - OUT
