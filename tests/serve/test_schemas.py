"""Messages by column, over HTTP: what is parsed, and what is refused before it reaches the state."""

from __future__ import annotations

import json

import numpy as np
import pytest

from tsnn.data.description import Description, MessageColumn, Roles
from tsnn.errors import InputError
from tsnn.model.tsnn import StreamShape
from tsnn.online.checks import check_event
from tsnn.online.event import Event
from tsnn.serve.schemas import read_events

LEVEL = MessageColumn("level", "category", ("A", "G"))
ABOUT = Description(roles=Roles(msg=("level", "price")), messages=(LEVEL,))
SHAPE = StreamShape(msg_dim=5, num_relations=0, num_types=0, mean_gap=1.0)


def event(msg: object) -> Event:
    body = json.dumps({"src": "a", "dst": "b", "t": 1, "msg": msg}).encode()
    (parsed,) = read_events(body)
    return check_event(parsed, SHAPE, ABOUT, whole_times=True)


def test_values_by_column_become_features() -> None:
    checked = event({"level": "G", "price": 2.5})
    assert np.frombuffer(checked.msg, "<f4").tolist() == [0, 1, 0, 0, 2.5]
    assert event([0, 1, 0, 0, 2.5]) == checked
    assert np.frombuffer(event({"level": "Z", "price": 1}).msg, "<f4").tolist() == [0, 0, 1, 0, 1]
    assert np.frombuffer(event({"level": None, "price": 1}).msg, "<f4").tolist() == [0, 0, 0, 1, 1]


@pytest.mark.parametrize(
    ("msg", "says"),
    [
        ({}, "msg: must name 1 to 1000 columns"),
        ({"level": ["G"]}, "msg: must hold numbers"),
        ({"level": "x" * 20_000}, "msg: must hold numbers between -1e9 and 1e9, texts of up to 10,000 letters"),
        ("G", "msg: must be a list of numbers, or values by column"),
        ({"level": "G"}, "msg lacks 'price', in which the run knows no missing value"),
        ({"level": "G", "price": True}, "msg gives 'price' as True, which is no number"),
        ({"lvl": "G", "price": 1}, "msg names 'lvl', which is no column of the run; did you mean 'level'"),
    ],
)
def test_what_does_not_fit_is_one_sentence(msg: object, says: str) -> None:
    with pytest.raises(InputError, match=says):
        event(msg)


def test_a_run_on_plain_numbers_takes_lists_only() -> None:
    with pytest.raises(InputError, match="the run reads plain numbers; give 5 in a list"):
        check_event(Event("a", "b", 1, {"level": "G"}), SHAPE, Description(), whole_times=True)
