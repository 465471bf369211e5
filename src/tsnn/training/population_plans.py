"""The host's part of a population's training: what each member reads in each chunk, planned by several threads.

A few members make a unit: one pass of the counters over the rows finds the facts of all their negatives, the positives'
once for all of them. Units run side by side, since compiled passes release the interpreter. Version rows are given for
a log in which every node has a row, so that units, whose candidates differ, agree on them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tsnn.config import Config
from tsnn.data.negatives import NegativePool
from tsnn.data.split import Split
from tsnn.model.features import feature_matrix
from tsnn.plan.chunk import ScorePlan, UpdatePlan
from tsnn.plan.facts import COLUMN
from tsnn.plan.planner import Planner, PlanSpec
from tsnn.training.draw import chunk_bounds, draw_rows, training_queries
from tsnn.types import I32, I64

UNIT = 8  # members planned together
Rows = NDArray[np.integer[Any]]
_POINTERS = ("src_h", "dst_h", "src_F", "dst_F", "act_h", "act_F")
_ACTIVE = ("act_h", "act_F", "mult_src", "mult_dst")


class UnitChunk(NamedTuple):
    """A chunk as a unit sees it."""

    update: UpdatePlan  # the same for all units but for its rows
    reads: I32  # (members, queries, 2 + 3 * width): src_h, src_F; of each candidate cand_h, cand_F, its row in `raw`
    raw: NDArray[np.floating[Any]]  # (rows, features + 1): raw features, and the EdgeBank's count


def raw_facts(plan: ScorePlan, config: Config, gap: float) -> NDArray[np.floating[Any]]:
    """Raw features of every candidate and, last, the EdgeBank's count."""
    matrix = feature_matrix(plan.facts, config.features, gaps=config.model.gaps, mean_gap=gap)
    out = np.empty((len(matrix), matrix.shape[1] + 1), config.train.dtype)
    out[:, :-1], out[:, -1] = matrix, plan.facts[:, COLUMN["bank_count"]]
    return out


def unit_chunks(
    configs: list[Config], split: Split, cuts: I64, pool: NegativePool, spec: PlanSpec, gap: float, epoch: int
) -> Iterator[UnitChunk]:
    """The chunks of an epoch for the members of a unit."""
    stream, train = split.stream, configs[0].train
    planner, width = Planner(stream, spec), 1 + train.negatives
    columns = [np.r_[0, 1 + own * train.negatives + np.arange(train.negatives)] for own in range(len(configs))]
    for start, stop, first, last in chunk_bounds(cuts, train.chunk):
        drawn = [draw_rows(stream, cuts, pool, c.train, epoch, start, first, last) for c in configs]
        negatives = np.empty((last - first, len(configs), train.negatives), np.int64)
        for own, (rows, nodes) in enumerate(drawn):
            negatives[rows - first, own] = nodes
        wide = negatives.reshape(last - first, len(configs) * train.negatives)
        plan = planner.plan(stop, training_queries(stream, cuts, np.arange(first, last), wide))
        score, own_nodes = plan.score, plan.update.nodes
        at = [in_whole_table(codes, own_nodes, stream.num_nodes) for codes in (score.src_h, score.src_F)]
        of = [in_whole_table(codes, own_nodes, stream.num_nodes) for codes in (score.cand_h, score.cand_F)]
        index = np.empty((len(configs), last - first, 2 + 3 * width), np.int32)
        for own, (rows, _) in enumerate(drawn):
            pick = (rows - first)[:, None] * (1 + wide.shape[1]) + columns[own]
            index[own, :, 0], index[own, :, 1] = at[0][rows - first], at[1][rows - first]
            index[own, :, 2:] = np.concatenate([of[0][pick], of[1][pick], pick], axis=1)
        yield UnitChunk(plan.update, index, raw_facts(score, configs[0], gap))


def join_units(chunks: list[UnitChunk], part: slice, size: int) -> tuple[I32, NDArray[np.floating[Any]]]:
    """A minibatch of a group: the index of `size` members, copies of the last filling it up, and their raw facts."""
    width = (chunks[0].reads.shape[2] - 2) // 3
    starts = np.cumsum([0, *(len(chunk.raw) for chunk in chunks)])
    index = np.concatenate([chunk.reads[:, part] for chunk in chunks])
    members = np.repeat(np.arange(len(chunks)), [len(chunk.reads) for chunk in chunks])
    index[:, :, -width:] += starts[members][:, None, None].astype(np.int32)
    slots = np.minimum(np.arange(size), len(index) - 1)
    return index[slots], np.concatenate([chunk.raw for chunk in chunks])


def in_whole_table(rows: Rows, own: I64, nodes: int) -> I64:
    """From version rows of a plan over its `own` nodes to those of one in which every node has a row."""
    wide = rows.astype(np.int64)
    return np.where(wide < len(own), own[np.minimum(wide, len(own) - 1)], wide + (nodes - len(own)))


def whole_table(plan: UpdatePlan, nodes: int, capacity: int) -> UpdatePlan:
    """The same recurrence with a row for every node and room for `capacity` active entries.

    A recording needs arrays of one size. Room that is not used is never read: the events say how far theirs goes.
    """
    pointers: dict[str, Any] = {name: in_whole_table(getattr(plan, name), plan.nodes, nodes) for name in _POINTERS}
    room = capacity - len(plan.act_h)
    padded = {name: np.pad(pointers.get(name, getattr(plan, name)), (0, room)) for name in _ACTIVE}
    final_h, final_F = (np.arange(nodes) for _ in range(2))
    final_h[plan.nodes] = in_whole_table(plan.final_h, plan.nodes, nodes)
    final_F[plan.nodes] = in_whole_table(plan.final_F, plan.nodes, nodes)
    columns: dict[str, Any] = {**pointers, **padded, "final_h": final_h, "final_F": final_F}
    return replace(plan, nodes=np.arange(nodes), **columns)
