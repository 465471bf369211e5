"""The recurrence of a chunk (`alg:tsnn`, steps 3 to 6), forward and backward, as compiled kernels.

Notation (sec:method of the paper; conventions D-01, D-08, D-09):

    symbol     here          shape            meaning
    h          h             (n0 + nA, d)     stalk versions, one row per write (see tsnn.plan.chunk)
    F          F             (n0 + 2n, k, d)  frame versions
    f/|f|      Frames.N      (n0 + 2n, k, d)  unit reflectors of a frame version, zero where |f| <= eps
    g = U h    y                              a stalk in synchronized coordinates; of versions only its t is kept
    Q_uv h_v   U_u^T y_v                      transport, always through synchronized coordinates (`prop:sync_equiv`)
    D_theta    D             (d,)             feature gain, softplus(theta)

U applies the reflectors 1..k in this order, U^T in reverse (D-01). Both need the k projections 2 <N_i, x> only once:
with G twice the Gram matrix of N, the coefficients t_i of `U x = x - sum_i t_i N_i` solve a triangular system.
`transport=False` is k = 0 reflectors: every U is then the identity.

The adjoint of z = U x with t as above, dz the gradient of z and s the coefficients of `dx = U^T dz`, is

    dN_i -= t_i dz + s_i x       and, collected in a k x k matrix,      S_ij += t_i s_j  (i < j)

so that a frame version touched by many events pays for S N and for the projection off N only once, when the event
that wrote it is reached (`close_frame`). z = U^T x is the same with the roles of x and dz, t and s exchanged.

A stalk version is read by exactly one event, the next one its node is active in: its gradient is written there, not
added up. A frame version is read by many. Whichever event reads a stalk under a frame, the pair is the same, so the
coefficients t of a version are made once, when it is written; y = h - sum_i t_i N_i then costs no projection. Rows of
endpoint buffers are 2e (source) and 2e + 1 (destination). A self-loop uses its first row; the second repeats it going
forward and carries zero gradients going back.

Inner functions work on raw pointers: no bounds, no negative indices, no reference counts. `lit` types a constant like
the data, since a bare literal would promote float32 arithmetic to float64.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numba.core.cgutils
import numba.core.types
import numba.extending
import numpy as np
from llvmlite import binding, ir  # type: ignore[import-untyped]
from numba import njit

from tsnn.kernel_cache import kernel

Ptr = Any  # a typed pointer inside the kernels
Array = Any
types: Any = numba.core.types
cgutils: Any = numba.core.cgutils
intrinsic: Any = numba.extending.intrinsic
overload: Any = numba.extending.overload

_WIDE = bool(binding.get_host_cpu_features().get("avx512f", False))
VECTOR_BYTES = 64 if _WIDE else 32
PANEL_VECTORS = 4 if _WIDE else 2  # accumulators of two endpoints must fit the registers

# No 'nnan'/'ninf': a diverging run must show its NaNs. 'reassoc' lets the compiler choose the order of a sum, once,
# while compiling; to be the same in every process, such a sum must be inlined into its entry. A function outside is
# linked by name, to whichever copy this process happened to load first, and copies are optimized differently. So
# whatever holds a plain sum or product is _INLINE, and _INNER only what calls generated blocks of fixed order (0008).
_FAST = {"contract", "reassoc", "nsz", "arcp"}
_FREE: dict[str, Any] = {"fastmath": _FAST, "error_model": "numpy"}
_INNER: dict[str, Any] = {**_FREE, "nogil": True}
_INLINE: dict[str, Any] = {**_INNER, "forceinline": True}
# Stages have one caller: merging them before code generation saves compiling each subtree of calls once per level.
_STAGE: dict[str, Any] = {**_INNER, "inline": "always"}

# Slots of Tape.coef: coefficients of the applications of U at an endpoint.
PRE, CARRY, POST, LIFT, GRU = 0, 1, 2, 3, 4
NUM_COEF = 5


# ----------------------------------------------------------------------------------------------------------------
# What travels into the kernels
# ----------------------------------------------------------------------------------------------------------------


class Dims(NamedTuple):
    """Sizes and switches."""

    n: int  # events
    n0: int  # initial rows of both logs
    d: int
    k: int  # rows of a frame
    kr: int  # reflectors applied: k, or 0 without transport
    w: int  # hidden width
    dp: int  # d, w, k d, 2 d and 3 d padded to whole vectors
    wp: int
    kdp: int
    d2p: int
    d3p: int
    lanes: int  # numbers in a vector
    rounds: int  # K
    eta: float
    eps: float
    frame_update: bool
    carry_over: bool


class PlanArrays(NamedTuple):
    """The pointers of an UpdatePlan."""

    src_h: Array
    dst_h: Array
    src_F: Array
    dst_F: Array
    is_loop: Array
    act_ptr: Array
    act_h: Array
    act_F: Array
    mult_src: Array
    mult_dst: Array


class Weights(NamedTuple):
    """Packed weights (see `pack`), padded biases, and D. Backward has no use for the biases."""

    frame_in: Array
    frame_out: Array
    msg_in: Array
    msg_out: Array
    gru_in: Array
    gru_state: Array
    frame_bias: Array
    msg_bias: Array
    gru_in_bias: Array
    gru_state_bias: Array
    D: Array


class Tape(NamedTuple):
    """Everything the forward pass writes: the logs, and what the adjoints read again."""

    h: Array
    F: Array
    N: Array
    G: Array  # (n0 + 2n, kr, kr)
    inv: Array  # (n0 + 2n, kr) 1/|f|, zero where |f| <= eps
    t_h: Array  # (n0 + nA, kr) coefficients of U h
    ready_h: Array  # (n0,) initial rows that some event reads
    ready_F: Array
    x_frame: Array  # (2n, 2d) state part of the inputs of MLP_frame
    hid_frame: Array  # (2n, wp) comes in holding the context's share and the bias
    dF: Array  # (2n, kdp)
    x_msg: Array
    hid_msg: Array
    m: Array  # (2n, dp)
    gates: Array  # (2n, 4d) reset, update, candidate, and the candidate's state part
    gru_h: Array  # (2n, d) after the GRU, before diffusion
    y_pre: Array  # (2n, d) the endpoints' y before the event
    y_ends: Array  # (K + 1, 2n, d) and before each round and after the last
    coef: Array  # (2n, NUM_COEF, kr)
    lift: Array  # (2n, d) U+ h, without carry-over only
    t_round: Array  # (K, nA, kr) coefficients of U^T r in each round
    r_ends: Array  # (K, 2n, d) the r of the endpoints
    mid_h: Array  # (K - 1, nA, d) between rounds
    mid_t: Array
    energy: Array  # (n,)
    smooth: Array
    scratch: Array


class Grads(NamedTuple):
    """What the backward pass reads (up_*) and writes. Rows below `base` belong to constants and are not kept."""

    up_h: Array
    up_F: Array
    up_energy: Array
    up_smooth: Array
    gh: Array  # (rows - base, d) from the event that reads the version
    live_h: Array  # (rows - base,) whether gh was written
    gN: Array  # (rows - base, kr, d)
    gS: Array  # (rows - base, kr, kr)
    gF: Array  # (rows - base, k, d) from the event that moves the frame on
    live_F: Array
    d_frame_hid: Array  # (2n, wp) gradients of layer outputs, for the products that form weight gradients
    d_frame_out: Array  # (2n, kd)
    d_msg_hid: Array
    d_msg_out: Array  # (2n, dp)
    d_gates: Array  # (2n, 4d) candidate's state part, reset, update, candidate
    gD: Array
    g_h0: Array
    g_F0: Array
    scratch: Array


class Frames(NamedTuple):
    """Unit reflectors with their Gram matrices."""

    N: Ptr
    G: Ptr
    inv: Ptr
    k: int
    d: int


class FrameGrads(NamedTuple):
    """Accumulators of frame gradients; `base` as in Grads."""

    N: Ptr
    S: Ptr
    base: int


# ----------------------------------------------------------------------------------------------------------------
# Pointers, constants and the vector block
# ----------------------------------------------------------------------------------------------------------------


@intrinsic
def ptr(_: Any, array: Any) -> Any:
    """Pointer to the first number of an array."""

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return context.make_array(sig.args[0])(context, builder, args[0]).data

    return types.CPointer(array.dtype)(array), generate


@intrinsic
def pointers(_: Any, arrays: Any) -> Any:
    """A named tuple of arrays as the same named tuple of pointers: a seventh of the values to hand around."""
    kinds = [types.CPointer(array.dtype) for array in arrays]
    same, cls = len(set(kinds)) == 1, arrays.instance_class
    result = types.NamedUniTuple(kinds[0], len(kinds), cls) if same else types.NamedTuple(kinds, cls)

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        fields = [builder.extract_value(args[0], i) for i in range(len(kinds))]
        data = [
            context.make_array(kind)(context, builder, field).data for kind, field in zip(arrays, fields, strict=True)
        ]
        return context.make_tuple(builder, sig.return_type, data)

    return result(arrays), generate


@intrinsic
def at(_: Any, pointer: Any, offset: Any) -> Any:
    """Pointer moved on by `offset` numbers."""

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.gep(args[0], [args[1]])

    return pointer(pointer, types.intp), generate


@intrinsic
def lit(_: Any, pointer: Any, value: Any) -> Any:
    """`value` in the pointer's number type."""

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return context.cast(builder, args[1], sig.args[1], sig.return_type)

    return pointer.dtype(pointer, value), generate


@intrinsic
def _prefetch(_: Any, pointer: Any) -> Any:
    """Ask for a cache line before it is needed."""

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        byte, word = ir.IntType(8).as_pointer(), ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [byte, word, word, word])
        function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        builder.call(function, [builder.bitcast(args[0], byte), word(0), word(3), word(1)])
        return context.get_dummy_value()

    return types.void(pointer), generate


@intrinsic
def _round(_: Any, x: Any) -> Any:
    """Nearest integer, as a float32; one instruction, so loops around it vectorize."""

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        real = ir.FloatType()
        rint = cgutils.get_or_insert_function(builder.module, ir.FunctionType(real, [real]), "llvm.rint.f32")
        return builder.call(rint, args)

    return types.float32(types.float32), generate


@intrinsic
def _power_of_two(_: Any, n: Any) -> Any:
    """2^n for an integral float32 n, by writing the exponent bits."""

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        word = ir.IntType(32)
        biased = builder.add(builder.fptosi(args[0], word), ir.Constant(word, 127))
        return builder.bitcast(builder.shl(biased, ir.Constant(word, 23)), ir.FloatType())

    return types.float32(types.float32), generate


