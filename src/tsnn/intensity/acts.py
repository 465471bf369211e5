"""What sources did, as a point process: an act is an event as seen from its source.

Whoever acts is an *actor*: a source or, where events have relations, a source in one relation. What it did may move it
to go on, and so may what befell it, events in which it is the destination; of an undirected event either end is a
source. The counts themselves are kept by the plan (`tsnn.plan.observing`).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tsnn.data.events import EventStream
from tsnn.data.queries import relations
from tsnn.data.question import asks
from tsnn.plan.planner import PlanSpec
from tsnn.types import F64, I64, Visibility

SCALES_PER_DECADE = 2
FINEST = 1e-8  # of the span: two times closer than that are as good as one
DENSE = 0.5  # share of possible ticks that have events, from which on time is a clock
MAX_COUNTS = 16  # of an actor, all roles together


class Grid(NamedTuple):
    """Paces at which counts of acts fade: of scale k an event fades by exp(-rate * ratio**k * time), fastest first."""

    scales: int
    roles: int  # 2: what befell an actor counts as well, apart from what it did
    rate: float
    ratio: float
    tick: float = 0.0  # where all events fall on the ticks of a coarse clock, from one to the next; 0: time flows

    @classmethod
    def of(cls, stream: EventStream, visibility: Visibility, rows: int) -> Grid:
        """For the first rows: about two scales a decade, from their smallest positive gap to their span.

        Where no source is ever a destination, as in a table of users and items, there is one role. Where most of the
        ticks that there could be have events, whole sessions or years, nothing can happen in between: then there is a
        decade of scales below one tick, to tell the last one from those before. Rows of one tick that know of each
        other are no such clock.
        """
        roles = 1 if stream.undirected or not np.isin(stream.src[:rows], stream.dst[:rows]).any() else 2
        t = stream.t[:rows]
        gaps = np.diff(t).astype(np.float64)
        gaps = gaps[gaps > 0]
        if not len(gaps):
            return cls(1, roles, 1.0, 1.0)
        span = float(t[-1] - t[0])
        least = max(float(gaps.min()), FINEST * span)
        tick = span / len(gaps) if visibility.kind == "strict" and len(gaps) * least > DENSE * span else 0.0
        least /= 10 if tick else 1
        wanted = round(SCALES_PER_DECADE * np.log10(span / least)) + 1
        scales = int(min(wanted, MAX_COUNTS // roles))
        return cls(scales, roles, 1 / least, (least / span) ** (1 / (scales - 1)) if scales > 1 else 1.0, tick)

    @property
    def rates(self) -> F64:
        """The rate of each scale."""
        return self.rate * np.power(self.ratio, np.arange(self.scales, dtype=np.float64))

    def faded(self, horizon: float) -> F64:
        """The integral of what is `rate` now and fades, of each scale, until the horizon; on a clock over its ticks."""
        rates, tick = self.rates, self.tick
        if not tick:
            flowing: F64 = -np.expm1(-rates * horizon)
            return flowing
        ticks = np.floor(horizon / tick)
        summed: F64 = rates * tick * np.exp(-rates * tick) * np.expm1(-rates * ticks * tick) / np.expm1(-rates * tick)
        return summed

    def counted(self, spec: PlanSpec) -> PlanSpec:
        """The same plan, which counts acts as well."""
        return spec._replace(act_scales=self.scales, act_roles=self.roles, act_rate=self.rate, act_ratio=self.ratio)


class Acts(NamedTuple):
    """The first rows of a stream as what actors did and what befell them, on a clock that starts with the first row.

    One entry for each, in order of rows.
    """

    actor: I64  # dense numbers
    role: I64  # 0: it did this; 1: it befell it
    t: F64
    known: I64  # how many of the entries one may know of who asks about this one
    seen_from: F64  # the time from which others may know of this one
    end: float  # until when nothing else happened

    @classmethod
    def of(cls, stream: EventStream, visibility: Visibility, cuts: I64, rows: int, roles: int) -> Acts:
        """Those of the first `rows`; `cuts` says for each row how many rows it may know of."""
        own = asks(stream, np.arange(rows))
        kind = relations(stream, own.rows)
        if roles == 1:
            at, node, role = own.rows, own.src, np.zeros(len(own.rows), np.int64)
        else:
            at, node, role = (
                np.repeat(own.rows, 2),
                np.column_stack([own.src, own.dst]).ravel(),
                np.arange(2 * rows) % 2,
            )
            kind = np.repeat(kind, 2)
            once = (role == 0) | (node != stream.src[at])
            at, node, role, kind = at[once], node[once], role[once], kind[once]
        actor = np.unique(node * max(stream.num_relations, 1) + kind, return_inverse=True)[1].astype(np.int64)
        t = (stream.t[at] - stream.t[0]).astype(np.float64)
        end = float(t[-1]) if rows else 0.0
        known = np.searchsorted(at, cuts[at]).astype(np.int64)
        seen_from = t
        if visibility.kind == "batch":  # a batch is known of once the next begins
            seen_from = np.append(t, end)[np.searchsorted(known, np.arange(len(t)), side="right")]
        return cls(actor, role, t, known, seen_from, end)

    @property
    def burst(self) -> float:
        """How many things an actor does at one time, where it does any."""
        did = self.role == 0
        times = len(np.unique(np.column_stack([self.actor[did], self.t[did]]), axis=0))
        return float(did.sum() / times) if times else 1.0
