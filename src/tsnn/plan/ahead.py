"""Making the next item while the present one is used: compiled passes release the interpreter."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")
_END = object()


def ahead(items: Iterator[T], waits: Callable[[T], bool] = lambda item: False) -> Iterator[T]:
    """The same items in the same order, each made in a background thread while the one before is in use.

    After an item that `waits`, the next is not begun before the caller asks for it.
    """
    with ThreadPoolExecutor(max_workers=1) as worker:
        future = worker.submit(next, items, _END)
        while (item := future.result()) is not _END:
            if waits(item):  # type: ignore[arg-type]
                yield item  # type: ignore[misc]
                future = worker.submit(next, items, _END)
            else:
                future = worker.submit(next, items, _END)
                yield item  # type: ignore[misc]
