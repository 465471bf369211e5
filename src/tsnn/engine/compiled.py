"""Whether the kernels have been compiled on this machine before."""

from __future__ import annotations

from tsnn.engine.backward import backward
from tsnn.engine.forward import forward
from tsnn.kernel_cache import is_cached
from tsnn.plan.sweep import sweep

NOTICE = "compiling the kernels for this machine, once: about a minute"


def is_compiled() -> bool:
    """True if the cache holds the sweep of the plan and the recurrence; a first use takes about a minute more."""
    return all(is_cached(kernel) for kernel in (sweep, forward, backward))
