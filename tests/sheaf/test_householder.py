import math

import pytest
import torch
from hypothesis import given
from torch.testing import assert_close

from tests.sheaf.cases import EPS, Event, events, few, literal_frame
from tsnn.sheaf.householder import frame_matrix, keep_length, reflect, reflect_with, reflector_weights


@few
@given(events())
def test_rows_apply_in_order_and_transpose_undoes_them(event: Event):
    """eq:householder_product, D-01."""
    U = torch.stack([literal_frame(F) for F in event.F])
    assert_close(frame_matrix(event.F, EPS), U)
    assert_close(reflect(event.F, event.h, eps=EPS), torch.einsum("nij,nj->ni", U, event.h))
    assert_close(reflect(event.F, event.h, eps=EPS, transpose=True), torch.einsum("nji,nj->ni", U, event.h))
    assert_close(reflect(event.F, reflect(event.F, event.h, eps=EPS), eps=EPS, transpose=True), event.h)


@few
@given(events(torch.float32))
def test_float32_agrees_with_float64(event: Event):
    wide = reflect(event.F.double(), event.h.double(), eps=EPS)
    narrow = reflect(event.F, event.h, eps=EPS)
    assert narrow.dtype == torch.float32
    assert_close(narrow.double(), wide, atol=1e-5, rtol=1e-5)


def test_leading_dimensions_broadcast():
    F, y = torch.randn(3, 1, 2, 5), torch.randn(4, 5)
    out = reflect(F, y, eps=EPS)
    assert out.shape == (3, 4, 5)
    assert_close(out[2, 3], reflect(F[2, 0], y[3], eps=EPS))
    assert frame_matrix(F, EPS).shape == (3, 1, 5, 5)


def test_weights_may_be_shared_between_uses():
    F, y = torch.randn(3, 2, 5), torch.randn(3, 5)
    weights = reflector_weights(F, EPS)
    assert torch.equal(reflect_with(F, weights, y, transpose=True), reflect(F, y, eps=EPS, transpose=True))


def test_a_frame_without_rows_is_the_identity():
    y = torch.randn(4, 6)
    assert torch.equal(reflect(torch.zeros(4, 0, 6), y, eps=EPS), y)
    assert torch.equal(frame_matrix(torch.zeros(4, 0, 6), EPS), torch.eye(6).expand(4, 6, 6))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("length", "identity"), [(0.0, True), (EPS, True), (1.01 * EPS, False)])
def test_a_row_at_most_eps_long_is_the_identity(length: float, identity: bool, dtype: torch.dtype):
    F = torch.tensor([[length, 0.0]], dtype=dtype)
    out = reflect(F, torch.tensor([1.0, 2.0], dtype=dtype), eps=EPS)
    assert_close(out, torch.tensor([1.0 if identity else -1.0, 2.0], dtype=dtype))


@pytest.mark.parametrize("eps", [0.0, EPS])
def test_zero_rows_give_zero_gradients_without_nan(eps: float):
    F = torch.randn(3, 2, 4, dtype=torch.float64)
    F[0] = 0.0
    F[1, 1] = 0.0
    F.requires_grad_()
    y = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
    reflect(F, y, eps=eps).sin().sum().backward()
    assert torch.isfinite(F.grad).all()
    assert torch.isfinite(y.grad).all()
    assert torch.equal(F.grad[0], torch.zeros(2, 4, dtype=torch.float64))


@pytest.mark.parametrize("transpose", [False, True])
def test_gradients(transpose: bool):
    F = torch.randn(2, 3, 4, dtype=torch.float64, requires_grad=True)
    y = torch.randn(2, 4, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda F, y: reflect(F, y, eps=EPS, transpose=transpose), (F, y))


@few
@given(events())
def test_the_map_stays_where_rows_are_scaled(event: Event):
    """eq:householder_product: a reflector is its direction alone."""
    F = event.F.clone()
    F[0] *= 40.0
    kept = keep_length(F, EPS)
    k, d = F.shape[-2:]
    assert_close(frame_matrix(kept, EPS), frame_matrix(F, EPS))
    length = kept.norm(dim=-1)
    assert_close(torch.where(F.norm(dim=-1) > EPS, length, math.sqrt(d / k)), torch.full_like(length, math.sqrt(d / k)))


@pytest.mark.parametrize("eps", [0.0, EPS])
def test_a_row_without_a_direction_stays_as_it_is(eps: float):
    F = torch.randn(2, 2, 4, dtype=torch.float64)
    F[0, 1] = 0.0
    F.requires_grad_()
    kept = keep_length(F, eps)
    assert not kept[0, 1].any()
    kept.sin().sum().backward()
    assert torch.isfinite(F.grad).all()
    assert_close((F.grad * F).sum(-1), torch.zeros(2, 2, dtype=torch.float64), atol=1e-12, rtol=0.0)
