"""One event, on its whole way: parsed, checked, logged, observed and replayed as this."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, NamedTuple

Time = int | float


class Event(NamedTuple):
    """Who meets whom, when, with which features and of which relation.

    `msg` is a sequence of numbers, or the bytes of their float32 values (little-endian), which is what a check makes
    of it: bytes compare and are stored as they are, so that a replay reads exactly what was observed. `key` is a name
    that the sender may give the event; the live service takes an event of the same key only once.
    """

    src: Hashable
    dst: Hashable
    t: Time
    msg: Any = None
    edge_type: int | None = None
    key: str | None = None
