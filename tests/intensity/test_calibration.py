"""Times rescaled by the intensity that made the data are exponential, and its forecasts better than simple rules."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.integrate import quad

from tests.engine.streams import tricky_stream
from tests.intensity.test_intensity import excited
from tests.intensity.test_likelihood import columns
from tsnn.data.question import Question
from tsnn.data.split import make_split
from tsnn.intensity.acts import Acts, Grid
from tsnn.intensity.calibration import calibration, rescaled
from tsnn.intensity.intensity import Intensity
from tsnn.types import Visibility


def test_what_made_the_data_is_found_to_be_true():
    stream = excited(people=60)
    split = make_split(stream, stream.num_events * 60 // 100, stream.num_events * 75 // 100)
    truth = Intensity(Grid(1, 1, 2.0, 1.0), newcomers=1.0, base=0.05, weights=(0.5, 0.0))
    fitted, wrong = Intensity.fit(split, Question()), replace(truth, base=0.1, weights=(0.0, 0.0))
    found = {name: calibration(one, split) for name, one in (("truth", truth), ("fitted", fitted), ("wrong", wrong))}
    bound = 1.63 / np.sqrt(found["truth"]["acts"])  # that chance exceeds once in a hundred
    assert found["truth"]["ks"] < bound
    assert found["fitted"]["ks"] < 1.5 * bound
    assert found["wrong"]["ks"] > 3 * bound
    brier = found["fitted"]["brier"]
    assert brier["intensity"] < min(brier["poisson"], brier["recency"])
    assert found["truth"]["brier"]["intensity"] < found["wrong"]["brier"]["intensity"]


def test_rescaled_times_are_those_of_numerical_integration():
    stream = tricky_stream()
    one = Intensity(Grid(2, 2, 2.0, 0.3), 0.3, 0.05, (0.2, 0.1, 0.05, 0.15, 0.02, 0.3))
    acts = Acts.of(stream, Visibility.parse("arrival"), np.arange(26), 26, 2)
    theta, wanted = np.array([0.0, one.base, *one.weights]), []
    for i in np.flatnonzero(acts.role == 0):
        actor = acts.actor[i]
        own = np.flatnonzero((acts.actor == actor) & (np.arange(len(acts.t)) < i))
        before = own[acts.role[own] == 0]
        if not len(before) or acts.t[before[-1]] == acts.t[i]:
            continue  # of a burst, the first
        breaks = [acts.t[j] for j in own if j >= before[-1]] + [acts.t[i]]
        marks = [j for j in own if j >= before[-1]]
        total = 0.0
        for j, a, b in zip(marks, breaks[:-1], breaks[1:], strict=True):
            known = np.arange(len(acts.t)) <= j
            total += quad(lambda t: float(theta @ columns(acts, one.grid, actor, t, known)), a, b)[0]  # noqa: B023
        wanted.append(total)
    np.testing.assert_allclose(rescaled(one, stream, 0, 26), wanted, rtol=1e-7, atol=1e-12)
    assert len(rescaled(one, stream, 20, 26)) < len(wanted)


def test_a_stream_too_short_to_forecast_says_less():
    stream = tricky_stream()
    found = calibration(Intensity.fit(make_split(stream, 18, 22), Question()), make_split(stream, 18, 22))
    assert "brier" not in found
    assert found["parameters"] == pytest.approx(found["parameters"])
