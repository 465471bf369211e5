"""The adjoint of `tsnn.engine.forward`: the same stages, events and rounds in reverse, as one compiled kernel.

Notation: as there, with g for the gradient of what follows it (gh of h, gr of r); tsnn.engine.frames has the adjoints
of U, tsnn.engine.layout the arrays. With y = U h, r = weight (y - center) and h' = h - c D U^T r at an active entry:

    gq = -c D gh'      the gradient of q = U^T r
    gr = U gq          of r
    gy = weight (gr - gr_center)      of y, since the entry pulls on its center as the center pulls on it
    gh = gh' + U^T gy

A stalk version is read by exactly one event, the next one its node is active in: its gradient is written there, not
added up. A frame version is read by many.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from numba import njit

from tsnn.engine import passes
from tsnn.engine.frames import (
    FrameGrads,
    Frames,
    close_frame,
    frame_adjoint,
    lift_adjoint,
    lower_adjoint,
    reflectors,
    shares,
)
from tsnn.engine.layout import CARRY, MOVED, NUM_COEF, POST, PRE, BackScratch, Dims, Grads, Plan, Tape, Weights
from tsnn.engine.panels import layer
from tsnn.engine.pointers import ENTRY, INLINE, INNER, STAGE, Ptr, at, lit, pointers, ptr
from tsnn.engine.star import Star, before_round, join_edges, read_star, split_sum, step_size
from tsnn.engine.vectors import add, axpy, clear, copy, dot, prefetch, relu_adjoint
from tsnn.kernel_cache import kernel


class Back(NamedTuple):
    """All that the adjoint of a stage reads and writes, as pointers. The weights are packed transposed."""

    dims: Dims
    plan: Plan
    weights: Weights
    tape: Tape
    grads: Grads
    scratch: BackScratch
    frames: Frames
    shares: FrameGrads
    base: int  # versions in rows below it are constants


@kernel(**ENTRY)
def backward(
    dims: Dims, plan: Plan, weights: Weights, tape: Tape, grads: Grads, scratch: BackScratch, base: int
) -> None:
    """Gradients of everything that `forward` read."""
    fr = Frames(ptr(tape.N), ptr(tape.G), ptr(tape.inv), dims.kr, dims.d)
    fg = FrameGrads(ptr(grads.gN), ptr(grads.gS), base)
    b = Back(dims, pointers(plan), pointers(weights), pointers(tape), pointers(grads), pointers(scratch), fr, fg, base)
    clear(b.scratch.zeros, dims.d + dims.kr)
    for e in range(dims.n - 1, -1, -1):
        diffusion_adjoint(b, e)
        stalks_adjoint(b, e)
        carry_adjoint(b, e)
        frames_adjoint(b, e)
        inputs_adjoint(b, e)
    if base == 0:
        initial_gradients(b)


@njit(**STAGE)
def collect_entries(b: Back, e: int) -> None:
    """scratch.gh (m, d): gradients of the stalks that event e wrote."""
    dims, plan, tape, grads, gh, gy = b.dims, b.plan, b.tape, b.grads, b.scratch.gh, b.scratch.gy
    d, first, num_ends = dims.d, plan.act_ptr[e], 1 if plan.is_loop[e] != 0 else 2
    for j in range(first, plan.act_ptr[e + 1]):
        row, out = dims.n0 + j, at(gh, (j - first) * d)
        copy(at(grads.up_h, row * d), out, d)
        if grads.has_gh[row - b.base] != 0:
            add(at(grads.gh, (row - b.base) * d), out, d)
    if num_ends == 2:
        y_u = at(tape.y_ends, 2 * (dims.rounds * dims.n + e) * d)
        y_v, pull = at(y_u, d), lit(gh, 2.0) * grads.up_energy[e]
        for i in range(2):
            force = -pull if i else pull
            for c in range(d):
                gy[c] = force * (y_u[c] - y_v[c])
            row, post = dims.n0 + first + i, dims.n0 + 2 * e + i
            h, t = at(tape.h, row * d), at(tape.t_h, row * dims.kr)
            lift_adjoint(b.frames, b.shares, post, h, t, gy, at(gh, i * d), b.scratch.s)


class Entry(NamedTuple):
    """One active entry in one round, for its adjoint: frame row, edge, and what the forward pass left."""

    frame: int
    weight: Any
    center: Ptr  # r = weight (U h - center)
    size: Any  # eta / degree
    h: Ptr  # before the round
    t_h: Ptr
    t_r: Ptr


@njit(**INNER)
def step_adjoint(fr: Frames, en: Entry, gh: Ptr, D: Ptr, gD: Ptr, r: Ptr, gq: Ptr, t_q: Ptr) -> None:
    """r again, gq = -c D gh with its coefficients t_q for U, and gD."""
    frame = reflectors(fr, en.frame)
    passes.step_adjoint(frame, en.weight, en.size, en.h, en.t_h, en.center, en.t_r, gh, D, gD, r, gq, t_q)


@njit(**INNER)
def residual_adjoint(fr: Frames, en: Entry, gq: Ptr, t_q: Ptr, gr_c: Ptr, sum_c: Ptr, gy: Ptr, t_y: Ptr) -> None:
    """gr = U gq, gy = weight (gr - gr_c) with its coefficients t_y for U^T, and sum_c -= weight gr."""
    passes.residual_adjoint(reflectors(fr, en.frame), en.weight, gq, t_q, gr_c, sum_c, gy, t_y)


@njit(**STAGE)
def entry_adjoint(b: Back, en: Entry, gh: Ptr, gr_c: Ptr, sum_c: Ptr) -> None:
    """Adjoint of h' = h - c D U^T r at one entry, up to gy, which stays in scratch; -weight gr goes to sum_c."""
    sc = b.scratch
    step_adjoint(b.frames, en, gh, b.weights.D, b.grads.gD, sc.r, sc.gq, sc.t_q)
    residual_adjoint(b.frames, en, sc.gq, sc.t_q, gr_c, sum_c, sc.gy, sc.t_y)