def _vector_block(rows: int, vectors: int) -> Any:
    """An intrinsic y[r, :] += sum_j x[r, j] P[j, :] for `rows` rows of x and y and a panel of `vectors` vectors.

    All sums stay in registers and P is read once, in order: LLVM's own vectorizer finds neither.
    """

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        panel, count, x, ldx, y, ldy = args
        real = context.get_value_type(sig.args[0].dtype)
        size = 4 if isinstance(real, ir.FloatType) else 8
        lanes = VECTOR_BYTES // size
        vec, word, lane = ir.VectorType(real, lanes), ir.IntType(64), ir.IntType(32)
        fma_type = ir.FunctionType(vec, [vec, vec, vec])
        fma = cgutils.get_or_insert_function(builder.module, fma_type, f"llvm.fma.v{lanes}f{8 * size}")
        blank = ir.Constant(vec, ir.Undefined)
        spread = ir.Constant(ir.VectorType(lane, lanes), [0] * lanes)
        cells = [(r, v) for r in range(rows) for v in range(vectors)]

        def const(i: int) -> Any:
            return ir.Constant(word, i)

        def vector_at(base: Any, offset: Any) -> Any:
            return builder.bitcast(builder.gep(base, [offset]), vec.as_pointer())

        def broadcast(value: Any) -> Any:
            return builder.shuffle_vector(builder.insert_element(blank, value, lane(0)), blank, spread)

        place = {c: vector_at(y, builder.add(builder.mul(ldy, const(c[0])), const(c[1] * lanes))) for c in cells}
        x_row = [builder.gep(x, [builder.mul(ldx, const(r))]) for r in range(rows)]
        start = {c: builder.load(place[c], align=size) for c in cells}
        before, loop, after = (
            builder.block,
            builder.append_basic_block("panel.loop"),
            builder.append_basic_block("panel.end"),
        )
        builder.branch(loop)
        builder.position_at_end(loop)
        j = builder.phi(word)
        total = {c: builder.phi(vec) for c in cells}
        first = builder.mul(j, const(vectors * lanes))
        weight = [
            builder.load(vector_at(panel, builder.add(first, const(v * lanes))), align=size) for v in range(vectors)
        ]
        value = [broadcast(builder.load(builder.gep(x_row[r], [j]))) for r in range(rows)]
        result = {c: builder.call(fma, [weight[c[1]], value[c[0]], total[c]]) for c in cells}
        following = builder.add(j, const(1))
        for phi, initial, later in [(j, const(0), following), *((total[c], start[c], result[c]) for c in cells)]:
            phi.add_incoming(initial, before)
            phi.add_incoming(later, loop)
        builder.cbranch(builder.icmp_signed("<", following, count), loop, after)
        builder.position_at_end(after)
        for c in cells:
            builder.store(result[c], place[c], align=size)
        return context.get_dummy_value()

    @intrinsic
    def block(_: Any, panel: Any, count: Any, x: Any, ldx: Any, y: Any, ldy: Any) -> Any:
        return types.void(panel, types.intp, panel, types.intp, panel, types.intp), generate

    return block


_block1, _block2, _block3, _block4 = (_vector_block(2, vectors) for vectors in (1, 2, 3, 4))


@njit(**_INNER)
def layer(P: Ptr, nx: int, nc: int, x: Ptr, ldx: int, y: Ptr, ldy: int, lanes: int) -> None:
    """y += x W for the two rows of an event, W packed in panels; nc counts whole vectors."""
    full = PANEL_VECTORS * lanes
    c = 0
    while nc - c >= full:
        if PANEL_VECTORS == 4:
            _block4(at(P, nx * c), nx, x, ldx, at(y, c), ldy)
        else:
            _block2(at(P, nx * c), nx, x, ldx, at(y, c), ldy)
        c += full
    rest = (nc - c) // lanes
    if rest == 1:
        _block1(at(P, nx * c), nx, x, ldx, at(y, c), ldy)
    elif rest == 2:
        _block2(at(P, nx * c), nx, x, ldx, at(y, c), ldy)
    elif rest == 3:
        _block3(at(P, nx * c), nx, x, ldx, at(y, c), ldy)


@kernel(**_FREE)
def pack(W: Array, stride_x: int, stride_c: int, nx: int, nc: int, shift: int, lanes: int, out: Array) -> None:
    """Lay W out for `layer`: panels of columns, each contiguous over x; columns past nc are zero.

    The number for input j and column c is W[(j + shift) % nx * stride_x + c * stride_c].
    """
    source, target = ptr(W), ptr(out)
    zero = lit(target, 0.0)
    padded = (nc + lanes - 1) // lanes * lanes
    c0 = 0
    while c0 < padded:
        width = min(PANEL_VECTORS * lanes, padded - c0)
        kept = min(width, nc - c0)
        for j in range(nx):
            row = at(source, (j + shift) % nx * stride_x + c0 * stride_c)
            to = at(target, nx * c0 + j * width)
            for c in range(kept):
                to[c] = row[c * stride_c]
            for c in range(kept, width):
                to[c] = zero
        c0 += width


@kernel(**_FREE)
def pack_all(layers: Any, lanes: int) -> None:
    """`pack` of several weights, in one call."""
    for W, stride_x, stride_c, nx, nc, shift, out in layers:
        pack(W, stride_x, stride_c, nx, nc, shift, lanes, out)


# ----------------------------------------------------------------------------------------------------------------
# Passes over rows with the reflectors at hand, generated
# ----------------------------------------------------------------------------------------------------------------
#
# Most of the work outside the dense layers reads the k reflectors of a frame along with a few rows. Each such pass is
# written below as a small function of a `_Sweep`, which emits it a vector at a time: the projections stay in registers,
# and no check is spent on whether rows overlap (they may only be identical).

_UNROLLED = (0, 2, 3, 4)  # numbers of reflectors with code of their own; others share a loop
_FLAGS = ("contract", "reassoc", "nsz")


class _Vector:
    """A vector in the code being generated, with arithmetic."""

    def __init__(self, builder: Any, value: Any) -> None:
        self.builder, self.value = builder, value

    def __add__(self, other: _Vector) -> _Vector:
        return _Vector(self.builder, self.builder.fadd(self.value, other.value, flags=_FLAGS))

    def __sub__(self, other: _Vector) -> _Vector:
        return _Vector(self.builder, self.builder.fsub(self.value, other.value, flags=_FLAGS))

    def __mul__(self, other: _Vector) -> _Vector:
        return _Vector(self.builder, self.builder.fmul(self.value, other.value, flags=_FLAGS))


class _Sweep:
    """Generator of one pass over d numbers; `unroll` is the number of reflectors where it is a constant."""

    def __init__(self, builder: Any, real: Any, N: Any, k: Any, d: Any, unroll: int | None) -> None:
        self.builder, self.real, self.N, self.k, self.d, self.unroll = builder, real, N, k, d, unroll
        self.index = ir.IntType(64)
        self.target: Any = None
        self.totals: list[_Vector] = []
        self.loaded: list[_Vector] | None = None
        self.sums = [ir.Constant(real, 0.0)] * (unroll or 0)

    # what a pass may use

    def load(self, row: Any) -> _Vector:
        """The current vector of a row."""
        return _Vector(self.builder, self.builder.load(self._place(row), align=self.size))

    def store(self, row: Any, vector: _Vector) -> None:
        """Write the current vector of a row."""
        self.builder.store(vector.value, self._place(row), align=self.size)

    def spread(self, scalar: Any) -> _Vector:
        """A scalar in every lane."""
        blank, lane = ir.Constant(self.vec, ir.Undefined), ir.IntType(32)
        one = self.builder.insert_element(blank, scalar, lane(0))
        zeros = ir.Constant(ir.VectorType(lane, self.lanes), [0] * self.lanes)
        return _Vector(self.builder, self.builder.shuffle_vector(one, blank, zeros))

    def zero(self) -> _Vector:
        """Zeros."""
        return self.spread(ir.Constant(self.real, 0.0))

    def coefficients(self, t: Any) -> Any:
        """Make the k numbers at t usable in `combine` and `subtract_rows`; to be called before the loop."""
        if self.unroll is None:
            return t
        return [self.spread(self.builder.load(self.builder.gep(t, [self._const(i)]))) for i in range(self.unroll)]

    def combine(self, coef: Any) -> _Vector:
        """sum_i coef_i N_i."""
        if self.unroll is not None:
            return sum((c * N_i for c, N_i in zip(coef, self._reflectors(), strict=True)), self.zero())
        total: _Vector = self._each(
            lambda i, total: total + self._coefficient(coef, i) * self._reflector(i), self.zero()
        )
        return total

    def project(self, x: _Vector) -> None:
        """Add x to the projections 2 <N_i, x> that go to the pass's target."""
        if self.unroll is not None:
            self.totals = [s + N_i * x for s, N_i in zip(self.totals, self._reflectors(), strict=True)]
        else:
            self._each(lambda i, _: self._add_to_target(i, self._reflector(i) * x))

    def subtract_rows(self, rows: Any, terms: list[tuple[Any, _Vector]]) -> None:
        """rows_i -= sum over terms of coef_i vector, for k rows."""

        def one(i: Any, coefs: list[_Vector]) -> None:
            row = self._row(rows, i)
            value = self.load(row)
            for coef, (_, vector) in zip(coefs, terms, strict=True):
                value = value - coef * vector
            self.store(row, value)

        if self.unroll is not None:
            for i in range(self.unroll):
                one(self._const(i), [coef[i] for coef, _ in terms])
        else:
            self._each(lambda i, _: one(i, [self._coefficient(coef, i) for coef, _ in terms]))

    # how it is emitted

    def emit(self, prepare: Any, target: Any) -> None:
        """Whole vectors first, then what is left number by number. `prepare` returns the body of the loop.

        The projections go to target as twice the sums.
        """
        self.target = target
        self.size = 4 if isinstance(self.real, ir.FloatType) else 8
        self._set_lanes(1)
        if target is not None and self.unroll is None:
            self._each(lambda i, _: self.builder.store(ir.Constant(self.real, 0.0), self.builder.gep(target, [i])))
        lanes = VECTOR_BYTES // self.size
        whole = self.builder.and_(self.d, self._const(-lanes))
        self._loop(prepare, lanes, self._const(0), whole)
        self._loop(prepare, 1, whole, self.d)
        if target is not None:
            two = ir.Constant(self.real, 2.0)
            self._write(target, [self.builder.fmul(total, two) for total in self.sums])

    def solve(self, G: Any, t: Any, back: bool) -> None:
        """Projections at t into the coefficients of U x, or of U^T x if `back`: t_i -= sum G_ij t_j over solved j."""
        k, b = self.unroll, self.builder
        if k is None:
            with cgutils.for_range(b, self.k) as outer:
                i = b.sub(b.sub(self.k, self._const(1)), outer.index) if back else outer.index
                with cgutils.for_range(b, outer.index) as inner:
                    j = b.sub(b.sub(self.k, self._const(1)), inner.index) if back else inner.index
                    self._add_at(t, i, b.fneg(b.fmul(self._cell(G, i, j), b.load(b.gep(t, [j])))))
            return
        value = [b.load(b.gep(t, [self._const(i)])) for i in range(k)]
        order = range(k - 1, -1, -1) if back else range(k)
        for place, i in enumerate(order):
            for j in order[:place]:
                product = b.fmul(self._cell(G, self._const(i), self._const(j)), value[j], flags=_FLAGS)
                value[i] = b.fsub(value[i], product, flags=_FLAGS)
        self._write(t, value)

    def mix(self, S: Any, t: Any, s: Any) -> None:
        """S_ij += t_i s_j for i < j."""
        k, b = self.unroll, self.builder
        if k is None:
            with cgutils.for_range(b, self.k) as outer, cgutils.for_range(b, outer.index) as inner:
                product = b.fmul(b.load(b.gep(t, [inner.index])), b.load(b.gep(s, [outer.index])))
                self._add_at(S, b.add(b.mul(inner.index, self.k), outer.index), product)
            return
        left, right = ([b.load(b.gep(x, [self._const(i)])) for i in range(k)] for x in (t, s))
        for i in range(k):
            for j in range(i + 1, k):
                self._add_at(S, self._const(i * k + j), b.fmul(left[i], right[j], flags=_FLAGS))

    def _write(self, target: Any, values: list[Any]) -> None:
        for i, value in enumerate(values):
            self.builder.store(value, self.builder.gep(target, [self._const(i)]))

    def _cell(self, matrix: Any, i: Any, j: Any) -> Any:
        return self.builder.load(self.builder.gep(matrix, [self.builder.add(self.builder.mul(i, self.k), j)]))

    def _add_at(self, target: Any, i: Any, value: Any) -> None:
        place = self.builder.gep(target, [i])
        self.builder.store(self.builder.fadd(self.builder.load(place), value, flags=_FLAGS), place)

    def _loop(self, prepare: Any, lanes: int, start: Any, stop: Any) -> None:
        b = self.builder
        self._set_lanes(lanes)
        body = prepare(self)
        zero = self.zero().value
        before = b.block
        head, inside, after = (b.append_basic_block(f"sweep.{name}") for name in ("head", "body", "end"))
        b.branch(head)
        b.position_at_end(head)
        self.c = b.phi(self.index)
        phis = [b.phi(self.vec) for _ in self.sums]
        b.cbranch(b.icmp_signed("<", self.c, stop), inside, after)
        b.position_at_end(inside)
        self.totals, self.loaded = [_Vector(b, phi) for phi in phis], None
        body()
        following = b.add(self.c, self._const(lanes))
        for phi, initial, later in [
            (self.c, start, following),
            *zip(phis, [zero] * len(phis), self.totals, strict=True),
        ]:
            phi.add_incoming(initial, before)
            phi.add_incoming(getattr(later, "value", later), b.block)
        b.branch(head)
        b.position_at_end(after)
        self.sums = [b.fadd(s, self._reduce(phi), flags=_FLAGS) for s, phi in zip(self.sums, phis, strict=True)]

    def _set_lanes(self, lanes: int) -> None:
        self.lanes, self.vec = lanes, ir.VectorType(self.real, lanes)

    def _const(self, i: int) -> Any:
        return ir.Constant(self.index, i)

    def _place(self, row: Any) -> Any:
        return self.builder.bitcast(self.builder.gep(row, [self.c]), self.vec.as_pointer())

    def _row(self, rows: Any, i: Any) -> Any:
        return self.builder.gep(rows, [self.builder.mul(i, self.d)])

    def _reflector(self, i: Any) -> _Vector:
        return self.load(self._row(self.N, i))

    def _reflectors(self) -> list[_Vector]:
        if self.loaded is None:
            self.loaded = [self._reflector(self._const(i)) for i in range(self.unroll or 0)]
        return self.loaded

    def _coefficient(self, t: Any, i: Any) -> _Vector:
        return self.spread(self.builder.load(self.builder.gep(t, [i])))

    def _reduce(self, value: Any) -> Any:
        if self.lanes == 1:
            return self.builder.extract_element(value, ir.IntType(32)(0))
        name = f"llvm.vector.reduce.fadd.v{self.lanes}f{8 * self.size}"
        kind = ir.FunctionType(self.real, [self.real, self.vec])
        function = cgutils.get_or_insert_function(self.builder.module, kind, name)
        return self.builder.call(function, [ir.Constant(self.real, 0.0), value], fastmath=_FLAGS)

    def _add_to_target(self, i: Any, product: _Vector) -> None:
        self._add_at(self.target, i, self.builder.fmul(self._reduce(product.value), ir.Constant(self.real, 2.0)))

    def _each(self, step: Any, initial: _Vector | None = None) -> Any:
        """A loop over the reflectors inside the pass; `step(i, total)` returns the next total."""
        b, before = self.builder, self.builder.block
        head, inside, after = (b.append_basic_block(f"each.{name}") for name in ("head", "body", "end"))
        b.branch(head)
        b.position_at_end(head)
        i = b.phi(self.index)
        total = None if initial is None else _Vector(b, b.phi(self.vec))
        b.cbranch(b.icmp_signed("<", i, self.k), inside, after)
        b.position_at_end(inside)
        later = step(i, total)
        i.add_incoming(self._const(0), before)
        i.add_incoming(b.add(i, self._const(1)), b.block)
        if total is not None and initial is not None:
            total.value.add_incoming(initial.value, before)
            total.value.add_incoming(later.value, b.block)
        b.branch(head)
        b.position_at_end(after)
        return total


