"""Who has met whom, listed by node; the counters know the same by pair only."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

import numpy as np
from numpy.typing import NDArray

from tsnn.plan.tables import EMPTY, Tables
from tsnn.types import I64

_LINKS = ("pair_key", "succ_key")


class Links:
    """Which nodes follow which: a sorted table of keys (a << 32 | b), and what was added since."""

    def __init__(self, keys: I64) -> None:
        self._keys = keys
        self._added: defaultdict[int, set[int]] = defaultdict(set)

    def add(self, a: int, b: int) -> None:
        """Note a link."""
        self._added[a].add(b)

    def after(self, a: int) -> I64:
        """Every b linked from a."""
        first, last = np.searchsorted(self._keys, [a << 32, (a + 1) << 32])
        known = self._keys[first:last] & 0xFFFFFFFF
        added = self._added.get(a)
        return known if added is None else np.union1d(known, np.fromiter(added, np.int64, len(added)))


class History:
    """Destinations of every source, sources of every destination, and moves from one destination to the next."""

    def __init__(self, saved: Mapping[str, NDArray[np.generic]], undirected: bool = False) -> None:
        self._undirected = undirected
        pairs = saved["pair_key"].astype(np.int64)
        self.destinations = Links(pairs)
        self.sources = Links(np.sort((pairs << 32) | (pairs >> 32)))
        self.moves = Links(saved["succ_key"].astype(np.int64))

    @classmethod
    def of(cls, tables: Tables, undirected: bool = False) -> History:
        """All that is in the tables."""
        links = {name: np.sort(keys[keys != EMPTY]) for name in _LINKS for keys in [getattr(tables, name)]}
        return cls(links, undirected)

    def observe(self, src: I64, dst: I64, tables: Tables) -> None:
        """Note events about to be counted in `tables`."""
        last: dict[int, int] = {}
        visits: Iterable[tuple[int, int]] = zip(src.tolist(), dst.tolist(), strict=True)
        if self._undirected:  # of either end to the other
            visits = (visit for u, v in visits for visit in dict.fromkeys([(u, v), (v, u)]))
        for u, v in visits:
            known = int(tables.last_dst[u, 0]) if u < len(tables.last_dst) else -1
            previous = last.get(u, known)
            if previous >= 0:
                self.moves.add(previous, v)
            last[u] = v
            self.destinations.add(u, v)
            self.sources.add(v, u)

    def related(self, node: int, last: list[int]) -> I64:
        """Whoever met the node, and whoever followed one of these destinations."""
        lists = [self.destinations.after(node), self.sources.after(node), *(self.moves.after(p) for p in last)]
        return np.unique(np.concatenate(lists))
