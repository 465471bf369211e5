"""The predictor against the batch replay: the same scores, the same state, nothing seen too early, nothing lost."""

from __future__ import annotations

import hashlib
import os
from collections import Counter, defaultdict
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.online.streams import EVENTS, KNOWN, SWITCHES, live_stream, restless_model, save_prefix
from tsnn.config import Config
from tsnn.data.events import EventStream, NodeIds
from tsnn.data.queries import Queries
from tsnn.data.question import Question
from tsnn.errors import InputError, RunError
from tsnn.evaluation.catalog import default_split, load
from tsnn.evaluation.model import ModelScorer
from tsnn.evaluation.replay import score_queries
from tsnn.online import active, retrieve
from tsnn.online.event import Event
from tsnn.online.predictor import Predictor
from tsnn.plan.query_facts import shared_events
from tsnn.training.run import final_state, save_run
from tsnn.training.trainer import build_model
from tsnn.types import Visibility


def events_of(stream: EventStream, start: int = 0, stop: int | None = None) -> list[Event]:
    names, rows = stream.ids.external, range(stream.num_events)[start:stop]
    return [
        Event(
            names[stream.src[i]],
            names[stream.dst[i]],
            stream.t[i].item(),
            None if stream.msg is None else stream.msg[i],
            None if stream.edge_type is None else int(stream.edge_type[i]),
        )
        for i in rows
    ]


def candidates_of(stream: EventStream) -> np.ndarray:
    rng = np.random.default_rng(2)
    drawn = rng.integers(0, stream.num_nodes, (stream.num_events, 3))
    return np.concatenate([stream.dst[:, None], drawn], axis=1)


def strict_scores(model, stream: EventStream, cand: np.ndarray) -> np.ndarray:
    relation = np.zeros(stream.num_events, np.int64) if stream.edge_type is None else stream.edge_type
    ptr = np.arange(stream.num_events + 1) * cand.shape[1]
    cut = Visibility.parse("strict").cuts(stream.t)
    queries = Queries(cut, stream.src, stream.t, relation, ptr, cand.ravel())
    return score_queries(ModelScorer(model, stream), stream, queries).reshape(cand.shape)


def fingerprint(predictor: Predictor) -> str:
    digest = hashlib.sha256()
    for name, tensor in sorted(predictor.snapshot().tensors.items()):
        digest.update(name.encode() + tensor.numpy().tobytes())
    digest.update(repr((predictor.clock, predictor.num_nodes, predictor.num_events, predictor.aside)).encode())
    return digest.hexdigest()


@pytest.fixture
def plain(tmp_path: Path) -> tuple[Predictor, EventStream]:
    stream = live_stream()
    save_prefix(tmp_path / "run", stream, features__walks=True)
    return Predictor.load(tmp_path / "run"), stream


@pytest.mark.parametrize("name", SWITCHES)
def test_scoring_then_observing_equals_the_strict_evaluation(tmp_path, name):
    """Through ties and newcomers: strict scores to rounding, and the batch replay's state bit for bit."""
    stream = live_stream()
    model = save_prefix(tmp_path, stream, **SWITCHES[name])
    predictor = Predictor.load(tmp_path)
    assert predictor.num_nodes < stream.num_nodes  # newcomers are still to come
    cand = candidates_of(stream)
    expected, got = strict_scores(model, stream, cand), []
    names = stream.ids.external
    for row, event in enumerate(events_of(stream, KNOWN), KNOWN):
        got.append(predictor.score(event.src, [names[c] for c in cand[row]], event.t))
        predictor.observe_many([event])
    np.testing.assert_allclose(got, expected[KNOWN:], rtol=1e-5, atol=1e-5)
    assert_same_state(predictor, final_state(model, stream))


