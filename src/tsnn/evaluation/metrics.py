"""Metrics: average precision and AUC over pairs, reciprocal rank and hits over one-versus-many queries.

DGB takes the unweighted mean over batches of 200 positives, the last and shorter one included; TGB the mean over
positives. A NaN or a wrong shape is an error: in TGB's own evaluator a NaN positive would rank first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tsnn.errors import InputError
from tsnn.types import F64, I64

BATCH = 200  # positives per batch of the DGB mean


def average_precision(pos: ArrayLike, neg: ArrayLike) -> float:
    """Area under precision-recall of positive against negative scores, ties as scikit-learn has them."""
    from sklearn.metrics import average_precision_score  # a second, which only figures should wait

    scores, labels = _labelled(pos, neg)
    return float(average_precision_score(labels, scores))


def roc_auc(pos: ArrayLike, neg: ArrayLike) -> float:
    """Probability that a positive outranks a negative, a tie counting one half."""
    from sklearn.metrics import roc_auc_score

    scores, labels = _labelled(pos, neg)
    return float(roc_auc_score(labels, scores))


def mean_over_batches(metric: Callable[[F64, F64], float], pos: ArrayLike, neg: ArrayLike, batch: int = BATCH) -> float:
    """Unweighted mean of a metric over consecutive batches of paired positives and negatives (DGB)."""
    p, n = _scores(pos, "positive"), _scores(neg, "negative")
    if len(p) != len(n):
        raise InputError(f"{len(p)} positives stand against {len(n)} negatives; give one negative to each.")
    return float(np.mean([metric(p[i : i + batch], n[i : i + batch]) for i in range(0, len(p), batch)]))


def quick_average_precision(pos: ArrayLike, neg: ArrayLike, batch: int = BATCH) -> float:
    """`mean_over_batches(average_precision, ...)` to rounding, whole batches at once: for figures by the hundred."""
    p, n = _scores(pos, "positive"), _scores(neg, "negative")
    whole = len(p) // batch
    found = [_average_precisions(p[: whole * batch].reshape(whole, batch), n[: whole * batch].reshape(whole, batch))]
    if whole * batch < len(p):
        found.append(_average_precisions(p[None, whole * batch :], n[None, whole * batch :]))
    return float(np.concatenate(found).mean())


def _average_precisions(pos: F64, neg: F64) -> F64:
    """Of each row, as many positives as negatives. Equal scores enter together, as at one threshold."""
    scores = np.concatenate([pos, neg], axis=1)
    order = np.argsort(-scores, axis=1, kind="stable")
    ordered = np.take_along_axis(scores, order, axis=1)
    hits = np.cumsum(order < pos.shape[1], axis=1)
    ends = np.ones(scores.shape, np.bool_)  # the last of each run of equal scores
    ends[:, :-1] = ordered[:, :-1] != ordered[:, 1:]
    before = np.zeros_like(hits)
    before[:, 1:] = np.maximum.accumulate(np.where(ends, hits, 0), axis=1)[:, :-1]
    precision = hits / np.arange(1, scores.shape[1] + 1)
    steps = np.where(ends, (hits - before) * precision, 0.0)
    found: F64 = steps.sum(axis=1) / pos.shape[1]
    return found


def link_metrics(pos: ArrayLike, neg: ArrayLike, batch: int = BATCH) -> dict[str, float]:
    """AP and AUC in per cent, as the mean over batches and pooled."""
    p, n = _scores(pos, "positive"), _scores(neg, "negative")
    return {
        "ap": 100 * mean_over_batches(average_precision, p, n, batch),
        "auc": 100 * mean_over_batches(roc_auc, p, n, batch),
        "ap_pooled": 100 * average_precision(p, n),
        "auc_pooled": 100 * roc_auc(p, n),
    }


def ranks(scores: ArrayLike, ptr: I64) -> F64:
    """Rank of the first candidate of each query among its others: the mean of the optimistic and pessimistic rank.

    Query q holds `scores[ptr[q]:ptr[q+1]]`, positive first; queries may have different numbers of negatives.
    """
    values = _scores(scores, "candidate")
    sizes = np.diff(ptr)
    if len(ptr) < 2 or ptr[0] != 0 or ptr[-1] != len(values) or (sizes < 2).any():
        raise InputError(f"query bounds do not cut {len(values)} scores into a positive and its negatives; check ptr.")
    first = np.repeat(values[ptr[:-1]], sizes)
    greater = np.add.reduceat(values > first, ptr[:-1], dtype=np.int64)
    equal = np.add.reduceat(values == first, ptr[:-1], dtype=np.int64) - 1  # less the positive itself
    result: F64 = 1 + greater + 0.5 * equal
    return result


def rank_metrics(positive_ranks: ArrayLike, k: int = 10) -> dict[str, float]:
    """Mean reciprocal rank and hits@k over positives, as fractions."""
    r = _scores(positive_ranks, "rank")
    return {"mrr": float(np.mean(1 / r)), f"hits@{k}": float(np.mean(r <= k))}


class Evaluator:
    """TGB's evaluator: the same dictionary in, the same names out, and an error where py-tgb returns a wrong number."""

    def __init__(self, name: str, k_value: int = 10) -> None:
        self.name = name
        self.k_value = k_value

    def eval(self, input_dict: dict[str, Any], verbose: bool = False) -> dict[str, float]:
        """MRR and hits@k of `y_pred_pos` (B,) against `y_pred_neg` (B, K), or (K,) where B is 1."""
        missing = {"y_pred_pos", "y_pred_neg"} - input_dict.keys()
        if missing:
            raise InputError(f"the evaluator's dictionary lacks {' and '.join(sorted(missing))}; add them.")
        known = ("mrr", "hits@", f"hits@{self.k_value}")
        unknown = [name for name in input_dict.get("eval_metric", []) if name not in known]
        if unknown:
            raise InputError(f"eval_metric {unknown[0]!r} is unknown; use 'mrr' or 'hits@'.")
        pos = _scores(np.ravel(_numpy(input_dict["y_pred_pos"])), "positive")
        neg = _numpy(input_dict["y_pred_neg"])
        rows = neg[None, :] if neg.ndim == 1 and len(pos) == 1 else neg
        if rows.ndim != 2 or len(rows) != len(pos) or rows.shape[1] == 0:
            shape = f"y_pred_neg has shape {neg.shape} for {len(pos)} positives"
            raise InputError(f"{shape}; give one row of negatives to each positive.")
        scores = np.concatenate([pos[:, None], rows], axis=1)
        ptr = np.arange(len(pos) + 1, dtype=np.int64) * scores.shape[1]
        result = rank_metrics(ranks(scores.ravel(), ptr), self.k_value)
        if verbose:
            print(f"{self.name}: {result}")
        return result


def _numpy(values: Any) -> NDArray[np.generic]:
    if hasattr(values, "detach"):
        values = values.detach().cpu().numpy()
    return np.asarray(values)


def _scores(values: ArrayLike, what: str) -> F64:
    try:
        array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError(f"{what} scores are not numbers; give a one-dimensional numeric array.") from None
    if array.ndim != 1:
        raise InputError(f"{what} scores have shape {array.shape}; give a one-dimensional array.")
    if len(array) == 0:
        raise InputError(f"there are no {what} scores; give at least one.")
    if np.isnan(array).any():
        raise InputError(f"{int(np.isnan(array).sum())} of {len(array)} {what} scores are NaN; find out why first.")
    return array


def _labelled(pos: ArrayLike, neg: ArrayLike) -> tuple[F64, I64]:
    p, n = _scores(pos, "positive"), _scores(neg, "negative")
    labels = np.concatenate([np.ones(len(p), np.int64), np.zeros(len(n), np.int64)])
    # scikit-learn refuses infinities; ranks carry the same order and the same ties
    return np.unique(np.concatenate([p, n]), return_inverse=True)[1].astype(np.float64), labels
