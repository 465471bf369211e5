"""The health of states: what is measured of stalks and frames, and what of a score is theirs."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from streams import tied_split

from tsnn.config import Config
from tsnn.data.question import Question
from tsnn.evaluation.evaluate import make_questions
from tsnn.evaluation.health import BRANCHES, MEASURES, Health, StateHealth, in_a_line, states_of
from tsnn.evaluation.model import ModelScorer
from tsnn.evaluation.replay import Scores, replay
from tsnn.model.head import NUM_SCALARS
from tsnn.training.trainer import build_model

SMALL = {"model.stalk_dim": 8, "model.hidden_dim": 8, "model.score_dim": 8}
SPLIT = tied_split()
NODES = np.arange(SPLIT.stream.num_nodes)


def scorer_of(**settings) -> ModelScorer:
    changes = {name.replace("__", "."): value for name, value in settings.items()}
    return ModelScorer(build_model(Config.build(overrides=SMALL | changes), SPLIT), SPLIT.stream)


def health_of(scorer: ModelScorer) -> Health:
    health = StateHealth(scorer, make_questions(SPLIT, Question()))
    replay(scorer, SPLIT.stream, [health])
    return health.measure()


def listen_to_states(scorer: ModelScorer) -> None:
    """Give the geometric columns some weight, which they do not have at first."""
    first, _ = scorer.model.head.weights().layers[0]
    with torch.no_grad():
        first[:, :NUM_SCALARS] = torch.randn(first[:, :NUM_SCALARS].shape, generator=torch.Generator().manual_seed(1))


def test_frames_as_they_are_drawn_have_nothing_in_common():
    scorer = scorer_of(model__stalk_dim=64)
    found = states_of(scorer.store, NODES, scorer.model)
    assert abs(found["frames"]) < 0.05
    assert found["reflector"] == pytest.approx(np.sqrt(64 / 2), rel=0.05)
    assert found["turn"] == pytest.approx(0.47, abs=0.03)
    assert found["saturated"] == found["cosine"] == 0, "every stalk is still zero"


def test_states_that_are_all_the_same_are_seen():
    scorer = scorer_of()
    scorer.store.h.fill_(0.99)
    scorer.store.F[:] = scorer.store.F[0].clone()
    found = states_of(scorer.store, NODES, scorer.model)
    one = pytest.approx(1.0)
    assert (found["saturated"], found["cosine"], found["synchronized"], found["frames"]) == (one, one, one, one)
    assert found["turn"] == pytest.approx(0.0, abs=1e-6)


def test_stalks_that_are_alike_can_be_told_apart_once_their_frames_turn_them():
    scorer = scorer_of()
    scorer.store.h.fill_(0.5)
    found = states_of(scorer.store, NODES, scorer.model)
    assert found["cosine"] == pytest.approx(1.0)
    assert found["saturated"] == 0
    assert found["synchronized"] < 0.9


def test_without_transport_nothing_turns():
    scorer = scorer_of(model__transport=False)
    found = states_of(scorer.store, NODES, scorer.model)
    assert found["turn"] == 0
    assert found["cosine"] == found["synchronized"]


def test_only_nodes_that_have_had_an_event_count():
    """The others have no stalk yet, and would make every mean look healthier."""
    scorer = scorer_of()
    scorer.store.h[0], scorer.store.h[1:] = 0.0, 1.0
    assert states_of(scorer.store, NODES[1:], scorer.model)["saturated"] == 1
    assert states_of(scorer.store, NODES, scorer.model)["saturated"] < 1


def test_a_single_node_can_be_measured():
    scorer = scorer_of()
    scorer.store.h.fill_(0.5)
    assert states_of(scorer.store, NODES[:1], scorer.model)["cosine"] == pytest.approx(1.0)


def test_shares_add_up_and_kappa_is_the_configured_one():
    scorer = scorer_of(model__kappa=7.0)
    listen_to_states(scorer)
    found = health_of(scorer)
    assert sum(getattr(found, name) for name in BRANCHES) == pytest.approx(1)
    assert found.kappa == pytest.approx(7.0, rel=1e-5)


def test_the_warm_head_owes_nothing_to_states():
    scorer = scorer_of()
    listen_to_states(scorer)
    scorer.model.head.geometry_weight.fill_(0.0)
    found = health_of(scorer)
    assert found.states == found.geometric == 0
    assert found.residual > 0


def test_the_transported_distance_alone_owes_all_to_states():
    found = health_of(scorer_of(model__residual=False, model__edgebank=False))
    assert found.states == found.geometric == pytest.approx(1)


def test_what_the_residual_owes_to_states_is_counted_with_them():
    """A head that does not read the geometric columns owes nothing; one that does, more than nothing."""
    deaf = health_of(scorer_of())
    assert deaf.states == pytest.approx(deaf.geometric, abs=1e-12)
    scorer = scorer_of()
    listen_to_states(scorer)
    heard = health_of(scorer)
    assert abs(heard.states - heard.geometric) > 0.01


def test_questions_of_a_single_candidate_are_compared_with_each_other():
    """Those of DGB: within each of them there is nothing to tell apart."""
    scorer = scorer_of()
    listen_to_states(scorer)
    health = StateHealth(scorer, make_questions(SPLIT, Question(), protocol="dgb"))
    assert (np.diff(health.asked.ptr) == 1).all()
    replay(scorer, SPLIT.stream, [health])
    found = health.measure()
    assert sum(getattr(found, name) for name in BRANCHES) == pytest.approx(1)
    assert found.states != 0


def test_to_listen_changes_no_score_and_gives_the_same_twice():
    questions = make_questions(SPLIT, Question())
    scorer = scorer_of()
    listen_to_states(scorer)
    alone, beside = Scores(questions.asked), Scores(questions.asked)
    replay(scorer, SPLIT.stream, [alone])
    drawn = torch.random.get_rng_state()
    replay(scorer, SPLIT.stream, [beside, StateHealth(scorer, questions)])
    assert np.array_equal(alone.values, beside.values)
    assert torch.equal(drawn, torch.random.get_rng_state())
    assert health_of(scorer) == health_of(scorer)


@pytest.mark.parametrize("settings", [{"features__transported_difference": True}, {"model__scalars": "raw"}])
def test_every_kind_of_score_is_taken_apart(settings):
    found = health_of(scorer_of(**settings))
    assert sum(getattr(found, name) for name in BRANCHES) == pytest.approx(1)


def test_few_of_many_candidates_say_the_same(monkeypatch):
    scorer = scorer_of()
    listen_to_states(scorer)
    whole = health_of(scorer)
    monkeypatch.setattr("tsnn.evaluation.health.CANDIDATES", 300)
    part = health_of(scorer)
    assert part != whole
    assert part.states == pytest.approx(whole.states, abs=0.2)


def test_every_number_is_explained_and_a_line_has_the_main_ones():
    found = health_of(scorer_of()).to_dict()
    assert list(found) == list(MEASURES)
    told = in_a_line(found | {"saturated": 0.031, "cosine": 0.4234, "states": 0.179})
    assert told == "states: 3 % saturated, cosine between nodes 0.423, they make 18 % of the score's variance"
    assert MEASURES["saturated"].limit == "healthy below 20 %"
    assert MEASURES["cosine"].limit == "healthy below 0.7"
