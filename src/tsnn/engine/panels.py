"""Dense layers for the two rows of an event, their weights laid out in panels of columns.

All sums of a panel stay in registers and its weights are read once, in order: LLVM's own vectorizer finds neither, so
the block is generated (how one reads such code: `tsnn.engine.passes`).
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba import njit

from tsnn.engine.passes import spread
from tsnn.engine.pointers import ENTRY, INNER, VECTOR_BYTES, WIDE, Ptr, at, cgutils, intrinsic, lit, ptr, types
from tsnn.kernel_cache import kernel

PANEL_VECTORS = 4 if WIDE else 2  # accumulators of two endpoints must fit the registers


def _vector_block(rows: int, vectors: int) -> Any:
    """An intrinsic y[r, :] += sum_j x[r, j] P[j, :] for `rows` rows of x and y and a panel of `vectors` vectors."""

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        panel, count, x, ldx, y, ldy = args
        real = context.get_value_type(sig.args[0].dtype)
        size = 4 if isinstance(real, ir.FloatType) else 8
        lanes = VECTOR_BYTES // size
        vec, word = ir.VectorType(real, lanes), ir.IntType(64)
        fma_type = ir.FunctionType(vec, [vec, vec, vec])
        fma = cgutils.get_or_insert_function(builder.module, fma_type, f"llvm.fma.v{lanes}f{8 * size}")
        cells = [(r, v) for r in range(rows) for v in range(vectors)]

        def const(i: int) -> Any:
            return ir.Constant(word, i)

        def vector_at(base: Any, offset: Any) -> Any:
            return builder.bitcast(builder.gep(base, [offset]), vec.as_pointer())

        place = {c: vector_at(y, builder.add(builder.mul(ldy, const(c[0])), const(c[1] * lanes))) for c in cells}
        x_row = [builder.gep(x, [builder.mul(ldx, const(r))]) for r in range(rows)]
        start = {c: builder.load(place[c], align=size) for c in cells}
        before = builder.block
        loop, after = (builder.append_basic_block(f"panel.{name}") for name in ("loop", "end"))
        builder.branch(loop)
        builder.position_at_end(loop)
        j = builder.phi(word)
        total = {c: builder.phi(vec) for c in cells}
        first = builder.mul(j, const(vectors * lanes))
        places = [vector_at(panel, builder.add(first, const(v * lanes))) for v in range(vectors)]
        weight = [builder.load(pointer, align=size) for pointer in places]
        value = [spread(builder, builder.load(builder.gep(x_row[r], [j])), lanes) for r in range(rows)]
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


_whole, _one, _two, _three = (_vector_block(2, vectors) for vectors in (PANEL_VECTORS, 1, 2, 3))


@njit(**INNER)
def layer(P: Ptr, nx: int, nc: int, x: Ptr, ldx: int, y: Ptr, ldy: int, lanes: int) -> None:
    """y += x W for the two rows of an event, W packed in panels; nc counts whole vectors."""
    full = PANEL_VECTORS * lanes
    c = 0
    while nc - c >= full:
        _whole(at(P, nx * c), nx, x, ldx, at(y, c), ldy)
        c += full
    rest = (nc - c) // lanes
    if rest == 1:
        _one(at(P, nx * c), nx, x, ldx, at(y, c), ldy)
    elif rest == 2:
        _two(at(P, nx * c), nx, x, ldx, at(y, c), ldy)
    elif rest == 3:
        _three(at(P, nx * c), nx, x, ldx, at(y, c), ldy)


@kernel(**ENTRY)
def pack(layers: Any, lanes: int) -> None:
    """Lay weights out for `layer`: panels of columns, each contiguous over x; columns past nc are zero.

    The number for input j and column c is W[(j + shift) % nx * stride_x + c * stride_c].
    """
    for W, stride_x, stride_c, nx, nc, shift, out in layers:
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
