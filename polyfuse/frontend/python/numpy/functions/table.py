"""All functions that are read, in one table, and the methods of ufuncs."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from polyfuse.frontend.python.numpy.expressions.evaluator import Call, Evaluator
from polyfuse.frontend.python.numpy.expressions.lists import number_or_array
from polyfuse.frontend.python.numpy.functions import (
    complex_functions,
    elementwise,
    joining,
    linear_algebra,
    makers,
    products,
    programs,
    reductions,
    views,
)
from polyfuse.frontend.python.numpy.functions.calls import Calls
from polyfuse.frontend.python.numpy.scatters import updated_at
from polyfuse.frontend.python.numpy.subscripts import Cut, subscripted
from polyfuse.frontend.python.numpy.values import Array, Value

PROGRAMS = Calls()

INLINED: Mapping[Callable[..., Any], tuple[object, ...]] = {
    programs.cov: (np.cov,),
    programs.corrcoef: (np.corrcoef,),
    programs.diag_indices: (np.diag_indices,),
    programs.diag_indices_from: (np.diag_indices_from,),
    programs.take: (np.take, np.ndarray.take),
    programs.count_nonzero: (np.count_nonzero,),
    programs.ptp: (np.ptp,),
    programs.average: (np.average,),
    programs.argmax: (np.argmax, np.ndarray.argmax),
    programs.argmin: (np.argmin, np.ndarray.argmin),
    programs.nansum: (np.nansum,),
    programs.nanmean: (np.nanmean,),
    programs.nanmax: (np.nanmax,),
    programs.nanmin: (np.nanmin,),
    programs.diff: (np.diff,),
    programs.gradient: (np.gradient,),
    programs.trapezoid: (np.trapezoid,),
    programs.logical_xor: (np.logical_xor,),
    programs.fmod: (np.fmod,),
    programs.divmod: (np.divmod, builtins.divmod),
    programs.fmax: (np.fmax,),
    programs.fmin: (np.fmin,),
    programs.isclose: (np.isclose,),
    programs.allclose: (np.allclose,),
    programs.array_equal: (np.array_equal,),
    programs.cross: (np.cross, np.linalg.cross),
    programs.vecdot: (np.vecdot, np.linalg.vecdot),
    programs.rot90: (np.rot90,),
    programs.polyval: (np.polyval,),
    programs.angle: (np.angle,),
    linear_algebra.cholesky: (np.linalg.cholesky,),
    linear_algebra.norm: (np.linalg.norm,),
    linear_algebra.vector_norm: (np.linalg.vector_norm,),
    linear_algebra.matrix_norm: (np.linalg.matrix_norm,),
    linear_algebra.trace: (np.linalg.trace,),
    linear_algebra.matrix_power: (np.linalg.matrix_power,),
    linear_algebra.solve: (np.linalg.solve,),
    linear_algebra.inv: (np.linalg.inv,),
    linear_algebra.det: (np.linalg.det,),
}
"""Programs by the functions that they are."""

INLINED_REAL: Mapping[Callable[..., Any], tuple[object, ...]] = {
    programs.arctan2: (np.arctan2,),
    programs.rint: (np.rint,),
    programs.radians: (np.radians, np.deg2rad),
    programs.degrees: (np.degrees, np.rad2deg),
    programs.heaviside: (np.heaviside,),
    programs.copysign: (np.copysign,),
    programs.cbrt: (np.cbrt,),
    programs.logaddexp: (np.logaddexp,),
    programs.sinc: (np.sinc,),
    programs.nan_to_num: (np.nan_to_num,),
}
"""Programs of real numbers, whose results have the type of their operands."""

for _own, _functions in INLINED.items():
    PROGRAMS.inlines(_own, *_functions)
for _own, _functions in INLINED_REAL.items():
    PROGRAMS.inlines_real(_own, *_functions)
PROGRAMS.inlines_real(programs.trunc, np.trunc, np.fix, whole=True)
PROGRAMS.inlines_real(programs.arctan, np.arctan, complex_program=complex_functions.arctan)

UNREAD: Mapping[str, tuple[object, ...]] = {
    "its iterations end by data": (
        np.linalg.svd,
        np.linalg.svdvals,
        np.linalg.eig,
        np.linalg.eigh,
        np.linalg.eigvals,
        np.linalg.eigvalsh,
        np.linalg.pinv,
        np.linalg.lstsq,
        np.linalg.matrix_rank,
        np.linalg.cond,
        np.i0,
    ),
    "the order of elements depends on data": (
        np.sort,
        np.argsort,
        np.median,
        np.percentile,
        np.quantile,
        np.partition,
        np.searchsorted,
        np.interp,
        np.lexsort,
    ),
    "how many elements the result has depends on data": (
        np.nonzero,
        np.flatnonzero,
        np.argwhere,
        np.unique,
        np.extract,
        np.compress,
        np.trim_zeros,
        np.setdiff1d,
        np.intersect1d,
        np.union1d,
    ),
    "its loops are not affine: they halve the number of elements": (
        np.fft.fft,
        np.fft.ifft,
        np.fft.rfft,
        np.fft.irfft,
        np.fft.fft2,
        np.fft.ifft2,
    ),
    "the extent of the result is a product of two": (np.kron,),
    "the places of a triangle, one after the other, are no affine function of their number": (
        np.triu_indices,
        np.tril_indices,
        np.triu_indices_from,
        np.tril_indices_from,
    ),
    "no program of loops for it is written here": (np.linalg.qr, np.linalg.slogdet, np.linalg.tensorinv),
    "np.add.at(counts, x, 1) does the same into an array of a known extent": (np.bincount,),
}
"""Functions that are refused by name, and why."""


def _refused(why: str) -> Call:
    def call(
        e: Evaluator, node: ast.Call, args: list[Value], named: dict[str, Value], into: Array | None
    ) -> Value:
        return e.refuse(node, f"{ast.unparse(node.func)} is not read: {why}")

    return call


for _why, _functions in UNREAD.items():
    PROGRAMS.define(_refused(_why), *_functions)

FAMILIES = (
    elementwise.CALLS,
    views.CALLS,
    joining.CALLS,
    makers.CALLS,
    reductions.CALLS,
    products.CALLS,
    PROGRAMS,
)

_BY_IDENTITY: Mapping[int, tuple[object, Call]] = {
    id(function): (function, call) for family in FAMILIES for function, call in family
}


def called(function: object) -> Call | None:
    """Return what evaluates a call of a Python object; None if it is none that can be read."""
    owner = getattr(function, "__self__", None)
    if isinstance(owner, np.ufunc) and getattr(function, "__name__", "") == "outer":
        return partial(_ufunc_outer, owner)
    if isinstance(owner, np.ufunc) and getattr(function, "__name__", "") == "at":
        return partial(updated_at, owner)
    if isinstance(owner, np.ufunc) and getattr(function, "__name__", "") == "reduce":
        return reductions.reduced_by(owner)
    if isinstance(owner, np.ufunc) and getattr(function, "__name__", "") == "accumulate":
        return reductions.accumulated_by(owner)
    found = _BY_IDENTITY.get(id(function))
    return None if found is None else found[1]


def _ufunc_outer(
    ufunc: np.ufunc,
    e: Evaluator,
    node: ast.Call,
    args: list[Value],
    named: dict[str, Value],
    into: Array | None,
) -> Value:
    """np.add.outer(x, y): the function of every pair."""
    call = called(ufunc)
    if call is None or len(args) != 2:
        return e.refuse(node, f"{ast.unparse(node)}: this function of every pair", "np.add.outer(x, y)")
    left, right = (number_or_array(e, node, value) for value in args)
    if isinstance(left, Array) and isinstance(right, Array):
        left = subscripted(e.program.geometry, left, [*[Cut(None, None)] * left.rank, *[None] * right.rank])
    return call(e, node, [left, right], named, into)
