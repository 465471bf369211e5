"""The most active nodes of a moment. They are the same for every source, so they are kept until the next event."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from tsnn.plan.tables import Tables
from tsnn.types import I64

ACTIVE = 256  # by each kind of activity
RUN = 32  # values that are looked at together
MOST_TOUCHED = 4096  # once events have touched more nodes, to go through all nodes again costs no more


class ActiveNodes:
    """The nodes last seen, last a destination, and most often a destination.

    All three values only ever grow, and only for the ends of an event. So the next lists are found among the present
    ones and the nodes that events have touched since.
    """

    def __init__(self) -> None:
        self._lists: list[I64] = []
        self._touched: list[I64] = []

    def touch(self, *nodes: I64) -> None:
        """Note the ends of events."""
        if not self._lists:
            return
        self._touched += nodes
        if sum(map(len, self._touched)) > MOST_TOUCHED:
            self._lists = []
            self._touched = []

    def lists(self, tables: Tables, num_nodes: int) -> list[I64]:
        """The nodes, by kind of activity."""
        columns = (tables.last_t, tables.last_in_row, tables.in_degree)
        if not self._lists:
            self._lists = [largest(torch.from_numpy(column[:num_nodes]), ACTIVE) for column in columns]
        elif self._touched:
            touched = np.concatenate(self._touched)
            among = [np.union1d(nodes, touched) for nodes in self._lists]
            self._lists = [
                nodes[largest(torch.from_numpy(column[nodes]), ACTIVE)]
                for column, nodes in zip(columns, among, strict=True)
            ]
        self._touched = []
        return self._lists


def largest(values: Tensor, count: int) -> I64:
    """Positions of the `count` largest values.

    Many values are first cut into runs: the largest lie in the `count` runs with the largest maxima, which are found in
    half the time.
    """
    runs = len(values) // RUN
    if runs <= count:
        return torch.topk(values, min(count, len(values)), sorted=False).indices.numpy()
    best = torch.topk(values[: runs * RUN].view(runs, RUN).amax(1), count, sorted=False).indices
    among = torch.cat([(best[:, None] * RUN + torch.arange(RUN)).view(-1), torch.arange(runs * RUN, len(values))])
    return among[torch.topk(values[among], count, sorted=False).indices].numpy()
