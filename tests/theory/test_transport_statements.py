from collections.abc import Sequence
from functools import reduce
from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from tests.sheaf.cases import EPS, few
from tests.theory.builders import actives, random_active, rotations, single_edge
from tsnn.sheaf.laplacian import connection_laplacian, graph_laplacian, pairwise_transports, per_coordinate
from tsnn.theory.active import ActiveSet
from tsnn.theory.transport import flat_transport, spectral_equivalence, sync_equiv


def walk_product(transports: Tensor, walk: Sequence[int]) -> Tensor:
    """Q_{v0 v1} Q_{v1 v2} ... of any pairwise maps (n, n, d, d): the holonomy when the walk is closed."""
    eye = torch.eye(transports.shape[-1], dtype=transports.dtype, device=transports.device)
    return reduce(torch.matmul, (transports[a, b] for a, b in pairwise(walk)), eye)


@few
@given(actives(step=0.01), st.data())
def test_flat_transport(active: ActiveSet, data: st.DataObject):
    """lem:flat_transport."""
    walk = data.draw(st.lists(st.integers(0, len(active.h) - 1), min_size=1, max_size=6))
    assert flat_transport(active.F, walk, eps=EPS).passed
    around = walk_product(pairwise_transports(active.maps), [*walk, walk[0]])
    assert torch.allclose(around, torch.eye(active.h.shape[1], dtype=torch.float64))


def edge_specific(n: int, d: int) -> torch.Tensor:
    """Orthogonal transports drawn per edge, Q_ba = Q_ab^T, that no node frames induce."""
    Q = rotations(n * n, d).reshape(n, n, d, d)
    upper = torch.ones(n, n).triu(1)[..., None, None]
    return (
        upper * Q + (upper * Q).transpose(0, 1).mT + per_coordinate(torch.eye(n), d).reshape(n, d, n, d).transpose(1, 2)
    )


def test_edge_specific_transports_have_holonomy():
    Q, eye = edge_specific(3, 4), torch.eye(4, dtype=torch.float64)
    assert torch.allclose(walk_product(Q, [0, 1, 0]), eye)
    assert (walk_product(Q, [0, 1, 2, 0]) - eye).norm() > 0.1


@few
@given(actives(step=0.01))
def test_sync_equiv(active: ActiveSet):
    """prop:sync_equiv."""
    assert sync_equiv(active).passed


def test_edge_specific_transports_have_no_common_coordinates():
    # On a triangle the graph Laplacian's kernel, d-fold in common coordinates, is gone.
    A = 1.0 - torch.eye(3, dtype=torch.float64)
    flat = torch.linalg.eigvalsh(per_coordinate(graph_laplacian(A), 4))
    curved = torch.linalg.eigvalsh(connection_laplacian(edge_specific(3, 4), A))
    assert (flat.abs() < 1e-9).sum() == 4
    assert (curved.abs() < 1e-9).sum() < 4


@few
@given(actives(step=0.01))
def test_spectral_equivalence(active: ActiveSet):
    """cor:spectral_equivalence."""
    assert spectral_equivalence(active).passed


@pytest.mark.parametrize("weight", [1.0, 10.0, 1000.0])
def test_the_normalized_spectrum_reaches_two_at_any_degree_and_the_combinatorial_one_grows(weight: float):
    active = single_edge(0.01, weight=weight)
    assert spectral_equivalence(active).passed
    assert torch.linalg.eigvalsh(active.symmetric)[-1].item() == pytest.approx(2.0)
    assert torch.linalg.eigvalsh(active.laplacian)[-1].item() == pytest.approx(2.0 * weight)


def test_a_wrong_frame_is_noticed():
    active = random_active()
    active.maps  # noqa: B018  (fills the cache)
    active.maps[0] *= 1.01
    assert not sync_equiv(active).passed
