"""The data-only pass, compiled: one sweep over a chunk's rows that reads, then observes, row after row.

State is `Tables`, arrays only: per-node columns, rings of recent neighbors, open-addressing hash tables. Version rows
are coded while the number of initial rows is still unknown: codes below OUT are initial rows, the others count
outputs of the chunk from OUT on; the planner shifts them once the sweep is done.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numba import njit, types
from numba.extending import intrinsic
from numpy.typing import NDArray

from tsnn.kernel_cache import kernel
from tsnn.plan.facts import COLUMN
from tsnn.types import F64, I32, I64, Bool

OUT = np.int32(1 << 30)
EMPTY = -1
Int = Any  # whatever integer type the compiler sees
TWO_HOP_CAP = 10  # app:complexity: the inner expansion is bounded

# Entries of Tables.ints
ROWS, N_PAIRS, N_BANK, N_SUCC, N_TRIPS, QUEUE_HEAD, QUEUE_TAIL = range(7)
NUM_INTS = 7

SRC_GAP = COLUMN["src_gap"]
DST_GAP = COLUMN["dst_gap"]
DST_IN_AGE = COLUMN["dst_in_age"]
SRC_COUNT = COLUMN["src_count"]
DST_COUNT = COLUMN["dst_count"]
DST_IN_COUNT = COLUMN["dst_in_count"]
DST_IN_GAP = COLUMN["dst_in_gap"]
SRC_RECENT = COLUMN["src_recent"]
DST_RECENT = COLUMN["dst_recent"]
PAIR_STRENGTH = COLUMN["pair_strength"]
PAIR_COUNT = COLUMN["pair_count"]
PAIR_GAP = COLUMN["pair_gap"]
REVERSE_COUNT = COLUMN["reverse_count"]
BANK_COUNT = COLUMN["bank_count"]
BANK_GAP = COLUMN["bank_gap"]
CN_COUNT = COLUMN["cn_count"]
CN_DECAYED = COLUMN["cn_decayed"]
CN_AA = COLUMN["cn_adamic_adar"]
CN_JACCARD = COLUMN["cn_jaccard"]
TWO_HOP_COUNT = COLUMN["two_hop_count"]
TWO_HOP_SHARE = COLUMN["two_hop_share"]
SUCC_COUNT = COLUMN["succ_count_1"]
SUCC_SHARE = COLUMN["succ_share_1"]
SUCC_PAIR_COUNT = COLUMN["succ_pair_count"]
SUCC_PAIR_SHARE = COLUMN["succ_pair_share"]
WALK = COLUMN["walk_01"]
WALK_COS = COLUMN["walk_cos_01"]
WALK_SRC = COLUMN["walk_src_1"]
WALK_DST = COLUMN["walk_dst_1"]
STEPS = 2  # length of the longest walk
TINY = 1e-12  # a node without walks has no direction


class Tables(NamedTuple):
    """Everything the stream has taught so far, apart from learned states."""

    last_t: F64  # (N,) time of the last event in any role; -inf before the first
    last_in_row: I64  # (N,) last row as destination; -1 before the first
    last_in_t: F64
    recent: F64  # (N, 3) as of last_t: fading counts of events as source and as destination, lengths of messages
    degree: I64  # (N,) events, in any role
    in_degree: I64  # (N,) events, as destination
    ring_id: I32  # (N, B) recent neighbors, written at position ring_len % B
    ring_t: F64
    ring_type: I32
    ring_len: I64  # (N,) entries ever written
    last_dst: I32  # (N, 3) last destinations of a source, most recent first; -1 if none
    succ_total: I64  # (N,) moves that left this destination
    pair_key: I64  # hash table (source << 32 | destination)
    pair_count: I64
    pair_last: F64
    pair_strength: F64  # length of the last message
    bank_key: I64  # hash table of (source, destination, relation); used with relations or a window
    bank_rel: I64
    bank_count: I64
    bank_last: F64
    bank_first_event: I64  # oldest queued event of the slot; -1 if none
    bank_last_event: I64
    queue_t: F64  # events inside the window, addressed modulo the capacity
    queue_slot: I64
    queue_next: I64  # next queued event of the same slot; -1 if none
    succ_key: I64  # hash table (destination << 32 | next destination)
    succ_count: I64
    trip_key: I64  # hash table of three destinations in a row
    trip_count: I64
    walk: NDArray[np.float32]  # (N, 1 + STEPS, D) sums of signatures at the ends of walks; layer 0 is the node's own
    ints: I64


class Scratch(NamedTuple):
    """Work arrays. A mark counts only while it equals the running stamp, so nothing has to be cleared."""

    slot: I32  # (N,) row of the node among the chunk's initial states; -1 if it has none
    cur_h: I32  # (N,) coded version rows
    cur_F: I32
    mark: I64  # (N,) stamps
    mark_t: F64
    seen: I64
    hop: I64
    hop_weight: F64
    local: I64
    local_index: I64
    stamp: I64  # (1,)
    source: F64  # (facts,) what a query's source says by itself


class Options(NamedTuple):
    """The plan's switches, as numbers."""

    num_neighbors: int
    cn_neighbors: int
    attention: int
    common: bool
    two_hop: bool
    successor: bool
    separate_bank: bool
    window: float
    cn_decay: float
    walk_rate: float  # decay of a step of a walk, per time unit
    activity_rate: float  # decay of the recent counts