def _generate(prepare: Any, after: Any = None, target: int | None = None) -> Any:
    """Code of a pass with arguments (N, k, d, X, ...), X a k x k matrix: the loop, then what is done with its results.

    `target` is the position of the pointer that the pass's projections go to.
    """

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        N, k, d, matrix, *rest = args
        real = context.get_value_type(sig.args[0].dtype)
        end = builder.append_basic_block("pass.end")
        counts: tuple[int | None, ...] = (*_UNROLLED, None)
        blocks = [builder.append_basic_block(f"pass.{count}") for count in counts]
        switch = builder.switch(k, blocks[-1])
        for unrolled, block in zip(_UNROLLED, blocks, strict=False):
            switch.add_case(ir.Constant(ir.IntType(64), unrolled), block)
        for count, block in zip(counts, blocks, strict=True):
            builder.position_at_end(block)
            sweep = _Sweep(builder, real, N, k, d, count)
            sweep.emit(lambda v: prepare(v, *rest), None if target is None else args[target])
            if after is not None:
                after(sweep, matrix, args)
            builder.branch(end)
        builder.position_at_end(end)
        return context.get_dummy_value()

    return generate


def _solving(prepare: Any, target: int, back: bool) -> Any:
    """A pass whose projections become the coefficients of U, or of U^T if `back`."""
    return _generate(prepare, lambda v, G, args: v.solve(G, args[target], back), target)


def _mixing(prepare: Any, *pairs: tuple[int, int]) -> Any:
    """A pass over frame gradients that also collects S for pairs of coefficients (positions of t and s)."""

    def after(v: _Sweep, S: Any, args: Any) -> None:
        for t, s in pairs:
            v.mix(S, args[t], args[s])

    return _generate(prepare, after)


def _project_pass(v: _Sweep, x: Any, _: Any) -> Any:
    return lambda: v.project(v.load(x))


def _subtract_pass(v: _Sweep, t: Any, x: Any, out: Any) -> Any:
    coef = v.coefficients(t)
    return lambda: v.store(out, v.load(x) - v.combine(coef))


def _residual_pass(v: _Sweep, a: Any, h: Any, t_h: Any, y_c: Any, r: Any, r_c: Any, _: Any) -> Any:
    weight, coef = v.spread(a), v.coefficients(t_h)

    def body() -> None:
        y = v.load(h) - v.combine(coef)
        residual = weight * (y - v.load(y_c))
        v.store(r, residual)
        v.store(r_c, v.load(r_c) - weight * y)
        v.project(residual)

    return body


def _step_pass(v: _Sweep, c: Any, r: Any, t_r: Any, h: Any, D: Any, h_post: Any, _: Any) -> Any:
    size, coef = v.spread(c), v.coefficients(t_r)

    def body() -> None:
        moved = v.load(h) - size * v.load(D) * (v.load(r) - v.combine(coef))
        v.store(h_post, moved)
        v.project(moved)

    return body


def _step_adjoint_pass(
    v: _Sweep, a: Any, c: Any, h: Any, t_h: Any, y_c: Any, t_r: Any, gh: Any, D: Any, gD: Any, r: Any, gq: Any, _: Any
) -> Any:
    weight, size, coef_h, coef_r = v.spread(a), v.spread(c), v.coefficients(t_h), v.coefficients(t_r)

    def body() -> None:
        residual = weight * (v.load(h) - v.combine(coef_h) - v.load(y_c))
        v.store(r, residual)
        push = size * v.load(gh)
        v.store(gD, v.load(gD) - push * (residual - v.combine(coef_r)))
        gradient = v.zero() - push * v.load(D)
        v.store(gq, gradient)
        v.project(gradient)

    return body


def _residual_adjoint_pass(v: _Sweep, a: Any, gq: Any, t_q: Any, gr_c: Any, o_c: Any, gy: Any, _: Any) -> Any:
    weight, coef = v.spread(a), v.coefficients(t_q)

    def body() -> None:
        gr = v.load(gq) - v.combine(coef)
        gradient = weight * (gr - v.load(gr_c))
        v.store(gy, gradient)
        v.store(o_c, v.load(o_c) - weight * gr)
        v.project(gradient)

    return body


def _lift_adjoint_pass(v: _Sweep, gh: Any, gy: Any, s: Any, out: Any) -> Any:
    coef = v.coefficients(s)
    return lambda: v.store(out, v.load(gh) + v.load(gy) - v.combine(coef))


def _frame_adjoint_pass(v: _Sweep, t: Any, dz: Any, s: Any, x: Any) -> Any:
    coef_t, coef_s = v.coefficients(t), v.coefficients(s)
    return lambda: v.subtract_rows(v.N, [(coef_t, v.load(dz)), (coef_s, v.load(x))])


def _entry_frame_adjoint_pass(v: _Sweep, r: Any, t_r: Any, gq: Any, t_q: Any, h: Any, t_h: Any, gy: Any, s: Any) -> Any:
    coef_r, coef_q, coef_h, coef_s = (v.coefficients(t) for t in (t_r, t_q, t_h, s))

    def body() -> None:
        step = [(coef_q, v.load(r)), (coef_r, v.load(gq))]
        v.subtract_rows(v.N, [*step, (coef_h, v.load(gy)), (coef_s, v.load(h))])

    return body


def _signature(N: Any, *rest: Any) -> Any:
    """Type of a pass: N, k, d, a k x k matrix, then scalars and rows."""
    return types.void(N, types.intp, types.intp, N, *rest)


@intrinsic
def _project(_: Any, N: Any, k: Any, d: Any, G: Any, x: Any, t: Any) -> Any:
    return _signature(N, x, t), _solving(_project_pass, 5, back=False)


@intrinsic
def _project_back(_: Any, N: Any, k: Any, d: Any, G: Any, x: Any, t: Any) -> Any:
    return _signature(N, x, t), _solving(_project_pass, 5, back=True)


@intrinsic
def _subtract(_: Any, N: Any, k: Any, d: Any, G: Any, t: Any, x: Any, out: Any) -> Any:
    return _signature(N, t, x, out), _generate(_subtract_pass)


@intrinsic
def _residual(
    _: Any, N: Any, k: Any, d: Any, G: Any, a: Any, h: Any, t_h: Any, y_c: Any, r: Any, r_c: Any, t: Any
) -> Any:
    return _signature(N, a, h, t_h, y_c, r, r_c, t), _solving(_residual_pass, 10, back=True)


@intrinsic
def _step(_: Any, N: Any, k: Any, d: Any, G: Any, c: Any, r: Any, t_r: Any, h: Any, D: Any, h_post: Any, t: Any) -> Any:
    return _signature(N, c, r, t_r, h, D, h_post, t), _solving(_step_pass, 10, back=False)


@intrinsic
def _step_adjoint(
    _: Any, N: Any, k: Any, d: Any, G: Any, a: Any, c: Any, h: Any, t_h: Any, y_c: Any, t_r: Any, gh: Any, D: Any,
    gD: Any, r: Any, gq: Any, t: Any,
) -> Any:  # fmt: skip
    sig = _signature(N, a, c, h, t_h, y_c, t_r, gh, D, gD, r, gq, t)
    return sig, _solving(_step_adjoint_pass, 15, back=False)


@intrinsic
def _residual_adjoint(
    _: Any, N: Any, k: Any, d: Any, G: Any, a: Any, gq: Any, t_q: Any, gr_c: Any, o_c: Any, gy: Any, t: Any
) -> Any:
    return _signature(N, a, gq, t_q, gr_c, o_c, gy, t), _solving(_residual_adjoint_pass, 10, back=True)


@intrinsic
def _lift_adjoint(_: Any, N: Any, k: Any, d: Any, G: Any, gh: Any, gy: Any, s: Any, out: Any) -> Any:
    return _signature(N, gh, gy, s, out), _generate(_lift_adjoint_pass)


@intrinsic
def _frame_adjoint(_: Any, gN: Any, k: Any, d: Any, S: Any, t: Any, dz: Any, s: Any, x: Any) -> Any:
    return _signature(gN, t, dz, s, x), _mixing(_frame_adjoint_pass, (4, 6))


@intrinsic
def _entry_frame_adjoint(
    _: Any, gN: Any, k: Any, d: Any, S: Any, r: Any, t_r: Any, gq: Any, t_q: Any, h: Any, t_h: Any, gy: Any, s: Any
) -> Any:
    sig = _signature(gN, r, t_r, gq, t_q, h, t_h, gy, s)
    return sig, _mixing(_entry_frame_adjoint_pass, (7, 5), (9, 11))


# ----------------------------------------------------------------------------------------------------------------
# Vectors and gates
# ----------------------------------------------------------------------------------------------------------------


