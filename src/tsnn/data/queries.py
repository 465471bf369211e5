"""Queries: what is to be scored, and the cut that says from which rows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tsnn.types import I64


@dataclass(frozen=True)
class Queries:
    """One query per row: source, time, relation, a cut, and candidates in CSR form.

    Query q asks for scores of `cand[ptr[q]:ptr[q+1]]` as destinations of `src[q]` at time `t[q]`, from
    the first `cut[q]` rows of the stream and nothing else. Queries are sorted by `cut`.
    """

    cut: I64
    src: I64
    t: NDArray[np.generic]
    edge_type: I64  # zeros where the stream has no relations
    ptr: I64
    cand: I64

    def __len__(self) -> int:
        return len(self.cut)

    def slice(self, start: int, stop: int) -> Queries:
        """Queries start..stop-1."""
        a, b = self.ptr[start], self.ptr[stop]
        return Queries(
            self.cut[start:stop],
            self.src[start:stop],
            self.t[start:stop],
            self.edge_type[start:stop],
            self.ptr[start : stop + 1] - a,
            self.cand[a:b],
        )


_NONE = np.zeros(0, np.int64)
NO_QUERIES = Queries(_NONE, _NONE, np.zeros(0), _NONE, np.zeros(1, np.int64), _NONE)
