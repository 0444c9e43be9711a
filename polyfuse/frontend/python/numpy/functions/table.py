"""All functions that are read, in one table, and the methods of ufuncs."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from functools import partial

import numpy as np

from polyfuse.frontend.python.numpy.expressions import Call, Expressions
from polyfuse.frontend.python.numpy.functions import elementwise, joining, makers, products, reductions, views
from polyfuse.frontend.python.numpy.functions.calls import Calls
from polyfuse.frontend.python.numpy.functions.programs import arctan, arctan2, cholesky, cov, rint, trunc
from polyfuse.frontend.python.numpy.scatters import updated_at
from polyfuse.frontend.python.numpy.subscripts import Cut, subscripted
from polyfuse.frontend.python.numpy.values import Array, Value

PROGRAMS = Calls()

for _own, _functions in (
    (cov, (np.cov,)),
    (cholesky, (np.linalg.cholesky,)),
    (arctan, (np.arctan,)),
    (arctan2, (np.arctan2,)),
    (trunc, (np.trunc, np.fix)),
    (rint, (np.rint,)),
):
    PROGRAMS.inlines(_own, *_functions)

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
    found = _BY_IDENTITY.get(id(function))
    return None if found is None else found[1]


def _ufunc_outer(
    ufunc: np.ufunc,
    e: Expressions,
    node: ast.Call,
    args: list[Value],
    named: dict[str, Value],
    into: Array | None,
) -> Value:
    """np.add.outer(x, y): the function of every pair."""
    call = called(ufunc)
    if call is None or len(args) != 2:
        return e.refuse(node, f"{ast.unparse(node)}: this function of every pair", "np.add.outer(x, y)")
    left, right = (e.number_or_array(node, value) for value in args)
    if isinstance(left, Array) and isinstance(right, Array):
        left = subscripted(e.program.geometry, left, [*[Cut(None, None)] * left.rank, *[None] * right.rank])
    return call(e, node, [left, right], named, into)
