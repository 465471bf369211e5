"""The cuda engine: a chunk's recurrence on the GPU, of one model or of a population of models of one shape.

Every tensor here has a first dimension P, the streams; each stream has a thread block of `recurrence.cu`, or several
that take its events in turn (`teams_for`): events that share no node run side by side, and no bit depends on it. As in
`tsnn.engine.fused`, the products that need no recurrence stand outside: the context's share of both first layers
before, one product per weight gradient after. These take `GROUP` streams at a time: the library that makes them chooses
its order of summation by their shape, and a stream must not feel how many others there are. The kernels are compiled at
run time for the shape of the model (NVRTC through CuPy, extra `cuda`) and kept by CuPy in its own cache.
"""

from __future__ import annotations

import itertools
import math
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from tsnn.config import ModelConfig
from tsnn.engine.fused import Parameters
from tsnn.plan.chunk import UpdatePlan
from tsnn.transfer import send
from tsnn.types import I64

Logs = tuple[Tensor, Tensor, Tensor, Tensor]
Shapes = dict[str, tuple[int, ...]]

GROUP = 32  # streams of one product
STAGES = ("reads", "frame network", "new frames", "message and GRU", "diffusion")  # of an event, forward and backward
_FIELDS = ("src_h", "dst_h", "src_F", "dst_F", "act_ptr", "act_h", "act_F", "is_loop", "mult_src", "mult_dst")
_ORDER = ("before_src", "before_dst", "before_act", "after_src", "after_dst", "after_act")
_PLAN = _FIELDS + _ORDER
_FORWARD = ("open_rows", "forward", "measure_events")  # kernels, one after the other
_BACKWARD = ("backward", "close_rows")  # the second where the chunk's first rows have gradients
MOST_TEAMS = 16  # of a stream: more would mostly wait for one another
_NUM_COEF = 5
_ALIGN = 32  # numbers
_HOPPER_BYTES = 227 * 1024  # of shared memory that a block may have there
_REAL = {torch.float32: "float", torch.float64: "double"}
_SIZES = np.dtype(
    [(name, "i8") for name in ("tape", "weights", "grads")]
    + [("eta", "u8"), ("eps", "f8"), ("cycles", "u8"), ("turns", "u8")]
    + [(name, "i4") for name in ("n", "n0", "num_active", "base", "teams")]
)


def has_cupy() -> bool:
    """Whether the extra `cuda` is installed and a GPU is at hand."""
    try:
        import cupy  # type: ignore[import-not-found, import-untyped, unused-ignore]  # noqa: F401
    except ImportError:
        return False
    return torch.cuda.is_available()


def clock_rate() -> float:
    """Cycles a second of the multiprocessors at their fastest."""
    import cupy

    return 1e3 * float(cupy.cuda.Device().attributes["ClockRate"])


