import numpy as np
import pytest

from tests.data.test_split import random_stream
from tsnn.data.dgb import split_dgb
from tsnn.data.events import NodeIds, make_stream
from tsnn.data.negatives import DgbNegatives, NegativePool, draw_training_negatives
from tsnn.data.question import Question
from tsnn.data.split import split_by_time
from tsnn.errors import InputError
from tsnn.types import Visibility


def literal_negatives(split, segment, strategy, seed):
    """The page's sampler with every set built anew for every batch, over the file's ids."""
    ids = np.array(split.stream.ids.external)
    start, stop = split.bounds(segment.removeprefix("new_"))
    rows = split.new_rows(start, stop) if segment.startswith("new_") else np.arange(start, stop)
    own = split.stream.take(rows) if segment.startswith("new_") else split.full
    src, dst, t = ids[own.src], ids[own.dst], own.t
    us, ud = np.unique(src), np.unique(dst)
    rs = np.random.RandomState(seed)

    def edges(a, b):
        inside = (t >= a) & (t <= b)
        return set((s, d) for s, d in zip(src[inside], dst[inside], strict=True))  # noqa: C401

    out = []
    for a in range(0, len(rows), 200):
        batch = rows[a : a + 200]
        bs, bd, bt = ids[split.stream.src[batch]], ids[split.stream.dst[batch]], split.stream.t[batch]
        if strategy == "random":
            rs.randint(0, len(us), len(batch))
            out += list(zip(bs, ud[rs.randint(0, len(ud), len(batch))], strict=True))
            continue
        cand = edges(t.min(), bt[0])
        if strategy == "inductive":
            cand = cand - edges(t.min(), split.stream.t[start - 1])
        cand = list(cand - edges(bt[0], bt[-1]))
        if len(batch) > len(cand):
            pool = set((s, d) for s in us for d in ud)  # noqa: C401
            pool = list(pool - set(zip(bs, bd, strict=True)))
            missing = len(batch) - len(cand)
            picked = rs.choice(len(pool), size=missing, replace=len(pool) < missing)
            out += [pool[i] for i in picked] + cand
        else:
            out += [cand[i] for i in rs.choice(len(cand), size=len(batch), replace=False)]
    return rows, np.array(out)