@njit(**_INLINE)
def dot(a: Ptr, b: Ptr, n: int) -> Any:
    """Inner product."""
    s = lit(a, 0.0)
    for i in range(n):
        s += a[i] * b[i]
    return s


@njit(**_INLINE)
def copy(a: Ptr, out: Ptr, n: int) -> None:
    """out = a."""
    for i in range(n):
        out[i] = a[i]


@njit(**_INLINE)
def clear(out: Ptr, n: int) -> None:
    """out = 0."""
    zero = lit(out, 0.0)
    for i in range(n):
        out[i] = zero


@njit(**_INLINE)
def add(a: Ptr, out: Ptr, n: int) -> None:
    """out += a."""
    for i in range(n):
        out[i] += a[i]


@njit(**_INLINE)
def axpy(c: Any, a: Ptr, out: Ptr, n: int) -> None:
    """out += c a."""
    for i in range(n):
        out[i] += c * a[i]


@njit(**_INLINE)
def relu(a: Ptr, n: int) -> None:
    """a = max(a, 0)."""
    zero = lit(a, 0.0)
    for i in range(n):
        a[i] = zero if a[i] < zero else a[i]  # keeps a NaN, as `max` would not


@njit(**_INLINE)
def relu_adjoint(a: Ptr, g: Ptr, n: int) -> None:
    """g = g where a > 0, else 0."""
    zero = lit(a, 0.0)
    for i in range(n):
        g[i] = g[i] if a[i] > zero else zero


@njit(**_INLINE)
def prefetch(a: Ptr, n: int, lanes: int) -> None:
    """Ask for a row."""
    for i in range(0, n, lanes):
        _prefetch(at(a, i))


def sigmoid(x: Any) -> Any:
    """1 / (1 + exp(-x)): by libm in float64, to float precision by a polynomial in float32."""
    return 1.0 / (1.0 + math.exp(-x))


def tanh(x: Any) -> Any:
    """tanh: by libm in float64, to float precision by a rational function in float32."""
    return math.tanh(x)


@overload(sigmoid, jit_options=_INLINE)
def _sigmoid(x: Any) -> Any:
    return sigmoid if x == types.float64 else _sigmoid32


@overload(tanh, jit_options=_INLINE)
def _tanh(x: Any) -> Any:
    return tanh if x == types.float64 else _tanh32


_f = np.float32
_LOG2E, _LN2_HI, _LN2_LO = _f(1.44269504088896341), _f(0.693359375), _f(-2.12194440e-4)
_E0, _E1, _E2 = _f(1.9875691500e-4), _f(1.3981999507e-3), _f(8.3334519073e-3)
_E3, _E4, _E5 = _f(4.1665795894e-2), _f(1.6666665459e-1), _f(5.0000001201e-1)
_EXP_CAP, _ONE = _f(87.0), _f(1.0)
_A1, _A3, _A5 = _f(4.89352455891786e-03), _f(6.37261928875436e-04), _f(1.48572235717979e-05)
_A7, _A9 = _f(5.12229709037114e-08), _f(-8.60467152213735e-11)
_A11, _A13 = _f(2.00018790482477e-13), _f(-2.76076847742355e-16)
_B0, _B2 = _f(4.89352518554385e-03), _f(2.26843463243900e-03)
_B4, _B6 = _f(1.18534705686654e-04), _f(1.19825839466702e-06)
_TANH_CAP = _f(9.0)


@njit(**_INLINE)
def _clamp(x: Any, cap: Any) -> Any:
    """x within -cap .. cap; a NaN stays."""
    v = cap if x > cap else x
    return -cap if v < -cap else v


def _sigmoid32(x: Any) -> Any:
    v = _clamp(-x, _EXP_CAP)
    n = _round(v * _LOG2E)
    r = v - n * _LN2_HI - n * _LN2_LO
    p = ((((_E0 * r + _E1) * r + _E2) * r + _E3) * r + _E4) * r + _E5
    return _ONE / (_ONE + (p * r * r + r + _ONE) * _power_of_two(n))


def _tanh32(x: Any) -> Any:
    v = _clamp(x, _TANH_CAP)
    s = v * v
    p = (((((_A13 * s + _A11) * s + _A9) * s + _A7) * s + _A5) * s + _A3) * s + _A1
    q = ((_B6 * s + _B4) * s + _B2) * s + _B0
    return v * p / q


# ----------------------------------------------------------------------------------------------------------------
# Frames (eq:householder_product)
# ----------------------------------------------------------------------------------------------------------------


@njit(**_INLINE)
def open_frame(fr: Frames, row: int, f: Ptr, eps: float) -> None:
    """Unit reflectors, reciprocal lengths and Gram matrix of frame version `row`, whose parameters are f (k, d)."""
    N, G, inv = at(fr.N, row * fr.k * fr.d), at(fr.G, row * fr.k * fr.k), at(fr.inv, row * fr.k)
    for i in range(fr.k):
        fi, Ni = at(f, i * fr.d), at(N, i * fr.d)
        length = math.sqrt(dot(fi, fi, fr.d))
        scale = lit(f, 1.0) / length if length > eps else lit(f, 0.0)
        inv[i] = scale
        for c in range(fr.d):
            Ni[c] = fi[c] * scale
        for j in range(i):
            G[i * fr.k + j] = lit(f, 2.0) * dot(Ni, at(N, j * fr.d), fr.d)
            G[j * fr.k + i] = G[i * fr.k + j]


@njit(**_INNER)
def coefficients(fr: Frames, row: int, x: Ptr, t: Ptr) -> None:
    """The t of U x = x - sum_i t_i N_i."""
    _project(at(fr.N, row * fr.k * fr.d), fr.k, fr.d, at(fr.G, row * fr.k * fr.k), x, t)


@njit(**_INNER)
def coefficients_back(fr: Frames, row: int, x: Ptr, t: Ptr) -> None:
    """The t of U^T x = x - sum_i t_i N_i."""
    _project_back(at(fr.N, row * fr.k * fr.d), fr.k, fr.d, at(fr.G, row * fr.k * fr.k), x, t)


@njit(**_INNER)
def subtract(fr: Frames, row: int, t: Ptr, x: Ptr, out: Ptr) -> None:
    """out = x - sum_i t_i N_i; out may be x."""
    _subtract(at(fr.N, row * fr.k * fr.d), fr.k, fr.d, at(fr.G, row * fr.k * fr.k), t, x, out)


@njit(**_INNER)
def lift(fr: Frames, row: int, x: Ptr, out: Ptr, t: Ptr) -> None:
    """out = U x: local to synchronized coordinates. Leaves the coefficients in t."""
    coefficients(fr, row, x, t)
    subtract(fr, row, t, x, out)


@njit(**_INNER)
def lower(fr: Frames, row: int, x: Ptr, out: Ptr, t: Ptr) -> None:
    """out = U^T x: synchronized to local coordinates. Leaves the coefficients in t."""
    coefficients_back(fr, row, x, t)
    subtract(fr, row, t, x, out)


@njit(**_INNER)
def frame_adjoint(fg: FrameGrads, row: int, k: int, d: int, x: Ptr, t: Ptr, dz: Ptr, s: Ptr) -> None:
    """Collect the frame gradient of z = U x (see the header)."""
    if row >= fg.base:
        i = row - fg.base
        _frame_adjoint(at(fg.N, i * k * d), k, d, at(fg.S, i * k * k), t, dz, s, x)


@njit(**_INLINE)
def close_frame(fr: Frames, fg: FrameGrads, row: int, out: Ptr) -> None:
    """out += gradient of the frame parameters, from what was collected for frame version `row`."""
    k, d = fr.k, fr.d
    N, inv = at(fr.N, row * k * d), at(fr.inv, row * k)
    gN, S = at(fg.N, (row - fg.base) * k * d), at(fg.S, (row - fg.base) * k * k)
    for i in range(k):
        gi = at(gN, i * d)
        for j in range(k):
            if i != j:
                axpy(S[min(i, j) * k + max(i, j)], at(N, j * d), gi, d)
        Ni, oi, scale = at(N, i * d), at(out, i * d), inv[i]
        along = dot(gi, Ni, d)
        for c in range(d):
            oi[c] += scale * (gi[c] - along * Ni[c])


# ----------------------------------------------------------------------------------------------------------------
# Stages of an event, forward
# ----------------------------------------------------------------------------------------------------------------


@njit(**_STAGE)
def open_initial(dims: Dims, plan: PlanArrays, tape: Tape, fr: Frames) -> None:
    """Reflectors and coefficients of the initial rows that an event reads."""
    for e in range(dims.n):
        open_version(dims, tape, fr, plan.src_h[e], plan.src_F[e])
        open_version(dims, tape, fr, plan.dst_h[e], plan.dst_F[e])
        first = plan.act_ptr[e] + (1 if plan.is_loop[e] != 0 else 2)
        for j in range(first, plan.act_ptr[e + 1]):
            open_version(dims, tape, fr, plan.act_h[j], plan.act_F[j])


@njit(**_STAGE)
def open_version(dims: Dims, tape: Tape, fr: Frames, row: int, frame: int) -> None:
    """Make the reflectors and coefficients of one initial row, once."""
    if frame < dims.n0 and tape.ready_F[frame] == 0:
        tape.ready_F[frame] = 1
        open_frame(fr, frame, at(tape.F, frame * dims.k * dims.d), dims.eps)
    if row < dims.n0 and tape.ready_h[row] == 0:
        tape.ready_h[row] = 1
        coefficients(fr, frame, at(tape.h, row * dims.d), at(tape.t_h, row * dims.kr))


@njit(**_STAGE)
def read_ends(dims: Dims, plan: PlanArrays, tape: Tape, fr: Frames, e: int) -> None:
    """The endpoints' pre-event stalks in synchronized coordinates."""
    for s in range(2):
        row, frame = (plan.dst_h[e], plan.dst_F[e]) if s else (plan.src_h[e], plan.src_F[e])
        t = at(tape.t_h, row * fr.k)
        subtract(fr, frame, t, at(tape.h, row * fr.d), at(tape.y_pre, (2 * e + s) * fr.d))


@njit(**_STAGE)
def transport_pair(fr: Frames, frame_u: int, frame_v: int, loop: bool, x: Ptr, y_u: Ptr, y_v: Ptr, t: Ptr) -> None:
    """Second halves of the two input rows x (2, 2d): each endpoint's partner in its own coordinates."""
    d = fr.d
    if loop:  # Q_uu = I
        copy(x, at(x, d), d)
        copy(x, at(x, 2 * d), 2 * d)
    else:
        lower(fr, frame_u, y_v, at(x, d), t)
        lower(fr, frame_v, y_u, at(x, 3 * d), at(t, NUM_COEF * fr.k))


@njit(**_INNER)
def perceptron(dims: Dims, W_in: Ptr, W_out: Ptr, bias: Ptr, x: Ptr, hid: Ptr, out: Ptr, width: int) -> None:
    """out = W_out relu(hid + W_in x) + bias for two rows; hid comes in holding the context's share."""
    layer(W_in, 2 * dims.d, dims.wp, x, 2 * dims.d, hid, dims.wp, dims.lanes)
    relu(hid, 2 * dims.wp)
    copy(bias, out, width)
    copy(bias, at(out, width), width)
    layer(W_out, dims.w, width, hid, dims.wp, out, width, dims.lanes)


@njit(**_INLINE)
def move_frame(dims: Dims, fr: Frames, F: Ptr, pre: int, post: int, step: Ptr) -> Any:
    """F_post = F_pre + step (eq:frame_update); returns |step|^2."""
    size = dims.k * dims.d
    source, target = at(F, pre * size), at(F, post * size)
    if dims.frame_update:
        for i in range(size):
            target[i] = source[i] + step[i]
    else:
        copy(source, target, size)
    open_frame(fr, post, target, dims.eps)
    return dot(step, step, size) if dims.frame_update else lit(F, 0.0)


