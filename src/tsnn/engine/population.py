"""A population: models of one shape side by side on one device, each with its own weights and its own states.

Every tensor has a first dimension P. The recurrence gives each model a thread block of its own (`tsnn.engine.cuda`);
scores and losses are products of `GROUP` models at a time, always of exactly so many: a population is filled up with
copies of its last member, whose states nobody updates. So a member's figures do not depend, to the last bit, on who
else is there, nor on how many.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from tsnn.config import Config
from tsnn.engine.cuda import GROUP, DevicePlan, cuda_update, groups, teams_for
from tsnn.engine.layout import Parameters, rows
from tsnn.errors import ConfigError
from tsnn.memory.frames import initial_frames
from tsnn.memory.versions import Versions
from tsnn.model.decoder import KAPPA_MIN
from tsnn.model.tsnn import TSNN
from tsnn.plan.chunk import UpdatePlan
from tsnn.sheaf.householder import reflect
from tsnn.transfer import send
from tsnn.types import U64

# What members may differ in; all else decides shapes, the plan, or the course of training.
FREE = {
    "train": {"seed", "lr", "geometry_lr", "head_lr", "weight_decay", "clip", "patience", "loss"},
    "model": {"kappa", "step_size"},
    "features": set(),
}
_BUFFERS = ("feature_shift", "feature_scale", "head.geometry_weight")


def check_alike(configs: list[Config]) -> None:
    """Raise unless these configurations can be a population."""
    shapes = [config.model_dump(exclude=FREE) for config in configs]
    if any(shape != shapes[0] for shape in shapes):
        allowed = ", ".join(f"{section}.{name}" for section, names in FREE.items() for name in sorted(names))
        raise ConfigError(f"the runs of a population may differ in {allowed} and in nothing else.")
    first = configs[0]
    if first.model.attention or first.features.transported_difference:
        raise ConfigError("a population has no attention and no transported difference; train such runs one by one.")


class Reads(NamedTuple):
    """What a group's queries read, on the device: rows of the version log and what the data says."""

    src_h: Tensor  # (G, q)
    src_F: Tensor
    cand_h: Tensor  # (G, q, width)
    cand_F: Tensor
    data: Tensor  # (G, q * width, features), standardized
    bank_count: Tensor  # (G, q * width)


class Scores(NamedTuple):
    """Of a group: the score, the inner products and the residual's own score, each (G, q, width)."""

    total: Tensor
    inner: Tensor
    residual: Tensor


