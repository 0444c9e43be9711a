"""Products of arrays: matmul, dot, outer, einsum, tensordot."""

from __future__ import annotations

import ast

import numpy as np

from polyfuse.frontend.python.numpy import complex_numbers
from polyfuse.frontend.python.numpy.broadcasting import broadcast, common_shape, elementwise
from polyfuse.frontend.python.numpy.complex_numbers import applied
from polyfuse.frontend.python.numpy.expressions.evaluator import Evaluator
from polyfuse.frontend.python.numpy.expressions.operators import operation
from polyfuse.frontend.python.numpy.functions.arguments import Arguments
from polyfuse.frontend.python.numpy.functions.calls import Calls
from polyfuse.frontend.python.numpy.functions.views import flat, permuted
from polyfuse.frontend.python.numpy.reductions import SUM, reduced
from polyfuse.frontend.python.numpy.stores import materialize
from polyfuse.frontend.python.numpy.syntax import constant, number
from polyfuse.frontend.python.numpy.values import (
    Array,
    Index,
    Scalar,
    Static,
    Value,
    common_type,
    reshaped,
    shape_text,
)
from polyfuse.ir.number_types import (
    is_complex,
)

CALLS = Calls()


@CALLS.reads("a|x1 b|x2", np.outer, np.linalg.outer)
def _outer(e: Evaluator, a: Arguments) -> Value:
    left, right = (flat(e, a, a.array(name)) for name in ("a", "b"))
    column = reshaped(left, (left.shape[0], number(1)), lambda i: (i[0],))
    return _times(e, column, right)


def _times(e: Evaluator, left: Array | Scalar, right: Array | Scalar) -> Array | Scalar:
    return operation(e, e.program.place, ast.Mult(), [left, right])  # type: ignore[arg-type]  # for messages only


def _matmul(
    e: Evaluator, node: ast.Call, args: list[Value], named: dict[str, Value], into: Array | None
) -> Value:
    a = Arguments(e, node, "a b", args, named)
    left, right = a.either("a"), a.either("b")
    if isinstance(left, Scalar) or isinstance(right, Scalar):
        return _times(e, left, right)
    return product(e, node, left, right, into)


def product(e: Evaluator, node: ast.Call, left: Array, right: Array, into: Array | None) -> Array | Scalar:
    """left @ right: the last axis of one with the last but one of the other."""
    if left.rank == 0 or right.rank == 0 or left.mask or right.mask:
        e.refuse(node, f"a product of arrays of rank {left.rank} and {right.rank}", "vectors and matrices")
    own, other = left.shape[-1], right.shape[-2 if right.rank > 1 else 0]
    if not e.program.equal(own, other):
        e.refuse(
            node,
            f"a product of {shape_text(left.shape)} and {shape_text(right.shape)}: {ast.unparse(own)} is not known to "
            f"be {ast.unparse(other)}",
            "equal extents; assert N == M says that two sizes are equal",
        )
    left = _operand(e, left, reused=right.rank > 1 and constant(right.shape[-1]) != 1)
    right = _operand(e, right, reused=left.rank > 1 and constant(left.shape[-2]) != 1)
    rows = left.shape[-2:-1] if left.rank > 1 else ()
    columns = right.shape[-1:] if right.rank > 1 else ()
    batches = (left.shape[:-2], right.shape[:-2])
    some = [Array(batch, "float64", lambda index: number(0)) for batch in batches]
    batch = common_shape(e.program, some)
    a = broadcast(e.program, left, (*batch, *left.shape[-2:])) if left.rank > 1 else left
    b = broadcast(e.program, right, (*batch, *right.shape[-2:])) if right.rank > 1 else right
    count = len(batch)

    def at(index: Index) -> ast.expr:
        outer, inner, k = index[:count], index[count:-1], index[-1]
        i, j = inner[: len(rows)], inner[len(rows) :]
        mine = a.element((*outer, *i, k) if left.rank > 1 else (k,))
        theirs = b.element((*outer, k, *j) if right.rank > 1 else (k,))
        return applied(ast.Mult(), mine, theirs, [left.dtype, right.dtype])

    dtype = common_type([left.dtype, right.dtype])
    terms = Array((*batch, *rows, *columns, own), dtype, at)
    return reduced(e.program, SUM, terms, [terms.rank - 1], "product", dtype, into)


def _operand(e: Evaluator, array: Array, reused: bool) -> Array:
    """An operand of a product: a formula whose elements are read more than once is computed first."""
    return materialize(e.program, array, "operand") if reused and array.storage is None else array


CALLS.define(_matmul, np.matmul, np.linalg.matmul)


def _dot(
    e: Evaluator, node: ast.Call, args: list[Value], named: dict[str, Value], into: Array | None
) -> Value:
    a = Arguments(e, node, "a b", args, named)
    if any(isinstance(v, Array) and v.rank > 2 for v in (a.either("a"), a.either("b"))):
        a.refuse("more than two dimensions")
    return _matmul(e, node, args, named, into)


CALLS.define(_dot, np.dot, np.ndarray.dot)


def _inner(
    e: Evaluator, node: ast.Call, args: list[Value], named: dict[str, Value], into: Array | None
) -> Value:
    a = Arguments(e, node, "a b", args, named)
    if a.array("b").rank == 2:
        return _matmul(e, node, [a.array("a"), permuted(a.array("b"), [1, 0])], {}, into)
    if a.array("a").rank > 2 or a.array("b").rank != 1:
        a.refuse("other operands than vectors and matrices")
    return _matmul(e, node, args, named, into)


