from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tsnn.errors import InputError
from tsnn.evaluation.scorer import Step, schedule


def steps(
    cut: list[int], sizes: list[int], max_rows: int, max_candidates: int, stops: tuple[int, ...] = ()
) -> list[Step]:
    ptr = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    return list(schedule(np.array(cut, dtype=np.int64), ptr, max_rows, max_candidates, 0, stops))


def test_rows_before_the_first_query_run_through_unscored() -> None:
    assert steps([25, 26], [2, 2], 10, 100) == [Step(10, 0, 0), Step(20, 0, 0), Step(26, 0, 2)]


def test_one_cut_with_many_queries_gives_steps_without_rows() -> None:
    assert steps([5] * 4, [3] * 4, 10, 6) == [Step(5, 0, 2), Step(5, 2, 4)]


def test_a_query_larger_than_the_budget_stands_alone() -> None:
    assert steps([1, 2, 3], [2, 50, 2], 10, 10) == [Step(1, 0, 1), Step(2, 1, 2), Step(3, 2, 3)]


def test_nothing_to_ask_runs_nothing() -> None:
    assert steps([], [], 10, 10) == []
    assert steps([0], [2], 10, 10) == [Step(0, 0, 1)]


def test_a_step_ends_at_every_stop_and_the_last_may_lie_beyond_the_queries() -> None:
    assert steps([5], [2], 10, 100, stops=(3, 4, 17)) == [
        Step(3, 0, 0), Step(4, 0, 0), Step(5, 0, 1), Step(15, 1, 1), Step(17, 1, 1),
    ]  # fmt: skip
    assert steps([], [], 10, 10, stops=(0, 2)) == [Step(0, 0, 0), Step(2, 0, 0)]


@given(
    asked=st.lists(st.tuples(st.integers(0, 60), st.integers(1, 12)), min_size=1, max_size=40),
    max_rows=st.integers(1, 30),
    max_candidates=st.integers(1, 40),
    stops=st.lists(st.integers(0, 80), max_size=5),
)
@settings(max_examples=200, deadline=None)
def test_every_query_is_answered_once_inside_its_step(
    asked: list[tuple[int, int]], max_rows: int, max_candidates: int, stops: list[int]
) -> None:
    cut, sizes = zip(*sorted(asked), strict=True)
    row, answered = 0, 0
    ended = set()
    for stop, first, last in steps(list(cut), list(sizes), max_rows, max_candidates, tuple(stops)):
        assert row <= stop <= row + max_rows
        assert first == answered
        assert all(row <= c <= stop for c in cut[first:last])
        assert sum(sizes[first:last]) <= max_candidates or last == first + 1
        assert stop > row or last > first or stop == 0
        row, answered = stop, last
        ended.add(stop)
    assert (row, answered) == (max([*cut, *stops]), len(cut))
    assert ended.issuperset(stops)


def test_unsorted_cuts_and_empty_budgets_are_refused() -> None:
    with pytest.raises(InputError, match="sorted by cut"):
        steps([3, 2], [1, 1], 10, 10)
    with pytest.raises(InputError, match="max_rows"):
        steps([1], [1], 0, 10)
