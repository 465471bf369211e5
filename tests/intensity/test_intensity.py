"""The intensity finds what made the data, and is what a pair of another source is compared by."""

from __future__ import annotations

import json

import numpy as np
import pytest

from tsnn.data.events import EventStream, NodeIds
from tsnn.data.question import Question
from tsnn.data.split import make_split
from tsnn.intensity.acts import Grid
from tsnn.intensity.intensity import Intensity


def excited(people: int = 30, until: float = 400.0, seed: int = 0) -> EventStream:
    """Every source acts at rate 0.05, and each act brings about half another at rate 2; destinations are others."""
    rng, rows = np.random.default_rng(seed), []
    for person in range(people):
        waiting = np.sort(rng.uniform(0, until, rng.poisson(0.05 * until))).tolist()
        while waiting:
            t = waiting.pop()
            rows.append((t, person))
            waiting += [x for x in t + rng.exponential(0.5, rng.poisson(0.5)) if x < until]
    t, src = (np.array(column) for column in zip(*sorted(rows), strict=True))
    return EventStream(src.astype(np.int64), people + src % 3, t, NodeIds(range(people + 3)))


@pytest.fixture(scope="module")
def split():
    stream = excited()
    return make_split(stream, stream.num_events * 70 // 100, stream.num_events * 85 // 100)


def test_what_made_the_data_is_found(split):
    found = Intensity.fit(split, Question())
    assert found.grid.roles == 1
    assert found.parameters < 20
    scales = found.grid.scales
    own, last = np.array(found.weights[:scales]), np.array(found.weights[scales:])
    assert 0.35 < own.sum() + last.sum() < 0.75  # what one act brings about
    near = np.abs(np.log10(found.grid.rates / 2)) < 0.8
    assert (own + last)[near].sum() > 0.7 * (own + last).sum()
    assert 0.03 < found.base < 0.07


def test_rates_of_the_known_of_strangers_and_of_what_is_to_come():
    found = Intensity(Grid(2, 1, 1.0, 0.1), newcomers=0.5, base=0.2, weights=(0.3, 0.1, 0.0, 0.4))
    stranger, known = np.zeros(5), np.array([3.0, 2.0, 2.5, 0.7, 0.9])
    rate = 0.2 + 0.3 * 2.0 + 0.1 * 0.1 * 2.5 + 0.4 * 0.1 * 0.9
    np.testing.assert_allclose(found.rate(np.stack([stranger, known])), [0.5, rate])
    moments = np.linspace(0, 3, 30_001)
    later = known * np.exp(-np.outer(moments, [0, 1.0, 0.1, 1.0, 0.1]))
    summed = np.trapezoid(found.rate(later), moments)
    np.testing.assert_allclose(found.expected(known[None], 3.0), [summed], rtol=1e-7)
    assert found.expected(stranger[None], 3.0) == 0  # which newcomer comes is not known
    assert np.isfinite(found.log_rate(np.array([[1.0, 0, 0, 0, 0]])))


def test_it_is_stored_as_it_is(split):
    found = Intensity.fit(split, Question())
    assert Intensity.from_dict(json.loads(json.dumps(found.to_dict()))) == found


def test_rows_after_training_say_nothing(split):
    other = make_split(split.stream.take(np.arange(split.val_end)), split.train_end, split.val_end - 1)
    assert Intensity.fit(other, Question()) == Intensity.fit(split, Question())


def test_years_of_sessions_are_a_clock():
    rng = np.random.default_rng(0)
    t = np.repeat(np.arange(12.0), 40)
    stream = EventStream(rng.integers(0, 9, 480), rng.integers(9, 15, 480), t, NodeIds(range(15)))
    found = Intensity.fit(make_split(stream, 360, 420), Question())
    assert found.grid.tick == 1.0
    assert found.grid.rate == 10.0
    flowing = Intensity.fit(make_split(stream, 360, 420), Question("arrival"))
    assert flowing.grid.tick == 0.0


def test_one_time_alone_and_one_row_alone():
    stream = EventStream(np.zeros(9, np.int64), np.ones(9, np.int64), np.zeros(9), NodeIds(range(2)))
    for split in (make_split(stream, 5, 7), make_split(stream, 1, 7)):
        found = Intensity.fit(split, Question())
        assert np.isfinite(found.log_rate(np.array([[0.0, 0, 0], [1, 1, 1]]))).all()
