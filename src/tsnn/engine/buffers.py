"""Where the fused engine's arrays come from.

A chunk's logs and tapes are tens of megabytes; fresh pages for them would cost as much as the kernels, so the arrays of
a chunk are cut from one block, which goes back to a pool when the last of them is gone. Output tensors are made from
arrays (`torch.from_numpy`), never arrays from outputs: a tape must not keep its own graph alive.
"""

from __future__ import annotations

import itertools
import math
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tsnn.engine.layout import Dims, Shapes, padded, rows, shapes

Table = TypeVar("Table", bound=tuple[Any, ...])
_NUMPY = {torch.float32: np.float32, torch.float64: np.float64}
_ALIGN = 64  # bytes of a cache line and of the widest vector
_MOST_FREE = 8
_free: dict[int, NDArray[np.uint8]] = {}


class _Lease:
    """Holds a block of the pool as long as any array is cut from it."""

    def __init__(self, size: int) -> None:
        fitting = [(block.size, key) for key, block in list(_free.items()) if size <= block.size <= 4 * size]
        taken = _free.pop(min(fitting)[1], None) if fitting else None  # None: another thread was faster
        self.block = np.empty(size + size // 8, np.uint8) if taken is None else taken
        self.__array_interface__ = self.block.__array_interface__

    def __del__(self) -> None:
        _free[id(self.block)] = self.block
        if len(_free) > _MOST_FREE:
            _free.pop(next(iter(list(_free))), None)


def carve(dtype: torch.dtype, wanted: Shapes) -> dict[str, NDArray[Any]]:
    """Aligned arrays of these shapes, with whatever stood in their block."""
    kind = _NUMPY[dtype]
    sizes = [padded(math.prod(shape) * dtype.itemsize, _ALIGN) for shape in wanted.values()]
    block = np.asarray(_Lease(sum(sizes) + _ALIGN))
    starts = itertools.accumulate(sizes, initial=-block.ctypes.data % _ALIGN)
    places = zip(wanted.items(), starts, strict=False)
    return {name: np.ndarray(shape, kind, block, start) for (name, shape), start in places}


def make(
    table: type[Table], dtype: torch.dtype, dims: Dims, given: dict[str, Any] | None = None, **symbols: int
) -> Table:
    """The arrays of a table, but for those that are given; marks (uint8) begin as 0, numbers as anything."""
    arrays = dict(given or {})
    every = shapes(table, "fused", {**dims._asdict(), **symbols})
    wanted = {name: shape for name, shape in every.items() if name not in arrays}
    kinds = rows(table, "fused")
    for name in [name for name in wanted if kinds[name].kind == "uint8"]:
        arrays[name] = np.zeros(wanted.pop(name), np.uint8)
    return table(**arrays, **carve(dtype, wanted))


def array(tensor: Tensor) -> NDArray[Any]:
    """The tensor's numbers, one after the other."""
    return tensor.detach().contiguous().numpy()


def plain(column: NDArray[Any], dtype: Any) -> NDArray[Any]:
    """Contiguous, writable, of this type: any other layout would be another compilation."""
    column = np.ascontiguousarray(column, dtype)
    return column if column.flags.writeable else column.copy()
