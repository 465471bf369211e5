"""What the terminal shows of work that takes time."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from tsnn.cli import display


@pytest.fixture
def shown(monkeypatch) -> io.StringIO:
    text = io.StringIO()
    monkeypatch.setattr(display, "console", Console(file=text, force_terminal=True, width=100))
    return text


def test_every_piece_of_work_has_a_bar_of_its_own(shown):
    with display.shown_bar(quiet=False) as progress:
        progress(10, 100, "epoch 1")
        progress(60, 100, "epoch 2")  # and no more: training ran out of patience
        progress(5, 50, "evaluating")
        progress(50, 50, "evaluating")
        progress(25, 50, "comparing")
    last = shown.getvalue().split("epoch 2")[-1]
    assert "epoch 1" not in last
    assert last.index("evaluating") < last.index("comparing")


@pytest.mark.parametrize(("total", "pace"), [(40, "20/40"), (4_000_000, "/s")])
def test_few_things_are_counted_and_many_timed(shown, total, pace):
    with display.shown_bar(quiet=False) as progress:
        progress(total // 4, total, "working")
        progress(total // 2, total, "working")
    assert pace in shown.getvalue()


def test_nothing_is_drawn_before_there_is_something_to_show(shown):
    with display.shown_bar(quiet=False):
        pass
    with display.shown_bar(quiet=True) as progress:
        progress(1, 2, "training")
    assert shown.getvalue() == ""
