"""The DGB protocol: one negative per positive, AP and AUC as the mean over batches of 200 positives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tsnn.data.negatives import SEEDS, DgbNegatives
from tsnn.data.queries import Queries
from tsnn.data.split import Split
from tsnn.errors import InputError
from tsnn.evaluation.asking import merge, pairs
from tsnn.evaluation.card import Result, make_card
from tsnn.evaluation.metrics import BATCH, link_metrics
from tsnn.evaluation.scorer import Progress, Scorer, score_queries
from tsnn.types import I64, Visibility

SETS = tuple(SEEDS)  # val, new_val, test, new_test
AGGREGATION = f"unweighted mean over batches of {BATCH} positives, the last and shorter one included; pooled beside it"
INDUCTIVE_NOTE = (
    "new_val and new_test: every row of the segment is fed to the state, only rows with a node unseen in training are "
    f"scored, in batches of {BATCH} of those"
)


@dataclass(frozen=True)
class DgbSet:
    """Positives and negatives of one set, as two aligned sets of single-candidate queries."""

    pos: Queries
    neg: Queries


def dgb_set(split: Split, cuts: I64, negatives: DgbNegatives) -> DgbSet:
    """Negative k is asked at positive k's time and cut; historical and inductive ones have another source."""
    stream, rows = split.stream, negatives.rows
    return DgbSet(
        pairs(stream, rows, cuts[rows], stream.src[rows], stream.dst[rows]),
        pairs(stream, rows, cuts[rows], negatives.neg_src, negatives.neg_dst),
    )


def evaluate_dgb(
    scorer: Scorer,
    split: Split,
    visibility: Visibility,
    *,
    strategy: str = "random",
    sets: Sequence[str] = SETS,
    progress: Progress | None = None,
) -> Result:
    """Metrics of a fitted scorer on `val`, `test` and their inductive subsets, all from one replay of the stream."""
    cuts = visibility.cuts(split.stream.t, split.segment_starts)
    negatives = {name: DgbNegatives(split, name, strategy) for name in sets}
    asked = {name: dgb_set(split, cuts, drawn) for name, drawn in negatives.items() if len(drawn)}
    if not asked:
        raise InputError(f"none of {', '.join(sets)} has an event; ask for val and test.")
    merged = merge([queries for pair in asked.values() for queries in (pair.pos, pair.neg)])
    scores = merged.unmerge(score_queries(scorer, split.stream, merged.queries, progress=progress))
    metrics = {name: link_metrics(scores[2 * i], scores[2 * i + 1]) for i, name in enumerate(asked)}
    card = make_card(
        "dgb",
        split,
        visibility,
        negatives={
            "strategy": strategy,
            "per_positive": 1,
            "seeds": {name: drawn.seed for name, drawn in negatives.items()},
            "positives": {name: len(drawn) for name, drawn in negatives.items()},
        },
        aggregation=AGGREGATION,
        notes=[INDUCTIVE_NOTE] if any(name.startswith("new_") for name in asked) else [],
    )
    return Result(scorer.name, split.stream.name, metrics, card)
