from dataclasses import replace

import pytest
import torch
from hypothesis import given

from tests.sheaf.cases import few
from tests.theory.builders import actives, random_active, single_edge
from tsnn.sheaf.diffusion import capped_step, diffuse
from tsnn.theory.active import ActiveSet
from tsnn.theory.diffusion import energy, energy_descent, feature_scaled, nonexpansive, step_size_bound

UNEVEN = torch.tensor([0.3, 1.7, 0.9], dtype=torch.float64)


def capped(active: ActiveSet, step: float) -> ActiveSet:
    return replace(active, step_size=float(capped_step(step, active.gain)))


@few
@given(actives(step=0.2))
def test_energy(active: ActiveSet):
    """thm:energy: the gradient of the energy, and the step as its preconditioned descent."""
    assert energy(active).passed


def test_an_uneven_gain_is_no_gradient_step_in_the_degree_metric():
    active = random_active(step=0.2)
    plain, scaled = active.normalized_only, active.step()
    assert energy(active).passed
    assert not torch.allclose(scaled, plain.step())


@few
@given(actives(step=100.0))
def test_feature_scaled_at_the_largest_allowed_step(active: ActiveSet):
    """thm:feature_scaled, at 1 / max(D)."""
    assert feature_scaled(capped(active, active.step_size)).passed


def test_the_spectral_bound_is_attained_with_an_even_gain():
    active = single_edge(0.1, gain=torch.full((3,), 1.7, dtype=torch.float64))
    assert active.eigenvalues[-1].item() == pytest.approx(2 * 1.7)
    assert feature_scaled(replace(active, step_size=1 / 1.7)).slack == pytest.approx(0.0, abs=1e-5)


@pytest.mark.parametrize(("excess", "holds"), [(0.999, True), (1.001, False)])
def test_descent_ends_at_two_over_the_top_eigenvalue(excess: float, holds: bool):
    active = single_edge(0.1, gain=UNEVEN)
    beyond = replace(active, step_size=excess * 2.0 / float(active.eigenvalues[-1]))
    assert bool(beyond.energy(beyond.step()) <= beyond.energy(beyond.h)) is holds
    before, after = (((z.flatten().square() * beyond.metric).sum()) for z in (beyond.h, beyond.step()))
    assert bool(after <= before) is holds
    assert feature_scaled(beyond).passed is holds


def test_a_step_capped_in_float32_passes_where_the_bound_is_attained():
    for value in torch.linspace(1.01, 1.99, 30).tolist():
        gain = torch.full((3,), value)
        active = single_edge(float(capped_step(9.0, gain)), gain=gain)
        assert feature_scaled(active).passed
        assert step_size_bound(gain, active.step_size).passed


def test_beyond_the_bound_even_a_state_that_descends_is_reported():
    active = replace(single_edge(3.0), h=torch.ones(2, 3, dtype=torch.float64))
    assert not feature_scaled(active).passed


@few
@given(actives(step=1.0))
def test_energy_descent_up_to_a_step_of_one(active: ActiveSet):
    """cor:energy_descent."""
    assert energy_descent(active).passed


def test_energy_descent_is_strict_inside_the_bound():
    active = single_edge(0.99)
    assert active.energy(active.step()) < active.energy(active.h)


def test_energy_rises_beyond_a_step_of_one():
    check = energy_descent(single_edge(1.001))
    assert not check.passed
    assert check.slack < 0


@few
@given(actives(step=0.5))
def test_nonexpansive_up_to_a_step_of_one_half(active: ActiveSet):
    """thm:nonexpansive, eq:firm_nonexpansive."""
    assert nonexpansive(active).passed


@pytest.mark.parametrize(("step", "holds"), [(0.5, True), (0.501, False), (0.9, False)])
def test_firm_nonexpansiveness_ends_at_one_half_on_a_bipartite_graph(step: float, holds: bool):
    active = single_edge(step)
    assert nonexpansive(active).passed is holds
    assert feature_scaled(active).passed  # plain non-expansiveness reaches to 1


def test_iterates_converge_to_the_projection_on_the_kernel():
    active = random_active(seed=3, n=5, step=0.5).normalized_only
    graph = active.mult_src, active.mult_dst, active.is_loop
    limit = diffuse(active.h, active.F, *graph, active.gain, active.step_size, 3000, active.eps)
    values, vectors = torch.linalg.eigh(active.symmetric)
    kernel = vectors[:, values < 1e-9]
    root = active.degree.sqrt()
    assert torch.allclose(limit.flatten(), kernel @ (kernel.mT @ (root * active.h.flatten())) / root)


def test_step_size_bound():
    """rem:spectral_bound."""
    gain = torch.nn.functional.softplus(torch.zeros(4))
    assert step_size_bound(gain, 1 / torch.log(torch.tensor(2.0))).passed
    assert not step_size_bound(gain, 1.45).passed
    assert not step_size_bound(gain, -0.1).passed
    assert step_size_bound(10 * gain, capped_step(1.45, 10 * gain)).passed