@njit(**_STAGE)
def update_frames(dims: Dims, plan: PlanArrays, weights: Weights, tape: Tape, fr: Frames, e: int) -> None:
    """Step 3 of alg:tsnn: MLP_frame on transported pre-event states, then the new frames (eq:frame_update)."""
    d, loop = dims.d, plan.is_loop[e] != 0
    h, y, F = tape.h, at(tape.y_pre, 2 * e * d), tape.F
    x, step = at(tape.x_frame, 4 * e * d), at(tape.dF, 2 * e * dims.kdp)
    hu, hv, fu, fv = plan.src_h[e], plan.dst_h[e], plan.src_F[e], plan.dst_F[e]
    if dims.frame_update:
        copy(at(h, hu * d), x, d)
        copy(at(h, hv * d), at(x, 2 * d), d)
        t = at(tape.coef, (2 * e * NUM_COEF + PRE) * dims.kr)
        transport_pair(fr, fu, fv, loop, x, y, at(y, d), t)
        hid = at(tape.hid_frame, 2 * e * dims.wp)
        perceptron(dims, weights.frame_in, weights.frame_out, weights.frame_bias, x, hid, step, dims.kdp)
        if loop:
            copy(step, at(step, dims.kdp), dims.kdp)
    post = dims.n0 + 2 * e
    smooth_u = move_frame(dims, fr, F, fu, post, step)
    smooth_v = move_frame(dims, fr, F, fv, post + 1, at(step, dims.kdp))
    tape.smooth[e] = smooth_u if loop else smooth_u + smooth_v


@njit(**_STAGE)
def carry_over(dims: Dims, plan: PlanArrays, tape: Tape, fr: Frames, e: int) -> None:
    """Rows of x_msg: pre-event stalks and partners in post-update coordinates (prop:carry_over)."""
    d, loop, post = dims.d, plan.is_loop[e] != 0, dims.n0 + 2 * e
    hu, hv = plan.src_h[e], plan.dst_h[e]
    x, coef = at(tape.x_msg, 4 * e * d), at(tape.coef, 2 * e * NUM_COEF * dims.kr)
    row = NUM_COEF * dims.kr
    y_u, y_v = at(tape.y_pre, 2 * e * d), at(tape.y_pre, (2 * e + 1) * d)
    if dims.carry_over:
        lower(fr, post, y_u, x, at(coef, CARRY * dims.kr))
        lower(fr, post + 1, y_v, at(x, 2 * d), at(coef, row + CARRY * dims.kr))
    else:
        copy(at(tape.h, hu * d), x, d)
        copy(at(tape.h, hv * d), at(x, 2 * d), d)
        y_u, y_v = at(tape.lift, 2 * e * d), at(tape.lift, (2 * e + 1) * d)
        lift(fr, post, x, y_u, at(coef, LIFT * dims.kr))
        lift(fr, post + 1, at(x, 2 * d), y_v, at(coef, row + LIFT * dims.kr))
    transport_pair(fr, post, post + 1, loop, x, y_u, y_v, at(coef, POST * dims.kr))


@njit(**_INLINE)
def gru_gates(d: int, a: Ptr, b: Ptr, hbar: Ptr, gates: Ptr, out: Ptr) -> None:
    """One GRU cell from the affine parts a (input) and b (state), order r, z, n (eq:gru_update)."""
    r, z, n, b_n = gates, at(gates, d), at(gates, 2 * d), at(gates, 3 * d)
    for i in range(2 * d):
        gates[i] = sigmoid(a[i] + b[i])
    a3, b3 = at(a, 2 * d), at(b, 2 * d)
    for i in range(d):
        v = b3[i]
        c = tanh(a3[i] + r[i] * v)
        b_n[i] = v
        n[i] = c
        out[i] = c + z[i] * (hbar[i] - c)


@njit(**_STAGE)
def update_stalks(dims: Dims, weights: Weights, tape: Tape, fr: Frames, e: int) -> None:
    """Step 4 of alg:tsnn: messages (eq:message) and the recurrent update (eq:gru_update)."""
    d, r = dims.d, 2 * e
    x, m, hid = at(tape.x_msg, 2 * r * d), at(tape.m, r * dims.dp), at(tape.hid_msg, r * dims.wp)
    a = tape.scratch
    b = at(a, 2 * dims.d3p)
    perceptron(dims, weights.msg_in, weights.msg_out, weights.msg_bias, x, hid, m, dims.dp)
    for s in range(2):
        copy(weights.gru_in_bias, at(a, s * dims.d3p), dims.d3p)
        copy(weights.gru_state_bias, at(b, s * dims.d3p), dims.d3p)
    layer(weights.gru_in, d, dims.d3p, m, dims.dp, a, dims.d3p, dims.lanes)
    layer(weights.gru_state, d, dims.d3p, x, 2 * d, b, dims.d3p, dims.lanes)
    gates, h, y = at(tape.gates, 4 * r * d), at(tape.gru_h, r * d), at(tape.y_ends, r * d)
    for s in range(2):
        gru_gates(d, at(a, s * dims.d3p), at(b, s * dims.d3p), at(x, 2 * s * d), at(gates, 4 * s * d), at(h, s * d))
        t = at(tape.coef, ((r + s) * NUM_COEF + GRU) * dims.kr)
        lift(fr, dims.n0 + r + s, at(h, s * d), at(y, s * d), t)


class Star(NamedTuple):
    """The active graph of an event (D-09): two weighted stars, their edge u-v, and the degrees of the endpoints."""

    first: int  # entry of the source
    other: int  # from the source's row to the destination's: 1, or 0 in a self-loop
    leaf: int  # first entry that is no endpoint
    stop: int
    total_u: Any  # weight of all edges of u; self entries count in the degree only
    total_v: Any
    uv: Any
    degree_u: Any
    degree_v: Any


@njit(**_INNER)
def read_star(plan: PlanArrays, e: int, like: Ptr) -> Star:
    """Edge weights and degrees of event e."""
    first, stop = plan.act_ptr[e], plan.act_ptr[e + 1]
    sum_u, sum_v, zero = lit(like, 0.0), lit(like, 0.0), lit(like, 0.0)
    leaf = first + 1 if plan.is_loop[e] != 0 else first + 2
    for j in range(leaf, stop):
        sum_u += plan.mult_src[j]
        sum_v += plan.mult_dst[j]
    self_u, self_v, uv = lit(like, plan.mult_src[first]), zero, zero
    if plan.is_loop[e] == 0:
        self_v = lit(like, plan.mult_dst[first + 1])
        uv = lit(like, plan.mult_src[first + 1]) + lit(like, plan.mult_dst[first])
    total_u, total_v = sum_u + uv, sum_v + uv
    return Star(first, leaf - first - 1, leaf, stop, total_u, total_v, uv, total_u + self_u, total_v + self_v)


class Stages(NamedTuple):
    """Where an active entry's state stands before and after each round."""

    h: Ptr
    t_h: Ptr
    gru_h: Ptr
    coef: Ptr
    mid_h: Ptr
    mid_t: Ptr
    num_entries: int


@njit(**_INLINE)
def read_stages(tape: Tape, num_entries: int) -> Stages:
    """Pointers of Stages."""
    return Stages(tape.h, tape.t_h, tape.gru_h, tape.coef, tape.mid_h, tape.mid_t, num_entries)


@njit(**_INNER)
def before_round(dims: Dims, plan: PlanArrays, st: Stages, star: Star, e: int, j: int, ell: int) -> Any:
    """Stalk of entry j before round ell, and the coefficients that lift it."""
    d, k = dims.d, dims.kr
    if ell > 0:
        row = (ell - 1) * st.num_entries + j
        return at(st.mid_h, row * d), at(st.mid_t, row * k)
    if j < star.leaf:
        row = 2 * e + j - star.first
        return at(st.gru_h, row * d), at(st.coef, (row * NUM_COEF + GRU) * k)
    row = plan.act_h[j]
    return at(st.h, row * d), at(st.t_h, row * k)


@njit(**_INNER)
def after_round(dims: Dims, st: Stages, j: int, ell: int) -> Any:
    """The same after round ell; the last round writes the logs."""
    d, k = dims.d, dims.kr
    if ell == dims.rounds - 1:
        return at(st.h, (dims.n0 + j) * d), at(st.t_h, (dims.n0 + j) * k)
    row = ell * st.num_entries + j
    return at(st.mid_h, row * d), at(st.mid_t, row * k)


class Edge(NamedTuple):
    """A leaf's edges as one: total weight, the center they lead to, and where the center's sum is kept."""

    weight: Any
    center: Ptr
    total: Ptr


@njit(**_INLINE)
def join_edges(a: Any, b: Any, u: Ptr, v: Ptr, sum_u: Ptr, sum_v: Ptr, mixed: Ptr, d: int) -> Edge:
    """A leaf of both endpoints is pulled to their weighted mean (`mixed`, d, and a sum behind it); else to its own."""
    if b == lit(u, 0.0):
        return Edge(a, u, sum_u)
    if a == lit(u, 0.0):
        return Edge(b, v, sum_v)
    for i in range(d):
        mixed[i] = (a * u[i] + b * v[i]) / (a + b)
    clear(at(mixed, d), d)
    return Edge(a + b, mixed, at(mixed, d))


@njit(**_INLINE)
def split_sum(a: Any, b: Any, edge: Edge, sum_u: Ptr, sum_v: Ptr, d: int) -> None:
    """Hand a joint edge's sum to both centers."""
    if a != lit(sum_u, 0.0) and b != lit(sum_u, 0.0):
        axpy(a / (a + b), edge.total, sum_u, d)
        axpy(b / (a + b), edge.total, sum_v, d)


@njit(**_INNER)
def leaf_residual(fr: Frames, row: int, edge: Edge, h: Ptr, t_h: Ptr, r: Ptr, t_r: Ptr) -> None:
    """r = weight (y - center), a leaf's sum in eq:diffusion_local; its coefficients for U^T, its pull on the center."""
    N, G = at(fr.N, row * fr.k * fr.d), at(fr.G, row * fr.k * fr.k)
    _residual(N, fr.k, fr.d, G, edge.weight, h, t_h, edge.center, r, edge.total, t_r)


@njit(**_INNER)
def diffusion_step(fr: Frames, row: int, r: Ptr, t_r: Ptr, h: Ptr, D: Ptr, c: Any, h_post: Ptr, t_post: Ptr) -> None:
    """h' = h - c D U^T r (eq:diffusion_local, the sum r in synchronized coordinates), and the coefficients of U h'."""
    N, G = at(fr.N, row * fr.k * fr.d), at(fr.G, row * fr.k * fr.k)
    _step(N, fr.k, fr.d, G, c, r, t_r, h, D, h_post, t_post)


