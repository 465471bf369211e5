"""AdamW with a cosine to zero and its own learning rate for the geometry group.

A chunk takes milliseconds, of which an optimizer that visits two dozen small tensors one by one would take a good part.
So the parameters of a group are views of one flat tensor, and their gradients of another.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from tsnn.config import TrainConfig
from tsnn.engine.stack import Stack
from tsnn.model.tsnn import TSNN
from tsnn.transfer import send

_BETAS = (0.9, 0.999)  # these two are PyTorch's own
_EPS = 1e-8
_GEOMETRY = ("updater.frame_in", "updater.frame_out", "updater.theta", "frame_bias", "head.rho_kappa")


def _rates(config: TrainConfig) -> dict[str, float]:
    """Of each group: the geometry (frames, gain, temperature) at mu_geo times the base rate, the head, the rest."""
    factors = {"rest": 1.0, "geometry": config.geometry_lr, "head": config.head_lr if config.warmup else 1.0}
    return {name: config.lr * factor for name, factor in factors.items()}


def _group(parameter: str) -> str:
    if parameter.startswith(_GEOMETRY):
        return "geometry"
    return "head" if parameter.startswith("head.") else "rest"


class FlatAdamW(torch.optim.AdamW):
    """AdamW for one model, its parameters flattened group by group."""

    def __init__(self, model: TSNN, config: TrainConfig) -> None:
        self._clip = config.clip
        self._gradients: list[tuple[torch.nn.Parameter, Tensor]] = []
        settings: list[dict[str, Any]] = []
        for name, rate in _rates(config).items():
            wanted = ((full, parameter) for full, parameter in model.named_parameters() if parameter.requires_grad)
            members = [parameter for full, parameter in wanted if _group(full) == name]
            if members:
                settings.append({"params": [self._flatten(members)], "lr": rate, "base_lr": rate})
        super().__init__(settings, weight_decay=config.weight_decay, fused=True)
        self._flat = [group["params"][0] for group in settings]

    def _flatten(self, parameters: list[torch.nn.Parameter]) -> torch.nn.Parameter:
        whole = torch.nn.Parameter(torch.cat([parameter.detach().reshape(-1) for parameter in parameters]))
        whole.grad = torch.zeros_like(whole)
        start = 0
        for parameter in parameters:
            place = slice(start, start + parameter.numel())
            parameter.data = whole.data[place].view_as(parameter)
            self._gradients.append((parameter, whole.grad[place].view_as(parameter)))
            start = place.stop
        return whole

    def zero_grad(self, set_to_none: bool = False) -> None:
        """Zero the flat gradients, and have the parameters' gradients be views of them."""
        for whole in self._flat:
            assert whole.grad is not None
            whole.grad.zero_()
        for parameter, gradient in self._gradients:
            parameter.grad = gradient

    def clip_and_step(self, factor: float = 1.0) -> None:
        """Bound the norm of all gradients together, then step at each group's own rate times the factor."""
        torch.nn.utils.clip_grad_norm_(self._flat, self._clip, foreach=False)
        for group in self.param_groups:
            group["lr"] = group["base_lr"] * factor
        self.step()


class StackedAdamW:
    """AdamW for the rows of a stack, each with its own rates, decay and bound of its gradient."""

    def __init__(self, stack: Stack, rates: Tensor, configs: list[TrainConfig], *, clip: bool = True) -> None:
        self._stack = stack
        self._rates = rates
        self.steps = 0  # that were taken
        self._decay = rates.new_tensor([[config.weight_decay] for config in configs])
        self._clip = rates.new_tensor([[config.clip] for config in configs]) if clip else None
        self._mean = torch.zeros_like(stack.flat)
        self._square = torch.zeros_like(stack.flat)

    def next_factors(self, factor: float) -> Tensor:
        """Of the next step: what the rates are multiplied by, and how far both averages are from their limit."""
        self.steps += 1
        gaps = [1 - beta**self.steps for beta in _BETAS]
        return send(np.array([factor, *gaps]), self._rates.device).to(self._rates.dtype)

    @torch.no_grad()
    def step(self, factors: Tensor) -> None:
        """One step with the stack's gradients; `factors` are those of `next_factors`."""
        grad = self._stack.grad
        weights = self._stack.flat
        if self._clip is not None:
            # A group at a time, like every product of a stack, so that the last bits of a row depend on no other.
            norms = torch.cat([grad[at].square().sum(1, keepdim=True) for at in self._stack.groups]).sqrt_()
            grad.mul_((self._clip / (norms + 1e-6)).clamp_(max=1.0))
        self._mean.lerp_(grad, 1 - _BETAS[0])
        self._square.mul_(_BETAS[1]).addcmul_(grad, grad, value=1 - _BETAS[1])
        rates = self._rates * factors[0]
        weights.mul_(1 - rates * self._decay)
        spread = self._square.div(factors[2]).sqrt_().add_(_EPS)
        weights.sub_(rates.mul_(self._mean).div_(spread).div_(factors[1]))


def stacked_rates(stack: Stack, configs: list[TrainConfig]) -> Tensor:
    """The rate of every number of every member."""
    rates = torch.empty_like(stack.flat)
    for row, config in zip(rates, configs, strict=True):
        own = _rates(config)
        for name, columns in stack.columns.items():
            row[columns] = own[_group(name)]
    return rates