@pytest.mark.parametrize("kind", [float, int])
def test_relations_and_types_equal_the_strict_evaluation(tmp_path, kind):
    stream = live_stream(relations=True, types=True, kind=kind)
    rows = int(np.flatnonzero(np.maximum(stream.src, stream.dst) == stream.num_nodes - 1)[0]) + 1
    model = save_prefix(tmp_path, stream, rows=rows)  # later newcomers would have to guess their types
    predictor = Predictor.load(tmp_path)
    cand = candidates_of(stream)
    expected, names = strict_scores(model, stream, cand), stream.ids.external
    assert len(expected[rows:]) > 5
    for row, event in enumerate(events_of(stream, rows), rows):
        got = predictor.score(event.src, [names[c] for c in cand[row]], event.t, event.edge_type)
        np.testing.assert_allclose(got, expected[row], rtol=1e-5, atol=1e-5)
        predictor.observe_many([event])
    assert_same_state(predictor, final_state(model, stream))


def test_the_default_model_on_a_stream_of_distinct_times(tmp_path):
    """Full size, float32, the stream of `make demo`: what is served is what was evaluated."""
    stream, known = load("synthetic:roles:events=500,nodes=50"), 400
    model = build_model(Config(), default_split(stream)).eval()
    save_run(tmp_path, model, stream.take(slice(0, known)), {})
    predictor, cand = Predictor.load(tmp_path), candidates_of(stream)
    expected, names = strict_scores(model, stream, cand), stream.ids.external
    for row, event in enumerate(events_of(stream, known), known):
        got = predictor.score(event.src, [names[c] for c in cand[row]], event.t)
        np.testing.assert_allclose(got, expected[row], rtol=1e-5, atol=1e-5)
        predictor.observe_many([event])
    assert_same_state(predictor, final_state(model, stream))


def assert_same_state(predictor: Predictor, expected: dict[str, torch.Tensor]) -> None:
    got = predictor.snapshot().tensors
    assert set(got) == set(expected)
    for name, tensor in expected.items():
        assert torch.equal(got[name], tensor), name


@pytest.mark.parametrize("sizes", [(1,), (7, 2), (31,), (EVENTS,)])
def test_batches_leave_the_same_bits(tmp_path, sizes):
    """However events are batched, and wherever ties are cut, the state is that of the batch replay."""
    stream = live_stream()
    model = save_prefix(tmp_path, stream, train__dtype="float32")
    predictor, events, turn = Predictor.load(tmp_path), events_of(stream, KNOWN), 0
    while events:
        size = sizes[turn % len(sizes)]
        predictor.observe_many(events[:size])
        events, turn = events[size:], turn + 1
    assert_same_state(predictor, final_state(model, stream))


def test_scores_change_nothing(plain):
    predictor, stream = plain
    predictor.observe_many(events_of(stream, KNOWN, KNOWN + 20))
    before, clock = fingerprint(predictor), predictor.clock
    source = stream.ids.external[stream.src[KNOWN]]
    for t in (clock, clock + 3.0, clock):
        predictor.score(source, ["nobody", 0, ("a", 1)], t)
        predictor.score("somebody new", 0, t)
        predictor.recommend(source, t, 4)
        predictor.recommend("somebody else", t, 4, exact=False)
        predictor.explain(source, "nobody", t)
        predictor.recent(source, 5)
        predictor.knows("whoever")
        assert fingerprint(predictor) == before


def test_a_score_sees_earlier_times_only(plain):
    """Events of the very time asked about cannot matter; a moment later they do."""
    predictor, stream = plain
    rows = np.flatnonzero(stream.t == stream.t[KNOWN + 30])
    assert len(rows) > 1
    predictor.observe_many(events_of(stream, KNOWN, int(rows[0])))
    t, names = stream.t[rows[0]].item(), stream.ids.external
    source, others = names[stream.src[rows[0]]], [names[i] for i in range(predictor.num_nodes)]
    alone = predictor.score(source, others, t)
    ranked = predictor.recommend(source, t, 5)
    for event in events_of(stream, int(rows[0]), int(rows[-1]) + 1):
        predictor.observe_many([event])
        later = predictor.score(source, others, t + 1.0)
        assert predictor.score(source, others, t) == alone
        assert predictor.recommend(source, t, 5, candidates=others) == ranked
        assert not np.allclose(later, alone)
    assert predictor.score(source, others, t + 1.0) == later


