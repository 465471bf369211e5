"""What the kernels of the fused engine are written with: how they compile, and pointers.

Inner functions work on raw pointers: no bounds, no negative indices, no reference counts. `lit` types a constant like
the data, since a bare literal would promote float32 arithmetic to float64.
"""

from __future__ import annotations

from typing import Any

import numba.core.cgutils
import numba.core.types
import numba.extending
from llvmlite import binding, ir  # type: ignore[import-untyped]

Ptr = Any  # a typed pointer inside the kernels
types: Any = numba.core.types
cgutils: Any = numba.core.cgutils
intrinsic: Any = numba.extending.intrinsic

WIDE = bool(binding.get_host_cpu_features().get("avx512f", False))
VECTOR_BYTES = 64 if WIDE else 32

# No 'nnan'/'ninf': a diverging run must show its NaNs. 'reassoc' lets the compiler choose the order of a sum. Functions
# that are not inlined are linked by name, to whichever copy this process happened to load first, and copies may differ
# in that order. So whatever holds a plain sum or product is INLINE; INNER functions only call generated blocks, whose
# order is fixed (decision 0008).
ENTRY: dict[str, Any] = {"fastmath": {"contract", "reassoc", "nsz", "arcp"}, "error_model": "numpy"}
INNER: dict[str, Any] = {**ENTRY, "nogil": True}
INLINE: dict[str, Any] = {**INNER, "forceinline": True}
# Stages have few callers. Numba merges them into these before it generates code, which shortens compilation.
STAGE: dict[str, Any] = {**INNER, "inline": "always"}


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
        pairs = zip(arrays, fields, strict=True)
        data = [context.make_array(kind)(context, builder, field).data for kind, field in pairs]
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
def prefetch_line(_: Any, pointer: Any) -> Any:
    """Ask for a cache line before it is needed."""

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        byte, word = ir.IntType(8).as_pointer(), ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [byte, word, word, word])
        function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        builder.call(function, [builder.bitcast(args[0], byte), word(0), word(3), word(1)])
        return context.get_dummy_value()

    return types.void(pointer), generate