class Stack:
    """The weights of all members, as one matrix (P, numbers); parameters and gradients are views of it."""

    def __init__(self, models: list[TSNN], device: torch.device) -> None:
        self.config, self.members = models[0].config, len(models)
        padded = models + [models[-1]] * (-len(models) % GROUP)
        self.flat = torch.stack([_flat(model) for model in padded]).to(device)
        self.grad = torch.zeros_like(self.flat)
        self.names, self._places = [], {}
        start = 0
        for name, parameter in models[0].named_parameters():
            self.names.append(name)
            self._places[name] = (start, parameter.shape)
            start += parameter.numel()
        buffers = [dict(model.named_buffers()) for model in padded]
        self.buffers = {name: torch.stack([own[name] for own in buffers]).to(device) for name in _BUFFERS}
        self.step_size = torch.tensor([model.config.model.step_size for model in padded], device=device).double()
        self.groups = groups(len(padded))
        self._updater = Parameters(*(self._leaf(f"updater.{name}", slice(None)) for name in rows(Parameters).values()))
        heads = [name for name in self.names if not name.startswith("updater.")]
        self.heads = [{name: self._leaf(name, at) for name in heads} for at in self.groups]

    def __len__(self) -> int:
        return len(self.flat)

    def place(self, name: str) -> slice:
        """The columns of a parameter."""
        start, shape = self._places[name]
        return slice(start, start + shape.numel())

    def head_gradients(self, loss: Tensor, group: int, *inputs: Tensor) -> tuple[Tensor, ...]:
        """Gradients of the inputs; those of the group's head are kept for the optimizer."""
        head = self.heads[group]
        found = torch.autograd.grad(loss, [*inputs, *head.values()], materialize_grads=True)  # a switch leaves some out
        self._keep(head, found[len(inputs) :], self.groups[group])
        return found[: len(inputs)]

    def updater_gradients(self, versions: Versions, upstream: Versions) -> None:
        """Gradients of every member's updater through the recurrence, kept for the optimizer."""
        leaves = {f"updater.{name}": leaf for name, leaf in zip(rows(Parameters).values(), self._updater, strict=True)}
        found = torch.autograd.grad(versions, list(leaves.values()), upstream, materialize_grads=True)
        self._keep(leaves, found, slice(None))

    def _keep(self, leaves: dict[str, Tensor], gradients: tuple[Tensor, ...], members: slice) -> None:
        for name, gradient in zip(leaves, gradients, strict=True):
            self._view(self.grad, name, members).copy_(gradient)

    def _view(self, matrix: Tensor, name: str, members: slice) -> Tensor:
        part = matrix[members, self.place(name)]
        return part.view(len(part), *(self._places[name][1] or (1,)))

    def _leaf(self, name: str, members: slice) -> Tensor:
        return self._view(self.flat, name, members).requires_grad_()

    def write(self, member: int, model: TSNN) -> None:
        """Give a model the member's present weights."""
        state = model.state_dict()
        for name, (_, shape) in self._places.items():
            state[name].copy_(self.flat[member, self.place(name)].view(shape))
        for name, values in self.buffers.items():
            state[name].copy_(values[member])

    def update(self, plan: DevicePlan, context: Tensor, h0: Tensor, F0: Tensor) -> Versions:
        """The recurrence of a chunk for every member, not for copies; `context` (n, 2, C) is the same for all."""
        gain = torch.nn.functional.softplus(self._updater.theta.detach())
        eta = torch.minimum(gain.amax(1).double().reciprocal(), self.step_size)
        shared = context.expand(len(self), *context.shape)
        model, teams = self.config.model, teams_for(self.members, self.flat.device)
        log = cuda_update(plan, model, eta, shared, h0, F0, self._updater, members=self.members, teams=teams)
        return Versions(*log)

    def score(self, group: int, h: Tensor, F: Tensor, reads: Reads) -> Scores:
        """Scores of a group's queries from its version logs (G, rows, ...); only positives, first, carry gradients.

        The batched form of `TSNN.candidate_geometry` and `TSNN.decode`.
        """
        cfg, own = self.config.model, torch.arange(len(h), device=h.device)[:, None]
        live = slice(None) if cfg.transport else slice(0)
        h_src, F_src = h[own, reads.src_h], F[own, reads.src_F][..., live, :]
        q = reflect(F_src, h_src, eps=cfg.reflector_eps).unsqueeze(2)
        h_cand, g = self._candidates(h, F, own, reads, live)
        d2, inner = (q - g).square().sum(-1), (q * g).sum(-1)
        src2, dst2 = h_src.square().sum(-1, keepdim=True).expand_as(d2), h_cand.square().sum(-1)
        return self.decode(group, (d2, inner, src2, dst2), reads.data, reads.bank_count)

    def _candidates(self, h: Tensor, F: Tensor, own: Tensor, reads: Reads, live: slice) -> tuple[Tensor, Tensor]:
        """Stalks of the candidates and the same in common coordinates; negatives are constants."""
        eps = self.config.model.reflector_eps
        positive = h[own, reads.cand_h[..., 0]], F[own, reads.cand_F[..., 0]][..., live, :]
        with torch.no_grad():
            third = own[..., None]
            others = h[third, reads.cand_h[..., 1:]], F[third, reads.cand_F[..., 1:]][..., live, :]
            lifted = reflect(others[1], others[0], eps=eps)
        first = reflect(positive[1], positive[0], eps=eps)
        return torch.cat([positive[0][:, :, None], others[0]], 2), torch.cat([first[:, :, None], lifted], 2)

    def decode(self, group: int, geometry: tuple[Tensor, ...], data: Tensor, bank_count: Tensor) -> Scores:
        """psi and the score; `geometry` as in `tsnn.model.decoder.Geometry`, each (G, q, width)."""
        head, at, cfg = self.heads[group], self.groups[group], self.config.model
        d2, inner, src2, dst2 = geometry
        geometric = -d2 / (KAPPA_MIN + torch.nn.functional.softplus(head["head.rho_kappa"])).unsqueeze(2)
        shown = inner
        if cfg.scalars == "bounded":
            shown = inner / torch.sqrt((1 + src2) * (1 + dst2))
            src2, dst2 = torch.log1p(src2), torch.log1p(dst2)
        scalars = torch.stack([geometric, shown, src2, dst2, torch.log1p(d2)], dim=-1).flatten(1, 2)
        weight = self.buffers["head.geometry_weight"][at, None, None]
        psi = torch.cat([weight * scalars, data], dim=2)
        geometric = psi[..., 0]
        residual = self._residual(head, psi) if cfg.residual else torch.zeros_like(geometric)
        total = geometric + residual
        if cfg.edgebank:
            alpha = torch.sigmoid(head["head.gate"])
            total = alpha * total + (1 - alpha) * head["head.beta"] * torch.log1p(bank_count)
        return Scores(total.view_as(d2), inner, residual.view_as(d2))

    @staticmethod
    def _residual(head: dict[str, Tensor], x: Tensor) -> Tensor:
        for layer in (0, 2, 4):
            weight, bias = head[f"head.mlp.{layer}.weight"], head[f"head.mlp.{layer}.bias"]
            x = torch.baddbmm(bias.unsqueeze(1), x, weight.mT)
            x = x if layer == 4 else torch.relu(x)
        return x.squeeze(-1)


