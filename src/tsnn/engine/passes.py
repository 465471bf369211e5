"""The innermost passes of the recurrence, for which we write the machine's instructions ourselves.

Most of the work outside the dense layers reads the k reflectors of a frame along with a few rows of d numbers: project
a row on the reflectors, subtract a combination of them, and something in between. Such a pass ought to touch every
number once and keep its sums in registers. Plain loops do not: the compiler cannot know whether two rows overlap, so it
checks at run time or gives up on vectors. They would cost 5 to 9 % of the training rate (decision 0011).

How to read it without knowing LLVM: Numba compiles Python by translating it to the language of LLVM, a typed assembler
with any number of registers, each written once. `llvmlite.ir` writes that language from Python: `builder.fmul(a, b)`
does not multiply, it appends an instruction that will, and returns the name of its result. Instructions stand in
blocks; a block ends with a branch; and since registers are written once, a number that changes from one turn of a loop
to the next is a `phi`: "this value if we come from before the loop, that one if we come from its end". `gep` is the
address of an element, `bitcast` reads it as a vector. An `intrinsic` is a function that Numba takes from us like this.

    Vector      a few numbers side by side (VECTOR_BYTES of them), with + - *
    Sweep       writes one pass down: a loop over whole vectors, then one over the numbers that are left
    @sweep(...) turns a function of a Sweep into a pass

A pass is a function of the Sweep `v` and of its arguments. It does what comes before the loop (a scalar into every
lane, coefficients into registers) and returns the loop's body:

    @sweep(solves="t")
    def project(v, x, t):                       # called by kernels as project(frame, x, t), frame a `Reflectors`
        return lambda: v.project(v.load(x))     # at each vector: add <N_i, x> to the sums of all i

After the loop twice the sums stand at the argument named by `solves`, solved into the coefficients of U x (with `back`:
of U^T x), see `tsnn.engine.forward`. `mixes` names pairs of coefficients whose products S collects. Rows may be
identical, but must not overlap otherwise. For k of `UNROLLED` the loops over reflectors are written out.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

from llvmlite import ir  # type: ignore[import-untyped]

from tsnn.engine.pointers import VECTOR_BYTES, Ptr, cgutils, intrinsic, types

UNROLLED = (0, 2, 3, 4)
FLAGS = ("contract", "reassoc", "nsz")


class Reflectors(NamedTuple):
    """One frame version's unit reflectors (k, d) and their Gram matrix (k, k); or gradients collected for them."""

    N: Ptr
    G: Ptr
    k: int
    d: int


def spread(builder: Any, scalar: Any, lanes: int) -> Any:
    """A scalar in every lane of a vector."""
    blank, lane = ir.Constant(ir.VectorType(scalar.type, lanes), ir.Undefined), ir.IntType(32)
    one = builder.insert_element(blank, scalar, lane(0))
    return builder.shuffle_vector(one, blank, ir.Constant(ir.VectorType(lane, lanes), [0] * lanes))


class Vector:
    """A vector in the code being generated, with arithmetic."""

    def __init__(self, builder: Any, value: Any) -> None:
        self.builder, self.value = builder, value

    def __add__(self, other: Vector) -> Vector:
        return Vector(self.builder, self.builder.fadd(self.value, other.value, flags=FLAGS))

    def __sub__(self, other: Vector) -> Vector:
        return Vector(self.builder, self.builder.fsub(self.value, other.value, flags=FLAGS))

    def __mul__(self, other: Vector) -> Vector:
        return Vector(self.builder, self.builder.fmul(self.value, other.value, flags=FLAGS))


