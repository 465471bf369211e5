from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from tests.theory.builders import rotations
from tsnn.theory.scope import Message, equivariance_defect, outside_class, psi_equiv

D = 5


def invariant_message(alpha: Callable[[Tensor], Tensor], beta: Callable[[Tensor], Tensor]) -> Message:
    """alpha(I) a + beta(I) b with I the Gram triple (m, 3): the class itself (eq:invariant_form)."""

    def message(a: Tensor, b: Tensor) -> Tensor:
        gram = torch.stack(((a * a).sum(-1), (b * b).sum(-1), (a * b).sum(-1)), dim=-1)
        return alpha(gram)[:, None] * a + beta(gram)[:, None] * b

    return message


def distance_from_scalar(weight: Tensor) -> float:
    """|W - c I|_F for the nearest c: zero exactly for the linear maps inside the class."""
    square = weight.detach().double()
    eye = torch.eye(len(square), dtype=torch.float64, device=square.device)
    return float((square - square.diagonal().mean() * eye).norm())


@pytest.fixture
def samples() -> tuple[Tensor, Tensor, Tensor]:
    a, b = torch.randn(2, 20, D, dtype=torch.float64)
    return a, b, rotations(20, D)


def test_psi_equiv_holds_for_the_invariant_form(samples: tuple[Tensor, Tensor, Tensor]):
    """prop:psi_equiv, eq:psi_equiv and eq:invariant_form."""
    message = invariant_message(lambda gram: gram[:, 2].tanh(), lambda gram: (1 + gram[:, 0]).log() - gram[:, 1].sin())
    assert psi_equiv(message, *samples, name="the invariant form").passed


def test_psi_equiv_holds_for_the_diffusion_residual_in_float32(samples: tuple[Tensor, Tensor, Tensor]):
    narrow = tuple(x.float() for x in samples)
    assert psi_equiv(lambda a, b: a - b, *narrow, name="the difference").passed


def test_a_linear_map_is_inside_only_as_a_multiple_of_the_identity(samples: tuple[Tensor, Tensor, Tensor]):
    W = 1.7 * torch.eye(D, dtype=torch.float64)
    assert psi_equiv(lambda a, b: a @ W.T, *samples, name="c I").passed
    assert distance_from_scalar(W) == pytest.approx(0.0, abs=1e-12)
    W[0, 1] += 1e-3
    assert distance_from_scalar(W) == pytest.approx(1e-3)
    assert not psi_equiv(lambda a, b: a @ W.T, *samples, name="W").passed
    assert outside_class(lambda a, b: a @ W.T, *samples, name="W").passed


def test_an_equivariant_map_is_not_outside(samples: tuple[Tensor, Tensor, Tensor]):
    assert not outside_class(lambda a, b: 2 * a - b, *samples, name="2a - b").passed


def test_the_message_network_and_the_gru_are_outside(samples: tuple[Tensor, Tensor, Tensor]):
    network = nn.Sequential(nn.Linear(2 * D, 8), nn.ReLU(), nn.Linear(8, D)).double()
    cell = nn.GRUCell(D, D).double()
    assert outside_class(lambda a, b: network(torch.cat((a, b), -1)), *samples, name="MLP_msg").passed
    assert outside_class(lambda a, b: cell(b, a), *samples, name="GRU").passed
    assert outside_class(lambda a, b: a.relu(), *samples, name="a coordinate-wise activation").passed


def test_a_feature_wise_gain_is_outside_unless_even(samples: tuple[Tensor, Tensor, Tensor]):
    uneven = torch.linspace(0.5, 1.5, D, dtype=torch.float64)
    assert outside_class(lambda a, b: uneven * (a - b), *samples, name="D_theta").passed
    assert psi_equiv(lambda a, b: 0.7 * (a - b), *samples, name="c I").passed


def test_in_one_dimension_odd_functions_pass_although_not_of_the_form(samples: tuple[Tensor, Tensor, Tensor]):
    a, b = samples[0][:, :1], samples[1][:, :1]
    signs = torch.ones(20, 1, 1, dtype=torch.float64)
    signs[::2] = -1
    assert equivariance_defect(lambda a, b: a.pow(3) - b.sin(), a, b, signs).max() == 0
