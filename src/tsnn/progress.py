"""Bars: how far work is that takes time, in a terminal or in a notebook."""

from __future__ import annotations

import html
import io
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rich import progress as rich_progress
from rich.console import Console
from rich.progress import BarColumn, ProgressColumn, TextColumn, TimeRemainingColumn
from rich.text import Text

from tsnn.errors import ConfigError
from tsnn.types import Progress, Watch, unwatched
from tsnn.words import kind_of

COUNTABLE = 1000  # of fewer things than this one wants to know how many are done, of more how fast it goes
WIDTH = 90  # of bars in a notebook, in letters
REDRAWN = 0.2  # seconds between two drawings in a notebook: each is a message to the browser


@contextmanager
def telling(progress: Progress) -> Iterator[Progress]:
    """The same progress, which is told of the kernels that are compiled as well."""
    from tsnn import kernel_cache  # a second, which a refusal should not wait for

    with kernel_cache.telling(progress) as show:
        yield show


@contextmanager
def watched(progress: Watch) -> Iterator[Progress]:
    """What `progress=` stands for in Python. True draws bars where somebody looks: in a terminal or a notebook."""
    if callable(progress):
        with telling(progress) as show:
            yield show
        return
    if progress not in (True, False, None):
        raise ConfigError(f"progress is {kind_of(progress)}; give True, False, or a function of done, total and text.")
    console = Console(stderr=True)
    if progress and console.is_jupyter:
        with _notebook_bars() as show:
            yield show
    elif progress and console.is_terminal:
        with terminal_bars(console) as show:
            yield show
    else:
        yield unwatched


@contextmanager
def terminal_bars(console: Console) -> Iterator[Progress]:
    """A bar for each piece of work, while a block runs.

    Nothing is drawn before there is something to show: a refusal before any work stays one sentence.
    """
    bars = _bars(console)
    try:
        with telling(_show_in(bars, bars.start)) as show:
            yield show
    finally:
        if bars.tasks:
            bars.stop()


@contextmanager
def _notebook_bars() -> Iterator[Progress]:
    """The same bars as text that is replaced in place, which needs no widgets in the browser."""
    from IPython.display import HTML, display

    page = Console(file=io.StringIO(), width=WIDTH, force_terminal=False, force_jupyter=False)
    bars = _bars(page)
    place: list[Any] = []
    drawn = 0.0

    def draw(at_once: bool = False) -> None:
        nonlocal drawn
        if not at_once and time.monotonic() - drawn < REDRAWN:
            return
        with page.capture() as text:
            page.print(bars.get_renderable())
        shown = HTML(f"<pre>{html.escape(text.get())}</pre>")
        if place:
            place[0].update(shown)
        else:
            place.append(display(shown, display_id=True))
        drawn = time.monotonic()

    try:
        with telling(_show_in(bars, draw)) as show:
            yield show
    finally:
        if bars.tasks:
            draw(at_once=True)


def _bars(console: Console) -> rich_progress.Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), _Pace(), TimeRemainingColumn())
    return rich_progress.Progress(*columns, console=console)


def _show_in(bars: rich_progress.Progress, shown: Callable[[], None]) -> Progress:
    """A progress that keeps these bars, and has them shown."""

    def show(done: int, total: int, text: str = "") -> None:
        """Work of another total, or that begins anew, gets a bar of its own; the one before is full."""
        last = bars.tasks[-1] if bars.tasks else None
        if last is not None and last.total == total and last.completed <= done:
            bars.update(last.id, description=text, completed=done)
        else:
            if last is not None:
                bars.update(last.id, completed=last.total)
            bars.add_task(text, completed=done, total=total)
        shown()

    return show


class _Pace(ProgressColumn):
    """How many are done, or how many a second."""

    def render(self, task: rich_progress.Task) -> Text:
        """In a few letters: a terminal is narrow."""
        if (task.total or 0) < COUNTABLE:
            return Text(f"{task.completed:.0f}/{task.total:.0f}")
        return Text(f"{task.finished_speed or task.speed or 0:,.0f}/s")
