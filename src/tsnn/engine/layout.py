"""How the recurrence lies in memory, said once: every array, size and switch that the engines share.

A row is a field of one of the tuples below: its name, its shape in the symbols of `Dims`, who writes it, what it is.
All else is derived: the arrays of both compiled engines, the header of the CUDA source, the order of the weights and of
their gradients. The kernels take the same tuples, of pointers. Notation: see `tsnn.engine.forward`.

A new switch of the recurrence is a field of ModelConfig, a row of `Dims`, and what it does: in `reference.py`,
`forward.py`, `backward.py` and `recurrence.cu`, where it is `dims.name` or, in the last, a constant NAME. One that is
None instead of False when off, as `kept` is, has another type then, so that Numba compiles the passes apart and those
of runs without it are as if the switch did not exist. Ask for it by `is not None`: to Numba, None counts as true.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cache
from operator import attrgetter
from typing import Annotated, Any, NamedTuple, get_type_hints

from torch import Tensor, nn

Array = Any  # of numpy outside the kernels, a pointer inside
Shapes = dict[str, tuple[int, ...]]
Read = Callable[[str], Tensor]  # a row of a table, by its name
SLOTS = ("PRE", "CARRY", "POST", "MOVED", "GRU")  # of Tape.coef: which application of U at an endpoint
NUM_COEF = len(SLOTS)
PRE, CARRY, POST, MOVED, GRU = range(NUM_COEF)


class Size(NamedTuple):
    """A row of `Dims`: computed from the model's settings, as a row padded to whole vectors, or given for a chunk."""

    source: str  # model, padded, or given
    value: str
    what: str


class Row(NamedTuple):
    """A row of any other table. `kind` is its number type, of the kernels on the host where engines differ."""

    shape: str
    writer: str
    what: str
    engine: str = "both"  # fused, cuda or both
    kind: str = "real"


class Dims(NamedTuple):
    """Sizes and switches."""

    d: Annotated[int, Size("model", "stalk_dim", "numbers of a stalk")]
    k: Annotated[int, Size("model", "num_reflectors", "rows of a frame")]
    kr: Annotated[int, Size("model", "num_reflectors if transport else 0", "reflectors applied")]
    w: Annotated[int, Size("model", "hidden_dim", "hidden width of both networks")]
    rounds: Annotated[int, Size("model", "diffusion_steps", "K, rounds of diffusion")]
    frame_update: Annotated[bool, Size("model", "frame_update", "frames move (eq:frame_update)")]
    kept: Annotated[bool | None, Size("model", "frame_length == 'kept' or None", "reflectors keep their length")]
    carry_over: Annotated[bool, Size("model", "carry_over", "a stalk turns with its frame (prop:carry_over)")]
    eps: Annotated[float, Size("model", "reflector_eps", "a shorter reflector is the identity")]
    lanes: Annotated[int, Size("given", "", "numbers of a vector: 1 where rows are not padded")]
    dp: Annotated[int, Size("padded", "d", "")]
    wp: Annotated[int, Size("padded", "w", "")]
    kdp: Annotated[int, Size("padded", "k * d", "")]
    d2p: Annotated[int, Size("padded", "2 * d", "")]
    d3p: Annotated[int, Size("padded", "3 * d", "")]
    n: Annotated[int, Size("given", "", "events of the chunk")] = 0
    n0: Annotated[int, Size("given", "", "nodes of the chunk: first rows of both logs")] = 0
    nA: Annotated[int, Size("given", "", "active entries of all events")] = 0
    eta: Annotated[float, Size("given", "", "capped step size (D-11)")] = 0.0

    @classmethod
    def of(cls, settings: Iterable[tuple[str, Any]], lanes: int = 1) -> Dims:
        """Of the settings of a model (a ModelConfig), for a chunk without events."""
        return _dims(tuple(settings), lanes)


class Plan(NamedTuple):
    """Columns of an UpdatePlan, and for teams that take turns what an event has to wait for (`cuda.event_order`)."""

    src_h: Annotated[Array, Row("n", "plan", "stalk row of the source before the event", kind="int32")]
    dst_h: Annotated[Array, Row("n", "plan", "of the destination", kind="int32")]
    src_F: Annotated[Array, Row("n", "plan", "frame row of the source before the event", kind="int32")]
    dst_F: Annotated[Array, Row("n", "plan", "of the destination", kind="int32")]
    act_ptr: Annotated[Array, Row("n + 1", "plan", "where each event's active entries begin", kind="int64")]
    act_h: Annotated[Array, Row("nA", "plan", "stalk row that an entry starts from", kind="int32")]
    act_F: Annotated[Array, Row("nA", "plan", "frame row that it is diffused under", kind="int32")]
    is_loop: Annotated[Array, Row("n", "plan", "self-loops (D-08)", kind="uint8")]
    mult_src: Annotated[Array, Row("nA", "plan", "edges of an entry with the source", kind="float32")]
    mult_dst: Annotated[Array, Row("nA", "plan", "with the destination", kind="float32")]


