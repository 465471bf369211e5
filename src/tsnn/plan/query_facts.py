"""The facts of a query, compiled: columns of `tsnn.plan.facts`, each written by one line here.

A query's facts begin as those of two nodes never seen. `source_facts` adds what the source says by itself, once for all
candidates; every candidate's row starts as a copy of it. `own_facts` adds what the candidate says by itself and
`walk_facts` how the walks of the two meet: these every candidate has. `shared_facts` adds the rest, which is nothing
unless the two have met, or have met others in common. Functions with a sum in free order are inlined (decision 0008).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tsnn.kernel_cache import inlined, kernel
from tsnn.plan.facts import AT, STEPS, UNSEEN
from tsnn.plan.tables import (
    EMPTY,
    ROWS,
    Int,
    Options,
    Scratch,
    Tables,
    find,
    find_bank,
    link_of,
    pair_of,
    ring_at,
    ring_size,
    triple_of,
)
from tsnn.types import F64, I64

TWO_HOP_CAP = 10  # app:complexity: the inner expansion is bounded
TINY = 1e-12  # a node without walks has no direction
Marked = tuple[Int, Int, float]  # what `mark_source` says: stamp, number of neighbors, hop mass


@inlined()
def _recent_facts(
    tab: Tables, opt: Options, node: Int, t: float, recent: Int, in_share: Int, strength: Int, row: F64
) -> None:
    """Recent events, the share as destination and their messages' mean length, into these columns."""
    events = tab.recent[node, 0] + tab.recent[node, 1]
    row[recent] = math.exp(-opt.activity_rate * (t - tab.last_t[node])) * events
    row[in_share] = tab.recent[node, 1] / events
    row[strength] = tab.recent[node, 2] / events


@inlined(fastmath={"reassoc", "contract"})
def _dot(a: NDArray[np.float32], b: NDArray[np.float32]) -> float:
    total = np.float32(0.0)
    for x in range(len(a)):
        total += a[x] * b[x]
    return float(total)


@inlined()
def _step_worth(tab: Tables, opt: Options, node: Int, t: float) -> float:
    """What a step of the node's walks, as of its last event, is worth by now."""
    return math.exp(-opt.walk_rate * (t - tab.last_t[node])) if tab.degree[node] else 0.0


@inlined()
def _walk_squares(tab: Tables, node: Int, worth: float, column: Int, row: F64) -> None:
    """Walks of a node that meet each other; the columns of source and candidate alternate, from `column` on."""
    for i in range(1, STEPS + 1):
        row[column + 2 * (i - 1)] = worth ** (2 * i) * _dot(tab.walk[node, i], tab.walk[node, i])


@inlined()
def source_facts(tab: Tables, opt: Options, u: Int, t: float, row: F64) -> float:
    """Begin a query's facts with what its source says by itself; returns what a step of its walks is worth."""
    row[:] = UNSEEN
    if tab.degree[u]:
        row[AT.src_gap] = t - tab.last_t[u]
        row[AT.src_count] = tab.degree[u]
        _recent_facts(tab, opt, u, t, AT.src_recent, AT.src_in_share, AT.src_strength, row)
    worth = _step_worth(tab, opt, u, t)
    if tab.walk.shape[2]:
        _walk_squares(tab, u, worth, AT.walk_src_1, row)
    return worth


@inlined()
def source_acts(tab: Tables, opt: Options, u: Int, rel: Int, t: float, acts: F64) -> None:
    """What a source did: how often, then its fading counts, then what its last event alone would be in each of them.

    All of it is 0 for one that is not known; the last is also for one that never did anything.
    """
    i = find(tab.act_key, pair_of(u, rel))
    if tab.act_key[i] != EMPTY:
        actor = tab.act_row[i]
        gap = t - tab.actor_last[actor]
        acts[0] = tab.actor_acts[actor]
        fading = opt.act_scales * opt.act_roles
        rate = opt.act_rate
        for k in range(opt.act_scales):
            fade = math.exp(-rate * gap)
            rate *= opt.act_ratio
            for role in range(opt.act_roles):
                acts[1 + role * opt.act_scales + k] = tab.actor_recent[actor, role * opt.act_scales + k] * fade
            if tab.actor_acts[actor]:
                acts[1 + fading + k] = fade


