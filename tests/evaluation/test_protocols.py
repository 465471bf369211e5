from __future__ import annotations

import json
from collections.abc import Callable

import numpy as np
import pytest

from tests.evaluation.streams import tied_split, tied_stream
from tsnn.data.dgb import split_dgb
from tsnn.data.events import EventStream
from tsnn.data.negatives import DgbNegatives
from tsnn.data.question import Question, asks
from tsnn.data.split import Split
from tsnn.data.tgb_negatives import TgbNegatives, generate_negatives
from tsnn.errors import ConfigError, InputError
from tsnn.evaluation.baselines import EdgeBank, Popularity
from tsnn.evaluation.dgb import SETS, DgbQuestions
from tsnn.evaluation.evaluate import evaluate
from tsnn.evaluation.metrics import Evaluator, link_metrics
from tsnn.evaluation.questions import Outcomes, Questions
from tsnn.evaluation.replay import figures, score_queries
from tsnn.evaluation.stream import StreamQuestions, distinct, draw_negatives
from tsnn.evaluation.tgb import TgbQuestions
from tsnn.types import Visibility

BATCHES = Visibility.parse("batch:7")


def seen_pair(stream: EventStream, cut: int, src: int, dst: int) -> float:
    return float(((stream.src[:cut] == src) & (stream.dst[:cut] == dst)).any())


@pytest.mark.parametrize("strategy", ["random", "historical", "inductive"])
def test_dgb_asks_each_pair_at_the_positives_cut(strategy: str) -> None:
    split = split_dgb(tied_stream(5, events=900, nodes=30, times=300))
    stream = split.stream
    result = evaluate(EdgeBank(), split, Question(BATCHES, negatives=strategy), protocol="dgb")
    cuts = BATCHES.cuts(stream.t, split.segment_starts)
    for name in SETS:
        drawn = DgbNegatives(split, name, strategy)
        triples = zip(drawn.rows, stream.src[drawn.rows], stream.dst[drawn.rows], strict=True)
        pos = [seen_pair(stream, cuts[r], u, v) for r, u, v in triples]
        neg = [seen_pair(stream, cuts[r], *p) for r, *p in zip(drawn.rows, drawn.neg_src, drawn.neg_dst, strict=True)]
        assert result.metrics[name] == pytest.approx(link_metrics(pos, neg))
        assert result.card.negatives["positives"][name] == len(drawn)


def test_batches_restart_at_each_segment() -> None:
    split = split_dgb(tied_stream(5, events=900, nodes=30, times=300))
    cuts = BATCHES.cuts(split.stream.t, split.segment_starts)
    assert cuts[split.train_end] == split.train_end
    assert cuts[split.val_end] == split.val_end


def test_a_result_is_json_with_its_card() -> None:
    split = split_dgb(tied_stream(5, events=900, nodes=30, times=300))
    result = json.loads(json.dumps(evaluate(EdgeBank(), split, BATCHES, protocol="dgb").to_dict(), allow_nan=False))
    assert set(result) == {"scorer", "data", "metrics", "card", "remark"}
    assert set(result["metrics"]) == {"val", "test", "new_val", "new_test"}
    assert set(result["metrics"]["test"]) == {"ap", "auc", "ap_pooled", "auc_pooled"}
    card = result["card"]
    assert card["visibility"] == "batch:7"
    question = {"visibility": "batch:7", "candidates": "destinations", "negatives": "random", "direction": "directed"}
    assert card["question"] == question | {"history": "train"}
    assert card["data"]["fingerprint"] == split.stream.fingerprint()
    assert card["split"]["train"] + card["split"]["val"] + card["split"]["test"] == split.stream.num_events
    assert card["negatives"]["seeds"]["test"] == 2
    assert {"python", "tsnn", "torch", "numpy"} <= set(card["versions"])
    assert any("new_test" in note for note in card["notes"])


def test_tgb_is_the_evaluator_applied_event_by_event() -> None:
    split = tied_split(2)
    stream = split.stream
    negatives = TgbNegatives(split)
    negatives._generated = generate_negatives(split, 7)
    negatives.name = "tgbl-wiki"
    result = figures(Popularity(), stream, TgbQuestions(split, Question(BATCHES), lists=negatives))
    cuts = BATCHES.cuts(stream.t, split.segment_starts)
    for name in ("val", "test"):
        ptr, nodes = negatives.query(name)
        mrr = []
        for i, row in enumerate(range(*split.bounds(name))):
            seen = np.bincount(stream.dst[: cuts[row]], minlength=stream.num_nodes)
            scores = {"y_pred_pos": [seen[stream.dst[row]]], "y_pred_neg": seen[nodes[ptr[i] : ptr[i + 1]]]}
            mrr.append(Evaluator("tgbl-wiki").eval(scores)["mrr"])
        assert result.metrics[name]["mrr"] == pytest.approx(np.mean(mrr))
    assert json.dumps(result.to_dict(), allow_nan=False)


def test_any_stream_gets_both_kinds_of_figures() -> None:
    split = tied_split(4)
    result = evaluate(EdgeBank(), split, Visibility.parse("strict"), protocol="stream")
    assert {"val", "test"} <= set(result.metrics)
    assert set(result.metrics["test"]) == {"ap", "auc", "ap_pooled", "auc_pooled", "mrr", "hits@10"}
    assert result.card.negatives["ranked_against"]["test"] == len(np.unique(split.stream.dst)) - 1
    again = evaluate(EdgeBank(), split, Visibility.parse("strict"), protocol="stream")
    assert again.to_dict() == result.to_dict()
    assert json.dumps(result.to_dict(), allow_nan=False)