class Order(NamedTuple):
    """Columns of `cuda.event_order`: of both endpoints and of each entry, the event to wait for."""

    before_src: Annotated[Array, Row("n", "plan", "wrote what the source reads", "cuda", "int32")]
    before_dst: Annotated[Array, Row("n", "plan", "wrote what the destination reads", "cuda", "int32")]
    before_act: Annotated[Array, Row("nA", "plan", "wrote what the entry reads", "cuda", "int32")]
    after_src: Annotated[Array, Row("n", "plan", "reads what the source writes", "cuda", "int32")]
    after_dst: Annotated[Array, Row("n", "plan", "reads what the destination writes", "cuda", "int32")]
    after_act: Annotated[Array, Row("nA", "plan", "reads what the entry writes", "cuda", "int32")]


class Tape(NamedTuple):
    """Everything the forward pass writes: the logs, and what the adjoints read again."""

    h: Annotated[Array, Row("n0 + nA, d", "forward", "stalk versions; the host writes the first n0")]
    F: Annotated[Array, Row("n0 + 2 * n, k, d", "forward", "frame versions, likewise")]
    N: Annotated[Array, Row("n0 + 2 * n, kr, d", "forward", "unit reflectors, zero where |f| <= eps")]
    G: Annotated[Array, Row("n0 + 2 * n, kr, kr", "forward", "twice their Gram matrix")]
    inv: Annotated[Array, Row("n0 + 2 * n, kr", "forward", "1/|f|, zero where |f| <= eps")]
    t_h: Annotated[Array, Row("n0 + nA, kr", "forward", "coefficients of U h")]
    ready_h: Annotated[Array, Row("n0", "forward", "whether t_h of a first row is there", "fused", "uint8")]
    ready_F: Annotated[Array, Row("n0", "forward", "whether N, G, inv of a first row are", "fused", "uint8")]
    x_frame: Annotated[Array, Row("2 * n, 2 * d", "forward", "state part of the inputs of MLP_frame")]
    hid_frame: Annotated[Array, Row("2 * n, wp", "forward", "its hidden layer; comes holding the context's share")]
    dF: Annotated[Array, Row("2 * n, kdp", "forward", "its output, the step of the frame")]
    stretch: Annotated[Array, Row("2 * n, k if kept else 0", "forward", "what moved reflectors are scaled by")]
    x_msg: Annotated[Array, Row("2 * n, 2 * d", "forward", "state part of the inputs of MLP_msg")]
    hid_msg: Annotated[Array, Row("2 * n, wp", "forward", "as hid_frame")]
    m: Annotated[Array, Row("2 * n, dp", "forward", "messages")]
    gates: Annotated[Array, Row("2 * n, 4 * d", "forward", "reset, update, candidate, the candidate's state part")]
    gru_h: Annotated[Array, Row("2 * n, d", "forward", "stalk after the GRU, before diffusion")]
    y_pre: Annotated[Array, Row("2 * n, d", "forward", "y before the event")]
    y_moved: Annotated[Array, Row("0 if carry_over else 2 * n, d", "forward", "y of the same stalk, new frame")]
    y_ends: Annotated[Array, Row("(rounds + 1) * 2 * n, d", "forward", "y before each round and after the last")]
    coef: Annotated[Array, Row("2 * n, NUM_COEF, kr", "forward", "coefficients of each application of U (SLOTS)")]
    t_round: Annotated[Array, Row("rounds * nA, kr", "forward", "coefficients of U^T r in each round")]
    r_ends: Annotated[Array, Row("rounds * 2 * n, d", "forward", "r of the endpoints in each round")]
    mid_h: Annotated[Array, Row("max(rounds - 1, 0) * nA, d", "forward", "stalks between rounds")]
    mid_t: Annotated[Array, Row("max(rounds - 1, 0) * nA, kr", "forward", "coefficients of U of those")]
    energy: Annotated[Array, Row("n", "forward", "|h_u - Q_uv h_v|^2 after diffusion (eq:loss_energy)")]
    smooth: Annotated[Array, Row("n", "forward", "|dF|^2 of both endpoints (eq:loss_smooth)")]


