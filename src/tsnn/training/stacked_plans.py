"""The host's part of training a stack: what each member of a group reads in each chunk.

One pass of the counters over the rows finds the facts of all the group's negatives, and those of the positives once.
Version rows are given for a log in which every node has a row, so that groups, whose candidates differ, agree on them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tsnn.config import Config
from tsnn.plan.chunk import UpdatePlan
from tsnn.plan.planner import Planner, PlanSpec
from tsnn.training.draw import TrainingRows
from tsnn.types import I32, I64

Rows = NDArray[np.integer[Any]]
_POINTERS = ("src_h", "dst_h", "src_F", "dst_F", "act_h", "act_F")
_ACTIVE = ("act_h", "act_F", "mult_src", "mult_dst")


class GroupChunk(NamedTuple):
    """A chunk as a group sees it."""

    update: UpdatePlan  # the same for all groups but for its rows
    reads: I32  # (GROUP, queries, 2 + 3 * width): src_h, src_F; of each candidate cand_h, cand_F, its row in `facts`
    facts: NDArray[np.floating[Any]]  # (rows, FACTS); what the features make of them is left to the device


def group_chunks(
    configs: list[Config], size: int, training: TrainingRows, spec: PlanSpec, epoch: int
) -> Iterator[GroupChunk]:
    """The chunks of an epoch for a group of `size`; copies that fill it up read what its last member reads."""
    stream = training.stream
    train = configs[0].train
    planner = Planner(stream, spec)
    width = 1 + train.negatives
    own = np.minimum(np.arange(size), len(configs) - 1)
    columns = np.concatenate([np.zeros((size, 1), int), 1 + own[:, None] * (width - 1) + np.arange(width - 1)], axis=1)
    for start, stop, first, last in training.chunks():
        drawn = [training.draw(config.train, epoch, start, first, last) for config in configs]
        query = np.stack([rows for rows, _ in drawn]) - first
        negatives = np.empty((last - first, len(configs), width - 1), np.int64)
        negatives[query, np.arange(len(configs))[:, None]] = np.stack([nodes for _, nodes in drawn])
        wide = negatives.reshape(last - first, len(configs) * (width - 1))
        plan = planner.plan(stop, training.queries(np.arange(first, last), wide))
        score, own_nodes = plan.score, plan.update.nodes
        src_h, src_F, cand_h, cand_F = (
            in_whole_table(codes, own_nodes, stream.num_nodes)
            for codes in (score.src_h, score.src_F, score.cand_h, score.cand_F)
        )
        at = query[own]
        pick = at[:, :, None] * (1 + wide.shape[1]) + columns[:, None]
        reads = np.concatenate([src_h[at][..., None], src_F[at][..., None], cand_h[pick], cand_F[pick], pick], axis=2)
        yield GroupChunk(plan.update, reads.astype(np.int32), score.facts.astype(train.dtype))


def in_whole_table(rows: Rows, own: I64, nodes: int) -> I64:
    """From version rows of a plan over its `own` nodes to those of one in which every node has a row."""
    wide = rows.astype(np.int64)
    return np.where(wide < len(own), own[np.minimum(wide, len(own) - 1)], wide + (nodes - len(own)))


def whole_table(plan: UpdatePlan, nodes: int, capacity: int) -> UpdatePlan:
    """The same recurrence with a row for every node and room for `capacity` active entries: arrays of one size."""
    pointers: dict[str, Any] = {name: in_whole_table(getattr(plan, name), plan.nodes, nodes) for name in _POINTERS}
    room = capacity - len(plan.act_h)  # never read: each event says where its entries end
    padded = {name: np.pad(pointers.get(name, getattr(plan, name)), (0, room)) for name in _ACTIVE}
    finals = {"final_h": np.arange(nodes), "final_F": np.arange(nodes)}
    for name, rows in finals.items():
        rows[plan.nodes] = in_whole_table(getattr(plan, name), plan.nodes, nodes)
    return replace(plan, nodes=np.arange(nodes), **{**pointers, **padded, **finals})
