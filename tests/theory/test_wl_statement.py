import random
from math import inf

import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.sheaf.cases import EPS, few
from tsnn.theory.wl import TemporalGraph, mixed_classes, temporal_colors, twl


def random_graph(seed: int, nodes: int, events: int) -> TemporalGraph:
    """Few labels and repeated times, so that many nodes look alike."""
    rng = random.Random(seed)
    rows = sorted((rng.randrange(1 + events // 2), rng.randrange(nodes), rng.randrange(nodes)) for _ in range(events))
    times, src, dst = zip(*rows, strict=True)
    return TemporalGraph(src, dst, times, [rng.randrange(2) for _ in rows])


@few
@given(st.integers(0, 2**31), st.integers(1, 7), st.integers(1, 20), st.integers(0, 3))
def test_states_refine_temporal_colors(seed: int, nodes: int, events: int, depth: int):
    """prop:twl, eq:twl_induction."""
    frames = torch.randn(nodes, 1, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    frames[: nodes // 2] = frames[0]
    attributes = [v % 2 for v in range(nodes)]
    assert twl(random_graph(seed, nodes, events), attributes, frames, depth, eps=EPS).passed


def test_transports_may_separate_what_colors_do_not():
    graph = TemporalGraph([0, 1], [2, 3], [1.0, 1.0], [0, 0])
    frames = torch.eye(4).unsqueeze(1)
    frames[3] = frames[0]
    colors = temporal_colors(graph, [0] * 4, 1)[-1]
    states = temporal_colors(graph, [0] * 4, 1, frames=frames, eps=EPS)[-1]
    end = float("inf")
    assert colors[2, end] == colors[3, end]
    assert states[2, end] != states[3, end]
    assert mixed_classes(states, colors) == 0
    assert mixed_classes(colors, states) > 0


def test_truncated_histories_lose_colors():
    # Nodes 0 and 1 end alike; only 0 met node 2 before, which a model that keeps its latest neighbor alone forgets.
    graph = TemporalGraph([0, 0, 1], [2, 3, 4], [1.0, 2.0, 2.0], [0, 0, 0])
    attributes = ["a", "a", "b", "c", "c"]
    colors = temporal_colors(graph, attributes, 1)[-1]
    latest = TemporalGraph([0, 1], [3, 4], [2.0, 2.0], [0, 0])
    states = temporal_colors(latest, attributes, 1)[-1]
    assert states[0, inf] == states[1, inf]
    assert colors[0, inf] != colors[1, inf]
    assert mixed_classes(states, colors) > 0


def test_only_strictly_earlier_events_are_seen():
    graph = TemporalGraph([0], [1], [1.0], [0])
    colors = temporal_colors(graph, [0, 0], 1)[-1]
    assert colors[0, 1.0] != colors[0, float("inf")]


def test_a_self_loop_is_one_neighbor():
    once = temporal_colors(TemporalGraph([0], [0], [1.0], [0]), [0], 2)[-1]
    twice = temporal_colors(TemporalGraph([0, 0], [0, 0], [1.0, 1.0], [0, 0]), [0], 2)[-1]
    assert len(set(once.values())) == len(set(twice.values())) == 2
