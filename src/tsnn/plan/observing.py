"""Counting events, compiled: the only writer of `Tables`."""

from __future__ import annotations

import math

import numpy as np

from tsnn.kernel_cache import inlined, kernel
from tsnn.plan.facts import STEPS
from tsnn.plan.tables import (
    EMPTY,
    N_ACTORS,
    N_BANK,
    N_PAIRS,
    N_SUCC,
    N_TRIPS,
    QUEUE_HEAD,
    QUEUE_TAIL,
    ROWS,
    Int,
    Options,
    Rows,
    Tables,
    borrow,
    find,
    find_bank,
    link_of,
    pair_of,
    triple_of,
)
from tsnn.types import I64

FORGOTTEN = 40.0  # a count that has faded by exp(-40) is 0: no more is lost than rounding loses, and much time is won


@inlined()
def _push(tab: Tables, node: Int, other: Int, t: float, rel: Int) -> None:
    at = tab.ring_len[node] % tab.ring_id.shape[1]
    tab.ring_id[node, at] = other
    tab.ring_t[node, at] = t
    tab.ring_type[node, at] = rel
    tab.ring_len[node] += 1


@inlined()
def _slot_of(tab: Tables, keys: I64, used: Int, key: Int) -> Int:
    """The slot of a key, which takes an empty one if it has none; `used` is the entry of `ints` that counts them."""
    i = find(keys, key)
    if keys[i] == EMPTY:
        keys[i] = key
        tab.ints[used] += 1
    return i


@inlined()
def _observe_pair(tab: Tables, link: Int, t: float, strength: float) -> None:
    i = _slot_of(tab, tab.pair_key, N_PAIRS, link)
    tab.pair_count[i] += 1
    tab.pair_last[i] = t
    tab.pair_strength[i] = strength


@inlined()
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


@inlined()
def _observe_bank(tab: Tables, link: Int, rel: Int, t: float, window: float) -> None:
    """alg:edgebank, Observe."""
    i = find_bank(tab.bank_key, tab.bank_rel, link, rel)
    if tab.bank_key[i] == EMPTY:
        tab.bank_key[i] = link
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


@inlined()
def _observe_move(tab: Tables, u: Int, v: Int) -> None:
    previous = tab.last_dst[u, 0]
    if previous >= 0:
        tab.succ_count[_slot_of(tab, tab.succ_key, N_SUCC, pair_of(previous, v))] += 1
        tab.succ_total[previous] += 1
        if tab.last_dst[u, 1] >= 0:
            three = triple_of(tab.last_dst[u, 1], previous, v)
            tab.trip_count[_slot_of(tab, tab.trip_key, N_TRIPS, three)] += 1
    tab.last_dst[u, 2] = tab.last_dst[u, 1]
    tab.last_dst[u, 1] = previous
    tab.last_dst[u, 0] = v


@inlined()
def _fade(tab: Tables, node: Int, t: float, rate: float) -> None:
    """Bring a node's walks to time t: one of i steps fades i times."""
    if tab.degree[node]:
        factor = math.exp(-rate * (t - tab.last_t[node]))
        fade = 1.0
        for i in range(1, STEPS + 1):
            fade *= factor
            for x in range(tab.walk.shape[2]):
                tab.walk[node, i, x] = np.float32(tab.walk[node, i, x] * fade)


@inlined()
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


@inlined()
def _observe_activity(tab: Tables, opt: Options, node: Int, role: Int, t: float, strength: float) -> None:
    if tab.degree[node]:
        fade = math.exp(-opt.activity_rate * (t - tab.last_t[node]))
        for i in range(3):
            tab.recent[node, i] *= fade
    if opt.undirected:  # one event, half of it in either role
        tab.recent[node, 0] += 0.5
        tab.recent[node, 1] += 0.5
    else:
        tab.recent[node, role] += 1.0
    tab.recent[node, 2] += strength


@inlined()
def _observe_act(tab: Tables, opt: Options, node: Int, role: Int, rel: Int, t: float) -> None:
    """One more in each count of what the node did (role 0) or what befell it (1), once all of them have faded."""
    i = find(tab.act_key, pair_of(node, rel))
    if tab.act_key[i] == EMPTY:
        tab.act_key[i] = pair_of(node, rel)
        tab.act_row[i] = tab.ints[N_ACTORS]
        tab.actor_key[tab.ints[N_ACTORS]] = pair_of(node, rel)
        tab.ints[N_ACTORS] += 1
    actor = tab.act_row[i]
    gap = t - tab.actor_last[actor]
    rate = opt.act_rate
    for k in range(opt.act_scales):
        fade = math.exp(-rate * gap) if rate * gap < FORGOTTEN else 0.0
        rate *= opt.act_ratio
        for other in range(opt.act_roles):
            tab.actor_recent[actor, other * opt.act_scales + k] *= fade
        tab.actor_recent[actor, role * opt.act_scales + k] += 1.0
    tab.actor_acts[actor] += 1 - role
    tab.actor_last[actor] = t


@inlined()
def _observe_visit(tab: Tables, opt: Options, u: Int, v: Int, rel: Int, t: float) -> None:
    """Node u turned to v, and v was turned to."""
    if opt.act_scales:
        _observe_act(tab, opt, u, 0, rel, t)
        if opt.act_roles == 2 and u != v:
            _observe_act(tab, opt, v, 1, rel, t)
    if opt.successor:
        _observe_move(tab, u, v)
    tab.last_in_row[v] = tab.ints[ROWS]
    tab.last_in_t[v] = t
    tab.in_degree[v] += 1


@inlined()
def observe(tab: Tables, opt: Options, rows: Rows, r: int) -> None:
    """Let every counter know of one event."""
    u, v, t, rel, strength = rows.src[r], rows.dst[r], rows.t[r], rows.rel[r], rows.strength[r]
    link = link_of(opt, u, v)
    _observe_pair(tab, link, t, strength)
    if opt.separate_bank:
        _observe_bank(tab, link, rel, t, opt.window)
    for end in range(2 if opt.undirected and u != v else 1):
        _observe_visit(tab, opt, v if end else u, u if end else v, rel, t)
    if tab.walk.shape[2]:
        _observe_walks(tab, u, v, t, opt.walk_rate)
    _observe_activity(tab, opt, u, 0, t, strength)
    _push(tab, u, v, t, rel)
    tab.last_t[u] = t
    tab.degree[u] += 1
    if u != v or not opt.undirected:
        _observe_activity(tab, opt, v, 1, t, strength)
    if u != v:
        _push(tab, v, u, t, rel)
        tab.last_t[v] = t
        tab.degree[v] += 1
    tab.ints[ROWS] += 1


@kernel()
def advance(tab: Tables, opt: Options, rows: Rows, start: Int, stop: Int) -> None:
    """Observe rows without planning anything: how a resumed run brings its counters back."""
    tab, rows = borrow(tab), borrow(rows)
    for r in range(start, stop):
        observe(tab, opt, rows, r)