def test_what_comes_later_cannot_matter(plain, tmp_path):
    """Two futures after the same past: the scores at the fork agree bit for bit."""
    predictor, _ = plain
    predictor.save(tmp_path / "fork")
    twin = Predictor.load(tmp_path / "fork")
    t = predictor.clock + 1.0
    predictor.observe_many([(0, "n1", t, [1.0, 2.0]), ("n3", 2, t, [0.0, 0.0])])
    twin.observe_many([("n5", 4, t, [9.0, 9.0])])
    assert predictor.score(0, ["n1", "n3", 4], t) == twin.score(0, ["n1", "n3", 4], t)
    assert predictor.score(0, ["n1", "n3", 4], t + 1) != twin.score(0, ["n1", "n3", 4], t + 1)


def test_save_and_load_go_on_bit_for_bit(plain, tmp_path):
    """Saved inside a tie, elsewhere and in place; the continued one is indistinguishable."""
    predictor, stream = plain
    middle = int(np.flatnonzero(np.diff(stream.t[KNOWN:]) == 0)[4]) + KNOWN + 1
    predictor.observe_many(events_of(stream, KNOWN, middle))
    predictor.save(tmp_path / "copy")
    predictor.save(tmp_path / "run")
    source, t = stream.ids.external[stream.src[middle]], predictor.clock
    for folder in ("copy", "run"):
        again = Predictor.load(tmp_path / folder)
        assert fingerprint(again) == fingerprint(predictor)
        for asked in (t, t + 2):
            assert again.recommend(source, asked, 6) == predictor.recommend(source, asked, 6)
    rest = events_of(stream, middle)
    again.observe_many(rest)
    predictor.observe_many(rest)
    assert fingerprint(again) == fingerprint(predictor)


def test_a_snapshot_does_not_follow_later_events(plain, tmp_path):
    predictor, stream = plain
    before, snapshot = fingerprint(predictor), predictor.snapshot()
    predictor.observe_many(events_of(stream, KNOWN))
    snapshot.save(tmp_path / "copy")
    assert fingerprint(Predictor.load(tmp_path / "copy")) == before


@pytest.mark.parametrize("stop", range(1, 6))
def test_an_interrupted_save_leaves_the_old_state_or_the_new_one(plain, tmp_path, monkeypatch, stop):
    """The manifest, ids, state, the manifest: wherever it stops, what is there is whole."""
    predictor, stream = plain
    before = fingerprint(predictor)
    predictor.observe_many(events_of(stream, KNOWN))
    after, replaced, real = fingerprint(predictor), [], os.replace

    def replace_some(source, target):
        if Path(target).parent.name == "run" and not Path(target).name.startswith("."):
            replaced.append(target)
            if len(replaced) == stop:
                raise KeyboardInterrupt
        real(source, target)

    monkeypatch.setattr("os.replace", replace_some)
    with suppress(KeyboardInterrupt):
        predictor.save(tmp_path / "run")
    monkeypatch.undo()
    assert len(replaced) == min(stop, 4)
    assert fingerprint(Predictor.load(tmp_path / "run")) == (before if stop < 4 else after)


def test_recommendations_are_the_best_of_all_scores(plain):
    predictor, stream = plain
    t = predictor.clock + 1.0
    for source in (0, "n1", "n3"):
        past = events_of(stream, 0, KNOWN)
        loops = any(e.src == e.dst == source for e in past)
        been = {e.dst for e in past if loops or e.dst != source}
        others = [name for name in predictor.run.ids.external if name in been]
        scores = predictor.score(source, others, t)
        order = sorted(range(len(others)), key=lambda i: -scores[i])
        best = predictor.recommend(source, t, 5)
        assert [one.dst for one in best] == [others[i] for i in order[:5]]
        np.testing.assert_allclose([one.score for one in best], [scores[i] for i in order[:5]], rtol=1e-9)
        assert all(one.score == one.geometric + one.residual + one.edgebank for one in best)
        assert len(predictor.recommend(source, t, 1000)) == len(others)


def test_seen_destinations_can_be_left_out(plain):
    predictor, stream = plain
    t = predictor.clock + 1.0
    seen = {e.dst for e in events_of(stream, 0, KNOWN) if e.src == 0}
    assert seen
    for exact in (True, False):
        fresh = {one.dst for one in predictor.recommend(0, t, 1000, exclude_seen=True, exact=exact)}
        assert fresh
        assert not fresh & seen
    named = predictor.recommend(0, t, 10, candidates=[*seen, "new"], exclude_seen=True)
    assert [one.dst for one in named] == ["new"]


