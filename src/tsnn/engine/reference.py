"""The recurrence, event by event, in plain differentiable PyTorch: Steps 2-6 of alg:tsnn as they read.

Slow on purpose: it is the yardstick of speed and the place to try an extension.
"""

from __future__ import annotations

import torch
from torch import Tensor

from tsnn.memory.versions import Versions
from tsnn.model.geometry import reflectors, rotate
from tsnn.model.tsnn import TSNN
from tsnn.plan.chunk import UpdatePlan
from tsnn.sheaf.diffusion import capped_step, diffuse
from tsnn.sheaf.householder import keep_length


def update(model: TSNN, plan: UpdatePlan, context: Tensor, h0: Tensor, F0: Tensor) -> Versions:
    """Run the chunk's rows from the given initial states; every state written is a row of the result."""
    h, F = list(h0.unbind(0)), list(F0.unbind(0))
    energy, smooth = [], []
    gain = model.updater.gain()
    step = capped_step(model.config.model.step_size, gain)
    for e in range(plan.num_events):
        loop = bool(plan.is_loop[e])
        endpoints = 1 if loop else 2
        pre_h = torch.stack([h[plan.src_h[e]], h[plan.dst_h[e]]][:endpoints])
        pre_F = torch.stack([F[plan.src_F[e]], F[plan.dst_F[e]]][:endpoints])
        post_h, post_F, moved = _update_endpoints(model, pre_h, pre_F, context[e, :endpoints])
        F += [post_F[0], post_F[-1]]
        stalks = _diffuse_event(model, plan, e, post_h, h, F, gain, step)
        h += stalks.unbind(0)
        smooth.append(moved)
        energy.append(_edge_energy(model, stalks[:endpoints], post_F))
    return Versions(torch.stack(h), torch.stack(F), torch.stack(energy), torch.stack(smooth))


def _update_endpoints(model: TSNN, h: Tensor, F: Tensor, context: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Steps 3 and 4 for the rows of one event (a self-loop has one): new stalks, new frames, |Delta F|^2."""
    config = model.config.model
    common = rotate(F, h, config)
    partner = rotate(F, common.flip(0), config, transpose=True)
    delta = torch.zeros_like(F)
    if config.frame_update:
        delta = model.updater.frame_delta(torch.cat([h, partner, context], dim=1)).view_as(F)  # eq:frame_update
    post_F = F + delta
    if config.frame_update and config.frame_length == "kept":
        post_F = keep_length(post_F, config.reflector_eps)
    carried = h
    if config.carry_over:  # prop:carry_over
        carried = rotate(post_F, common, config, transpose=True)
    common = rotate(post_F, carried, config)
    partner = rotate(post_F, common.flip(0), config, transpose=True)
    message = model.updater.message(torch.cat([carried, partner, context], dim=1))  # eq:message
    return model.updater.gru(message, carried), post_F, delta.square().sum()  # eq:gru_update, eq:loss_smooth


def _diffuse_event(
    model: TSNN, plan: UpdatePlan, e: int, post_h: Tensor, h: list[Tensor], F: list[Tensor], gain: Tensor, step: Tensor
) -> Tensor:
    """Step 5 (alg:diffuse): the stalks of the event's active entries, endpoints first."""
    config = model.config.model
    rows = slice(plan.act_ptr[e], plan.act_ptr[e + 1])
    leaves = [h[j] for j in plan.act_h[rows][len(post_h) :]]
    stalks = torch.cat([post_h, torch.stack(leaves)]) if leaves else post_h
    if not config.diffusion_steps:
        return stalks
    frames = reflectors(torch.stack([F[j] for j in plan.act_F[rows]]), config)
    mult_src, mult_dst = (torch.from_numpy(part[rows]).to(stalks.device) for part in (plan.mult_src, plan.mult_dst))
    loop = bool(plan.is_loop[e])
    return diffuse(stalks, frames, mult_src, mult_dst, loop, gain, step, config.diffusion_steps, config.reflector_eps)


def _edge_energy(model: TSNN, h: Tensor, F: Tensor) -> Tensor:
    """|h_u - Q_uv h_v|^2 after diffusion (eq:loss_energy); zero for a self-loop."""
    common = rotate(F, h, model.config.model)
    return (common[0] - common[-1]).square().sum()
