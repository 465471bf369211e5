"""The ceiling, against a count by hand, against every order there is, and against whoever claims more."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations, product

import numpy as np
import pytest

from tests.evaluation.streams import tied_split, tied_stream
from tsnn.data.dgb import split_dgb
from tsnn.data.events import NodeIds, make_stream
from tsnn.data.negatives import DgbNegatives
from tsnn.data.queries import Queries
from tsnn.data.question import Question
from tsnn.data.split import Split, make_split
from tsnn.errors import ContractError
from tsnn.evaluation.baselines import ROSTER, baseline, compared
from tsnn.evaluation.contracts import check_scorer
from tsnn.evaluation.evaluate import evaluate, make_questions
from tsnn.evaluation.metrics import BATCH, average_precision, ranks, roc_auc
from tsnn.evaluation.oracle import Oracle, beyond_luck, luck
from tsnn.types import Visibility

VISIBILITIES = ("strict", "arrival", "batch:7")


def dgb_split() -> Split:
    return split_dgb(tied_stream(5, events=900, nodes=30, times=120))


def firm_split() -> Split:
    """Enough rows and true negatives for the ceiling to stand well below 100, luck included."""
    return split_dgb(tied_stream(5, events=6000, nodes=10, times=600))


def mean_of_batches(metric, pos: list[float], neg: list[float]) -> float:
    starts = range(0, len(pos), BATCH)
    return 100 * float(np.mean([metric(pos[i : i + BATCH], neg[i : i + BATCH]) for i in starts]))


@pytest.mark.parametrize("strategy", ["random", "historical", "inductive"])
@pytest.mark.parametrize("visibility", VISIBILITIES)
def test_the_ceiling_is_what_counting_by_hand_gives(visibility: str, strategy: str) -> None:
    """Row by row and candidate by candidate, in plain Python: how many rows of this moment are this very event?"""
    split, rule = dgb_split(), Visibility.parse(visibility)
    stream = split.stream
    cuts = rule.cuts(stream.t, split.segment_starts).tolist()
    rows = list(zip(cuts, stream.t.tolist(), stream.src.tolist(), stream.dst.tolist(), strict=True))
    questions = make_questions(split, Question(rule, negatives=strategy), protocol="dgb")

    def worth(cut: int, t: float, src: int, dst: int) -> float:
        same = sum(row == (cut, t, src, dst) for row in rows)
        return same / max(sum(row[:3] == (cut, t, src) for row in rows), 1) if strategy == "random" else same

    assert set(questions.ceilings) == {"val", "new_val", "test", "new_test"}
    for name, found in questions.ceilings.items():
        drawn = DgbNegatives(split, name, strategy)
        asked = list(zip(drawn.rows.tolist(), drawn.neg_src.tolist(), drawn.neg_dst.tolist(), strict=True))
        pos = [worth(*rows[row]) for row, _, _ in asked]
        neg = [worth(*rows[row][:2], src, dst) for row, src, dst in asked]
        assert found["ap"] == pytest.approx(mean_of_batches(average_precision, pos, neg))
        assert found["auc"] == pytest.approx(mean_of_batches(roc_auc, pos, neg))
        assert all(value > 0 for value in pos), "every positive happens"
        if strategy == "random" and visibility == "strict":
            assert any(neg), "or the ceiling would be 100"
            assert found["auc"] < 99.5


def test_no_order_of_the_events_is_better_than_the_oracles() -> None:
    """One moment, all orders of all events that can be asked, all negatives that can be drawn: nobody beats it."""
    pairs = [(0, 3), (0, 3), (0, 4), (1, 3), (2, 4), (2, 5), (2, 5), (2, 5)]
    src, dst = np.array(pairs).T
    stream = make_stream(src, dst, np.ones(len(src)), ids=NodeIds(range(6)))
    split = Split(stream, 0, 0, np.zeros(6, np.bool_))
    oracle = Oracle()
    oracle.fit(split, Question(Visibility("strict")))
    events = list(product(range(3), range(3, 6)))
    happens = sorted(set(pairs))

    def expected_auc(score: dict[tuple[int, int], float]) -> float:
        """Over all negatives: each row's source with each of the three destinations."""
        drawn = [(s, d) for s, _ in pairs for d in range(3, 6)]
        return float(np.mean([(score[p] > score[n]) + 0.5 * (score[p] == score[n]) for p in pairs for n in drawn]))

    src, dst = np.array(events).T
    none = np.zeros(len(events), np.int64)
    known = oracle.known(Queries(none, src, np.ones(len(events)), none, np.arange(len(events) + 1), dst))
    worth = dict(zip(events, known.tolist(), strict=True))
    best = max(
        expected_auc(dict.fromkeys(events, 0.0) | dict(zip(happens, order, strict=True)))
        for order in permutations(range(1, len(happens) + 1))
    )
    assert expected_auc(worth) == pytest.approx(best)
    indicator = {event: float(event in happens) for event in events}
    assert expected_auc(indicator) < best - 0.01, "who knows only which events happen leaves something to be had"