@njit(**STAGE)
def ends_adjoint(b: Back, star: Star, ell: int) -> None:
    """scratch.gr (2, d): gradients of the endpoints' r in round ell."""
    dims, tape, sc, D, e = b.dims, b.tape, b.scratch, b.weights.D, star.event
    d, k = dims.d, dims.kr
    for i in range(star.leaf - star.first):
        j, post = star.first + i, dims.n0 + 2 * e + i
        t_r, r = at(tape.t_round, (ell * dims.nA + j) * k), at(tape.r_ends, (2 * (ell * dims.n + e) + i) * d)
        c = step_size(dims, D, star.degree_v if i else star.degree_u)
        zero_t, one = at(sc.zeros, d), lit(D, 1.0)
        en = Entry(post, one, sc.zeros, c, r, zero_t, t_r)  # r itself in the place of weight (U h - center)
        entry_adjoint(b, en, at(sc.gh, i * d), sc.zeros, sc.sink)
        copy(sc.gy, at(sc.gr, i * d), d)
        frame_adjoint(b.frames, b.shares, post, sc.gq, sc.t_q, r, t_r)


@njit(**STAGE)
def prefetch_leaf(b: Back, star: Star, j: int, ell: int) -> None:
    """Ask for what the adjoint of leaf j in round ell reads."""
    dims, row = b.dims, b.plan.act_F[j]
    h, t = before_round(dims, b.plan, b.tape, star, j, ell)
    prefetch(h, dims.d, dims.lanes)
    prefetch(t, 1, dims.lanes)
    if ell == dims.rounds - 1:
        size = dims.kr * dims.d
        prefetch(at(b.tape.N, row * size), size, dims.lanes)
        if row >= b.base:
            prefetch(at(b.grads.gN, (row - b.base) * size), size, dims.lanes)


@njit(**STAGE)
def leaves_adjoint(b: Back, star: Star, ell: int) -> None:
    """From gh of the leaves after round ell to gh before it, which the first round hands to the versions they read."""
    dims, plan, tape, grads, sc, D = b.dims, b.plan, b.tape, b.grads, b.scratch, b.weights.D
    d = dims.d
    y_u = at(tape.y_ends, 2 * (ell * dims.n + star.event) * d)
    y_v, gr_v, sum_v = at(y_u, star.other * d), at(sc.gr, star.other * d), at(sc.sums, d)
    for j in range(star.leaf, star.stop):
        a, c, gh = lit(D, plan.mult_src[j]), lit(D, plan.mult_dst[j]), at(sc.gh, (j - star.first) * d)
        h, t_h = before_round(dims, plan, tape, star, j, ell)
        t_r = at(tape.t_round, (ell * dims.nA + j) * dims.kr)
        pull = join_edges(a, c, y_u, y_v, y_u, y_v, sc.mixed, d)
        back = join_edges(a, c, sc.gr, gr_v, sc.sums, sum_v, sc.mixed_back, d)
        en = Entry(plan.act_F[j], pull.weight, pull.center, step_size(dims, D, a + c), h, t_h, t_r)
        if j + 1 < star.stop:
            prefetch_leaf(b, star, j + 1, ell)
        out, row = gh, plan.act_h[j] - b.base
        if ell == 0 and row >= 0:
            grads.has_gh[row] = 1
            out = at(grads.gh, row * d)
        entry_adjoint(b, en, gh, back.center, back.total)
        passes.add_lowered(reflectors(b.frames, en.frame), gh, sc.gy, sc.t_y, out)
        if en.frame >= b.base:
            share = shares(b.frames, b.shares, en.frame)
            passes.leaf_frame_share(share, sc.r, t_r, sc.gq, sc.t_q, h, t_h, sc.gy, sc.t_y)
        split_sum(a, c, back, sc.sums, sum_v, d)


