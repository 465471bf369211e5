import torch
from hypothesis import given
from torch.testing import assert_close

from tests.sheaf.cases import EPS, Event, events, few, literal_frame
from tsnn.sheaf.householder import synchronize, transport


@few
@given(events())
def test_transport_is_the_dense_product(event: Event):
    """alg:transport."""
    target, source = event.F[0], event.F[-1]
    Q = literal_frame(target).T @ literal_frame(source)
    moved = transport(event.h, frame_from=source, frame_to=target, eps=EPS)
    assert_close(moved, event.h @ Q.T)
    assert_close(moved.norm(dim=-1), event.h.norm(dim=-1))
    assert_close(transport(moved, frame_from=target, frame_to=source, eps=EPS), event.h)


@few
@given(events())
def test_synchronized_distance_is_the_aligned_distance(event: Event):
    moved = transport(event.h[-1], frame_from=event.F[-1], frame_to=event.F[0], eps=EPS)
    g = synchronize(event.F, event.h, EPS)
    assert_close((event.h[0] - moved).norm(), (g[0] - g[-1]).norm())


def test_within_one_frame_nothing_moves():
    F, h = torch.randn(5, 3, 6, dtype=torch.float64), torch.randn(5, 6, dtype=torch.float64)
    assert_close(transport(h, frame_from=F, frame_to=F, eps=EPS), h)


def test_gradients_reach_both_frames_and_the_vector():
    h, a, b = (torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in [(2, 4), (2, 3, 4), (2, 3, 4)])
    assert torch.autograd.gradcheck(lambda h, a, b: transport(h, frame_from=a, frame_to=b, eps=EPS), (h, a, b))
