"""A stack: models of one shape side by side on one device, each with its own weights and its own states.

Every tensor has a first dimension P. The recurrence gives each model a thread block of its own (`tsnn.engine.cuda`);
scores and losses are products of exactly `GROUP` models at a time, so that no bit of a member's figures depends on the
other members or their number. A stack is filled up with copies of its last member, whose states nobody updates.
"""

from __future__ import annotations

import itertools
from functools import reduce
from operator import getitem
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.utils import parameters_to_vector

from tsnn.config import Config
from tsnn.engine.cuda import GROUP, DevicePlan, cuda_update, groups, teams_for
from tsnn.engine.engine import Scored
from tsnn.engine.layout import Parameters, rows
from tsnn.errors import ConfigError
from tsnn.memory.store import StateStore
from tsnn.memory.versions import Versions
from tsnn.model.geometry import Geometry, compare, rotate
from tsnn.model.head import LAYERS, HeadWeights, ScoreParts, rho, scalars, score
from tsnn.model.losses import LOSSES
from tsnn.model.tsnn import TSNN
from tsnn.plan.chunk import UpdatePlan
from tsnn.transfer import send
from tsnn.types import U64

# What members may differ in; all else decides shapes, the plan, the score, or the course of training.
FREE = {
    *(f"train.{name}" for name in ("seed", "lr", "geometry_lr", "head_lr", "weight_decay", "clip", "patience")),
    *(f"train.loss.{name}" for name in LOSSES),
    *(f"model.{name}" for name in ("kappa", "step_size")),
}
_BUFFERS = ("feature_shift", "feature_scale", "head.geometry_weight")


def in_common(config: Config) -> dict[str, Any]:
    """The settings that all members of a stack have to share."""
    tree = config.model_dump()
    for dotted in FREE:
        *parents, leaf = dotted.split(".")
        del reduce(getitem, parents, tree)[leaf]
    return tree


def check_alike(configs: list[Config]) -> None:
    """Raise unless models of these configurations can be stacked."""
    shapes = [in_common(config) for config in configs]
    if any(shape != shapes[0] for shape in shapes):
        allowed = ", ".join(sorted(FREE))
        raise ConfigError(f"the runs of a population may differ in {allowed} and in nothing else.")
    first = configs[0]
    if first.model.attention or first.features.transported_difference:
        raise ConfigError("a population has no attention and no transported difference; train such runs one by one.")
    if first.model.partners:
        raise ConfigError("a population learns no vectors of partners; set model.partners=false, or train one by one.")
    if first.train.warmup == "search":
        raise ConfigError("a population warms its heads for a number of epochs; give one, such as train.warmup=8.")


class Reads(NamedTuple):
    """What a group's queries read, on the device: rows of the version log and what the data says."""

    src_h: Tensor  # (G, q)
    src_F: Tensor
    cand_h: Tensor  # (G, q, width)
    cand_F: Tensor
    data: Tensor  # (G, q * width, features), standardized
    bank_count: Tensor  # (G, q * width)


