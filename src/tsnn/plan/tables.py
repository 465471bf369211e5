"""What the plan's compiled code works on: the counters' arrays, its scratch, its switches; and how it looks things up.

State is `Tables`, arrays only: per-node columns, rings of recent neighbors, open-addressing hash tables.
"""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

import numpy as np
from numba import types
from numba.extending import intrinsic
from numpy.typing import NDArray

from tsnn.kernel_cache import inlined, kernel
from tsnn.plan.facts import FACTS, STEPS
from tsnn.plan.layout import shaped
from tsnn.types import F64, I32, I64

EMPTY = -1
Int = Any  # whatever integer type the compiler sees

# Entries of Tables.ints
ROWS, N_PAIRS, N_BANK, N_SUCC, N_TRIPS, QUEUE_HEAD, QUEUE_TAIL, N_ACTORS = range(8)
NUM_INTS = 8
# Hash tables: the first axis of their columns, and the entry of `ints` that says how many slots are in use.
HASHED = {"pair": N_PAIRS, "bank": N_BANK, "succ": N_SUCC, "trip": N_TRIPS, "act": N_ACTORS}


class Tables(NamedTuple):
    """Everything the stream has taught so far, apart from learned states.

    First axes: a node; a slot of the hash table `pair`, `bank`, `succ`, `trip` or `act`; a place in EdgeBank's queue;
    an actor, who is a source or, where events have relations, a source in one relation, numbered as they come.
    """

    last_t: Annotated[F64, shaped("node", fill=-np.inf)]  # time of the last event in any role
    last_in_row: Annotated[I64, shaped("node", fill=-1)]  # last row as destination
    last_in_t: Annotated[F64, shaped("node", fill=-np.inf)]
    # as of last_t: fading counts of events as source and as destination, fading sum of the lengths of messages
    recent: Annotated[F64, shaped("node", 3)]
    degree: Annotated[I64, shaped("node")]  # events, in any role
    in_degree: Annotated[I64, shaped("node")]  # events, as destination
    ring_id: Annotated[I32, shaped("node", "ring")]  # recent neighbors, written at position ring_len % ring
    ring_t: Annotated[F64, shaped("node", "ring")]
    ring_type: Annotated[I32, shaped("node", "ring")]
    ring_len: Annotated[I64, shaped("node")]  # entries ever written
    last_dst: Annotated[I32, shaped("node", 3, fill=-1)]  # last destinations of a source, most recent first
    succ_total: Annotated[I64, shaped("node")]  # moves that left this destination
    # sums of signatures at the ends of walks; layer 0 is the node's own
    walk: Annotated[NDArray[np.float32], shaped("node", STEPS + 1, "walk_dim")]
    pair_key: Annotated[I64, shaped("pair", fill=EMPTY)]  # source << 32 | destination, as `link_of` orders them
    pair_count: Annotated[I64, shaped("pair")]
    pair_last: Annotated[F64, shaped("pair")]
    pair_strength: Annotated[F64, shaped("pair")]  # length of the last message
    bank_key: Annotated[I64, shaped("bank", fill=EMPTY)]  # as pair_key; the table is used with relations or a window
    bank_rel: Annotated[I64, shaped("bank")]  # the other half of the key
    bank_count: Annotated[I64, shaped("bank")]
    bank_last: Annotated[F64, shaped("bank")]
    bank_first_event: Annotated[I64, shaped("bank", fill=-1)]  # oldest queued event of the slot; -1 if none
    bank_last_event: Annotated[I64, shaped("bank", fill=-1)]
    queue_t: Annotated[F64, shaped("queue")]  # events inside the window, addressed modulo the capacity
    queue_slot: Annotated[I64, shaped("queue")]
    queue_next: Annotated[I64, shaped("queue")]  # next queued event of the same slot; -1 if none
    succ_key: Annotated[I64, shaped("succ", fill=EMPTY)]  # destination << 32 | next destination
    succ_count: Annotated[I64, shaped("succ")]
    trip_key: Annotated[I64, shaped("trip", fill=EMPTY)]  # a hash of three destinations in a row
    trip_count: Annotated[I64, shaped("trip")]
    act_key: Annotated[I64, shaped("act", fill=EMPTY)]  # source << 32 | relation
    act_row: Annotated[I64, shaped("act")]  # the number of that actor
    actor_key: Annotated[I64, shaped("actor")]
    actor_acts: Annotated[I64, shaped("actor")]  # events that it began
    actor_last: Annotated[F64, shaped("actor")]  # time of the last event that counts here
    # as of actor_last: counts that fade, each at its own pace, of events that it began, then of those that befell it
    actor_recent: Annotated[F64, shaped("actor", "fading")]
    ints: Annotated[I64, shaped(NUM_INTS)]


class Scratch(NamedTuple):
    """Work arrays. A mark counts only while it equals the running stamp, so nothing has to be cleared."""

    slot: Annotated[I32, shaped("node", fill=-1)]  # row of the node among the chunk's initial states; -1 if it has none
    cur_h: Annotated[I32, shaped("node", fill=-1)]  # coded version rows, see tsnn.plan.sweep
    cur_F: Annotated[I32, shaped("node", fill=-1)]
    mark: Annotated[I64, shaped("node", fill=-1)]  # stamps
    mark_t: Annotated[F64, shaped("node")]
    seen: Annotated[I64, shaped("node", fill=-1)]
    hop: Annotated[I64, shaped("node", fill=-1)]
    hop_weight: Annotated[F64, shaped("node")]
    local: Annotated[I64, shaped("node", fill=-1)]
    local_index: Annotated[I64, shaped("node")]
    stamp: Annotated[I64, shaped(1)]
    source: Annotated[F64, shaped(len(FACTS))]  # what a query's source says by itself


