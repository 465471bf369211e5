"""What a run takes: ids that can name a node, times of its kind, features of its width, relations it knows.

Each function returns the value in its one stored form, or raises an InputError that says what to do.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import numpy as np

from tsnn.data.description import Description
from tsnn.data.messages import encode_event
from tsnn.data.times import NOW, instant
from tsnn.errors import InputError, RunError
from tsnn.model.tsnn import StreamShape
from tsnn.online.event import Event, Time
from tsnn.types import F64

_PLAIN = Description()
_INT64 = range(-(2**63), 2**63)


class BrokenStateError(RunError):
    """The state, or the weights, hold what they cannot hold."""


def check_numbers(scores: F64) -> None:
    """Refuse to hand out scores that are no numbers: every ranking that they would give is noise."""
    if not np.isfinite(scores).all():
        raise BrokenStateError("the scores are no numbers, so the run's state or weights are damaged; restore the run.")


def check_event(event: Event, shape: StreamShape, description: Description, whole_times: bool) -> Event:
    """The event as it is logged and observed; whether it comes too late is for the caller to see."""
    check_id(event.src)
    check_id(event.dst)
    t = check_time(event.t, description, whole_times)
    if whole_times and not isinstance(t, int):
        raise InputError(f"time {t} is not whole, but the run counts in whole numbers; round it.")
    msg = check_features(event.msg, shape.msg_dim, description)
    edge_type = check_relation(event.edge_type, description, shape.num_relations)
    return Event(event.src, event.dst, t, msg, edge_type, event.key)


def check_id(node_id: object) -> None:
    """Refuse what cannot name a node."""
    try:
        hash(node_id)
    except TypeError:
        raise InputError(f"{node_id!r} cannot name a node; use an integer, a string or a tuple.") from None
    if node_id is None or node_id != node_id:
        raise InputError("a node id is missing; give every event a source and a destination.")


def check_time(t: Any, description: Description, whole_times: bool) -> Time:
    """The time as a plain number; where a run counts in whole numbers, 3.0 is 3 (and 3.5 stays what it is)."""
    value = description.parse_time(t)
    if not whole_times:
        return float(value)
    if isinstance(value, float):
        return int(value) if value.is_integer() else value
    if value not in _INT64:
        raise InputError(f"time {t!r} does not fit in 64 bits; give it in the unit of the training data.")
    return value


def check_ahead(t: Time, clock: Time, max_ahead: float, about: Description) -> None:
    """Refuse a time so far ahead of the clock that it must be a mistake: no earlier one could follow it.

    Of dates, none that has come is too far ahead, however long nothing has happened.
    """
    start = max(clock, instant(NOW, about.zone)) if about.dates else clock
    if t - start > max_ahead:
        latest = about.show_time(start + (int(max_ahead) if isinstance(start, int) else max_ahead))
        raise InputError(
            f"time {about.show_time(t)} is too far ahead of the clock, {about.show_time(clock)}: nothing later than "
            f"{latest} is taken; check its unit, or allow more with --max-ahead (max_ahead in Python)."
        )


def check_relation(edge_type: Any, description: Description, num_relations: int) -> int | None:
    """The number of the relation; None where the run has no relations."""
    if not num_relations:
        if edge_type is not None:
            raise InputError("the run was trained without relations; leave edge_type out.")
        return None
    return description.relation_number(edge_type, num_relations)


def check_features(msg: Any, width: int, description: Description = _PLAIN) -> bytes | None:
    """The features as the bytes of their float32 values; None where the run has no features.

    Of a run that read columns of several kinds they may be given by column, as the table has them.
    """
    if isinstance(msg, Mapping):
        if not description.messages or description.roles is None:
            raise InputError(f"msg names columns, but the run reads plain numbers; give {width} in a list.")
        msg = encode_event(description.roles.msg, description.messages, msg)
    if msg is None and not width:
        return None
    values = np.zeros(0, "<f4")
    with suppress(TypeError, ValueError):
        values = np.frombuffer(msg, "<f4") if isinstance(msg, bytes) else np.atleast_1d(np.asarray(msg, "<f4"))
    if not width or values.shape != (width,) or not np.isfinite(values).all():
        raise InputError(f"msg does not fit the run; give {width} finite numbers with every event.")
    return values.tobytes()
