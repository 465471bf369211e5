"""Error slices: they cover the positives once, and their figures are the metric on the slice."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
from typer.testing import CliRunner

from tests.study.small import DATA
from tsnn.cli.main import app
from tsnn.data.question import Question
from tsnn.data.split import Split
from tsnn.evaluation.baselines import baseline
from tsnn.evaluation.catalog import default_split, load
from tsnn.evaluation.evaluate import evaluate, make_questions
from tsnn.evaluation.metrics import average_precision, ranks
from tsnn.evaluation.questions import Outcomes
from tsnn.evaluation.replay import Answers, replay, score_queries
from tsnn.evaluation.scorer import Scorer
from tsnn.evaluation.slices import FACTS, FEW, error_slices, masks

QUESTION = Question()


@pytest.fixture(scope="module")
def split() -> Split:
    return default_split(load(DATA))


def fared_and_facts(scorer: Scorer, split: Split) -> tuple[Outcomes, dict[str, np.ndarray]]:
    questions = make_questions(split, QUESTION, sets=("test",))
    scores = Answers(questions)
    facts = {name: Answers(questions, lambda seen, name=name: seen.fact(name)) for name in FACTS}
    replay(scorer, split.stream, [scores, *facts.values()])
    return scores.outcomes()["test"], {name: a.outcomes()["test"].positive for name, a in facts.items()}


def test_facts_are_those_of_a_plain_count(split: Split) -> None:
    stream = split.stream
    fared, facts = fared_and_facts(baseline("popularity"), split)
    for at, row in list(enumerate(fared.rows))[::10]:
        before = stream.t < stream.t[row]
        same = before & (stream.src == stream.src[row]) & (stream.dst == stream.dst[row])
        node = before & ((stream.src == stream.dst[row]) | (stream.dst == stream.dst[row]))
        assert facts["pair_count"][at] == same.sum()
        assert facts["dst_count"][at] == node.sum()
        expected = stream.t[row] - stream.t[same].max() if same.any() else -1
        assert facts["pair_gap"][at] == pytest.approx(expected)


def test_slices_by_one_thing_cover_the_positives_once(split: Split) -> None:
    fared, facts = fared_and_facts(baseline("popularity"), split)
    covered: dict[str, np.ndarray] = {}
    for by, _, chosen in masks(split, fared.rows, facts):
        covered[by] = covered.get(by, np.zeros(len(fared.rows))) + chosen
    recency = covered.pop("pair last met")
    assert {by: set(count) for by, count in covered.items()} == {by: {1.0} for by in covered}
    assert (recency == (facts["pair_count"] > 0)).all()


def test_a_slice_holds_its_own_positives_and_negatives(split: Split) -> None:
    scorer = baseline("edgebank:unlimited")
    found = {(entry.by, entry.slice): entry for entry in error_slices(scorer, split, QUESTION)}
    fared, facts = fared_and_facts(scorer, split)
    repeat = facts["pair_count"] > 0
    own = found["kind of event", "repeat"]
    assert own.count == repeat.sum() > 0
    assert (fared.positive[repeat] == 1).all(), "EdgeBank knows every repeat"
    assert (fared.positive[~repeat] == 0).all()
    assert own.ap == pytest.approx(100 * average_precision(fared.positive[repeat], fared.negative[repeat]))
    assert own.mrr == pytest.approx((1 / fared.rank[repeat]).mean())
    assert min(entry.count for entry in found.values()) >= FEW


@pytest.mark.parametrize("name", ["popularity", "edgebank"])
def test_all_of_a_segment_is_the_protocols_own_figure(split: Split, name: str) -> None:
    """The negative that AP is measured against is not among the candidates that MRR ranks."""
    whole = error_slices(baseline(name), split, QUESTION)[0]
    figures = evaluate(baseline(name), split, QUESTION, sets=("test",)).metrics["test"]
    assert whole.slice == "all"
    assert whole.ap == pytest.approx(figures["ap_pooled"])
    assert whole.mrr == pytest.approx(figures["mrr"])
    asked = make_questions(split, QUESTION, sets=("test",)).asked
    with_it = ranks(score_queries(baseline(name), split.stream, asked), asked.ptr)
    assert (1 / with_it).mean() != pytest.approx(figures["mrr"])


def test_all_of_a_suite_is_its_pooled_figure(need_data) -> None:
    need_data("dgb/uci")
    split = default_split(load("dgb:uci"))
    scorer = baseline("popularity")
    whole = error_slices(scorer, split, QUESTION)[0]
    assert whole.ap == pytest.approx(evaluate(scorer, split, QUESTION, sets=("test",)).metrics["test"]["ap_pooled"])


def test_the_command_and_the_report_print_one_table(tmp_path) -> None:
    folder, settings = tmp_path / "run", ["train.epochs=1", "model.stalk_dim=8", "model.hidden_dim=8"]
    words = [word for text in settings for word in ("--set", text)]
    trained = CliRunner().invoke(app, ["train", DATA, "--out", str(folder), "--no-compare", "--json", *words])
    assert trained.exit_code == 0, trained.output
    told = CliRunner().invoke(app, ["slices", str(folder), DATA, "--segment", "test", "--json"])
    assert told.exit_code == 0, told.output
    printed = [
        [s["by"], s["slice"], f"{s['count']:,}", f"{s['ap']:.2f}", f"{s['mrr']:.4f}"]
        for s in json.loads(told.stdout)["slices"]
    ]
    table = (folder / "report.html").read_text().partition("<summary>as a table</summary>")[2].partition("</table>")[0]
    rows = [re.findall(r"<td[^>]*>([^<]*)</td>", row) for row in table.split("<tr")]
    assert [row for row in rows if row] == printed
    figures = json.loads(trained.stdout)["metrics"]["test"]
    assert printed[0][3:] == [f"{figures['ap_pooled']:.2f}", f"{figures['mrr']:.4f}"]