class Stack:
    """The weights of all members, as one matrix (P, numbers); parameters and gradients are views of it."""

    def __init__(self, models: list[TSNN], device: torch.device) -> None:
        self.config = models[0].config
        self.num_members = len(models)
        padded = models + [models[-1]] * (-len(models) % GROUP)
        self.flat = torch.stack([parameters_to_vector(model.parameters()).detach() for model in padded]).to(device)
        self.grad = torch.zeros_like(self.flat)
        named = dict(models[0].named_parameters())
        stops = list(itertools.accumulate(parameter.numel() for parameter in named.values()))
        self.columns = {name: slice(*ends) for name, ends in zip(named, itertools.pairwise([0, *stops]), strict=True)}
        self._shapes = {name: parameter.shape for name, parameter in named.items()}
        buffers = [dict(model.named_buffers()) for model in padded]
        self.buffers = {name: torch.stack([own[name].reshape(-1) for own in buffers]).to(device) for name in _BUFFERS}
        self.step_size = torch.tensor([model.config.model.step_size for model in padded], device=device).double()
        self.groups = groups(len(padded))
        recurrence = [f"updater.{name}" for name in rows(Parameters).values()]
        heads = [name for name in named if name not in recurrence]
        self.updater = {name: self._leaf(name, slice(None)) for name in recurrence}
        self.heads = [{name: self._leaf(name, at) for name in heads} for at in self.groups]

    def __len__(self) -> int:
        return len(self.flat)

    def head_gradients(self, loss: Tensor, group: int, *inputs: Tensor) -> tuple[Tensor, ...]:
        """Gradients of the inputs; those of the group's head are kept for the optimizer."""
        head = self.heads[group]
        found = torch.autograd.grad(loss, [*inputs, *head.values()], materialize_grads=True)  # a switch leaves some out
        self._keep(head, found[len(inputs) :], self.groups[group])
        return found[: len(inputs)]

    def updater_gradients(self, versions: Versions, upstream: Versions) -> None:
        """Gradients of every member's updater through the recurrence, kept for the optimizer."""
        found = torch.autograd.grad(versions, list(self.updater.values()), upstream, materialize_grads=True)
        self._keep(self.updater, found, slice(None))

    def _keep(self, leaves: dict[str, Tensor], gradients: tuple[Tensor, ...], members: slice) -> None:
        for name, gradient in zip(leaves, gradients, strict=True):
            self._view(self.grad, name, members).copy_(gradient)

    def _view(self, matrix: Tensor, name: str, members: slice) -> Tensor:
        part = matrix[members, self.columns[name]]
        return part.view(len(part), *(self._shapes[name] or (1,)))

    def _leaf(self, name: str, members: slice) -> Tensor:
        return self._view(self.flat, name, members).requires_grad_()

    def write(self, member: int, model: TSNN) -> None:
        """Give a model the member's present weights."""
        state = model.state_dict()
        rows = {name: self.flat[member, columns] for name, columns in self.columns.items()}
        for name, row in (rows | {name: values[member] for name, values in self.buffers.items()}).items():
            state[name].copy_(row.view_as(state[name]))

    def update(self, plan: DevicePlan, context: Tensor, h0: Tensor, F0: Tensor) -> Versions:
        """The recurrence of a chunk for every member, not for copies; `context` (n, 2, C) is the same for all."""
        weights = Parameters(*self.updater.values())
        gain = torch.nn.functional.softplus(weights.theta.detach())
        eta = torch.minimum(gain.amax(1).double().reciprocal(), self.step_size)
        shared = context.expand(len(self), *context.shape)
        teams = teams_for(self.num_members, self.flat.device)
        own = self.num_members
        return Versions(*cuda_update(plan, self.config.model, eta, shared, h0, F0, weights, members=own, teams=teams))

    def score(self, group: int, h: Tensor, F: Tensor, reads: Reads) -> Scored:
        """Scores (G, q * width) of a group's queries from its version logs (G, rows, ...).

        Only positives, the first of each query, carry gradients to the logs.
        """
        cfg = self.config.model
        member = torch.arange(len(h), device=h.device)[:, None]
        h_src = h[member, reads.src_h]
        q = rotate(F[member, reads.src_F], h_src, cfg).unsqueeze(2)
        h_cand, g = self._candidates(h, F, member[..., None], reads)
        src_norm2 = h_src.square().sum(-1, keepdim=True).expand(h_cand.shape[:-1])
        compared, _ = compare(q, g, src_norm2, h_cand.square().sum(-1))
        geometry = Geometry(*(part.flatten(1) for part in compared))
        return Scored(self.decode(group, geometry, reads.data, reads.bank_count), geometry)

    def _candidates(self, h: Tensor, F: Tensor, member: Tensor, reads: Reads) -> tuple[Tensor, Tensor]:
        """Stalks of the candidates and the same in synchronized coordinates; negatives are constants."""

        def read(which: slice) -> tuple[Tensor, Tensor]:
            stalks = h[member, reads.cand_h[..., which]]
            return stalks, rotate(F[member, reads.cand_F[..., which]], stalks, self.config.model)

        positive = read(slice(0, 1))
        with torch.no_grad():
            negatives = read(slice(1, None))
        return torch.cat([positive[0], negatives[0]], 2), torch.cat([positive[1], negatives[1]], 2)

    def decode(self, group: int, geometry: Geometry, data: Tensor, bank_count: Tensor) -> ScoreParts:
        """psi and the score of every candidate, as `TSNN.decode` makes them."""
        head, cfg = self._head_weights(group), self.config.model
        geometric = head.geometry_weight[..., None] * scalars(geometry, head.rho_kappa, cfg)
        return score(torch.cat([geometric, data], dim=2), bank_count, head, cfg)

    def _head_weights(self, group: int) -> HeadWeights:
        own = self.heads[group]
        layers = tuple((own[f"head.mlp.{i}.weight"], own[f"head.mlp.{i}.bias"]) for i in LAYERS)
        weight = self.buffers["head.geometry_weight"][self.groups[group]]
        temperature = rho(own["head.rho_kappa"], self.config.model.kappa_scale)
        return HeadWeights(weight, temperature, own["head.gate"], own["head.beta"], layers)


