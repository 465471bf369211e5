import pytest
import torch
from hypothesis import given

from tests.sheaf.cases import EPS, few
from tests.theory.builders import actives
from tsnn.sheaf.householder import frame_matrix, transport
from tsnn.theory.active import ActiveSet
from tsnn.theory.frames import (
    carry_over,
    householder_lipschitz,
    lipschitz_bound,
    low_rank,
    map_change,
    operating_regime,
    rank_from_identity,
    smooth_lipschitz,
)

TAU = 1e-2


def frames(m: int, k: int, d: int) -> torch.Tensor:
    return torch.randn(m, k, d, dtype=torch.float64)


@few
@given(actives(step=0.01))
def test_low_rank(active: ActiveSet):
    """lem:low_rank."""
    assert low_rank(active.F, active.F.flip(0), eps=EPS).passed


def test_the_rank_bounds_are_attained_by_generic_reflectors():
    F, partner = frames(6, 3, 8), frames(6, 3, 8)
    Q = frame_matrix(F, EPS).mT @ frame_matrix(partner, EPS)
    assert (rank_from_identity(frame_matrix(F, EPS)) == 3).all()
    assert (rank_from_identity(Q) == 6).all()
    assert low_rank(F, partner, eps=EPS).slack == pytest.approx(0.0, abs=1e-8)


def test_dead_reflectors_add_no_rank():
    F = frames(1, 3, 8)
    F[0, 1] = 0.1 * EPS
    assert rank_from_identity(frame_matrix(F, EPS)).item() == 2
    assert low_rank(F, F, eps=EPS).passed


def test_without_the_reflector_structure_the_rank_is_full():
    U = torch.linalg.qr(torch.randn(8, 8, dtype=torch.float64)).Q
    assert rank_from_identity(U).item() > 2 * 3


@pytest.mark.parametrize("scale", [1e-3, 0.1, 3.0])
def test_householder_lipschitz(scale: float):
    """lem:houshlip."""
    before = frames(50, 3, 6)
    after = before + scale * frames(50, 3, 6)
    assert operating_regime(before, tau=TAU).passed
    for statement in (householder_lipschitz, smooth_lipschitz):
        assert statement(before, after, eps=EPS, tau=TAU).passed


def test_the_squared_constant_is_64_k_over_tau_squared():
    """eq:smooth_lipschitz."""
    before, after = frames(4, 3, 6), frames(4, 3, 6)
    change = (after - before).square().sum((-2, -1))
    assert torch.allclose(lipschitz_bound(before, after, tau=TAU) ** 2, 64 * 3 / TAU**2 * change)


@pytest.mark.parametrize(("length", "holds"), [(0.26 * TAU, True), (0.24 * TAU, False)])
def test_short_reflectors_break_the_lipschitz_bound(length: float, holds: bool):
    # Two orthogonal reflectors are 2 sqrt(2) apart however short; the bound allows 8 sqrt(2) length / tau.
    before, after = torch.tensor([[[length, 0.0]]]).double(), torch.tensor([[[0.0, length]]]).double()
    assert map_change(before, after, eps=EPS).item() == pytest.approx(2 * 2**0.5)
    assert not operating_regime(before, tau=TAU).passed
    for statement in (householder_lipschitz, smooth_lipschitz):
        assert statement(before, after, eps=EPS, tau=TAU).passed is holds
        assert statement(before, after, eps=EPS, tau=length).passed


def test_operating_regime_names_the_shortest_reflector():
    """rem:houshlip."""
    F = 2 * torch.nn.functional.normalize(frames(3, 2, 4), dim=-1)
    F[1, 0] *= 1e-3
    check = operating_regime(F, tau=TAU)
    assert not check.passed
    assert check.where.endswith("[1, 0]")
    assert check.slack == pytest.approx(2e-3 - TAU)


@few
@given(actives(step=0.01))
def test_carry_over(active: ActiveSet):
    """prop:carry_over."""
    after = active.F + 0.3
    assert carry_over(active.F, after, active.h, eps=EPS).passed
    narrow = transport(active.h.float(), frame_from=active.F.float(), frame_to=after.float(), eps=EPS)
    assert carry_over(active.F.float(), after.float(), active.h.float(), eps=EPS, carried=narrow).passed


def test_a_stalk_left_in_its_old_coordinates_changes_its_meaning():
    before, h = frames(3, 2, 5), torch.randn(3, 5, dtype=torch.float64)
    assert not carry_over(before, before + 0.3, h, eps=EPS, carried=h).passed
    assert carry_over(before, before, h, eps=EPS, carried=h).passed