class Grads(NamedTuple):
    """What the backward pass reads and writes. Rows of versions below `base` belong to constants and are not kept.

    In the cuda engine `base` is 0 here, gh and gF come in holding the upstream gradients, and gD is kept by events.
    """

    up_h: Annotated[Array, Row("n0 + nA, d", "host", "gradients of the stalk log, from scores", "fused")]
    up_F: Annotated[Array, Row("n0 + 2 * n, k, d", "host", "of the frame log", "fused")]
    up_energy: Annotated[Array, Row("n", "host", "of the energies")]
    up_smooth: Annotated[Array, Row("n", "host", "of the squared steps")]
    gh: Annotated[Array, Row("n0 + nA - base, d", "backward", "of a stalk, from the one event that reads it")]
    has_gh: Annotated[Array, Row("n0 + nA - base", "backward", "whether there was one", "fused", "uint8")]
    gN: Annotated[Array, Row("n0 + 2 * n - base, kr, d", "backward", "of unit reflectors, collected; begins as 0")]
    gS: Annotated[Array, Row("n0 + 2 * n - base, kr, kr", "backward", "S of tsnn.engine.backward; begins as 0")]
    gF: Annotated[Array, Row("n0 + 2 * n - base, k, d", "backward", "of a frame, from the event that moves it on")]
    has_gF: Annotated[Array, Row("n0 + 2 * n - base", "backward", "whether there was one", "fused", "uint8")]
    d_frame_hid: Annotated[Array, Row("2 * n, wp", "backward", "of layer outputs, for the weights' gradients")]
    d_frame_out: Annotated[Array, Row("2 * n, k * d", "backward", "")]
    d_msg_hid: Annotated[Array, Row("2 * n, wp", "backward", "")]
    d_msg_out: Annotated[Array, Row("2 * n, dp", "backward", "")]
    d_gates: Annotated[Array, Row("2 * n, 4 * d", "backward", "candidate's state part, reset, update, candidate")]
    gD: Annotated[Array, Row("gain_rows, d", "backward", "of the gain; begins as 0")]
    g_h0: Annotated[Array, Row("0 if base else n0, d", "backward", "of the first stalks, if wanted", "fused")]
    g_F0: Annotated[Array, Row("0 if base else n0, k, d", "backward", "of the first frames", "fused")]


class Scratch(NamedTuple):
    """What the forward pass of the fused engine needs for one event."""

    gru_a: Annotated[Array, Row("2, d3p", "forward", "affine parts of the gates, from the message")]
    gru_b: Annotated[Array, Row("2, d3p", "forward", "and from the state")]
    r: Annotated[Array, Row("d", "forward", "a leaf's sum")]
    mixed: Annotated[Array, Row("2, d", "forward", "center of a leaf of both endpoints, and a sum for it")]


class BackScratch(NamedTuple):
    """What its backward pass needs for one event."""

    s: Annotated[Array, Row("kr + d", "backward", "coefficients of an adjoint, and behind them its vector")]
    gh: Annotated[Array, Row("most, d", "backward", "of the stalks of all entries; `most` entries has an event")]
    g_hbar: Annotated[Array, Row("2, dp", "backward", "of the endpoints' carried stalks")]
    g_x: Annotated[Array, Row("2, d2p", "backward", "of the inputs of a network")]
    g_h: Annotated[Array, Row("2, d", "backward", "of the stalks before the event")]
    g_y: Annotated[Array, Row("2, d", "backward", "of their y")]
    gr: Annotated[Array, Row("2, d", "backward", "of the endpoints' r")]
    sums: Annotated[Array, Row("2, d", "backward", "of the endpoints' y in a round")]
    mixed: Annotated[Array, Row("2, d", "backward", "as in Scratch, for y")]
    mixed_back: Annotated[Array, Row("2, d", "backward", "and for gr")]
    zeros: Annotated[Array, Row("d + kr", "backward", "a center, and coefficients, where there are none")]
    sink: Annotated[Array, Row("d", "backward", "a sum that nobody reads")]
    r: Annotated[Array, Row("d", "backward", "an entry's r")]
    gq: Annotated[Array, Row("d", "backward", "gradient of U^T r")]
    t_q: Annotated[Array, Row("kr", "backward", "its coefficients")]
    gy: Annotated[Array, Row("d", "backward", "gradient of the entry's y")]
    t_y: Annotated[Array, Row("kr", "backward", "its coefficients")]


class Weights(NamedTuple):
    """Matrices packed for `panels.layer`, and padded biases, empty in the backward pass; D, the gain."""

    frame_in: Array
    frame_out: Array
    msg_in: Array
    msg_out: Array
    gru_in: Array
    gru_state: Array
    frame_out_bias: Array
    msg_out_bias: Array
    gru_in_bias: Array
    gru_state_bias: Array
    D: Array


class Layer(NamedTuple):
    """A matrix of the update networks; that of a first layer has columns for the context behind the state's."""

    inputs: str  # of the state
    outputs: str
    reads: str  # row of Tape that it multiplies
    gradient: str  # row of Grads: gradients of its outputs,
    after_state: bool = False  # from column d on: the first d belong to gru_state alone
    context: bool = False


