"""Contracts that every scorer keeps, under every visibility: no peeking, no writing, no company effects."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from tests.engine.streams import config_of
from tsnn.data.events import EventStream, NodeIds
from tsnn.data.queries import Queries
from tsnn.data.question import Question
from tsnn.data.split import split_by_time
from tsnn.evaluation.baselines import ROSTER, baseline
from tsnn.evaluation.model import ModelScorer
from tsnn.evaluation.replay import score_queries
from tsnn.evaluation.scorer import Block, Scorer
from tsnn.plan.planner import Planner
from tsnn.training.trainer import build_model
from tsnn.types import Visibility

NODES, EVENTS, CANDIDATES = 15, 120, 5
VISIBILITIES = ("strict", "arrival", "batch:7")


def tied_stream(seed: int = 0) -> EventStream:
    """Times repeat three rows at a time on average; there are self-loops and late newcomers."""
    rng = np.random.default_rng(seed)
    src, dst = rng.integers(0, NODES - 3, EVENTS), rng.integers(0, NODES - 2, EVENTS)
    dst[::17] = src[::17]
    src[90:] = rng.integers(0, NODES, EVENTS - 90)
    t = np.sort(rng.integers(0, EVENTS // 3, EVENTS)).astype(np.float64)
    return EventStream(src, dst, t, NodeIds(range(NODES)), msg=rng.normal(size=(EVENTS, 2)).astype(np.float32))


def ask(stream: EventStream, visibility: str) -> Queries:
    rng = np.random.default_rng(9)
    cut = Visibility.parse(visibility).cuts(stream.t)
    cand = rng.integers(0, NODES, (EVENTS, CANDIDATES))
    ptr = np.arange(EVENTS + 1, dtype=np.int64) * CANDIDATES
    return Queries(cut, stream.src, stream.t, np.zeros(EVENTS, np.int64), ptr, cand.ravel())


def tsnn(stream: EventStream, **switches: object) -> ModelScorer:
    model = build_model(config_of(**switches), split_by_time(stream))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1)))
    return ModelScorer(model, stream)


SCORERS = {
    "tsnn": tsnn,
    "tsnn, undirected": tsnn,
    "features, undirected": lambda s: baseline("features"),
    "tsnn with attention": lambda s: tsnn(s, model__attention=True, features__transported_difference=True),
    "tsnn with a window": lambda s: tsnn(s, model__edgebank_window=5.0, features__encoded_gaps=True),
} | {
    name: (lambda s, name=name: baseline(name))
    for entry in ROSTER.values()
    for name in ([f"{entry.name}:{mode}" for mode in entry.modes] or [entry.name])
}


@pytest.fixture(params=SCORERS)
def scorer_and_stream(request):
    stream = tied_stream().as_undirected() if "undirected" in request.param else tied_stream()
    return SCORERS[request.param](stream), stream


@pytest.mark.parametrize("visibility", VISIBILITIES)
def test_what_may_not_be_seen_cannot_matter(scorer_and_stream, visibility):
    """Rewriting every row from some event's cut on leaves its scores bit-identical."""
    scorer, stream = scorer_and_stream
    scorer.fit(split_by_time(stream), Question(Visibility.parse(visibility)))
    queries = ask(stream, visibility)
    before = score_queries(scorer, stream, queries)
    for row in (20, 61, 100):
        cut = int(queries.cut[row])
        changed = _rewrite(stream, cut)
        after = score_queries(scorer, changed, replace(queries, src=stream.src, t=stream.t))
        seen = queries.ptr[np.searchsorted(queries.cut, cut, side="right")]
        np.testing.assert_array_equal(before[:seen], after[:seen])


def _rewrite(stream: EventStream, start: int) -> EventStream:
    rng = np.random.default_rng(start)
    src, dst, msg = stream.src.copy(), stream.dst.copy(), stream.msg.copy()
    src[start:] = rng.integers(0, NODES, EVENTS - start)
    dst[start:] = rng.permutation(dst[start:])
    msg[start:] += 1.0
    return replace(stream, src=src, dst=dst, msg=msg)


