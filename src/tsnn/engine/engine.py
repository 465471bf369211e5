"""Engines: one recurrence and one score, several executions. The one place that picks.

    reference   per-event PyTorch; readable, extensible, the yardstick
    fused       compiled kernels on the host, forward and backward

With `device = "cuda"` the parameters, the score, the losses and the optimizer live on the GPU; store, plan and
recurrence stay on the host, and a chunk's version log travels. Autograd carries the gradients back the same way.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from tsnn.data.events import EventStream
from tsnn.engine import reference
from tsnn.engine.frozen import Frozen
from tsnn.engine.fused import fused_geometry, fused_update
from tsnn.engine.tail import fused_losses, fused_scalars
from tsnn.memory.store import StateStore, take_rows
from tsnn.memory.versions import Versions
from tsnn.model.decoder import KAPPA_MIN, Geometry, ScoreParts
from tsnn.model.losses import Losses, chunk_losses
from tsnn.model.tsnn import TSNN, Compared
from tsnn.plan.chunk import ScorePlan, UpdatePlan
from tsnn.sheaf.diffusion import capped_step


class Scored(NamedTuple):
    """A chunk's scores and the geometry behind them."""

    parts: ScoreParts
    geometry: Geometry


class Engine(Protocol):
    """Runs a chunk's recurrence and compares its candidates; writes nothing."""

    def update(self, model: TSNN, plan: UpdatePlan, context: Tensor, h0: Tensor, F0: Tensor) -> Versions:
        """The version log of the chunk, differentiable."""
        ...

    def compare(
        self,
        model: TSNN,
        versions: Versions,
        plan: ScorePlan,
        trainable: Tensor | None,
        generator: torch.Generator | None,
    ) -> Compared:
        """The geometry of every candidate, differentiable."""
        ...

    def losses(self, *terms: Tensor, width: int, temperature: float) -> Losses:
        """The losses of queries of `width` candidates, positive first; terms as in `chunk_losses`."""
        ...


class ReferenceEngine:
    """Event by event, in plain PyTorch."""

    def update(self, model: TSNN, plan: UpdatePlan, context: Tensor, h0: Tensor, F0: Tensor) -> Versions:
        """See `tsnn.engine.reference`."""
        return reference.update(model, plan, context, h0.to(context), F0.to(context))

    def compare(
        self,
        model: TSNN,
        versions: Versions,
        plan: ScorePlan,
        trainable: Tensor | None,
        generator: torch.Generator | None,
    ) -> Compared:
        """In batched PyTorch, on any device."""
        return model.candidate_geometry(model.source(versions, plan, generator), versions, plan, trainable)

    def losses(self, *terms: Tensor, width: int, temperature: float) -> Losses:
        """In batched PyTorch, on any device."""
        return chunk_losses(*terms, width=width, temperature=temperature)


class FusedEngine(ReferenceEngine):
    """Compiled kernels on the host."""

    def update(self, model: TSNN, plan: UpdatePlan, context: Tensor, h0: Tensor, F0: Tensor) -> Versions:
        """See `tsnn.engine.fused`; without gradients, `tsnn.engine.frozen`."""
        if torch.is_grad_enabled():
            log = fused_update(model.updater, plan, context.cpu(), h0, F0, model.config.model, _step_size(model))
        else:
            log = freeze(model).update(plan, context.cpu(), h0, F0)
        return Versions(*(part.to(context.device) for part in log))

    def compare(
        self,
        model: TSNN,
        versions: Versions,
        plan: ScorePlan,
        trainable: Tensor | None,
        generator: torch.Generator | None,
    ) -> Compared:
        """Compiled where only scalars are needed and the log is on the host, else in PyTorch."""
        config = model.config
        needs_vectors = config.model.attention or config.features.transported_difference
        if needs_vectors or versions.h.device.type != "cpu":
            return super().compare(model, versions, plan, trainable, generator)
        bias = model.relation_bias(plan) if hasattr(model, "frame_bias") else None
        mask = torch.ones(len(plan.cand), dtype=torch.bool) if trainable is None else trainable
        reads = (plan.src_h, plan.src_F, plan.ptr, plan.cand_h, plan.cand_F, mask.numpy())
        scalars = fused_geometry(versions.h, versions.F, bias, *reads, config.model)
        geometry = Geometry(*scalars.unbind(1))
        if config.model.scalars != "bounded":
            return Compared(geometry)
        return Compared(geometry, scalars=fused_scalars(scalars, model.head.rho_kappa, KAPPA_MIN))

    def losses(self, *terms: Tensor, width: int, temperature: float) -> Losses:
        """Compiled where they are on the host."""
        make = fused_losses if terms[0].device.type == "cpu" else chunk_losses
        return make(*terms, width=width, temperature=temperature)


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


def pick_engine(name: str) -> Engine:
    """The engine of that name; `auto` is the fastest that can run here."""
    return ReferenceEngine() if name == "reference" else FusedEngine()


def run_update(model: TSNN, engine: Engine, store: StateStore, plan: UpdatePlan, stream: EventStream) -> Versions:
    """The recurrence from the store's states. Writes nothing: `commit` does."""
    h, F = store.gather(plan.nodes)
    if not plan.num_events:  # many queries of one cut: nothing to run, only states to read
        h, F = h.to(model.device), F.to(model.device)
        return Versions(h, F, h.new_zeros(0), h.new_zeros(0))
    return engine.update(model, plan, model.context(plan, stream), h, F)


def commit(store: StateStore, plan: UpdatePlan, versions: Versions) -> None:
    """Write the chunk's last states to the store (Step 6 of alg:tsnn)."""
    h, F = versions.h.detach().cpu(), versions.F.detach().cpu()
    store.scatter(plan.nodes, take_rows(h, plan.final_h), take_rows(F, plan.final_F))


def score(
    model: TSNN,
    engine: Engine,
    versions: Versions,
    plan: ScorePlan,
    stream: EventStream,
    trainable: Tensor | None = None,
    generator: torch.Generator | None = None,
    data: Tensor | None = None,
) -> Scored:
    """Scores of all candidates of a plan, from the version log alone; `data` are its features if made already."""
    compared = engine.compare(model, versions, plan, trainable, generator)
    return Scored(model.decode(compared, plan, stream, data), compared.geometry)