@njit(**STAGE)
def diffusion_adjoint(b: Back, e: int) -> None:
    """Step 5 backward. On return the first rows of scratch.gh hold the gradients of the endpoints' GRU outputs."""
    dims, d, sc = b.dims, b.dims.d, b.scratch
    star = read_star(b.plan, e, sc.gh)
    collect_entries(b, e)
    for ell in range(dims.rounds - 1, -1, -1):
        ends_adjoint(b, star, ell)
        gr, gr_v, sums, sum_v = sc.gr, at(sc.gr, star.other * d), sc.sums, at(sc.sums, d)
        for i in range(d):
            sums[i] = star.total_u * gr[i] - star.uv * gr_v[i]
            sum_v[i] = star.total_v * gr_v[i] - star.uv * gr[i]
        leaves_adjoint(b, star, ell)
        for i in range(star.leaf - star.first):
            h, t = before_round(dims, b.plan, b.tape, star, star.first + i, ell)
            post, out = dims.n0 + 2 * e + i, at(sc.gh, i * d)
            lift_adjoint(b.frames, b.shares, post, h, t, at(sums, i * d), out, sc.s)
    if dims.rounds == 0:  # a leaf's gradient goes on as it is
        for j in range(star.leaf, star.stop):
            row = b.plan.act_h[j] - b.base
            if row >= 0:
                b.grads.has_gh[row] = 1
                copy(at(sc.gh, (j - star.first) * d), at(b.grads.gh, row * d), d)


@njit(**INLINE)
def gru_adjoint(d: int, g: Ptr, hbar: Ptr, gates: Ptr, out: Ptr, g_hbar: Ptr) -> None:
    """Gradients of the affine parts of a GRU cell, order (candidate's state part, r, z, n), and of hbar directly."""
    r, z, n, b_n = gates, at(gates, d), at(gates, 2 * d), at(gates, 3 * d)
    o_b, o_r, o_z, o_n = out, at(out, d), at(out, 2 * d), at(out, 3 * d)
    one = lit(g, 1.0)
    for i in range(d):
        gi, ri, zi, ni = g[i], r[i], z[i], n[i]
        v = gi * (one - zi) * (one - ni * ni)
        o_n[i] = v
        o_b[i] = v * ri
        o_r[i] = v * b_n[i] * ri * (one - ri)
        o_z[i] = gi * (hbar[i] - ni) * zi * (one - zi)
        g_hbar[i] = gi * zi


@njit(**INNER)
def perceptron_adjoint(
    dims: Dims, W_in: Ptr, W_out: Ptr, hid: Ptr, g_out: Ptr, ld: int, width: int, g_hid: Ptr, g_x: Ptr
) -> None:
    """Gradients of the hidden layer (before relu) and of the state inputs, two rows, weights packed transposed."""
    clear(g_hid, 2 * dims.wp)
    layer(W_out, width, dims.wp, g_out, ld, g_hid, dims.wp, dims.lanes)
    relu_adjoint(hid, g_hid, 2 * dims.wp)
    clear(g_x, 2 * dims.d2p)
    layer(W_in, dims.w, dims.d2p, g_hid, dims.wp, g_x, dims.d2p, dims.lanes)


