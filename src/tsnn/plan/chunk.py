"""What the data-only pass hands to the recurrence and to the score.

A chunk runs rows [start, stop) in arrival order and answers queries whose cut lies inside it. Every state that
is read or written in the chunk has a row in a *version log*: two arrays, stalks `h` and frames `F`.

    rows 0 .. n0-1 of both logs     the states of `nodes` before the chunk
    h rows n0 + j                   output of active entry j (entries of all events, concatenated)
    F rows n0 + 2e, n0 + 2e + 1     frames of source and destination after event e (equal for a self-loop)

Pointers below are rows of these logs. They follow from the events alone, so no parameter is needed to make them.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from tsnn.types import F64, I32, I64


@dataclass(frozen=True)
class UpdatePlan:
    """The recurrence over rows [start, stop): who is read, who is written, with which neighbors.

    The active entries of event e are act_ptr[e] .. act_ptr[e+1]-1: first the source, second the destination
    (absent for a self-loop, D-08), then each distinct recent neighbor of either once. `mult_src[j]` counts how
    often entry j stands in the source's buffer, `mult_dst[j]` in the destination's (zero for a self-loop): the
    active graph is these two weighted stars, symmetrized (D-09).
    """

    start: int
    stop: int
    nodes: I64  # (n0,) nodes with a row in the logs
    src_h: I32  # (n,) stalk row of the source before event e
    dst_h: I32
    src_F: I32  # (n,) frame row before event e
    dst_F: I32
    gap_src: F64  # (n,) time since the endpoint's last event; 0 if it had none
    gap_dst: F64
    is_loop: NDArray[np.bool_]  # (n,)
    act_ptr: I64  # (n + 1,)
    act_h: I32  # (nA,) stalk row each active entry starts from (endpoints: before the event)
    act_F: I32  # (nA,) frame row used in diffusion (endpoints: after the event)
    mult_src: NDArray[np.float32]  # (nA,)
    mult_dst: NDArray[np.float32]
    final_h: I32  # (n0,) last stalk row of each node
    final_F: I32

    @property
    def num_events(self) -> int:
        """Rows of the chunk."""
        return self.stop - self.start


_PER_CANDIDATE = {"cand", "cand_h", "cand_F", "facts"}


@dataclass(frozen=True)
class ScorePlan:
    """The reads of a set of queries: version rows and the facts of every candidate, as of each query's cut."""

    ptr: I64  # (nq + 1,) candidates of query q are ptr[q] .. ptr[q+1]-1
    cand: I64  # (nc,) candidate nodes
    src: I64  # (nq,)
    edge_type: I64  # (nq,)
    src_h: I32  # (nq,)
    src_F: I32
    cand_h: I32  # (nc,)
    cand_F: I32
    facts: F64  # (nc, len(FACTS)), see tsnn.plan.facts
    num_pairs: I64  # (nq,) distinct directed pairs seen
    nbr_len: I32  # (nq,) neighbors of the source for attention, most recent first
    nbr_h: I32  # (nq, A)
    nbr_F: I32
    nbr_gap: F64
    nbr_type: I32

    def __len__(self) -> int:
        return len(self.src)

    def slice(self, start: int, stop: int) -> ScorePlan:
        """Queries start..stop-1 and their candidates."""
        a, b = self.ptr[start], self.ptr[stop]
        columns = {
            f.name: getattr(self, f.name)[a:b] if f.name in _PER_CANDIDATE else getattr(self, f.name)[start:stop]
            for f in fields(self)
        }
        columns["ptr"] = self.ptr[start : stop + 1] - a
        return ScorePlan(**columns)

    def pick(self, queries: I64) -> ScorePlan:
        """These queries, in this order, with their candidates."""
        sizes = np.diff(self.ptr)[queries]
        ptr = np.concatenate([[0], np.cumsum(sizes)])
        rows = np.repeat(self.ptr[queries] - ptr[:-1], sizes) + np.arange(ptr[-1])
        columns = {
            f.name: getattr(self, f.name)[rows if f.name in _PER_CANDIDATE else queries]
            for f in fields(self)
            if f.name != "ptr"
        }
        return ScorePlan(ptr=ptr, **columns)


def join(plans: list[ScorePlan]) -> ScorePlan:
    """Several plans' queries as one. Version rows keep the meaning they had in their own chunk."""
    columns = {f.name: np.concatenate([getattr(plan, f.name) for plan in plans]) for f in fields(ScorePlan)}
    sizes = np.concatenate([np.diff(plan.ptr) for plan in plans])
    columns["ptr"] = np.concatenate([[0], np.cumsum(sizes)])
    return ScorePlan(**columns)


@dataclass(frozen=True)
class ChunkPlan:
    """One step of the stream."""

    update: UpdatePlan
    score: ScorePlan
