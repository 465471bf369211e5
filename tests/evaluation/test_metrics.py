from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score, roc_auc_score

from tsnn.errors import InputError
from tsnn.evaluation.metrics import (
    Evaluator,
    average_precision,
    link_metrics,
    mean_over_batches,
    quick_average_precision,
    rank_metrics,
    ranks,
    roc_auc,
)

tied_scores = st.lists(st.integers(-3, 3).map(float), min_size=1, max_size=30)


@given(pos=tied_scores, neg=tied_scores)
@settings(max_examples=60, deadline=None)
def test_ap_and_auc_are_scikit_learns_also_on_ties(pos: list[float], neg: list[float]) -> None:
    labels, scores = [1] * len(pos) + [0] * len(neg), pos + neg
    assert average_precision(pos, neg) == pytest.approx(average_precision_score(labels, scores), abs=1e-12)
    assert roc_auc(pos, neg) == pytest.approx(roc_auc_score(labels, scores), abs=1e-12)


def test_auc_counts_pairs_with_half_a_point_for_a_tie() -> None:
    assert roc_auc([2.0, 1.0], [1.0, 0.0]) == pytest.approx((1 + 1 + 0.5 + 1) / 4)


def test_infinite_scores_are_ordered_and_not_refused() -> None:
    assert roc_auc([np.inf, 0.0], [-np.inf, -np.inf]) == 1.0


def test_mean_over_batches_counts_the_short_last_batch_as_one() -> None:
    pos, neg = np.array([1.0, 1.0, 0.0]), np.array([0.0, 0.0, 1.0])
    assert mean_over_batches(roc_auc, pos, neg, batch=2) == pytest.approx((1.0 + 0.0) / 2)
    assert roc_auc(pos, neg) == pytest.approx(4 / 9 + 0.5 * 4 / 9)


@pytest.mark.parametrize("size", [3, 200, 400, 523])
def test_quick_average_precision_is_the_mean_over_batches_also_on_ties(size: int) -> None:
    rng = np.random.default_rng(size)
    for levels in (2, 10, 10_000):  # scores of few levels tie often
        pos, neg = rng.integers(0, levels, size) + 0.3 * (levels > 2), rng.integers(0, levels, size)
        assert quick_average_precision(pos, neg) == pytest.approx(
            mean_over_batches(average_precision, pos, neg), abs=1e-12
        )


def test_link_metrics_are_per_cent_and_blind_to_drift_only_in_the_mean() -> None:
    drift = np.repeat([0.0, 10.0], 200)
    pos, neg = drift + 1, drift.copy()
    result = link_metrics(pos, neg)
    assert result["ap"] == result["auc"] == 100.0
    assert result["auc_pooled"] == pytest.approx(75.0)
    assert result["ap_pooled"] < 100


@given(
    queries=st.lists(st.lists(st.integers(0, 4), min_size=2, max_size=9), min_size=1, max_size=8),
)
@settings(max_examples=60, deadline=None)
def test_ranks_average_the_optimistic_and_the_pessimistic_rank_over_ragged_negatives(queries: list[list[int]]) -> None:
    ptr = np.cumsum([0] + [len(q) for q in queries])
    expected = [1 + 0.5 * (sum(n > p for n in rest) + sum(n >= p for n in rest)) for p, *rest in queries]
    np.testing.assert_allclose(ranks(np.concatenate(queries).astype(float), ptr), expected)


def test_rank_metrics_by_hand() -> None:
    result = rank_metrics([1.0, 2.5, 11.0], k=10)
    assert result["mrr"] == pytest.approx((1 + 1 / 2.5 + 1 / 11) / 3)
    assert result["hits@10"] == pytest.approx(2 / 3)


@pytest.mark.parametrize("convert", [np.asarray, lambda x: torch.tensor(x, requires_grad=True)])
def test_evaluator_takes_tgbs_dictionary(convert: object) -> None:
    result = Evaluator("tgbl-wiki").eval(
        {
            "y_pred_pos": convert([1.0, 0.0]),  # type: ignore[operator]
            "y_pred_neg": convert([[0.0, 0.5], [0.0, 0.0]]),  # type: ignore[operator]
            "eval_metric": ["mrr"],
        }
    )
    assert result == {"mrr": pytest.approx((1 + 1 / 2) / 2), "hits@10": 1.0}


@pytest.mark.parametrize("pos", [0.3, [0.3], [[0.3]]])
def test_evaluator_takes_one_positive_with_flat_negatives(pos: object) -> None:
    assert Evaluator("x").eval({"y_pred_pos": pos, "y_pred_neg": [0.1, 0.5]})["mrr"] == 0.5


@pytest.mark.parametrize(
    ("pos", "neg", "words"),
    [
        ([np.nan], [0.1, 0.2], "NaN"),
        ([0.5], [np.nan, 0.2], "NaN"),
        ([0.5, 0.6], [0.1, 0.2], "one row of negatives"),  # py-tgb broadcasts this to a wrong number
        ([0.5, 0.6], [[0.1, 0.2]], "one row of negatives"),
        ([0.5], [[]], "one row of negatives"),
        ([], [[]], "no positive"),
        (["a"], [0.1], "not numbers"),
    ],
)
def test_evaluator_refuses_what_py_tgb_turns_into_a_number(pos: object, neg: object, words: str) -> None:
    with pytest.raises(InputError, match=words):
        Evaluator("tgbl-wiki").eval({"y_pred_pos": pos, "y_pred_neg": neg, "eval_metric": ["mrr"]})


def test_evaluator_names_what_is_missing_or_unknown() -> None:
    with pytest.raises(InputError, match="y_pred_neg"):
        Evaluator("x").eval({"y_pred_pos": [1.0]})
    with pytest.raises(InputError, match="ndcg"):
        Evaluator("x").eval({"y_pred_pos": [1.0], "y_pred_neg": [0.0], "eval_metric": ["ndcg"]})


def test_wrong_shapes_are_errors() -> None:
    with pytest.raises(InputError, match="one-dimensional"):
        average_precision(np.ones((2, 2)), np.ones(2))
    with pytest.raises(InputError, match="one negative to each"):
        link_metrics(np.ones(3), np.ones(2))
    with pytest.raises(InputError, match="ptr"):
        ranks(np.ones(4), np.array([0, 1, 4]))
    with pytest.raises(InputError, match="ptr"):
        ranks(np.ones(4), np.array([0, 3]))
