"""Dense sheaf and graph Laplacians: the reference the structured operators are checked against.

`maps` are orthogonal frames U (..., n, d, d), `adjacency` a symmetric weight matrix A (..., n, n). A self entry
counts in the degree and cancels in the Laplacian.
"""

from __future__ import annotations

import torch
from torch import Tensor

from tsnn.sheaf.active_graph import safe_degrees


def pairwise_transports(maps: Tensor) -> Tensor:
    """Q_uv = U_u^T U_v for all pairs (..., n, n, d, d)."""
    return torch.einsum("...uji,...vjk->...uvik", maps, maps)


def graph_laplacian(adjacency: Tensor) -> Tensor:
    """L_G = D_G^0 - A_G."""
    return torch.diag_embed(adjacency.sum(-1)) - adjacency


def connection_laplacian(transports: Tensor, adjacency: Tensor) -> Tensor:
    """The sheaf Laplacian (..., nd, nd) of any pairwise orthogonal transports Q (..., n, n, d, d) with Q_uu = I."""
    d = transports.shape[-1]
    eye = torch.eye(d, dtype=transports.dtype, device=transports.device)
    degree = torch.diag_embed(adjacency.sum(-1))[..., None, None] * eye
    return flatten_blocks(degree - adjacency[..., None, None] * transports)


def sheaf_laplacian(maps: Tensor, adjacency: Tensor) -> Tensor:
    """L_F (..., nd, nd) of node-induced restriction maps (eq:sheaf_laplacian)."""
    return connection_laplacian(pairwise_transports(maps), adjacency)


def flatten_blocks(blocks: Tensor) -> Tensor:
    """Blocks (..., n, n, d, d) as one matrix (..., nd, nd)."""
    n, d = blocks.shape[-3], blocks.shape[-1]
    return blocks.transpose(-3, -2).reshape(*blocks.shape[:-4], n * d, n * d)


def synchronization(maps: Tensor) -> Tensor:
    """S = blkdiag(U_1, ..., U_n), the map from stacked stalks to common coordinates."""
    n = maps.shape[-3]
    eye = torch.eye(n, dtype=maps.dtype, device=maps.device)
    return flatten_blocks(eye[:, :, None, None] * maps.unsqueeze(-3))


def per_coordinate(matrix: Tensor, d: int) -> Tensor:
    """matrix ⊗ I_d: the matrix of a graph acts on each of d coordinates alike."""
    return torch.kron(matrix, torch.eye(d, dtype=matrix.dtype, device=matrix.device))


def random_walk(laplacian: Tensor, adjacency: Tensor) -> Tensor:
    """Delta^{-1} L with safe degrees, for a graph or a sheaf Laplacian (eq:norm_sheaf_lap)."""
    return laplacian / _block_degrees(laplacian, adjacency)[..., :, None]


def symmetric(laplacian: Tensor, adjacency: Tensor) -> Tensor:
    """Delta^{-1/2} L Delta^{-1/2} with safe degrees, for a graph or a sheaf Laplacian (eq:norm_sheaf_lap)."""
    root = _block_degrees(laplacian, adjacency).sqrt()
    return laplacian / (root[..., :, None] * root[..., None, :])


def dirichlet_energy(h: Tensor, maps: Tensor, adjacency: Tensor) -> Tensor:
    """1/2 sum over edges of |h_u - Q_uv h_v|^2, each undirected edge once (thm:energy)."""
    moved = torch.einsum("...uvij,...vj->...uvi", pairwise_transports(maps), h)
    squared = (h.unsqueeze(-2) - moved).square().sum(-1)
    return 0.25 * (adjacency * squared).sum((-2, -1))


def _block_degrees(laplacian: Tensor, adjacency: Tensor) -> Tensor:
    degree = safe_degrees(adjacency.sum(-1))
    return degree.repeat_interleave(laplacian.shape[-1] // degree.shape[-1], dim=-1)
