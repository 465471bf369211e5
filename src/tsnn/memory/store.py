"""The store: one stalk and one frame per node, where the recurrence runs. `gather` reads, `scatter` writes."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tsnn.config import ModelConfig
from tsnn.random import random_normals
from tsnn.transfer import send
from tsnn.types import F64, I64, U64

_STALKS = 1 << 40  # seeds of stalks lie beyond those of frames
_STALK_SCALE = 0.5  # of keyed stalks: those that a GRU has written lie within (-1, 1)
_BLOCK = 65_536  # nodes initialized at a time: bounds the float64 scratch of a large graph


class StateStore:
    """Stalks `h` (N, d) and frame parameters `F` (N, k, d)."""

    def __init__(
        self, keys: U64, seed: int, sizes: ModelConfig, dtype: torch.dtype, device: torch.device | None = None
    ) -> None:
        self._keys, self._seed, self._keyed = keys, seed, sizes.stalks == "keyed"
        self.h = torch.zeros(len(keys), sizes.stalk_dim, dtype=dtype, device=device)
        self.F = torch.zeros(len(keys), sizes.num_reflectors, sizes.stalk_dim, dtype=dtype, device=device)
        self.reset_state()

    def reset_state(self) -> None:
        """Every node as if never seen (app:inductive)."""
        for start in range(0, len(self._keys), _BLOCK):
            rows = slice(start, start + _BLOCK)
            self.h[rows], self.F[rows] = self.initial(self._keys[rows])

    def initial(self, keys: U64) -> tuple[Tensor, Tensor]:
        """Stalks and frames of nodes without an event (app:inductive, D-05), wherever one is met."""
        k, d = self.F.shape[1:]
        F = torch.from_numpy(initial_frames(self._seed, keys, k, d)).to(self.F.dtype)
        if not self._keyed:
            return F.new_zeros(len(keys), d), F
        return torch.from_numpy(initial_stalks(self._seed, keys, d)).to(F), F

    def gather(self, nodes: I64) -> tuple[Tensor, Tensor]:
        """Copies of the stalks and frames of these nodes."""
        return take_rows(self.h, nodes), take_rows(self.F, nodes)

    def scatter(self, nodes: I64, h: Tensor, F: Tensor) -> None:
        """Write these nodes' states; gradients stop here (alg:train)."""
        for table, rows in ((self.h, h.detach().to(self.h)), (self.F, F.detach().to(self.F))):
            if table.device.type == "cpu":  # several times faster than indexing a tensor
                table.numpy()[nodes] = rows.numpy()
            else:
                table[send(nodes, table.device)] = rows

    def snapshot(self) -> dict[str, Tensor]:
        """Copies for saving."""
        return {"h": self.h.clone(), "F": self.F.clone()}

    def restore(self, state: dict[str, Tensor]) -> None:
        """Take a saved state in place of the present one."""
        self.h.copy_(state["h"])
        self.F.copy_(state["F"])


def take_rows(table: Tensor, rows: NDArray[np.integer[Any]]) -> Tensor:
    """Copies of rows of a table, on its device."""
    if table.device.type != "cpu":
        return table.detach()[send(rows, table.device).long()]
    return torch.from_numpy(table.detach().numpy().take(rows, axis=0))


def initial_stalks(seed: int, keys: U64, stalk_dim: int) -> F64:
    """A code for each node, drawn from its key alone like its frame but apart from it, shape (nodes, d)."""
    stalks: F64 = _STALK_SCALE * random_normals(seed + _STALKS, keys, stalk_dim)
    return stalks


def initial_frames(seed: int, keys: U64, num_reflectors: int, stalk_dim: int) -> F64:
    """F ~ N(0, 1/k) for each node (app:inductive), shape (nodes, k, d).

    Drawn from the node's key alone, so neither order of arrival nor batching changes it (D-05).
    """
    frames: F64 = random_normals(seed, keys, num_reflectors * stalk_dim) / np.sqrt(num_reflectors)
    return frames.reshape(-1, num_reflectors, stalk_dim)
