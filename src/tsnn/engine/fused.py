"""The fused engine: a chunk's recurrence as one autograd node around compiled kernels.

Matrix products that need no recurrence stand outside the sequential kernels: the context's share of both first layers
before them, and after them one product for the gradient of each weight.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from tsnn.config import ModelConfig
from tsnn.engine.backward import backward
from tsnn.engine.buffers import array, carve, make, plain
from tsnn.engine.forward import forward
from tsnn.engine.layout import (
    BackScratch,
    Dims,
    Grads,
    Parameters,
    Plan,
    Read,
    Scratch,
    Tape,
    Weights,
    layer_sizes,
    padded,
    rows,
    weight_gradients,
)
from tsnn.engine.panels import pack
from tsnn.engine.pointers import VECTOR_BYTES
from tsnn.plan.chunk import UpdatePlan

Logs = tuple[Tensor, Tensor, Tensor, Tensor]
_BIASES = ("frame_out_bias", "msg_out_bias", "gru_in_bias", "gru_state_bias")  # those that kernels add


def fused_update(
    updater: nn.Module, plan: UpdatePlan, context: Tensor, h0: Tensor, F0: Tensor, cfg: ModelConfig, eta: float
) -> Logs:
    """Run the recurrence of a chunk (alg:tsnn, steps 3 to 6).

    context (n, 2, C), h0 (n0, d), F0 (n0, k, d) -> stalk log, frame log, and per event the disagreement of its
    endpoints after diffusion and the squared length of its frame steps. eta is the capped step size (D-11).
    """
    weights = [weight.cpu() for weight in Parameters.of(updater)]
    return FusedUpdate.apply(plan, cfg, float(eta), context, h0, F0, *weights)  # type: ignore[no-any-return, no-untyped-call]


class FusedUpdate(torch.autograd.Function):
    """`fused_update` as one autograd node."""

    @staticmethod
    def forward(ctx: Any, plan: UpdatePlan, cfg: ModelConfig, eta: float, *tensors: Tensor) -> Logs:
        """The logs of a chunk, from context, h0, F0 and the weights."""
        context, h0, F0, *weights = tensors
        p = Parameters(*weights)
        dims = of_chunk(dims_of(cfg, eta, p.msg_in.dtype), plan)
        context_rows = context.detach().reshape(2 * dims.n, -1).contiguous()
        shares = [
            _context_share(dims, weight, bias, context_rows)
            for weight, bias in ((p.frame_in, p.frame_in_bias), (p.msg_in, p.msg_in_bias))
        ]
        ctx.dims, ctx.plan = dims, plan_arrays(plan)
        ctx.save_for_backward(context_rows, *weights)
        ctx.tape = run(dims, ctx.plan, pack_weights(dims, p), h0.to(context_rows), F0.to(context_rows), *shares)
        return logs(ctx.tape)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *upstream: Tensor) -> Any:
        """Gradients of context, h0, F0 and every weight."""
        dims, plan, tape = ctx.dims, ctx.plan, ctx.tape
        context_rows, *weights = ctx.saved_tensors
        p = Parameters(*weights)
        _, _, _, want_context, want_h0, want_F0, *_ = ctx.needs_input_grad
        base = 0 if want_h0 or want_F0 else dims.n0
        given = dict(zip(("up_h", "up_F", "up_energy", "up_smooth"), map(array, upstream), strict=True))
        grads = make(Grads, upstream[0].dtype, dims, given, base=base, gain_rows=1)
        for begins in (grads.gN, grads.gS, grads.gD):
            begins.fill(0)
        scratch = make(BackScratch, upstream[0].dtype, dims, most=int(np.diff(plan.act_ptr).max(initial=0)))
        backward(dims, plan, pack_weights(dims, p, transposed=True), tape, grads, scratch, base)
        g_context = _context_gradient(dims, p, grads) if want_context else None
        g_h0 = torch.from_numpy(grads.g_h0) if want_h0 else None
        g_F0 = torch.from_numpy(grads.g_F0) if want_F0 else None
        return None, None, None, g_context, g_h0, g_F0, *_weight_gradients(dims, p, context_rows, tape, grads)


def run(
    dims: Dims, plan: Plan, weights: Weights, h0: Tensor, F0: Tensor, hid_frame: NDArray[Any], hid_msg: NDArray[Any]
) -> Tape:
    """The forward pass; both hidden layers come in holding the context's share."""
    tape = make(Tape, h0.dtype, dims, {"hid_frame": hid_frame, "hid_msg": hid_msg})
    tape.h[: dims.n0] = h0.detach().numpy()
    tape.F[: dims.n0] = F0.detach().numpy()
    forward(dims, plan, weights, tape, make(Scratch, h0.dtype, dims))
    return tape


