"""The one place that picks an engine, and the score that every engine shares."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from tsnn.data.events import EventStream
from tsnn.engine import reference
from tsnn.engine.fused import fused_update
from tsnn.memory.store import StateStore
from tsnn.memory.versions import Versions
from tsnn.model.decoder import Geometry, ScoreParts
from tsnn.model.tsnn import TSNN
from tsnn.plan.chunk import ScorePlan, UpdatePlan
from tsnn.sheaf.diffusion import capped_step


class Engine(Protocol):
    """Runs a chunk's recurrence."""

    def __call__(self, model: TSNN, plan: UpdatePlan, context: Tensor, h0: Tensor, F0: Tensor) -> Versions:
        """The version log of the chunk, differentiable."""
        ...


class Scored(NamedTuple):
    """A chunk's scores and the geometry behind them."""

    parts: ScoreParts
    geometry: Geometry


def pick_engine(name: str) -> Engine:
    """The engine of that name; `auto` is the fastest that can run here."""
    return reference.update if name == "reference" else _fused_update


def _fused_update(model: TSNN, plan: UpdatePlan, context: Tensor, h0: Tensor, F0: Tensor) -> Versions:
    config = model.config.model
    eta = float(capped_step(config.step_size, model.updater.gain()))
    return Versions(*fused_update(model.updater, plan, context, h0, F0, config, eta))


def run_update(model: TSNN, engine: Engine, store: StateStore, plan: UpdatePlan, stream: EventStream) -> Versions:
    """The recurrence from the store's states. Writes nothing: `commit` does."""
    h, F = store.gather(plan.nodes)
    if not plan.num_events:  # many queries of one cut: nothing to run, only states to read
        return Versions(h, F, h.new_zeros(0), h.new_zeros(0))
    return engine(model, plan, model.context(plan, stream), h, F)


def commit(store: StateStore, plan: UpdatePlan, versions: Versions) -> None:
    """Write the chunk's last states to the store (Step 6 of alg:tsnn)."""
    with torch.no_grad():
        store.scatter(plan.nodes, versions.h[plan.final_h], versions.F[plan.final_F])


def score(
    model: TSNN,
    versions: Versions,
    plan: ScorePlan,
    stream: EventStream,
    trainable: Tensor | None = None,
    generator: torch.Generator | None = None,
) -> Scored:
    """Scores of all candidates of a plan, from the version log alone."""
    source = model.source(versions, plan, generator)
    geometry, difference = model.candidate_geometry(source, versions, plan, trainable)
    return Scored(model.decode(geometry, plan, stream, source, difference), geometry)