def two_sided(events=3000, sources=30, destinations=12):
    rng = np.random.default_rng(2)
    src, dst = rng.integers(0, sources, events), sources + rng.integers(0, destinations, events)
    return make_stream(src, dst, np.arange(events) // 3, ids=NodeIds(range(1, sources + destinations + 1)))


def test_all_nodes_are_drawn_from_sources_too_and_keep_the_source():
    split = split_dgb(two_sided())
    for segment in ("test", "new_test"):
        drawn = DgbNegatives(split, segment, "all-nodes")
        assert (drawn.neg_dst < 30).any(), "sources too"
        assert (drawn.neg_dst >= 30).any()
        assert drawn.neg_src.tolist() == split.stream.src[drawn.rows].tolist()
        assert DgbNegatives(split, segment, "all-nodes").neg_dst.tolist() == drawn.neg_dst.tolist()


def test_without_collisions_is_random_but_for_those_that_collide():
    split = split_dgb(two_sided())
    usual, own = DgbNegatives(split, "test"), DgbNegatives(split, "test", "no-collisions")
    positive = split.stream.dst[own.rows]
    collided = usual.neg_dst == positive
    assert collided.any()
    assert not (own.neg_dst == positive).any()
    first = slice(0, 200)  # later batches draw from a generator that has moved on
    assert (own.neg_dst[first] == usual.neg_dst[first])[~collided[first]].all()
    assert set(own.neg_dst.tolist()) == set(usual.neg_dst.tolist())


def test_a_single_destination_always_collides():
    split = split_dgb(two_sided(destinations=1))
    with pytest.raises(InputError, match="no other destination"):
        DgbNegatives(split, "test", "no-collisions")


@pytest.mark.parametrize("strategy", ["random", "historical", "inductive"])
@pytest.mark.parametrize(("segment", "seed"), [("val", 0), ("new_val", 1), ("test", 2), ("new_test", 3)])
def test_dgb_negatives_are_the_literal_ones(strategy, segment, seed):
    split = split_dgb(random_stream(4000, 60, seed=5))
    negatives = DgbNegatives(split, segment, strategy)
    rows, pairs = literal_negatives(split, segment, strategy, seed)
    ids = np.array(split.stream.ids.external)
    assert negatives.rows.tolist() == rows.tolist()
    assert len(negatives) == len(rows)
    assert ids[negatives.neg_src].tolist() == pairs[:, 0].tolist()
    assert ids[negatives.neg_dst].tolist() == pairs[:, 1].tolist()


@pytest.mark.parametrize("strategy", ["historical", "inductive"])
def test_real_negatives_are_the_literal_ones(real, strategy):
    split = split_dgb(real("dgb:USLegis"))
    negatives = DgbNegatives(split, "test", strategy)
    _, pairs = literal_negatives(split, "test", strategy, 2)
    ids = np.array(split.stream.ids.external)
    assert (ids[negatives.neg_src] == pairs[:, 0]).all()
    assert (ids[negatives.neg_dst] == pairs[:, 1]).all()


def test_random_keeps_the_source_and_a_seed_can_be_given():
    split = split_by_time(random_stream())
    one, two = DgbNegatives(split, "test"), DgbNegatives(split, "test", seed=7)
    assert (one.neg_src == split.stream.src[one.rows]).all()
    assert (one.neg_dst != two.neg_dst).any()


def test_no_new_rows_no_negatives():
    stream = make_stream([0, 1] * 50, [2, 3] * 50, np.arange(100))
    assert len(DgbNegatives(split_by_time(stream), "new_test", "historical")) == 0


def test_unknown_names():
    split = split_by_time(random_stream())
    with pytest.raises(InputError, match="none of val, new_val, test, new_test"):
        DgbNegatives(split, "train")
    with pytest.raises(InputError, match="none of random, historical, inductive"):
        DgbNegatives(split, "test", "hard")


def typed_stream(num_events=3000, seed=0):
    """Sources 0..19, destinations of type 1 (relation 0) and of type 2 (relation 1)."""
    rng = np.random.default_rng(seed)
    relation = rng.integers(2, size=num_events)
    dst = np.where(relation == 0, rng.integers(20, 40, num_events), rng.integers(40, 70, num_events))
    types = np.repeat([0, 1, 2], [20, 20, 30])
    t = np.sort(rng.integers(num_events // 2, size=num_events))
    return make_stream(rng.integers(20, size=num_events), dst, t, edge_type=relation, node_type=types)


@pytest.mark.parametrize("sampler", ["random", "mixed"])
def test_training_negatives_keep_the_type(sampler):
    stream = typed_stream()
    rows = np.arange(1000, 2000)
    cuts = Visibility("strict").cuts(stream.t)[rows]
    pool = NegativePool.build(stream, 2100, Question())
    drawn = draw_training_negatives(stream, cuts, rows, 7, sampler, np.random.default_rng(0), pool)
    assert drawn.shape == (1000, 7)
    assert (stream.node_type[drawn] == stream.node_type[stream.dst[rows]][:, None]).all()
    assert (drawn != stream.dst[rows][:, None]).all()
    again = draw_training_negatives(stream, cuts, rows, 7, sampler, np.random.default_rng(0), pool)
    assert (drawn == again).all()


@pytest.mark.parametrize("sampler", ["random", "mixed"])
def test_a_negative_is_the_positive_only_where_that_is_asked_for(sampler):
    """D-18: uniform over thirty destinations, one in thirty is the positive."""
    stream = typed_stream()
    rows = np.arange(1000, 2000)
    pool = NegativePool.build(stream, 2100, Question())

    def share(**asked: bool) -> float:
        drawn = draw_training_negatives(stream, rows, rows, 20, sampler, np.random.default_rng(0), pool, **asked)
        assert (stream.node_type[drawn] == stream.node_type[stream.dst[rows]][:, None]).all()
        return float((drawn == stream.dst[rows][:, None]).mean())

    assert share() == 0
    assert share(collisions=True) > 0.03


def test_random_is_uniform_over_training_destinations():
    stream = make_stream(np.zeros(1000, int), np.r_[np.arange(900) % 9 + 1, np.full(100, 50)], np.arange(1000))
    pool = NegativePool.build(stream, 900, Question())
    rows = np.full(1000, 899)
    drawn = draw_training_negatives(stream, rows, rows, 20, "random", np.random.default_rng(0), pool)
    counts = np.bincount(drawn.ravel(), minlength=11)
    assert counts[10] == 0  # seen after training only
    assert counts[stream.dst[899]] == 0
    assert np.abs(counts[1:9] / 20_000 - 1 / 8).max() < 0.02


def test_mixed_reads_only_below_the_cut():
    """app:neg_sampling. Source 0 meets 10 before the cut and 11 after it; others meet 12 before and 13 after."""
    src = np.array([0, 1] * 50 + [0, 1] * 50)
    dst = np.array([10, 12] * 50 + [11, 13] * 50)
    stream = make_stream(src, dst, np.arange(200))
    ids = np.array(stream.ids.external)
    pool = NegativePool.build(stream, 200, Question())
    rows = np.full(4000, 198)
    drawn = ids[
        draw_training_negatives(stream, np.full(4000, 100), rows, 5, "mixed", np.random.default_rng(0), pool)
    ].ravel()
    share = {node: np.mean(drawn == node) for node in (10, 11, 12, 13)}
    assert share[11] == 0  # the positive
    uniform = 0.25 / 3
    assert share[10] == pytest.approx(0.5 + 0.125 + uniform, abs=0.02)
    assert share[12] == pytest.approx(0.125 + uniform, abs=0.02)
    assert share[13] == pytest.approx(uniform, abs=0.02)


def test_mixed_without_history_is_uniform():
    stream = random_stream()
    pool = NegativePool.build(stream, 700, Question())
    rows = np.arange(50)
    drawn = draw_training_negatives(stream, np.zeros(50, int), rows, 3, "mixed", np.random.default_rng(0), pool)
    assert np.isin(drawn, stream.dst[:700]).all()


def test_a_collision_that_cannot_be_avoided_stays():
    stream = make_stream([0, 1, 2], [9, 9, 9], [0, 1, 2])
    pool = NegativePool.build(stream, 3, Question())
    drawn = draw_training_negatives(stream, np.arange(3), np.arange(3), 2, "mixed", np.random.default_rng(0), pool)
    assert (drawn == stream.dst[0]).all()


def test_training_samplers_refuse_nonsense():
    stream = random_stream()
    with pytest.raises(InputError, match="no training events"):
        NegativePool.build(stream, 0, Question())
    pool = NegativePool.build(stream, 700, Question())
    with pytest.raises(InputError, match="neither random nor mixed"):
        draw_training_negatives(stream, np.zeros(1, int), np.zeros(1, int), 1, "hard", np.random.default_rng(0), pool)
