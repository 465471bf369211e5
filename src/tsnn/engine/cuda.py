"""The cuda engine: a chunk's recurrence on the GPU, of one model or of a population of models of one shape.

Every tensor here has a first dimension P, the streams; each stream has a thread block of `recurrence.cu`, or several
that take its events in turn (`teams_for`): events that share no node run side by side, and no bit depends on it. As in
`tsnn.engine.fused`, matrix products that need no recurrence stand outside. They take `GROUP` streams at a time: the
library that makes them chooses its order of summation by their shape, and a stream must not feel how many others there
are. CuPy (extra `cuda`) compiles the kernels at run time for the shape of the model and caches them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from tsnn.config import ModelConfig
from tsnn.engine.layout import (
    SLOTS,
    Dims,
    Grads,
    Order,
    Parameters,
    Plan,
    Shapes,
    Tape,
    layer_sizes,
    rows,
    shapes,
    weight_gradients,
)
from tsnn.plan.chunk import UpdatePlan
from tsnn.transfer import send
from tsnn.types import I64

Logs = tuple[Tensor, Tensor, Tensor, Tensor]

GROUP = 32  # streams of one product
STAGES = ("reads", "frame network", "new frames", "message and GRU", "diffusion")  # of an event, forward and backward
_PLAN = rows(Plan) | rows(Order, "cuda")
_FORWARD = ("open_rows", "forward", "measure_events")  # kernels, one after the other
_BACKWARD = ("backward", "close_rows")  # the second where the chunk's first rows have gradients
MOST_TEAMS = 16  # of a stream: more would mostly wait for one another
_ALIGN = 32  # numbers
_REAL = {torch.float32: "float", torch.float64: "double"}
_COLUMN = {"float32": "float"}  # any other column of the plan is int
# The launch's own numbers, as the source's struct Sizes has them: C type, what it is.
SIZES = {
    "tape": ("long long", "numbers from one stream's arrays to the next one's"),
    "weights": ("long long", "likewise"),
    "grads": ("long long", "likewise"),
    "eta": ("const double*", "one a stream"),
    "eps": ("double", "a shorter reflector is the identity"),
    "cycles": ("long long*", "of each stage, if TIMED"),
    "turns": ("int*", "of each stream how far its events are, and last how many are taken; zeros before a pass"),
    "n": ("int", "events"),
    "n0": ("int", "first rows of both logs"),
    "nA": ("int", "active entries"),
    "base": ("int", "rows below it are constants: no gradient is kept for them"),
    "teams": ("int", "of a stream"),
}
_SIZES_TYPE = np.dtype(
    [(name, "u8" if kind.endswith("*") else {"long long": "i8", "double": "f8", "int": "i4"}[kind])
     for name, (kind, _) in SIZES.items()],
    align=True,
)  # fmt: skip
_VECTORS = ("frame_bias", "msg_bias", "gru_bias", "gain")  # of the source's struct Weights, behind its matrices


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
        return 227 * 1024
    import cupy

    return int(cupy.cuda.Device().attributes.get("MaxSharedMemoryPerBlockOptin", 48 * 1024))


class Shape(NamedTuple):
    """What the kernels are compiled for."""

    dims: Dims  # of a chunk without events
    dtype: torch.dtype
    cluster: int  # blocks of a stream
    timed: bool = False  # whether they count the cycles of STAGES

    @classmethod
    def of(cls, cfg: ModelConfig, dtype: torch.dtype, cluster: int = 1) -> Shape:
        """The shape of a model."""
        return cls(Dims.of(cfg), dtype, cluster)

    @property
    def threads(self) -> int:
        """Threads of a block: wide frames leave registers for fewer."""
        return 512 if self.dims.d * self.dims.k <= 256 and self.dtype == torch.float32 else 256

    @property
    def vector(self) -> int:
        """Numbers that a thread loads at once: 16 bytes, where rows divide so."""
        return 4 if self.dtype == torch.float32 and self.dims.d % 4 == 0 and self.dims.w % 4 == 0 else 1

    def _layer_sizes(self) -> dict[str, tuple[int, int]]:
        return layer_sizes(self.dims.d, self.dims.k, self.dims.w)

    @property
    def outputs(self) -> dict[str, tuple[int, int]]:
        """Outputs of each layer, forward and backward; the GRU's two matrices are one."""
        pairs = {name: (outputs, inputs) for name, (inputs, outputs) in self._layer_sizes().items()}
        of_input, of_state = pairs.pop("gru_in"), pairs.pop("gru_state")
        return pairs | {"gru_both": (of_input[0] + of_state[0], of_input[1] + of_state[1])}

    @property
    def layers(self) -> tuple[int, ...]:
        """Numbers in the weights of each layer."""
        *sizes, of_input, of_state = (inputs * outputs for inputs, outputs in self._layer_sizes().values())
        return *sizes, of_input + of_state

    @property
    def shares(self) -> tuple[int, ...]:
        """How many of them one block has, in the pass where it is more: blocks share a layer by its outputs."""
        layers = zip(self.layers, self.outputs.values(), strict=True)
        return tuple(max(size // out * -(-out // self.cluster) for out in both) for size, both in layers)

    @property
    def work_bytes(self) -> int:
        """Shared memory of the larger of both kernels, weights apart (the source checks it)."""
        d, k, w, rounds, warps = self.dims.d, self.dims.k, self.dims.w, self.dims.rounds, self.threads // 32
        vectors = 36 + k + warps * (4 if rounds > 1 else 2) + 4 * rounds + 2 * self.cluster
        return self.dtype.itemsize * (vectors * d + 6 * w + 2 * max(k, 4) * d + 2 * self.threads + 64)

    @property
    def resident(self) -> int:
        """The layers whose weights are kept in shared memory, as bits: as many numbers as fit."""
        room = (_shared_room() - self.work_bytes) // self.dtype.itemsize
        fitting = [mask for mask in range(1 << len(self.shares)) if self._numbers(mask) <= room]
        return max(fitting, key=self._numbers, default=0)

    def _numbers(self, mask: int) -> int:
        return sum(size for bit, size in enumerate(self.shares) if mask >> bit & 1)

    @property
    def shared_bytes(self) -> int:
        """Shared memory of a block: what the kernels work with, and the weights that it keeps."""
        return self.work_bytes + self._numbers(self.resident) * self.dtype.itemsize


def source(shape: Shape) -> str:
    """The kernels' text for a shape: its constants, the structs of the tables, and recurrence.cu."""
    constants = {
        name.upper(): int(getattr(shape.dims, name) or 0)
        for name, row in rows(Dims).items()
        if row.source == "model" and name != "eps"
    } | {
        "REAL": _REAL[shape.dtype], "CLUSTER": shape.cluster, "TIMED": int(shape.timed), "THREADS": shape.threads,
        "SHARED_BYTES": shape.shared_bytes, "VEC": shape.vector, "RESIDENT": shape.resident,
    }  # fmt: skip
    forward, backward = zip(*shape.outputs.values(), strict=True)
    parts = [f"#define {name} {value}" for name, value in constants.items()]
    parts += [
        "typedef REAL real;",
        f"enum {{ {', '.join(SLOTS)}, NUM_COEF }};  // slots of Tape.coef",
        f"enum Layer {{ {', '.join(name.upper() for name in shape.outputs)}, NUM_LAYERS }};",
        f"constexpr int SIZES[NUM_LAYERS] = {_braces(shape.layers)};",
        f"constexpr int OUTPUTS[2][NUM_LAYERS] = {{{_braces(forward)}, {_braces(backward)}}};",
        _declared("Plan", {name: (f"const {_COLUMN.get(row.kind, 'int')}*", row.what) for name, row in _PLAN.items()}),
        _declared("Sizes", SIZES),
        _declared("Weights", {"matrix[NUM_LAYERS]": ("real*", ""), **dict.fromkeys(_VECTORS, ("real*", ""))}),
    ]
    for table in (Tape, Grads):
        fields = {name: ("real*", f"({row.shape}) {row.what}".strip()) for name, row in rows(table, "cuda").items()}
        parts.append(_declared(table.__name__, fields))
    return "\n".join(parts) + "\n" + Path(__file__).with_name("recurrence.cu").read_text()


def _declared(name: str, fields: dict[str, tuple[str, str]]) -> str:
    """A struct of C++; of each field, its type and what it is."""
    lines = [f"    {kind} {field};" + f"  // {what}" * bool(what) for field, (kind, what) in fields.items()]
    return "\n".join([f"struct {name} {{", *lines, "};"])


def _braces(numbers: Iterable[int]) -> str:
    return "{" + ", ".join(map(str, numbers)) + "}"


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
    """Run a kernel with so many teams for all streams together, once PyTorch's work so far is done."""
    import cupy

    kernel = _kernels(shape)[name]
    with cupy.cuda.Stream.from_external(torch.cuda.current_stream()):
        kernel((teams * shape.cluster,), (shape.threads,), structs, shared_mem=shape.shared_bytes)


class DevicePlan:
    """A chunk's plan on the device, which all streams share: the arrays of `plan_words`, one after the other."""

    def __init__(self, words: Tensor, num_events: int, num_initial: int, num_active: int) -> None:
        self.words = words  # keeps the memory
        self.n, self.n0, self.nA = num_events, num_initial, num_active
        columns = [shapes(table, "cuda", {"n": self.n, "nA": self.nA}).values() for table in (Plan, Order)]
        starts = itertools.accumulate((length for part in columns for (length,) in part), initial=0)
        self.struct = _struct([words.data_ptr() + 4 * start for start, _ in zip(starts, _PLAN, strict=False)])

    def dims(self, shape: Shape) -> Dims:
        """Of the chunk, for a model of this shape."""
        return shape.dims._replace(n=self.n, n0=self.n0, nA=self.nA)

    @classmethod
    def of(cls, plan: UpdatePlan, device: torch.device) -> DevicePlan:
        """The plan, in one copy."""
        return cls(send(plan_words(plan), device), plan.num_events, len(plan.nodes), len(plan.act_h))


def plan_words(plan: UpdatePlan) -> NDArray[np.int32]:
    """What the kernels read of a plan, as 32-bit words: integers, and float32 numbers bit for bit."""
    columns = vars(plan) | event_order(plan)
    arrays = [columns[name] for name in _PLAN]
    return np.concatenate([a.view(np.int32) if a.dtype == np.float32 else a.astype(np.int32) for a in arrays])


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


class Arena:
    """Arrays of P streams in one block; `at` gives one of them as a tensor (P, ...).

    Those of the first `members` are for the kernels to fill; the others', which no kernel visits, are zero.
    """

    def __init__(self, streams: int, shapes: Shapes, like: Tensor, members: int | None = None) -> None:
        sizes = [-(-math.prod(shape) // _ALIGN) * _ALIGN for shape in shapes.values()]
        self.stride = sum(sizes)
        self.block = like.new_empty(streams, max(self.stride, 1))
        self.block[streams if members is None else members :].zero_()
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
    plan: DevicePlan, cfg: ModelConfig, eta: Tensor, context: Tensor, h0: Tensor, F0: Tensor, weights: Parameters,
    cluster: int = 1, cycles: Tensor | None = None, members: int | None = None, teams: int = 1,
) -> Logs:  # fmt: skip
    """Run the recurrence of a chunk for P streams.

    context (P, n, 2, C), h0 (P, n0, d), F0 (P, n0, k, d), weights (P, ...), eta (P,) the capped step sizes -> the logs
    of `tsnn.engine.fused.fused_update`, each with a first dimension P. Each stream has so many `teams` of `cluster`
    thread blocks; to `cycles` (2, STAGES) the first team adds what forward and backward pass take. Where only the first
    `members` streams count, what the others write is zero.
    """
    shape = Shape.of(cfg, weights.theta.dtype, cluster)._replace(timed=cycles is not None)
    hands = Hands(len(eta) if members is None else members, teams)
    return CudaUpdate.apply(plan, shape, hands, cycles, eta.double(), context, h0, F0, *weights)  # type: ignore[no-any-return, no-untyped-call]


class Hands(NamedTuple):
    """Who works: streams that count, and teams of each."""

    streams: int
    teams: int


class CudaUpdate(torch.autograd.Function):
    """`cuda_update` as one autograd node."""

    @staticmethod
    def forward(
        ctx: Any, plan: DevicePlan, shape: Shape, hands: Hands, cycles: Tensor | None, *tensors: Tensor
    ) -> Logs:
        """The logs of a chunk, from eta, context, h0, F0 and the weights."""
        eta, context, h0, F0, *weights = tensors
        p = Parameters(*weights)
        context_rows, dims = context.flatten(1, 2), plan.dims(shape)
        tape = Arena(len(eta), shapes(Tape, "cuda", dims._asdict()), p.theta, hands.streams)
        tape.at("h")[:, : plan.n0] = h0
        tape.at("F")[:, : plan.n0] = F0
        for layer, bias, to in ((p.frame_in, p.frame_in_bias, "hid_frame"), (p.msg_in, p.msg_in_bias, "hid_msg")):
            share, out = layer[:, :, 2 * dims.d :].mT, tape.at(to)
            for at in groups(len(eta)):
                torch.baddbmm(bias[at, None], context_rows[at], share[at], out=out[at])
        packed = _weights(shape, p, transposed=False)
        turns = _turns(plan, hands, eta.device)
        sizes = _sizes(dims, hands, turns, eta, None if cycles is None else cycles[0], tape=tape, weights=packed)
        for name in _FORWARD:
            launch(shape, name, hands.streams * hands.teams, plan.struct, sizes, packed.struct(), tape.struct())
        ctx.state = (plan, shape, hands, cycles, eta, tape)
        ctx.save_for_backward(context_rows, *weights)
        return tape.at("h"), tape.at("F"), tape.at("energy"), tape.at("smooth")

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *upstream: Tensor) -> Any:
        """Gradients of context, h0, F0 and every weight."""
        plan, shape, hands, cycles, eta, tape = ctx.state
        context_rows, *weights = ctx.saved_tensors
        p, dims = Parameters(*weights), plan.dims(shape)
        *_, want_context, want_h0, want_F0 = ctx.needs_input_grad[: -len(weights)]
        base = 0 if want_h0 or want_F0 else plan.n0
        symbols = {**dims._asdict(), "base": 0, "gain_rows": plan.n * shape.cluster}
        grads = Arena(len(eta), shapes(Grads, "cuda", symbols), p.theta, hands.streams)
        for name, value in zip(("gh", "gF", "up_energy", "up_smooth"), upstream, strict=True):
            grads.at(name).copy_(value)
        grads.at("gN").zero_()
        grads.at("gS").zero_()
        packed = _weights(shape, p, transposed=True)
        turns = _turns(plan, hands, eta.device)
        own = None if cycles is None else cycles[1]
        sizes = _sizes(dims, hands, turns, eta, own, base, tape=tape, weights=packed, grads=grads)
        structs = (plan.struct, sizes, packed.struct(), tape.struct(), grads.struct())
        for name in _BACKWARD if base == 0 else _BACKWARD[:1]:
            launch(shape, name, hands.streams * hands.teams, *structs)
        g_context = _context_gradient(dims, p, grads) if want_context else None
        g_h0 = grads.at("gh")[:, : plan.n0] if want_h0 else None
        g_F0 = grads.at("gF")[:, : plan.n0] if want_F0 else None
        found = weight_gradients(dims, tape.at, grads.at, partial(_layer_gradients, context_rows))
        g_theta = _sum_rows(grads.at("gD")) * torch.sigmoid(p.theta)
        return None, None, None, None, None, g_context, g_h0, g_F0, *found, g_theta


def _turns(plan: DevicePlan, hands: Hands, device: torch.device) -> Tensor:
    """Where the teams of a stream meet: how far its events are, and how many are taken."""
    return torch.zeros(hands.streams, plan.n + 1, dtype=torch.int32, device=device)


def _sizes(
    dims: Dims, hands: Hands, turns: Tensor, eta: Tensor, cycles: Tensor | None, base: int = 0, **arenas: Arena
) -> Any:
    sizes = np.zeros(1, _SIZES_TYPE)
    values = {"n": dims.n, "n0": dims.n0, "nA": dims.nA, "eps": dims.eps, "base": base, "teams": hands.teams}
    pointers = {"eta": eta, "turns": turns} | ({} if cycles is None else {"cycles": cycles})
    addresses = {name: tensor.data_ptr() for name, tensor in pointers.items()}
    strides = {name: arena.stride for name, arena in arenas.items()}
    for name, value in (values | addresses | strides).items():
        sizes[name] = value
    return sizes


def _weights(shape: Shape, p: Parameters, transposed: bool) -> Arena:
    """The source's Weights: matrices (P, inputs, outputs) of a pass, the backward one's transposed, and vectors."""
    *sizes, _, _ = shape._layer_sizes().items()
    layers = [getattr(p, name)[:, :, :inputs] for name, (inputs, _) in sizes]
    if transposed:  # torch's gates stand in the order r, z, n, those of d_gates in the order n, r, z
        layers.append(torch.cat((p.gru_in, p.gru_state.roll(shape.dims.d, 1)), 2))
    else:
        layers = [layer.mT for layer in (*layers, torch.cat((p.gru_in, p.gru_state), 1))]
    gru_bias = torch.cat((p.gru_in_bias, p.gru_state_bias), 1)
    vectors = (p.frame_out_bias, p.msg_out_bias, gru_bias, nn.functional.softplus(p.theta))
    tensors = {name: _interleave(layer, shape.vector) for name, layer in zip(shape.outputs, layers, strict=True)}
    tensors |= dict(zip(_VECTORS, vectors, strict=True))
    arena = Arena(len(p.theta), {name: tuple(tensor.shape[1:]) for name, tensor in tensors.items()}, p.theta)
    for name, tensor in tensors.items():
        arena.at(name).copy_(tensor)
    return arena


def _interleave(layer: Tensor, vector: int) -> Tensor:
    """(P, inputs, outputs) -> (P, inputs / vector, outputs, vector): a thread's inputs of one output side by side."""
    streams, inputs, outputs = layer.shape
    return layer.view(streams, inputs // vector, vector, outputs).transpose(2, 3)


def _context_gradient(dims: Dims, p: Parameters, grads: Arena) -> Tensor:
    context, parts = slice(2 * dims.d, None), []
    for at in groups(len(p.theta)):
        g = torch.bmm(grads.at("d_msg_hid")[at], p.msg_in[at, :, context])
        parts.append(g.baddbmm_(grads.at("d_frame_hid")[at], p.frame_in[at, :, context]) if dims.frame_update else g)
    return torch.cat(parts).view(len(p.theta), dims.n, 2, -1)


def _layer_gradients(context_rows: Tensor, g: Tensor, x: Tensor, context: bool) -> tuple[Tensor, Tensor]:
    """Gradients of weight and bias from rows of output gradients and inputs."""
    x = torch.cat((x, context_rows), 2) if context else x
    return torch.cat([torch.bmm(g[at].mT, x[at]) for at in groups(len(g))]), _sum_rows(g)


def _sum_rows(g: Tensor) -> Tensor:
    return torch.cat([g[at].sum(1) for at in groups(len(g))])


def groups(streams: int) -> list[slice]:
    """The streams, `GROUP` at a time."""
    return [slice(start, min(start + GROUP, streams)) for start in range(0, streams, GROUP)]
