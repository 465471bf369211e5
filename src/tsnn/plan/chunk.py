"""What the data-only pass hands to the recurrence and to the score.

A chunk runs rows [start, stop) in arrival order and answers queries whose cut lies inside it. Every state that is read
or written in the chunk has a row in a *version log*: two arrays, stalks `h` and frames `F`.

    rows 0 .. n0-1 of both logs     the states of `nodes` before the chunk
    h rows n0 + j                   output of active entry j (entries of all events, concatenated)
    F rows n0 + 2e, n0 + 2e + 1     frames of source and destination after event e (equal for a self-loop)

Pointers below are rows of these logs. They follow from the events alone, so no parameter is needed to make them.

Axes: `known`, nodes with a row in the logs; `event`, rows of the chunk; `active`, entries of all events; `query`;
`candidate`, of all queries; `attention`, neighbors that the score attends to; `acts`, numbers of what a source did.
"""

from __future__ import annotations

from collections import namedtuple
from dataclasses import dataclass, fields
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from tsnn.plan.facts import FACTS
from tsnn.plan.layout import columns, shaped
from tsnn.types import F64, I32, I64, Bool


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
    nodes: Annotated[I64, shaped("known")]  # nodes with a row in the logs
    src_h: Annotated[I32, shaped("event")]  # stalk row of the source before event e
    dst_h: Annotated[I32, shaped("event")]
    src_F: Annotated[I32, shaped("event")]  # frame row before event e
    dst_F: Annotated[I32, shaped("event")]
    gap_src: Annotated[F64, shaped("event")]  # time since the endpoint's last event; 0 if it had none
    gap_dst: Annotated[F64, shaped("event")]
    is_loop: Bool
    act_ptr: Annotated[I64, shaped("event + 1")]
    act_h: Annotated[I32, shaped("active")]  # stalk row each active entry starts from (endpoints: before the event)
    act_F: Annotated[I32, shaped("active")]  # frame row used in diffusion (endpoints: after the event)
    mult_src: Annotated[NDArray[np.float32], shaped("active")]
    mult_dst: Annotated[NDArray[np.float32], shaped("active")]
    final_h: Annotated[I32, shaped("known")]  # last stalk row of each node
    final_F: Annotated[I32, shaped("known")]

    @property
    def num_events(self) -> int:
        """Rows of the chunk."""
        return self.stop - self.start


@dataclass(frozen=True)
class ScorePlan:
    """The reads of a set of queries: version rows and the facts of every candidate, as of each query's cut."""

    ptr: Annotated[I64, shaped("query + 1")]  # candidates of query q are ptr[q] .. ptr[q+1]-1
    cand: Annotated[I64, shaped("candidate")]  # candidate nodes
    src: Annotated[I64, shaped("query")]
    edge_type: Annotated[I64, shaped("query")]
    src_h: Annotated[I32, shaped("query")]
    src_F: Annotated[I32, shaped("query")]
    cand_h: Annotated[I32, shaped("candidate")]
    cand_F: Annotated[I32, shaped("candidate")]
    facts: Annotated[F64, shaped("candidate", len(FACTS))]  # see tsnn.plan.facts
    num_pairs: Annotated[I64, shaped("query")]  # distinct directed pairs seen
    acts: Annotated[F64, shaped("query", "acts")]  # what the source did, as `source_acts` writes it
    nbr_len: Annotated[I32, shaped("query")]  # neighbors of the source for attention, most recent first
    nbr: Annotated[I32, shaped("query", "attention")]  # the nodes
    nbr_h: Annotated[I32, shaped("query", "attention")]
    nbr_F: Annotated[I32, shaped("query", "attention")]
    nbr_gap: Annotated[F64, shaped("query", "attention")]
    nbr_type: Annotated[I32, shaped("query", "attention")]

    def __len__(self) -> int:
        return len(self.src)

    def slice(self, start: int, stop: int) -> ScorePlan:
        """Queries start..stop-1 and their candidates."""
        a, b = self.ptr[start], self.ptr[stop]
        return self._taken(slice(start, stop), slice(a, b), self.ptr[start : stop + 1] - a)

    def pick(self, queries: I64) -> ScorePlan:
        """These queries, in this order, with their candidates."""
        sizes = np.diff(self.ptr)[queries]
        ptr = np.concatenate([[0], np.cumsum(sizes)])
        return self._taken(queries, np.repeat(self.ptr[queries] - ptr[:-1], sizes) + np.arange(ptr[-1]), ptr)

    def _taken(self, queries: Any, candidates: Any, ptr: I64) -> ScorePlan:
        rows: dict[str | int, Any] = {"query": queries, "candidate": candidates}
        taken = {name: getattr(self, name)[rows[c.axes[0]]] for name, c in SCORE_COLUMNS.items() if name != "ptr"}
        return ScorePlan(ptr=ptr, **taken)


def join(plans: list[ScorePlan]) -> ScorePlan:
    """Several plans' queries as one. Version rows keep the meaning they had in their own chunk."""
    joined = {f.name: np.concatenate([getattr(plan, f.name) for plan in plans]) for f in fields(ScorePlan)}
    sizes = np.concatenate([np.diff(plan.ptr) for plan in plans])
    joined["ptr"] = np.concatenate([[0], np.cumsum(sizes)])
    return ScorePlan(**joined)


def facts_alone(src: int, edge_type: int, cand: I64, facts: Any, num_pairs: int = 0) -> ScorePlan:
    """A score plan of one query without version rows, for whoever has the geometry from elsewhere."""
    none, no_rows = np.zeros(0, np.int32), np.zeros((1, 0), np.int32)
    return ScorePlan(
        ptr=np.array([0, len(cand)]), cand=cand, src=np.array([src]), edge_type=np.array([edge_type]),
        src_h=none, src_F=none, cand_h=none, cand_F=none, facts=facts, num_pairs=np.array([num_pairs]),
        acts=np.zeros((1, 0)),
        nbr_len=none, nbr=no_rows, nbr_h=no_rows, nbr_F=no_rows, nbr_gap=np.zeros((1, 0)), nbr_type=no_rows,
    )  # fmt: skip


@dataclass(frozen=True)
class ChunkPlan:
    """One step of the stream."""

    update: UpdatePlan
    score: ScorePlan


# What compiled code writes: the same columns as tuples.
UPDATE_COLUMNS, SCORE_COLUMNS = columns(UpdatePlan), columns(ScorePlan)
UpdateOut = namedtuple("UpdateOut", UPDATE_COLUMNS)  # type: ignore[misc]
ScoreOut = namedtuple("ScoreOut", SCORE_COLUMNS)  # type: ignore[misc]
