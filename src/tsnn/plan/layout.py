"""Arrays said once: a class lists them, and each annotation holds dtype, shape and first value.

    ring_id: Annotated[I32, shaped("node", "ring")]
    last_t: Annotated[F64, shaped("node", fill=-np.inf)]

`columns` reads such a class, a NamedTuple or a dataclass; an axis is a number, or a name whose size is known later.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, NamedTuple, get_args, get_origin, get_type_hints

import numpy as np
from numpy.typing import NDArray


class Column(NamedTuple):
    """An array of a class, not yet made."""

    dtype: type[np.generic]
    axes: tuple[str | int, ...]
    fill: float

    def make(self, sizes: Mapping[str, int]) -> NDArray[Any]:
        """The array as it is at first."""
        shape = tuple([axis if isinstance(axis, int) else sizes[axis] for axis in self.axes])
        return np.full(shape, self.fill, self.dtype) if self.fill else np.zeros(shape, self.dtype)


def shaped(*axes: str | int, fill: float = 0) -> tuple[tuple[str | int, ...], float]:
    """What an annotation says of an array beside its dtype: its axes, and what it holds at first."""
    return axes, fill


def columns(table: type) -> dict[str, Column]:
    """Every annotated array of a class, in order."""
    found = {}
    for name, hint in get_type_hints(table, include_extras=True).items():
        if get_origin(hint) is Annotated:
            array, (axes, fill) = get_args(hint)
            last = get_args(array)[-1]  # NDArray[X] holds dtype[X] up to NumPy 2.4, X itself from 2.5 on
            found[name] = Column((get_args(last) or (last,))[0], axes, fill)
    return found
