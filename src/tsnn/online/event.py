"""One event, on its whole way: parsed, checked, logged, observed and replayed as this."""

from __future__ import annotations

from collections.abc import Hashable
from datetime import datetime
from typing import Any, NamedTuple

from tsnn.data.times import Time as Time

AnyTime = Time | str | datetime
"""A time as somebody gives it: the run's own number or, where its times are dates, a date, an ISO text or "now"."""
Relation = int | str
"""A relation by its name or, where the table had numbers, by its number."""


class Event(NamedTuple):
    """Who meets whom, when, with which features and of which relation.

    A check makes of `t` and `edge_type` the numbers that the run counts with, which is how they are stored.
    `msg` is a sequence of numbers, or the bytes of their float32 values (little-endian), which is what a check makes
    of it: bytes compare and are stored as they are, so that a replay reads exactly what was observed. `key` is a name
    that the sender may give the event; the live service takes an event of the same key only once.
    """

    src: Hashable
    dst: Hashable
    t: Any  # AnyTime; a Time once it is checked
    msg: Any = None
    edge_type: Any = None  # Relation; its number once it is checked
    key: str | None = None
