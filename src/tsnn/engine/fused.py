"""The fused engine: a chunk's recurrence and the candidates' geometry, each one autograd node around compiled kernels.

Outside the sequential kernels stand the matrix products that need no recurrence: the context's share of both first
layers before, one product per weight gradient after. See tsnn.engine.kernels for the notation.
"""

from __future__ import annotations

import math
import weakref
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from tsnn.config import ModelConfig
from tsnn.engine import kernels
from tsnn.plan.chunk import UpdatePlan
from tsnn.types import I32, I64, Bool

Logs = tuple[Tensor, Tensor, Tensor, Tensor]
_NUMPY = {torch.float32: np.float32, torch.float64: np.float64}


class Updater(Protocol):
    """The parameters of the recurrence."""

    frame_in: nn.Linear
    frame_out: nn.Linear
    msg_in: nn.Linear
    msg_out: nn.Linear
    gru: nn.GRUCell
    theta: nn.Parameter


class Parameters(NamedTuple):
    """The tensors of an Updater in a fixed order."""

    frame_in: Tensor
    frame_in_bias: Tensor
    frame_out: Tensor
    frame_out_bias: Tensor
    msg_in: Tensor
    msg_in_bias: Tensor
    msg_out: Tensor
    msg_out_bias: Tensor
    gru_in: Tensor
    gru_in_bias: Tensor
    gru_state: Tensor
    gru_state_bias: Tensor
    theta: Tensor

    @classmethod
    def of(cls, updater: Updater) -> Parameters:
        """Read them off the modules."""
        gru = updater.gru
        linear = (updater.frame_in, updater.frame_out, updater.msg_in, updater.msg_out)
        pairs = [tensor for layer in linear for tensor in (layer.weight, layer.bias)]
        return cls._make((*pairs, gru.weight_ih, gru.bias_ih, gru.weight_hh, gru.bias_hh, updater.theta))


def fused_update(
    updater: Updater, plan: UpdatePlan, context: Tensor, h0: Tensor, F0: Tensor, cfg: ModelConfig, eta: float
) -> Logs:
    """Run the recurrence of a chunk (alg:tsnn, steps 3 to 6).

    context (n, 2, C), h0 (n0, d), F0 (n0, k, d) -> stalk log, frame log, and per event the disagreement of its
    endpoints after diffusion and the squared length of its frame steps. eta is the capped step size (D-11). All of it
    runs on the host; weights that live elsewhere come over first.
    """
    weights = [weight.cpu() for weight in Parameters.of(updater)]
    return FusedUpdate.apply(plan, cfg, float(eta), context, h0, F0, *weights)  # type: ignore[no-any-return, no-untyped-call]


class FusedUpdate(torch.autograd.Function):
    """`fused_update` as one autograd node."""

    @staticmethod
    def forward(
        ctx: Any,
        plan: UpdatePlan,
        cfg: ModelConfig,
        eta: float,
        context: Tensor,
        h0: Tensor,
        F0: Tensor,
        *weights: Tensor,
    ) -> Logs:
        """The logs of a chunk."""
        p = Parameters(*weights)
        dims = _dims(plan, cfg, eta, p.msg_in.dtype)
        rows = context.detach().reshape(2 * dims.n, -1).contiguous()
        tape = _tape(dims, plan, rows, h0, F0, p)
        ctx.dims, ctx.plan, ctx.tape = dims, _plan_arrays(plan), tape
        ctx.save_for_backward(rows, *weights)
        kernels.forward(dims, ctx.plan, _forward_weights(dims, p), tape)
        h, F, energy, smooth = map(torch.from_numpy, (tape.h, tape.F, tape.energy, tape.smooth))
        return h, F, energy, smooth

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *upstream: Tensor) -> Any:
        """Gradients of context, h0, F0 and every weight."""
        dims, tape = ctx.dims, ctx.tape
        rows, *weights = ctx.saved_tensors
        p = Parameters(*weights)
        _, _, _, want_context, want_h0, want_F0, *_ = ctx.needs_input_grad
        base = 0 if want_h0 or want_F0 else dims.n0
        grads = _grads(dims, ctx.plan, tape, upstream, base)
        kernels.backward(dims, ctx.plan, _backward_weights(dims, p), tape, grads, base)
        g_context = _context_gradient(dims, p, grads) if want_context else None
        g_h0 = torch.from_numpy(grads.g_h0) if want_h0 else None
        g_F0 = torch.from_numpy(grads.g_F0) if want_F0 else None
        return None, None, None, g_context, g_h0, g_F0, *_weight_gradients(dims, p, rows, tape, grads)


