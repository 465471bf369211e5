import torch
from hypothesis import given
from torch.testing import assert_close

from tests.sheaf.cases import EPS, Event, events, few, literal_neighbors
from tsnn.sheaf.active_graph import adjacency
from tsnn.sheaf.householder import frame_matrix
from tsnn.sheaf.laplacian import (
    dirichlet_energy,
    graph_laplacian,
    pairwise_transports,
    per_coordinate,
    random_walk,
    sheaf_laplacian,
    symmetric,
    synchronization,
)


def dense(event: Event) -> tuple[torch.Tensor, torch.Tensor]:
    return frame_matrix(event.F, EPS), adjacency(event.mult_src, event.mult_dst, event.is_loop)


@few
@given(events())
def test_blocks_are_those_of_the_definition(event: Event):
    """eq:sheaf_laplacian."""
    U, A = dense(event)
    n, d = event.h.shape
    blocks = sheaf_laplacian(U, A).reshape(n, d, n, d).transpose(1, 2)
    lists = literal_neighbors(event)
    for a in range(n):
        others = sum(b != a for b in lists[a])
        assert_close(blocks[a, a], others * torch.eye(d, dtype=torch.float64))
        for b in set(range(n)) - {a}:
            assert_close(blocks[a, b], -lists[a].count(b) * U[a].T @ U[b])


@few
@given(events())
def test_energy_is_half_the_quadratic_form(event: Event):
    U, A = dense(event)
    z = event.h.flatten()
    assert_close(dirichlet_energy(event.h, U, A), 0.5 * z @ sheaf_laplacian(U, A) @ z)


@few
@given(events())
def test_normalized_forms(event: Event):
    """eq:norm_sheaf_lap."""
    U, A = dense(event)
    L, d = sheaf_laplacian(U, A), event.h.shape[1]
    degree = torch.kron(torch.diag(A.sum(-1).clamp(min=1)), torch.eye(d, dtype=torch.float64))
    assert_close(random_walk(L, A), torch.linalg.inv(degree) @ L)
    root = torch.linalg.inv(degree.sqrt())
    assert_close(symmetric(L, A), root @ L @ root)


def test_with_identity_frames_it_is_the_graph_laplacian():
    A = torch.tensor([[0.0, 2.0], [2.0, 1.0]])
    U = torch.eye(3).expand(2, 3, 3)
    assert_close(graph_laplacian(A), torch.tensor([[2.0, -2.0], [-2.0, 2.0]]))
    assert_close(sheaf_laplacian(U, A), per_coordinate(graph_laplacian(A), 3))


def test_leading_dimensions_are_batched():
    U, A = frame_matrix(torch.randn(5, 3, 2, 4), EPS), torch.randint(0, 3, (5, 3, 3)).float()
    A = A + A.mT
    batched = sheaf_laplacian(U, A)
    assert batched.shape == (5, 12, 12)
    assert_close(batched[1], sheaf_laplacian(U[1], A[1]))
    assert_close(symmetric(batched, A)[1], symmetric(batched[1], A[1]))
    assert_close(synchronization(U)[1], torch.block_diag(*U[1]))
    assert_close(pairwise_transports(U)[1, 0, 2], U[1, 0].T @ U[1, 2])
    assert_close(dirichlet_energy(torch.ones(5, 3, 4), U, A)[1], dirichlet_energy(torch.ones(3, 4), U[1], A[1]))
