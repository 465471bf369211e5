"""Frames (eq:householder_product): their unit reflectors, the product U of these, and the adjoints of both.

With F the parameters of a frame version, N = f/|f| its unit reflectors (zero where |f| <= eps) and G twice their Gram
matrix, U applies the reflectors 1..k in this order, U^T in reverse (D-01). Both need the k projections 2 <N_i, x> only
once: the coefficients t_i of U x = x - sum_i t_i N_i solve a triangular system in G. `transport=False` is k = 0
reflectors: every U is then the identity.

The adjoint of z = U x with t as above, dz the gradient of z and s the coefficients of `dx = U^T dz`, is

    dN_i -= t_i dz + s_i x       and, collected in a k x k matrix,      S_ij += t_i s_j  (i < j)

so that a frame version touched by many events pays for S N and for the projection off N only once, when the event
that wrote it is reached (`close_frame`). z = U^T x is the same with the roles of x and dz, t and s exchanged.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from numba import njit

from tsnn.engine import passes
from tsnn.engine.passes import Reflectors
from tsnn.engine.pointers import INLINE, INNER, Ptr, at, lit
from tsnn.engine.vectors import add, axpy, dot


class Frames(NamedTuple):
    """N, G and 1/|f| of all frame versions; k of the reflectors that are applied."""

    N: Ptr
    G: Ptr
    inv: Ptr
    k: int
    d: int


class FrameGrads(NamedTuple):
    """Gradients collected for the reflectors of frame versions from `base` on; those below are constants."""

    N: Ptr
    S: Ptr
    base: int


@njit(**INLINE)
def reflectors(fr: Frames, row: int) -> Reflectors:
    """The reflectors of frame version `row`."""
    return Reflectors(at(fr.N, row * fr.k * fr.d), at(fr.G, row * fr.k * fr.k), fr.k, fr.d)


@njit(**INLINE)
def shares(fr: Frames, fg: FrameGrads, row: int) -> Reflectors:
    """The gradients collected for the reflectors of frame version `row`."""
    i = row - fg.base
    return Reflectors(at(fg.N, i * fr.k * fr.d), at(fg.S, i * fr.k * fr.k), fr.k, fr.d)


@njit(**INLINE)
def open_frame(fr: Frames, row: int, f: Ptr, eps: float) -> None:
    """N, G and 1/|f| of frame version `row`, whose parameters are f (k, d)."""
    N, G, inv = at(fr.N, row * fr.k * fr.d), at(fr.G, row * fr.k * fr.k), at(fr.inv, row * fr.k)
    for i in range(fr.k):
        fi, Ni = at(f, i * fr.d), at(N, i * fr.d)
        length = math.sqrt(dot(fi, fi, fr.d))
        scale = lit(f, 1.0) / length if length > eps else lit(f, 0.0)
        inv[i] = scale
        for c in range(fr.d):
            Ni[c] = fi[c] * scale
        for j in range(i):
            G[i * fr.k + j] = lit(f, 2.0) * dot(Ni, at(N, j * fr.d), fr.d)
            G[j * fr.k + i] = G[i * fr.k + j]


@njit(**INNER)
def coefficients(fr: Frames, row: int, x: Ptr, t: Ptr) -> None:
    """The t of U x = x - sum_i t_i N_i."""
    passes.project(reflectors(fr, row), x, t)


@njit(**INNER)
def coefficients_back(fr: Frames, row: int, x: Ptr, t: Ptr) -> None:
    """The t of U^T x = x - sum_i t_i N_i."""
    passes.project_back(reflectors(fr, row), x, t)


@njit(**INNER)
def subtract(fr: Frames, row: int, t: Ptr, x: Ptr, out: Ptr) -> None:
    """out = x - sum_i t_i N_i; out may be x."""
    passes.subtract(reflectors(fr, row), t, x, out)


@njit(**INNER)
def lift(fr: Frames, row: int, x: Ptr, out: Ptr, t: Ptr) -> None:
    """out = U x: local to synchronized coordinates. Leaves the coefficients in t."""
    coefficients(fr, row, x, t)
    subtract(fr, row, t, x, out)


@njit(**INNER)
def lower(fr: Frames, row: int, x: Ptr, out: Ptr, t: Ptr) -> None:
    """out = U^T x: synchronized to local coordinates. Leaves the coefficients in t."""
    coefficients_back(fr, row, x, t)
    subtract(fr, row, t, x, out)


@njit(**INNER)
def frame_adjoint(fr: Frames, fg: FrameGrads, row: int, x: Ptr, t: Ptr, dz: Ptr, s: Ptr) -> None:
    """Collect the frame gradient of z = U x."""
    if row >= fg.base:
        passes.frame_share(shares(fr, fg, row), t, dz, s, x)


@njit(**INNER)
def lift_adjoint(fr: Frames, fg: FrameGrads, row: int, x: Ptr, t: Ptr, dz: Ptr, out: Ptr, s: Ptr) -> None:
    """Adjoint of z = U x with coefficients t: out += U^T dz, and the frame's share. Uses s (k + d)."""
    tmp = at(s, fr.k)
    lower(fr, row, dz, tmp, s)
    add(tmp, out, fr.d)
    frame_adjoint(fr, fg, row, x, t, dz, s)


@njit(**INNER)
def lower_adjoint(fr: Frames, fg: FrameGrads, row: int, x: Ptr, t: Ptr, dz: Ptr, out: Ptr, s: Ptr) -> None:
    """Adjoint of z = U^T x with coefficients t: out += U dz, and the frame's share. Uses s (k + d)."""
    tmp = at(s, fr.k)
    lift(fr, row, dz, tmp, s)
    add(tmp, out, fr.d)
    frame_adjoint(fr, fg, row, dz, s, x, t)


@njit(**INLINE)
def close_frame(fr: Frames, fg: FrameGrads, row: int, out: Ptr) -> None:
    """out += gradient of the frame parameters, from what was collected for frame version `row`."""
    k, d = fr.k, fr.d
    N, inv = at(fr.N, row * k * d), at(fr.inv, row * k)
    gN, S = at(fg.N, (row - fg.base) * k * d), at(fg.S, (row - fg.base) * k * k)
    for i in range(k):
        gi = at(gN, i * d)
        for j in range(k):
            if i != j:
                axpy(S[min(i, j) * k + max(i, j)], at(N, j * d), gi, d)
        Ni, oi, scale = at(N, i * d), at(out, i * d), inv[i]
        along = dot(gi, Ni, d)
        for c in range(d):
            oi[c] += scale * (gi[c] - along * Ni[c])