def tgb_questions(split: Split, question: Question) -> TgbQuestions:
    negatives = TgbNegatives(split)
    negatives._generated, negatives.name = generate_negatives(split, 7), "tgbl-wiki"
    return TgbQuestions(split, question, lists=negatives)


def outcomes_of(questions: Questions, stream: EventStream) -> dict[str, Outcomes]:
    return questions.outcomes(
        questions.answers(score_queries(Popularity(), stream, questions.asked), questions.asked.ptr)
    )


def seen_before(stream: EventStream, cut: int) -> np.ndarray:
    return np.bincount(stream.dst[:cut], minlength=stream.num_nodes).astype(float)


@pytest.mark.parametrize("protocol", [tgb_questions, StreamQuestions])
def test_outcomes_are_each_positive_among_its_negatives(protocol: Callable[..., Questions]) -> None:
    """Rebuilt one query at a time; the one negative of `stream` for AP is not among those that rank."""
    split = split_dgb(tied_stream(5, events=900, nodes=30, times=300))
    stream, questions = split.stream, protocol(split, Question(BATCHES))
    outcomes, asked = outcomes_of(questions, stream), questions.asked
    rows = np.arange(split.train_end, stream.num_events)
    np.testing.assert_array_equal(np.concatenate([outcomes["val"].rows, outcomes["test"].rows]), rows)
    for i, row in enumerate(rows):
        query, own = asked.slice(i, i + 1), outcomes["val" if row < split.val_end else "test"]
        seen, at = seen_before(stream, int(query.cut[0]))[query.cand], row - own.rows[0]
        ranked = seen[2:] if protocol is StreamQuestions else seen[1:]
        rank = 1 + (ranked > seen[0]).sum() + (ranked == seen[0]).sum() / 2
        assert (own.positive[at], own.negative[at], own.rank[at]) == (seen[0], seen[1], rank)
    if protocol is StreamQuestions:
        new, test = outcomes["new_test"], outcomes["test"]
        np.testing.assert_array_equal(new.rows, split.new_rows(split.val_end, stream.num_events))
        np.testing.assert_array_equal(new.rank, test.rank[np.isin(test.rows, new.rows)])


@pytest.mark.parametrize("strategy", ["random", "historical"])
def test_outcomes_of_dgb_are_each_positive_beside_its_one_negative(strategy: str) -> None:
    split = split_dgb(tied_stream(5, events=900, nodes=30, times=300))
    stream, cuts = split.stream, BATCHES.cuts(split.stream.t, split.segment_starts)
    outcomes = outcomes_of(DgbQuestions(split, Question(BATCHES, negatives=strategy)), stream)
    assert tuple(outcomes) == SETS
    for name, own in outcomes.items():
        drawn = DgbNegatives(split, name, strategy)
        np.testing.assert_array_equal(own.rows, drawn.rows)
        seen = [seen_before(stream, cuts[row]) for row in drawn.rows]
        np.testing.assert_array_equal(own.positive, [s[v] for s, v in zip(seen, stream.dst[drawn.rows], strict=True)])
        np.testing.assert_array_equal(own.negative, [s[v] for s, v in zip(seen, drawn.neg_dst, strict=True)])
        sign = np.sign(own.negative - own.positive)
        np.testing.assert_array_equal(own.rank, 1.5 + sign / 2)


def test_figures_are_made_with_the_candidates_of_the_question() -> None:
    stream = tied_stream(0, nodes=40)
    rows = np.arange(200, 300)
    fewer = EventStream(stream.src, stream.dst // 4 * 4, stream.t, stream.ids)
    for question, pool in ((Question(), np.unique(fewer.dst)), (Question(candidates="all"), np.arange(40))):
        bounds, nodes = draw_negatives(fewer, asks(fewer, rows), question, 50, np.random.default_rng(0))
        others = nodes[bounds[7] + 1 : bounds[8]]
        np.testing.assert_array_equal(np.sort(np.r_[others, fewer.dst[rows[7]]]), pool)


def test_a_protocol_refuses_negatives_that_it_has_not() -> None:
    with pytest.raises(ConfigError, match="stream protocol has no historical negatives; its own are random"):
        StreamQuestions(tied_split(), Question(negatives="historical"))


def test_negatives_of_a_stream_are_distinct_typed_and_never_the_positive() -> None:
    stream = tied_stream(0, nodes=40)
    typed = EventStream(stream.src, stream.dst, stream.t, stream.ids, node_type=np.arange(40) % 2)
    rows = np.arange(200, 300)
    bounds, nodes = draw_negatives(typed, asks(typed, rows), Question(), 6, np.random.default_rng(0))
    assert (np.diff(bounds) == 7).all()
    for i, row in enumerate(rows):
        drawn = nodes[bounds[i] : bounds[i + 1]]
        assert len(set(drawn[1:].tolist())) == 6
        assert typed.dst[row] not in drawn[1:]
        assert set(drawn % 2) == {typed.dst[row] % 2}


@pytest.mark.parametrize(("size", "num"), [(5, 5), (9, 5), (50, 5)])
def test_distinct_draws_are_uniform_over_the_pool(size: int, num: int) -> None:
    drawn = distinct(4000, size, num, np.random.default_rng(0))
    assert all(len(set(row)) == num for row in drawn.tolist())
    share = np.bincount(drawn.ravel(), minlength=size) / 4000
    np.testing.assert_allclose(share, num / size, atol=0.05)


def test_a_stream_with_one_destination_cannot_be_ranked() -> None:
    stream = tied_stream()
    lonely = EventStream(stream.src, np.zeros_like(stream.dst), stream.t, stream.ids)
    with pytest.raises(InputError, match="no other destination"):
        draw_negatives(lonely, asks(lonely, np.arange(5)), Question(), 10, np.random.default_rng(0))