class Sweep:
    """Writes one pass over d numbers; `unroll` is the number of reflectors where it is a constant."""

    def __init__(self, builder: Any, real: Any, N: Any, k: Any, d: Any, unroll: int | None) -> None:
        self.builder, self.real, self.N, self.k, self.d, self.unroll = builder, real, N, k, d, unroll
        self.index = ir.IntType(64)
        self.target: Any = None
        self.totals: list[Vector] = []
        self.loaded: dict[int, Vector] = {}  # the current vectors of the reflectors
        self.sums = [ir.Constant(real, 0.0)] * (unroll or 0)

    # what a pass may use

    def load(self, row: Any) -> Vector:
        """The current vector of a row."""
        return Vector(self.builder, self.builder.load(self._place(row), align=self.size))

    def store(self, row: Any, vector: Vector) -> None:
        """Write the current vector of a row."""
        self.builder.store(vector.value, self._place(row), align=self.size)

    def spread(self, scalar: Any) -> Vector:
        """A scalar in every lane."""
        return Vector(self.builder, spread(self.builder, scalar, self.lanes))

    def zero(self) -> Vector:
        """Zeros."""
        return self.spread(ir.Constant(self.real, 0.0))

    def coefficients(self, t: Any) -> Any:
        """Make the k numbers at t usable in `combine` and `subtract_from_rows`; to be called before the loop."""
        return t if self.unroll is None else [self._coefficient(t, self._const(i)) for i in range(self.unroll)]

    def combine(self, coef: Any) -> Vector:
        """sum_i coef_i N_i."""
        total: Vector = self._each(lambda i, s: s + self._coefficient(coef, i) * self._reflector(i), self.zero())
        return total

    def project(self, x: Vector) -> None:
        """Add x to the projections 2 <N_i, x> that go to the pass's target."""

        def add(i: Any, _: Any) -> None:
            product = self._reflector(i) * x
            if isinstance(i, int):
                self.totals[i] = self.totals[i] + product
            else:
                twice = self.builder.fmul(self._reduce(product.value), ir.Constant(self.real, 2.0))
                self._add_at(self.target, i, twice)

        self._each(add)

    def subtract_from_rows(self, terms: list[tuple[Any, Vector]]) -> None:
        """N_i -= sum over terms of coef_i vector."""

        def one(i: Any, _: Any) -> None:
            row = self._row(i)
            value = self.load(row)
            for coef, vector in terms:
                value = value - self._coefficient(coef, i) * vector
            self.store(row, value)

        self._each(one)

    # how it is written down

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
                product = b.fmul(self._cell(G, self._const(i), self._const(j)), value[j], flags=FLAGS)
                value[i] = b.fsub(value[i], product, flags=FLAGS)
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
                self._add_at(S, self._const(i * k + j), b.fmul(left[i], right[j], flags=FLAGS))

    def _write(self, target: Any, values: list[Any]) -> None:
        for i, value in enumerate(values):
            self.builder.store(value, self.builder.gep(target, [self._const(i)]))

    def _cell(self, matrix: Any, i: Any, j: Any) -> Any:
        return self.builder.load(self.builder.gep(matrix, [self.builder.add(self.builder.mul(i, self.k), j)]))

    def _add_at(self, target: Any, i: Any, value: Any) -> None:
        place = self.builder.gep(target, [i])
        self.builder.store(self.builder.fadd(self.builder.load(place), value, flags=FLAGS), place)

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
        self.totals, self.loaded = [Vector(b, phi) for phi in phis], {}
        body()
        following = b.add(self.c, self._const(lanes))
        totals = [(phi, zero, total.value) for phi, total in zip(phis, self.totals, strict=True)]
        for phi, initial, later in [(self.c, start, following), *totals]:
            phi.add_incoming(initial, before)
            phi.add_incoming(later, b.block)
        b.branch(head)
        b.position_at_end(after)
        self.sums = [b.fadd(s, self._reduce(phi), flags=FLAGS) for s, phi in zip(self.sums, phis, strict=True)]

    def _set_lanes(self, lanes: int) -> None:
        self.lanes, self.vec = lanes, ir.VectorType(self.real, lanes)

    def _const(self, i: int) -> Any:
        return ir.Constant(self.index, i)

    def _place(self, row: Any) -> Any:
        return self.builder.bitcast(self.builder.gep(row, [self.c]), self.vec.as_pointer())

    # i, the number of a reflector, is a Python int where the loop is unrolled, else a value in the generated code.

    def _row(self, i: Any) -> Any:
        return self.builder.gep(self.N, [self.builder.mul(self._const(i) if isinstance(i, int) else i, self.d)])

    def _reflector(self, i: Any) -> Vector:
        if not isinstance(i, int):
            return self.load(self._row(i))
        if i not in self.loaded:
            self.loaded[i] = self.load(self._row(i))
        return self.loaded[i]

    def _coefficient(self, coef: Any, i: Any) -> Vector:
        return coef[i] if isinstance(i, int) else self.spread(self.builder.load(self.builder.gep(coef, [i])))

    def _reduce(self, value: Any) -> Any:
        if self.lanes == 1:
            return self.builder.extract_element(value, ir.IntType(32)(0))
        name = f"llvm.vector.reduce.fadd.v{self.lanes}f{8 * self.size}"
        kind = ir.FunctionType(self.real, [self.real, self.vec])
        function = cgutils.get_or_insert_function(self.builder.module, kind, name)
        return self.builder.call(function, [ir.Constant(self.real, 0.0), value], fastmath=FLAGS)

    def _each(self, step: Any, initial: Vector | None = None) -> Any:
        """A loop over the reflectors inside the pass; `step(i, total)` returns the next total."""
        if self.unroll is not None:
            for i in range(self.unroll):
                initial = step(i, initial)
            return initial
        b, before = self.builder, self.builder.block
        head, inside, after = (b.append_basic_block(f"each.{name}") for name in ("head", "body", "end"))
        b.branch(head)
        b.position_at_end(head)
        i = b.phi(self.index)
        total = None if initial is None else Vector(b, b.phi(self.vec))
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


