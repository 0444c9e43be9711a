"""Masks: statements that change nothing unless comparisons of an index with places in data hold.

    h[b] += w[i] if idx[i] == b else 0             b is compared with data: it is the place that idx[i] names
    y[i] += a[k] if p[i] <= k < p[i + 1] else 0    k is: it lies in the row that p describes

So frontends write what data place: as loops over all places, which is exact and affine. What a statement may write are
all elements of the array, and no analysis needs to know more. The arrays compared with are those whose numbers a call
checks (`Tensor.below`). Code generation runs the iterations alone that do
something (codegen/looptree/data_bounds.py), and the strategy keeps the loops where that is possible.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import sympy

from polyfuse.ir.nest_data import NestData
from polyfuse.ir.scalar import Read, Select
from polyfuse.ir.statement import Statement

NEUTRAL: Mapping[str, int] = {"+=": 0, "*=": 1}
"""The numbers that change nothing."""

_TURNED: Mapping[type[sympy.Basic], type[sympy.Basic]] = {
    sympy.Eq: sympy.Eq,
    sympy.Lt: sympy.Gt,
    sympy.Le: sympy.Ge,
    sympy.Gt: sympy.Lt,
    sympy.Ge: sympy.Le,
}


@dataclass(frozen=True)
class Mask:
    """The conditions that must all hold for a statement to change anything, and the value it has then."""

    parts: tuple[sympy.Basic, ...]
    value: sympy.Basic


@dataclass(frozen=True)
class Comparison:
    """`index kind read`: an index compared with a read of the statement; kind is sympy.Eq, Lt, Le, Gt or Ge."""

    index: str
    kind: type[sympy.Basic]
    read: Read


def mask_of(op: str, body: sympy.Basic, is_target: Callable[[Read], bool]) -> Mask | None:
    """Return the mask of `target op body`; None if it has none.

    Args:
        op: The operator, "=" or a reduction's.
        body: The value.
        is_target: Says whether a read is of the element that is written.

    Returns:
        The mask: of Select(c and d, value, neutral) the parts c and d, and the value.
    """
    if not isinstance(body, Select):
        return None
    condition, value, otherwise = body.args
    if op == "=":
        keeps = isinstance(otherwise, Read) and is_target(otherwise)
    else:
        keeps = op in NEUTRAL and bool(otherwise.is_number) and bool(otherwise == NEUTRAL[op])
    return Mask(tuple(_conjuncts(condition)), value) if keeps else None


def comparison(part: sympy.Basic) -> Comparison | None:
    """The comparison of an index with a read that a condition is; None for any other condition."""
    if type(part) not in _TURNED:
        return None
    left, right = part.args
    kind = type(part)
    if isinstance(left, Read):
        left, right, kind = right, left, _TURNED[kind]
    if isinstance(left, Read) or not isinstance(left, sympy.Symbol) or not isinstance(right, Read):
        return None
    return Comparison(left.name, kind, right)


def compared_dims(nest: NestData, s: Statement) -> tuple[str, ...]:
    """The dimensions of a statement of which data say what iterations change anything."""
    return tuple(dict.fromkeys(c.index for c in _comparisons(nest, s)))


def named_dims(nest: NestData, s: Statement) -> tuple[str, ...]:
    """Those of which data name the one iteration that changes anything."""
    return tuple(dict.fromkeys(c.index for c in _comparisons(nest, s) if c.kind is sympy.Eq))


def _comparisons(nest: NestData, s: Statement) -> Iterator[Comparison]:
    mask = mask_of(s.op, s.body, lambda read: s.reads[read.position] == s.write)
    for part in mask.parts if mask is not None else ():
        found = comparison(part)
        if found is None or found.index not in s.dims:
            continue
        if nest.tensor(s.reads[found.read.position].tensor).below:
            yield found


def _conjuncts(condition: sympy.Basic) -> Iterator[sympy.Basic]:
    if isinstance(condition, sympy.And):
        for part in condition.args:
            yield from _conjuncts(part)
    else:
        yield condition
