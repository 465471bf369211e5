"""What may be seen of rows that train nobody: nothing, or all of them, by a word on the card."""

from __future__ import annotations

from dataclasses import replace

import pytest

import tsnn
from tests.evaluation.streams import tied_stream
from tsnn.config import Config
from tsnn.data.dgb import split_dgb
from tsnn.data.negatives import DgbNegatives
from tsnn.data.question import Question
from tsnn.errors import InputError
from tsnn.evaluation.baselines import baseline
from tsnn.evaluation.evaluate import evaluate
from tsnn.evaluation.metrics import link_metrics
from tsnn.evaluation.slices import error_slices

SETS = ("val", "new_val", "test", "new_test")
TINY = Config.build(
    overrides={"train.epochs": 0, "train.warmup": 1, "model.stalk_dim": 8, "model.hidden_dim": 8, "model.score_dim": 8}
)
FULL = Config.build(overrides={**TINY.model_dump(exclude_defaults=True), "train.history": "full"})


def stream():
    return replace(tied_stream(5, events=900, nodes=30, times=300), name="dgb:toy")


@pytest.mark.parametrize("strategy", ["random", "historical", "inductive"])
def test_with_the_full_history_all_earlier_rows_count_and_the_questions_stay(strategy: str) -> None:
    split, whole = split_dgb(stream()), stream()
    assert 0 < split.held_out == whole.num_events - split.stream.num_events
    found = evaluate(baseline("popularity"), split, Question(negatives=strategy, history="full"), protocol="dgb")
    assert found.card.question["history"] == "full"
    assert found.card.split["held_out"] == split.held_out

    def popularity(node: int, t: float) -> int:
        return int(((whole.dst == node) & (whole.t < t)).sum())

    for name in SETS:
        drawn = DgbNegatives(split, name, strategy)
        t, dst = split.stream.t[drawn.rows], split.stream.dst[drawn.rows]
        pos = [popularity(node, at) for node, at in zip(dst, t, strict=True)]
        neg = [popularity(node, at) for node, at in zip(drawn.neg_dst, t, strict=True)]
        assert found.metrics[name] == pytest.approx(link_metrics(pos, neg))
    usual = evaluate(baseline("popularity"), split, Question(negatives=strategy), protocol="dgb")
    assert usual.metrics != found.metrics
    assert usual.card.ceilings == found.card.ceilings, "what happens at the moment asked about is in either history"
    assert usual.card.data == found.card.data


def test_every_baseline_knows_which_history_it_reads() -> None:
    split = split_dgb(stream())
    own = evaluate(baseline("oracle"), split, Question(history="full"), protocol="dgb")
    assert own.metrics == own.card.ceilings
    for name in ("edgebank:repeat_interval", "features"):
        full, usual = (
            evaluate(baseline(name), split, Question(negatives="historical", history=history), protocol="dgb")
            for history in ("full", "train")
        )
        assert full.metrics["test"]["ap"] != usual.metrics["test"]["ap"]


def test_slices_are_of_the_same_rows() -> None:
    split = split_dgb(stream())
    sizes = [
        {(one.by, one.slice): one.count for one in error_slices(baseline("recency"), split, Question(history=history))}
        for history in ("train", "full")
    ]
    for kind in ("both", "not both"):
        assert sizes[0]["nodes in training", kind] == sizes[1]["nodes in training", kind]
    assert sizes[0]["kind of event", "repeat"] < sizes[1]["kind of event", "repeat"]


def test_a_run_keeps_its_history_and_is_evaluated_again_with_it(tmp_path) -> None:
    run = tsnn.train(stream(), tmp_path / "full", FULL, compare=False, progress=False)
    usual = tsnn.train(stream(), tmp_path / "train", TINY, compare=False, progress=False)
    assert run.question.history == "full"
    assert run.metrics["metrics"] != usual.metrics["metrics"]
    assert run.metrics["card"]["data"] == usual.metrics["card"]["data"], "trained on the same rows"
    for name, weight in run.model.state_dict().items():
        assert (weight == usual.model.state_dict()[name]).all(), name
    again = tsnn.evaluate(run, stream(), progress=False)
    assert again.metrics == run.metrics["metrics"]
    assert tsnn.evaluate(usual, stream(), history="full", progress=False).metrics == again.metrics
    with pytest.raises(InputError, match="history 'all' is none of train, full"):
        tsnn.evaluate(run, stream(), history="all", progress=False)