class UpdateOut(NamedTuple):
    """Columns of UpdatePlan under construction."""

    nodes: I64
    src_h: I32
    dst_h: I32
    src_F: I32
    dst_F: I32
    gap_src: F64
    gap_dst: F64
    act_ptr: I64
    act_h: I32
    act_F: I32
    mult_src: NDArray[np.float32]
    mult_dst: NDArray[np.float32]


class ScoreOut(NamedTuple):
    """Columns of ScorePlan under construction."""

    src_h: I32
    src_F: I32
    cand_h: I32
    cand_F: I32
    facts: F64
    num_pairs: I64
    nbr_len: I32
    nbr_h: I32
    nbr_F: I32
    nbr_gap: F64
    nbr_type: I32


def _borrow(_: Any, arrays: Any) -> Any:
    """The same named tuple, its arrays without an owner; only for as long as the caller holds them.

    Each read of a tuple's array would count a reference up and down, atomically.
    """

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        whole = args[0]
        for i, kind in enumerate(signature.args[0].types):
            if isinstance(kind, types.Array):
                array = context.make_array(kind)(context, builder, builder.extract_value(whole, i))
                array.meminfo = array.meminfo.type(None)  # null
                whole = builder.insert_value(whole, array._getvalue(), i)
        return whole

    return arrays(arrays), codegen


borrow: Any = intrinsic(_borrow)


@njit(nogil=True, inline="always")
def _hash(key: Int, mask: Int) -> Int:
    x = np.uint64(key) * np.uint64(0x9E3779B97F4A7C15)
    x ^= x >> np.uint64(29)
    x *= np.uint64(0xBF58476D1CE4E5B9)
    return np.int64((x >> np.uint64(20)) & np.uint64(mask))


@njit(nogil=True, inline="always")
def _pair(a: Int, b: Int) -> Int:
    return (np.int64(a) << np.int64(32)) | np.int64(b)


@njit(nogil=True, inline="always")
def _triple(a: Int, b: Int, c: Int) -> Int:
    """63 bits of a hash stand for the three: of a billion triples, two are mixed up with a chance of one in 18."""
    x = np.uint64(_pair(a, b)) * np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(32)) ^ np.uint64(c)) * np.uint64(0xD6E8FEB86659FD93)
    x = (x ^ (x >> np.uint64(32))) * np.uint64(0xD6E8FEB86659FD93)
    return np.int64(x >> np.uint64(1))


@kernel()
def find(keys: I64, key: Int) -> Int:
    """Slot of a key, or the empty slot where it belongs."""
    mask = len(keys) - 1
    i = _hash(key, mask)
    while keys[i] != EMPTY and keys[i] != key:
        i = (i + 1) & mask
    return i


@kernel()
def find_bank(keys: I64, rels: I64, key: Int, rel: Int) -> Int:
    """Slot of (key, relation), or the empty slot where it belongs."""
    mask = len(keys) - 1
    i = _hash(key ^ (np.int64(rel) * np.int64(0x632BE59BD9B4E019)), mask)
    while keys[i] != EMPTY and (keys[i] != key or rels[i] != rel):
        i = (i + 1) & mask
    return i


