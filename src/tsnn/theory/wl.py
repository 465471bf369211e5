"""Temporal 1-WL colors and the idealized states that refine them (prop:twl)."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from math import inf
from typing import NamedTuple

import torch
from torch import Tensor

from tsnn.sheaf.householder import frame_matrix
from tsnn.theory.check import Check, at_most, conclude

Place = tuple[int, float]  # a node at a time
Colors = dict[Place, int]
Numbers = defaultdict[Hashable, int]  # an injective hash: a key that is new gets the next number


class TemporalGraph(NamedTuple):
    """Events in time order; a label bundles relation and features."""

    src: Sequence[int]
    dst: Sequence[int]
    t: Sequence[float]
    label: Sequence[Hashable]


class _Incidence(NamedTuple):
    t: float
    neighbor: int
    mark: int  # label, and transport where there is one


def twl(graph: TemporalGraph, attributes: Sequence[Hashable], frames: Tensor, depth: int, *, eps: float) -> Check:
    """prop:twl: at every round, equal idealized states (which also see transports) have equal temporal-WL colors."""
    colors = temporal_colors(graph, attributes, depth)
    states = temporal_colors(graph, attributes, depth, frames=frames, eps=eps)
    mixed = [mixed_classes(fine, coarse) for fine, coarse in zip(states, colors, strict=True)]
    return conclude(
        "prop:twl",
        "with injective maps and full neighborhoods, nodes told apart by temporal 1-WL have different states",
        [at_most("states of several colors in round", torch.tensor(mixed), 0.0)],
    )


def temporal_colors(
    graph: TemporalGraph, attributes: Sequence[Hashable], depth: int, *, frames: Tensor | None = None, eps: float = 0.0
) -> list[Colors]:
    """Colors of every node at every event time and at the end, after 0 .. depth rounds.

    With `frames` (n, k, d) each message carries its transport too.
    """
    numbers: Numbers = defaultdict(itertools.count().__next__)
    history = _histories(graph, len(attributes), numbers, frames, eps)
    times = [*sorted(set(graph.t)), inf]
    rounds = [{(v, s): numbers["start", a] for v, a in enumerate(attributes) for s in times}]
    for _ in range(depth):
        before = rounds[-1]
        refined = {}
        for (v, now), own in before.items():
            messages = sorted((before[e.neighbor, e.t], e.mark, e.t) for e in history[v] if e.t < now)
            refined[v, now] = numbers[own, *messages]
        rounds.append(refined)
    return rounds


def mixed_classes(fine: Mapping[Place, int], coarse: Mapping[Place, int]) -> int:
    """How many classes of `fine` hold more than one color of `coarse`; 0 when it refines it."""
    seen: dict[int, set[int]] = {}
    for place, state in fine.items():
        seen.setdefault(state, set()).add(coarse[place])
    return sum(len(colors) > 1 for colors in seen.values())


def _histories(
    graph: TemporalGraph, num_nodes: int, numbers: Numbers, frames: Tensor | None, eps: float
) -> list[list[_Incidence]]:
    maps = None if frames is None else frame_matrix(frames.detach().double().cpu(), eps)
    history: list[list[_Incidence]] = [[] for _ in range(num_nodes)]
    for u, v, t, label in zip(graph.src, graph.dst, graph.t, graph.label, strict=True):
        for to, source in {(u, v), (v, u)}:
            extra = b"" if maps is None else (maps[to].mT @ maps[source]).numpy().tobytes()
            history[to].append(_Incidence(t, source, numbers["mark", label, extra]))
    return history
