"""Node ids that grow: a name heard for the first time becomes the next index."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tsnn.data.events import NodeIds, stable_key
from tsnn.types import I64, U64


class GrowingIds(NodeIds):
    """`NodeIds` with room for newcomers; known ids keep their index."""

    def __init__(self, external: Iterable[Hashable]) -> None:
        super().__init__(external)
        self._buffer: U64 = NodeIds(self.external).keys.copy()

    def add(self, node_id: Hashable) -> int:
        """Index of an id, a new one if it has none."""
        known = self._index.get(node_id)
        if known is not None:
            return known
        index = len(self.external)
        if index == len(self._buffer):
            self._buffer = np.concatenate([self._buffer, np.zeros(max(index, 64), np.uint64)])
        self._buffer[index] = stable_key(node_id)
        plain = NodeIds([node_id]).external[0]
        self.external.append(plain)
        self._index[plain] = index
        return index

    def find(self, node_id: Hashable) -> int | None:
        """Index of an id, or None if it was never heard of."""
        return self._index.get(node_id)

    @property
    def keys(self) -> U64:
        """Stable 64-bit keys, one per node."""
        return self._buffer[: len(self.external)]

    @property
    def integers(self) -> I64 | None:
        """None: a newcomer may be anything."""
        return None

    def indices(self, node_ids: Iterable[Hashable] | NDArray[Any]) -> I64:
        """Dense indices of many external ids."""
        return np.array([self.index(x) for x in node_ids], dtype=np.int64)
