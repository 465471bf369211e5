from dataclasses import replace
from math import cos, sin

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.sheaf.cases import few
from tests.theory.builders import actives, random_active, single_edge
from tsnn.sheaf.diffusion import capped_step
from tsnn.theory.active import ActiveSet
from tsnn.theory.drift import drift_control, frame_drift, operator_shift, stale


@few
@given(actives(step=100.0), st.sampled_from([1e-3, 0.1, 2.0]))
def test_stale(active: ActiveSet, scale: float):
    """thm:stale: both bounds."""
    stored = replace(active, step_size=float(capped_step(active.step_size, active.gain)))
    assert stale(stored, stored.F + scale * torch.randn_like(stored.F)).passed


def turned(angle: float) -> torch.Tensor:
    """Two reflectors of the plane whose product turns by `angle`."""
    return torch.tensor([[1.0, 0.0], [cos(angle / 2), sin(angle / 2)]], dtype=torch.float64)


def test_the_constant_two_cannot_be_lowered():
    # The two ends of one edge turn in opposite directions: the transport turns twice as far as either frame.
    fresh = replace(single_edge(0.1, d=2), F=torch.stack((turned(0.0), turned(0.0))))
    stored = replace(fresh, F=torch.stack((turned(0.05), turned(-0.05))))
    shift, drift = operator_shift(stored, fresh), frame_drift(stored, fresh)
    assert stale(stored, fresh.F).passed
    assert 1.99 * drift < shift <= 2.0 * drift


def test_fresh_frames_do_not_shift_the_operator():
    active = random_active()
    assert operator_shift(active, replace(active)).item() == pytest.approx(0.0, abs=1e-12)
    assert stale(active, active.F).passed


@pytest.mark.parametrize("scale", [1e-3, 0.1])
def test_drift_control(scale: float):
    """rem:drift_control."""
    active = replace(random_active(seed=1), F=torch.randn(5, 2, 4))
    assert drift_control(active, active.F + scale * torch.randn_like(active.F), tau=1e-2).passed


def test_short_reflectors_drift_beyond_the_control():
    tau, d = 1e-2, 4
    active = random_active(seed=1, k=1, d=d)
    before, after = torch.zeros(5, 1, d), torch.zeros(5, 1, d)
    before[:, 0, 0], after[:, 0, 1] = 0.2 * tau, 0.2 * tau
    assert not drift_control(replace(active, F=before), after, tau=tau).passed
