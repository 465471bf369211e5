"""A method of one's own: what it is told, when, and that it can know no more."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import tsnn
from tests.evaluation.streams import tied_split, tied_stream
from tsnn.data.dgb import load_dgb, split_dgb
from tsnn.data.events import EventStream
from tsnn.data.queries import pairs
from tsnn.data.question import Question
from tsnn.errors import InputError
from tsnn.evaluation.contracts import check_scorer
from tsnn.evaluation.method import MethodScorer, as_scorer, told
from tsnn.evaluation.replay import score_queries
from tsnn.types import Visibility

VISIBILITIES = ("strict", "arrival", "batch:7")


class Met:
    """Whether the pair has met."""

    def __init__(self):
        self.seen = set()

    def observe(self, row):
        self.seen.add((row.src, row.dst))

    def score(self, src, candidates, t):
        return [(src, dst) in self.seen for dst in candidates.tolist()]


class Noted:
    """Counts what it has observed, and answers with that."""

    def __init__(self):
        self.rows = []

    def observe(self, row):
        self.rows.append(row)

    def score(self, src, candidates, t):
        return np.full(len(candidates), len(self.rows))


@pytest.mark.parametrize("visibility", VISIBILITIES)
@pytest.mark.parametrize("undirected", [False, True])
def test_a_dictionary_of_pairs_is_edgebank(visibility, undirected):
    split = tied_split()
    stream = split.stream.as_undirected() if undirected else split.stream
    split = tsnn.default_split(stream)
    rule = Visibility.parse(visibility)
    own, bank = (tsnn.evaluate(s, split, rule) for s in (Met(), tsnn.baseline("edgebank:unlimited")))
    assert own.metrics == bank.metrics
    assert own.card == bank.card
    assert own.scorer == "Met"


def test_on_uci_a_dictionary_of_pairs_is_edgebank(need_data: Callable[[str], Path]):
    split = split_dgb(load_dgb(need_data("dgb/uci")))
    result = tsnn.evaluate(Met(), split, Visibility.parse("strict"), sets=("test",))
    assert round(result.metrics["test"]["ap"], 1) == 83.0


@pytest.mark.parametrize("sizes", [(2000, 100_000), (7, 11)])
def test_a_question_is_asked_when_exactly_its_rows_have_been_observed(sizes):
    stream = tied_stream()
    cut = Visibility.parse("strict").cuts(stream.t)
    rows = np.arange(stream.num_events)
    asked = pairs(stream, rows, cut, stream.src, stream.dst)
    found = score_queries(MethodScorer(Noted()), stream, asked, max_rows=sizes[0], max_candidates=sizes[1])
    np.testing.assert_array_equal(found, cut)


def rich_stream() -> EventStream:
    src, dst, t = [0, 1, 2, 2], [1, 0, 2, 3], [5, 6, 6, 9]
    msg = np.arange(8.0).reshape(4, 2)
    return tsnn.make_stream(src, dst, np.array(t), msg=msg, edge_type=np.array([0, 1, 0, 1]))


def test_it_is_told_all_there_is_of_a_row():
    (row,) = told(rich_stream(), 1, 2)
    assert row[:3] == (1, 0, 6)
    assert isinstance(row.t, int), "as the stream has it"
    assert row.msg.tolist() == [2.0, 3.0]
    assert row.edge_type == 1
    (plain,) = told(tied_stream(), 0, 1)
    assert plain.msg is None
    assert plain.edge_type == 0


def test_an_undirected_event_is_told_from_either_end_and_a_loop_once():
    rows = [row[:3] for row in told(rich_stream().as_undirected(), 1, 4)]
    assert sorted(rows[:2]) == [(0, 1, 6), (1, 0, 6)]
    assert rows[2] == (2, 2, 6)
    assert sorted(rows[3:]) == [(2, 3, 9), (3, 2, 9)]


def test_fit_gets_no_test_rows_and_comes_before_every_pass():
    class Fitted(Noted):
        def fit(self, split):
            self.known, self.bounds = split.stream.num_events, split.bounds("val")

    split, method = tied_split(), Fitted()
    scorer = MethodScorer(method)
    scorer.fit(split, Question())
    assert method.known == split.val_end
    assert method.bounds == split.bounds("val")
    scorer.reset_state()
    assert scorer.running.known == split.val_end


def test_the_object_itself_observes_nothing_unless_it_can_be_reset():
    split, method = tied_split(), Met()
    tsnn.evaluate(method, split, Visibility.parse("strict"))
    assert method.seen == set()

    class Reset(Met):
        def reset(self):
            self.seen = set()

    method = Reset()
    tsnn.evaluate(method, split, Visibility.parse("strict"))
    assert method.seen


def test_a_stream_that_a_method_keeps_is_not_copied():
    class Keeps(Met):
        def fit(self, split):
            self.split = split

    scorer = MethodScorer(Keeps())
    scorer.fit(tied_split(), Question())
    scorer.reset_state()
    assert scorer.running is not scorer.method
    assert scorer.running.split.stream is scorer.method.split.stream


def test_a_method_that_cannot_be_copied_is_told_what_to_do():
    class Open(Met):
        def __init__(self):
            super().__init__()
            self.rows = (row for row in ())

    with pytest.raises(InputError, match=r"Open cannot be copied .*reset\(\)"):
        check_scorer(Open())


def test_candidates_cannot_be_written():
    class Sorts(Met):
        def score(self, src, candidates, t):
            candidates.sort()
            return candidates

    with pytest.raises(ValueError, match="read-only"):
        check_scorer(Sorts())


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (1.0, r"returned shape \(\) for 5 candidates; give one each"),
        (np.zeros((5, 1)), r"returned shape \(5, 1\) for 5 candidates"),
        ({7: 1.0}, "returned what are no numbers"),
        (["a"] * 5, "returned what are no numbers"),
    ],
)
def test_an_answer_of_another_form_is_refused(given, said):
    class Odd(Met):
        def score(self, src, candidates, t):
            return given

    with pytest.raises(InputError, match=rf"Odd\.score {said}"):
        check_scorer(Odd())


class Old:
    name, spec = "old", None

    def update(self, plan): ...
    def score(self, plan, versions): ...


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (Met, r"Met is a class; give an object"),
        (7, r"an int is no scorer; .* this lacks observe, score"),
        (Old(), r"lacks fit, reset_state"),
    ],
)
def test_what_is_no_scorer_is_told_what_it_lacks(given, said):
    with pytest.raises(InputError, match=said):
        as_scorer(given)


def test_a_scorer_stays_what_it_is():
    scorer = tsnn.baseline("recency")
    assert as_scorer(scorer) is scorer
