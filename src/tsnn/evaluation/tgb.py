"""The TGB protocol: each positive ranked among its own negatives; MRR and hits@10 over positives."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tsnn.data.split import Split
from tsnn.data.tgb_negatives import TgbNegatives
from tsnn.evaluation.asking import Chain, Ranking
from tsnn.evaluation.card import Result, make_card
from tsnn.evaluation.metrics import rank_metrics, ranks
from tsnn.evaluation.scorer import Asked, Progress, Scorer, score_blocks
from tsnn.types import F64, Visibility

SETS = ("val", "test")
HITS_AT = 10
AGGREGATION = "mean over positives; a rank is the mean of the optimistic and the pessimistic one"


def evaluate_tgb(
    scorer: Scorer,
    split: Split,
    visibility: Visibility,
    negatives: TgbNegatives,
    *,
    sets: Sequence[str] = SETS,
    progress: Progress | None = None,
) -> Result:
    """Metrics of a fitted scorer, one query per event: its destination first, then the set's own negatives."""
    stream = split.stream
    cuts = visibility.cuts(stream.t, split.segment_starts)
    ordered = sorted(sets, key=SETS.index)
    parts = []
    for name in ordered:
        rows = np.arange(*split.bounds(name), dtype=np.int64)
        parts.append(Ranking(stream, rows, cuts[rows], *negatives.query(name)))
    asked = Chain(parts)
    found = asked.split(positive_ranks(scorer, split, asked, progress))
    metrics = {name: rank_metrics(r, HITS_AT) for name, r in zip(ordered, found, strict=True)}
    counts = {name: float(np.diff(part.bounds).mean()) for name, part in zip(ordered, parts, strict=True)}
    card = make_card(
        "tgb",
        split,
        visibility,
        negatives={"strategy": "the set's own, one-versus-many", "mean_per_positive": counts},
        aggregation=AGGREGATION,
    )
    return Result(scorer.name, stream.name, metrics, card)


def positive_ranks(scorer: Scorer, split: Split, asked: Asked, progress: Progress | None = None) -> F64:
    """Rank of each query's first candidate, block by block, so that no more than a block of scores exists."""
    out = np.empty(len(asked))
    for step, scores in score_blocks(scorer, split.stream, asked, progress=progress):
        out[step.first : step.last] = ranks(scores, asked.ptr[step.first : step.last + 1] - asked.ptr[step.first])
    return out
