"""Whom to score when nobody was named: every candidate of the run's question, or a shortlist of them.

The shortlist takes from indexes whoever the source has a history with, straight or through others: all of them, or of
a hub's thousands those with most of it; and of the rest the best by what is cheap to have for all: distance in
synchronized coordinates, recency, popularity.
"""

from __future__ import annotations

import math

import numpy as np
import torch

from tsnn.data.question import Question
from tsnn.online.active import largest
from tsnn.online.standpoint import Standpoint
from tsnn.plan.query_facts import TWO_HOP_CAP, shared_events
from tsnn.plan.tables import Tables
from tsnn.types import F64, I64, Bool

RELATED = 1024  # with a history of their own with the source
NEAREST = 256  # by distance, and as many by inner product


def eligible(standpoint: Standpoint, question: Question) -> I64:
    """All that the question ranks, as of the moment of the standpoint."""
    nodes: I64 = np.flatnonzero(_may_answer(standpoint, question))
    return nodes


def _may_answer(standpoint: Standpoint, question: Question) -> Bool:
    state = standpoint.state
    in_degree = standpoint.moment.counters.tables.in_degree[: len(state.ids)]
    return question.may_answer(in_degree, state.node_type)


@torch.no_grad()
def shortlist(standpoint: Standpoint, question: Question) -> I64:
    """Candidates worth an exact score."""
    state, moment = standpoint.state, standpoint.moment
    may = _may_answer(standpoint, question)
    active = state.active[moment.settled].lists(moment.counters.tables, len(state.ids))
    few: I64 = np.unique(np.concatenate([*_related(standpoint), *_nearest(standpoint, may), *active]))
    return few[may[few]]


def _related(standpoint: Standpoint) -> list[I64]:
    """Partners, what tends to follow the last destinations, and the neighbors of neighbors."""
    tables, u = standpoint.moment.counters.tables, standpoint.src
    if u >= len(standpoint.state.ids):
        return []
    size = tables.ring_id.shape[1]
    first = _neighbors(tables, np.array([u]), size)
    second = _neighbors(tables, first, TWO_HOP_CAP)
    return [_closest(tables, u, standpoint.related), _neighbors(tables, first, size), _neighbors(tables, second, size)]


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


def _nearest(standpoint: Standpoint, may: Bool) -> list[I64]:
    """Smallest distance and largest inner product in synchronized coordinates, of those that may be the answer."""
    store, q = standpoint.state.store, standpoint.q
    g, norm2 = store.synchronized(slice(0, len(may)), settled=False)
    inner = torch.mv(g, q[0])
    distance = norm2 - 2 * inner  # |q - g|^2 but for |q|^2, since |g| = |h|
    if standpoint.moment.settled:  # a settled copy of all coordinates would cost more than the rest: few rows differ
        nodes, g, norm2 = store.settled_apart()
        inner[nodes] = (g @ q.T).squeeze(1)
        distance[nodes] = norm2 - 2 * inner[nodes]
    if not may.all():
        others = torch.from_numpy(~may)
        inner.masked_fill_(others, -math.inf)
        distance.masked_fill_(others, math.inf)
    return [largest(-distance, NEAREST), largest(inner, NEAREST)]


def best_places(scores: F64, k: int) -> I64:
    """Positions of the k largest, largest first; equal scores in the order they came."""
    if k < len(scores):
        threshold = np.partition(scores, len(scores) - k)[len(scores) - k]
        few = np.flatnonzero(scores >= threshold)
    else:
        few = np.arange(len(scores))
    best: I64 = few[np.argsort(-scores[few], kind="stable")][:k]
    return best
