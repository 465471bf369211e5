"""The geometric scalars of candidates (eq:sdist, eq:score_features), forward and backward: one autograd node.

q = U(F_u + bias) h_u and g = U(F_c) h_c are a source and a candidate in synchronized coordinates. Each distinct version
that a chunk's queries read has a *slot*, in which it is lifted (tsnn.engine.frames) once, whoever shares it.
"""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

import numpy as np
import torch
from numba import njit
from torch import Tensor
from torch.autograd.function import once_differentiable

from tsnn.config import ModelConfig
from tsnn.engine.buffers import array, make, plain
from tsnn.engine.frames import FrameGrads, Frames, close_frame, lift, lift_adjoint, open_frame
from tsnn.engine.layout import Array, Dims, Row
from tsnn.engine.pointers import ENTRY, INLINE, Ptr, at, lit, pointers, ptr
from tsnn.engine.vectors import add, axpy, clear, copy, dot
from tsnn.kernel_cache import kernel
from tsnn.types import I32, I64, Bool


class Slots(NamedTuple):
    """Distinct versions that a set of queries reads."""

    h: Array  # row of the stalk log
    F: Array  # row of the frame log
    query: Array  # the query whose relation bends the frame, or -1
    of_src: Array  # (nq,) slot of a query's source
    of_cand: Array  # (nc,)


class Lifted(NamedTuple):
    """The slots in synchronized coordinates, and what their adjoint needs."""

    y: Annotated[Array, Row("slots, d", "geometry", "q or g")]
    norm2: Annotated[Array, Row("slots", "geometry", "|h|^2")]
    t: Annotated[Array, Row("slots, kr", "geometry", "coefficients of y")]
    N: Annotated[Array, Row("slots, kr, d", "geometry", "as of Tape")]
    G: Annotated[Array, Row("slots, kr, kr", "geometry", "")]
    inv: Annotated[Array, Row("slots, kr", "geometry", "")]
    f: Annotated[Array, Row("k, d", "geometry", "one slot's frame, bent")]
    out: Annotated[Array, Row("candidates, 4", "geometry", "|q - g|^2, <q, g>, |h_u|^2, |h_c|^2")]


class GeometryGrads(NamedTuple):
    """Gradients of `geometry`; those of y, norm2, h, F and bias begin as 0."""

    up: Annotated[Array, Row("candidates, 4", "host", "of the scalars")]
    mask: Annotated[Array, Row("candidates", "host", "whether a gradient reaches the candidate's state")]
    touched: Annotated[Array, Row("slots", "geometry", "whether one reaches the slot", kind="uint8")]
    y: Annotated[Array, Row("slots, d", "geometry", "")]
    norm2: Annotated[Array, Row("slots", "geometry", "")]
    h: Annotated[Array, Row("rows_h, d", "geometry", "")]
    F: Annotated[Array, Row("rows_F, k, d", "geometry", "")]
    bias: Annotated[Array, Row("bent, k, d", "geometry", "")]
    s: Annotated[Array, Row("kr + d", "geometry", "as of BackScratch")]
    gN: Annotated[Array, Row("k, d", "geometry", "one slot's frame gradients, as of Grads")]
    gS: Annotated[Array, Row("kr, kr", "geometry", "")]
    gF: Annotated[Array, Row("k, d", "geometry", "")]


# src_h, src_F, ptr, cand_h and cand_F as in a ScorePlan, and whether gradients reach each candidate's state
Reads = tuple[I32, I32, I64, I32, I32, Bool]


def fused_geometry(h_log: Tensor, F_log: Tensor, bias: Tensor | None, reads: Reads, cfg: ModelConfig) -> Tensor:
    """The geometric scalars (nc, 4) of every candidate: |q - g|^2, <q, g>, |h_u|^2, |h_c|^2 (eq:sdist)."""
    return FusedGeometry.apply(reads, cfg, h_log, F_log, bias)  # type: ignore[no-any-return, no-untyped-call]