@njit(**_STAGE)
def diffuse(dims: Dims, plan: PlanArrays, weights: Weights, tape: Tape, fr: Frames, e: int) -> None:
    """Step 5 of alg:tsnn: K rounds over the active graph, all entries at once in each (alg:diffuse)."""
    d, D, st = dims.d, weights.D, read_stages(tape, plan.act_ptr[dims.n])
    star = read_star(plan, e, D)
    r, mixed = tape.scratch, at(tape.scratch, d)
    for ell in range(dims.rounds):
        t_r = at(tape.t_round, ell * st.num_entries * dims.kr)
        y_u, r_u = at(tape.y_ends, 2 * (ell * dims.n + e) * d), at(tape.r_ends, 2 * (ell * dims.n + e) * d)
        y_v, r_v = at(y_u, star.other * d), at(r_u, d)
        for i in range(d):
            r_u[i] = star.total_u * y_u[i] - star.uv * y_v[i]
            r_v[i] = star.total_v * y_v[i] - star.uv * y_u[i]
        for j in range(star.leaf, star.stop):
            a, b, t_j = lit(D, plan.mult_src[j]), lit(D, plan.mult_dst[j]), at(t_r, j * dims.kr)
            h, t_h = before_round(dims, plan, st, star, e, j, ell)
            edge = join_edges(a, b, y_u, y_v, r_u, r_v, mixed, d)
            leaf_residual(fr, plan.act_F[j], edge, h, t_h, r, t_j)
            split_sum(a, b, edge, r_u, r_v, d)
            if ell == 0 and j + 1 < star.stop:
                prefetch(at(fr.N, plan.act_F[j + 1] * fr.k * d), fr.k * d, dims.lanes)
                prefetch(at(tape.h, plan.act_h[j + 1] * d), d, dims.lanes)
                prefetch(at(tape.t_h, plan.act_h[j + 1] * fr.k), 1, dims.lanes)
            h_post, t_post = after_round(dims, st, j, ell)
            diffusion_step(fr, plan.act_F[j], r, t_j, h, D, step_size(dims, D, a + b), h_post, t_post)
        for s in range(star.leaf - star.first):
            j, post = star.first + s, dims.n0 + 2 * e + s
            t_j, r_s = at(t_r, j * dims.kr), at(r_u, s * d)
            y_post = at(tape.y_ends, (2 * ((ell + 1) * dims.n + e) + s) * d)
            h, _ = before_round(dims, plan, st, star, e, j, ell)
            h_post, t_post = after_round(dims, st, j, ell)
            coefficients_back(fr, post, r_s, t_j)
            c = step_size(dims, D, star.degree_v if s else star.degree_u)
            diffusion_step(fr, post, r_s, t_j, h, D, c, h_post, t_post)
            subtract(fr, post, t_post, h_post, y_post)


@njit(**_INLINE)
def step_size(dims: Dims, like: Ptr, degree: Any) -> Any:
    """eta / max(degree, 1)."""
    return lit(like, dims.eta) / max(degree, lit(like, 1.0))


@njit(**_STAGE)
def pass_through(dims: Dims, plan: PlanArrays, tape: Tape, e: int) -> None:
    """Write the active entries without diffusion (K = 0)."""
    st = read_stages(tape, plan.act_ptr[dims.n])
    star = read_star(plan, e, st.h)
    for j in range(star.first, star.stop):
        h, t = before_round(dims, plan, st, star, e, j, 0)
        h_post, t_post = after_round(dims, st, j, -1)
        copy(h, h_post, dims.d)
        copy(t, t_post, dims.kr)


@njit(**_STAGE)
def measure_energy(dims: Dims, plan: PlanArrays, tape: Tape, e: int) -> Any:
    """|h_u - Q_uv h_v|^2 after the last round (eq:loss_aux); 0 for a self-loop."""
    y_u = at(tape.y_ends, 2 * (dims.rounds * dims.n + e) * dims.d)
    y_v = at(y_u, dims.d)
    s = lit(y_u, 0.0)
    if plan.is_loop[e] == 0:
        for i in range(dims.d):
            s += (y_u[i] - y_v[i]) * (y_u[i] - y_v[i])
    return s


@kernel(**_FREE)
def forward(dims: Dims, plan: PlanArrays, weights: Weights, tape: Tape) -> None:
    """The recurrence over the events of a chunk."""
    run_forward(dims, pointers(plan), pointers(weights), pointers(tape))


@njit(**_STAGE)
def run_forward(dims: Dims, plan: PlanArrays, weights: Weights, tape: Tape) -> None:
    """`forward` on pointers."""
    fr = Frames(tape.N, tape.G, tape.inv, dims.kr, dims.d)
    open_initial(dims, plan, tape, fr)
    for e in range(dims.n):
        read_ends(dims, plan, tape, fr, e)
        update_frames(dims, plan, weights, tape, fr, e)
        carry_over(dims, plan, tape, fr, e)
        update_stalks(dims, weights, tape, fr, e)
        if dims.rounds > 0:
            diffuse(dims, plan, weights, tape, fr, e)
        else:
            pass_through(dims, plan, tape, e)
        tape.energy[e] = measure_energy(dims, plan, tape, e)


# ----------------------------------------------------------------------------------------------------------------
# Stages of an event, backward
# ----------------------------------------------------------------------------------------------------------------


@njit(**_INNER)
def lift_adjoint(fr: Frames, fg: FrameGrads, row: int, x: Ptr, t: Ptr, dz: Ptr, out: Ptr, s: Ptr) -> None:
    """Adjoint of z = U x with coefficients t: out += U^T dz, and the frame's share. Uses s (k) and tmp behind it."""
    tmp = at(s, fr.k)
    lower(fr, row, dz, tmp, s)
    add(tmp, out, fr.d)
    frame_adjoint(fg, row, fr.k, fr.d, x, t, dz, s)


@njit(**_INNER)
def lower_adjoint(fr: Frames, fg: FrameGrads, row: int, x: Ptr, t: Ptr, dz: Ptr, out: Ptr, s: Ptr) -> None:
    """Adjoint of z = U^T x with coefficients t: out += U dz, and the frame's share."""
    tmp = at(s, fr.k)
    lift(fr, row, dz, tmp, s)
    add(tmp, out, fr.d)
    frame_adjoint(fg, row, fr.k, fr.d, dz, s, x, t)


@njit(**_STAGE)
def collect_entries(
    dims: Dims, plan: PlanArrays, tape: Tape, fr: Frames, fg: FrameGrads, grads: Grads, e: int, gh: Ptr, gy: Ptr, s: Ptr
) -> None:
    """gh (m, d): gradients of the stalks that event e wrote. Uses gy (d)."""
    d, first, num_ends = dims.d, plan.act_ptr[e], 1 if plan.is_loop[e] != 0 else 2
    for j in range(first, plan.act_ptr[e + 1]):
        row, out = dims.n0 + j, at(gh, (j - first) * d)
        copy(at(grads.up_h, row * d), out, d)
        if grads.live_h[row - fg.base] != 0:
            add(at(grads.gh, (row - fg.base) * d), out, d)
    if num_ends == 2:
        y_u = at(tape.y_ends, 2 * (dims.rounds * dims.n + e) * d)
        y_v, pull = at(y_u, d), lit(gh, 2.0) * grads.up_energy[e]
        for i in range(2):
            force = -pull if i else pull
            for c in range(d):
                gy[c] = force * (y_u[c] - y_v[c])
            row, post = dims.n0 + first + i, dims.n0 + 2 * e + i
            lift_adjoint(fr, fg, post, at(tape.h, row * d), at(tape.t_h, row * fr.k), gy, at(gh, i * d), s)


class Entry(NamedTuple):
    """One active entry in one round, for its adjoint: frame row, edge, and what the forward pass left."""

    frame: int
    weight: Any
    center: Ptr  # r = weight (U h - center)
    size: Any  # eta / degree
    h: Ptr  # before the round
    t_h: Ptr
    t_r: Ptr


class Work(NamedTuple):
    """Rows of scratch."""

    r: Ptr
    gq: Ptr
    gy: Ptr
    t_q: Ptr
    s: Ptr


@njit(**_INNER)
def step_adjoint(
    N: Ptr, k: int, d: int, G: Ptr, a: Any, c: Any, h: Ptr, t_h: Ptr, y_c: Ptr, t_r: Ptr, gh: Ptr, D: Ptr, gD: Ptr,
    r: Ptr, gq: Ptr, t: Ptr,
) -> None:  # fmt: skip
    """r again, gq = -c D gh with its coefficients t for U, and gD."""
    _step_adjoint(N, k, d, G, a, c, h, t_h, y_c, t_r, gh, D, gD, r, gq, t)


@njit(**_INNER)
def residual_adjoint(
    N: Ptr, k: int, d: int, G: Ptr, a: Any, gq: Ptr, t_q: Ptr, gr_c: Ptr, sum_c: Ptr, gy: Ptr, s: Ptr
) -> None:
    """gr = U gq, gy = a (gr - gr_c) with its coefficients s for U^T, and sum_c -= a gr."""
    _residual_adjoint(N, k, d, G, a, gq, t_q, gr_c, sum_c, gy, s)


@njit(**_STAGE)
def entry_adjoint(fr: Frames, en: Entry, D: Ptr, gD: Ptr, gh: Ptr, gr_c: Ptr, sum_c: Ptr, work: Work) -> None:
    """Adjoint of h' = h - c D U^T r at one entry, up to gy, the gradient of y = U h: gy = weight (gr - gr_c).

    gr = U (-c D gh) is the gradient of the entry's r; -weight gr goes to the center's sum_c.
    """
    k, d = fr.k, fr.d
    N, G = at(fr.N, en.frame * k * d), at(fr.G, en.frame * k * k)
    step_adjoint(N, k, d, G, en.weight, en.size, en.h, en.t_h, en.center, en.t_r, gh, D, gD, work.r, work.gq, work.t_q)
    residual_adjoint(N, k, d, G, en.weight, work.gq, work.t_q, gr_c, sum_c, work.gy, work.s)


@njit(**_STAGE)
def leaf_adjoint(
    fr: Frames, fg: FrameGrads, en: Entry, D: Ptr, gD: Ptr, gh: Ptr, gr_c: Ptr, sum_c: Ptr, out: Ptr, work: Work
) -> None:
    """`entry_adjoint` of a leaf, with its frame's share and out = gh + U^T gy, the gradient of h."""
    k, d = fr.k, fr.d
    entry_adjoint(fr, en, D, gD, gh, gr_c, sum_c, work)
    _lift_adjoint(at(fr.N, en.frame * k * d), k, d, fr.G, gh, work.gy, work.s, out)
    if en.frame >= fg.base:
        gN, S = at(fg.N, (en.frame - fg.base) * k * d), at(fg.S, (en.frame - fg.base) * k * k)
        _entry_frame_adjoint(gN, k, d, S, work.r, en.t_r, work.gq, work.t_q, en.h, en.t_h, work.gy, work.s)


@njit(**_STAGE)
def ends_adjoint(
    dims: Dims, tape: Tape, fr: Frames, fg: FrameGrads, st: Stages, star: Star, e: int, ell: int,
    D: Ptr, gD: Ptr, gh: Ptr, gr: Ptr, zeros: Ptr, sink: Ptr, work: Work,
) -> None:  # fmt: skip
    """gr (2, d): gradients of the endpoints' r in round ell."""
    d, k = dims.d, dims.kr
    for i in range(star.leaf - star.first):
        j, post = star.first + i, dims.n0 + 2 * e + i
        t_r, r = at(tape.t_round, (ell * st.num_entries + j) * k), at(tape.r_ends, (2 * (ell * dims.n + e) + i) * d)
        c = step_size(dims, D, star.degree_v if i else star.degree_u)
        zero_t, one = at(zeros, d), lit(D, 1.0)
        en = Entry(post, one, zeros, c, r, zero_t, t_r)  # r itself in the place of weight (U h - center)
        entry_adjoint(fr, en, D, gD, at(gh, i * d), zeros, sink, work)
        copy(work.gy, at(gr, i * d), d)
        frame_adjoint(fg, post, k, d, work.gq, work.t_q, r, t_r)


@njit(**_INNER)
def prefetch_leaf(
    dims: Dims, plan: PlanArrays, fr: Frames, fg: FrameGrads, st: Stages, star: Star, e: int, j: int, ell: int
) -> None:
    """Ask for what the adjoint of leaf j in round ell reads."""
    h, t = before_round(dims, plan, st, star, e, j, ell)
    prefetch(h, dims.d, dims.lanes)
    prefetch(t, 1, dims.lanes)
    if ell == dims.rounds - 1:
        row, size = plan.act_F[j], fr.k * dims.d
        prefetch(at(fr.N, row * size), size, dims.lanes)
        if row >= fg.base:
            prefetch(at(fg.N, (row - fg.base) * size), size, dims.lanes)


