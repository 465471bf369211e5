"""AdamW with a cosine to zero and its own learning rate for the geometry group."""

from __future__ import annotations

import math

import torch

from tsnn.config import TrainConfig
from tsnn.model.tsnn import TSNN

_GEOMETRY = ("updater.frame_in", "updater.frame_out", "updater.theta", "frame_bias", "head.rho_kappa")


def make_optimizer(model: TSNN, config: TrainConfig) -> torch.optim.AdamW:
    """Three groups: the geometry (frames, gain, temperature) at mu_geo times the base rate, the head, the rest."""
    rates = {"rest": 1.0, "geometry": config.geometry_lr, "head": config.head_lr if config.warmup else 1.0}
    members: dict[str, list[torch.nn.Parameter]] = {name: [] for name in rates}
    for name, parameter in model.named_parameters():
        group = "geometry" if name.startswith(_GEOMETRY) else "head" if name.startswith("head.") else "rest"
        members[group].append(parameter)
    groups = [
        {"params": members[name], "lr": config.lr * rate, "base_lr": config.lr * rate} for name, rate in rates.items()
    ]
    return torch.optim.AdamW(groups, weight_decay=config.weight_decay, fused=True)


def set_rate(optimizer: torch.optim.Optimizer, step: int, total: int) -> None:
    """Cosine decay: the rate is a function of the step alone, so a resumed run needs no scheduler state."""
    factor = 0.5 * (1.0 + math.cos(math.pi * min(step / max(total, 1), 1.0)))
    for group in optimizer.param_groups:
        group["lr"] = group["base_lr"] * factor