def teams_for(streams: int, device: torch.device) -> int:
    """Teams of each of so many streams, a multiprocessor for every one of them."""
    if device.type != "cuda":
        return 1
    processors = torch.cuda.get_device_properties(device).multi_processor_count
    return max(1, min(MOST_TEAMS, processors // streams))


@cache
def _shared_room() -> int:
    """Bytes of shared memory that a block may have on this GPU; without one, as the tests run the kernels, Hopper's."""
    if not has_cupy():
        return _HOPPER_BYTES
    import cupy

    return int(cupy.cuda.Device().attributes.get("MaxSharedMemoryPerBlockOptin", 48 * 1024))


class Shape(NamedTuple):
    """What the kernels are compiled for."""

    dtype: torch.dtype
    d: int
    k: int
    kr: int
    w: int
    rounds: int
    frame_update: bool
    carry_over: bool
    cluster: int  # blocks of a stream
    timed: bool = False  # whether they count the cycles of STAGES

    @classmethod
    def of(cls, cfg: ModelConfig, dtype: torch.dtype, cluster: int = 1) -> Shape:
        """The shape of a model."""
        k = cfg.num_reflectors
        return cls(
            dtype, cfg.stalk_dim, k, k if cfg.transport else 0, cfg.hidden_dim, cfg.diffusion_steps,
            cfg.frame_update, cfg.carry_over, cluster,
        )  # fmt: skip

    @property
    def threads(self) -> int:
        """Of a block: wide frames leave registers for fewer."""
        return 512 if self.d * self.k <= 256 and self.dtype == torch.float32 else 256

    @property
    def vector(self) -> int:
        """Numbers that a thread loads at once: 16 bytes, where rows divide so."""
        return 4 if self.dtype == torch.float32 and self.d % 4 == 0 and self.w % 4 == 0 else 1

    @property
    def layers(self) -> tuple[int, ...]:
        """Numbers in the weights of each layer, in the source's order."""
        d, w = self.d, self.w
        return 2 * d * w, w * self.k * d, 2 * d * w, w * d, 6 * d * d

    @property
    def shares(self) -> tuple[int, ...]:
        """The same that fall to one block, in the pass where it is more: a layer is shared by its outputs."""
        d, w = self.d, self.w
        outputs = (w, 2 * d), (self.k * d, w), (w, 2 * d), (d, w), (6 * d, 2 * d)  # forward, backward
        return tuple(
            max(size // out * -(-out // self.cluster) for out in both)
            for size, both in zip(self.layers, outputs, strict=True)
        )

    @property
    def work_bytes(self) -> int:
        """Shared memory of the larger of both kernels, weights apart (the source checks it)."""
        wide, warps = max(self.k, 4) * self.d, self.threads // 32
        vectors = 36 + self.k + warps * (4 if self.rounds > 1 else 2) + 4 * self.rounds + 2 * self.cluster
        return self.dtype.itemsize * (vectors * self.d + 6 * self.w + 2 * wide + 2 * self.threads + 64)

    @property
    def resident(self) -> int:
        """The layers whose weights are kept in shared memory, as bits: as many numbers as fit."""

        def numbers(mask: int) -> int:
            return sum(size for bit, size in enumerate(self.shares) if mask >> bit & 1)

        room = (_shared_room() - self.work_bytes) // self.dtype.itemsize
        return max((mask for mask in range(1 << len(self.shares)) if numbers(mask) <= room), key=numbers, default=0)

    @property
    def shared_bytes(self) -> int:
        """All of it."""
        kept = sum(size for bit, size in enumerate(self.shares) if self.resident >> bit & 1)
        return self.work_bytes + kept * self.dtype.itemsize


def source(shape: Shape) -> str:
    """The kernels' text for a shape."""
    constants = {
        "REAL": _REAL[shape.dtype], "D": shape.d, "K": shape.k, "KR": shape.kr, "W": shape.w, "ROUNDS": shape.rounds,
        "FRAME_UPDATE": int(shape.frame_update), "CARRY_OVER": int(shape.carry_over), "CLUSTER": shape.cluster,
        "TIMED": int(shape.timed), "THREADS": shape.threads, "SHARED_BYTES": shape.shared_bytes, "VEC": shape.vector,
        "RESIDENT": shape.resident,
    }  # fmt: skip
    header = "".join(f"#define {name} {value}\n" for name, value in constants.items())
    return header + Path(__file__).with_name("recurrence.cu").read_text()


@cache
def _kernels(shape: Shape) -> dict[str, Any]:
    """The compiled kernels of a shape."""
    import cupy

    module = cupy.RawModule(code=source(shape), options=("-std=c++17",))
    kernels = {name: module.get_function(name) for name in _FORWARD + _BACKWARD}
    for kernel in kernels.values():
        kernel.max_dynamic_shared_size_bytes = shape.shared_bytes
    return kernels


def launch(shape: Shape, name: str, teams: int, *structs: Any) -> None:
    """Run a kernel by so many teams, those of all streams, after whatever PyTorch has under way."""
    import cupy

    kernel = _kernels(shape)[name]
    with cupy.cuda.Stream.from_external(torch.cuda.current_stream()):
        kernel((teams * shape.cluster,), (shape.threads,), structs, shared_mem=shape.shared_bytes)


class DevicePlan:
    """A chunk's plan on the device, which all streams share: the arrays of `plan_words`, one after the other."""

    def __init__(self, words: Tensor, num_events: int, num_initial: int, num_active: int) -> None:
        self.words = words  # keeps the memory
        self.n, self.n0, self.num_active = num_events, num_initial, num_active
        entries = ("act_h", "act_F", "mult_src", "mult_dst", "before_act", "after_act")
        sizes = {"act_ptr": self.n + 1, **dict.fromkeys(entries, num_active)}
        starts = itertools.accumulate((sizes.get(name, self.n) for name in _PLAN), initial=0)
        self.pointers = [words.data_ptr() + 4 * start for start, _ in zip(starts, _PLAN, strict=False)]

    @classmethod
    def of(cls, plan: UpdatePlan, device: torch.device) -> DevicePlan:
        """The plan, in one copy."""
        return cls(send(plan_words(plan), device), plan.num_events, len(plan.nodes), len(plan.act_h))


def plan_words(plan: UpdatePlan) -> NDArray[np.int32]:
    """What the kernels read of a plan, as 32-bit words."""
    order = event_order(plan)
    return np.concatenate([_words(order[name] if name in order else getattr(plan, name)) for name in _PLAN])


def event_order(plan: UpdatePlan) -> dict[str, I64]:
    """What an event has to wait for, of each endpoint and active entry, as the source's `await` takes it.

    `before`: the event that wrote the stalk it reads. `after`: the one that reads the stalk it writes, and whether as
    an endpoint. Both are the nearest event with the same node, so whatever else belongs to the node is in order too.
    """
    n0, first, last = len(plan.nodes), plan.act_ptr[:-1], int(plan.act_ptr[-1])
    owner = np.repeat(np.arange(plan.num_events), np.diff(plan.act_ptr))
    is_end = np.arange(last) - first[owner] < np.where(plan.is_loop, 1, 2)[owner]
    read = plan.act_h[:last].astype(np.int64) - n0
    inside = read >= 0
    before, after = (np.full(len(plan.act_h), -1) for _ in range(2))
    before[:last][inside] = 2 * owner[read[inside]]
    after[read[inside]] = 2 * owner[inside] + is_end[inside]
    second = first + ~plan.is_loop
    return {
        "before_src": before[first], "before_dst": before[second], "before_act": before,
        "after_src": after[first], "after_dst": after[second], "after_act": after,
    }  # fmt: skip


def _words(array: Any) -> Any:
    """As 32-bit words; weights keep their bits."""
    return array.view(np.int32) if array.dtype == np.float32 else array.astype(np.int32)


class Arena:
    """Arrays of P streams in one block; `at` gives one of them as a tensor (P, ...).

    The first `visited` are for the kernels to fill; those of the others, which no kernel visits, are zero.
    """

    def __init__(self, streams: int, shapes: Shapes, like: Tensor, visited: int | None = None) -> None:
        sizes = [-(-math.prod(shape) // _ALIGN) * _ALIGN for shape in shapes.values()]
        self.stride = sum(sizes)
        self.block = like.new_empty(streams, max(self.stride, 1))
        self.block[streams if visited is None else visited :].zero_()
        starts = itertools.accumulate(sizes, initial=0)
        self._places = {name: (start, shape) for start, (name, shape) in zip(starts, shapes.items(), strict=False)}

    def at(self, name: str) -> Tensor:
        """One array of every stream."""
        start, shape = self._places[name]
        part = self.block[:, start : start + math.prod(shape)]
        return part.view(len(part), *shape)

    def struct(self) -> Any:
        """Pointers of the first stream's arrays, in order, as a kernel takes them by value."""
        first, size = self.block.data_ptr(), self.block.element_size()
        return _struct([first + size * start for start, _ in self._places.values()])


def _struct(pointers: list[int]) -> Any:
    return np.array(pointers, np.uint64).view([(f"p{i}", np.uint64) for i in range(len(pointers))])


def cuda_update(
    plan: DevicePlan,
    cfg: ModelConfig,
    eta: Tensor,
    context: Tensor,
    h0: Tensor,
    F0: Tensor,
    weights: Parameters,
    cluster: int = 1,
    cycles: Tensor | None = None,
    streams: int | None = None,
    teams: int = 1,
) -> Logs:
    """Run the recurrence of a chunk for P streams.

    context (P, n, 2, C), h0 (P, n0, d), F0 (P, n0, k, d), weights (P, ...), eta (P,) the capped step sizes -> the logs
    of `tsnn.engine.fused.fused_update`, each with a first dimension P. Each stream has so many `teams` of `cluster`
    thread blocks; to `cycles` (2, STAGES) the first team adds what forward and backward pass take. Where only the first
    `streams` of P count, what the others write is zero.
    """
    shape = Shape.of(cfg, weights.theta.dtype, cluster)._replace(timed=cycles is not None)
    hands = Hands(len(eta) if streams is None else streams, teams)
    return CudaUpdate.apply(plan, shape, hands, cfg.reflector_eps, cycles, eta.double(), context, h0, F0, *weights)  # type: ignore[no-any-return, no-untyped-call]


class Hands(NamedTuple):
    """Who works: streams that count, and teams of each."""

    streams: int
    teams: int


class CudaUpdate(torch.autograd.Function):
    """`cuda_update` as one autograd node."""

    @staticmethod
    def forward(
        ctx: Any,
        plan: DevicePlan,
        shape: Shape,
        hands: Hands,
        eps: float,
        cycles: Tensor | None,
        eta: Tensor,
        context: Tensor,
        h0: Tensor,
        F0: Tensor,
        *weights: Tensor,
    ) -> Logs:
        """The logs of a chunk."""
        p = Parameters(*weights)
        rows = context.flatten(1, 2)
        tape = Arena(len(eta), _tape_shapes(shape, plan), p.theta, hands.streams)
        tape.at("h")[:, : plan.n0], tape.at("F")[:, : plan.n0] = h0, F0
        for layer, bias, to in ((p.frame_in, p.frame_in_bias, "hid_frame"), (p.msg_in, p.msg_in_bias, "hid_msg")):
            share, out = layer[:, :, 2 * shape.d :].mT, tape.at(to)
            for at in groups(len(eta)):
                torch.baddbmm(bias[at, None], rows[at], share[at], out=out[at])
        packed = _forward_weights(shape, p)
        strides = {"tape": tape.stride, "weights": packed.stride}
        turns = _turns(plan, hands, eta.device)
        sizes = _sizes(plan, hands, turns, eta, eps, None if cycles is None else cycles[0], **strides)
        structs = (_struct(plan.pointers), sizes, packed.struct(), tape.struct())
        for name in _FORWARD:
            launch(shape, name, hands.streams * hands.teams, *structs)
        ctx.shape, ctx.plan, ctx.hands, ctx.eps = shape, plan, hands, eps
        ctx.cycles, ctx.tape, ctx.eta = cycles, tape, eta
        ctx.save_for_backward(rows, *weights)
        return tape.at("h"), tape.at("F"), tape.at("energy"), tape.at("smooth")

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *upstream: Tensor) -> Any:
        """Gradients of context, h0, F0 and every weight."""
        shape, plan, hands, tape = ctx.shape, ctx.plan, ctx.hands, ctx.tape
        rows, *weights = ctx.saved_tensors
        p = Parameters(*weights)
        *_, want_context, want_h0, want_F0 = ctx.needs_input_grad[: -len(weights)]
        base = 0 if want_h0 or want_F0 else plan.n0
        grads = Arena(len(ctx.eta), _grad_shapes(shape, plan), p.theta, hands.streams)
        for name, value in zip(("gh", "gF", "up_energy", "up_smooth"), upstream, strict=True):
            grads.at(name).copy_(value)
        for name in ("gN", "gS"):
            grads.at(name).zero_()
        packed = _backward_weights(shape, p)
        strides = {"tape": tape.stride, "weights": packed.stride, "grads": grads.stride}
        turns, cycles = _turns(plan, hands, ctx.eta.device), None if ctx.cycles is None else ctx.cycles[1]
        sizes = _sizes(plan, hands, turns, ctx.eta, ctx.eps, cycles, base=base, **strides)
        structs = (_struct(plan.pointers), sizes, packed.struct(), tape.struct(), grads.struct())
        for name in _BACKWARD if base == 0 else _BACKWARD[:1]:
            launch(shape, name, hands.streams * hands.teams, *structs)
        g_context = _context_gradient(shape, p, grads).view(*rows.shape[:1], plan.n, 2, -1) if want_context else None
        g_h0 = grads.at("gh")[:, : plan.n0] if want_h0 else None
        g_F0 = grads.at("gF")[:, : plan.n0] if want_F0 else None
        g_weights = _weight_gradients(shape, p, rows, tape, grads)
        return None, None, None, None, None, None, g_context, g_h0, g_F0, *g_weights


def _turns(plan: DevicePlan, hands: Hands, device: torch.device) -> Tensor:
    """Where the teams of a stream meet: how far its events are, and how many are taken."""
    return torch.zeros(hands.streams, plan.n + 1, dtype=torch.int32, device=device)


def _sizes(
    plan: DevicePlan, hands: Hands, turns: Tensor, eta: Tensor, eps: float, cycles: Tensor | None, **others: int
) -> Any:
    sizes = np.zeros(1, np.dtype(_SIZES, align=True))
    values = others | {"n": plan.n, "n0": plan.n0, "num_active": plan.num_active, "teams": hands.teams}
    pointers = {"eta": eta, "turns": turns} | ({} if cycles is None else {"cycles": cycles})
    addresses = {name: tensor.data_ptr() for name, tensor in pointers.items()}
    for name, value in (values | addresses | {"eps": eps}).items():
        sizes[name] = value
    return sizes


def _tape_shapes(shape: Shape, plan: DevicePlan) -> Shapes:
    """In the order of the source's Tape."""
    n, n0, num_active, d, k, kr = plan.n, plan.n0, plan.num_active, shape.d, shape.k, shape.kr
    mid = max(shape.rounds - 1, 0) * num_active
    return {
        "h": (n0 + num_active, d), "F": (n0 + 2 * n, k, d), "N": (n0 + 2 * n, kr, d), "G": (n0 + 2 * n, kr, kr),
        "inv": (n0 + 2 * n, kr), "t_h": (n0 + num_active, kr), "x_frame": (2 * n, 2 * d), "hid_frame": (2 * n, shape.w),
        "dF": (2 * n, k * d), "x_msg": (2 * n, 2 * d), "hid_msg": (2 * n, shape.w), "m": (2 * n, d),
        "gates": (2 * n, 4 * d), "gru_h": (2 * n, d), "y_pre": (2 * n, d), "y_ends": ((shape.rounds + 1) * 2 * n, d),
        "coef": (2 * n, _NUM_COEF, kr), "lift": (0 if shape.carry_over else 2 * n, d),
        "t_round": (shape.rounds * num_active, kr), "r_ends": (shape.rounds * 2 * n, d), "mid_h": (mid, d),
        "mid_t": (mid, kr), "energy": (n,), "smooth": (n,),
    }  # fmt: skip


def _grad_shapes(shape: Shape, plan: DevicePlan) -> Shapes:
    """In the order of the source's Grads."""
    n, d, k, kr = plan.n, shape.d, shape.k, shape.kr
    frames = plan.n0 + 2 * n
    return {
        "up_energy": (n,), "up_smooth": (n,), "gh": (plan.n0 + plan.num_active, d), "gF": (frames, k, d),
        "gN": (frames, kr, d), "gS": (frames, kr, kr), "d_frame_hid": (2 * n, shape.w), "d_frame_out": (2 * n, k * d),
        "d_msg_hid": (2 * n, shape.w), "d_msg_out": (2 * n, d), "d_gates": (2 * n, 4 * d), "gD": (n * shape.cluster, d),
    }  # fmt: skip


def _forward_weights(shape: Shape, p: Parameters) -> Arena:
    state = 2 * shape.d
    layers = (p.frame_in[:, :, :state], p.frame_out, p.msg_in[:, :, :state], p.msg_out)
    gru = torch.cat((p.gru_in, p.gru_state), 1)
    return _weight_arena(shape, p, [layer.mT for layer in (*layers, gru)])


def _backward_weights(shape: Shape, p: Parameters) -> Arena:
    state = 2 * shape.d
    layers = (p.frame_in[:, :, :state], p.frame_out, p.msg_in[:, :, :state], p.msg_out)
    gru = torch.cat((p.gru_in, p.gru_state.roll(shape.d, 1)), 2)  # from torch's r, z, n to n, r, z, as in d_gates
    return _weight_arena(shape, p, [*layers, gru])


def _weight_arena(shape: Shape, p: Parameters, layers: list[Tensor]) -> Arena:
    """Layers (P, inputs, outputs), second biases and the gain, in the order of the source's Weights."""
    tensors = [_interleave(layer, shape.vector) for layer in layers]
    tensors += [p.frame_out_bias, p.msg_out_bias, torch.cat((p.gru_in_bias, p.gru_state_bias), 1)]
    tensors.append(nn.functional.softplus(p.theta))
    arena = Arena(len(p.theta), {str(i): tuple(tensor.shape[1:]) for i, tensor in enumerate(tensors)}, p.theta)
    for i, tensor in enumerate(tensors):
        arena.at(str(i)).copy_(tensor)
    return arena


def _interleave(layer: Tensor, vector: int) -> Tensor:
    """(P, inputs, outputs) -> (P, inputs / vector, outputs, vector): a thread's inputs of one output side by side."""
    streams, inputs, outputs = layer.shape
    return layer.view(streams, inputs // vector, vector, outputs).transpose(2, 3)


def _context_gradient(shape: Shape, p: Parameters, grads: Arena) -> Tensor:
    context, parts = slice(2 * shape.d, None), []
    for at in groups(len(p.theta)):
        g = torch.bmm(grads.at("d_msg_hid")[at], p.msg_in[at, :, context])
        parts.append(g.baddbmm_(grads.at("d_frame_hid")[at], p.frame_in[at, :, context]) if shape.frame_update else g)
    return torch.cat(parts)


def _weight_gradients(
    shape: Shape, p: Parameters, rows: Tensor, tape: Arena, grads: Arena
) -> tuple[Tensor | None, ...]:
    """One product per weight over the endpoint rows of the chunk."""
    d, d_gates = shape.d, grads.at("d_gates")
    frame: list[Tensor | None] = [None] * 4
    if shape.frame_update:
        first = _product(grads.at("d_frame_hid"), torch.cat((tape.at("x_frame"), rows), 2))
        frame = [*first, *_product(grads.at("d_frame_out"), tape.at("hid_frame"))]
    message = [
        *_product(grads.at("d_msg_hid"), torch.cat((tape.at("x_msg"), rows), 2)),
        *_product(grads.at("d_msg_out"), tape.at("hid_msg")),
    ]
    gru_in = _product(d_gates[:, :, d:], tape.at("m"))
    state = _product(d_gates[:, :, : 3 * d], tape.at("x_msg")[:, :, :d])
    gru_state = [g.roll(-d, 1) for g in state]
    gain = _sum_rows(grads.at("gD"))
    return *frame, *message, *gru_in, *gru_state, gain * torch.sigmoid(p.theta)


def _product(g: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    """Gradients of weight and bias from rows of output gradients and inputs."""
    return torch.cat([torch.bmm(g[at].mT, x[at]) for at in groups(len(g))]), _sum_rows(g)


def _sum_rows(g: Tensor) -> Tensor:
    return torch.cat([g[at].sum(1) for at in groups(len(g))])


def groups(streams: int) -> list[slice]:
    """The streams, `GROUP` at a time."""
    return [slice(start, min(start + GROUP, streams)) for start in range(0, streams, GROUP)]
