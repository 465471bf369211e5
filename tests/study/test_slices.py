"""Error slices: they cover the positives once, and their figures are the metric on the slice."""

from __future__ import annotations

import numpy as np
import pytest

from tests.study.small import DATA
from tsnn.data.catalog import default_split, load
from tsnn.evaluation.baselines import baseline
from tsnn.evaluation.evaluate import evaluate
from tsnn.evaluation.metrics import average_precision
from tsnn.study.slices import error_slices, positive_facts, score_segment, slices
from tsnn.types import Visibility

STRICT = Visibility.parse("strict")


@pytest.fixture(scope="module")
def split():
    return default_split(load(DATA))


def test_facts_are_those_of_a_plain_count(split):
    stream = split.stream
    rows = np.arange(split.val_end, stream.num_events)
    facts = positive_facts(split, STRICT, rows)
    for at, row in list(enumerate(rows))[::10]:
        before = stream.t < stream.t[row]
        same = before & (stream.src == stream.src[row]) & (stream.dst == stream.dst[row])
        node = before & ((stream.src == stream.dst[row]) | (stream.dst == stream.dst[row]))
        assert facts["pair_count"][at] == same.sum()
        assert facts["dst_count"][at] == node.sum()
        expected = stream.t[row] - stream.t[same].max() if same.any() else -1
        assert facts["pair_gap"][at] == pytest.approx(expected)


def test_slices_of_one_kind_cover_the_positives_once(split):
    rows = np.arange(split.val_end, split.stream.num_events)
    facts = positive_facts(split, STRICT, rows)
    covered: dict[str, np.ndarray] = {}
    for by, _, chosen in slices(split, rows, facts):
        covered[by] = covered.get(by, np.zeros(len(rows))) + chosen
    recency = covered.pop("pair's gap, in mean gaps")
    assert {by: set(count) for by, count in covered.items()} == {by: {1.0} for by in covered}
    assert (recency == (facts["pair_count"] > 0)).all()


def test_a_slice_holds_its_own_positives_and_negatives(split):
    scorer = baseline("edgebank:unlimited")
    found = {(entry["by"], entry["slice"]): entry for entry in error_slices(scorer, split, STRICT)}
    scored = score_segment(scorer, split, STRICT, "test")
    repeat = positive_facts(split, STRICT, scored.rows)["pair_count"] > 0
    assert found["history", "repeat"]["count"] == repeat.sum() > 0
    assert (scored.pos[repeat] == 1).all(), "EdgeBank knows every repeat"
    assert (scored.pos[~repeat] == 0).all()
    expected = 100 * average_precision(scored.pos[repeat], scored.neg[repeat])
    assert found["history", "repeat"]["ap"] == pytest.approx(expected)
    assert found["history", "repeat"]["mrr"] == pytest.approx((1 / scored.rank[repeat]).mean())


def test_all_of_a_suite_is_its_pooled_figure(need_data):
    need_data("dgb/uci")
    split = default_split(load("dgb:uci"))
    scorer = baseline("popularity")
    whole = error_slices(scorer, split, STRICT)[0]
    assert whole["slice"] == "all"
    assert whole["ap"] == pytest.approx(evaluate(scorer, split, STRICT, sets=("test",)).metrics["test"]["ap_pooled"])
