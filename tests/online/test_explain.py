"""Explanations: parts that add up, features that account for themselves, true neighbors, true drift."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.online.streams import KNOWN, live_stream, save_prefix
from tsnn.errors import InputError
from tsnn.memory.store import initial_frames
from tsnn.model.features import feature_names
from tsnn.online.predictor import Predictor
from tsnn.sheaf.householder import frame_matrix


@pytest.fixture
def predictor(tmp_path: Path) -> Predictor:
    save_prefix(tmp_path / "run", live_stream())
    return Predictor.load(tmp_path / "run")


def test_parts_add_up_to_the_score(predictor):
    for t in (predictor.clock, predictor.clock + 4.0):
        for dst in (0, "n1", "n3", "never heard of"):
            e = predictor.explain(0, dst, t)
            assert e.score == e.geometric + e.residual + e.edgebank
            assert e.score == pytest.approx(predictor.score(0, dst, t), rel=1e-12)
            assert e.geometric < 0 or e.distance == 0


def test_features_are_named_and_valued(predictor):
    stream = live_stream()
    rows = [i for i in range(KNOWN) if stream.src[i] != stream.dst[i]]
    u, v = stream.src[rows[-1]], stream.dst[rows[-1]]
    names = stream.ids.external
    e = predictor.explain(names[u], names[v], predictor.clock + 1.0)
    count = int(((stream.src[:KNOWN] == u) & (stream.dst[:KNOWN] == v)).sum())
    features = {f.name: f for f in e.features}
    assert list(features) == feature_names(predictor.run.config.features)
    assert e.facts["pair_count"] == count
    assert features["log pair_count"].value == pytest.approx(np.log1p(count))
    assert features["log pair_count"].unseen == 0.0
    assert features["never pair_gap"].value == 0.0
    assert features["never pair_gap"].unseen == 1.0
    assert any(abs(f.contribution) > 1e-6 for f in e.features)


def test_a_feature_at_its_unseen_value_contributes_nothing(predictor):
    e = predictor.explain("stranger", "other stranger", predictor.clock + 1.0)
    for f in e.features:
        assert f.value == f.unseen, f.name  # also the shares, which are a half where there are no events
        assert f.contribution == pytest.approx(0.0, abs=1e-9), f.name


def test_a_reason_is_a_sentence_about_these_two(predictor):
    features = {f.name: f for f in predictor.explain(0, "n1", predictor.clock + 1.0).features}
    assert features["cn_jaccard"].says.startswith("recent partners of 0 or n1 that are partners of both: ")
    count = round(np.expm1(features["log pair_count"].value))
    assert features["log pair_count"].says == f"events 0 -> n1 so far: {count}"
    assert features["lg src_gap"].says.endswith(" mean gaps ago")
    stranger = predictor.explain(0, "stranger", predictor.clock + 1.0)
    assert {f.says for f in stranger.features if f.name.endswith("pair_gap")} == {"last event 0 -> stranger: never"}


def test_a_contribution_is_the_change_of_the_residual_part(predictor):
    """With a linear head, contributions are weight times change."""
    head = predictor.run.model.head
    with torch.no_grad():
        for layer, bias in ((0, 1e2), (2, 1e4)):
            head.mlp[layer].bias.fill_(bias)  # every ReLU is open, so the head is linear
        predictor.run.model.feature_scale.fill_(2.0)
    e = predictor.explain(0, "n1", predictor.clock + 1.0)
    weight = (head.mlp[4].weight @ head.mlp[2].weight @ head.mlp[0].weight)[0].detach()
    names = [f.name for f in e.features]
    columns = weight[5 : 5 + len(names)] / predictor.run.model.feature_scale
    gate = torch.sigmoid(head.gate[0]).item()
    for j, f in enumerate(e.features):
        if not f.name.startswith(("never", "lg")):
            expected = gate * columns[j].item() * (f.value - f.unseen)
            assert f.contribution == pytest.approx(expected, rel=1e-6, abs=1e-8), f.name


def test_neighbors_are_the_nearest(predictor):
    t = predictor.clock + 1.0
    e = predictor.explain(0, "n1", t)
    everyone = {n.node: n.distance for n in e.nearest}
    assert list(everyone.values()) == sorted(everyone.values())
    partners = {other for other, _, _ in predictor.recent(0, 100)}
    assert {n.node for n in e.nearest_partners} <= partners
    others = [name for name in predictor.run.ids.external if name != 0]
    exact = {name: predictor.explain(0, name, t).distance for name in others}
    assert everyone == pytest.approx(dict(sorted(exact.items(), key=lambda item: item[1])[: len(everyone)]))


def test_shared_events_are_those_of_the_two(predictor):
    t = predictor.clock + 1.0
    predictor.observe(0, "n1", t, [0.0, 0.0])
    predictor.observe("n1", 0, t + 1, [0.0, 0.0])
    assert predictor.explain(0, "n1", t + 2).shared[:2] == [(t + 1, None), (t, None)]
    assert (t + 1, None) not in predictor.explain(0, "n1", t + 1).shared  # strict: not at that very time
    assert predictor.explain(0, "stranger", t + 2).shared == []


def test_drift_is_the_distance_from_the_initial_frame(predictor):
    e = predictor.explain(0, "stranger", predictor.clock + 1.0)
    state, config = predictor.snapshot(), predictor.run.config
    key = state.ids.keys[:1]
    shape = (config.model.num_reflectors, config.model.stalk_dim)
    initial = torch.from_numpy(initial_frames(config.train.seed, key, *shape))[0]
    predictor.observe(0, 0, predictor.clock + 1.0, [0.0, 0.0])  # settles what came before
    turned = frame_matrix(predictor.snapshot().tensors["F"][0], 1e-6) - frame_matrix(initial, 1e-6)
    known, stranger = e.drift
    assert known.operator_norm == pytest.approx(np.linalg.norm(turned.numpy(), 2))
    assert known.frobenius_norm == pytest.approx(np.linalg.norm(turned.numpy()))
    assert known.operator_norm == pytest.approx(2 * np.sin(np.radians(known.degrees) / 2))
    assert known.degrees > 1.0
    assert (stranger.operator_norm, stranger.degrees) == (0.0, 0.0)


def test_text_and_json_say_the_same(predictor):
    e = predictor.explain(0, "n1", predictor.clock + 1.0)
    assert json.loads(json.dumps(e.to_dict()))["score"] == e.score
    text = e.text()
    assert f"score {e.score:.4f}" in text
    for part in ("geometric", "residual", "EdgeBank", "nearest partners", "last shared events", "degrees"):
        assert part in text
    assert max(e.features, key=lambda f: abs(f.contribution)).says in text


@pytest.mark.parametrize(("name", "start"), [("e.png", b"\x89PNG"), ("e.svg", b"<?xml")])
def test_figures_are_drawn(predictor, tmp_path, name, start):
    predictor.explain(0, "n1", predictor.clock + 1.0).figure(tmp_path / name)
    drawn = (tmp_path / name).read_bytes()
    assert drawn.startswith(start)
    assert len(drawn) > 5000
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == [name]


def test_figures_of_other_kinds_are_refused(predictor, tmp_path):
    with pytest.raises(InputError, match=r"neither \.png nor \.svg"):
        predictor.explain(0, "n1", predictor.clock + 1.0).figure(tmp_path / "e.gif")
    assert not (tmp_path / "e.gif").exists()
