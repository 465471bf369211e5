"""The fused engine: a chunk's recurrence and the candidates' geometry, each one autograd node around compiled kernels.

Outside the sequential kernels stand the matrix products that need no recurrence: the context's share of both first
layers before, one product per weight gradient after. See tsnn.engine.kernels for the notation.
"""

from __future__ import annotations

import itertools
import math
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
        dims = _dims(cfg, eta, p.msg_in.dtype)._replace(n=plan.num_events, n0=len(plan.nodes))
        rows = context.detach().reshape(2 * dims.n, -1).contiguous()
        shares = (
            _context_share(dims, p.frame_in, p.frame_in_bias, rows),
            _context_share(dims, p.msg_in, p.msg_in_bias, rows),
        )
        tape = _tape(dims, plan, h0.to(rows), F0.to(rows), *shares)
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
        arrays = _carve(
            dtype,
            {
                "y": (used, d), "norm2": (used,), "h": h.shape, "F": F_shape, "bias": bias_shape,
                "scratch": (kr + d + 2 * size + kr * kr,),
            },
        )  # fmt: skip
        for name in ("y", "norm2", "h", "F", "bias"):
            arrays[name].fill(0)
        grads = kernels.GeometryGrads(**arrays, up=_array(up), mask=mask, touched=np.zeros(used, np.uint8))
        kernels.geometry_adjoint(h, size, cand_ptr, slots, kr, lifted, grads)
        g_bias = torch.from_numpy(grads.bias) if ctx.needs_input_grad[4] else None
        return None, None, torch.from_numpy(grads.h), torch.from_numpy(grads.F), g_bias


# Buffers. A chunk's logs and tapes are tens of megabytes; fresh pages for them would cost as much as the kernels, so
# the arrays of a chunk are cut from one block, which goes back to a pool when the last of them is gone. Output tensors
# are made from arrays (`torch.from_numpy`), never arrays from outputs: a tape must not keep its own graph alive.

_INDEX_TYPES = (np.int32, np.int32, np.int64, np.int32, np.int32)
_ALIGN = 64  # bytes of a cache line and of the widest vector
_MOST_FREE = 8
_free: dict[int, NDArray[np.uint8]] = {}
Shapes = dict[str, tuple[int, ...]]


