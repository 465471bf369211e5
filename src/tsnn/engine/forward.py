"""The recurrence of a chunk (`alg:tsnn`, steps 3 to 6), forward, as one compiled kernel.

Notation (sec:method of the paper; conventions D-01, D-08, D-09; arrays and their shapes in tsnn.engine.layout):

    symbol     here          what it is
    h          tape.h        stalk versions, one row a write (see tsnn.plan.chunk)
    F          tape.F        frame versions
    f/|f|      tape.N        unit reflectors of a frame version; U their product, see tsnn.engine.frames
    t          tape.t_h      coefficients of U x = x - sum_i t_i N_i
    g = U h    y             a stalk in synchronized coordinates; of versions only its t is kept
    Q_uv h_v   U_u^T y_v     transport, always through synchronized coordinates (`prop:sync_equiv`)
    D_theta    D             feature gain, softplus(theta)

Whichever event reads a stalk under a frame, the pair is the same, so the coefficients t of a version are made once,
when it is written; y = h - sum_i t_i N_i then costs no projection. Rows of endpoint buffers are 2e (source) and 2e + 1
(destination). A self-loop uses its first row; the second repeats it going forward and carries zero gradients going
back.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from numba import njit

from tsnn.engine import passes
from tsnn.engine.frames import Frames, coefficients, coefficients_back, lift, lower, open_frame, reflectors, subtract
from tsnn.engine.gates import sigmoid, tanh
from tsnn.engine.layout import CARRY, GRU, MOVED, NUM_COEF, POST, PRE, Dims, Plan, Scratch, Tape, Weights
from tsnn.engine.panels import layer
from tsnn.engine.pointers import ENTRY, INLINE, INNER, STAGE, Ptr, at, lit, pointers, ptr
from tsnn.engine.star import (
    Edge,
    Star,
    after_round,
    before_round,
    join_edges,
    read_star,
    split_sum,
    step_size,
)
from tsnn.engine.vectors import copy, dot, prefetch, relu
from tsnn.kernel_cache import kernel


class Chunk(NamedTuple):
    """All that a stage of an event reads and writes, as pointers."""

    dims: Dims
    plan: Plan
    weights: Weights
    tape: Tape
    scratch: Scratch
    frames: Frames


@kernel(**ENTRY)
def forward(dims: Dims, plan: Plan, weights: Weights, tape: Tape, scratch: Scratch) -> None:
    """The recurrence over the events of a chunk."""
    frames = Frames(ptr(tape.N), ptr(tape.G), ptr(tape.inv), dims.kr, dims.d)
    ch = Chunk(dims, pointers(plan), pointers(weights), pointers(tape), pointers(scratch), frames)
    open_initial(ch)
    for e in range(dims.n):
        read_ends(ch, e)
        update_frames(ch, e)
        carry_over(ch, e)
        update_stalks(ch, e)
        if dims.rounds > 0:
            diffuse(ch, e)
        else:
            pass_through(ch, e)
        ch.tape.energy[e] = measure_energy(dims, ch.plan, ch.tape, e)


@njit(**STAGE)
def open_initial(ch: Chunk) -> None:
    """Reflectors and coefficients of the initial rows that an event reads."""
    dims, plan = ch.dims, ch.plan
    for e in range(dims.n):
        open_version(ch, plan.src_h[e], plan.src_F[e])
        open_version(ch, plan.dst_h[e], plan.dst_F[e])
        first = plan.act_ptr[e] + (1 if plan.is_loop[e] != 0 else 2)
        for j in range(first, plan.act_ptr[e + 1]):
            open_version(ch, plan.act_h[j], plan.act_F[j])


@njit(**STAGE)
def open_version(ch: Chunk, row: int, frame: int) -> None:
    """Make the reflectors and coefficients of one initial row, once."""
    dims, tape, fr = ch.dims, ch.tape, ch.frames
    if frame < dims.n0 and tape.ready_F[frame] == 0:
        tape.ready_F[frame] = 1
        open_frame(fr, frame, at(tape.F, frame * dims.k * dims.d), dims.eps)
    if row < dims.n0 and tape.ready_h[row] == 0:
        tape.ready_h[row] = 1
        coefficients(fr, frame, at(tape.h, row * dims.d), at(tape.t_h, row * dims.kr))


@njit(**STAGE)
def read_ends(ch: Chunk, e: int) -> None:
    """The endpoints' pre-event stalks in synchronized coordinates."""
    plan, tape, fr = ch.plan, ch.tape, ch.frames
    for s in range(2):
        row, frame = (plan.dst_h[e], plan.dst_F[e]) if s else (plan.src_h[e], plan.src_F[e])
        t = at(tape.t_h, row * fr.k)
        subtract(fr, frame, t, at(tape.h, row * fr.d), at(tape.y_pre, (2 * e + s) * fr.d))


