"""Undirected events: one stream whichever end is written first, asked from both; and what a table looks like."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tsnn.data.direction import looks_bipartite, looks_undirected
from tsnn.data.events import EventStream, make_stream
from tsnn.data.negatives import NegativePool, draw_training_negatives
from tsnn.data.question import Question, asks
from tsnn.data.table import from_arrays, read_table, write_table
from tsnn.errors import InputError
from tsnn.evaluation.catalog import load


def contacts(rows: int = 120, people: int = 12, text: bool = False) -> tuple[list, list, np.ndarray]:
    """Pairs of people in the order of their names, a few of them with themselves."""
    rng = np.random.default_rng(0)
    ends = np.sort(rng.integers(0, people, (rows, 2)), axis=1)
    names = [f"p{i:02}" for i in range(people)] if text else list(range(people))
    return [names[i] for i in ends[:, 0]], [names[i] for i in ends[:, 1]], np.arange(float(rows))


def turned(src: list, dst: list, seed: int = 1) -> tuple[list, list]:
    """The same rows, about half of them written the other way round."""
    flip = np.random.default_rng(seed).random(len(src)) < 0.5
    both = [(v, u) if turn else (u, v) for u, v, turn in zip(src, dst, flip, strict=True)]
    return [u for u, _ in both], [v for _, v in both]


def named_ends(stream: EventStream) -> list[tuple]:
    names = stream.ids.external
    return [(names[u], names[v]) for u, v in zip(stream.src, stream.dst, strict=True)]


@pytest.mark.parametrize("text", [False, True])
def test_turned_rows_are_the_same_stream(text):
    src, dst, t = contacts(text=text)
    one, other = (from_arrays(*ends, t, undirected=True) for ends in ((src, dst), turned(src, dst)))
    assert named_ends(one) == named_ends(other)
    assert named_ends(one) != named_ends(from_arrays(src, dst, t))
    assert text or one.fingerprint() == other.fingerprint()  # texts are numbered as they appear
    assert one.fingerprint() != from_arrays(src, dst, t).fingerprint()
    assert one.take(slice(5, 9)).undirected
    assert one.as_undirected() is one


def test_a_parquet_file_keeps_it(tmp_path):
    stream = from_arrays(*contacts(), undirected=True)
    write_table(stream, tmp_path / "contacts.parquet")
    again = read_table(tmp_path / "contacts.parquet")
    assert again.undirected
    assert again.fingerprint() == stream.fingerprint()


def test_an_undirected_event_is_asked_from_both_ends_and_a_loop_once():
    stream = make_stream([4, 2, 3], [1, 2, 5], [0, 1, 2], undirected=True)
    own = asks(stream, np.array([0, 1, 2]))
    assert own.rows.tolist() == [0, 0, 1, 2, 2]
    names = stream.ids.external
    pairs = [(names[u], names[v]) for u, v in zip(own.src, own.dst, strict=True)]
    assert {frozenset(pairs[:2]), frozenset(pairs[3:])} == {frozenset({(4, 1), (1, 4)}), frozenset({(3, 5), (5, 3)})}
    assert pairs[2] == (2, 2)
    directed = asks(make_stream([4, 2], [1, 2], [0, 1]), np.array([1]))
    assert (directed.rows.tolist(), directed.src.tolist(), directed.dst.tolist()) == ([1], [1], [1])


def test_whoever_took_part_is_a_candidate():
    stream = make_stream([0, 1, 2, 3], [5, 6, 5, 6], range(4), ids=make_stream(range(9), range(9), range(9)).ids)
    assert Question().pool(stream).nodes.tolist() == [5, 6]
    assert Question().pool(stream.as_undirected()).nodes.tolist() == [0, 1, 2, 3, 5, 6]


def test_history_negatives_are_partners_of_either_side():
    src, dst, t = contacts(400)
    stream = from_arrays(src, dst, t, undirected=True)
    pool = NegativePool.build(stream, 300, Question())
    asked = np.flatnonzero(pool.asks.rows > 200)
    drawn = draw_training_negatives(stream, pool.asks.rows[asked], asked, 40, "mixed", np.random.default_rng(0), pool)
    met = {(u, v) for u, v in zip(pool.asks.src, pool.asks.dst, strict=True)}
    share = np.mean([(u, v) in met for u, row in zip(pool.asks.src[asked], drawn, strict=True) for v in row])
    assert share > 0.5
    assert (drawn != pool.asks.dst[asked][:, None]).mean() > 0.99


def test_the_question_names_the_direction_of_its_data():
    directed = from_arrays(*contacts())
    assert Question().direction is None
    assert Question().about(directed).direction == "directed"
    assert Question().about(directed.as_undirected()).direction == "undirected"
    with pytest.raises(InputError, match="about undirected events and the data are directed"):
        Question().about(directed.as_undirected()).about(directed)


@pytest.mark.parametrize("text", [False, True])
def test_a_table_with_the_smaller_id_first_looks_undirected(text):
    src, dst, t = contacts(text=text)
    said = looks_undirected(from_arrays(src, dst, t))
    assert "the smaller of the two ids stands first" in said
    assert "--undirected" in said
    assert "the larger" in looks_undirected(from_arrays(dst, src, t))
    assert looks_undirected(from_arrays(*turned(src, dst), t)) is None
    assert looks_undirected(from_arrays(src, dst, t, undirected=True)) is None
    assert looks_undirected(from_arrays(src[:15], dst[:15], t[:15])) is None  # so few may do so by chance


def test_a_table_with_every_event_both_ways_looks_undirected():
    src, dst, t = contacts()
    both = from_arrays([*src, *dst], [*dst, *src], np.r_[t, t], sort=True)
    assert "twice, once in either direction" in looks_undirected(both)
    later = replace(both, t=np.arange(240.0))
    assert looks_undirected(later) is None


def test_users_and_items_look_bipartite_and_not_undirected():
    rng = np.random.default_rng(0)
    users, items = rng.integers(0, 30, 300), rng.integers(30, 40, 300)  # the smaller id first, for no reason
    shop = from_arrays(users, items, np.arange(300))
    assert looks_undirected(shop) is None
    assert "no node stands in both columns" in looks_bipartite(shop)
    assert looks_bipartite(from_arrays(*contacts())) is None


def test_rows_both_ways_are_repeats_of_an_undirected_event(tmp_path):
    src, dst, t = contacts()
    rows = {(int(time), *ends) for u, v, time in zip(src, dst, t, strict=True) for ends in ((u, v), (v, u))}
    table = tmp_path / "both.csv"
    table.write_text("t,src,dst\n" + "\n".join(",".join(map(str, row)) for row in sorted(rows)) + "\n")
    assert read_table(table, dedupe=True).num_events == len(rows)
    assert read_table(table, dedupe=True, undirected=True).num_events == len(src)
    assert load(table, dedupe=True, undirected=True).num_events == len(src)