@inlined()
def own_facts(tab: Tables, opt: Options, c: Int, t: float, row: F64) -> None:
    """What a candidate says by itself, its walks apart."""
    if tab.degree[c]:
        row[AT.dst_gap] = t - tab.last_t[c]
        row[AT.dst_count] = tab.degree[c]
        _recent_facts(tab, opt, c, t, AT.dst_recent, AT.dst_in_share, AT.dst_strength, row)
    if tab.in_degree[c]:
        row[AT.dst_in_age] = tab.ints[ROWS] - tab.last_in_row[c]
        row[AT.dst_in_count] = tab.in_degree[c]
        row[AT.dst_in_gap] = t - tab.last_in_t[c]


@inlined()
def walk_facts(tab: Tables, opt: Options, u: Int, c: Int, t: float, worth_u: float, row: F64) -> None:
    """Inner products of the walks' sums: random signatures of different nodes cancel, equal ones count."""
    worth_c = _step_worth(tab, opt, c, t)
    _walk_squares(tab, c, worth_c, AT.walk_dst_1, row)
    column = 0
    fade_u = 1.0
    for i in range(STEPS + 1):
        fade_c = 1.0
        own = row[AT.walk_src_1 + 2 * (i - 1)] if i else 1.0
        for j in range(STEPS + 1):
            if i + j > 0:
                other = row[AT.walk_dst_1 + 2 * (j - 1)] if j else 1.0
                meeting = fade_u * fade_c * _dot(tab.walk[u, i], tab.walk[c, j])
                row[AT.walk_01 + column] = meeting
                row[AT.walk_cos_01 + column] = meeting / math.sqrt(max(own * other, TINY))
                column += 1
            fade_c *= worth_c
        fade_u *= worth_u


@inlined()
def _pair_facts(tab: Tables, opt: Options, u: Int, c: Int, t: float, row: F64) -> None:
    i = find(tab.pair_key, link_of(opt, u, c))
    if tab.pair_key[i] != EMPTY:
        row[AT.pair_count] = tab.pair_count[i]
        row[AT.pair_gap] = t - tab.pair_last[i]
        row[AT.pair_strength] = tab.pair_strength[i]
    i = find(tab.pair_key, link_of(opt, c, u))
    if tab.pair_key[i] != EMPTY:
        row[AT.reverse_count] = tab.pair_count[i]


@inlined()
def _bank_facts(tab: Tables, opt: Options, u: Int, c: Int, rel: Int, t: float, row: F64) -> None:
    """alg:edgebank, Score: a pure count inside the window (D-02)."""
    i = find_bank(tab.bank_key, tab.bank_rel, link_of(opt, u, c), rel)
    if tab.bank_key[i] == EMPTY:
        return
    n = tab.bank_count[i]
    if opt.window > 0:
        event = tab.bank_first_event[i]
        while event >= 0 and t - tab.queue_t[event % len(tab.queue_t)] > opt.window:
            n -= 1
            event = tab.queue_next[event % len(tab.queue_t)]
    row[AT.bank_count] = n
    if n > 0:
        row[AT.bank_gap] = t - tab.bank_last[i]


@inlined()
def _successor_facts(tab: Tables, u: Int, c: Int, row: F64) -> None:
    for j in range(3):
        p = tab.last_dst[u, j]
        if p < 0:
            break
        i = find(tab.succ_key, pair_of(p, c))
        if tab.succ_key[i] != EMPTY:
            row[AT.succ_count_1 + j] = tab.succ_count[i]
            row[AT.succ_share_1 + j] = tab.succ_count[i] / tab.succ_total[p]
    if tab.last_dst[u, 1] >= 0 and row[AT.succ_count_1] > 0:
        last, before = tab.last_dst[u, 0], tab.last_dst[u, 1]
        i = find(tab.trip_key, triple_of(before, last, c))
        if tab.trip_key[i] != EMPTY:
            row[AT.succ_pair_count] = tab.trip_count[i]
            row[AT.succ_pair_share] = tab.trip_count[i] / tab.succ_count[find(tab.succ_key, pair_of(before, last))]


