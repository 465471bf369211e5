"""The networks of the state update: MLP_frame, MLP_msg, the GRU cell and the diffusion gain.

Both MLPs read [own stalk (d) | transported partner (d) | context], context = [x | phi(gap) | e_r].
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from tsnn.config import ModelConfig


class Updater(nn.Module):
    """Parameters of eq:frame_update, eq:message, eq:gru_update and eq:diffusion_local. Engines run them."""

    def __init__(self, config: ModelConfig, context_dim: int) -> None:
        super().__init__()
        d, k, width = config.stalk_dim, config.num_reflectors, config.hidden_dim
        self.frame_in = nn.Linear(2 * d + context_dim, width)
        self.frame_out = nn.Linear(width, k * d)
        self.msg_in = nn.Linear(2 * d + context_dim, width)
        self.msg_out = nn.Linear(width, d)
        self.gru = nn.GRUCell(d, d)
        self.theta = nn.Parameter(torch.zeros(d))
        if config.frame_drift != 1.0:  # the first events would otherwise scatter the frames before any learning
            with torch.no_grad():
                self.frame_out.weight.mul_(config.frame_drift)
                self.frame_out.bias.zero_()

    def frame_delta(self, inputs: Tensor) -> Tensor:
        """Delta F for rows of inputs, flat (rows, k d) (eq:frame_update)."""
        out: Tensor = self.frame_out(torch.relu(self.frame_in(inputs)))
        return out

    def message(self, inputs: Tensor) -> Tensor:
        """m for rows of inputs (eq:message)."""
        out: Tensor = self.msg_out(torch.relu(self.msg_in(inputs)))
        return out

    def gain(self) -> Tensor:
        """The diagonal of D_theta, positive (eq:diffusion_local)."""
        return nn.functional.softplus(self.theta)
