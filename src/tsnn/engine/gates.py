"""Sigmoid and tanh: by libm in float64; in float32 by polynomials to float precision, so that loops vectorize."""

from __future__ import annotations

import math
from typing import Any

import numba.extending
import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import njit

from tsnn.engine.pointers import INLINE, cgutils, intrinsic, types

overload: Any = numba.extending.overload


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


def sigmoid(x: Any) -> Any:
    """1 / (1 + exp(-x)): by libm in float64, to float precision by a polynomial in float32."""
    return 1.0 / (1.0 + math.exp(-x))


def tanh(x: Any) -> Any:
    """tanh: by libm in float64, to float precision by a rational function in float32."""
    return math.tanh(x)


@overload(sigmoid, jit_options=INLINE)
def _sigmoid(x: Any) -> Any:
    return sigmoid if x == types.float64 else _sigmoid32


@overload(tanh, jit_options=INLINE)
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


@njit(**INLINE)
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
