"""Who is due: the sources, and the pairs, most likely to act before a horizon.

The intensity is integrated as it fades, as if nothing new happened until then. A pair expects its source's events times
its share of them, the softmax of the model's scores over all whom the question ranks.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Hashable
from dataclasses import dataclass
from itertools import count
from typing import Any

import numpy as np

from tsnn.data.question import Question
from tsnn.intensity.everyone import expected_of_all
from tsnn.intensity.intensity import Intensity
from tsnn.online.event import Relation, Time
from tsnn.online.live import LiveState
from tsnn.online.retrieve import best_places, eligible
from tsnn.online.standpoint import score_candidates, stand
from tsnn.tabular import Brief, Rows
from tsnn.types import F64, I64


@dataclass(frozen=True)
class Due:
    """A source with the events that it is expected to begin, and the probability that it begins any."""

    src: Hashable
    expected: float
    probability: float


@dataclass(frozen=True)
class DuePair:
    """A pair with the events that are expected of it, and the probability of any; the relation where there are some.

    A source that begins several events at once does so with several others, so those of a pair come one by one.
    """

    src: Hashable
    dst: Hashable
    edge_type: Relation | None
    expected: float
    probability: float


@dataclass(frozen=True, repr=False)
class Forecast(Brief):
    """What is likely to happen from a time on until a horizon, most likely first."""

    t: Time | str
    within: float  # in the unit of the data, of dates in microseconds
    sources: Rows[Due]
    pairs: Rows[DuePair]
    expected: float  # events of all known sources together
    newcomers: float  # events of sources that never acted before: who they will be is not known

    def brief(self) -> dict[str, object]:
        """From when, how far, and how much is expected."""
        return {"t": self.t, "within": self.within, "expected": self.expected, "newcomers": self.newcomers}


class Outlook:
    """What is expected of everybody from a time on."""

    def __init__(self, state: LiveState, intensity: Intensity, t: Any, horizon: float) -> None:
        self.state, self.intensity, self.t = state, intensity, t
        clock = float(t - state.origin)
        self.src, self.relation, self.expected = expected_of_all(
            state.moment(t).counters.tables, intensity, clock, horizon
        )

    def sources(self, top: int) -> Rows[Due]:
        """The sources that most is expected of, over all their relations."""
        totals = np.zeros(len(self.state.ids))
        np.add.at(totals, self.src, self.expected)
        external = self.state.ids.external
        best = ((external[u], float(totals[u])) for u in best_places(totals, top).tolist() if totals[u] > 0)
        return Rows((Due(name, value, float(self.intensity.probability(value))) for name, value in best), Due)

    def pairs(self, top: int, question: Question) -> list[tuple[int, int, int, float]]:
        """Source, destination, relation and expected events of the best pairs, exactly, though few are scored.

        No pair expects more than its actor does. So actors are looked into in the order of what is expected of them,
        until the next could not bring a better pair than those that were found.
        """
        found: list[tuple[float, int, tuple[int, int, int]]] = []
        order, late = np.argsort(-self.expected, kind="stable").tolist(), count()
        for actor in order:
            bound = float(self.expected[actor])
            if bound <= 0 or (len(found) == top and found[0][0] >= bound):
                break
            u, relation = int(self.src[actor]), int(self.relation[actor])
            cand, share = shares(self.state, u, self.t, relation, question)
            for i in best_places(share, top).tolist():
                entry = (bound * float(share[i]), -next(late), (u, int(cand[i]), relation))
                if len(found) < top:
                    heapq.heappush(found, entry)
                elif entry > found[0]:
                    heapq.heapreplace(found, entry)
        return [(*pair, value) for value, _, pair in sorted(found, reverse=True)]


def shares(state: LiveState, u: int, t: Any, relation: int, question: Question) -> tuple[I64, F64]:
    """Whom the question ranks for a known source, and each one's share of its next event."""
    standpoint, _ = stand(state, state.ids.external[u], [], t, relation)
    cand = eligible(standpoint, question)
    scores = score_candidates(standpoint, cand)
    keep = (cand != u) | scores.seen
    cand, worth = cand[keep], scores.total[keep]
    odds = np.exp(worth - worth.max(initial=-math.inf)) if len(worth) else worth
    share: F64 = odds / max(float(odds.sum()), 1e-300)
    return cand, share