@njit(**STAGE)
def transport_pair(fr: Frames, frame_u: int, frame_v: int, loop: bool, x: Ptr, y_u: Ptr, y_v: Ptr, t: Ptr) -> None:
    """Second halves of the two input rows x (2, 2d): each endpoint's partner in its own coordinates."""
    d = fr.d
    if loop:  # Q_uu = I
        copy(x, at(x, d), d)
        copy(x, at(x, 2 * d), 2 * d)
    else:
        lower(fr, frame_u, y_v, at(x, d), t)
        lower(fr, frame_v, y_u, at(x, 3 * d), at(t, NUM_COEF * fr.k))


@njit(**INNER)
def perceptron(dims: Dims, W_in: Ptr, W_out: Ptr, bias: Ptr, x: Ptr, hid: Ptr, out: Ptr, width: int) -> None:
    """out = W_out relu(hid + W_in x) + bias for two rows; hid comes in holding the context's share."""
    layer(W_in, 2 * dims.d, dims.wp, x, 2 * dims.d, hid, dims.wp, dims.lanes)
    relu(hid, 2 * dims.wp)
    copy(bias, out, width)
    copy(bias, at(out, width), width)
    layer(W_out, dims.w, width, hid, dims.wp, out, width, dims.lanes)


@njit(**INLINE)
def keep_length(dims: Dims, F: Ptr, stretch: Ptr) -> None:
    """Scale the rows of a frame back to the length that all have: a reflector is its direction alone."""
    for i in range(dims.k):
        row = at(F, i * dims.d)
        length = math.sqrt(dot(row, row, dims.d))
        scale = lit(F, 1.0)
        if length > dims.eps:
            scale = lit(F, math.sqrt(dims.d / dims.k) / length)
        stretch[i] = scale
        for c in range(dims.d):
            row[c] *= scale


@njit(**INLINE)
def move_frame(dims: Dims, fr: Frames, F: Ptr, pre: int, post: int, step: Ptr, stretch: Ptr) -> Any:
    """F_post = F_pre + step (eq:frame_update); returns |step|^2."""
    size = dims.k * dims.d
    source, target = at(F, pre * size), at(F, post * size)
    if dims.frame_update:
        for i in range(size):
            target[i] = source[i] + step[i]
        if dims.kept is not None:
            keep_length(dims, target, stretch)
    else:
        copy(source, target, size)
    open_frame(fr, post, target, dims.eps)
    return dot(step, step, size) if dims.frame_update else lit(F, 0.0)


@njit(**STAGE)
def update_frames(ch: Chunk, e: int) -> None:
    """Step 3 of alg:tsnn: MLP_frame on transported pre-event states, then the new frames (eq:frame_update)."""
    dims, plan, weights, tape, fr = ch.dims, ch.plan, ch.weights, ch.tape, ch.frames
    d, loop = dims.d, plan.is_loop[e] != 0
    h, y, F = tape.h, at(tape.y_pre, 2 * e * d), tape.F
    x, step = at(tape.x_frame, 4 * e * d), at(tape.dF, 2 * e * dims.kdp)
    fu, fv = plan.src_F[e], plan.dst_F[e]
    if dims.frame_update:
        copy(at(h, plan.src_h[e] * d), x, d)
        copy(at(h, plan.dst_h[e] * d), at(x, 2 * d), d)
        t = at(tape.coef, (2 * e * NUM_COEF + PRE) * dims.kr)
        transport_pair(fr, fu, fv, loop, x, y, at(y, d), t)
        hid = at(tape.hid_frame, 2 * e * dims.wp)
        perceptron(dims, weights.frame_in, weights.frame_out, weights.frame_out_bias, x, hid, step, dims.kdp)
        if loop:
            copy(step, at(step, dims.kdp), dims.kdp)
    post = dims.n0 + 2 * e
    stretch = at(tape.stretch, 2 * e * dims.k)
    smooth_u = move_frame(dims, fr, F, fu, post, step, stretch)
    smooth_v = move_frame(dims, fr, F, fv, post + 1, at(step, dims.kdp), at(stretch, dims.k))
    tape.smooth[e] = smooth_u if loop else smooth_u + smooth_v


