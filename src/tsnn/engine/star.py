"""The active graph of an event, two weighted stars (D-09), and where its entries' states are before each round."""

from __future__ import annotations

from typing import Any, NamedTuple

from numba import njit

from tsnn.engine.layout import GRU, NUM_COEF, Dims, Plan, Tape
from tsnn.engine.pointers import INLINE, INNER, Ptr, at, lit
from tsnn.engine.vectors import axpy, clear


class Star(NamedTuple):
    """The edges of an event's endpoints, their edge u-v, and the degrees of the endpoints."""

    event: int
    first: int  # entry of the source
    other: int  # from the source's row to the destination's: 1, or 0 in a self-loop
    leaf: int  # first entry that is no endpoint
    stop: int
    total_u: Any  # weight of all edges of u; self entries count in the degree only
    total_v: Any
    uv: Any
    degree_u: Any
    degree_v: Any


@njit(**INNER)
def read_star(plan: Plan, e: int, like: Ptr) -> Star:
    """Edge weights and degrees of event e."""
    first, stop = plan.act_ptr[e], plan.act_ptr[e + 1]
    sum_u, sum_v, zero = lit(like, 0.0), lit(like, 0.0), lit(like, 0.0)
    leaf = first + 1 if plan.is_loop[e] != 0 else first + 2
    for j in range(leaf, stop):
        sum_u += plan.mult_src[j]
        sum_v += plan.mult_dst[j]
    self_u, self_v, uv = lit(like, plan.mult_src[first]), zero, zero
    if plan.is_loop[e] == 0:
        self_v = lit(like, plan.mult_dst[first + 1])
        uv = lit(like, plan.mult_src[first + 1]) + lit(like, plan.mult_dst[first])
    total_u, total_v = sum_u + uv, sum_v + uv
    return Star(e, first, leaf - first - 1, leaf, stop, total_u, total_v, uv, total_u + self_u, total_v + self_v)


@njit(**INLINE)
def step_size(dims: Dims, like: Ptr, degree: Any) -> Any:
    """eta / max(degree, 1)."""
    return lit(like, dims.eta) / max(degree, lit(like, 1.0))


@njit(**INLINE)
def before_round(dims: Dims, plan: Plan, tape: Tape, star: Star, j: int, ell: int) -> Any:
    """Stalk of active entry j before round ell, and the coefficients that lift it."""
    if ell > 0:
        row = (ell - 1) * dims.nA + j
        return at(tape.mid_h, row * dims.d), at(tape.mid_t, row * dims.kr)
    if j < star.leaf:
        row = 2 * star.event + j - star.first
        return at(tape.gru_h, row * dims.d), at(tape.coef, (row * NUM_COEF + GRU) * dims.kr)
    row = plan.act_h[j]
    return at(tape.h, row * dims.d), at(tape.t_h, row * dims.kr)


@njit(**INLINE)
def after_round(dims: Dims, tape: Tape, j: int, ell: int) -> Any:
    """The same after round ell; the last round writes the logs."""
    if ell == dims.rounds - 1:
        return at(tape.h, (dims.n0 + j) * dims.d), at(tape.t_h, (dims.n0 + j) * dims.kr)
    row = ell * dims.nA + j
    return at(tape.mid_h, row * dims.d), at(tape.mid_t, row * dims.kr)


class Edge(NamedTuple):
    """A leaf's edges as one: total weight, the center they lead to, and where the center's sum is kept."""

    weight: Any
    center: Ptr
    total: Ptr


@njit(**INLINE)
def join_edges(a: Any, b: Any, u: Ptr, v: Ptr, sum_u: Ptr, sum_v: Ptr, mixed: Ptr, d: int) -> Edge:
    """A leaf of both endpoints is pulled to their weighted mean (`mixed`, d, and a sum behind it); else to its own."""
    if b == lit(u, 0.0):
        return Edge(a, u, sum_u)
    if a == lit(u, 0.0):
        return Edge(b, v, sum_v)
    for i in range(d):
        mixed[i] = (a * u[i] + b * v[i]) / (a + b)
    clear(at(mixed, d), d)
    return Edge(a + b, mixed, at(mixed, d))


@njit(**INLINE)
def split_sum(a: Any, b: Any, edge: Edge, sum_u: Ptr, sum_v: Ptr, d: int) -> None:
    """Hand a joint edge's sum to both centers."""
    if a != lit(sum_u, 0.0) and b != lit(sum_u, 0.0):
        axpy(a / (a + b), edge.total, sum_u, d)
        axpy(b / (a + b), edge.total, sum_v, d)