class FusedGeometry(torch.autograd.Function):
    """`fused_geometry` as one autograd node."""

    @staticmethod
    def forward(ctx: Any, reads: Any, cfg: ModelConfig, h_log: Tensor, F_log: Tensor, bias: Tensor | None) -> Tensor:
        """The scalars of every candidate."""
        src_h, src_F, cand_ptr, cand_h, cand_F = map(plain, reads[:5], ("i4", "i4", "i8", "i4", "i4"))
        h, F, dims = array(h_log), array(F_log), Dims.of(cfg)
        bent = array(bias) if bias is not None else np.zeros((0, *F.shape[1:]), h.dtype)
        most = len(src_h) + len(cand_h)
        slots = Slots(*(np.empty(size, np.int32) for size in (most, most, most, len(src_h), len(cand_h))))
        slot_of = np.full(len(h), -1, np.int32)
        used = assign_slots(src_h, src_F, cand_h, cand_F, bias is not None, slot_of, slots)
        lifted = make(Lifted, h_log.dtype, dims, slots=used, candidates=len(cand_h))
        geometry(h, F, bent, cand_ptr, slots, dims.kr, cfg.reflector_eps, lifted)
        ctx.state = (dims, h, F.shape, bent.shape, cand_ptr, slots, lifted, plain(reads[5], np.bool_))
        return torch.from_numpy(lifted.out)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, up: Tensor) -> Any:
        """Gradients of both logs and of the bias rows."""
        dims, h, F_shape, bias_shape, cand_ptr, slots, lifted, mask = ctx.state
        symbols = {"slots": len(lifted.norm2), "rows_h": len(h), "rows_F": F_shape[0], "bent": bias_shape[0]}
        given = {"up": array(up), "mask": mask}
        grads = make(GeometryGrads, up.dtype, dims, given, candidates=len(mask), **symbols)
        for begins in (grads.y, grads.norm2, grads.h, grads.F, grads.bias):
            begins.fill(0)
        geometry_adjoint(h, cand_ptr, slots, dims.k * dims.d, dims.kr, lifted, grads)
        g_bias = torch.from_numpy(grads.bias) if ctx.needs_input_grad[4] else None
        return None, None, torch.from_numpy(grads.h), torch.from_numpy(grads.F), g_bias


@njit(**INLINE)
def take_slot(slots: Slots, table: Ptr, used: int, row: int, frame: int, query: int) -> tuple[int, int]:
    """The slot of version (row, frame) and the number of slots: one more if it had none, or if a query bends it."""
    slot = table[row]
    if query >= 0 or slot < 0 or slots.F[slot] != frame:
        slot = used
        slots.h[slot] = row
        slots.F[slot] = frame
        slots.query[slot] = query
        if query < 0:
            table[row] = slot
        used += 1
    return slot, used


@kernel(**ENTRY)
def assign_slots(src_h: Array, src_F: Array, cand_h: Array, cand_F: Array, bent: bool, table: Array, out: Slots) -> int:
    """Fill `out`; `table` (rows of the stalk log) comes in as -1. Returns how many slots there are."""
    slots, slot_of, used = pointers(out), ptr(table), 0
    h, F = ptr(src_h), ptr(src_F)
    for q in range(len(src_h)):
        slot, used = take_slot(slots, slot_of, used, h[q], F[q], q if bent else -1)
        slots.of_src[q] = slot
    h, F = ptr(cand_h), ptr(cand_F)
    for c in range(len(cand_h)):
        slot, used = take_slot(slots, slot_of, used, h[c], F[c], -1)
        slots.of_cand[c] = slot
    return used