@kernel()
def rehash(old_keys: I64, new_keys: I64) -> I64:
    """Place every key of a full table in a larger empty one; returns where each went (-1 for empty slots)."""
    moved = np.full(len(old_keys), -1, np.int64)
    for i in range(len(old_keys)):
        if old_keys[i] != EMPTY:
            j = find(new_keys, old_keys[i])
            new_keys[j] = old_keys[i]
            moved[i] = j
    return moved


@kernel()
def rehash_bank(old_keys: I64, old_rels: I64, new_keys: I64, new_rels: I64) -> I64:
    """The same for the table keyed by (pair, relation)."""
    moved = np.full(len(old_keys), -1, np.int64)
    for i in range(len(old_keys)):
        if old_keys[i] != EMPTY:
            j = find_bank(new_keys, new_rels, old_keys[i], old_rels[i])
            new_keys[j] = old_keys[i]
            new_rels[j] = old_rels[i]
            moved[i] = j
    return moved


@kernel()
def _push(tab: Tables, node: Int, other: Int, t: float, rel: Int) -> None:
    at = tab.ring_len[node] % tab.ring_id.shape[1]
    tab.ring_id[node, at] = other
    tab.ring_t[node, at] = t
    tab.ring_type[node, at] = rel
    tab.ring_len[node] += 1


@njit(nogil=True, inline="always")
def _ring_at(tab: Tables, node: Int, back: Int) -> Int:
    """Ring position of the entry `back` steps before the newest."""
    return (tab.ring_len[node] - 1 - back) % tab.ring_id.shape[1]


@njit(nogil=True, inline="always")
def _ring_size(tab: Tables, node: Int, limit: Int) -> Int:
    return min(tab.ring_len[node], min(limit, tab.ring_id.shape[1]))


@kernel()
def _observe_pair(tab: Tables, u: Int, v: Int, t: float, strength: float) -> None:
    i = find(tab.pair_key, _pair(u, v))
    if tab.pair_key[i] == EMPTY:
        tab.pair_key[i] = _pair(u, v)
        tab.ints[N_PAIRS] += 1
    tab.pair_count[i] += 1
    tab.pair_last[i] = t
    tab.pair_strength[i] = strength


@kernel()
def _expire(tab: Tables, t: float, window: float) -> None:
    """alg:edgebank, Expire: forget what is older than the window."""
    capacity = len(tab.queue_t)
    while tab.ints[QUEUE_HEAD] < tab.ints[QUEUE_TAIL]:
        at = tab.ints[QUEUE_HEAD] % capacity
        if t - tab.queue_t[at] <= window:
            break
        slot = tab.queue_slot[at]
        tab.bank_count[slot] -= 1
        tab.bank_first_event[slot] = tab.queue_next[at]
        if tab.queue_next[at] < 0:
            tab.bank_last_event[slot] = -1
        tab.ints[QUEUE_HEAD] += 1


@kernel()
def _observe_bank(tab: Tables, u: Int, v: Int, rel: Int, t: float, window: float) -> None:
    """alg:edgebank, Observe."""
    i = find_bank(tab.bank_key, tab.bank_rel, _pair(u, v), rel)
    if tab.bank_key[i] == EMPTY:
        tab.bank_key[i] = _pair(u, v)
        tab.bank_rel[i] = rel
        tab.ints[N_BANK] += 1
    if window > 0:
        _expire(tab, t, window)
        event = tab.ints[QUEUE_TAIL]
        at = event % len(tab.queue_t)
        tab.queue_t[at] = t
        tab.queue_slot[at] = i
        tab.queue_next[at] = -1
        if tab.bank_last_event[i] >= 0:
            tab.queue_next[tab.bank_last_event[i] % len(tab.queue_t)] = event
        else:
            tab.bank_first_event[i] = event
        tab.bank_last_event[i] = event
        tab.ints[QUEUE_TAIL] += 1
    tab.bank_count[i] += 1
    tab.bank_last[i] = t


@kernel()
def _observe_move(tab: Tables, u: Int, v: Int) -> None:
    previous = tab.last_dst[u, 0]
    if previous >= 0:
        i = find(tab.succ_key, _pair(previous, v))
        if tab.succ_key[i] == EMPTY:
            tab.succ_key[i] = _pair(previous, v)
            tab.ints[N_SUCC] += 1
        tab.succ_count[i] += 1
        tab.succ_total[previous] += 1
        if tab.last_dst[u, 1] >= 0:
            key = _triple(tab.last_dst[u, 1], previous, v)
            i = find(tab.trip_key, key)
            if tab.trip_key[i] == EMPTY:
                tab.trip_key[i] = key
                tab.ints[N_TRIPS] += 1
            tab.trip_count[i] += 1
    tab.last_dst[u, 2] = tab.last_dst[u, 1]
    tab.last_dst[u, 1] = previous
    tab.last_dst[u, 0] = v