class Options(NamedTuple):
    """What the plan computes, with times in the stream's unit. A configuration becomes one as a `PlanSpec`."""

    num_neighbors: int = 0  # of each endpoint in the active graph; 0 where there is no diffusion
    cn_neighbors: int = 20
    cn_decay: float = 1.0
    window: float = 0.0  # EdgeBank's; 0 is unlimited
    separate_bank: bool = False  # EdgeBank has a table of its own, because of a window or of relations
    common_neighbors: bool = False
    two_hop: bool = False
    successor: bool = False
    attention: int = 0  # neighbors of the source that the score attends to
    walk_dim: int = 0  # length of the signatures that walks sum up; 0: no walks
    walk_rate: float = 1.0  # a step of a walk fades by exp(-rate * time)
    activity_rate: float = 1.0  # so does an event in the recent counts
    act_scales: int = 0  # paces at which counts of what sources do fade; 0: nobody counts it
    act_roles: int = 1  # 2: events that befall a source count as well, apart
    act_rate: float = 1.0  # of the fastest: an event fades by exp(-rate * time)
    act_ratio: float = 1.0  # from each pace to the next, slower one
    buffer: int = 0  # neighbors to remember per node, where that is more than the others need
    undirected: bool = False  # an event is counted as seen from both ends; the planner takes it from the stream


class Rows(NamedTuple):
    """The stream, as the plan reads it."""

    src: I64
    dst: I64
    t: F64  # from the origin on
    rel: I64
    strength: F64  # lengths of messages


def _borrow(_: Any, arrays: Any) -> Any:
    """The same named tuple, its arrays without an owner; only for as long as the caller holds them.

    Otherwise each read of an array in the tuple counts a reference up and down, atomically: four times the time of a
    sweep (decision 0014).
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


@inlined()
def _hash(key: Int, mask: Int) -> Int:
    x = np.uint64(key) * np.uint64(0x9E3779B97F4A7C15)
    x ^= x >> np.uint64(29)
    x *= np.uint64(0xBF58476D1CE4E5B9)
    return np.int64((x >> np.uint64(20)) & np.uint64(mask))


@inlined()
def pair_of(a: Int, b: Int) -> Int:
    """The key of two nodes in this order."""
    return (np.int64(a) << np.int64(32)) | np.int64(b)


@inlined()
def link_of(opt: Options, u: Int, v: Int) -> Int:
    """The key of what u and v have had with each other; in this order, unless events are undirected."""
    return pair_of(v, u) if opt.undirected and v < u else pair_of(u, v)


@inlined()
def triple_of(a: Int, b: Int, c: Int) -> Int:
    """63 bits of a hash stand for the three: of a billion triples, two are mixed up with a chance of one in 18."""
    x = np.uint64(pair_of(a, b)) * np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(32)) ^ np.uint64(c)) * np.uint64(0xD6E8FEB86659FD93)
    x = (x ^ (x >> np.uint64(32))) * np.uint64(0xD6E8FEB86659FD93)
    return np.int64(x >> np.uint64(1))


@inlined()
def find(keys: I64, key: Int) -> Int:
    """Slot of a key, or the empty slot where it belongs."""
    mask = len(keys) - 1
    i = _hash(key, mask)
    while keys[i] != EMPTY and keys[i] != key:
        i = (i + 1) & mask
    return i


@inlined()
def find_bank(keys: I64, rels: I64, key: Int, rel: Int) -> Int:
    """Slot of (key, relation), or the empty slot where it belongs."""
    mask = len(keys) - 1
    i = _hash(key ^ (np.int64(rel) * np.int64(0x632BE59BD9B4E019)), mask)
    while keys[i] != EMPTY and (keys[i] != key or rels[i] != rel):
        i = (i + 1) & mask
    return i


@kernel()
def rehash(old_keys: I64, old_rels: I64, new_keys: I64, new_rels: I64) -> I64:
    """Place every key of a full table in a larger empty one; returns where each went (-1 for empty slots).

    In a table without relations they are all 0: then a key's slot is the one that `find` looks for.
    """
    moved = np.full(len(old_keys), -1, np.int64)
    for i in range(len(old_keys)):
        if old_keys[i] != EMPTY:
            j = find_bank(new_keys, new_rels, old_keys[i], old_rels[i])
            new_keys[j] = old_keys[i]
            new_rels[j] = old_rels[i]
            moved[i] = j
    return moved


@inlined()
def ring_at(tab: Tables, node: Int, back: Int) -> Int:
    """Ring position of the entry `back` steps before the newest."""
    return (tab.ring_len[node] - 1 - back) % tab.ring_id.shape[1]


@inlined()
def ring_size(tab: Tables, node: Int, limit: Int) -> Int:
    """How many of the node's last `limit` neighbors are there."""
    return min(tab.ring_len[node], min(limit, tab.ring_id.shape[1]))
