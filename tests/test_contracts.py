"""Contracts that every scorer keeps, under every visibility: no peeking, no writing, no company effects."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tests.engine.streams import config_of
from tsnn.data.events import EventStream
from tsnn.data.queries import Queries
from tsnn.data.question import Question
from tsnn.data.split import split_by_time
from tsnn.errors import InputError
from tsnn.evaluation.baselines import ROSTER, baseline
from tsnn.evaluation.contracts import VISIBILITIES, Trial, check_scorer, tied_stream
from tsnn.evaluation.joint import JointScorer
from tsnn.evaluation.model import ModelScorer
from tsnn.evaluation.replay import score_queries
from tsnn.evaluation.scorer import Block
from tsnn.intensity.intensity import Intensity
from tsnn.plan.planner import Planner
from tsnn.training.trainer import build_model
from tsnn.types import Visibility


def asked(stream: EventStream, visibility: str) -> Queries:
    return Trial(baseline("recency"), stream, Question(Visibility.parse(visibility)), stream.num_events).queries


def tsnn(stream: EventStream, **switches: object) -> ModelScorer:
    model = build_model(config_of(**switches), split_by_time(stream))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1)))
    return ModelScorer(model, stream)


def with_sources(stream: EventStream) -> JointScorer:
    own = tsnn(stream)
    return JointScorer(own, Intensity.fit(split_by_time(stream), Question()), 0.5)


SCORERS = {
    "tsnn": tsnn,
    "tsnn with sources": with_sources,
    "tsnn with sources, undirected": with_sources,
    "tsnn, undirected": tsnn,
    "features, undirected": lambda s: baseline("features"),
    "tsnn with attention": lambda s: tsnn(s, model__attention=True, features__transported_difference=True),
    "tsnn with a window": lambda s: tsnn(s, model__edgebank_window=5.0, features__encoded_gaps=True),
} | {
    name: (lambda s, name=name: baseline(name))
    for entry in ROSTER.values()
    if not entry.foresees
    for name in ([f"{entry.name}:{mode}" for mode in entry.modes] or [entry.name])
}


@pytest.mark.parametrize("visibility", VISIBILITIES)
@pytest.mark.parametrize("name", SCORERS)
def test_the_scorer_keeps_every_contract(name, visibility):
    stream = tied_stream().as_undirected() if "undirected" in name else tied_stream()
    kept = check_scorer(SCORERS[name](stream), stream, visibility)
    assert kept.visibilities == (visibility,)


def test_a_model_is_checked_on_data_of_its_own_kind():
    with pytest.raises(InputError, match="tsnn was made for a stream of its own; give it to check_scorer"):
        check_scorer(tsnn(tied_stream()))


@pytest.mark.parametrize("visibility", VISIBILITIES)
def test_what_may_be_seen_does_matter(visibility):
    """The contract could not be broken by a scorer that reads nothing: TSNN does read what it may."""
    stream = tied_stream()
    trial = Trial(tsnn(stream), stream, Question(Visibility.parse(visibility)), stream.num_events)
    later = trial.queries.ptr[np.searchsorted(trial.queries.cut, 60)]
    assert np.abs(trial.whole - trial.run(trial.rewritten(30)))[later:].max() > 1e-6


def test_scoring_writes_no_tensor():
    """Counters, stalks, frames and weights are the same objects with the same contents after a score."""
    stream = tied_stream()
    scorer = tsnn(stream)
    queries = asked(stream, "arrival").slice(0, 120)
    planner = Planner(stream, scorer.spec)
    scorer.reset_state()
    plan = planner.plan(60, queries)
    block = Block(plan.update, plan.score, queries, stream)
    versions = scorer.update(block)
    before, counters = fingerprint(scorer), planner.counters.snapshot()
    first = scorer.score(block, versions)
    scorer.model.train()
    scorer.model.eval()
    np.testing.assert_array_equal(scorer.score(block, versions), first)
    assert fingerprint(scorer) == before
    for name, column in planner.counters.snapshot().items():
        np.testing.assert_array_equal(column, counters[name], err_msg=name)


def fingerprint(scorer: ModelScorer) -> list[tuple[int, int, float]]:
    """Address, version and sum of every tensor a scorer holds."""
    tensors = [scorer.store.h, scorer.store.F, *scorer.model.state_dict().values()]
    return [(x.data_ptr(), x._version, float(x.double().sum())) for x in tensors]


def test_planning_queries_changes_no_counter():
    """Answering queries between two rows leaves the counters as if nobody had asked."""
    stream = tied_stream()
    busy, silent = (Planner(stream, tsnn(stream).spec) for _ in range(2))
    busy.plan(stream.num_events, asked(stream, "strict"))
    silent.advance(stream.num_events)
    for name, column in busy.counters.snapshot().items():
        np.testing.assert_array_equal(column, silent.counters.snapshot()[name], err_msg=name)


@pytest.mark.parametrize("make", [tsnn, with_sources])
def test_ties_may_be_shuffled_under_strict(make):
    """An event's strict score does not depend on the order of the rows that share its time."""
    stream = tied_stream()
    scorer, queries = make(stream), asked(stream, "strict")
    queries = queries.slice(0, len(queries) - 1)  # the last one sees every row
    before = score_queries(scorer, stream, queries)
    last = np.flatnonzero(stream.t == stream.t[-1])
    assert len(last) > 1
    order = np.concatenate([np.arange(last[0]), last[::-1]])
    after = score_queries(scorer, stream.take(order), queries)
    np.testing.assert_array_equal(before, after)
