"""The course of a run: which weights are kept, when it is over, how fast it learns."""

from __future__ import annotations

import math

import pytest
import torch

from tests.engine.streams import config_of
from tsnn.training.checkpoint import Position, load_checkpoint, save_checkpoint
from tsnn.training.course import WARM_HEAD, Course, cosine, linear


def closed(figures: list[float | None], **settings: object) -> tuple[Course, list[bool]]:
    """A course that gets these validation figures, as far as it goes, and which of them were the best so far."""
    course, best = Course.of(config_of(**{f"train__{name}": value for name, value in settings.items()})), []
    for figure in figures:
        if course.is_over:
            break
        best.append(course.close(figure))
    return course, best


def test_it_warms_up_only_where_there_is_a_head_to_warm():
    assert not Course.of(config_of(train__warmup=0)).warming
    assert not Course.of(config_of(train__warmup=3, model__residual=False)).warming
    assert Course.of(config_of(train__warmup=3)).warming


def test_the_warm_head_counts_as_an_epoch_before_the_first():
    course, best = closed([0.5, 0.4], warmup=1, epochs=3)
    assert best == [True, False]
    assert (course.best_metric, course.best_epoch, course.epoch) == (0.5, WARM_HEAD, 1)
    course, _ = closed([0.5, 0.6], warmup=1, epochs=3)
    assert (course.best_metric, course.best_epoch, course.epoch) == (0.6, 0, 1)


def test_no_epochs_end_with_the_warm_head():
    course, best = closed([0.5, 0.6], warmup=1, epochs=0)
    assert best == [True]
    assert course.is_over
    assert (course.best_epoch, course.epoch, course.history) == (WARM_HEAD, 0, [0.5])


@pytest.mark.parametrize(
    ("warmup", "figures", "epochs"),
    [
        (0, [0.1, 0.9, 0.3, 0.2, 0.8], 4),  # two epochs after the second
        (0, [0.9, 0.9, 0.9, 0.9], 3),  # as good is not better
        (1, [0.9, 0.3, 0.1, 0.2, 0.1], 3),  # of the epochs: the warm head is none
        (1, [0.9, 0.1, 0.2, 0.3, 0.4, 0.5], 5),  # below the warm head, and gaining
        (0, [0.1, 0.2, 0.3, 0.4, 0.5, 0.6], 5),  # all there are
    ],
)
def test_patience_is_counted_from_the_best_epoch(warmup, figures, epochs):
    course, _ = closed(figures, warmup=warmup, epochs=5, patience=2)
    assert course.is_over
    assert course.epoch == epochs


def test_a_figure_that_is_none_or_no_number_is_never_the_best():
    course, best = closed([None, math.nan, 0.2], epochs=9)
    assert best == [False, False, True]
    assert (course.best_epoch, course.epoch) == (2, 3)
    assert len(course.history) == 2


def test_a_failed_run_is_over():
    course = Course.of(config_of(train__warmup=1))
    assert not course.is_over
    course.failed = True
    assert course.is_over


def test_rates_fall_to_zero():
    assert [cosine(step, 4) for step in (0, 2, 4, 5)] == pytest.approx([1, 0.5, 0, 0])
    assert cosine(0, 0) == 1
    assert [linear(epoch, 4) for epoch in (0, 1, 3)] == [1, 0.75, 0.25]


def test_a_checkpoint_holds_all_of_it(tmp_path):
    course, _ = closed([0.5, 0.4], warmup=1, epochs=3)
    position = Position("settings", "rows", course, row=7, step=3, sums=[1.0, 2.0], terms=2)
    path = tmp_path / "checkpoint"
    save_checkpoint(path, position, {}, torch.optim.SGD([torch.zeros(1)]))
    assert load_checkpoint(path)[0] == position