def sweep(solves: str = "", back: bool = False, mixes: tuple[tuple[str, str], ...] = ()) -> Callable[..., Any]:
    """A pass from a function of a Sweep and of the pass's arguments; kernels call it with a Reflectors before them."""

    def write(prepare: Callable[..., Any]) -> Any:
        names = list(inspect.signature(prepare).parameters)[1:]

        def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            N, G, k, d = cgutils.unpack_tuple(builder, args[0])
            values = dict(zip(names, cgutils.unpack_tuple(builder, args[1]), strict=True))
            real = context.get_value_type(sig.args[0][0].dtype)

            def body(count: int | None) -> None:
                v = Sweep(builder, real, N, k, d, count)
                v.emit(lambda v: prepare(v, **values), values[solves] if solves else None)
                if solves:
                    v.solve(G, values[solves], back)
                for t, s in mixes:
                    v.mix(G, values[t], values[s])

            for_each_count(builder, k, body)
            return context.get_dummy_value()

        @intrinsic
        def block(_: Any, frame: Any, *values: Any) -> Any:
            return types.void(frame, types.StarArgTuple.from_types(values)), generate

        return block

    return write


def for_each_count(builder: Any, k: Any, write: Callable[[int | None], None]) -> None:
    """Code for every unrolled number of reflectors and for the others; k picks where to go."""
    end = builder.append_basic_block("pass.end")
    counts: tuple[int | None, ...] = (*UNROLLED, None)
    blocks = [builder.append_basic_block(f"pass.{count}") for count in counts]
    switch = builder.switch(k, blocks[-1])
    for count, block in zip(counts, blocks, strict=True):
        if count is not None:
            switch.add_case(ir.Constant(ir.IntType(64), count), block)
        builder.position_at_end(block)
        write(count)
        builder.branch(end)
    builder.position_at_end(end)


# The passes. Names of arguments: h, gh rows of the state and its gradient; r, gr the sums of eq:diffusion_local and
# theirs; y_c, gr_c what belongs to a center and r_c, sum_c what is added up for it; t_x the coefficients of row x.


@sweep(solves="t")
def project(v: Sweep, x: Any, t: Any) -> Any:
    """The coefficients t of U x = x - sum_i t_i N_i."""
    return lambda: v.project(v.load(x))


