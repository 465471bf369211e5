"""How frames have moved since the service started: samples in a ring, so that memory does not grow."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from tsnn.online.event import Event
from tsnn.online.predictor import Predictor
from tsnn.types import F64, I64

SAMPLES = 200_000
NODES = 32  # sampled at most when a group of events has been applied, so that a large group costs no more


class DriftTrace:
    """The latest samples (node, time, drift): after each group of events, those of the nodes in its last few events."""

    def __init__(self) -> None:
        self._node = np.full(SAMPLES, -1, np.int64)
        self._t = np.zeros(SAMPLES)
        self._drift = np.zeros(SAMPLES)
        self._next = 0

    def observe(self, predictor: Predictor, events: Sequence[Event]) -> None:
        """Sample the nodes of these events, which have just happened, at the time of each one's last event."""
        last = {name: event.t for event in events[-NODES // 2 :] for name in (event.src, event.dst)}
        nodes = np.array([predictor._state.ids.find(name) for name in last], np.int64)
        at = (self._next + np.arange(len(nodes))) % len(self._node)
        self._node[at] = nodes
        self._t[at] = list(last.values())
        self._drift[at] = frame_drift(predictor, nodes)
        self._next = (self._next + len(nodes)) % len(self._node)

    def of(self, predictor: Predictor, node: int) -> list[tuple[float, float]]:
        """Times and drifts of a node, oldest first; its drift at present where it has not been sampled."""
        order = (self._next + np.arange(len(self._node))) % len(self._node)
        mine = order[self._node[order] == node]
        if len(mine):
            return list(zip(self._t[mine].tolist(), self._drift[mine].tolist(), strict=True))
        return [(float(predictor.ticks), float(frame_drift(predictor, np.array([node]))[0]))]


def frame_drift(predictor: Predictor, nodes: I64) -> F64:
    """|U - U0| of each node in the Frobenius norm, U0 being the frame it began with."""
    state = predictor._state
    _, first = state.store.initial(state.ids.keys[nodes])
    drift: F64 = turn(state.store.F[nodes], first, state.model.config.model.reflector_eps).numpy()
    return drift


def turn(F: Tensor, F0: Tensor, eps: float) -> Tensor:
    """|U(F) - U(F0)| for frames (n, k, d), without building U.

    The product of unit reflectors w_1 ... w_m is I + W C W^T with W = [w_1 ... w_m], and C grows a column with each.
    """
    W = torch.cat([F, F0.flip(1)], dim=1).double()  # U^T U0 = H(f_1) ... H(f_k) H(f0_k) ... H(f0_1)
    length = W.norm(dim=2, keepdim=True)
    W = torch.where(length > eps, W / length, torch.zeros_like(W))
    G = W @ W.mT
    C = torch.zeros_like(G)
    for j in range(G.shape[1]):
        C[:, :, j] = -2.0 * (C @ G[:, :, j : j + 1]).squeeze(2)
        C[:, j, j] -= 2.0
    return (-2.0 * (C * G).sum((1, 2))).clamp(min=0.0).sqrt()