@njit(**STAGE)
def stalks_adjoint(b: Back, e: int) -> None:
    """Step 4 backward: scratch.g_x, the gradients of the inputs [hbar | partner] of both endpoints."""
    dims, weights, tape, grads, sc = b.dims, b.weights, b.tape, b.grads, b.scratch
    d, r, g_hbar = dims.d, 2 * e, b.scratch.g_hbar
    gates, x = at(tape.gates, 4 * r * d), at(tape.x_msg, 2 * r * d)
    d_gates, d_m = at(grads.d_gates, 4 * r * d), at(grads.d_msg_out, r * dims.dp)
    clear(g_hbar, 2 * dims.dp)
    for s in range(2):
        out = at(d_gates, 4 * s * d)
        if s == 1 and b.plan.is_loop[e] != 0:
            clear(out, 4 * d)
        else:
            gru_adjoint(d, at(sc.gh, s * d), at(x, 2 * s * d), at(gates, 4 * s * d), out, at(g_hbar, s * dims.dp))
    clear(d_m, 2 * dims.dp)
    layer(weights.gru_in, 3 * d, dims.dp, at(d_gates, d), 4 * d, d_m, dims.dp, dims.lanes)
    layer(weights.gru_state, 3 * d, dims.dp, d_gates, 4 * d, g_hbar, dims.dp, dims.lanes)
    hid, g_hid = at(tape.hid_msg, r * dims.wp), at(grads.d_msg_hid, r * dims.wp)
    perceptron_adjoint(dims, weights.msg_in, weights.msg_out, hid, d_m, dims.dp, d, g_hid, sc.g_x)
    for s in range(2):
        add(at(g_hbar, s * dims.dp), at(sc.g_x, s * dims.d2p), d)


@njit(**INNER)
def pair_adjoint(
    fr: Frames, fg: FrameGrads, frame_u: int, frame_v: int, loop: bool, g_x: Ptr, ld: int, y_u: Ptr, y_v: Ptr,
    t: Ptr, g_y: Ptr, s: Ptr,
) -> None:  # fmt: skip
    """Adjoint of `transport_pair`: partner gradients go to g_y (2, d), or to the state itself in a self-loop."""
    d = fr.d
    if loop:
        add(at(g_x, d), g_x, d)
    else:
        lower_adjoint(fr, fg, frame_u, y_v, t, at(g_x, d), at(g_y, d), s)
        lower_adjoint(fr, fg, frame_v, y_u, at(t, NUM_COEF * fr.k), at(g_x, ld + d), g_y, s)


@njit(**STAGE)
def carry_adjoint(b: Back, e: int) -> None:
    """Adjoint of `carry_over`: scratch.g_h, g_y, the gradients of the endpoints' pre-event stalks and of their y."""
    dims, tape, fr, fg, sc = b.dims, b.tape, b.frames, b.shares, b.scratch
    d, d2p, loop, post = dims.d, dims.d2p, b.plan.is_loop[e] != 0, dims.n0 + 2 * e
    coef, row = at(tape.coef, 2 * e * NUM_COEF * dims.kr), NUM_COEF * dims.kr
    x, num_ends, t_pair = at(tape.x_msg, 4 * e * d), 1 if loop else 2, at(coef, POST * fr.k)
    clear(sc.g_h, 2 * d)
    clear(sc.g_y, 2 * d)
    y = at(tape.y_pre if dims.carry_over else tape.y_moved, 2 * e * d)
    pair_adjoint(fr, fg, post, post + 1, loop, sc.g_x, d2p, y, at(y, d), t_pair, sc.g_y, sc.s)
    for i in range(num_ends):
        t, g_x, g_h, g_y = at(coef, i * row), at(sc.g_x, i * d2p), at(sc.g_h, i * d), at(sc.g_y, i * d)
        if dims.carry_over:
            lower_adjoint(fr, fg, post + i, at(y, i * d), at(t, CARRY * fr.k), g_x, g_y, sc.s)
        else:
            add(g_x, g_h, d)
            lift_adjoint(fr, fg, post + i, at(x, 2 * i * d), at(t, MOVED * fr.k), g_y, g_h, sc.s)
    if not dims.carry_over:
        clear(sc.g_y, 2 * d)


@njit(**INLINE)
def post_frame_gradient(dims: Dims, fr: Frames, fg: FrameGrads, grads: Grads, row: int, out: Ptr) -> None:
    """out += gradient of frame version `row`: from scores, from the event that moves it on, from its reflectors."""
    size = dims.k * dims.d
    add(at(grads.up_F, row * size), out, size)
    if grads.has_gF[row - fg.base]:
        add(at(grads.gF, (row - fg.base) * size), out, size)
    close_frame(fr, fg, row, out)


