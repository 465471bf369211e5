"""Explanations: parts that add up, facts in the names and units of the data, true neighbors, true drift."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from matplotlib.text import Text

from tests.online.streams import KNOWN, live_stream, restless_model, save_prefix
from tsnn.data.description import Description
from tsnn.errors import InputError
from tsnn.memory.store import initial_frames
from tsnn.model.features import features
from tsnn.online import explain, picture
from tsnn.online.predictor import Predictor
from tsnn.plan.facts import COLUMN
from tsnn.sheaf.householder import frame_matrix
from tsnn.training.run import save_run


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


def test_facts_stand_with_their_values_in_the_group_they_are_about(predictor):
    stream = live_stream()
    rows = [i for i in range(KNOWN) if stream.src[i] != stream.dst[i]]
    u, v = stream.src[rows[-1]], stream.dst[rows[-1]]
    names = stream.ids.external
    e = predictor.explain(names[u], names[v], predictor.clock + 1.0)
    count = int(((stream.src[:KNOWN] == u) & (stream.dst[:KNOWN] == v)).sum())
    shown = {fact.name: fact for reason in [*e.reasons, e.source] for fact in reason.facts}
    assert set(shown) <= {feature.fact.name for feature in features(predictor.run.config.features)}
    assert e.facts["pair_count"] == shown["pair_count"].value == count
    assert shown["pair_count"].says == f"events {names[u]} -> {names[v]} so far"
    assert shown["pair_count"].shown == str(count)
    assert shown["src_gap"].shown.endswith("ago")
    assert shown["src_gap"].usual == shown["src_gap"].value, "one source, one gap"
    assert "cn_count" in shown
    assert "walk_22" not in shown, "walks are off"
    stranger = predictor.explain("new", "stranger", predictor.clock + 1.0)
    assert not any(fact.name == "pair_count" for reason in stranger.reasons for fact in reason.facts), "0 for everybody"
    stranger = predictor.explain(0, "stranger", predictor.clock + 1.0)
    assert {fact.shown for reason in stranger.reasons for fact in reason.facts if fact.name == "pair_gap"} == {"never"}


def test_common_neighbors_are_called_by_name(predictor):
    t = predictor.clock + 1.0
    for i, name in enumerate(("n1", 2, "n3")):  # n3 is met last
        predictor.observe("new", name, t + i, [0.0, 0.0])
        predictor.observe(name, "newer", t + i, [0.0, 0.0])
    predictor.observe("new", "n5", t + 4, [0.0, 0.0])
    e = predictor.explain("new", "newer", t + 5)
    assert e.facts["cn_count"] == 3
    said = {reason.about: reason.sentence for reason in e.reasons}
    assert said["common"] == "3 recent neighbors in common, n3 and 2 lately"
    assert said["moves"] == "newer never came next after n5, n3 and 2, where new went last"


def test_the_named_are_as_many_as_the_counted(predictor):
    t = predictor.clock + 1.0
    for dst in predictor.run.ids.external:
        standpoint, cand = predictor.stand(0, [dst], t, None)
        facts = standpoint.survey(cand, np.array([True])).facts[0]
        assert len(explain._common(standpoint, int(cand[0]))) == facts[COLUMN["cn_count"]]


def test_of_undirected_events_either_end_says_the_same(tmp_path):
    save_prefix(tmp_path, live_stream(undirected=True))
    predictor = Predictor.load(tmp_path)
    t = predictor.clock + 1.0
    predictor.observe(0, "n1", t, [0.0, 0.0])
    said = [predictor.explain(*ends, t + 2.0) for ends in ((0, "n1"), ("n1", 0))]
    pairs = [reason.sentence for e in said for reason in e.reasons if reason.about == "pair"]
    assert pairs[0] == pairs[1]
    assert pairs[0].startswith("met ")
    assert "events 0 - n1 so far" in said[0].text(numbers=True)


def test_reasons_are_in_the_names_and_units_of_the_data(tmp_path):
    """Relations by their names, times as dates, gaps in hours."""
    hour = 3600 * 10**6
    start = 1_700_000_000 * 10**6
    stream = live_stream(relations=True, kind=int)
    described = Description(relations=("call", "mail", "pay"), dates=True)
    stream = replace(stream, t=start + stream.t * hour, description=described)
    save_run(tmp_path, restless_model(stream), stream, {})
    predictor = Predictor.load(tmp_path)
    t = predictor.ticks + 3 * hour
    predictor.observe(0, "n1", t, [0.0, 0.0], "pay")
    e = predictor.explain(0, "n1", t + 11 * hour, "pay")
    assert e.t == described.show_time(t + 11 * hour) != t + 11 * hour
    assert e.edge_type == "pay"
    assert e.shared[0] == (described.show_time(t), "pay")
    (pair,) = (reason.sentence for reason in e.reasons if reason.about == "pair")
    assert "last 11 hours ago" in pair
    assert pair.endswith("of them of relation pay")
    assert "time unit" not in e.text(numbers=True)
    assert "mean gap" not in e.text()


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
    text, numbers = e.text(), e.text(numbers=True)
    assert f"score {e.score:.4f}" in text
    assert e.baseline.says in text
    assert numbers.startswith(text)
    for reason in e.reasons:
        assert (f"{reason.title}: {reason.sentence}" in text) == (abs(reason.contribution) >= 0.005)
        for fact in reason.facts:
            assert f"{fact.says}: {fact.shown} (usually {fact.usually})" in numbers
            assert fact.says not in text
    for part in ("geometric", "residual", "EdgeBank", "nearest partners", "last shared events", "degrees"):
        assert part in numbers
        assert part not in text


def test_why_is_what_speaks_for_it_strongest_first(predictor):
    e = predictor.explain(0, "n1", predictor.clock + 1.0)
    assert [abs(r.contribution) for r in e.reasons] == sorted((abs(r.contribution) for r in e.reasons), reverse=True)
    said = [reason.sentence for reason in e.reasons if reason.contribution > 0 and reason.sentence in e.why]
    assert e.why == "; ".join(said)
    assert 1 <= len(said) <= 3


LONG = "https://example.org/" + 12 * "a-very-long-path/" + "$x_1$"


@pytest.mark.parametrize("numbers", [False, True])
def test_nothing_in_a_figure_overlaps_or_is_cut_off(predictor, numbers):
    """Long ids, and ids that look like formulas."""
    t = predictor.clock + 1.0
    predictor.observe(LONG, "n1", t, [0.0, 0.0])
    predictor.observe(LONG, LONG + "other", t, [0.0, 0.0])
    drawn = picture.figure(predictor.explain(LONG, LONG + "other", t + 1), numbers)
    drawn.draw_without_rendering()
    texts = [text for text in drawn.findobj(Text) if text.get_text().strip() and text.get_visible()]
    boxes = [text.get_window_extent() for text in texts]
    for text, box in zip(texts, boxes, strict=True):
        whole = box.x0 >= 0 and box.y0 >= 0 and box.x1 <= drawn.bbox.x1 and box.y1 <= drawn.bbox.y1
        assert whole, text.get_text()
    for i, box in enumerate(boxes):
        for other in boxes[:i]:
            assert not box.overlaps(other), (texts[i].get_text(), box, other)


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