@kernel(**ENTRY)
def geometry(
    h: Array, F: Array, bias: Array, cand_ptr: Array, slots: Slots, kr: int, eps: float, lifted: Lifted
) -> None:
    """Lift every slot, y = U(F + bias) h; then lifted.out: |q - g|^2, <q, g>, |h_u|^2, |h_c|^2 of every candidate."""
    d, size = h.shape[1], F.shape[1] * F.shape[2]
    fr = Frames(ptr(lifted.N), ptr(lifted.G), ptr(lifted.inv), kr, d)
    y, t, f, to = ptr(lifted.y), ptr(lifted.t), ptr(lifted.f), ptr(lifted.out)
    for s in range(len(lifted.norm2)):
        x = at(ptr(h), slots.h[s] * d)
        copy(at(ptr(F), slots.F[s] * size), f, size)
        if slots.query[s] >= 0:
            add(at(ptr(bias), slots.query[s] * size), f, size)
        open_frame(fr, s, f, eps)
        lift(fr, s, x, at(y, s * d), at(t, s * kr))
        lifted.norm2[s] = dot(x, x, d)
    for query in range(len(slots.of_src)):
        source = slots.of_src[query]
        q = at(y, source * d)
        for c in range(cand_ptr[query], cand_ptr[query + 1]):
            cand = slots.of_cand[c]
            g = at(y, cand * d)
            far, inner = lit(y, 0.0), lit(y, 0.0)
            for i in range(d):
                far += (q[i] - g[i]) * (q[i] - g[i])
                inner += q[i] * g[i]
            row = at(to, 4 * c)
            row[0], row[1], row[2], row[3] = far, inner, lifted.norm2[source], lifted.norm2[cand]


@kernel(**ENTRY)
def distances(g: Array, q: Array, far: Array, inner: Array) -> None:
    """|q - g|^2 and <q, g> of one lifted source and many lifted candidates, in one reading of them."""
    own, d = ptr(q), len(q)
    for row in range(len(g)):
        other, apart, along = at(ptr(g), row * d), lit(own, 0.0), lit(own, 0.0)
        for i in range(d):
            apart += (own[i] - other[i]) * (own[i] - other[i])
            along += own[i] * other[i]
        far[row], inner[row] = apart, along


@njit(**INLINE)
def scalars_adjoint(cand_ptr: Array, slots: Slots, lifted: Lifted, grads: GeometryGrads, d: int) -> None:
    """Gradients of the lifted slots and of their squared norms."""
    y, gy, up = ptr(lifted.y), ptr(grads.y), ptr(grads.up)
    two = lit(y, 2.0)
    for query in range(len(slots.of_src)):
        source = slots.of_src[query]
        q, gq = at(y, source * d), at(gy, source * d)
        grads.touched[source] = 1
        for c in range(cand_ptr[query], cand_ptr[query + 1]):
            cand, u = slots.of_cand[c], at(up, 4 * c)
            g, gc, far, inner = at(y, cand * d), at(gy, cand * d), two * u[0], u[1]
            for i in range(d):
                gq[i] += far * (q[i] - g[i]) + inner * g[i]
            grads.norm2[source] += u[2]
            if grads.mask[c]:
                for i in range(d):
                    gc[i] += inner * q[i] - far * (q[i] - g[i])
                grads.norm2[cand] += u[3]
                grads.touched[cand] = 1


@kernel(**ENTRY)
def geometry_adjoint(
    h: Array, cand_ptr: Array, slots: Slots, size: int, kr: int, lifted: Lifted, grads: GeometryGrads
) -> None:
    """Adjoint of `geometry`: gradients of both logs and of the rows of the relation bias."""
    d, g = h.shape[1], pointers(grads)
    fr = Frames(ptr(lifted.N), ptr(lifted.G), ptr(lifted.inv), kr, d)
    scalars_adjoint(cand_ptr, slots, lifted, grads, d)
    for slot in range(len(lifted.norm2)):
        if not grads.touched[slot]:
            continue
        x, out = at(ptr(h), slots.h[slot] * d), at(g.h, slots.h[slot] * d)
        axpy(lit(x, 2.0) * grads.norm2[slot], x, out, d)
        clear(g.gN, size)
        clear(g.gS, kr * kr)
        clear(g.gF, size)
        fg = FrameGrads(at(g.gN, -slot * kr * d), at(g.gS, -slot * kr * kr), 0)
        lift_adjoint(fr, fg, slot, x, at(ptr(lifted.t), slot * kr), at(g.y, slot * d), out, g.s)
        close_frame(fr, fg, slot, g.gF)
        add(g.gF, at(g.F, slots.F[slot] * size), size)
        if slots.query[slot] >= 0:
            copy(g.gF, at(g.bias, slots.query[slot] * size), size)