@pytest.mark.parametrize("visibility", VISIBILITIES)
def test_what_may_be_seen_does_matter(visibility):
    """The test above could not fail for a scorer that reads nothing: TSNN does read what it may."""
    stream = tied_stream()
    scorer, queries = tsnn(stream), ask(stream, visibility)
    before = score_queries(scorer, stream, queries)
    after = score_queries(scorer, _rewrite(stream, 30), replace(queries, src=stream.src, t=stream.t))
    assert np.abs(before - after)[queries.ptr[60] :].max() > 1e-6


@pytest.mark.parametrize("visibility", VISIBILITIES)
def test_company_does_not_matter(scorer_and_stream, visibility):
    """Small blocks or large ones, alone or with others, in any order: the same score to rounding."""
    scorer, stream = scorer_and_stream
    scorer.fit(split_by_time(stream), Question(Visibility.parse(visibility)))
    queries = ask(stream, visibility)
    whole = score_queries(scorer, stream, queries)
    np.testing.assert_allclose(
        score_queries(scorer, stream, queries, max_rows=3, max_candidates=7), whole, rtol=1e-5, atol=1e-6
    )
    backwards = queries.cand.reshape(EVENTS, CANDIDATES)[:, ::-1]
    flipped = score_queries(scorer, stream, replace(queries, cand=backwards.ravel()))
    np.testing.assert_allclose(flipped.reshape(EVENTS, -1)[:, ::-1].ravel(), whole, rtol=1e-5, atol=1e-6)
    first = replace(queries, cand=queries.cand[::CANDIDATES], ptr=np.arange(EVENTS + 1))
    np.testing.assert_allclose(score_queries(scorer, stream, first), whole[::CANDIDATES], rtol=1e-5, atol=1e-6)


def test_scoring_writes_nothing(scorer_and_stream):
    """Counters, stalks and frames are the same objects with the same contents after a score, in either mode."""
    scorer, stream = scorer_and_stream
    scorer.fit(split_by_time(stream), Question(Visibility.parse("arrival")))
    queries = ask(stream, "arrival").slice(0, 60)
    planner = Planner(stream, scorer.spec)
    scorer.reset_state()
    plan = planner.plan(60, queries)
    block = Block(plan.update, plan.score, queries, stream)
    versions = scorer.update(block)
    before, counters = _fingerprint(scorer), planner.counters.snapshot()
    first = scorer.score(block, versions)
    if isinstance(scorer, ModelScorer):
        scorer.model.train()
        scorer.model.eval()
    np.testing.assert_array_equal(scorer.score(block, versions), first)
    assert _fingerprint(scorer) == before
    for name, column in planner.counters.snapshot().items():
        np.testing.assert_array_equal(column, counters[name], err_msg=name)


def test_planning_queries_changes_no_counter():
    """Answering queries between two rows leaves the counters as if nobody had asked."""
    stream = tied_stream()
    asked, silent = (Planner(stream, tsnn(stream).spec) for _ in range(2))
    asked.plan(EVENTS, ask(stream, "strict"))
    silent.advance(EVENTS)
    for name, column in asked.counters.snapshot().items():
        np.testing.assert_array_equal(column, silent.counters.snapshot()[name], err_msg=name)


def _fingerprint(scorer: Scorer) -> list[tuple[int, int, float]]:
    """Address, version and sum of every tensor a scorer holds."""
    if not isinstance(scorer, ModelScorer):
        return []
    tensors = [scorer.store.h, scorer.store.F, *scorer.model.state_dict().values()]
    return [(x.data_ptr(), x._version, float(x.double().sum())) for x in tensors]


def test_ties_may_be_shuffled_under_strict():
    """An event's strict score does not depend on the order of the rows that share its time."""
    stream = tied_stream()
    scorer, queries = tsnn(stream), ask(stream, "strict")
    before = score_queries(scorer, stream, queries)
    last = np.flatnonzero(stream.t == stream.t[-1])
    assert len(last) > 1
    order = np.concatenate([np.arange(last[0]), last[::-1]])
    after = score_queries(scorer, stream.take(order), queries)
    np.testing.assert_array_equal(before[queries.ptr[last[0]] :], after[queries.ptr[last[0]] :])