@sweep(solves="t", back=True)
def project_back(v: Sweep, x: Any, t: Any) -> Any:
    """The coefficients t of U^T x = x - sum_i t_i N_i."""
    return lambda: v.project(v.load(x))


@sweep()
def subtract(v: Sweep, t: Any, x: Any, out: Any) -> Any:
    """out = x - sum_i t_i N_i; out may be x."""
    coef = v.coefficients(t)
    return lambda: v.store(out, v.load(x) - v.combine(coef))


@sweep(solves="t", back=True)
def residual(v: Sweep, a: Any, h: Any, t_h: Any, y_c: Any, r: Any, r_c: Any, t: Any) -> Any:
    """r = a (U h - y_c), a leaf's sum in eq:diffusion_local, with its coefficients t for U^T; and r_c -= a U h."""
    weight, coef = v.spread(a), v.coefficients(t_h)

    def body() -> None:
        y = v.load(h) - v.combine(coef)
        residual = weight * (y - v.load(y_c))
        v.store(r, residual)
        v.store(r_c, v.load(r_c) - weight * y)
        v.project(residual)

    return body


@sweep(solves="t")
def step(v: Sweep, c: Any, r: Any, t_r: Any, h: Any, D: Any, h_post: Any, t: Any) -> Any:
    """h_post = h - c D U^T r (eq:diffusion_local) with its coefficients t for U."""
    size, coef = v.spread(c), v.coefficients(t_r)

    def body() -> None:
        moved = v.load(h) - size * v.load(D) * (v.load(r) - v.combine(coef))
        v.store(h_post, moved)
        v.project(moved)

    return body


@sweep(solves="t")
def step_adjoint(
    v: Sweep, a: Any, c: Any, h: Any, t_h: Any, y_c: Any, t_r: Any, gh: Any, D: Any, gD: Any, r: Any, gq: Any, t: Any
) -> Any:
    """r as in `residual`; gq = -c D gh with its coefficients t for U; and gD."""
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


@sweep(solves="t", back=True)
def residual_adjoint(v: Sweep, a: Any, gq: Any, t_q: Any, gr_c: Any, sum_c: Any, gy: Any, t: Any) -> Any:
    """gr = U gq; gy = a (gr - gr_c) with its coefficients t for U^T; and sum_c -= a gr."""
    weight, coef = v.spread(a), v.coefficients(t_q)

    def body() -> None:
        gr = v.load(gq) - v.combine(coef)
        gradient = weight * (gr - v.load(gr_c))
        v.store(gy, gradient)
        v.store(sum_c, v.load(sum_c) - weight * gr)
        v.project(gradient)

    return body


@sweep()
def add_lowered(v: Sweep, gh: Any, gy: Any, t: Any, out: Any) -> Any:
    """out = gh + U^T gy; out may be gh."""
    coef = v.coefficients(t)
    return lambda: v.store(out, v.load(gh) + v.load(gy) - v.combine(coef))


@sweep(mixes=(("t", "s"),))
def frame_share(v: Sweep, t: Any, dz: Any, s: Any, x: Any) -> Any:
    """Collect the frame gradient of z = U x: N_i -= t_i dz + s_i x, S_ij += t_i s_j."""
    coef_t, coef_s = v.coefficients(t), v.coefficients(s)
    return lambda: v.subtract_from_rows([(coef_t, v.load(dz)), (coef_s, v.load(x))])


@sweep(mixes=(("t_q", "t_r"), ("t_h", "t_y")))
def leaf_frame_share(v: Sweep, r: Any, t_r: Any, gq: Any, t_q: Any, h: Any, t_h: Any, gy: Any, t_y: Any) -> Any:
    """The same for both applications of U at a leaf, q = U^T r and y = U h, at once."""
    coef_r, coef_q, coef_h, coef_y = (v.coefficients(t) for t in (t_r, t_q, t_h, t_y))

    def body() -> None:
        step = [(coef_q, v.load(r)), (coef_r, v.load(gq))]
        v.subtract_from_rows([*step, (coef_h, v.load(gy)), (coef_y, v.load(h))])

    return body