def _flat(model: TSNN) -> Tensor:
    return torch.cat([parameter.detach().reshape(-1) for parameter in model.parameters()])


class Population:
    """The stack with the states of its members: stalks (P, N, d) and frames (P, N, k, d)."""

    def __init__(self, stack: Stack, seeds: list[int], keys: U64) -> None:
        self.stack = stack
        k, d = stack.config.model.num_reflectors, stack.config.model.stalk_dim
        padded = seeds + [seeds[-1]] * (len(stack) - len(seeds))
        drawn = {seed: torch.from_numpy(initial_frames(seed, keys, k, d)).to(stack.flat) for seed in set(seeds)}
        self._initial = torch.stack([drawn[seed] for seed in padded])
        self.F, self._next_F = self._initial.clone(), torch.empty_like(self._initial)
        self.h, self._next_h = (torch.zeros_like(self.F[:, :, 0]) for _ in range(2))

    def reset_state(self) -> None:
        """Forget every event."""
        self.h.zero_()
        self.F.copy_(self._initial)

    def update(self, plan: UpdatePlan, context: Tensor) -> Versions:
        """The version logs of a chunk; writes nothing."""
        nodes = send(plan.nodes, self.h.device)
        h0, F0 = self.h[:, nodes], self.F[:, nodes]
        if not plan.num_events:
            return Versions(h0, F0, h0.new_zeros(len(h0), 0), h0.new_zeros(len(h0), 0))
        return self.stack.update(DevicePlan.of(plan, self.h.device), context, h0, F0)

    def commit(self, plan: UpdatePlan, versions: Versions) -> None:
        """Write the chunk's last states."""
        nodes, last_h, last_F = (send(r, self.h.device).long() for r in (plan.nodes, plan.final_h, plan.final_F))
        self.h[:, nodes] = versions.h[:, last_h]
        self.F[:, nodes] = versions.F[:, last_F]

    def update_all(self, words: Tensor, context: Tensor, capacity: int) -> Versions:
        """The version logs of a chunk in which every node has a row (`whole_table`), differentiable in the weights."""
        plan = DevicePlan(words, len(context), self.h.shape[1], capacity)
        return self.stack.update(plan, context, self.h, self.F)

    def propose(self, versions: Versions, last_h: Tensor, last_F: Tensor) -> None:
        """Set the chunk's last states aside: minibatches of one chunk all start from the states before it."""
        self._next_h.copy_(versions.h.detach()[:, last_h])
        self._next_F.copy_(versions.F.detach()[:, last_F])

    def settle(self) -> None:
        """Take the states that were set aside."""
        self.h.copy_(self._next_h)
        self.F.copy_(self._next_F)