def fused_geometry(
    h_log: Tensor, F_log: Tensor, frame_bias_rows: Tensor | None, src_h: I32, src_F: I32, cand_ptr: I64,
    cand_h: I32, cand_F: I32, cand_grad_mask: Bool, cfg: ModelConfig,
) -> Tensor:  # fmt: skip
    """The geometric scalars (nc, 4) of every candidate: |q - g|^2, <q, g>, |h_u|^2, |h_c|^2 (eq:sdist).

    q = U(F_u + bias) h_u and g = U(F_c) h_c. Where the mask is False no gradient reaches the candidate's state.
    """
    reads = (src_h, src_F, cand_ptr, cand_h, cand_F, cand_grad_mask)
    return FusedGeometry.apply(reads, cfg, h_log, F_log, frame_bias_rows)  # type: ignore[no-any-return, no-untyped-call]


class FusedGeometry(torch.autograd.Function):
    """`fused_geometry` as one autograd node."""

    @staticmethod
    def forward(ctx: Any, reads: Any, cfg: ModelConfig, h_log: Tensor, F_log: Tensor, bias: Tensor | None) -> Tensor:
        """The scalars of every candidate."""
        kr = cfg.num_reflectors if cfg.transport else 0
        src_h, src_F, cand_ptr, cand_h, cand_F = map(_plain, reads[:5], _INDEX_TYPES)
        h, F = _array(h_log), _array(F_log)
        bent = _array(bias) if bias is not None else _zeros(h_log.dtype, 0, *F.shape[1:])
        slots, used = _slots(src_h, src_F, cand_h, cand_F, bias is not None, len(h))
        lifted = _lifted(h_log.dtype, used, kr, h.shape[1])
        out = _empty(h_log.dtype, len(cand_h), 4)
        scratch = _empty(h_log.dtype, F[0].size)
        kernels.geometry(h, F, bent, cand_ptr, slots, kr, cfg.reflector_eps, lifted, scratch, out)
        ctx.state = (h, F.shape, bent.shape, cand_ptr, slots, kr, lifted, _plain(reads[5], np.bool_))
        return torch.from_numpy(out)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, up: Tensor) -> Any:
        """Gradients of both logs and of the bias rows."""
        h, F_shape, bias_shape, cand_ptr, slots, kr, lifted, mask = ctx.state
        dtype, used, d, size = up.dtype, len(lifted.norm2), h.shape[1], F_shape[1] * F_shape[2]
        grads = kernels.GeometryGrads(
            up=_array(up), mask=mask, y=_zeros(dtype, used, d), norm2=_zeros(dtype, used),
            touched=np.zeros(used, np.uint8), h=_zeros(dtype, *h.shape), F=_zeros(dtype, *F_shape),
            bias=_zeros(dtype, *bias_shape),
            scratch=_empty(dtype, kr + d + 2 * size + kr * kr),
        )  # fmt: skip
        kernels.geometry_adjoint(h, size, cand_ptr, slots, kr, lifted, grads)
        g_bias = torch.from_numpy(grads.bias) if ctx.needs_input_grad[4] else None
        return None, None, torch.from_numpy(grads.h), torch.from_numpy(grads.F), g_bias


# Buffers. A chunk's logs and tapes are tens of megabytes; fresh pages for them would cost as much as the kernels, so a
# block goes back to a pool when its array dies. Output tensors are made from arrays (`torch.from_numpy`), never arrays
# from outputs, so that a tape does not keep its own graph alive.

_INDEX_TYPES = (np.int32, np.int32, np.int64, np.int32, np.int32)
_ALIGN = 64  # bytes of a cache line and of the widest vector
_POOLED = 1 << 18  # smaller arrays are left to the allocator
_MOST_FREE = 64
_free: dict[int, NDArray[np.uint8]] = {}


