"""Engines: one recurrence and one score, several executions; `pick_engine` chooses.

    reference   per-event PyTorch; readable, extensible, the yardstick
    fused       compiled kernels on the host, forward and backward
    cuda        compiled kernels on the GPU, forward and backward

With `device = "cuda"` the parameters, the score, the losses and the optimizer live on the GPU. Under `fused` the store
and the recurrence stay on the host and a chunk's version log is copied over, its gradients back. Under `cuda` they are
on the GPU too, and only the plan is copied.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from tsnn.data.events import EventStream
from tsnn.engine import reference
from tsnn.engine.cuda import DevicePlan, cuda_update, has_cupy, teams_for
from tsnn.engine.frozen import Frozen
from tsnn.engine.fused import fused_update
from tsnn.engine.geometry import fused_geometry
from tsnn.engine.layout import Parameters
from tsnn.engine.tail import fused_losses, fused_scalars
from tsnn.memory.store import StateStore, take_rows
from tsnn.memory.versions import Versions
from tsnn.model.geometry import Geometry
from tsnn.model.head import ScoreParts
from tsnn.model.losses import chunk_losses
from tsnn.model.tsnn import TSNN, Compared
from tsnn.plan.chunk import ScorePlan, UpdatePlan
from tsnn.sheaf.diffusion import capped_step
from tsnn.types import U64, Bool

Reached = Bool | None  # the candidates that gradients reach; None: all of them
Dropped = torch.Generator | None  # what dropout is drawn from


class Scored(NamedTuple):
    """A chunk's scores and the geometry behind them."""

    parts: ScoreParts
    geometry: Geometry


class Engine:
    """The reference: event by event, in plain PyTorch, on any device. No engine writes to the store; `commit` does."""

    def update(self, model: TSNN, plan: UpdatePlan, context: Tensor, h0: Tensor, F0: Tensor) -> Versions:
        """The version log of the chunk, differentiable; see `tsnn.engine.reference`."""
        return reference.update(model, plan, context, h0.to(context), F0.to(context))

    def compare(self, model: TSNN, versions: Versions, plan: ScorePlan, trainable: Reached, rng: Dropped) -> Compared:
        """The geometry of every candidate, differentiable."""
        return model.candidate_geometry(model.source(versions, plan, rng), versions, plan, trainable)

    def losses(self, *terms: Tensor, width: int, temperature: float) -> Tensor:
        """The losses of queries of `width` candidates, positive first; terms as in `chunk_losses`."""
        return chunk_losses(*terms, width=width, temperature=temperature)


class FusedEngine(Engine):
    """Compiled kernels on the host."""

    def update(self, model: TSNN, plan: UpdatePlan, context: Tensor, h0: Tensor, F0: Tensor) -> Versions:
        """See `tsnn.engine.fused`; without gradients, `tsnn.engine.frozen`."""
        if torch.is_grad_enabled():
            log = fused_update(model.updater, plan, context.cpu(), h0, F0, model.config.model, _step_size(model))
        else:
            log = freeze(model).update(plan, context.cpu(), h0, F0)
        return Versions(*(part.to(context.device) for part in log))

    def compare(self, model: TSNN, versions: Versions, plan: ScorePlan, trainable: Reached, rng: Dropped) -> Compared:
        """Compiled where only scalars are needed and the log is on the host, else in PyTorch."""
        config = model.config
        needs_vectors = config.model.attention or config.features.transported_difference
        if needs_vectors or versions.h.device.type != "cpu":
            return super().compare(model, versions, plan, trainable, rng)
        bias = model.relation_bias(plan) if hasattr(model, "frame_bias") else None
        mask = np.ones(len(plan.cand), bool) if trainable is None else trainable
        reads = (plan.src_h, plan.src_F, plan.ptr, plan.cand_h, plan.cand_F, mask)
        scalars = fused_geometry(versions.h, versions.F, bias, reads, config.model)
        geometry = Geometry(*scalars.unbind(1))
        if config.model.scalars != "bounded":
            return Compared(geometry)
        return Compared(geometry, scalars=fused_scalars(scalars, model.head.weights().rho_kappa))

    def losses(self, *terms: Tensor, width: int, temperature: float) -> Tensor:
        """Compiled where they are on the host."""
        make = fused_losses if terms[0].device.type == "cpu" else chunk_losses
        return make(*terms, width=width, temperature=temperature)