class StackedStates:
    """The states of a stack's members: stalks (P, N, d) and frames (P, N, k, d)."""

    def __init__(self, stack: Stack, seeds: list[int], keys: U64) -> None:
        self.stack = stack
        padded = seeds + [seeds[-1]] * (len(stack) - len(seeds))
        sizes, like = stack.config.model, stack.flat
        first = {seed: StateStore(keys, seed, sizes, like.dtype, like.device) for seed in set(seeds)}
        self._first_h, self._first_F = (torch.stack([getattr(first[s], part) for s in padded]) for part in ("h", "F"))
        self.h, self.F = self._first_h.clone(), self._first_F.clone()
        self._next_F = torch.empty_like(self.F)
        self._next_h = torch.empty_like(self.h)

    def reset_state(self) -> None:
        """Forget every event."""
        self.h.copy_(self._first_h)
        self.F.copy_(self._first_F)

    def update(self, plan: UpdatePlan, context: Tensor) -> Versions:
        """The version logs of a chunk; writes nothing."""
        nodes = send(plan.nodes, self.h.device)
        h0, F0 = self.h[:, nodes], self.F[:, nodes]
        if not plan.num_events:
            return Versions(h0, F0, h0.new_zeros(len(h0), 0), h0.new_zeros(len(h0), 0))
        return self.stack.update(DevicePlan.of(plan, self.h.device), context, h0, F0)

    def commit(self, plan: UpdatePlan, versions: Versions) -> None:
        """Write the chunk's last states."""
        nodes, last_h, last_F = (send(rows, self.h.device).long() for rows in (plan.nodes, plan.final_h, plan.final_F))
        self.h[:, nodes] = versions.h[:, last_h]
        self.F[:, nodes] = versions.F[:, last_F]

    def update_all(self, words: Tensor, context: Tensor, capacity: int) -> Versions:
        """The version logs of a chunk in which every node has a row (`whole_table`), differentiable in the weights."""
        plan = DevicePlan(words, len(context), self.h.shape[1], capacity)
        return self.stack.update(plan, context, self.h, self.F)

    def set_aside(self, versions: Versions, last_h: Tensor, last_F: Tensor) -> None:
        """Keep the chunk's last states apart: minibatches of one chunk all start from the states before it."""
        self._next_h.copy_(versions.h.detach()[:, last_h])
        self._next_F.copy_(versions.F.detach()[:, last_F])

    def move_on(self) -> None:
        """The states that were set aside become the present ones."""
        self.h.copy_(self._next_h)
        self.F.copy_(self._next_F)