@njit(**_STAGE)
def leaves_adjoint(
    dims: Dims, plan: PlanArrays, tape: Tape, fr: Frames, fg: FrameGrads, grads: Grads, st: Stages, star: Star, e: int,
    ell: int, D: Ptr, gh: Ptr, gr: Ptr, sums: Ptr, mixed: Ptr, work: Work,
) -> None:  # fmt: skip
    """gh of the leaves from after to before round ell; the first round hands it to the versions they came from."""
    d = dims.d
    y_u = at(tape.y_ends, 2 * (ell * dims.n + e) * d)
    y_v, gr_v, sum_v = at(y_u, star.other * d), at(gr, star.other * d), at(sums, d)
    for j in range(star.leaf, star.stop):
        a, b, g = lit(D, plan.mult_src[j]), lit(D, plan.mult_dst[j]), at(gh, (j - star.first) * d)
        h, t_h = before_round(dims, plan, st, star, e, j, ell)
        t_r = at(tape.t_round, (ell * st.num_entries + j) * dims.kr)
        pull = join_edges(a, b, y_u, y_v, y_u, y_v, mixed, d)
        back = join_edges(a, b, gr, gr_v, sums, sum_v, at(mixed, 2 * d), d)
        en = Entry(plan.act_F[j], pull.weight, pull.center, step_size(dims, D, a + b), h, t_h, t_r)
        if j + 1 < star.stop:
            prefetch_leaf(dims, plan, fr, fg, st, star, e, j + 1, ell)
        out, row = g, plan.act_h[j] - fg.base
        if ell == 0 and row >= 0:
            grads.live_h[row] = 1
            out = at(grads.gh, row * d)
        leaf_adjoint(fr, fg, en, D, grads.gD, g, back.center, back.total, out, work)
        split_sum(a, b, back, sums, sum_v, d)


@njit(**_STAGE)
def diffusion_adjoint(
    dims: Dims, plan: PlanArrays, weights: Weights, tape: Tape, fr: Frames, fg: FrameGrads, grads: Grads, e: int,
    gh: Ptr, rows: Ptr, s: Ptr,
) -> None:  # fmt: skip
    """Step 5 backward. On return the first rows of gh hold the gradients of the endpoints' GRU outputs."""
    d, st, D = dims.d, read_stages(tape, plan.act_ptr[dims.n]), weights.D
    star = read_star(plan, e, gh)
    gr, sums, mixed, zeros, sink = rows, at(rows, 2 * d), at(rows, 4 * d), at(rows, 8 * d), at(rows, 9 * d + fr.k)
    work = Work(at(sink, d), at(sink, 2 * d), at(sink, 3 * d), at(sink, 4 * d), at(sink, 4 * d + fr.k))
    collect_entries(dims, plan, tape, fr, fg, grads, e, gh, work.gy, s)
    for ell in range(dims.rounds - 1, -1, -1):
        ends_adjoint(dims, tape, fr, fg, st, star, e, ell, D, grads.gD, gh, gr, zeros, sink, work)
        gr_v, sum_v = at(gr, star.other * d), at(sums, d)
        for i in range(d):
            sums[i] = star.total_u * gr[i] - star.uv * gr_v[i]
            sum_v[i] = star.total_v * gr_v[i] - star.uv * gr[i]
        leaves_adjoint(dims, plan, tape, fr, fg, grads, st, star, e, ell, D, gh, gr, sums, mixed, work)
        for i in range(star.leaf - star.first):
            h, t = before_round(dims, plan, st, star, e, star.first + i, ell)
            lift_adjoint(fr, fg, dims.n0 + 2 * e + i, h, t, at(sums, i * d), at(gh, i * d), s)
    if dims.rounds == 0:
        hand_back(dims, plan, grads, star, fg.base, gh)


@njit(**_INNER)
def hand_back(dims: Dims, plan: PlanArrays, grads: Grads, star: Star, base: int, gh: Ptr) -> None:
    """Without diffusion a leaf's gradient goes on as it is."""
    for j in range(star.leaf, star.stop):
        row = plan.act_h[j] - base
        if row >= 0:
            grads.live_h[row] = 1
            copy(at(gh, (j - star.first) * dims.d), at(grads.gh, row * dims.d), dims.d)


@njit(**_INLINE)
def gru_adjoint(d: int, g: Ptr, hbar: Ptr, gates: Ptr, out: Ptr, g_hbar: Ptr) -> None:
    """Gradients of the affine parts of a GRU cell, order (candidate's state part, r, z, n), and of hbar directly."""
    r, z, n, b_n = gates, at(gates, d), at(gates, 2 * d), at(gates, 3 * d)
    o_b, o_r, o_z, o_n = out, at(out, d), at(out, 2 * d), at(out, 3 * d)
    one = lit(g, 1.0)
    for i in range(d):
        gi, ri, zi, ni = g[i], r[i], z[i], n[i]
        v = gi * (one - zi) * (one - ni * ni)
        o_n[i] = v
        o_b[i] = v * ri
        o_r[i] = v * b_n[i] * ri * (one - ri)
        o_z[i] = gi * (hbar[i] - ni) * zi * (one - zi)
        g_hbar[i] = gi * zi


@njit(**_INNER)
def perceptron_adjoint(
    dims: Dims, W_in: Ptr, W_out: Ptr, hid: Ptr, g_out: Ptr, ld: int, width: int, g_hid: Ptr, g_x: Ptr
) -> None:
    """Gradients of the hidden layer (before relu) and of the state inputs, two rows, weights packed transposed."""
    clear(g_hid, 2 * dims.wp)
    layer(W_out, width, dims.wp, g_out, ld, g_hid, dims.wp, dims.lanes)
    relu_adjoint(hid, g_hid, 2 * dims.wp)
    clear(g_x, 2 * dims.d2p)
    layer(W_in, dims.w, dims.d2p, g_hid, dims.wp, g_x, dims.d2p, dims.lanes)


@njit(**_STAGE)
def stalks_adjoint(
    dims: Dims, plan: PlanArrays, weights: Weights, tape: Tape, grads: Grads, e: int, gh: Ptr, g_hbar: Ptr, g_x: Ptr
) -> None:
    """Step 4 backward: g_x (2, d2p) the gradients of the inputs [hbar | partner] of both endpoints."""
    d, r = dims.d, 2 * e
    gates, x = at(tape.gates, 4 * r * d), at(tape.x_msg, 2 * r * d)
    d_gates, d_m = at(grads.d_gates, 4 * r * d), at(grads.d_msg_out, r * dims.dp)
    clear(g_hbar, 2 * dims.dp)
    for s in range(2):
        if s == 1 and plan.is_loop[e] != 0:
            clear(at(d_gates, 4 * d), 4 * d)
        else:
            o = at(d_gates, 4 * s * d)
            gru_adjoint(d, at(gh, s * d), at(x, 2 * s * d), at(gates, 4 * s * d), o, at(g_hbar, s * dims.dp))
    clear(d_m, 2 * dims.dp)
    layer(weights.gru_in, 3 * d, dims.dp, at(d_gates, d), 4 * d, d_m, dims.dp, dims.lanes)
    layer(weights.gru_state, 3 * d, dims.dp, d_gates, 4 * d, g_hbar, dims.dp, dims.lanes)
    hid, g_hid = at(tape.hid_msg, r * dims.wp), at(grads.d_msg_hid, r * dims.wp)
    perceptron_adjoint(dims, weights.msg_in, weights.msg_out, hid, d_m, dims.dp, d, g_hid, g_x)
    for s in range(2):
        add(at(g_hbar, s * dims.dp), at(g_x, s * dims.d2p), d)


@njit(**_INNER)
def pair_adjoint(
    dims: Dims, fr: Frames, fg: FrameGrads, frame_u: int, frame_v: int, loop: bool, g_x: Ptr, y_u: Ptr, y_v: Ptr,
    t: Ptr, g_yu: Ptr, g_yv: Ptr, s: Ptr,
) -> None:  # fmt: skip
    """Adjoint of `transport_pair`: partner gradients go to g_yu, g_yv, or to the state itself in a self-loop."""
    d, d2p = dims.d, dims.d2p
    if loop:
        add(at(g_x, d), g_x, d)
    else:
        lower_adjoint(fr, fg, frame_u, y_v, t, at(g_x, d), g_yv, s)
        lower_adjoint(fr, fg, frame_v, y_u, at(t, NUM_COEF * fr.k), at(g_x, d2p + d), g_yu, s)


@njit(**_STAGE)
def carry_adjoint(
    dims: Dims, plan: PlanArrays, tape: Tape, fr: Frames, fg: FrameGrads, e: int, g_x: Ptr, g_h: Ptr, g_y: Ptr, s: Ptr
) -> None:
    """Adjoint of `carry_over`: g_h, g_y (2, d) the gradients of the endpoints' pre-event stalks and their y."""
    d, d2p, loop, post = dims.d, dims.d2p, plan.is_loop[e] != 0, dims.n0 + 2 * e
    coef, row = at(tape.coef, 2 * e * NUM_COEF * dims.kr), NUM_COEF * dims.kr
    x, num_ends = at(tape.x_msg, 4 * e * d), 1 if loop else 2
    clear(g_h, 2 * d)
    clear(g_y, 2 * d)
    y_u, y_v = at(tape.y_pre, 2 * e * d), at(tape.y_pre, (2 * e + 1) * d)
    if dims.carry_over:
        pair_adjoint(dims, fr, fg, post, post + 1, loop, g_x, y_u, y_v, at(coef, POST * fr.k), g_y, at(g_y, d), s)
        for i in range(num_ends):
            t = at(coef, i * row + CARRY * fr.k)
            lower_adjoint(fr, fg, post + i, y_v if i else y_u, t, at(g_x, i * d2p), at(g_y, i * d), s)
    else:
        y_u, y_v = at(tape.lift, 2 * e * d), at(tape.lift, (2 * e + 1) * d)
        pair_adjoint(dims, fr, fg, post, post + 1, loop, g_x, y_u, y_v, at(coef, POST * fr.k), g_y, at(g_y, d), s)
        for i in range(num_ends):
            add(at(g_x, i * d2p), at(g_h, i * d), d)
            t = at(coef, i * row + LIFT * fr.k)
            lift_adjoint(fr, fg, post + i, at(x, 2 * i * d), t, at(g_y, i * d), at(g_h, i * d), s)
        clear(g_y, 2 * d)


@njit(**_INLINE)
def post_frame_gradient(dims: Dims, fr: Frames, fg: FrameGrads, grads: Grads, row: int, out: Ptr) -> None:
    """out += gradient of frame version `row`: from scores, from the event that moves it on, from its reflectors."""
    size = dims.k * dims.d
    add(at(grads.up_F, row * size), out, size)
    if grads.live_F[row - fg.base]:
        add(at(grads.gF, (row - fg.base) * size), out, size)
    close_frame(fr, fg, row, out)


@njit(**_STAGE)
def frames_adjoint(
    dims: Dims, plan: PlanArrays, weights: Weights, tape: Tape, fr: Frames, fg: FrameGrads, grads: Grads, e: int,
    g_x: Ptr,
) -> None:  # fmt: skip
    """Step 3 backward: post-event frames are complete; g_x (2, d2p) the gradients of the inputs of MLP_frame."""
    size, loop, post = dims.k * dims.d, plan.is_loop[e] != 0, dims.n0 + 2 * e
    out = at(grads.d_frame_out, 2 * e * size)
    clear(out, 2 * size)
    for s in range(2):
        post_frame_gradient(dims, fr, fg, grads, post + s, out if loop else at(out, s * size))
    for s in range(1 if loop else 2):
        pre = (plan.dst_F[e] if s else plan.src_F[e]) - fg.base
        if pre >= 0:
            grads.live_F[pre] = 1
            copy(at(out, s * size), at(grads.gF, pre * size), size)
        if dims.frame_update:
            weight = lit(out, 2.0) * grads.up_smooth[e]
            axpy(weight, at(tape.dF, (2 * e + s) * dims.kdp), at(out, s * size), size)
    if dims.frame_update:
        hid, g_hid = at(tape.hid_frame, 2 * e * dims.wp), at(grads.d_frame_hid, 2 * e * dims.wp)
        perceptron_adjoint(dims, weights.frame_in, weights.frame_out, hid, out, size, size, g_hid, g_x)