@kernel()
def _fade(tab: Tables, node: Int, t: float, rate: float) -> None:
    """Bring a node's walks to time t: one of i steps fades i times."""
    if tab.degree[node]:
        factor = math.exp(-rate * (t - tab.last_t[node]))
        fade = 1.0
        for i in range(1, STEPS + 1):
            fade *= factor
            for x in range(tab.walk.shape[2]):
                tab.walk[node, i, x] = np.float32(tab.walk[node, i, x] * fade)


@kernel()
def _observe_walks(tab: Tables, u: Int, v: Int, t: float, rate: float) -> None:
    """Every walk from one end goes on to the other. Longest first: a step must not be taken twice."""
    _fade(tab, u, t, rate)
    if u != v:
        _fade(tab, v, t, rate)
    for i in range(STEPS, 0, -1):
        for x in range(tab.walk.shape[2]):
            from_u, from_v = tab.walk[u, i - 1, x], tab.walk[v, i - 1, x]
            tab.walk[u, i, x] += from_v
            if u != v:
                tab.walk[v, i, x] += from_u


@kernel()
def _observe_activity(tab: Tables, node: Int, role: Int, t: float, strength: float, rate: float) -> None:
    if tab.degree[node]:
        fade = math.exp(-rate * (t - tab.last_t[node]))
        for i in range(3):
            tab.recent[node, i] *= fade
    tab.recent[node, role] += 1.0
    tab.recent[node, 2] += strength


@kernel()
def observe(tab: Tables, opt: Options, u: Int, v: Int, t: float, rel: Int, strength: float) -> None:
    """Let every counter know of one event. The only writer of Tables."""
    _observe_pair(tab, u, v, t, strength)
    if opt.separate_bank:
        _observe_bank(tab, u, v, rel, t, opt.window)
    if opt.successor:
        _observe_move(tab, u, v)
    if tab.walk.shape[2]:
        _observe_walks(tab, u, v, t, opt.walk_rate)
    _observe_activity(tab, u, 0, t, strength, opt.activity_rate)
    _push(tab, u, v, t, rel)
    tab.last_t[u] = t
    tab.degree[u] += 1
    _observe_activity(tab, v, 1, t, strength, opt.activity_rate)
    if u != v:
        _push(tab, v, u, t, rel)
        tab.last_t[v] = t
        tab.degree[v] += 1
    tab.last_in_row[v] = tab.ints[ROWS]
    tab.last_in_t[v] = t
    tab.ints[ROWS] += 1
    tab.in_degree[v] += 1


@kernel()
def _enter(scr: Scratch, nodes: I64, node: Int, n0: Int) -> Int:
    """Give the node a row among the chunk's initial states if it has none; returns the number of rows."""
    if scr.slot[node] < 0:
        scr.slot[node] = n0
        scr.cur_h[node] = n0
        scr.cur_F[node] = n0
        nodes[n0] = node
        n0 += 1
    return n0


@kernel()
def _collect(
    tab: Tables,
    scr: Scratch,
    out: UpdateOut,
    node: Int,
    limit: Int,
    stamp: Int,
    m: Int,
    n0: Int,
    mult: NDArray[np.float32],
) -> tuple[Int, Int]:
    """Append the node's recent neighbors to the event's active entries, counting repeats in `mult`."""
    for back in range(_ring_size(tab, node, limit)):
        w = tab.ring_id[node, _ring_at(tab, node, back)]
        if scr.local[w] != stamp:
            scr.local[w] = stamp
            scr.local_index[w] = m
            n0 = _enter(scr, out.nodes, w, n0)
            out.act_h[m] = scr.cur_h[w]
            out.act_F[m] = scr.cur_F[w]
            out.mult_src[m] = 0
            out.mult_dst[m] = 0
            m += 1
        mult[scr.local_index[w]] += 1
    return m, n0