def _take_block(size: int) -> NDArray[np.uint8]:
    """A free block of at least `size` bytes (at most four times as many), or a new one."""
    fitting = [(block.size, key) for key, block in list(_free.items()) if size <= block.size <= 4 * size]
    taken = _free.pop(min(fitting)[1], None) if fitting else None  # None: another thread was faster
    return np.empty(size + size // 8, np.uint8) if taken is None else taken


def _give_block(block: NDArray[np.uint8]) -> None:
    _free[id(block)] = block
    if len(_free) > _MOST_FREE:
        _free.pop(next(iter(list(_free))), None)


def _empty(dtype: torch.dtype, *shape: int) -> NDArray[Any]:
    """An aligned array; its block is reused once the array itself (not a view of it) is gone."""
    size = math.prod(shape) * dtype.itemsize
    if size < _POOLED:
        return torch.empty(shape, dtype=dtype).numpy()
    block = _take_block(size + _ALIGN)
    start = -block.ctypes.data % _ALIGN
    array = block[start : start + size].view(_NUMPY[dtype]).reshape(shape)
    weakref.finalize(array, _give_block, block).atexit = False
    return array


def _zeros(dtype: torch.dtype, *shape: int) -> NDArray[Any]:
    array = _empty(dtype, *shape)
    array.fill(0)
    return array


def _array(tensor: Tensor) -> NDArray[Any]:
    return tensor.detach().contiguous().numpy()


def _plain(array: NDArray[Any], dtype: Any) -> NDArray[Any]:
    """Contiguous, writable, of this type: any other layout would be another compilation."""
    plain = np.ascontiguousarray(array, dtype)
    return plain if plain.flags.writeable else plain.copy()


def _padded(size: int, lanes: int) -> int:
    return -(-size // lanes) * lanes


def _dims(plan: UpdatePlan, cfg: ModelConfig, eta: float, dtype: torch.dtype) -> kernels.Dims:
    d, k, w = cfg.stalk_dim, cfg.num_reflectors, cfg.hidden_dim
    lanes = kernels.VECTOR_BYTES // dtype.itemsize
    dp, wp, kdp, d2p, d3p = (_padded(size, lanes) for size in (d, w, k * d, 2 * d, 3 * d))
    return kernels.Dims(
        n=plan.num_events, n0=len(plan.nodes), d=d, k=k, kr=k if cfg.transport else 0, w=w, dp=dp, wp=wp, kdp=kdp,
        d2p=d2p, d3p=d3p, lanes=lanes, rounds=cfg.diffusion_steps, eta=eta, eps=cfg.reflector_eps,
        frame_update=cfg.frame_update, carry_over=cfg.carry_over,
    )  # fmt: skip


def _plan_arrays(plan: UpdatePlan) -> kernels.PlanArrays:
    return kernels.PlanArrays(
        **{
            name: _plain(getattr(plan, name), np.int32)
            for name in ("src_h", "dst_h", "src_F", "dst_F", "act_h", "act_F")
        },
        is_loop=_plain(plan.is_loop, np.uint8),
        act_ptr=_plain(plan.act_ptr, np.int64),
        mult_src=_plain(plan.mult_src, np.float32),
        mult_dst=_plain(plan.mult_dst, np.float32),
    )


def _tape(dims: kernels.Dims, plan: UpdatePlan, rows: Tensor, h0: Tensor, F0: Tensor, p: Parameters) -> kernels.Tape:
    n, n0, d, k, kr, num_active, dtype = dims.n, dims.n0, dims.d, dims.k, dims.kr, len(plan.act_h), rows.dtype
    mid = max(dims.rounds - 1, 0) * num_active
    h, F = _empty(dtype, n0 + num_active, d), _empty(dtype, n0 + 2 * n, k, d)
    h[:n0], F[:n0] = h0.detach().numpy(), F0.detach().numpy()
    return kernels.Tape(
        h=h,
        F=F,
        N=_empty(dtype, n0 + 2 * n, kr, d),
        G=_empty(dtype, n0 + 2 * n, kr, kr),
        inv=_empty(dtype, n0 + 2 * n, kr),
        t_h=_empty(dtype, n0 + num_active, kr),
        ready_h=np.zeros(n0, np.uint8),
        ready_F=np.zeros(n0, np.uint8),
        x_frame=_empty(dtype, 2 * n, 2 * d),
        hid_frame=_context_share(dims, p.frame_in, p.frame_in_bias, rows),
        dF=_empty(dtype, 2 * n, dims.kdp),
        x_msg=_empty(dtype, 2 * n, 2 * d),
        hid_msg=_context_share(dims, p.msg_in, p.msg_in_bias, rows),
        m=_empty(dtype, 2 * n, dims.dp),
        gates=_empty(dtype, 2 * n, 4 * d),
        gru_h=_empty(dtype, 2 * n, d),
        y_pre=_empty(dtype, 2 * n, d),
        y_ends=_empty(dtype, (dims.rounds + 1) * 2 * n, d),
        coef=_empty(dtype, 2 * n, kernels.NUM_COEF, kr),
        lift=_empty(dtype, 0 if dims.carry_over else 2 * n, d),
        t_round=_empty(dtype, dims.rounds * num_active, kr),
        r_ends=_empty(dtype, dims.rounds * 2 * n, d),
        mid_h=_empty(dtype, mid, d),
        mid_t=_empty(dtype, mid, kr),
        energy=_empty(dtype, n),
        smooth=_empty(dtype, n),
        scratch=_empty(dtype, 4 * dims.d3p),
    )


def _context_share(dims: kernels.Dims, weight: Tensor, bias: Tensor, rows: Tensor) -> NDArray[Any]:
    """bias + W_context context for every endpoint row, padded: a first layer without its state part."""
    pad = dims.wp - dims.w
    columns = nn.functional.pad(weight.detach()[:, 2 * dims.d :], (0, 0, 0, pad))
    return torch.addmm(nn.functional.pad(bias.detach(), (0, pad)), rows, columns.t()).numpy()


def _pack(weight: Tensor, nx: int, nc: int, lanes: int, transposed: bool, shift: int = 0) -> NDArray[Any]:
    """`kernels.pack`: W x for a torch weight (out, in), or W^T g if transposed."""
    W = _array(weight)
    out = _empty(weight.dtype, nx * _padded(nc, lanes))
    stride_x, stride_c = (W.shape[1], 1) if transposed else (1, W.shape[1])
    kernels.pack(W, stride_x, stride_c, nx, nc, shift, lanes, out)
    return out


def _padded_bias(bias: Tensor, lanes: int) -> NDArray[Any]:
    return nn.functional.pad(bias.detach(), (0, -len(bias) % lanes)).numpy()


def _gain(theta: Tensor) -> NDArray[Any]:
    return nn.functional.softplus(theta.detach()).numpy()


def _forward_weights(dims: kernels.Dims, p: Parameters) -> kernels.Weights:
    d, w, kd, lanes = dims.d, dims.w, dims.k * dims.d, dims.lanes
    return kernels.Weights(
        frame_in=_pack(p.frame_in, 2 * d, w, lanes, False),
        frame_out=_pack(p.frame_out, w, kd, lanes, False),
        msg_in=_pack(p.msg_in, 2 * d, w, lanes, False),
        msg_out=_pack(p.msg_out, w, d, lanes, False),
        gru_in=_pack(p.gru_in, d, 3 * d, lanes, False),
        gru_state=_pack(p.gru_state, d, 3 * d, lanes, False),
        frame_bias=_padded_bias(p.frame_out_bias, lanes),
        msg_bias=_padded_bias(p.msg_out_bias, lanes),
        gru_in_bias=_padded_bias(p.gru_in_bias, lanes),
        gru_state_bias=_padded_bias(p.gru_state_bias, lanes),
        D=_gain(p.theta),
    )


def _backward_weights(dims: kernels.Dims, p: Parameters) -> kernels.Weights:
    d, w, kd, lanes = dims.d, dims.w, dims.k * dims.d, dims.lanes
    none = _empty(p.theta.dtype, 0)
    return kernels.Weights(
        frame_in=_pack(p.frame_in, w, 2 * d, lanes, True),
        frame_out=_pack(p.frame_out, kd, w, lanes, True),
        msg_in=_pack(p.msg_in, w, 2 * d, lanes, True),
        msg_out=_pack(p.msg_out, d, w, lanes, True),
        gru_in=_pack(p.gru_in, 3 * d, d, lanes, True),
        gru_state=_pack(p.gru_state, 3 * d, d, lanes, True, shift=2 * d),  # the kernel's gate order: n, r, z
        frame_bias=none,
        msg_bias=none,
        gru_in_bias=none,
        gru_state_bias=none,
        D=_gain(p.theta),
    )


def _grads(
    dims: kernels.Dims, plan: kernels.PlanArrays, tape: kernels.Tape, upstream: tuple[Tensor, ...], base: int
) -> kernels.Grads:
    n, d, k, kr, dtype = dims.n, dims.d, dims.k, dims.kr, upstream[0].dtype
    rows_h, rows_F = len(tape.h) - base, len(tape.F) - base
    up_h, up_F, up_energy, up_smooth = map(_array, upstream)
    initial = dims.n0 if base == 0 else 0
    most = int(np.diff(plan.act_ptr).max(initial=0))
    return kernels.Grads(
        up_h=up_h,
        up_F=up_F,
        up_energy=up_energy,
        up_smooth=up_smooth,
        gh=_empty(dtype, rows_h, d),
        live_h=np.zeros(rows_h, np.uint8),
        gN=_zeros(dtype, rows_F, kr, d),
        gS=_zeros(dtype, rows_F, kr, kr),
        gF=_empty(dtype, rows_F, k, d),
        live_F=np.zeros(rows_F, np.uint8),
        d_frame_hid=_empty(dtype, 2 * n, dims.wp),
        d_frame_out=_empty(dtype, 2 * n, k * d),
        d_msg_hid=_empty(dtype, 2 * n, dims.wp),
        d_msg_out=_empty(dtype, 2 * n, dims.dp),
        d_gates=_empty(dtype, 2 * n, 4 * d),
        gD=_zeros(dtype, d),
        g_h0=_empty(dtype, initial, d),
        g_F0=_empty(dtype, initial, k, d),
        scratch=_empty(dtype, 4 * kr + 18 * d + 2 * (dims.dp + dims.d2p) + most * d),
    )


def _context_gradient(dims: kernels.Dims, p: Parameters, grads: kernels.Grads) -> Tensor:
    columns = slice(2 * dims.d, None)
    g = torch.from_numpy(grads.d_msg_hid)[:, : dims.w] @ p.msg_in.detach()[:, columns]
    if dims.frame_update:
        g.addmm_(torch.from_numpy(grads.d_frame_hid)[:, : dims.w], p.frame_in.detach()[:, columns])
    return g.view(dims.n, 2, -1)


def _weight_gradients(
    dims: kernels.Dims, p: Parameters, rows: Tensor, tape: kernels.Tape, grads: kernels.Grads
) -> tuple[Tensor | None, ...]:
    """One product per weight over the endpoint rows of the chunk."""
    d, w = dims.d, dims.w
    d_gates = torch.from_numpy(grads.d_gates)
    frame: list[Tensor | None] = [None] * 4
    if dims.frame_update:
        frame = [
            *_first_layer(dims, grads.d_frame_hid, tape.x_frame, rows),
            *_product(torch.from_numpy(grads.d_frame_out), torch.from_numpy(tape.hid_frame)[:, :w]),
        ]
    message = [
        *_first_layer(dims, grads.d_msg_hid, tape.x_msg, rows),
        *_product(torch.from_numpy(grads.d_msg_out)[:, :d], torch.from_numpy(tape.hid_msg)[:, :w]),
    ]
    gru_in = _product(d_gates[:, d:], torch.from_numpy(tape.m)[:, :d])
    state = _product(d_gates[:, : 3 * d], torch.from_numpy(tape.x_msg)[:, :d])
    gru_state = [g.roll(-d, 0) for g in state]  # from n, r, z to torch's r, z, n
    theta = torch.from_numpy(grads.gD) * torch.sigmoid(p.theta.detach())
    return *frame, *message, *gru_in, *gru_state, theta


def _product(g: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    """Gradients of weight and bias from rows of output gradients and inputs."""
    return g.t() @ x, g.sum(0)


def _first_layer(dims: kernels.Dims, g_hid: NDArray[Any], x: NDArray[Any], rows: Tensor) -> tuple[Tensor, Tensor]:
    g = torch.from_numpy(g_hid)[:, : dims.w]
    weight = torch.cat((g.t() @ torch.from_numpy(x), g.t() @ rows), 1)
    return weight, g.sum(0)


def _slots(src_h: Any, src_F: Any, cand_h: Any, cand_F: Any, bent: bool, num_rows: int) -> tuple[kernels.Slots, int]:
    most = len(src_h) + len(cand_h)
    slots = kernels.Slots(*(np.empty(size, np.int32) for size in (most, most, most, len(src_h), len(cand_h))))
    table = np.full(num_rows, -1, np.int32)
    return slots, kernels.assign_slots(src_h, src_F, cand_h, cand_F, bent, table, slots)


def _lifted(dtype: torch.dtype, used: int, kr: int, d: int) -> kernels.Lifted:
    return kernels.Lifted(
        y=_empty(dtype, used, d),
        norm2=_empty(dtype, used),
        t=_empty(dtype, used, kr),
        N=_empty(dtype, used, kr, d),
        G=_empty(dtype, used, kr, kr),
        inv=_empty(dtype, used, kr),
    )
