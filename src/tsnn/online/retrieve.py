"""Whom to score when nobody was named: everybody, or a shortlist.

The shortlist takes from indexes whoever the source has a history with, straight or through others: all of them, or of
a hub's thousands those with most of it; and of the rest the best by what is cheap to have for all: distance in
synchronized coordinates, recency, popularity.
"""

from __future__ import annotations

import numpy as np
import torch

from tsnn.online.active import largest
from tsnn.online.asking import Question
from tsnn.plan.kernels import TWO_HOP_CAP, Tables, shared_events
from tsnn.types import I64, Bool

RELATED = 1024  # with a history of their own with the source
NEAREST = 256  # by distance, and as many by inner product


def everybody(question: Question) -> I64:
    """All known nodes; where the run has node types, those of a type that has been a destination."""
    reachable = _reachable(question)
    everybody = np.arange(len(question.state.ids))
    return everybody if reachable is None else everybody[reachable]


def _reachable(question: Question) -> Bool | None:
    types = question.state.node_type
    if types is None:
        return None
    in_degree = question.moment.counters.tables.in_degree[: len(types)]
    mask: Bool = np.isin(types, np.unique(types[in_degree > 0]))
    return mask


@torch.no_grad()
def shortlist(question: Question) -> I64:
    """Candidates worth an exact score."""
    tables, active = question.moment.counters.tables, question.state.active[question.moment.settled]
    lists = [*_related(question), *_nearest(question), *active.lists(tables, len(question.state.ids))]
    few = np.unique(np.concatenate(lists))
    reachable = _reachable(question)
    return few if reachable is None else few[reachable[few]]


def _related(question: Question) -> list[I64]:
    """Partners, what tends to follow the last destinations, and the neighbors of neighbors."""
    state, u, tables = question.state, question.src, question.moment.counters.tables
    if u >= len(state.ids):
        return []
    size = tables.ring_id.shape[1]
    first = _neighbors(tables, np.array([u]), size)
    second = _neighbors(tables, first, TWO_HOP_CAP)
    return [_closest(tables, u, question.related), _neighbors(tables, first, size), _neighbors(tables, second, size)]


def _closest(tables: Tables, u: int, related: I64) -> I64:
    """Those with most events between them and the source, or straight after the source's last destinations."""
    if len(related) <= RELATED:
        return related
    events = np.empty(len(related), np.int64)
    shared_events(tables, u, related, events)
    return related[largest(torch.from_numpy(events), RELATED)]


def _neighbors(tables: Tables, nodes: I64, recent: int) -> I64:
    """The most recent neighbors of these nodes, each once."""
    size = tables.ring_id.shape[1]
    back, length = np.arange(min(recent, size)), tables.ring_len[nodes][:, None]
    found = tables.ring_id[nodes[:, None], (length - 1 - back) % size]
    return np.unique(found[back < length]).astype(np.int64)


def _nearest(question: Question) -> list[I64]:
    """Smallest distance and largest inner product in synchronized coordinates."""
    store = question.state.store
    g, norm2 = store.synchronized(slice(0, len(question.state.ids)), settled=False)
    inner = torch.mv(g, question.q[0])
    distance = norm2 - 2 * inner  # |q - g|^2 but for |q|^2, since |g| = |h|
    if question.moment.settled:  # patched here: a settled copy of everybody's coordinates would cost more than all else
        nodes, g, norm2 = store.settled_apart()
        inner[nodes] = (g @ question.q.T).squeeze(1)
        distance[nodes] = norm2 - 2 * inner[nodes]
    return [largest(-distance, NEAREST), largest(inner, NEAREST)]
