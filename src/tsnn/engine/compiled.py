"""Whether the kernels have been compiled on this machine before."""

from __future__ import annotations

from pathlib import Path

from tsnn.engine import kernels as engine_kernels
from tsnn.plan import kernels as plan_kernels

NOTICE = "compiling the kernels for this machine, once: about a minute"


def is_compiled() -> bool:
    """True if numba's cache holds the sweep of the plan and the recurrence; a first use takes about a minute more."""
    return all(_cached(kernel) for kernel in (plan_kernels.sweep, engine_kernels.forward, engine_kernels.backward))


def _cached(kernel: object) -> bool:
    folder = Path(kernel._cache.cache_path)  # type: ignore[attr-defined]
    name = kernel.py_func.__qualname__  # type: ignore[attr-defined]
    return any(folder.glob(f"kernels.{name}-*.nbi"))