@kernel()
def _plan_update(
    tab: Tables, scr: Scratch, out: UpdateOut, opt: Options, e: Int, u: Int, v: Int, t: float, m: Int, n0: Int
) -> tuple[Int, Int]:
    """One event's row of the UpdatePlan; returns the next free active entry and initial row."""
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
    first = m
    for endpoint in range(1 if u == v else 2):
        w = u if endpoint == 0 else v
        scr.local[w] = stamp
        scr.local_index[w] = m
        out.act_h[m] = scr.cur_h[w]
        out.act_F[m] = scr.cur_F[w]
        out.mult_src[m] = 0
        out.mult_dst[m] = 0
        m += 1
    m, n0 = _collect(tab, scr, out, u, opt.num_neighbors, stamp, m, n0, out.mult_src)
    if u != v:
        m, n0 = _collect(tab, scr, out, v, opt.num_neighbors, stamp, m, n0, out.mult_dst)
    scr.cur_h[u] = OUT + first
    if u != v:
        scr.cur_h[v] = OUT + first + 1
    for back in range(_ring_size(tab, u, opt.num_neighbors)):
        w = tab.ring_id[u, _ring_at(tab, u, back)]
        scr.cur_h[w] = OUT + scr.local_index[w]
    if u != v:
        for back in range(_ring_size(tab, v, opt.num_neighbors)):
            w = tab.ring_id[v, _ring_at(tab, v, back)]
            scr.cur_h[w] = OUT + scr.local_index[w]
    out.act_ptr[e + 1] = m
    return m, n0


@njit(nogil=True, forceinline=True)
def _bank_facts(tab: Tables, u: Int, c: Int, rel: Int, t: float, window: float, row: F64) -> None:
    """alg:edgebank, Score: a pure count inside the window (D-02)."""
    i = find_bank(tab.bank_key, tab.bank_rel, _pair(u, c), rel)
    row[BANK_GAP] = -1.0
    if tab.bank_key[i] == EMPTY:
        return
    n = tab.bank_count[i]
    if window > 0:
        event = tab.bank_first_event[i]
        while event >= 0 and t - tab.queue_t[event % len(tab.queue_t)] > window:
            n -= 1
            event = tab.queue_next[event % len(tab.queue_t)]
    row[BANK_COUNT] = n
    if n > 0:
        row[BANK_GAP] = t - tab.bank_last[i]


@njit(nogil=True, forceinline=True)
def _pair_facts(tab: Tables, u: Int, c: Int, t: float, row: F64) -> None:
    i = find(tab.pair_key, _pair(u, c))
    row[PAIR_GAP] = -1.0
    if tab.pair_key[i] != EMPTY:
        row[PAIR_COUNT] = tab.pair_count[i]
        row[PAIR_GAP] = t - tab.pair_last[i]
        row[PAIR_STRENGTH] = tab.pair_strength[i]
    i = find(tab.pair_key, _pair(c, u))
    if tab.pair_key[i] != EMPTY:
        row[REVERSE_COUNT] = tab.pair_count[i]


@njit(nogil=True, forceinline=True)
def _successor_facts(tab: Tables, u: Int, c: Int, row: F64) -> None:
    for j in range(3):
        p = tab.last_dst[u, j]
        if p < 0:
            break
        i = find(tab.succ_key, _pair(p, c))
        if tab.succ_key[i] != EMPTY:
            row[SUCC_COUNT + j] = tab.succ_count[i]
            row[SUCC_SHARE + j] = tab.succ_count[i] / tab.succ_total[p]
    if tab.last_dst[u, 1] >= 0 and row[SUCC_COUNT] > 0:
        last, before = tab.last_dst[u, 0], tab.last_dst[u, 1]
        i = find(tab.trip_key, _triple(before, last, c))
        if tab.trip_key[i] != EMPTY:
            row[SUCC_PAIR_COUNT] = tab.trip_count[i]
            row[SUCC_PAIR_SHARE] = tab.trip_count[i] / tab.succ_count[find(tab.succ_key, _pair(before, last))]


