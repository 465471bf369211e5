import torch
from hypothesis import given
from torch.testing import assert_close

from tests.sheaf.cases import Event, events, few, literal_neighbors
from tsnn.sheaf.active_graph import adjacency, safe_degrees, stars


@few
@given(events())
def test_degrees_and_adjacency_count_the_neighbor_lists(event: Event):
    lists = literal_neighbors(event)
    counted = torch.tensor([[near.count(b) for b in range(len(lists))] for near in lists], dtype=torch.float64)
    graph = event.mult_src, event.mult_dst, event.is_loop
    assert torch.equal(adjacency(*graph), counted)
    assert torch.equal(adjacency(*graph), adjacency(*graph).T)
    assert torch.equal(stars(*graph).degrees(), torch.tensor([float(len(near)) for near in lists], dtype=torch.float64))


@few
@given(events())
def test_neighbor_sum_is_the_adjacency_product(event: Event):
    graph = event.mult_src, event.mult_dst, event.is_loop
    assert_close(stars(*graph).neighbor_sum(event.h), adjacency(*graph) @ event.h)


def test_degrees_as_written_in_the_contract():
    # u: itself twice, v three times, leaf 2 once; v: u once, itself once, leaf 3 twice.
    mult_src, mult_dst = torch.tensor([2.0, 3.0, 1.0, 0.0]), torch.tensor([1.0, 1.0, 0.0, 2.0])
    expected = torch.tensor([[2.0, 4.0, 1.0, 0.0], [4.0, 1.0, 0.0, 2.0], [1.0, 0.0, 0.0, 0.0], [0.0, 2.0, 0.0, 0.0]])
    assert torch.equal(adjacency(mult_src, mult_dst, False), expected)
    assert torch.equal(stars(mult_src, mult_dst, False).degrees(), torch.tensor([7.0, 7.0, 1.0, 2.0]))


def test_a_self_loop_has_one_star():
    mult_src, mult_dst = torch.tensor([2.0, 3.0, 1.0]), torch.zeros(3)
    expected = torch.tensor([[2.0, 3.0, 1.0], [3.0, 0.0, 0.0], [1.0, 0.0, 0.0]])
    assert torch.equal(adjacency(mult_src, mult_dst, True), expected)
    assert torch.equal(stars(mult_src, mult_dst, True).degrees(), torch.tensor([6.0, 3.0, 1.0]))


def test_isolated_nodes_are_normalized_by_one():
    nothing = torch.zeros(2)
    assert torch.equal(safe_degrees(stars(nothing, nothing, False).degrees()), torch.ones(2))
