"""Between the log and the predictor: events as each of them has them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tsnn.errors import InputError
from tsnn.online.predictor import Event as Observed
from tsnn.online.predictor import Predictor
from tsnn.serve.eventlog import Event

Time = int | float


def check_events(predictor: Predictor, events: Mapping[int, Event], clock: Time) -> tuple[list[Event], Time]:
    """These events as the log shall keep them, and the clock after them; InputError unless all can be observed."""
    checked = []
    for place, event in events.items():
        try:
            t: Time = predictor.check(_observed(event)).t
            if t < clock:
                raise InputError(f"time {t} is before the clock, {clock}; send events in order of time.")
        except InputError as error:
            raise InputError(f"event {place}: {error}") from None
        clock = t
        checked.append(event._replace(t=t))
    return checked, clock


def observe_events(predictor: Predictor, events: Sequence[Event]) -> None:
    """Let logged events happen."""
    predictor.observe_many([_observed(event) for event in events])


def _observed(event: Event) -> Observed:
    msg: Any = None if event.msg is None else np.frombuffer(event.msg, "<f4")
    return Observed(event.src, event.dst, event.t, msg, event.edge_type)
