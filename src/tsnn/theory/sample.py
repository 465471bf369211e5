"""Events of a run, taken along its stream with everything the statements speak of: frames, stalks, active graph."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from tsnn.data.events import EventStream
from tsnn.data.queries import Share
from tsnn.evaluation.model import ModelScorer
from tsnn.evaluation.replay import Listener, Replayed, replay
from tsnn.memory.versions import Versions
from tsnn.model.geometry import reflectors, rotate
from tsnn.model.tsnn import TSNN
from tsnn.plan.chunk import UpdatePlan
from tsnn.sheaf.diffusion import capped_step
from tsnn.sheaf.householder import transport
from tsnn.theory.active import ActiveSet
from tsnn.types import I64, Progress, unwatched

WINDOW = 24  # earlier rows that go with an event
MAX_DENSE = 1536  # rows of a dense Laplacian; an event with more drops its last neighbors


@dataclass(frozen=True, eq=False)
class EventSample:
    """One event as the run saw it. Endpoints are source and destination, or one row for a self-loop."""

    row: int
    pre_h: Tensor  # (e, d) stalks and frames of the endpoints before the event, in the run's precision
    pre_F: Tensor  # (e, k, d)
    post_F: Tensor  # (e, k, d)
    carried: Tensor  # (e, d) the run's own stalks in the new frames, in its precision
    partner: Tensor  # (e, d) the other endpoint's, transported
    context: Tensor  # (e, c)
    active: ActiveSet  # before diffusion, in float64
    nodes: I64  # (n,) of the active entries
    written: Tensor  # (n, d) the stalks that the run's engine wrote
    window: I64  # earlier rows, for statements about histories
    window_nodes: I64  # the nodes in them, and their frames now
    window_F: Tensor


def sample_events(
    model: TSNN, stream: EventStream, count: int, progress: Progress = unwatched
) -> tuple[list[EventSample], Tensor]:
    """`count` events spread evenly over the stream, from one replay, and every node's frame after the last of them."""
    scorer = ModelScorer(model, stream)
    sampler = Sampler(scorer, sample_rows(stream.num_events, count))
    replay(scorer, stream, [sampler], progress=progress, text="replaying the stream")
    return sampler.samples, scorer.store.F


def sample_rows(num_events: int, count: int) -> list[int]:
    """Rows spread evenly between the first, which has no past, and the last, after which no node's frame changes."""
    return sorted({int(row) for row in np.linspace(0, num_events - 1, count + 2)[1:-1]} - {0}) or [num_events - 1]


class Sampler(Listener):
    """Keeps all there is to say of the events of some rows; each of them is run as a block of its own."""

    def __init__(self, scorer: ModelScorer, rows: Sequence[int]) -> None:
        self._scorer = scorer
        self._rows = rows
        self.stops = sorted({*rows, *(row + 1 for row in rows)})
        self.samples: list[EventSample] = []

    def hear(self, seen: Replayed, own: Share) -> None:
        """Take the event if it is one of them."""
        if seen.block.update.num_events and seen.block.update.start in self._rows:
            self.samples.append(_take(self._scorer, seen))


@torch.no_grad()
def _take(scorer: ModelScorer, seen: Replayed) -> EventSample:
    """All of the one event of a block; log rows before the event are rows of `plan.nodes`."""
    model = scorer.model
    plan = seen.block.update
    stream = seen.block.stream
    versions: Versions = seen.versions
    ends = 1 if plan.is_loop[0] else 2
    pre_h = torch.stack([versions.h[plan.src_h[0]], versions.h[plan.dst_h[0]]][:ends])
    pre_F = torch.stack([versions.F[plan.src_F[0]], versions.F[plan.dst_F[0]]][:ends])
    post_F = versions.F[len(plan.nodes) :][:ends]
    context = model.context(plan, stream)[0, :ends]
    config = model.config.model
    carried = pre_h
    if config.carry_over:
        carried = rotate(post_F, rotate(pre_F, pre_h, config), config, transpose=True)
    frames = reflectors(post_F, config)
    partner = transport(carried.flip(0), frame_from=frames.flip(0), frame_to=frames, eps=config.reflector_eps)
    active = _active_set(model, plan, versions, _recur(model, carried, partner, context))
    earlier = np.arange(max(plan.start - WINDOW, 0), plan.start, dtype=np.int64)
    there = np.unique(np.concatenate([stream.src[earlier], stream.dst[earlier]]))
    return EventSample(
        plan.start, pre_h, pre_F, post_F, carried, partner, context, active,
        plan.nodes[plan.act_h], versions.h[len(plan.nodes) :], earlier, there, scorer.store.gather(there)[1],
    )  # fmt: skip


def _recur(model: TSNN, carried: Tensor, partner: Tensor, context: Tensor) -> Tensor:
    """The endpoints' stalks after message and recurrence (eq:message, eq:gru_update), in float64."""
    updater = deepcopy(model.updater).double()
    message = updater.message(torch.cat([carried, partner, context], dim=1).double())
    stalks: Tensor = updater.gru(message, carried.double())
    return stalks


def _active_set(model: TSNN, plan: UpdatePlan, versions: Versions, endpoints: Tensor) -> ActiveSet:
    config = model.config.model
    gain = model.updater.gain()
    return ActiveSet(
        h=torch.cat([endpoints, versions.h[plan.act_h[len(endpoints) :]].double()]),
        F=reflectors(versions.F[plan.act_F], config),
        mult_src=torch.from_numpy(plan.mult_src),
        mult_dst=torch.from_numpy(plan.mult_dst),
        is_loop=bool(plan.is_loop[0]),
        gain=gain,
        step_size=float(capped_step(config.step_size, gain)),
        eps=config.reflector_eps,
    )


def fit_dense(active: ActiveSet, limit: int = MAX_DENSE) -> ActiveSet:
    """The same event with only the neighbors whose dense operators fit; a smaller star is an active graph too."""
    keep = max(limit // active.h.shape[-1], 1 if active.is_loop else 2)
    if keep >= len(active.h):
        return active
    per_entry = ("h", "F", "mult_src", "mult_dst")
    return replace(active, **{name: getattr(active, name)[:keep] for name in per_entry})