def logs(tape: Tape) -> Logs:
    """What the recurrence hands out of its tape."""
    return tuple(torch.from_numpy(part) for part in (tape.h, tape.F, tape.energy, tape.smooth))  # type: ignore[return-value]


def dims_of(cfg: ModelConfig, eta: float, dtype: torch.dtype) -> Dims:
    """The sizes of a model, for a chunk without events."""
    return Dims.of(cfg, VECTOR_BYTES // dtype.itemsize)._replace(eta=eta)


def of_chunk(dims: Dims, plan: UpdatePlan) -> Dims:
    """The same sizes, with how many events, nodes and active entries the chunk has."""
    return dims._replace(n=plan.num_events, n0=len(plan.nodes), nA=len(plan.act_h))


def plan_arrays(plan: UpdatePlan) -> Plan:
    """The columns that the kernels read."""
    return Plan(*(plain(getattr(plan, name), row.kind) for name, row in rows(Plan).items()))


def _context_share(dims: Dims, weight: Tensor, bias: Tensor, context_rows: Tensor) -> NDArray[Any]:
    """bias + W_context context for every endpoint row, padded: a first layer without its state part."""
    pad = dims.wp - dims.w
    columns = nn.functional.pad(weight.detach()[:, 2 * dims.d :], (0, 0, 0, pad))
    return torch.addmm(nn.functional.pad(bias.detach(), (0, pad)), context_rows, columns.t()).numpy()


def pack_weights(dims: Dims, p: Parameters, transposed: bool = False) -> Weights:
    """Every matrix (out, in) laid out by `panels.pack` for W x, or for W^T g if transposed; contexts left out."""
    sizes = layer_sizes(dims.d, dims.k, dims.w)
    sizes = {name: size[::-1] if transposed else size for name, size in sizes.items()}
    packed = carve(p.theta.dtype, {name: (nx * padded(nc, dims.lanes),) for name, (nx, nc) in sizes.items()})
    jobs = []
    for name, shape in sizes.items():
        W = array(getattr(p, name))
        strides = (W.shape[1], 1) if transposed else (1, W.shape[1])
        shift = 2 * dims.d if transposed and name == "gru_state" else 0  # the kernel's gate order: n, r, z
        jobs.append((W, *strides, *shape, shift, packed[name]))
    pack(tuple(jobs), dims.lanes)
    gain = nn.functional.softplus(p.theta.detach()).numpy()
    biases = dict.fromkeys(_BIASES, gain[:0])
    if not transposed:
        for name in _BIASES:
            bias = getattr(p, name).detach()
            rest = -len(bias) % dims.lanes
            biases[name] = (nn.functional.pad(bias, (0, rest)) if rest else bias).numpy()
    return Weights(**packed, **biases, D=gain)


def _context_gradient(dims: Dims, p: Parameters, grads: Grads) -> Tensor:
    columns = slice(2 * dims.d, None)
    g = torch.from_numpy(grads.d_msg_hid)[:, : dims.w] @ p.msg_in.detach()[:, columns]
    if dims.frame_update:
        g.addmm_(torch.from_numpy(grads.d_frame_hid)[:, : dims.w], p.frame_in.detach()[:, columns])
    return g.view(dims.n, 2, -1)


def _weight_gradients(dims: Dims, p: Parameters, context_rows: Tensor, tape: Tape, grads: Grads) -> list[Tensor | None]:
    def product(g: Tensor, x: Tensor, context: bool) -> tuple[Tensor, Tensor]:
        weight = g.t() @ x
        return torch.cat((weight, g.t() @ context_rows), 1) if context else weight, g.sum(0)

    found = weight_gradients(dims, _reader(tape), _reader(grads), product)
    return [*found, torch.from_numpy(grads.gD)[0] * torch.sigmoid(p.theta.detach())]


def _reader(table: Tape | Grads) -> Read:
    return lambda name: torch.from_numpy(getattr(table, name))