@kernel()
def _mark_source(tab: Tables, scr: Scratch, opt: Options, u: Int) -> tuple[Int, Int, float]:
    """Stamp the source's recent neighbors and, two hops out, theirs; returns stamp, number and hop mass."""
    scr.stamp[0] += 1
    stamp = scr.stamp[0]
    distinct = 0
    mass = 0.0
    if not (opt.common or opt.two_hop):
        return stamp, distinct, mass
    for back in range(_ring_size(tab, u, opt.cn_neighbors)):
        at = _ring_at(tab, u, back)
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
        for inner in range(_ring_size(tab, w, TWO_HOP_CAP)):
            x = tab.ring_id[w, _ring_at(tab, w, inner)]
            if x == u or scr.seen[x] == once:
                continue
            scr.seen[x] = once
            if scr.hop[x] != stamp:
                scr.hop[x] = stamp
                scr.hop_weight[x] = 0.0
            scr.hop_weight[x] += 1.0
            mass += 1.0
    return stamp, distinct, mass


@njit(nogil=True, forceinline=True)
def _neighbor_facts(
    tab: Tables, scr: Scratch, opt: Options, c: Int, t: float, stamp: Int, distinct: Int, mass: float, row: F64
) -> None:
    """app:optional_score_features: common neighbors, and the capped 2-hop expansion."""
    scr.stamp[0] += 1
    once = scr.stamp[0]
    own = 0
    hops = 0.0
    for back in range(_ring_size(tab, c, opt.cn_neighbors)):
        at = _ring_at(tab, c, back)
        x = tab.ring_id[c, at]
        if scr.seen[x] == once:
            continue
        scr.seen[x] = once
        own += 1
        if opt.two_hop and scr.hop[x] == stamp:
            hops += scr.hop_weight[x]
        if scr.mark[x] == stamp:
            row[CN_COUNT] += 1
            row[CN_DECAYED] += np.exp(-(t - max(scr.mark_t[x], tab.ring_t[c, at])) / opt.cn_decay)
            row[CN_AA] += 1.0 / np.log(2.0 + tab.degree[x])
    union = distinct + own - row[CN_COUNT]
    if union > 0:
        row[CN_JACCARD] = row[CN_COUNT] / union
    row[TWO_HOP_COUNT] = hops
    row[TWO_HOP_SHARE] = hops / max(1.0, mass)


@njit(nogil=True, forceinline=True, fastmath={"reassoc", "contract"})
def _dot(a: NDArray[np.float32], b: NDArray[np.float32]) -> float:
    total = np.float32(0.0)
    for x in range(len(a)):
        total += a[x] * b[x]
    return float(total)


@njit(nogil=True, forceinline=True)
def _walks_left(tab: Tables, node: Int, t: float, rate: float) -> float:
    """What a step of the node's walks is worth by now."""
    return math.exp(-rate * (t - tab.last_t[node])) if tab.degree[node] else 0.0


@njit(nogil=True, forceinline=True)
def _walk_squares(tab: Tables, node: Int, left: float, column: Int, row: F64) -> None:
    """Walks of a node that meet each other, from `column` on."""
    for i in range(1, STEPS + 1):
        row[column + i - 1] = left ** (2 * i) * _dot(tab.walk[node, i], tab.walk[node, i])


@njit(nogil=True, forceinline=True)
def _walk_facts(tab: Tables, u: Int, c: Int, at_u: float, at_c: float, row: F64) -> None:
    """Inner products of the walks' sums: random signatures of different nodes cancel, equal ones count."""
    column = 0
    fade_u = 1.0
    for i in range(STEPS + 1):
        fade_c = 1.0
        own = row[WALK_SRC + i - 1] if i else 1.0
        for j in range(STEPS + 1):
            if i + j > 0:
                other = row[WALK_DST + j - 1] if j else 1.0
                meeting = fade_u * fade_c * _dot(tab.walk[u, i], tab.walk[c, j])
                row[WALK + column] = meeting
                row[WALK_COS + column] = meeting / math.sqrt(max(own * other, TINY))
                column += 1
            fade_c *= at_c
        fade_u *= at_u


@njit(nogil=True, forceinline=True)
def _activity_facts(tab: Tables, node: Int, t: float, rate: float, column: Int, row: F64) -> None:
    """Recent events, the share as destination and their messages' mean length, from `column` on."""
    row[column + 1] = 0.5
    if tab.degree[node]:
        events = tab.recent[node, 0] + tab.recent[node, 1]
        row[column] = math.exp(-rate * (t - tab.last_t[node])) * events
        row[column + 1] = tab.recent[node, 1] / events
        row[column + 2] = tab.recent[node, 2] / events


