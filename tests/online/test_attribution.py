"""Contributions: they add up, they are the Shapley values, and what cannot matter gets nothing."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.online.streams import live_stream, save_prefix
from tsnn.online import attribution
from tsnn.online.attribution import shapley
from tsnn.online.predictor import Predictor
from tsnn.online.sentences import ABOUT


@pytest.fixture
def predictor(tmp_path: Path) -> Predictor:
    save_prefix(tmp_path / "run", live_stream())
    return Predictor.load(tmp_path / "run")


def test_shapley_values_are_the_mean_over_all_orders() -> None:
    worth = np.random.default_rng(0).normal(size=16)
    expected = np.zeros(4)
    for order in permutations(range(4)):
        coalition = 0
        for player in order:
            expected[player] += (worth[coalition | 1 << player] - worth[coalition]) / 24
            coalition |= 1 << player
    assert shapley(worth) == pytest.approx(expected)
    assert shapley(worth).sum() == pytest.approx(worth[-1] - worth[0])


def test_contributions_are_the_score_less_its_baseline(predictor) -> None:
    for src, dst in ((0, "n1"), (0, 0), ("n1", "stranger"), ("stranger", "n3"), ("stranger", "another")):
        e = predictor.explain(src, dst, predictor.clock + 2.0)
        total = sum(reason.contribution for reason in e.reasons)
        assert total == pytest.approx(e.score - e.baseline.score, abs=1e-9)


@pytest.mark.parametrize("switches", ["relations", "types", "attention", "difference", "edgebank only", "float32"])
def test_they_add_up_whatever_the_score_is_made_of(switches, tmp_path) -> None:
    stream = live_stream(relations=switches == "relations", types=switches == "types")
    settings = {
        "attention": {"model__attention": True, "features__encoded_gaps": True},
        "difference": {"features__transported_difference": True},
        "edgebank only": {"model__residual": False},
        "float32": {"train__dtype": "float32"},
    }
    save_prefix(tmp_path / "run", stream, **settings.get(switches, {}))
    predictor = Predictor.load(tmp_path / "run")
    e = predictor.explain(0, "n1", predictor.clock + 1.0, 1 if switches == "relations" else None)
    total = sum(reason.contribution for reason in e.reasons)
    assert total == pytest.approx(e.score - e.baseline.score, abs=1e-5)
    assert ("kind" in {reason.about for reason in e.reasons}) == (switches == "types")


def test_the_baseline_is_the_mean_of_the_others(predictor) -> None:
    """Few enough that all of them are in it; the same for every destination."""
    t = predictor.clock + 1.0
    ranked = predictor.recommend(0, t, 1000)
    scores = predictor.score(0, [one.dst for one in ranked], t)
    e = predictor.explain(0, ranked[0].dst, t)
    assert e.baseline.destinations == e.baseline.of
    assert e.baseline.score == pytest.approx(np.mean(scores), abs=1e-6)
    assert e.baseline.score == predictor.explain(0, ranked[-1].dst, t).baseline.score


def test_of_many_destinations_some_are_taken(predictor, monkeypatch) -> None:
    monkeypatch.setattr(attribution, "OTHERS", 3)
    e = predictor.explain(0, "n1", predictor.clock + 1.0)
    assert e.baseline.destinations == 3 < e.baseline.of
    assert "3 of the" in e.baseline.says


def test_with_a_linear_head_a_group_adds_its_columns_times_what_sets_it_apart(predictor) -> None:
    model = predictor.run.model
    with torch.no_grad():
        for layer, bias in ((0, 1e2), (2, 1e4)):
            model.head.mlp[layer].bias.fill_(bias)  # every ReLU is open, so the head is linear
    t = predictor.clock + 1.0
    standpoint, pool = predictor.stand(0, [one.dst for one in predictor.recommend(0, t, 1000)], t, None)
    survey = standpoint.survey(np.concatenate([pool[:1], np.sort(pool)]), np.ones(len(pool) + 1, np.bool_))
    columns = model.data_features(survey).double().numpy()
    weight = (model.head.mlp[4].weight @ model.head.mlp[2].weight @ model.head.mlp[0].weight)[0].detach().numpy()
    gate = torch.sigmoid(model.head.gate[0]).item()
    names = [feature.fact.name for feature in attribution.features(model.config.features)]
    effect = gate * weight[5 : 5 + len(names)] * (columns[0] - columns[1:].mean(0))
    e = predictor.explain(0, predictor.run.ids.external[pool[0]], t)
    for reason in e.reasons:
        if reason.about not in ("pair", "states"):  # EdgeBank's part and the distance come on top there
            expected = sum(effect[j] for j, name in enumerate(names) if ABOUT[name] == reason.about)
            assert reason.contribution == pytest.approx(expected, rel=1e-6, abs=1e-8), reason.about


def test_what_sets_nobody_apart_adds_nothing(predictor) -> None:
    """No two nodes of these have a move in common with a source that never moved."""
    e = predictor.explain("stranger", "n1", predictor.clock + 1.0)
    assert {reason.about: reason.contribution for reason in e.reasons}["moves"] == pytest.approx(0.0, abs=1e-9)
    assert e.source.contribution == 0.0


def test_a_run_without_states_has_none_among_its_reasons(predictor) -> None:
    t = predictor.clock + 1.0
    assert "states" in {reason.about for reason in predictor.explain(0, "n1", t).reasons}
    predictor.run.model.head.geometry_weight.fill_(0.0)
    e = predictor.explain(0, "n1", t)
    assert "states" not in {reason.about for reason in e.reasons}
    assert e.remark.startswith("This run learned nothing beyond counts")
    assert sum(reason.contribution for reason in e.reasons) == pytest.approx(e.score - e.baseline.score, abs=1e-9)


def test_a_fact_whose_columns_are_left_out_is_no_reason(predictor) -> None:
    model = predictor.run.model
    names = [feature.fact.name for feature in attribution.features(model.config.features)]
    for column in (j for j, name in enumerate(names) if ABOUT[name] == "moves"):
        model.feature_scale[column] = torch.inf
    e = predictor.explain(0, "n1", predictor.clock + 1.0)
    assert "moves" not in {reason.about for reason in e.reasons}


def test_a_better_destination_has_the_better_reasons(tmp_path) -> None:
    """A head that counts meetings and nothing else: the pair is the one reason, for those who met, against others."""
    save_prefix(tmp_path / "run", live_stream(), model__edgebank=False)
    predictor = Predictor.load(tmp_path / "run")
    model = predictor.run.model
    names = [feature.name for feature in attribution.features(model.config.features)]
    with torch.no_grad():
        for layer in (0, 2, 4):
            model.head.mlp[layer].weight.zero_()
            model.head.mlp[layer].bias.zero_()
        model.head.geometry_weight.fill_(0.0)
        model.head.mlp[0].weight[0, 5 + names.index("log pair_count")] = 1.0
        model.head.mlp[0].bias[0] = 10.0
        model.head.mlp[2].weight[0, 0] = model.head.mlp[4].weight[0, 0] = 1.0
    t = predictor.clock + 1.0
    counts = {one.dst: predictor.explain(0, one.dst, t) for one in predictor.recommend(0, t, 1000)}
    for e in counts.values():
        added = {reason.about: reason.contribution for reason in e.reasons}
        assert all(abs(value) < 1e-9 for about, value in added.items() if about != "pair")
        assert (added["pair"] < 0) == (e.facts["pair_count"] == 0)
    best = next(iter(counts.values()))
    assert best.why == best.reasons[0].sentence
    assert "times" in best.why
    worst = list(counts.values())[-1]
    assert replace(worst).why == "nothing speaks for it in particular"
