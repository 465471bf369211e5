"""AdamW with a cosine to zero and its own learning rate for the geometry group.

A chunk takes milliseconds, and an optimizer that visits two dozen small tensors one by one takes a good part of one. So
the parameters of a group are views of one flat tensor, their gradients of another: clipping and stepping are a few
calls, however many parameters there are.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from tsnn.config import TrainConfig
from tsnn.model.tsnn import TSNN

_GEOMETRY = ("updater.frame_in", "updater.frame_out", "updater.theta", "frame_bias", "head.rho_kappa")


def make_optimizer(model: TSNN, config: TrainConfig) -> FlatAdamW:
    """Three groups: the geometry (frames, gain, temperature) at mu_geo times the base rate, the head, the rest."""
    rates = {"rest": 1.0, "geometry": config.geometry_lr, "head": config.head_lr if config.warmup else 1.0}
    members: dict[str, list[torch.nn.Parameter]] = {name: [] for name in rates}
    for name, parameter in model.named_parameters():
        group = "geometry" if name.startswith(_GEOMETRY) else "head" if name.startswith("head.") else "rest"
        members[group].append(parameter)
    groups = [(members[name], config.lr * rate) for name, rate in rates.items()]
    return FlatAdamW(groups, weight_decay=config.weight_decay, clip=config.clip)


class FlatAdamW(torch.optim.AdamW):
    """AdamW over groups of parameters and their learning rates, each group flattened."""

    def __init__(
        self, groups: list[tuple[list[torch.nn.Parameter], float]], *, weight_decay: float, clip: float
    ) -> None:
        self._clip = clip
        self._gradients: list[tuple[torch.nn.Parameter, Tensor]] = []
        flat = [self._flatten(parameters) for parameters, _ in groups if parameters]
        rates = [rate for parameters, rate in groups if parameters]
        settings = [{"params": [whole], "lr": rate, "base_lr": rate} for whole, rate in zip(flat, rates, strict=True)]
        super().__init__(settings, weight_decay=weight_decay, fused=True)
        self._flat = flat

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

    def clip_and_step(self) -> None:
        """Bound the norm of all gradients together, then step."""
        torch.nn.utils.clip_grad_norm_(self._flat, self._clip, foreach=False)
        self.step()


def set_rate(optimizer: torch.optim.Optimizer, step: int, total: int) -> None:
    """Cosine decay: the rate is a function of the step alone, so a resumed run needs no scheduler state."""
    factor = 0.5 * (1.0 + math.cos(math.pi * min(step / max(total, 1), 1.0)))
    for group in optimizer.param_groups:
        group["lr"] = group["base_lr"] * factor