@njit(nogil=True, forceinline=True)
def _source_facts(tab: Tables, opt: Options, u: Int, t: float, row: F64) -> float:
    """What the source says by itself, once for all its candidates; returns what a step of its walks is worth."""
    row[:] = 0.0
    row[SRC_GAP] = t - tab.last_t[u] if tab.degree[u] else -1.0
    row[SRC_COUNT] = tab.degree[u]
    _activity_facts(tab, u, t, opt.activity_rate, SRC_RECENT, row)
    left = _walks_left(tab, u, t, opt.walk_rate)
    if tab.walk.shape[2]:
        _walk_squares(tab, u, left, WALK_SRC, row)
    return left


@njit(nogil=True, forceinline=True)
def _candidate_facts(
    tab: Tables,
    scr: Scratch,
    opt: Options,
    u: Int,
    c: Int,
    rel: Int,
    t: float,
    at_u: float,
    marked: tuple[Int, Int, float],
    row: F64,
) -> None:
    """A candidate's row; `at_u` is what `_source_facts` said, `marked` what `_mark_source` did."""
    for i in range(len(row)):
        row[i] = scr.source[i]
    row[DST_GAP] = t - tab.last_t[c] if tab.degree[c] else -1.0
    row[DST_IN_AGE] = tab.ints[ROWS] - tab.last_in_row[c] if tab.in_degree[c] else -1.0
    row[DST_COUNT] = tab.degree[c]
    row[DST_IN_COUNT] = tab.in_degree[c]
    row[DST_IN_GAP] = t - tab.last_in_t[c] if tab.in_degree[c] else -1.0
    _activity_facts(tab, c, t, opt.activity_rate, DST_RECENT, row)
    _pair_facts(tab, u, c, t, row)
    if opt.separate_bank:
        _bank_facts(tab, u, c, rel, t, opt.window, row)
    else:
        row[BANK_COUNT] = row[PAIR_COUNT]
        row[BANK_GAP] = row[PAIR_GAP]
    if opt.common or opt.two_hop:
        _neighbor_facts(tab, scr, opt, c, t, *marked, row)
    if opt.successor:
        _successor_facts(tab, u, c, row)
    if tab.walk.shape[2]:
        at_c = _walks_left(tab, c, t, opt.walk_rate)
        _walk_squares(tab, c, at_c, WALK_DST, row)
        _walk_facts(tab, u, c, at_u, at_c, row)


@kernel()
def _plan_neighbors(
    tab: Tables, scr: Scratch, opt: Options, nodes: I64, u: Int, t: float, q: Int, out: ScoreOut, n0: Int
) -> Int:
    """The source's recent neighbors for alg:nbrattn, most recent first."""
    n = _ring_size(tab, u, opt.attention)
    out.nbr_len[q] = n
    for back in range(n):
        at = _ring_at(tab, u, back)
        w = tab.ring_id[u, at]
        n0 = _enter(scr, nodes, w, n0)
        out.nbr_h[q, back] = scr.cur_h[w]
        out.nbr_F[q, back] = scr.cur_F[w]
        out.nbr_gap[q, back] = t - tab.ring_t[u, at]
        out.nbr_type[q, back] = tab.ring_type[u, at]
    return n0


@kernel()
def _plan_score(
    tab: Tables,
    scr: Scratch,
    opt: Options,
    nodes: I64,
    q: Int,
    u: Int,
    t: float,
    rel: Int,
    cand: I64,
    start: Int,
    stop: Int,
    out: ScoreOut,
    n0: Int,
) -> Int:
    """Version rows and facts of one query."""
    n0 = _enter(scr, nodes, u, n0)
    out.src_h[q] = scr.cur_h[u]
    out.src_F[q] = scr.cur_F[u]
    out.num_pairs[q] = tab.ints[N_PAIRS]
    at_u = _source_facts(tab, opt, u, t, scr.source)
    marked = _mark_source(tab, scr, opt, u)
    for j in range(start, stop):
        c = cand[j]
        n0 = _enter(scr, nodes, c, n0)
        out.cand_h[j] = scr.cur_h[c]
        out.cand_F[j] = scr.cur_F[c]
        _candidate_facts(tab, scr, opt, u, c, rel, t, at_u, marked, out.facts[j])
    if opt.attention:
        n0 = _plan_neighbors(tab, scr, opt, nodes, u, t, q, out, n0)
    return n0