class CudaEngine(Engine):
    """Compiled kernels on the GPU."""

    device = torch.device("cuda")
    cluster = 1  # thread blocks of a team
    teams: int | None = None  # of the stream; None: as many as suit the card

    def update(self, model: TSNN, plan: UpdatePlan, context: Tensor, h0: Tensor, F0: Tensor) -> Versions:
        """See `tsnn.engine.cuda`: a stack of one. What is on the host comes over first."""
        device = self.device
        weights = Parameters(*(weight.to(device)[None] for weight in Parameters.of(model.updater)))
        own, h, F = (part.to(device, context.dtype)[None] for part in (context, h0, F0))
        eta = capped_step(model.config.model.step_size, model.updater.gain()).detach().to(device)[None]
        teams = teams_for(1, device) if self.teams is None else self.teams
        shared = DevicePlan.of(plan, device)
        log = cuda_update(shared, model.config.model, eta, own, h, F, weights, self.cluster, teams=teams)
        return Versions(*(part[0].to(context.device) for part in log))


class ServingEngine(FusedEngine):
    """The fused engine for one model whose weights no longer change."""

    def __init__(self, model: TSNN) -> None:
        self._frozen = freeze(model)

    def update(self, model: TSNN, plan: UpdatePlan, context: Tensor, h0: Tensor, F0: Tensor) -> Versions:
        """Without gradients."""
        return Versions(*self._frozen.update(plan, context, h0, F0))


def freeze(model: TSNN) -> Frozen:
    """The model's recurrence with its present weights."""
    return Frozen(model.updater, model.config.model, _step_size(model))


def _step_size(model: TSNN) -> float:
    return float(capped_step(model.config.model.step_size, model.updater.gain()))


def pick_engine(name: str, device: torch.device) -> Engine:
    """The engine of that name for a model there; `auto` is the fastest here, and `cuda` without a GPU is `fused`."""
    if name == "reference":
        return Engine()
    on_gpu = name != "fused" and device.type == "cuda" and has_cupy()
    return CudaEngine() if on_gpu else FusedEngine()


def make_store(model: TSNN, engine: Engine, keys: U64) -> StateStore:
    """An empty store for the nodes of these keys, where the engine wants it."""
    device = model.device if isinstance(engine, CudaEngine) else torch.device("cpu")
    return StateStore(keys, model.config.train.seed, model.config.model, model.dtype, device)


def run_update(model: TSNN, engine: Engine, store: StateStore, plan: UpdatePlan, stream: EventStream) -> Versions:
    """The recurrence from the store's states. Writes nothing: `commit` does."""
    h, F = store.gather(plan.nodes)
    if not plan.num_events:  # many queries of one cut: nothing to run, only states to read
        none = h.new_zeros(0, device=model.device)
        return Versions(h.to(none), F.to(none), none, none)
    return engine.update(model, plan, model.context(plan, stream), h, F)


def commit(store: StateStore, plan: UpdatePlan, versions: Versions) -> None:
    """Write the chunk's last states to the store (Step 6 of alg:tsnn)."""
    store.scatter(plan.nodes, take_rows(versions.h, plan.final_h), take_rows(versions.F, plan.final_F))


def score(
    model: TSNN,
    engine: Engine,
    versions: Versions,
    plan: ScorePlan,
    stream: EventStream,
    trainable: Reached = None,
    generator: Dropped = None,
    data: Tensor | None = None,
) -> Scored:
    """Scores of all candidates of a plan, from the version log alone; `data` are its features if made already."""
    compared = engine.compare(model, versions, plan, trainable, generator)
    return Scored(model.decode(compared, plan, stream, data), compared.geometry)