@pytest.mark.parametrize("protocol", ["dgb", "stream"])
@pytest.mark.parametrize("visibility", VISIBILITIES)
def test_the_oracle_gets_its_ceiling_by_the_usual_door_and_nobody_more(protocol: str, visibility: str) -> None:
    split, question = dgb_split(), Question(Visibility.parse(visibility))
    own = evaluate(baseline("oracle"), split, question, protocol=protocol)
    assert own.metrics == own.card.ceilings
    assert "no method's" in own.remark
    for name in compared():
        found = evaluate(baseline(name), split, question, protocol=protocol)
        assert found.card.ceilings == own.metrics
        assert not found.remark
        assert all(found.metrics[part]["auc"] < ceiling["auc"] for part, ceiling in own.metrics.items())


def test_with_relations_and_from_both_ends() -> None:
    rng = np.random.default_rng(0)
    stream = replace(tied_stream(times=40), edge_type=rng.integers(0, 2, 300))
    split = make_split(stream, 200, 250)
    questions = make_questions(split, Question(), protocol="stream")
    part, rows = questions.parts[1], list(zip(stream.t, stream.edge_type, stream.src, stream.dst, strict=True))
    expected = []
    for i, row in enumerate(part.asks.rows):
        asked = [stream.dst[row], *part.nodes[part.bounds[i] + 1 : part.bounds[i + 1]]]
        counts = [sum(r == (*rows[row][:3], node) for r in rows) for node in asked]
        expected.append(ranks(np.array(counts, float), np.array([0, len(counts)]))[0])
    assert max(expected) > 1, "some negatives happen"
    assert questions.ceilings["test"]["mrr"] == pytest.approx(np.mean(1 / np.array(expected)))
    both = make_questions(make_split(stream.as_undirected(), 200, 250), Question(), protocol="stream")
    assert 0.5 < both.ceilings["test"]["mrr"] < 1
    fared = evaluate(Oracle(), both.split, Question())
    assert fared.metrics == both.ceilings, "either end is asked, and the oracle knows both"


def test_more_than_luck_is_told_and_luck_is_not() -> None:
    questions = make_questions(firm_split(), Question(), protocol="dgb", sets=["test"])
    known, limits = questions.ceilings, luck(questions)
    assert all(limits[part][m] >= known[part][m] for part in known for m in known[part])
    lucky = {"test": {"ap": (known["test"]["ap"] + limits["test"]["ap"]) / 2}}
    assert beyond_luck(questions, lucky) == []
    assert beyond_luck(questions, known) == []
    (told,) = beyond_luck(questions, {"test": {"ap": 99.99, "auc": known["test"]["auc"] - 1}})
    assert told.startswith("test ap 99.99 is more than anybody can get who knows every event")


def test_a_figure_that_nobody_can_have_got_carries_a_remark() -> None:
    """The candidate in the place of the positive, told by nothing but the order of the questions."""

    class Ordered(type(baseline("popularity"))):  # a class of this package passes the check of its contracts
        name = "ordered"

        def score(self, plan, versions):
            return np.resize([1.0, 0.0], len(plan.score.cand))

    Ordered.__module__ = "tsnn.evaluation.baselines"
    found = evaluate(Ordered(), firm_split(), Question(Visibility("arrival")), protocol="dgb", sets=["test"])
    assert found.metrics["test"]["ap"] == 100
    assert "answered with more than was asked" in found.remark


def test_the_oracle_is_no_method() -> None:
    assert [name for name, entry in ROSTER.items() if entry.foresees] == ["oracle"]
    assert "oracle" not in compared() + compared(sources_differ=True)
    with pytest.raises(ContractError):
        check_scorer(baseline("oracle"))
    assert evaluate(baseline("oracle"), tied_split(), Question()).metrics, "it gets figures all the same"