@inlined()
def mark_source(tab: Tables, scr: Scratch, opt: Options, u: Int) -> Marked:
    """Stamp the source's recent neighbors and, two hops out, theirs."""
    scr.stamp[0] += 1
    stamp = scr.stamp[0]
    distinct = 0
    mass = 0.0
    if not (opt.common_neighbors or opt.two_hop):
        return stamp, distinct, mass
    for back in range(ring_size(tab, u, opt.cn_neighbors)):
        at = ring_at(tab, u, back)
        w = tab.ring_id[u, at]
        if scr.mark[w] == stamp:
            continue
        scr.mark[w] = stamp
        scr.mark_t[w] = tab.ring_t[u, at]
        distinct += 1
        if not opt.two_hop:
            continue
        scr.stamp[0] += 1
        once = scr.stamp[0]
        for inner in range(ring_size(tab, w, TWO_HOP_CAP)):
            x = tab.ring_id[w, ring_at(tab, w, inner)]
            if x == u or scr.seen[x] == once:
                continue
            scr.seen[x] = once
            if scr.hop[x] != stamp:
                scr.hop[x] = stamp
                scr.hop_weight[x] = 0.0
            scr.hop_weight[x] += 1.0
            mass += 1.0
    return stamp, distinct, mass


@inlined()
def _neighbor_facts(tab: Tables, scr: Scratch, opt: Options, c: Int, t: float, marked: Marked, row: F64) -> None:
    """app:optional_score_features: common neighbors, and the capped 2-hop expansion."""
    stamp, distinct, mass = marked
    scr.stamp[0] += 1
    once = scr.stamp[0]
    own = 0
    hops: Any = 0.0
    for back in range(ring_size(tab, c, opt.cn_neighbors)):
        at = ring_at(tab, c, back)
        x = tab.ring_id[c, at]
        if scr.seen[x] == once:
            continue
        scr.seen[x] = once
        own += 1
        if opt.two_hop and scr.hop[x] == stamp:
            hops += scr.hop_weight[x]
        if scr.mark[x] == stamp:
            row[AT.cn_count] += 1
            row[AT.cn_decayed] += np.exp(-(t - max(scr.mark_t[x], tab.ring_t[c, at])) / opt.cn_decay)
            row[AT.cn_adamic_adar] += 1.0 / np.log(2.0 + tab.degree[x])
    union = distinct + own - row[AT.cn_count]
    if union > 0:
        row[AT.cn_jaccard] = row[AT.cn_count] / union
    row[AT.two_hop_count] = hops
    row[AT.two_hop_share] = hops / max(1.0, mass)


@inlined()
def shared_facts(
    tab: Tables, scr: Scratch, opt: Options, u: Int, c: Int, rel: Int, t: float, marked: Marked, row: F64
) -> None:
    """What the past of the two together says; `marked` is what `mark_source` said."""
    _pair_facts(tab, opt, u, c, t, row)
    if opt.separate_bank:
        _bank_facts(tab, opt, u, c, rel, t, row)
    else:
        row[AT.bank_count] = row[AT.pair_count]
        row[AT.bank_gap] = row[AT.pair_gap]
    if opt.common_neighbors or opt.two_hop:
        _neighbor_facts(tab, scr, opt, c, t, marked, row)
    if opt.successor:
        _successor_facts(tab, u, c, row)


@kernel()
def shared_events(tab: Tables, u: Int, cand: I64, events: I64) -> None:
    """Events between the source and each candidate, either way, and moves to it from the source's last destinations."""
    for j in range(len(cand)):
        c = cand[j]
        total = _count(tab.pair_key, tab.pair_count, pair_of(u, c))
        total += _count(tab.pair_key, tab.pair_count, pair_of(c, u))
        for back in range(3):
            if tab.last_dst[u, back] >= 0:
                total += _count(tab.succ_key, tab.succ_count, pair_of(tab.last_dst[u, back], c))
        events[j] = total


@inlined()
def _count(keys: I64, counts: I64, key: Int) -> Int:
    i = find(keys, key)
    return counts[i] if keys[i] != EMPTY else 0
