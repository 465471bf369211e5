"""A common rotation of all synchronized frames, U_w -> R U_w, is invisible to everything the theory speaks of.

R is a product of reflectors, so it is applied by appending its rows to every frame.
"""

import torch
from hypothesis import given
from torch.testing import assert_close

from tests.sheaf.cases import EPS, few
from tests.theory.builders import actives
from tsnn.sheaf.diffusion import diffuse
from tsnn.sheaf.householder import frame_matrix, synchronize, transport
from tsnn.sheaf.laplacian import dirichlet_energy, sheaf_laplacian
from tsnn.theory.active import ActiveSet


def rotated(F: torch.Tensor, count: int = 3) -> torch.Tensor:
    n, _, d = F.shape
    return torch.cat((F, torch.randn(count, d, dtype=F.dtype).expand(n, count, d)), dim=1)


@few
@given(actives(step=0.1))
def test_appended_rows_rotate_every_frame_alike(active: ActiveSet):
    turned = frame_matrix(rotated(active.F), EPS)
    R = turned @ active.maps.mT
    assert_close(R, R[:1].expand_as(R))


@few
@given(actives(step=0.1))
def test_distances_inner_products_and_norms(active: ActiveSet):
    g, moved = synchronize(active.F, active.h, EPS), synchronize(rotated(active.F), active.h, EPS)
    assert_close(torch.cdist(moved[None], moved[None]), torch.cdist(g[None], g[None]), atol=1e-6, rtol=1e-6)
    assert_close(moved @ moved.T, g @ g.T)
    assert_close(moved.norm(dim=-1), g.norm(dim=-1))


@few
@given(actives(step=0.1))
def test_transport_diffusion_and_energy(active: ActiveSet):
    F = rotated(active.F)
    pair = {"frame_from": F[-1], "frame_to": F[0]}
    original = {"frame_from": active.F[-1], "frame_to": active.F[0]}
    assert_close(transport(active.h[-1], **pair, eps=EPS), transport(active.h[-1], **original, eps=EPS))
    rest = active.mult_src, active.mult_dst, active.is_loop, active.gain, active.step_size, 2, EPS
    assert_close(diffuse(active.h, F, *rest), diffuse(active.h, active.F, *rest))
    maps = frame_matrix(F, EPS)
    assert_close(sheaf_laplacian(maps, active.adjacency), active.laplacian)
    assert_close(dirichlet_energy(active.h, maps, active.adjacency), active.energy(active.h))


def test_rotating_one_frame_alone_is_visible():
    F, h = torch.randn(2, 2, 5, dtype=torch.float64), torch.randn(2, 5, dtype=torch.float64)
    mixed = torch.stack((rotated(F)[0], torch.cat((F[1], torch.zeros(3, 5, dtype=F.dtype)))))
    g, moved = synchronize(F, h, EPS), synchronize(mixed, h, EPS)
    assert abs((g[0] - g[1]).norm() - (moved[0] - moved[1]).norm()) > 1e-3


def test_a_rotation_of_the_stored_stalk_is_visible_to_the_uneven_gain():
    # The gain acts in local coordinates: other frames for the same synchronized states change its step.
    F, h = torch.randn(2, 1, 3, dtype=torch.float64), torch.randn(2, 3, dtype=torch.float64)
    other = torch.randn(2, 1, 3, dtype=torch.float64)
    carried = transport(h, frame_from=F, frame_to=other, eps=EPS)
    mult = torch.tensor([0.0, 1.0]), torch.zeros(2), False
    for gain, visible in ((torch.full((3,), 0.7), False), (torch.tensor([0.1, 0.7, 2.0]), True)):
        one = synchronize(F, diffuse(h, F, *mult, gain.double(), 0.1, 1, EPS), EPS)
        two = synchronize(other, diffuse(carried, other, *mult, gain.double(), 0.1, 1, EPS), EPS)
        assert torch.allclose(one, two) is not visible