@njit(**STAGE)
def carry_over(ch: Chunk, e: int) -> None:
    """Rows of x_msg: pre-event stalks and partners in post-update coordinates (prop:carry_over)."""
    dims, plan, tape, fr = ch.dims, ch.plan, ch.tape, ch.frames
    d, loop, post = dims.d, plan.is_loop[e] != 0, dims.n0 + 2 * e
    x, coef = at(tape.x_msg, 4 * e * d), at(tape.coef, 2 * e * NUM_COEF * dims.kr)
    row = NUM_COEF * dims.kr
    y_u, y_v = at(tape.y_pre, 2 * e * d), at(tape.y_pre, (2 * e + 1) * d)
    if dims.carry_over:
        lower(fr, post, y_u, x, at(coef, CARRY * dims.kr))
        lower(fr, post + 1, y_v, at(x, 2 * d), at(coef, row + CARRY * dims.kr))
    else:
        copy(at(tape.h, plan.src_h[e] * d), x, d)
        copy(at(tape.h, plan.dst_h[e] * d), at(x, 2 * d), d)
        y_u, y_v = at(tape.y_moved, 2 * e * d), at(tape.y_moved, (2 * e + 1) * d)
        lift(fr, post, x, y_u, at(coef, MOVED * dims.kr))
        lift(fr, post + 1, at(x, 2 * d), y_v, at(coef, row + MOVED * dims.kr))
    transport_pair(fr, post, post + 1, loop, x, y_u, y_v, at(coef, POST * dims.kr))


@njit(**INLINE)
def gru_gates(d: int, a: Ptr, b: Ptr, hbar: Ptr, gates: Ptr, out: Ptr) -> None:
    """One GRU cell from the affine parts a (input) and b (state), order r, z, n (eq:gru_update)."""
    r, z, n, b_n = gates, at(gates, d), at(gates, 2 * d), at(gates, 3 * d)
    for i in range(2 * d):
        gates[i] = sigmoid(a[i] + b[i])
    a3, b3 = at(a, 2 * d), at(b, 2 * d)
    for i in range(d):
        v = b3[i]
        c = tanh(a3[i] + r[i] * v)
        b_n[i] = v
        n[i] = c
        out[i] = c + z[i] * (hbar[i] - c)


@njit(**STAGE)
def update_stalks(ch: Chunk, e: int) -> None:
    """Step 4 of alg:tsnn: messages (eq:message) and the recurrent update (eq:gru_update)."""
    dims, weights, tape, fr = ch.dims, ch.weights, ch.tape, ch.frames
    d, r = dims.d, 2 * e
    x, m, hid = at(tape.x_msg, 2 * r * d), at(tape.m, r * dims.dp), at(tape.hid_msg, r * dims.wp)
    a, b = ch.scratch.gru_a, ch.scratch.gru_b
    perceptron(dims, weights.msg_in, weights.msg_out, weights.msg_out_bias, x, hid, m, dims.dp)
    for s in range(2):
        copy(weights.gru_in_bias, at(a, s * dims.d3p), dims.d3p)
        copy(weights.gru_state_bias, at(b, s * dims.d3p), dims.d3p)
    layer(weights.gru_in, d, dims.d3p, m, dims.dp, a, dims.d3p, dims.lanes)
    layer(weights.gru_state, d, dims.d3p, x, 2 * d, b, dims.d3p, dims.lanes)
    gates, h, y = at(tape.gates, 4 * r * d), at(tape.gru_h, r * d), at(tape.y_ends, r * d)
    for s in range(2):
        a_s, b_s, h_s = at(a, s * dims.d3p), at(b, s * dims.d3p), at(h, s * d)
        gru_gates(d, a_s, b_s, at(x, 2 * s * d), at(gates, 4 * s * d), h_s)
        t = at(tape.coef, ((r + s) * NUM_COEF + GRU) * dims.kr)
        lift(fr, dims.n0 + r + s, h_s, at(y, s * d), t)


@njit(**INNER)
def leaf_residual(fr: Frames, row: int, edge: Edge, h: Ptr, t_h: Ptr, r: Ptr, t_r: Ptr) -> None:
    """A leaf's sum r, its coefficients for U^T, and its pull on the center; a call of its own, for the registers."""
    passes.residual(reflectors(fr, row), edge.weight, h, t_h, edge.center, r, edge.total, t_r)


@njit(**INNER)
def diffusion_step(fr: Frames, row: int, r: Ptr, t_r: Ptr, h: Ptr, D: Ptr, c: Any, h_post: Ptr, t_post: Ptr) -> None:
    """h' = h - c D U^T r (eq:diffusion_local, the sum r in synchronized coordinates), and the coefficients of U h'."""
    passes.step(reflectors(fr, row), c, r, t_r, h, D, h_post, t_post)


