import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

from tests.sheaf.cases import EPS, Event, events, few, literal_diffuse, make_event
from tsnn.sheaf.active_graph import adjacency
from tsnn.sheaf.diffusion import capped_step, diffuse
from tsnn.sheaf.householder import frame_matrix
from tsnn.sheaf.laplacian import random_walk, sheaf_laplacian


def run(event: Event, step_size: float, rounds: int, **changes: torch.Tensor) -> torch.Tensor:
    changed = event._replace(**changes)
    graph = changed.mult_src, changed.mult_dst, changed.is_loop
    return diffuse(changed.h, changed.F, *graph, changed.gain, step_size, rounds, EPS)


@few
@given(events(), st.integers(0, 3))
def test_structured_equals_edge_by_edge(event: Event, rounds: int):
    """eq:diffusion_local and alg:diffuse."""
    assert_close(run(event, 0.3, rounds), literal_diffuse(event, 0.3, rounds))


@few
@given(events())
def test_structured_equals_the_global_operator(event: Event):
    """eq:diffusion_global."""
    A = adjacency(event.mult_src, event.mult_dst, event.is_loop)
    L = random_walk(sheaf_laplacian(frame_matrix(event.F, EPS), A), A)
    P = event.gain.repeat(len(event.h))
    z = event.h.flatten()
    assert_close(run(event, 0.3, 1).flatten(), z - 0.3 * P * (L @ z))


@few
@given(events(torch.float32))
def test_float32_agrees_with_float64(event: Event):
    wide = Event(*(x.double() if isinstance(x, torch.Tensor) else x for x in event))
    narrow = run(event, 0.1, 2)
    assert narrow.dtype == torch.float32
    assert_close(narrow.double(), run(wide, 0.1, 2), atol=1e-5, rtol=1e-5)


def test_multiplicities_of_any_dtype_are_accepted():
    event = make_event(1, 6, 2, 5, False)
    narrow = {name: getattr(event, name).float() for name in ("mult_src", "mult_dst")}
    assert torch.equal(run(event, 0.1, 2, **narrow), run(event, 0.1, 2))


def test_isolated_nodes_and_pure_self_entries_stay_put():
    event = make_event(2, 4, 2, 5, False)
    still = run(event, 0.5, 3, mult_src=torch.tensor([3.0, 0, 0, 0]), mult_dst=torch.tensor([0, 2.0, 0, 0]))
    assert_close(still, event.h, atol=1e-14, rtol=0)


def test_a_self_entry_only_slows_its_owner():
    event = make_event(3, 3, 2, 5, False)
    graph = {"mult_dst": torch.zeros(3)}
    plain = run(event, 0.4, 1, mult_src=torch.tensor([0.0, 1, 1]), **graph) - event.h
    slowed = run(event, 0.4, 1, mult_src=torch.tensor([2.0, 1, 1]), **graph) - event.h
    assert_close(slowed[0], plain[0] * 2 / 4)
    assert_close(slowed[1:], plain[1:])


def test_a_loop_without_history_is_alone():
    event = make_event(4, 1, 2, 5, True)
    assert_close(run(event, 0.5, 2, mult_src=torch.zeros(1)), event.h)


@pytest.mark.parametrize("is_loop", [False, True])
def test_gradients(is_loop: bool):
    event = make_event(5, 4, 2, 3, is_loop)
    F = torch.randn_like(event.F).requires_grad_()
    h, gain = event.h.requires_grad_(), event.gain.requires_grad_()
    assert torch.autograd.gradcheck(lambda h, F, g: run(event, 0.3, 2, h=h, F=F, gain=g), (h, F, gain))


def test_zero_rows_give_finite_gradients():
    event = make_event(6, 4, 2, 3, False)
    F = torch.zeros_like(event.F).requires_grad_()
    run(event, 0.3, 2, F=F).square().sum().backward()
    assert torch.equal(F.grad, torch.zeros_like(F))


def test_the_cap_binds_only_above_one_over_the_largest_gain():
    gain = torch.tensor([0.5, 4.0], requires_grad=True)
    assert float(capped_step(0.01, gain)) == pytest.approx(0.01)
    assert float(capped_step(0.9, gain)) == pytest.approx(0.25)
    assert not capped_step(0.9, gain).requires_grad