@kernel()
def sweep(
    tab: Tables,
    scr: Scratch,
    opt: Options,
    src: I64,
    dst: I64,
    t: F64,
    rel: I64,
    strength: F64,
    start: Int,
    stop: Int,
    cut: I64,
    q_src: I64,
    q_t: F64,
    q_rel: I64,
    ptr: I64,
    cand: I64,
    upd: UpdateOut,
    sco: ScoreOut,
    final_h: I32,
    final_F: I32,
) -> tuple[Int, Int]:
    """Rows [start, stop) and the queries cut inside them: read, then observe.

    Returns the numbers of initial rows and of active entries.
    """
    tab, scr, upd, sco = borrow(tab), borrow(scr), borrow(upd), borrow(sco)
    n0 = 0
    m = 0
    q = 0
    upd.act_ptr[0] = 0
    for r in range(start, stop + 1):
        while q < len(cut) and cut[q] == r:
            n0 = _plan_score(tab, scr, opt, upd.nodes, q, q_src[q], q_t[q], q_rel[q], cand, ptr[q], ptr[q + 1], sco, n0)
            q += 1
        if r < stop:
            m, n0 = _plan_update(tab, scr, upd, opt, r - start, src[r], dst[r], t[r], m, n0)
            observe(tab, opt, src[r], dst[r], t[r], rel[r], strength[r])
    for i in range(n0):
        node = upd.nodes[i]
        final_h[i] = scr.cur_h[node]
        final_F[i] = scr.cur_F[node]
        scr.slot[node] = -1
    return n0, m


@kernel()
def resolve(codes: tuple[I32, ...], n0: Int) -> None:
    """Turn the sweep's codes into version rows, now that the number of initial rows is known."""
    for column in codes:
        flat = column.ravel()
        for i in range(len(flat)):
            if flat[i] >= OUT:
                flat[i] += n0 - OUT


@kernel()
def advance(
    tab: Tables, opt: Options, src: I64, dst: I64, t: F64, rel: I64, strength: F64, start: Int, stop: Int
) -> None:
    """Observe rows without planning anything: how a resumed run brings its counters back."""
    for r in range(start, stop):
        observe(tab, opt, src[r], dst[r], t[r], rel[r], strength[r])


@kernel()
def probe(tab: Tables, scr: Scratch, opt: Options, u: Int, t: float, rel: Int, cand: I64, facts: F64) -> None:
    """Facts of these candidates of one source."""
    at_u = _source_facts(tab, opt, u, t, scr.source)
    marked = _mark_source(tab, scr, opt, u)
    for j in range(len(cand)):
        _candidate_facts(tab, scr, opt, u, cand[j], rel, t, at_u, marked, facts[j])


@kernel()
def mark_near(tab: Tables, scr: Scratch, opt: Options, u: Int, cand: I64, near: Bool) -> None:
    """Mark every candidate that may share a neighbor with the source, straight or over two hops."""
    stamp = _mark_source(tab, scr, opt, u)[0]
    # Out of the loop: each read of a tuple's array costs two counted references.
    ring_id, ring_len, mark, hop = tab.ring_id, tab.ring_len, scr.mark, scr.hop
    size = ring_id.shape[1]
    for j in range(len(cand)):
        c = cand[j]
        for at in range(min(ring_len[c], size)):  # in any order, and all of them: a mark too many does no harm
            x = ring_id[c, at]
            if mark[x] == stamp or hop[x] == stamp:
                near[j] = True
                break


@njit(nogil=True, forceinline=True)
def _count(keys: I64, counts: I64, key: Int) -> Int:
    i = find(keys, key)
    return counts[i] if keys[i] != EMPTY else 0


@kernel()
def shared_events(tab: Tables, u: Int, cand: I64, events: I64) -> None:
    """Events between the source and each candidate, either way, and moves to it from the source's last destinations."""
    for j in range(len(cand)):
        c = cand[j]
        total = _count(tab.pair_key, tab.pair_count, _pair(u, c)) + _count(tab.pair_key, tab.pair_count, _pair(c, u))
        for back in range(3):
            if tab.last_dst[u, back] >= 0:
                total += _count(tab.succ_key, tab.succ_count, _pair(tab.last_dst[u, back], c))
        events[j] = total
