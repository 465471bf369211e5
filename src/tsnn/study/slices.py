"""Where a scorer loses: its figures on slices of the test positives, each against their own negatives.

A slice is a property of the positive as of its cut: has the pair met before, how long ago, how busy are its nodes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from tsnn.data.catalog import tgb_negatives
from tsnn.data.negatives import DgbNegatives
from tsnn.data.queries import Ranking, pairs
from tsnn.data.split import Split
from tsnn.evaluation.evaluate import protocol_of
from tsnn.evaluation.metrics import average_precision, rank_metrics, ranks
from tsnn.evaluation.scorer import Scorer, plan_blocks, score_blocks
from tsnn.evaluation.stream import draw_negatives
from tsnn.plan.facts import COLUMN
from tsnn.plan.planner import PlanSpec, mean_gap
from tsnn.types import F64, I64, Bool, Visibility

DECADES = (1, 10, 100, 1000)  # bounds of counts, and of gaps in mean gaps
_FACTS = ("pair_count", "pair_gap", "src_count", "dst_count")
_NEGATIVES = 100  # of a plain stream
Slices = Iterator[tuple[str, str, Bool]]  # what is sliced by, the slice, its positives


@dataclass(frozen=True)
class Scored:
    """Positives of a segment with the score of their first negative and their rank among all."""

    rows: I64
    pos: F64
    neg: F64
    rank: F64


def error_slices(
    scorer: Scorer, split: Split, visibility: Visibility, segment: str = "test", seed: int = 0
) -> list[dict[str, Any]]:
    """Count, pooled AP and MRR of every slice of a segment, for a scorer that is fitted here if it has to learn."""
    scorer.fit(split, visibility)
    scored = score_segment(scorer, split, visibility, segment, seed)
    facts = positive_facts(split, visibility, scored.rows)
    found = []
    for by, name, chosen in slices(split, scored.rows, facts):
        if chosen.any():
            found.append({"by": by, "slice": name, **_figures(scored, chosen)})
    return found


def score_segment(scorer: Scorer, split: Split, visibility: Visibility, segment: str, seed: int = 0) -> Scored:
    """Scores under the negatives of the stream's own protocol."""
    rows = np.arange(*split.bounds(segment), dtype=np.int64)
    cuts = visibility.cuts(split.stream.t, split.segment_starts)[rows]
    asked = Ranking(split.stream, rows, cuts, *_negatives(split, segment, rows, seed))
    table = np.empty((len(rows), 3))
    for step, scores in score_blocks(scorer, split.stream, asked):
        ptr = asked.ptr[step.first : step.last + 1] - asked.ptr[step.first]
        table[step.first : step.last] = np.stack([scores[ptr[:-1]], scores[ptr[:-1] + 1], ranks(scores, ptr)], axis=1)
    return Scored(rows, *table.T)


def _negatives(split: Split, segment: str, rows: I64, seed: int) -> tuple[I64, I64]:
    protocol = protocol_of(split.stream)
    if protocol == "dgb":
        return np.arange(len(rows) + 1), DgbNegatives(split, segment).neg_dst
    if protocol == "tgb":
        bounds, nodes = tgb_negatives(split).query(segment)
        return bounds, nodes.astype(np.int64)
    return draw_negatives(split.stream, rows, _NEGATIVES, np.random.default_rng(seed))


def positive_facts(split: Split, visibility: Visibility, rows: I64) -> dict[str, F64]:
    """What the data says about each positive as of its cut."""
    stream = split.stream
    cuts = visibility.cuts(stream.t, split.segment_starts)[rows]
    queries = pairs(stream, rows, cuts, stream.src[rows], stream.dst[rows])
    table = np.empty((len(rows), len(_FACTS)))
    for step, block in plan_blocks(stream, PlanSpec(), queries):
        table[step.first : step.last] = block.score.facts[:, [COLUMN[name] for name in _FACTS]]
    return dict(zip(_FACTS, table.T, strict=True))


def slices(split: Split, rows: I64, facts: dict[str, F64]) -> Slices:
    """All slices of a set of positives; those of one kind do not overlap, and all but the recency cover the set."""
    repeat = facts["pair_count"] > 0
    unseen = (facts["src_count"] == 0) | (facts["dst_count"] == 0)
    yield "all", "all", np.ones(len(rows), dtype=np.bool_)
    yield "history", "repeat", repeat
    yield "history", "new pair", ~repeat & ~unseen
    yield "history", "new node", unseen
    inductive = np.isin(rows, split.new_rows(0, split.stream.num_events))
    yield "training", "both nodes seen in training", ~inductive
    yield "training", "a node unseen in training", inductive
    gaps = facts["pair_gap"] / mean_gap(split.stream.t[: split.train_end])
    yield from ((by, name, chosen & repeat) for by, name, chosen in _decades("pair's gap, in mean gaps", gaps))
    yield from _decades("events of the source", facts["src_count"])
    yield from _decades("events of the destination", facts["dst_count"])


def _decades(by: str, values: F64) -> Slices:
    bounds = (-np.inf, *DECADES, np.inf)
    names = [f"below {DECADES[0]}", *(f"{a} to {b}" for a, b in pairwise(DECADES)), f"{DECADES[-1]} and more"]
    for name, (low, high) in zip(names, pairwise(bounds), strict=True):
        yield by, name, (values >= low) & (values < high)


def _figures(scored: Scored, chosen: Bool) -> dict[str, float]:
    ap = 100 * average_precision(scored.pos[chosen], scored.neg[chosen])
    return {"count": int(chosen.sum()), "ap": ap, "mrr": rank_metrics(scored.rank[chosen])["mrr"]}
