import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tsnn.data.dgb import split_dgb
from tsnn.data.events import make_stream
from tsnn.data.split import split_by_time
from tsnn.errors import InputError


def random_stream(num_events=1000, num_nodes=60, ties=5, seed=0):
    rng = np.random.default_rng(seed)
    t = np.sort(rng.integers(num_events // ties, size=num_events)).astype(np.float64)
    src, dst = rng.integers(1, num_nodes + 1, size=(2, num_events))
    return make_stream(src, dst, t)


def test_segments_and_new_rows():
    stream = make_stream([0, 1, 0, 1, 0, 5, 0, 1, 0, 6], [1, 2, 2, 2, 1, 1, 2, 2, 1, 5], np.arange(10))
    split = split_by_time(stream, val=0.2, test=0.2)
    assert (split.train_end, split.val_end) == (6, 8)
    assert split.segment_starts == (0, 6, 8)
    assert [split.bounds(x) for x in ("train", "val", "test")] == [(0, 6), (6, 8), (8, 10)]
    assert split.new_node.tolist() == [False, False, False, False, True]
    assert split.new_rows(8, 10).tolist() == [9]
    assert split.new_rows(6, 8).tolist() == []
    with pytest.raises(InputError, match="none of train, val, test"):
        split.bounds("dev")


@given(st.lists(st.integers(0, 12), min_size=12, max_size=80), st.integers(0, 5))
def test_ties_never_straddle(times, seed):
    t = np.sort(np.array(times))
    stream = make_stream(np.arange(len(t)) % 5, np.arange(len(t)) % 3 + 5, t)
    try:
        split = split_by_time(stream)
    except InputError:  # a segment would be empty
        return
    for end in (split.train_end, split.val_end):
        assert t[end - 1] < t[end]


def test_an_empty_segment_is_refused():
    stream = make_stream([0] * 10, [1] * 10, [0] * 9 + [1])
    with pytest.raises(InputError, match="equal times are kept together"):
        split_by_time(stream)
    with pytest.raises(InputError, match="leave a share for training"):
        split_by_time(stream, val=0.5, test=0.5)


def literal_dgb_split(src, dst, t):
    """The page's recipe, line by line, on the file's own numpy arrays."""
    val_time, test_time = np.quantile(t, [1 - 0.15 - 0.15, 1 - 0.15])
    late = t > val_time
    nodes = set(src) | set(dst)
    pool = set(src[late]).union(set(dst[late]))
    held_out = set(random.Random(2020).sample(tuple(pool), int(0.1 * len(nodes))))
    observed = np.array([s not in held_out and d not in held_out for s, d in zip(src, dst, strict=True)])
    train = (t <= val_time) & observed
    new_nodes = nodes - (set(src[train]) | set(dst[train]))
    has_new = np.array([s in new_nodes or d in new_nodes for s, d in zip(src, dst, strict=True)])
    return train, late & (t <= test_time), t > test_time, has_new


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_dgb_split_is_the_literal_one(seed):
    full = random_stream(seed=seed)
    split = split_dgb(full)
    ids = np.array(full.ids.external)
    train, val, test, has_new = literal_dgb_split(ids[full.src], ids[full.dst], full.t)
    assert split.full is full
    assert (split.train_end, split.val_end - split.train_end) == (train.sum(), val.sum())
    kept = full.take(train | val | test)
    assert (split.stream.src == kept.src).all()
    assert (split.stream.dst == kept.dst).all()
    assert (split.stream.t == kept.t).all()
    rows_of_kept = np.flatnonzero(train | val | test)
    assert rows_of_kept[split.new_rows(*split.bounds("test"))].tolist() == np.flatnonzero(test & has_new).tolist()
    assert rows_of_kept[split.new_rows(*split.bounds("val"))].tolist() == np.flatnonzero(val & has_new).tolist()


def test_dgb_split_wants_integer_ids():
    with pytest.raises(InputError, match="integer node ids"):
        split_dgb(make_stream(list("abcdefghij"), list("bcdefghija"), np.arange(10)))


SIZES = {  # events of train / val / test, new-node test
    "dgb:uci": (8975, 8976),
    "dgb:USLegis": (10005, 4950),
    "dgb:CanParl": (11809, 10113),
    "dgb:enron": (18786, 18785),
    "dgb:wikipedia": (23621, 23621),
}


@pytest.mark.parametrize("address", SIZES)
def test_real_dgb_splits(real, address):
    full = real(address)
    split = split_dgb(full)
    val, test = SIZES[address]
    assert split.val_end - split.train_end == val
    assert split.stream.num_events - split.val_end == test
    ids = np.array(full.ids.external)
    train, *_ = literal_dgb_split(ids[full.src], ids[full.dst], full.t)
    assert split.train_end == train.sum()