def test_candidates_may_be_anybody(plain):
    predictor, _ = plain
    t = predictor.clock + 1.0
    named = ["n1", "unheard of", ("a", 2), 2]
    best = predictor.recommend(0, t, 10, candidates=named)
    assert {one.dst for one in best} == set(named)
    assert {one.dst: one.score for one in best} == dict(zip(named, predictor.score(0, named, t), strict=True))
    assert predictor.recommend(0, t, 3, candidates=[]) == []


def test_a_crowd_is_scored_as_each_alone(plain):
    """More candidates than fit in a block of facts or of the head, known and unknown."""
    predictor, _ = plain
    t, names = predictor.clock + 1.0, [*range(9000), "n1", "n3"]
    crowd = predictor.score(0, names, t)
    for i in (0, 2, 2047, 2048, 8191, 8192, 8999, 9000, 9001):
        assert crowd[i] == pytest.approx(predictor.score(0, names[i], t), rel=1e-9), names[i]


def test_only_types_that_have_been_destinations_are_recommended(tmp_path):
    stream = live_stream(types=True)
    odd = stream.take(stream.dst % 2 == 1)
    save_prefix(tmp_path, odd, rows=40)
    predictor = Predictor.load(tmp_path)
    best = predictor.recommend(0, predictor.clock + 1.0, 1000)
    assert best
    assert all(isinstance(one.dst, str) for one in best)  # odd nodes have text ids


def test_the_shortlist_keeps_the_best(plain):
    predictor, stream = plain
    predictor.observe_many(events_of(stream, KNOWN))
    for t in (predictor.clock, predictor.clock + 1.0):
        for source in predictor.run.ids.external:
            assert predictor.recommend(source, t, 5, exact=False) == predictor.recommend(source, t, 5)


def test_of_a_hubs_partners_the_shortlist_takes_those_with_most_events(plain, monkeypatch):
    predictor, stream = plain
    predictor.observe_many(events_of(stream, KNOWN))
    standpoint, _ = predictor.stand(stream.ids.external[0], [], predictor.clock + 1.0, None)
    tables, related = standpoint.moment.counters.tables, standpoint.related
    pairs, moves, visited = Counter(), Counter(), defaultdict(list)
    for u, v in zip(stream.src.tolist(), stream.dst.tolist(), strict=True):
        pairs[u, v] += 1
        if visited[u]:
            moves[visited[u][-1], v] += 1
        visited[u].append(v)
    last = visited[0][-3:]
    expected = [pairs[0, c] + pairs[c, 0] + sum(moves[p, c] for p in last) for c in related.tolist()]
    events = np.empty(len(related), np.int64)
    shared_events(tables, 0, related, events)
    np.testing.assert_array_equal(events, expected)
    monkeypatch.setattr(retrieve, "RELATED", 3)
    kept = retrieve._closest(tables, 0, related)
    assert len(related) > len(kept) == 3
    assert sorted(events[np.isin(related, kept)]) == sorted(events)[-3:]


@pytest.mark.parametrize("size", [1, 5, 320, 999, 5000])
def test_the_largest_are_found_among_any_number(size):
    values = torch.from_numpy(np.random.default_rng(size).normal(size=size).round(2))  # some are equal
    found = active.largest(values, 10)
    assert len(set(found.tolist())) == len(found) == min(size, 10)
    assert sorted(values[found].tolist()) == sorted(values.tolist())[-10:]


@pytest.mark.parametrize("most_touched", [6, 4096], ids=["forgetting", "keeping up"])
def test_the_most_active_are_kept_up_with_events(plain, monkeypatch, most_touched):
    """At both moments, through ties and newcomers, the lists are those of a fresh look at everybody."""
    monkeypatch.setattr(active, "ACTIVE", 3)
    monkeypatch.setattr(active, "MOST_TOUCHED", most_touched)
    predictor, stream = plain
    for event in events_of(stream, KNOWN):
        predictor.observe_many([event])
        for t in (predictor.clock, predictor.clock + 1.0):
            standpoint, _ = predictor.stand(event.src, [], t, None)
            tables, n = standpoint.moment.counters.tables, predictor.num_nodes
            kept = standpoint.state.active[standpoint.moment.settled].lists(tables, n)
            fresh = active.ActiveNodes().lists(tables, n)
            for column, a, b in zip((tables.last_t, tables.last_in_row, tables.in_degree), kept, fresh, strict=True):
                assert sorted(column[a]) == sorted(column[b])  # of equals either will do
                assert len(set(a.tolist())) == 3


