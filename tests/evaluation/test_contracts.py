"""Scorers that break a promise are found, each by the check of that promise, and evaluation refuses those that peek."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest

import tsnn
from tests.evaluation.streams import tied_split
from tsnn.data.question import Question
from tsnn.errors import ContractError, InputError
from tsnn.evaluation import contracts
from tsnn.evaluation.baselines import EdgeBank
from tsnn.evaluation.contracts import CONTRACTS, ROWS, VISIBILITIES, changed, check_scorer
from tsnn.evaluation.scorer import Scorer
from tsnn.plan.facts import COLUMN
from tsnn.plan.planner import PlanSpec
from tsnn.types import Visibility


class Plain:
    """A scorer that keeps every promise: pairs are numbered, and that is all it knows."""

    spec = PlanSpec()

    @property
    def name(self):
        return type(self).__name__

    def fit(self, split, question): ...
    def reset_state(self): ...
    def update(self, plan): ...

    def score(self, plan, versions):
        return 1.0 * (13 * self.sources(plan) + plan.score.cand)

    def sources(self, plan):
        return np.repeat(plan.score.src, np.diff(plan.score.ptr))


class Dictionary(Plain):
    """What somebody writes who does not know that `update` runs a whole block before `score`."""

    def reset_state(self):
        self.met = set()

    def update(self, plan):
        rows = slice(plan.update.start, plan.update.stop)
        self.met |= set(zip(plan.stream.src[rows].tolist(), plan.stream.dst[rows].tolist(), strict=True))

    def score(self, plan, versions):
        pairs = zip(self.sources(plan).tolist(), plan.score.cand.tolist(), strict=True)
        return np.array([pair in self.met for pair in pairs], dtype=float)


class LastTime(Plain):
    """When a candidate was last a destination."""

    def reset_state(self):
        self.last = np.zeros(100)

    def update(self, plan):
        rows = slice(plan.update.start, plan.update.stop)
        self.last[plan.stream.dst[rows]] = plan.stream.t[rows]

    def score(self, plan, versions):
        return self.last[plan.score.cand]


class OwnStream(Dictionary):
    """The same from a stream that it has kept: rewriting what it is given changes nothing that it reads."""

    def fit(self, split, question):
        self.stream = split.stream

    def update(self, plan):
        super().update(SimpleNamespace(stream=self.stream, update=plan.update))


class NotNumbers(Plain):
    def score(self, plan, versions):
        return np.where(plan.score.cand == 3, np.nan, 1.0)


class Remembers(Dictionary):
    def __init__(self):
        super().reset_state()

    def reset_state(self): ...


class Restless(Plain):
    """Noise to break ties, never the same."""

    rng = np.random.default_rng(0)

    def score(self, plan, versions):
        return super().score(plan, versions) + 1e-9 * self.rng.random(len(plan.score.cand))


class LearnsTest(Dictionary):
    """Whoever turns to whom in the test rows is known from the start."""

    def fit(self, split, question):
        rows = slice(split.val_end, None)
        self.met = set(zip(split.stream.src[rows].tolist(), split.stream.dst[rows].tolist(), strict=True))

    def reset_state(self): ...
    def update(self, plan): ...


class Unseeded(Plain):
    rng = np.random.default_rng(0)

    def fit(self, split, question):
        self.weight = self.rng.random()

    def score(self, plan, versions):
        return self.weight * super().score(plan, versions)


class Tired(Plain):
    """Every block costs it something."""

    def reset_state(self):
        self.blocks = 0

    def update(self, plan):
        self.blocks += 1

    def score(self, plan, versions):
        return super().score(plan, versions) / self.blocks


class InPlace(Plain):
    """Makes its score of a fact where the fact stands."""

    def score(self, plan, versions):
        count = plan.score.facts[:, COLUMN["pair_count"]]
        count += 1
        return np.log(count)


class Writes:
    """The same as a method: how often a source was asked about is a part of its answer."""

    def __init__(self):
        self.count = dict.fromkeys(range(100), 0)

    def observe(self, row): ...

    def score(self, src, candidates, t):
        self.count[src] += 1
        return 1.0 * candidates + self.count[src]


class Normalizes:
    """Answers that add up to one."""

    def observe(self, row): ...

    def score(self, src, candidates, t):
        return np.exp(0.1 * candidates) / np.exp(0.1 * candidates).sum()


class Places:
    """The sooner it stands in the list the better."""

    def observe(self, row): ...

    def score(self, src, candidates, t):
        return -np.arange(len(candidates))


class Infinite:
    """The logarithm of a count."""

    def __init__(self):
        self.count = {}

    def observe(self, row):
        self.count[row.dst] = self.count.get(row.dst, 0) + 1

    def score(self, src, candidates, t):
        with np.errstate(divide="ignore"):
            return np.log([self.count.get(dst, 0) for dst in candidates.tolist()])


BROKEN = {
    NotNumbers: (contracts.NUMBERS, "scores are NaN; "),
    Remembers: (contracts.RESET, "by up to 1, when other rows were run in between; empty whatever"),
    Restless: (contracts.RESET, "set the seed again"),
    LearnsTest: (contracts.FIT, "when it was fitted with other test rows; let fit read the rows before"),
    OwnStream: (contracts.FIT, "when it was fitted with other test rows"),
    Unseeded: (contracts.FIT, "a seed of its own"),
    Dictionary: (contracts.PEEK, "by up to 1, when that was rewritten; write it with observe"),
    LastTime: (contracts.PEEK, "when that was rewritten"),
    Tired: (contracts.BLOCKS, "when fewer rows were run at once"),
    InPlace: (contracts.WRITES, "when it was asked the same twice; let score read only"),
    Writes: (contracts.WRITES, "when it was asked less in between"),
    Normalizes: (contracts.COMPANY, "when candidates stood alone; score each candidate by itself"),
    Places: (contracts.COMPANY, "when the candidates came in another order"),
}


@pytest.mark.parametrize("visibility", VISIBILITIES)
@pytest.mark.parametrize("broken", BROKEN, ids=lambda kind: kind.__name__)
def test_a_broken_promise_is_found_and_named(broken, visibility):
    contract, details = BROKEN[broken]
    with pytest.raises(ContractError) as found:
        check_scorer(broken(), visibility=visibility)
    said = str(found.value)
    assert said.startswith(f"{broken.__name__} breaks a promise: under {visibility}, {contract.promise}, but ")
    assert details in said


def test_every_contract_has_somebody_who_breaks_it():
    assert {contract for contract, _ in BROKEN.values()} == set(CONTRACTS)


@pytest.mark.parametrize("kept", [Plain, Infinite])
def test_who_keeps_all_is_told_which(kept):
    found = check_scorer(kept())
    assert str(found).startswith(f"{kept.__name__} keeps every promise of a scorer under strict, arrival, batch:7:\n")
    assert str(found).count("\n") == len(CONTRACTS)


def test_it_is_checked_on_the_first_rows_of_the_stream_that_is_given():
    rows = set()

    class Notes(Plain):
        def update(self, plan):
            rows.add(plan.stream.num_events)

    check_scorer(Notes(), tsnn.load("synthetic:roles:events=900"), Visibility.parse("arrival"))
    assert rows == {ROWS}
    with pytest.raises(InputError, match="or the stream of a split"):
        check_scorer(Plain(), tied_split())
    with pytest.raises(InputError, match="20 events or more"):
        check_scorer(Plain(), tied_split().stream.take(slice(0, 10)))


def test_rewritten_rows_keep_to_the_stream():
    stream = tsnn.make_stream(np.arange(60), np.arange(60) + 100, np.repeat(np.arange(30), 2))
    trial = contracts.Trial(Plain(), stream, Question(), 20)
    other = trial.rewritten(8)
    assert other.num_events == 20
    for column in ("src", "dst", "t"):
        before, after = getattr(trial.split.stream, column), getattr(other, column)
        np.testing.assert_array_equal(before[:8], after[:8])
        assert (before[8:] != after[8:]).all()
        assert np.isin(after, getattr(stream, column)).all()
    assert (np.diff(other.t) >= 0).all()
    assert (other.dst - other.src != 100)[8:].any(), "others turn to them"
    whole = contracts.Trial(Plain(), stream, Question(), 60).rewritten(40)
    assert whole.t[-1] == stream.t[-1]


def test_changes_are_told_apart_from_rounding():
    before = np.array([1.0, 1000.0, np.nan, np.inf, -np.inf])
    assert changed(before, before.copy()) == ""
    assert changed(before, before + 1e-6, rounding=True) == ""
    assert changed(before, before + 1e-6).startswith("2 of 5 scores changed, by up to 1e-06")
    assert changed(before, before + 1.0, rounding=True).startswith("2 of 5 scores changed, by up to 1")
    assert changed(before, -before).startswith("4 of 5 scores changed, by up to inf")


# Evaluation


def evaluated(scorer: Scorer, visibility: str):
    return tsnn.evaluate(scorer, tied_split(), Visibility.parse(visibility))


@pytest.mark.parametrize("visibility", [*VISIBILITIES, "batch:200"])
@pytest.mark.parametrize("peeks", [Dictionary, LastTime, OwnStream], ids=lambda kind: kind.__name__)
def test_whoever_peeks_gets_no_figures(peeks, visibility):
    said = rf"{peeks.__name__} gets no figures: under {visibility}, .* no answer, but .*; write it with observe\(row\)"
    with pytest.raises(ContractError, match=said):
        evaluated(peeks(), visibility)


def test_whoever_forgets_nothing_is_not_said_to_peek():
    with pytest.raises(ContractError, match="a pass leaves nothing behind"):
        evaluated(Restless(), "strict")


def test_it_is_fitted_once_and_left_as_the_replay_leaves_it():
    class Counts(Plain):
        fits, rows = 0, 0

        def fit(self, split, question):
            self.fits += 1

        def reset_state(self):
            self.rows = 0

        def update(self, plan):
            self.rows += plan.update.num_events

    scorer, split = Counts(), tied_split()
    tsnn.evaluate(scorer, split, Visibility.parse("arrival"))
    assert scorer.fits == 1
    assert scorer.rows == split.stream.num_events - 1


@pytest.mark.parametrize("seed", range(3))
def test_it_is_found_where_few_pairs_meet_again_and_where_all_do(seed):
    rng = np.random.default_rng(seed)
    make = partial(tsnn.from_arrays, t=np.arange(900) // 30)
    strangers = make(rng.integers(0, 500, 900), rng.integers(0, 500, 900))
    friends = make(*np.sort(rng.integers(0, 12, (2, 900)), axis=1))
    for stream in (strangers, friends):
        with pytest.raises(ContractError, match="Dictionary gets no figures"):
            tsnn.evaluate(Dictionary(), tsnn.default_split(stream), Visibility.parse("strict"))


def test_what_is_made_of_ours_is_checked_and_ours_is_not(monkeypatch):
    class Peeks(EdgeBank):
        reset_state, update, score = Dictionary.reset_state, Dictionary.update, Dictionary.score
        sources = Dictionary.sources

    with pytest.raises(ContractError, match="edgebank:unlimited gets no figures"):
        evaluated(Peeks(), "strict")
    passes = []
    monkeypatch.setattr(EdgeBank, "reset_state", lambda self: passes.append(self))
    evaluated(EdgeBank(), "strict")
    assert len(passes) == 1
