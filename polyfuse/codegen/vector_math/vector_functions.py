"""Functions for numba source that LLVM puts on vector lanes: exp, log, tanh, erf, pow, sin, cos.

    for j: e[j] = math.exp(x[j])     a call of libm for each element, in a scalar loop
    for j: e[j] = vector_exp(x[j])   twenty instructions for sixteen elements

Each is written out where it stands, without branches, calls and tables in memory; where those would choose, both
values are computed and one is selected. How far the results are from the true values stands in the guide, and the
tests measure it. A square root needs nothing: LLVM has a vector instruction for math.sqrt.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from polyfuse.codegen.vector_math import exp_log as functions
from polyfuse.codegen.vector_math.angles import cos, sin
from polyfuse.codegen.vector_math.builder import DOUBLE, SINGLE, Real
from polyfuse.codegen.vector_math.power import power
from polyfuse.codegen.vector_math.register_width import in_whole_registers

VECTOR_FUNCTIONS = {name: f"vector_{name}" for name in ("exp", "log", "tanh", "erf", "pow", "sin", "cos")}
"""The names of a body's functions in vector code."""

WHOLE_NUMBERS = {"floor": "vector_floor", "ceil": "vector_ceil", "fmod": "vector_fmod"}
"""Roundings to whole numbers that stay floating-point numbers, and what is left of a division; numba's math.floor gives
an int64, and it has no math.fmod.
"""


def _scales(context: Any) -> bool:
    """True if the processor that code is made for multiplies vectors by powers of two in one instruction."""
    _, _, features = context.codegen().magic_tuple()
    return "+avx512f" in features.split(",")


def _typed(formula: Callable[..., Real], *arguments: Any) -> Any:
    """A signature, in the widest of the arguments' types, and the code: what an intrinsic returns."""
    if not all(isinstance(argument, types.Number) for argument in arguments):
        return None
    single = all(argument == types.float32 for argument in arguments)
    kind, format = (types.float32, SINGLE) if single else (types.float64, DOUBLE)

    def code(context: Any, builder: ir.IRBuilder, signature: Any, values: Any) -> Any:
        in_whole_registers(builder.function)
        here = replace(format, scales=_scales(context))
        return formula(*(Real(builder, here, value) for value in values)).value

    return kind(*[kind] * len(arguments)), code


@intrinsic
def vector_exp(typingctx: Any, x: Any) -> Any:
    """The exponential function."""
    return _typed(functions.exp, x)


@intrinsic
def vector_log(typingctx: Any, x: Any) -> Any:
    """The natural logarithm; -inf of 0, NaN below."""
    return _typed(functions.log, x)


@intrinsic
def vector_tanh(typingctx: Any, x: Any) -> Any:
    """The hyperbolic tangent."""
    return _typed(functions.tanh, x)


@intrinsic
def vector_erf(typingctx: Any, x: Any) -> Any:
    """The error function."""
    return _typed(functions.erf, x)


@intrinsic
def vector_pow(typingctx: Any, x: Any, y: Any) -> Any:
    """`x ** y`, special cases as in C."""
    return _typed(power, x, y)


@intrinsic
def vector_sin(typingctx: Any, x: Any) -> Any:
    """The sine; in double precision a call of libm."""
    return _typed(sin, x)


@intrinsic
def vector_cos(typingctx: Any, x: Any) -> Any:
    """The cosine; in double precision a call of libm."""
    return _typed(cos, x)


@intrinsic
def vector_floor(typingctx: Any, x: Any) -> Any:
    """The largest whole number that is not above x, exact."""
    return _typed(lambda value: value.rounded_down(), x)


@intrinsic
def vector_ceil(typingctx: Any, x: Any) -> Any:
    """The smallest whole number that is not below x, exact."""
    return _typed(lambda value: value.rounded_up(), x)


@intrinsic
def vector_fmod(typingctx: Any, x: Any, y: Any) -> Any:
    """`x - y * trunc(x / y)`, exact, by a call of libm."""
    return _typed(lambda value, by: value.remainder(by), x, y)
