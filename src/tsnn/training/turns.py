"""Work in turns: stacks of runs side by side on one device.

A piece of work is a generator that pauses where it has given the device enough to do. Each piece has a CUDA stream of
its own, so that what several have started runs at the same time. One thread of the host does all of them: a step must
not be recorded (`tsnn.engine.recorded`) while another thread starts kernels.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeVar

import torch

T = TypeVar("T")
Turns = Generator[None, None, T]


def finish(work: Turns[T]) -> T:
    """All of it, without a pause."""
    (result,) = side_by_side([work], torch.device("cpu"))  # which has no streams: all stays on the present one
    return result


def side_by_side(works: Sequence[Turns[T]], device: torch.device) -> Iterator[T]:
    """The results of all works, each as soon as it is there."""
    waiting = [(work, _lane(device)) for work in works]
    while waiting:
        unfinished = []
        for work, lane in waiting:
            try:
                with lane:
                    next(work)
                unfinished.append((work, lane))
            except StopIteration as end:
                yield end.value
        waiting = unfinished


def _lane(device: torch.device) -> AbstractContextManager[Any]:
    """What makes a work's kernels go to a stream of their own; the same one may be entered again and again."""
    if device.type != "cuda":
        return nullcontext()
    return torch.cuda.stream(torch.cuda.Stream(device))  # type: ignore[no-untyped-call]