def _vdot(
    e: Evaluator, node: ast.Call, args: list[Value], named: dict[str, Value], into: Array | None
) -> Value:
    """np.vdot: of complex numbers, those of the first vector are conjugated."""
    a = Arguments(e, node, "a b", args, named)
    if a.array("a").rank != 1 or a.array("b").rank != 1:
        a.refuse("other operands than vectors")
    first = a.array("a")
    conjugated = elementwise(e.program, complex_numbers.conjugate, first.dtype, [first])
    return _inner(e, node, [conjugated if is_complex(first.dtype) else first, *args[1:]], named, into)


CALLS.define(_inner, np.inner)
CALLS.define(_vdot, np.vdot)


def _einsum(
    e: Evaluator, node: ast.Call, args: list[Value], named: dict[str, Value], into: Array | None
) -> Value:
    text = args[0].value if args and isinstance(args[0], Static) else None
    arrays = [value for value in args[1:] if isinstance(value, Array)]
    named.pop("optimize", None)
    if not isinstance(text, str) or "." in text or len(arrays) != len(args) - 1 or named:
        e.refuse(node, f"{ast.unparse(node)}: these arguments", "np.einsum('ij,jk->ik', A, B)")
    left, arrow, result = text.replace(" ", "").partition("->")
    operands = left.split(",")
    if not arrow:
        letters = left.replace(",", "")
        result = "".join(sorted(c for c in set(letters) if letters.count(c) == 1))
    fits = len(operands) == len(arrays) and all(
        len(o) == x.rank for o, x in zip(operands, arrays, strict=False)
    )
    if not fits:
        e.refuse(node, f"{ast.unparse(node)}: the subscripts do not fit the arrays", "one letter a dimension")
    extents: dict[str, ast.expr] = {}
    for operand, array in zip(operands, arrays, strict=True):
        for letter, extent in zip(operand, array.shape, strict=True):
            known = extents.setdefault(letter, extent)
            if not e.program.equal(known, extent):
                e.refuse(
                    node,
                    f"the index {letter} has extents {ast.unparse(known)} and {ast.unparse(extent)}",
                    "equal extents",
                )
    unknown = next((c for c in result if c not in extents or result.count(c) > 1), None)
    if unknown is not None:
        why = "stands twice in the result" if unknown in extents else "is no index of an operand"
        e.refuse(
            node, f"{ast.unparse(node)}: {unknown} {why}", "each index of the result once, from the operands"
        )
    gone = [letter for letter in extents if letter not in result]
    order = [*result, *gone]

    def at(index: Index) -> ast.expr:
        place = dict(zip(order, index, strict=True))
        factors = [x.element(tuple(place[c] for c in o)) for o, x in zip(operands, arrays, strict=True)]
        made, own = factors[0], types[0]
        for part, other in zip(factors[1:], types[1:], strict=True):
            made, own = applied(ast.Mult(), made, part, [own, other]), common_type([own, other])
        return made

    types = [array.dtype for array in arrays]
    dtype = common_type(types)
    terms = Array(tuple(extents[letter] for letter in order), dtype, at)
    if not gone:
        return terms
    return reduced(e.program, SUM, terms, list(range(len(result), len(order))), "product", dtype, into)


CALLS.define(_einsum, np.einsum)


@CALLS.reads("a b axes", np.tensordot)
def _tensordot(e: Evaluator, a: Arguments) -> Value:
    left, right = a.array("a"), a.array("b")
    gone, gone_right = _contracted(a, left, right)
    own, other = ([x.shape[k] for k in axes] for x, axes in ((left, gone), (right, gone_right)))
    if not all(map(e.program.equal, own, other)):
        a.refuse(f"{shape_text(own)} is not known to be {shape_text(other)}")
    rest, rest_right = (
        [k for k in range(x.rank) if k not in axes] for x, axes in ((left, gone), (right, gone_right))
    )

    def at(index: Index) -> ast.expr:
        i, j = index[: len(rest)], index[len(rest) : len(rest) + len(rest_right)]
        k = index[len(rest) + len(rest_right) :]
        first = dict(zip((*rest, *gone), (*i, *k), strict=True))
        second = dict(zip((*rest_right, *gone_right), (*j, *k), strict=True))
        return applied(
            ast.Mult(),
            left.element(tuple(first[axis] for axis in range(left.rank))),
            right.element(tuple(second[axis] for axis in range(right.rank))),
            [left.dtype, right.dtype],
        )

    dtype = common_type([left.dtype, right.dtype])
    shape = (*(left.shape[k] for k in rest), *(right.shape[k] for k in rest_right), *own)
    terms = Array(shape, dtype, at)
    if not gone:
        return terms
    return reduced(e.program, SUM, terms, list(range(terms.rank - len(gone), terms.rank)), "product", dtype)


def _contracted(a: Arguments, left: Array, right: Array) -> tuple[list[int], list[int]]:
    """The axes of both arrays that np.tensordot sums over."""
    given = a.given.get("axes")
    if not isinstance(given, tuple):
        count = a.integer("axes", 2)
        return list(range(left.rank - count, left.rank)), list(range(count))
    if len(given) != 2:
        a.refuse("axes are a number, or two lists")
    found = []
    for array, part in zip((left, right), given, strict=True):
        axes = [
            constant(p.node) if isinstance(p, Scalar) else None
            for p in (part if isinstance(part, tuple) else (part,))
        ]
        if any(axis is None or not -array.rank <= axis < array.rank for axis in axes):
            a.refuse(f"axes of an array of rank {array.rank}")
        found.append([axis % array.rank for axis in axes if axis is not None])
    if len(found[0]) != len(found[1]):
        a.refuse("as many axes of both arrays are expected")
    return found[0], found[1]