@njit(**INLINE)
def keep_length_adjoint(dims: Dims, F: Ptr, stretch: Ptr, g: Ptr) -> None:
    """Adjoint of `keep_length`: g without its part along each row, scaled as the row was."""
    for i in range(dims.k):
        row, g_row = at(F, i * dims.d), at(g, i * dims.d)
        length2, along = dot(row, row, dims.d), lit(g, 0.0)
        if length2 > dims.eps**2:
            along = dot(row, g_row, dims.d) / length2
        for c in range(dims.d):
            g_row[c] = stretch[i] * (g_row[c] - along * row[c])


@njit(**STAGE)
def frames_adjoint(b: Back, e: int) -> None:
    """Step 3 backward: post-event frames are complete; scratch.g_x, the gradients of the inputs of MLP_frame."""
    dims, plan, weights, tape, grads = b.dims, b.plan, b.weights, b.tape, b.grads
    size, loop, post = dims.k * dims.d, plan.is_loop[e] != 0, dims.n0 + 2 * e
    out = at(grads.d_frame_out, 2 * e * size)
    clear(out, 2 * size)
    for s in range(2):
        post_frame_gradient(dims, b.frames, b.shares, grads, post + s, out if loop else at(out, s * size))
    for s in range(1 if loop else 2):
        if dims.kept is not None and dims.frame_update:
            stretch = at(tape.stretch, (2 * e + s) * dims.k)
            keep_length_adjoint(dims, at(tape.F, (post + s) * size), stretch, at(out, s * size))
        pre = (plan.dst_F[e] if s else plan.src_F[e]) - b.base
        if pre >= 0:
            grads.has_gF[pre] = 1
            copy(at(out, s * size), at(grads.gF, pre * size), size)
        if dims.frame_update:
            weight = lit(out, 2.0) * grads.up_smooth[e]
            axpy(weight, at(tape.dF, (2 * e + s) * dims.kdp), at(out, s * size), size)
    if dims.frame_update:
        hid, g_hid = at(tape.hid_frame, 2 * e * dims.wp), at(grads.d_frame_hid, 2 * e * dims.wp)
        perceptron_adjoint(dims, weights.frame_in, weights.frame_out, hid, out, size, size, g_hid, b.scratch.g_x)


@njit(**STAGE)
def inputs_adjoint(b: Back, e: int) -> None:
    """Adjoint of the reads of event e: hand the gradients of its endpoints to the versions they came from."""
    dims, plan, tape, fr, fg, grads, sc = b.dims, b.plan, b.tape, b.frames, b.shares, b.grads, b.scratch
    d, loop = dims.d, plan.is_loop[e] != 0
    if dims.frame_update:
        y = at(tape.y_pre, 2 * e * d)
        t = at(tape.coef, (2 * e * NUM_COEF + PRE) * fr.k)
        u, v = plan.src_F[e], plan.dst_F[e]
        pair_adjoint(fr, fg, u, v, loop, sc.g_x, dims.d2p, y, at(y, d), t, sc.g_y, sc.s)
        add(sc.g_x, sc.g_h, d)
        add(at(sc.g_x, dims.d2p), at(sc.g_h, d), d)
    for i in range(1 if loop else 2):
        row, frame = (plan.dst_h[e], plan.dst_F[e]) if i else (plan.src_h[e], plan.src_F[e])
        if row >= b.base:
            out, h, t_h = at(sc.g_h, i * d), at(tape.h, row * d), at(tape.t_h, row * fr.k)
            lift_adjoint(fr, fg, frame, h, t_h, at(sc.g_y, i * d), out, sc.s)
            grads.has_gh[row - b.base] = 1
            copy(out, at(grads.gh, (row - b.base) * d), d)


@njit(**STAGE)
def initial_gradients(b: Back) -> None:
    """Gradients of h0 and F0, when they are wanted (base = 0)."""
    dims, tape, grads = b.dims, b.tape, b.grads
    d, size = dims.d, dims.k * dims.d
    for row in range(dims.n0):
        out = at(grads.g_h0, row * d)
        copy(at(grads.up_h, row * d), out, d)
        if grads.has_gh[row]:
            add(at(grads.gh, row * d), out, d)
        out = at(grads.g_F0, row * size)
        if tape.ready_F[row]:
            clear(out, size)
            post_frame_gradient(dims, b.frames, b.shares, grads, row, out)
        else:
            copy(at(grads.up_F, row * size), out, size)
