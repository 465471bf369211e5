"""Plain loops over the numbers of a vector."""

from __future__ import annotations

from typing import Any

from numba import njit

from tsnn.engine.pointers import INLINE, Ptr, at, lit, prefetch_line


@njit(**INLINE)
def dot(a: Ptr, b: Ptr, n: int) -> Any:
    """Inner product."""
    s = lit(a, 0.0)
    for i in range(n):
        s += a[i] * b[i]
    return s


@njit(**INLINE)
def copy(a: Ptr, out: Ptr, n: int) -> None:
    """out = a."""
    for i in range(n):
        out[i] = a[i]


@njit(**INLINE)
def clear(out: Ptr, n: int) -> None:
    """out = 0."""
    zero = lit(out, 0.0)
    for i in range(n):
        out[i] = zero


@njit(**INLINE)
def add(a: Ptr, out: Ptr, n: int) -> None:
    """out += a."""
    for i in range(n):
        out[i] += a[i]


@njit(**INLINE)
def axpy(c: Any, a: Ptr, out: Ptr, n: int) -> None:
    """out += c a."""
    for i in range(n):
        out[i] += c * a[i]


@njit(**INLINE)
def relu(a: Ptr, n: int) -> None:
    """a = max(a, 0)."""
    zero = lit(a, 0.0)
    for i in range(n):
        a[i] = zero if a[i] < zero else a[i]  # keeps a NaN, as `max` would not


@njit(**INLINE)
def relu_adjoint(a: Ptr, g: Ptr, n: int) -> None:
    """g = g where a > 0, else 0."""
    zero = lit(a, 0.0)
    for i in range(n):
        g[i] = g[i] if a[i] > zero else zero


@njit(**INLINE)
def prefetch(a: Ptr, n: int, lanes: int) -> None:
    """Ask for a row."""
    for i in range(0, n, lanes):
        prefetch_line(at(a, i))