LAYERS = {
    "frame_in": Layer("2 * d", "w", "x_frame", "d_frame_hid", context=True),
    "frame_out": Layer("w", "k * d", "hid_frame", "d_frame_out"),
    "msg_in": Layer("2 * d", "w", "x_msg", "d_msg_hid", context=True),
    "msg_out": Layer("w", "d", "hid_msg", "d_msg_out"),
    "gru_in": Layer("d", "3 * d", "m", "d_gates", after_state=True),
    "gru_state": Layer("d", "3 * d", "x_msg", "d_gates"),  # the kernels' order is n, r, z, torch's r, z, n
}


class Parameters(NamedTuple):
    """The tensors of the recurrence, each with its name in the model's updater."""

    frame_in: Annotated[Tensor, "frame_in.weight"]
    frame_in_bias: Annotated[Tensor, "frame_in.bias"]
    frame_out: Annotated[Tensor, "frame_out.weight"]
    frame_out_bias: Annotated[Tensor, "frame_out.bias"]
    msg_in: Annotated[Tensor, "msg_in.weight"]
    msg_in_bias: Annotated[Tensor, "msg_in.bias"]
    msg_out: Annotated[Tensor, "msg_out.weight"]
    msg_out_bias: Annotated[Tensor, "msg_out.bias"]
    gru_in: Annotated[Tensor, "gru.weight_ih"]
    gru_in_bias: Annotated[Tensor, "gru.bias_ih"]
    gru_state: Annotated[Tensor, "gru.weight_hh"]
    gru_state_bias: Annotated[Tensor, "gru.bias_hh"]
    theta: Annotated[Tensor, "theta"]

    @classmethod
    def of(cls, updater: nn.Module) -> Parameters:
        """Read them off the modules."""
        return cls(*(attrgetter(name)(updater) for name in rows(Parameters).values()))


@cache
def rows(table: Any, engine: str = "both") -> dict[str, Any]:
    """What stands in a table beside each name, of the rows that this engine has."""
    hints = get_type_hints(table, include_extras=True)
    found = {name: hint.__metadata__[0] for name, hint in hints.items()}
    return {name: row for name, row in found.items() if getattr(row, "engine", "both") in ("both", engine)}


def shapes(table: type, engine: str, symbols: Mapping[str, int]) -> Shapes:
    """The shapes of a table's rows; `symbols` are the names in them, those of `Dims` and a few more."""
    found: Shapes = eval(_shapes(table, engine), {"NUM_COEF": NUM_COEF, "max": max}, symbols)
    return found


@cache
def _shapes(table: type, engine: str) -> Any:
    pairs = (f"{name!r}: ({row.shape},)" for name, row in rows(table, engine).items())
    return compile("{" + ", ".join(pairs) + "}", table.__name__, "eval")


@cache
def _dims(settings: tuple[tuple[str, Any], ...], lanes: int) -> Dims:
    values: dict[str, Any] = {"lanes": lanes}
    for name, row in rows(Dims).items():
        if row.source == "model":
            values[name] = eval(row.value, {}, dict(settings))
        elif row.source == "padded":
            values[name] = padded(eval(row.value, {}, values), lanes)
    return Dims(**values)


@cache
def layer_sizes(d: int, k: int, w: int) -> dict[str, tuple[int, int]]:
    """Inputs, without those of the context, and outputs of each layer."""
    symbols = {"d": d, "k": k, "w": w}
    return {name: (eval(row.inputs, {}, symbols), eval(row.outputs, {}, symbols)) for name, row in LAYERS.items()}


def padded(size: int, lanes: int) -> int:
    """The next multiple of `lanes`."""
    return -(-size // lanes) * lanes


def weight_gradients(dims: Dims, tape: Read, grads: Read, product: Any) -> list[Tensor | None]:
    """Gradients of all Parameters but theta: one product a layer over the endpoint rows of the chunk.

    product(gradients of outputs, inputs, whether the context's columns follow) -> gradients of weight and bias.
    """
    found: list[Tensor | None] = []
    for name, (inputs, outputs) in layer_sizes(dims.d, dims.k, dims.w).items():
        layer = LAYERS[name]
        if name.startswith("frame") and not dims.frame_update:
            found += [None, None]
            continue
        first = dims.d if layer.after_state else 0
        g = grads(layer.gradient)[..., first : first + outputs]
        weight, bias = product(g, tape(layer.reads)[..., :inputs], layer.context)
        if name == "gru_state":
            weight, bias = weight.roll(-dims.d, -2), bias.roll(-dims.d, -1)
        found += [weight, bias]
    return found
