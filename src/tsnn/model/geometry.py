"""States in synchronized coordinates, and what a score reads of them (eq:sdist).

U_w h_w is a node's stalk in coordinates that all nodes share (prop:sync_equiv): g of a candidate, q of a source, whose
frame may be bent by a relation. Leading dimensions are free: a stack of models has one more than a model has.
"""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from tsnn.config import ModelConfig
from tsnn.sheaf.householder import reflect


class Geometry(NamedTuple):
    """What the score needs of states and frames, (..., candidates)."""

    d2: Tensor  # squared transported distance (eq:dsq)
    inner: Tensor  # <h_u, Q_uc h_c>
    src_norm2: Tensor
    dst_norm2: Tensor


def reflectors(F: Tensor, cfg: ModelConfig) -> Tensor:
    """The rows of a frame that are used: without transport none, and a frame without rows is the identity."""
    return F if cfg.transport else F[..., :0, :]


def rotate(F: Tensor, y: Tensor, cfg: ModelConfig, *, transpose: bool = False) -> Tensor:
    """U(F) y, or U(F)^T y (eq:householder_product)."""
    return reflect(reflectors(F, cfg), y, eps=cfg.reflector_eps, transpose=transpose)


def compare(q: Tensor, g: Tensor, src_norm2: Tensor, dst_norm2: Tensor) -> tuple[Geometry, Tensor]:
    """The geometry of sources q and candidates g (..., d), and q - g (eq:dsq, eq:sdist)."""
    difference = q - g
    return Geometry(difference.square().sum(-1), (q * g).sum(-1), src_norm2, dst_norm2), difference
