"""Published figures of EdgeBank, and what equal timestamps hide: regression tests of the whole chain."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from tsnn.data.dgb import load_dgb, split_dgb
from tsnn.data.question import Question
from tsnn.data.split import Split, split_by_time
from tsnn.data.tgb import load_tgb
from tsnn.data.tgb_negatives import TgbNegatives
from tsnn.evaluation.baselines import baseline
from tsnn.evaluation.evaluate import evaluate
from tsnn.evaluation.replay import figures
from tsnn.evaluation.tgb import TgbQuestions
from tsnn.types import Visibility

Folder = Callable[[str], Path]


@cache
def dgb_split(folder: Path) -> Split:
    return split_dgb(load_dgb(folder))


@cache
def tgb_split(folder: Path) -> tuple[Split, TgbNegatives]:
    split = split_by_time(load_tgb(folder))
    return split, TgbNegatives(split, folder)


def on_test(folder: Path, scorer_name: str, visibility_text: str) -> dict[str, float]:
    split, visibility = dgb_split(folder), Visibility.parse(visibility_text)
    scorer = baseline(scorer_name, data=split.stream.name)
    return evaluate(scorer, split, visibility, protocol="dgb", sets=("test",)).metrics["test"]


@pytest.mark.parametrize(
    ("name", "scorer", "visibility", "ap", "auc"),
    [
        ("wikipedia", "edgebank", "batch:200", 90.37, 90.78),
        ("uci", "edgebank", "batch:200", 76.20, 77.30),
        ("enron", "edgebank", "batch:200", 83.53, 87.05),
        ("enron", "edgebank:unlimited", "batch:200", 80.37, 85.36),
        ("USLegis", "edgebank", "batch:200", 58.39, 62.57),
        ("CanParl", "edgebank", "batch:200", 64.55, 64.14),
        ("mooc", "edgebank", "batch:200", 57.97, 60.86),
        ("wikipedia", "edgebank", "arrival", 93.34, 93.76),
        ("uci", "edgebank", "arrival", 83.01, 84.16),
        ("enron", "edgebank:unlimited", "arrival", 83.92, 89.66),
    ],
)
def test_edgebank_on_dgb(name: str, scorer: str, visibility: str, ap: float, auc: float, need_data: Folder) -> None:
    result = on_test(need_data(f"dgb/{name}"), scorer, visibility)
    assert (round(result["ap"], 2), round(result["auc"], 2)) == (ap, auc)


@pytest.mark.parametrize(("mode", "mrr"), [("unlimited", 0.4947), ("fixed_time_window", 0.5710)])
def test_edgebank_on_tgbl_wiki(mode: str, mrr: float, need_data: Folder) -> None:
    split, negatives = tgb_split(need_data("tgb/tgbl_wiki"))
    question = Question(Visibility.parse("batch:200"))
    scorer = baseline(f"edgebank:{mode}")
    scorer.fit(split, question)
    result = figures(scorer, split.stream, TgbQuestions(split, question, ("test",), negatives))
    assert round(result.metrics["test"]["mrr"], 4) == mrr


def test_recency_reads_the_block_order_of_canparl_unless_visibility_is_strict(need_data: Folder) -> None:
    folder = need_data("dgb/CanParl")
    assert on_test(folder, "recency", "arrival")["ap_pooled"] == pytest.approx(94.7, abs=0.3)
    assert on_test(folder, "recency", "strict")["ap_pooled"] == pytest.approx(64.1, abs=0.3)


def test_features_reach_the_floor_of_uslegis(need_data: Folder) -> None:
    result = on_test(need_data("dgb/USLegis"), "features", "strict")
    assert result["ap"] == pytest.approx(68.97, abs=1.0)
    assert result["auc"] == pytest.approx(75.21, abs=1.0)
