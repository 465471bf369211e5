"""One event's active set with frozen frames, and the dense operators the theorems speak of (app:proof_setup)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from tsnn.sheaf.active_graph import adjacency, safe_degrees
from tsnn.sheaf.diffusion import diffuse
from tsnn.sheaf.householder import frame_matrix
from tsnn.sheaf.laplacian import dirichlet_energy, random_walk, sheaf_laplacian, symmetric


@dataclass(frozen=True, eq=False)
class ActiveSet:
    """Tensors of one event before a diffusion step, kept in float64. `step_size` is used as given, not capped."""

    h: Tensor  # (n, d)
    F: Tensor  # (n, k, d)
    mult_src: Tensor  # (n,)
    mult_dst: Tensor  # (n,)
    is_loop: bool
    gain: Tensor  # (d,) D_theta
    step_size: float
    eps: float

    def __post_init__(self) -> None:
        for name in ("h", "F", "mult_src", "mult_dst", "gain"):
            object.__setattr__(self, name, getattr(self, name).detach().to("cpu", torch.float64))

    @cached_property
    def normalized_only(self) -> ActiveSet:
        """The same set with D_theta = I."""
        return replace(self, gain=torch.ones_like(self.gain))

    def step(self, rounds: int = 1) -> Tensor:
        """The stalks after rounds of the implemented diffusion (eq:diffusion_local)."""
        graph = (self.mult_src, self.mult_dst, self.is_loop)
        return diffuse(self.h, self.F, *graph, self.gain, self.step_size, rounds, self.eps)

    def energy(self, h: Tensor) -> Tensor:
        """The aligned Dirichlet energy of stalks h, summed edge by edge."""
        return dirichlet_energy(h, self.maps, self.adjacency)

    @cached_property
    def adjacency(self) -> Tensor:
        """A_G (n, n)."""
        return adjacency(self.mult_src, self.mult_dst, self.is_loop)

    @cached_property
    def maps(self) -> Tensor:
        """U (n, d, d)."""
        return frame_matrix(self.F, self.eps)

    @cached_property
    def laplacian(self) -> Tensor:
        """L_F (nd, nd)."""
        return sheaf_laplacian(self.maps, self.adjacency)

    @cached_property
    def random_walk(self) -> Tensor:
        """Delta^{-1} L_F."""
        return random_walk(self.laplacian, self.adjacency)

    @cached_property
    def symmetric(self) -> Tensor:
        """Delta^{-1/2} L_F Delta^{-1/2}."""
        return symmetric(self.laplacian, self.adjacency)

    @cached_property
    def degree(self) -> Tensor:
        """Diagonal of Delta (nd,)."""
        return safe_degrees(self.adjacency.sum(-1)).repeat_interleave(self.h.shape[-1])

    @cached_property
    def metric(self) -> Tensor:
        """Diagonal of M = D_G ⊗ D_theta^{-1} (nd,)."""
        return self.degree / self.gain.repeat(self.h.shape[0])

    @cached_property
    def preconditioned(self) -> Tensor:
        """B = M^{-1/2} L_F M^{-1/2}."""
        root = self.metric.sqrt()
        return self.laplacian / (root[:, None] * root)

    @cached_property
    def eigenvalues(self) -> Tensor:
        """Spectrum of B, ascending; of the symmetric normalized Laplacian when D_theta = I."""
        values: Tensor = torch.linalg.eigvalsh(self.preconditioned)
        return values