def test_facts_of_the_unrelated_are_plain(plain):
    """Hash tables are only probed for related candidates; marking everybody as related changes no fact."""
    predictor, stream = plain
    predictor.observe_many(events_of(stream, KNOWN))
    for source in range(predictor.num_nodes):
        name = stream.ids.external[source]
        for t in (predictor.clock, predictor.clock + 1.0):
            standpoint, _ = predictor.stand(name, [], t, None)
            cand = np.arange(predictor.num_nodes)
            related = np.isin(cand, standpoint.related)
            sparse, full = (standpoint.survey(cand, mark).facts for mark in (related, np.ones_like(related)))
            np.testing.assert_allclose(sparse, full, rtol=1e-5, atol=1e-6)


def test_newcomers_become_nodes_when_observed(plain):
    predictor, _ = plain
    nodes, events, t = predictor.num_nodes, predictor.num_events, predictor.clock + 2.0
    unseen = predictor.score("ann", "n1", t)
    assert not predictor.knows("ann")
    predictor.observe_many([("ann", "bob", t, [0.5, 0.5]), ("ann", "n1", t, [0.5, 0.5])])
    assert predictor.knows("ann")
    assert predictor.knows("bob")
    assert (predictor.num_nodes, predictor.num_events, predictor.clock) == (nodes + 2, events + 2, t)
    assert predictor.score("ann", "n1", t) == unseen
    assert predictor.score("ann", "n1", t + 1) != unseen
    assert predictor.recent("ann") == [("n1", t, None), ("bob", t, None)]
    assert predictor.recent("ann", 1) == [("n1", t, None)]
    assert predictor.recent("nobody") == []


