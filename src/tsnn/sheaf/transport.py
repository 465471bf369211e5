"""Moving a vector from one node's frame to another's (alg:transport)."""

from __future__ import annotations

from torch import Tensor

from tsnn.sheaf.householder import reflect


def synchronize(F: Tensor, h: Tensor, eps: float) -> Tensor:
    """The stalk in common coordinates, g = U(F) h."""
    return reflect(F, h, eps=eps)


def transport(y: Tensor, *, frame_from: Tensor, frame_to: Tensor, eps: float) -> Tensor:
    """U_to^T U_from y: a vector in the frame of `frame_from`, re-expressed in that of `frame_to` (alg:transport)."""
    return reflect(frame_to, synchronize(frame_from, y, eps), eps=eps, transpose=True)