@njit(**STAGE)
def diffuse(ch: Chunk, e: int) -> None:
    """Step 5 of alg:tsnn: K rounds over the active graph, all entries at once in each (alg:diffuse)."""
    dims, tape, d = ch.dims, ch.tape, ch.dims.d
    star = read_star(ch.plan, e, ch.weights.D)
    for ell in range(dims.rounds):
        y_u, r_u = at(tape.y_ends, 2 * (ell * dims.n + e) * d), at(tape.r_ends, 2 * (ell * dims.n + e) * d)
        y_v, r_v = at(y_u, star.other * d), at(r_u, d)
        for i in range(d):
            r_u[i] = star.total_u * y_u[i] - star.uv * y_v[i]
            r_v[i] = star.total_v * y_v[i] - star.uv * y_u[i]
        diffuse_leaves(ch, star, ell, y_u, y_v, r_u, r_v)
        diffuse_ends(ch, star, ell, r_u)


@njit(**STAGE)
def diffuse_leaves(ch: Chunk, star: Star, ell: int, y_u: Ptr, y_v: Ptr, r_u: Ptr, r_v: Ptr) -> None:
    """One round at the leaves; their pulls on the endpoints go to r_u, r_v."""
    dims, plan, tape, fr, D = ch.dims, ch.plan, ch.tape, ch.frames, ch.weights.D
    d, r = dims.d, ch.scratch.r
    t_r = at(tape.t_round, ell * dims.nA * dims.kr)
    for j in range(star.leaf, star.stop):
        a, b, t_j = lit(D, plan.mult_src[j]), lit(D, plan.mult_dst[j]), at(t_r, j * dims.kr)
        h, t_h = before_round(dims, plan, tape, star, j, ell)
        edge = join_edges(a, b, y_u, y_v, r_u, r_v, ch.scratch.mixed, d)
        leaf_residual(fr, plan.act_F[j], edge, h, t_h, r, t_j)
        split_sum(a, b, edge, r_u, r_v, d)
        if ell == 0 and j + 1 < star.stop:
            prefetch(at(fr.N, plan.act_F[j + 1] * fr.k * d), fr.k * d, dims.lanes)
            prefetch(at(tape.h, plan.act_h[j + 1] * d), d, dims.lanes)
            prefetch(at(tape.t_h, plan.act_h[j + 1] * fr.k), 1, dims.lanes)
        h_post, t_post = after_round(dims, tape, j, ell)
        diffusion_step(fr, plan.act_F[j], r, t_j, h, D, step_size(dims, D, a + b), h_post, t_post)


@njit(**STAGE)
def diffuse_ends(ch: Chunk, star: Star, ell: int, r: Ptr) -> None:
    """The same round at the endpoints, once their sums r (2, d) are complete."""
    dims, tape, fr, D, e = ch.dims, ch.tape, ch.frames, ch.weights.D, star.event
    d = dims.d
    for s in range(star.leaf - star.first):
        j, post = star.first + s, dims.n0 + 2 * e + s
        t_j, r_s = at(tape.t_round, (ell * dims.nA + j) * dims.kr), at(r, s * d)
        y_post = at(tape.y_ends, (2 * ((ell + 1) * dims.n + e) + s) * d)
        h, _ = before_round(dims, ch.plan, tape, star, j, ell)
        h_post, t_post = after_round(dims, tape, j, ell)
        coefficients_back(fr, post, r_s, t_j)
        c = step_size(dims, D, star.degree_v if s else star.degree_u)
        diffusion_step(fr, post, r_s, t_j, h, D, c, h_post, t_post)
        subtract(fr, post, t_post, h_post, y_post)


@njit(**STAGE)
def pass_through(ch: Chunk, e: int) -> None:
    """Write the active entries without diffusion (K = 0)."""
    dims, plan, tape = ch.dims, ch.plan, ch.tape
    star = read_star(plan, e, tape.h)
    for j in range(star.first, star.stop):
        h, t = before_round(dims, plan, tape, star, j, 0)
        h_post, t_post = after_round(dims, tape, j, -1)
        copy(h, h_post, dims.d)
        copy(t, t_post, dims.kr)


@njit(**STAGE)
def measure_energy(dims: Dims, plan: Plan, tape: Tape, e: int) -> Any:
    """|h_u - Q_uv h_v|^2 after the last round (eq:loss_aux); 0 for a self-loop."""
    y_u = at(tape.y_ends, 2 * (dims.rounds * dims.n + e) * dims.d)
    y_v = at(y_u, dims.d)
    s = lit(y_u, 0.0)
    if plan.is_loop[e] == 0:
        for i in range(dims.d):
            s += (y_u[i] - y_v[i]) * (y_u[i] - y_v[i])
    return s