class _Lease:
    """Holds a block of the pool as long as any array is cut from it."""

    def __init__(self, size: int) -> None:
        fitting = [(block.size, key) for key, block in list(_free.items()) if size <= block.size <= 4 * size]
        taken = _free.pop(min(fitting)[1], None) if fitting else None  # None: another thread was faster
        self.block = np.empty(size + size // 8, np.uint8) if taken is None else taken
        self.__array_interface__ = self.block.__array_interface__

    def __del__(self) -> None:
        _free[id(self.block)] = self.block
        if len(_free) > _MOST_FREE:
            _free.pop(next(iter(list(_free))), None)


def _carve(dtype: torch.dtype, shapes: Shapes) -> dict[str, NDArray[Any]]:
    """Aligned arrays of these shapes, with whatever stood in their block."""
    kind = _NUMPY[dtype]
    sizes = [_padded(math.prod(shape) * dtype.itemsize, _ALIGN) for shape in shapes.values()]
    block = np.asarray(_Lease(sum(sizes) + _ALIGN))
    starts = itertools.accumulate(sizes, initial=-block.ctypes.data % _ALIGN)
    return {
        name: np.ndarray(shape, kind, block, start)
        for (name, shape), start in zip(shapes.items(), starts, strict=False)
    }


def _empty(dtype: torch.dtype, *shape: int) -> NDArray[Any]:
    return _carve(dtype, {"array": shape})["array"]


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


def _dims(cfg: ModelConfig, eta: float, dtype: torch.dtype) -> kernels.Dims:
    """Of a chunk without events."""
    d, k, w = cfg.stalk_dim, cfg.num_reflectors, cfg.hidden_dim
    lanes = kernels.VECTOR_BYTES // dtype.itemsize
    dp, wp, kdp, d2p, d3p = (_padded(size, lanes) for size in (d, w, k * d, 2 * d, 3 * d))
    return kernels.Dims(
        n=0, n0=0, d=d, k=k, kr=k if cfg.transport else 0, w=w, dp=dp, wp=wp, kdp=kdp,
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


def _tape(
    dims: kernels.Dims, plan: UpdatePlan, h0: Tensor, F0: Tensor, hid_frame: NDArray[Any], hid_msg: NDArray[Any]
) -> kernels.Tape:
    """Both hidden layers come in holding the context's share."""
    n, n0, d, k, kr, num_active, dtype = dims.n, dims.n0, dims.d, dims.k, dims.kr, len(plan.act_h), h0.dtype
    mid = max(dims.rounds - 1, 0) * num_active
    arrays = _carve(
        dtype,
        {
            "h": (n0 + num_active, d),
            "F": (n0 + 2 * n, k, d),
            "N": (n0 + 2 * n, kr, d),
            "G": (n0 + 2 * n, kr, kr),
            "inv": (n0 + 2 * n, kr),
            "t_h": (n0 + num_active, kr),
            "x_frame": (2 * n, 2 * d),
            "dF": (2 * n, dims.kdp),
            "x_msg": (2 * n, 2 * d),
            "m": (2 * n, dims.dp),
            "gates": (2 * n, 4 * d),
            "gru_h": (2 * n, d),
            "y_pre": (2 * n, d),
            "y_ends": ((dims.rounds + 1) * 2 * n, d),
            "coef": (2 * n, kernels.NUM_COEF, kr),
            "lift": (0 if dims.carry_over else 2 * n, d),
            "t_round": (dims.rounds * num_active, kr),
            "r_ends": (dims.rounds * 2 * n, d),
            "mid_h": (mid, d),
            "mid_t": (mid, kr),
            "energy": (n,),
            "smooth": (n,),
            "scratch": (4 * dims.d3p,),
        },
    )
    arrays["h"][:n0], arrays["F"][:n0] = h0.detach().numpy(), F0.detach().numpy()
    return kernels.Tape(
        **arrays,
        ready_h=np.zeros(n0, np.uint8),
        ready_F=np.zeros(n0, np.uint8),
        hid_frame=hid_frame,
        hid_msg=hid_msg,
    )


def _context_share(dims: kernels.Dims, weight: Tensor, bias: Tensor, rows: Tensor) -> NDArray[Any]:
    """bias + W_context context for every endpoint row, padded: a first layer without its state part."""
    pad = dims.wp - dims.w
    columns = nn.functional.pad(weight.detach()[:, 2 * dims.d :], (0, 0, 0, pad))
    return torch.addmm(nn.functional.pad(bias.detach(), (0, pad)), rows, columns.t()).numpy()


def _pack(dims: kernels.Dims, p: Parameters, transposed: bool) -> dict[str, NDArray[Any]]:
    """Every weight (out, in) laid out by `kernels.pack` for W x, or for W^T g if transposed; contexts left out."""
    d, layers = dims.d, ("frame_in", "frame_out", "msg_in", "msg_out", "gru_in", "gru_state")
    inputs = (2 * d, dims.w, 2 * d, dims.w, d, d)
    weights = [_array(getattr(p, name)) for name in layers]
    shapes = [(len(W), used) if transposed else (used, len(W)) for W, used in zip(weights, inputs, strict=True)]
    lengths = [(nx * _padded(nc, dims.lanes),) for nx, nc in shapes]
    packed = _carve(p.theta.dtype, dict(zip(layers, lengths, strict=True)))
    jobs = []
    for name, W, shape in zip(layers, weights, shapes, strict=True):
        strides = (W.shape[1], 1) if transposed else (1, W.shape[1])
        shift = 2 * d if transposed and name == "gru_state" else 0  # the kernel's gate order: n, r, z
        jobs.append((W, *strides, *shape, shift, packed[name]))
    kernels.pack_all(tuple(jobs), dims.lanes)
    return packed


def _padded_bias(bias: Tensor, lanes: int) -> NDArray[Any]:
    return nn.functional.pad(bias.detach(), (0, -len(bias) % lanes)).numpy()


def _gain(theta: Tensor) -> NDArray[Any]:
    return nn.functional.softplus(theta.detach()).numpy()


def _forward_weights(dims: kernels.Dims, p: Parameters) -> kernels.Weights:
    return kernels.Weights(
        **_pack(dims, p, transposed=False),
        frame_bias=_padded_bias(p.frame_out_bias, dims.lanes),
        msg_bias=_padded_bias(p.msg_out_bias, dims.lanes),
        gru_in_bias=_padded_bias(p.gru_in_bias, dims.lanes),
        gru_state_bias=_padded_bias(p.gru_state_bias, dims.lanes),
        D=_gain(p.theta),
    )


def _backward_weights(dims: kernels.Dims, p: Parameters) -> kernels.Weights:
    none = _empty(p.theta.dtype, 0)
    biases = dict.fromkeys(("frame_bias", "msg_bias", "gru_in_bias", "gru_state_bias"), none)
    return kernels.Weights(**_pack(dims, p, transposed=True), **biases, D=_gain(p.theta))


def _grads(
    dims: kernels.Dims, plan: kernels.PlanArrays, tape: kernels.Tape, upstream: tuple[Tensor, ...], base: int
) -> kernels.Grads:
    n, d, k, kr, dtype = dims.n, dims.d, dims.k, dims.kr, upstream[0].dtype
    rows_h, rows_F = len(tape.h) - base, len(tape.F) - base
    up_h, up_F, up_energy, up_smooth = map(_array, upstream)
    initial = dims.n0 if base == 0 else 0
    most = int(np.diff(plan.act_ptr).max(initial=0))
    arrays = _carve(
        dtype,
        {
            "gh": (rows_h, d),
            "gN": (rows_F, kr, d),
            "gS": (rows_F, kr, kr),
            "gF": (rows_F, k, d),
            "d_frame_hid": (2 * n, dims.wp),
            "d_frame_out": (2 * n, k * d),
            "d_msg_hid": (2 * n, dims.wp),
            "d_msg_out": (2 * n, dims.dp),
            "d_gates": (2 * n, 4 * d),
            "gD": (d,),
            "g_h0": (initial, d),
            "g_F0": (initial, k, d),
            "scratch": (4 * kr + 18 * d + 2 * (dims.dp + dims.d2p) + most * d,),
        },
    )
    for name in ("gN", "gS", "gD"):
        arrays[name].fill(0)
    return kernels.Grads(
        **arrays,
        up_h=up_h,
        up_F=up_F,
        up_energy=up_energy,
        up_smooth=up_smooth,
        live_h=np.zeros(rows_h, np.uint8),
        live_F=np.zeros(rows_F, np.uint8),
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
    shapes: Shapes = {
        "y": (used, d), "norm2": (used,), "t": (used, kr), "N": (used, kr, d), "G": (used, kr, kr), "inv": (used, kr)
    }  # fmt: skip
    return kernels.Lifted(**_carve(dtype, shapes))
