"""AdamW with a cosine to zero and its own learning rate for the geometry group."""

from __future__ import annotations

import math

import torch

from tsnn.config import TrainConfig
from tsnn.model.tsnn import TSNN

_GEOMETRY = ("updater.frame_in", "updater.frame_out", "updater.theta", "frame_bias", "head.rho_kappa")


def make_optimizer(model: TSNN, config: TrainConfig) -> torch.optim.AdamW:
    """Two groups: the geometry (frames, gain, temperature) at mu_geo times the base rate, and the rest."""
    geometry: list[torch.nn.Parameter] = []
    rest: list[torch.nn.Parameter] = []
    for name, parameter in model.named_parameters():
        (geometry if name.startswith(_GEOMETRY) else rest).append(parameter)
    groups = [
        {"params": rest, "lr": config.lr, "base_lr": config.lr},
        {"params": geometry, "lr": config.lr * config.geometry_lr, "base_lr": config.lr * config.geometry_lr},
    ]
    return torch.optim.AdamW(groups, weight_decay=config.weight_decay, fused=True)


def set_rate(optimizer: torch.optim.Optimizer, step: int, total: int) -> None:
    """Cosine decay: the rate is a function of the step alone, so a resumed run needs no scheduler state."""
    factor = 0.5 * (1.0 + math.cos(math.pi * min(step / max(total, 1), 1.0)))
    for group in optimizer.param_groups:
        group["lr"] = group["base_lr"] * factor
