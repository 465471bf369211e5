import math

import pytest
import torch

from tsnn.theory.check import at_most, conclude, equal, rounding


def test_a_bound_reports_its_tightest_place():
    margin = at_most("edge", torch.tensor([[0.0, 1.0], [2.0, 5.0]]), torch.tensor([[9.0, 9.0], [3.0, 9.0]]))
    assert margin.passed
    assert margin.where == "edge [1, 0]"
    assert margin.slack == pytest.approx(1.0)


def test_slack_counts_the_tolerance():
    assert at_most("x", 1.0 + 1e-12, 1.0).passed
    assert not at_most("x", 1.0 + 1e-6, 1.0).passed
    assert equal("x", torch.tensor(1e6), torch.tensor(1e6)).slack == pytest.approx(1e-4, rel=1e-3)


def test_nan_fails():
    assert not at_most("x", math.nan, 1.0).passed
    assert not conclude("l", "c", [at_most("x", math.nan, 1.0), at_most("y", 0.0, 1.0)]).passed


def test_nothing_to_check_passes():
    assert at_most("x", torch.zeros(0), 0.0).passed


def test_a_broken_identity_outweighs_and_a_sound_one_yields_to_the_bound():
    sound, broken = equal("same", torch.ones(2), torch.ones(2)), equal("same", torch.ones(2), torch.zeros(2))
    bound = at_most("bound", 1.0, 3.0)
    assert conclude("l", "c", [sound, bound]).where == "bound"
    check = conclude("l", "c", [bound, broken])
    assert (check.passed, check.where) == (False, "same [0]")
    assert check.slack == pytest.approx(-1.0)


def test_tolerance_follows_the_precision_of_the_values():
    assert rounding(torch.float32) > rounding(torch.float64) == 1e-10