@njit(**_STAGE)
def inputs_adjoint(
    dims: Dims, plan: PlanArrays, tape: Tape, fr: Frames, fg: FrameGrads, grads: Grads, e: int,
    g_x: Ptr, g_h: Ptr, g_y: Ptr, s: Ptr,
) -> None:  # fmt: skip
    """Adjoint of the reads of event e: hand the gradients g_h, g_y of its endpoints to the versions they came from."""
    d, loop = dims.d, plan.is_loop[e] != 0
    if dims.frame_update:
        y = at(tape.y_pre, 2 * e * d)
        t = at(tape.coef, (2 * e * NUM_COEF + PRE) * fr.k)
        pair_adjoint(dims, fr, fg, plan.src_F[e], plan.dst_F[e], loop, g_x, y, at(y, d), t, g_y, at(g_y, d), s)
        add(g_x, g_h, d)
        add(at(g_x, dims.d2p), at(g_h, d), d)
    for i in range(1 if loop else 2):
        row, frame = (plan.dst_h[e], plan.dst_F[e]) if i else (plan.src_h[e], plan.src_F[e])
        if row >= fg.base:
            out = at(g_h, i * d)
            lift_adjoint(fr, fg, frame, at(tape.h, row * d), at(tape.t_h, row * fr.k), at(g_y, i * d), out, s)
            grads.live_h[row - fg.base] = 1
            copy(out, at(grads.gh, (row - fg.base) * d), d)


@njit(**_STAGE)
def initial_gradients(dims: Dims, tape: Tape, fr: Frames, fg: FrameGrads, grads: Grads) -> None:
    """Gradients of h0 and F0, when they are wanted (base = 0)."""
    d, size = dims.d, dims.k * dims.d
    for row in range(dims.n0):
        out = at(grads.g_h0, row * d)
        copy(at(grads.up_h, row * d), out, d)
        if grads.live_h[row]:
            add(at(grads.gh, row * d), out, d)
    for row in range(dims.n0):
        out = at(grads.g_F0, row * size)
        if tape.ready_F[row]:
            clear(out, size)
            post_frame_gradient(dims, fr, fg, grads, row, out)
        else:
            copy(at(grads.up_F, row * size), out, size)


@kernel(**_FREE)
def backward(dims: Dims, plan: PlanArrays, weights: Weights, tape: Tape, grads: Grads, base: int) -> None:
    """The adjoint of `forward`, events in reverse; weights packed transposed."""
    run_backward(dims, pointers(plan), pointers(weights), pointers(tape), pointers(grads), base)


@njit(**_STAGE)
def run_backward(dims: Dims, plan: PlanArrays, weights: Weights, tape: Tape, grads: Grads, base: int) -> None:
    """`backward` on pointers."""
    d = dims.d
    fr = Frames(tape.N, tape.G, tape.inv, dims.kr, d)
    fg = FrameGrads(grads.gN, grads.gS, base)
    s = grads.scratch
    g_hbar = at(s, dims.kr + d)
    g_x, g_h = at(g_hbar, 2 * dims.dp), at(g_hbar, 2 * dims.dp + 2 * dims.d2p)
    g_y = at(g_h, 2 * d)
    rows = at(g_y, 2 * d)
    gh = at(rows, 13 * d + 3 * dims.kr)
    clear(at(rows, 8 * d), d + dims.kr)
    for e in range(dims.n - 1, -1, -1):
        diffusion_adjoint(dims, plan, weights, tape, fr, fg, grads, e, gh, rows, s)
        stalks_adjoint(dims, plan, weights, tape, grads, e, gh, g_hbar, g_x)
        carry_adjoint(dims, plan, tape, fr, fg, e, g_x, g_h, g_y, s)
        frames_adjoint(dims, plan, weights, tape, fr, fg, grads, e, g_x)
        inputs_adjoint(dims, plan, tape, fr, fg, grads, e, g_x, g_h, g_y, s)
    if base == 0:
        initial_gradients(dims, tape, fr, fg, grads)


# ----------------------------------------------------------------------------------------------------------------
# Geometric scalars of candidates (eq:sdist, eq:score_features)
# ----------------------------------------------------------------------------------------------------------------


class Slots(NamedTuple):
    """Distinct versions that a set of queries reads: each is lifted once, whoever shares it."""

    h: Array  # row of the stalk log
    F: Array  # row of the frame log
    query: Array  # the query whose relation bends the frame, or -1
    of_src: Array  # (nq,) slot of a query's source
    of_cand: Array  # (nc,)


class Lifted(NamedTuple):
    """The slots in synchronized coordinates, and what their adjoint needs."""

    y: Array  # (slots, d)
    norm2: Array  # (slots,) |h|^2
    t: Array  # (slots, kr)
    N: Array
    G: Array
    inv: Array


@njit(**_INLINE)
def find_slot(frames: Ptr, table: Ptr, used: int, row: int, frame: int) -> int:
    """The slot of version (row, frame); `used` when there is none yet."""
    slot = table[row]
    return slot if slot >= 0 and frames[slot] == frame else used


@njit(**_INLINE)
def open_slot(slots: Slots, used: int, row: int, frame: int, query: int) -> None:
    """A new slot."""
    slots.h[used] = row
    slots.F[used] = frame
    slots.query[used] = query


@kernel(**_FREE)
def assign_slots(src_h: Array, src_F: Array, cand_h: Array, cand_F: Array, bent: bool, table: Array, out: Slots) -> int:
    """Fill `out`; `table` (rows of the stalk log) comes in as -1. Returns how many slots there are."""
    slots, slot_of, used = pointers(out), ptr(table), 0
    h, F = ptr(src_h), ptr(src_F)
    for q in range(len(src_h)):
        slot = used if bent else find_slot(slots.F, slot_of, used, h[q], F[q])
        if slot == used:
            open_slot(slots, used, h[q], F[q], q if bent else -1)
            if not bent:
                slot_of[h[q]] = used
            used += 1
        slots.of_src[q] = slot
    h, F = ptr(cand_h), ptr(cand_F)
    for c in range(len(cand_h)):
        slot = find_slot(slots.F, slot_of, used, h[c], F[c])
        if slot == used:
            open_slot(slots, used, h[c], F[c], -1)
            slot_of[h[c]] = used
            used += 1
        slots.of_cand[c] = slot
    return used


@njit(**_INLINE)
def lift_slots(h: Ptr, F: Ptr, bias: Ptr, slots: Slots, out: Lifted, fr: Frames, size: int, eps: float, f: Ptr) -> None:
    """Lift every slot: y = U(F + bias) h."""
    d, y, t = fr.d, ptr(out.y), ptr(out.t)
    for s in range(len(out.norm2)):
        x = at(h, slots.h[s] * d)
        copy(at(F, slots.F[s] * size), f, size)
        if slots.query[s] >= 0:
            add(at(bias, slots.query[s] * size), f, size)
        open_frame(fr, s, f, eps)
        lift(fr, s, x, at(y, s * d), at(t, s * fr.k))
        out.norm2[s] = dot(x, x, d)


@kernel(**_FREE)
def geometry(
    h: Array, F: Array, bias: Array, cand_ptr: Array, slots: Slots, kr: int, eps: float, lifted: Lifted, scratch: Array,
    out: Array,
) -> None:  # fmt: skip
    """out (nc, 4): |q - g|^2, <q, g>, |h_u|^2, |h_c|^2 with q and g the lifted source and candidate."""
    d, size = h.shape[1], F.shape[1] * F.shape[2]
    fr = Frames(ptr(lifted.N), ptr(lifted.G), ptr(lifted.inv), kr, d)
    lift_slots(ptr(h), ptr(F), ptr(bias), slots, lifted, fr, size, eps, ptr(scratch))
    y, to = ptr(lifted.y), ptr(out)
    for query in range(len(slots.of_src)):
        source = slots.of_src[query]
        q = at(y, source * d)
        for c in range(cand_ptr[query], cand_ptr[query + 1]):
            cand = slots.of_cand[c]
            g = at(y, cand * d)
            far, inner = lit(y, 0.0), lit(y, 0.0)
            for i in range(d):
                far += (q[i] - g[i]) * (q[i] - g[i])
                inner += q[i] * g[i]
            row = at(to, 4 * c)
            row[0], row[1], row[2], row[3] = far, inner, lifted.norm2[source], lifted.norm2[cand]


@kernel(**_FREE)
def distances(g: Array, q: Array, far: Array, inner: Array) -> None:
    """|q - g|^2 and <q, g> of one lifted source and many lifted candidates, in one reading of them."""
    own, d = ptr(q), len(q)
    for row in range(len(g)):
        other, apart, along = at(ptr(g), row * d), lit(own, 0.0), lit(own, 0.0)
        for i in range(d):
            apart += (own[i] - other[i]) * (own[i] - other[i])
            along += own[i] * other[i]
        far[row], inner[row] = apart, along


class GeometryGrads(NamedTuple):
    """Gradients of `geometry`: up (nc, 4) comes in, the rest goes out (zeroed by the caller)."""

    up: Array
    mask: Array  # (nc,) whether a gradient reaches the candidate's state
    y: Array  # (slots, d)
    norm2: Array  # (slots,)
    touched: Array  # (slots,)
    h: Array
    F: Array
    bias: Array
    scratch: Array


@njit(**_INLINE)
def scalars_adjoint(cand_ptr: Array, slots: Slots, lifted: Lifted, grads: GeometryGrads, d: int) -> None:
    """Gradients of the lifted slots and of their squared norms."""
    y, gy, up = ptr(lifted.y), ptr(grads.y), ptr(grads.up)
    two = lit(y, 2.0)
    for query in range(len(slots.of_src)):
        source = slots.of_src[query]
        q, gq = at(y, source * d), at(gy, source * d)
        grads.touched[source] = 1
        for c in range(cand_ptr[query], cand_ptr[query + 1]):
            cand, u = slots.of_cand[c], at(up, 4 * c)
            g, gc, far, inner = at(y, cand * d), at(gy, cand * d), two * u[0], u[1]
            for i in range(d):
                gq[i] += far * (q[i] - g[i]) + inner * g[i]
            grads.norm2[source] += u[2]
            if grads.mask[c]:
                for i in range(d):
                    gc[i] += inner * q[i] - far * (q[i] - g[i])
                grads.norm2[cand] += u[3]
                grads.touched[cand] = 1


@kernel(**_FREE)
def geometry_adjoint(
    h: Array, size: int, cand_ptr: Array, slots: Slots, kr: int, lifted: Lifted, grads: GeometryGrads
) -> None:
    """Adjoint of `geometry`: gradients of both logs and of the rows of the relation bias."""
    d = h.shape[1]
    fr = Frames(ptr(lifted.N), ptr(lifted.G), ptr(lifted.inv), kr, d)
    scalars_adjoint(cand_ptr, slots, lifted, grads, d)
    s = ptr(grads.scratch)
    gN, S, gF = at(s, kr + d), at(s, kr + d + size), at(s, kr + d + size + kr * kr)
    for slot in range(len(lifted.norm2)):
        if not grads.touched[slot]:
            continue
        x, out = at(ptr(h), slots.h[slot] * d), at(ptr(grads.h), slots.h[slot] * d)
        axpy(lit(x, 2.0) * grads.norm2[slot], x, out, d)
        clear(gN, 2 * size + kr * kr)
        fg = FrameGrads(at(gN, -slot * kr * d), at(S, -slot * kr * kr), 0)
        lift_adjoint(fr, fg, slot, x, at(ptr(lifted.t), slot * kr), at(ptr(grads.y), slot * d), out, s)
        close_frame(fr, fg, slot, gF)
        add(gF, at(ptr(grads.F), slots.F[slot] * size), size)
        if slots.query[slot] >= 0:
            copy(gF, at(ptr(grads.bias), slots.query[slot] * size), size)