def test_many_newcomers_outgrow_every_table(tmp_path):
    """Hundreds of new nodes, one by one: growth loses nothing, and the state is that of a batch replay."""
    rng = np.random.default_rng(0)
    stream = live_stream()
    fresh = 300
    names = [*stream.ids.external, *(f"late{i}" for i in range(fresh))]
    start = stream.t[-1]
    src = np.arange(stream.num_nodes, stream.num_nodes + fresh)
    dst = np.maximum(src - rng.integers(1, 30, fresh), 0)
    whole = EventStream(
        np.concatenate([stream.src, src]),
        np.concatenate([stream.dst, dst]),
        np.concatenate([stream.t, start + 1 + np.arange(fresh) // 2]),
        type(stream.ids)(names),
        msg=rng.normal(size=(EVENTS + fresh, 2)).astype(np.float32),
    )
    model = save_prefix(tmp_path, whole)
    predictor = Predictor.load(tmp_path)
    events = events_of(whole, KNOWN)
    for event in events[:-100]:
        predictor.observe_many([event])
    predictor.observe_many(events[-100:])
    assert_same_state(predictor, final_state(model, whole))
    assert predictor.snapshot().ids.external == names


def test_whole_times_stay_whole(tmp_path):
    """Nanoseconds since 1970: neither the clock nor a gap loses its last digits."""
    start = 1_700_000_000_000_000_000
    stream = live_stream(kind=int)
    stream = replace(stream, t=stream.t + start)
    save_prefix(tmp_path, stream)
    predictor = Predictor.load(tmp_path)
    t = predictor.clock + 1
    assert isinstance(predictor.clock, int)
    predictor.observe(0, "n1", t, [0.0, 0.0])
    assert predictor.recent(0, 1) == [("n1", t, None)]
    assert predictor.explain(0, "n1", t + 3).facts["pair_gap"] == 3.0
    with pytest.raises(InputError, match="counts in whole numbers"):
        predictor.check(Event(0, "n1", 0.5, [0.0, 0.0]))
    with pytest.raises(InputError, match="64 bits"):
        predictor.score(0, "n1", 2**63)


def test_late_events_are_refused_or_kept_aside(plain, tmp_path):
    predictor, _ = plain
    clock, before = predictor.clock, fingerprint(predictor)
    with pytest.raises(InputError, match="send it in order"):
        predictor.observe(0, "n1", clock - 1, [0.0, 0.0])
    with pytest.raises(InputError, match="before the clock"):
        predictor.score(0, "n1", clock - 1)
    with pytest.raises(InputError, match="before the clock"):
        predictor.recommend(0, clock - 1)
    with pytest.raises(InputError, match="send it in order"):  # the second event alone is late: none happens
        predictor.observe_many([(0, "new", clock + 5, [0.0, 0.0]), (0, "n1", clock + 4, [0.0, 0.0])])
    assert fingerprint(predictor) == before
    patient, twin = Predictor.load(tmp_path / "run", late="aside"), Predictor.load(tmp_path / "run")
    timely, late = (0, "n1", clock + 5, [0.0, 0.0]), (0, "n3", clock + 4, [1.0, 1.0])
    patient.observe_many([timely, late])
    twin.observe_many([timely])
    assert [(e.src, e.dst, e.t) for e in patient.aside] == [late[:3]]
    assert patient.num_events == twin.num_events
    patient.aside.clear()
    assert fingerprint(patient) == fingerprint(twin)


BAD = {
    "a time that is none": ({"t": "noon"}, "finite number"),
    "a time without end": ({"t": float("inf")}, "finite number"),
    "no source": ({"src": None}, "missing"),
    "an unhashable id": ({"dst": [1]}, "cannot name a node"),
    "no features": ({"msg": None}, "give 2 finite numbers"),
    "too many features": ({"msg": [1.0, 2.0, 3.0]}, "give 2 finite numbers"),
    "words for features": ({"msg": ["a", "b"]}, "give 2 finite numbers"),
    "features that are not finite": ({"msg": [1.0, float("nan")]}, "give 2 finite numbers"),
    "a relation where there is none": ({"edge_type": 1}, "leave edge_type out"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_event_is_refused_whole(plain, case):
    predictor, _ = plain
    change, message = BAD[case]
    before = fingerprint(predictor)
    good = Event("fresh", "n1", predictor.clock + 1, [0.0, 0.0])
    with pytest.raises(InputError, match=message):
        predictor.observe_many([good, good._replace(**change)])
    assert fingerprint(predictor) == before
    assert not predictor.knows("fresh")


def test_relations_must_be_named_and_known(tmp_path):
    save_prefix(tmp_path, live_stream(relations=True))
    predictor = Predictor.load(tmp_path)
    t = predictor.clock + 1
    assert predictor.score(0, "n1", t, 0) != predictor.score(0, "n1", t, 1)
    for relation in (None, 3, -1, "likes"):
        with pytest.raises(InputError, match="one of the run's relations, 0 to 2"):
            predictor.score(0, "n1", t, relation)
    predictor.observe(0, "n1", t, [0.0, 0.0], 2)
    assert predictor.recent(0, 1) == [("n1", t, 2)]


def test_questions_that_cannot_be_asked(plain):
    predictor, _ = plain
    with pytest.raises(InputError, match="at least one destination"):
        predictor.recommend(0, predictor.clock + 1, 0)
    with pytest.raises(InputError, match="cannot name a node"):
        predictor.score([0], "n1", predictor.clock + 1)
    with pytest.raises(InputError, match="'refuse' or 'aside'"):
        Predictor(predictor.run, {}, late="drop")  # type: ignore[arg-type]


def test_torn_and_old_runs_are_refused(plain, tmp_path):
    predictor, _ = plain
    with pytest.raises(RunError, match="earlier version"):
        Predictor(predictor.run, {"h": torch.zeros(1)})
    (tmp_path / "run" / "state.safetensors").write_bytes(b"torn")
    with pytest.raises(RunError, match="not as it was written"):
        Predictor.load(tmp_path / "run")
    (tmp_path / "run" / "manifest.json").unlink()
    with pytest.raises(RunError, match="cannot be read"):
        Predictor.load(tmp_path / "run")
    with pytest.raises(RunError):
        Predictor.load(tmp_path / "nowhere")


def test_a_run_of_one_timestamp(tmp_path):
    """All events at one time: asked at that time, nothing has happened; afterwards everything has."""
    stream = live_stream()
    stream = replace(stream, t=np.full(EVENTS, 7.0))
    model = restless_model(stream)
    save_prefix(tmp_path, stream, rows=EVENTS)
    predictor = Predictor.load(tmp_path)
    names = stream.ids.external
    assert predictor.num_events == EVENTS
    assert set(predictor.explain(0, "n1", 7.0).facts.values()) <= {0.0, -1.0, 0.5}
    expected = strict_scores(model, stream, candidates_of(stream))
    got = predictor.score(names[stream.src[5]], [names[c] for c in candidates_of(stream)[5]], 7.0)
    np.testing.assert_allclose(got, expected[5], rtol=1e-5, atol=1e-5)
    assert predictor.explain(0, "n1", 8.0).facts["src_count"] > 0


def bipartite(types: bool) -> EventStream:
    """Users visit items; the users are half of all nodes. One item has not been visited yet."""
    rng = np.random.default_rng(7)
    names = [f"user{i}" for i in range(12)] + [f"item{i}" for i in range(12)]
    src = np.r_[np.arange(12), rng.integers(0, 12, 188)]
    dst = np.r_[np.arange(12, 23), rng.integers(12, 23, 189)]
    kinds = np.repeat([0, 1], 12) if types else None
    return EventStream(src, dst, np.arange(200.0), NodeIds(names), rng.normal(size=(200, 2)).astype("f4"), None, kinds)


@pytest.mark.parametrize("types", [False, True])
@pytest.mark.parametrize("exact", [True, False])
def test_users_are_not_recommended_to_users(tmp_path, types, exact):
    """The candidates of training and of figures: past destinations, or nodes of a type that has been one."""
    stream = bipartite(types)
    save_run(tmp_path, restless_model(stream), stream, {})
    predictor = Predictor.load(tmp_path)
    items = {f"item{i}" for i in range(12 if types else 11)}
    t = predictor.clock + 1.0
    assert {one.dst for one in predictor.recommend("user3", t, 100, exact=exact)} == items
    assert {one.dst for one in predictor.recommend("nobody", t, 100, exact=exact)} == items
    predictor.observe("user3", "user5", t, [0.0, 0.0])
    predictor.observe("newcomer", "new item", t, [0.0, 0.0])
    now = {one.dst for one in predictor.recommend("user4", t, 100, exact=exact)}
    assert now == items | ({"new item"} if types else set())  # what happens at t is not seen at t, but a type is known
    later = {one.dst for one in predictor.recommend("user4", t + 1.0, 100, exact=exact)}
    asked_users = {f"user{i}" for i in range(12) if i != 4} | {"newcomer"} if types else {"user5"}
    assert later == items | asked_users | {"new item"}


def test_all_nodes_can_be_ranked_by_asking_so(tmp_path):
    stream = bipartite(types=False)
    save_run(tmp_path, restless_model(stream), stream, {})
    predictor = Predictor.load(tmp_path)
    t = predictor.clock + 1.0
    others = [name for name in stream.ids.external if name != "user3"]
    best = predictor.recommend("user3", t, 100, candidates="all")
    assert {one.dst: one.score for one in best} == dict(zip(others, predictor.score("user3", others, t), strict=True))
    assert {one.dst for one in predictor.recommend("user3", t, 100, candidates="all", exact=False)} == set(others)
    with pytest.raises(InputError, match="name nodes in a list"):
        predictor.recommend("user3", t, candidates="item4")


def test_the_card_of_a_run_says_who_is_ranked(tmp_path):
    stream = bipartite(types=False)
    card = {"question": Question(candidates="all").to_card(), "visibility": "strict"}
    save_run(tmp_path, restless_model(stream), stream, {"card": card})
    predictor = Predictor.load(tmp_path)
    t = predictor.clock + 1.0
    assert len(predictor.recommend("user3", t, 100)) == 23
    assert len(predictor.recommend("user3", t, 100, candidates="destinations")) == 11
