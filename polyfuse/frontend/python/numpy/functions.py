"""NumPy's functions on values: formulas of elements, views, products and reductions.

Each function gets the evaluator, the call's syntax (for messages), its positional and named arguments, and where a
reduction may leave its result.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NoReturn, get_args

import numpy as np

from polyfuse.frontend.python.numpy import complex_numbers
from polyfuse.frontend.python.numpy.complex_numbers import applied, as_complex, chosen, pair
from polyfuse.frontend.python.numpy.expressions import COMPLEX_OPERATIONS, Call, Expressions, part_of
from polyfuse.frontend.python.numpy.library import arctan, arctan2, cholesky, cov, rint, trunc
from polyfuse.frontend.python.numpy.program import MAXIMUM, MINIMUM, PRODUCT, SUM, Reduction, shape_text
from polyfuse.frontend.python.numpy.scatters import updated_at
from polyfuse.frontend.python.numpy.subscripts import Cut, subscripted
from polyfuse.frontend.python.numpy.syntax import constant, minus, number, plus, quotient, times
from polyfuse.frontend.python.numpy.values import (
    BOOL,
    Array,
    Index,
    Scalar,
    Static,
    Value,
    as_number,
    as_test,
    common_type,
    reshaped,
    stored_type,
)
from polyfuse.ir.number_types import (
    COMPLEX,
    ITEMSIZE,
    NUMBER_TYPES,
    DType,
    element_type,
    is_complex,
    is_integer,
    is_number,
    is_real,
    part_type,
    real_type,
    with_parts,
)

Shape = tuple[ast.expr, ...]

ALLOWED_TYPES = ", ".join((*ITEMSIZE, *COMPLEX))


class Arguments:
    """The arguments of one call, by the names that NumPy gives them."""

    def __init__(
        self, e: Expressions, node: ast.Call, names: str, args: Sequence[Value], named: Mapping[str, Value]
    ) -> None:
        self.e, self.node = e, node
        known = names.split()
        if len(args) > len(known):
            self.refuse(f"{len(args)} arguments")
        self.given: dict[str, Value] = dict(zip(known, args, strict=False))
        for name, value in named.items():
            if name not in known or name in self.given:
                self.refuse(f"the argument {name}")
            self.given[name] = value
        self.given = {
            name: value
            for name, value in self.given.items()
            if not (isinstance(value, Static) and value.value is None) or name == "axis"
        }

    def refuse(self, why: str) -> NoReturn:
        """Raise NotAffine at the call."""
        self.e.refuse(self.node, f"{ast.unparse(self.node)}: {why}", "this function's plain arguments")

    def has(self, name: str) -> bool:
        """True if an argument is given, and not None."""
        value = self.given.get(name)
        return value is not None and not (isinstance(value, Static) and value.value is None)

    def array(self, name: str) -> Array:
        """An argument that is an array."""
        value = self.either(name)
        return value if isinstance(value, Array) else self.refuse(f"{name} is not an array")

    def either(self, name: str) -> Array | Scalar:
        """An argument that is an array or a number."""
        if name not in self.given:
            self.refuse(f"the argument {name} is missing")
        return self.e.number_or_array(self.node, self.given[name])

    def integer(self, name: str, default: int | None = None) -> int:
        """An argument that is a constant integer."""
        if name not in self.given and default is not None:
            return default
        value = self.given.get(name)
        found = (
            constant(self.e.program.aliases.written_out(value.node)) if isinstance(value, Scalar) else None
        )
        return found if found is not None else self.refuse(f"{name} is not a constant integer")

    def truth(self, name: str) -> bool:
        """An argument that is True or False; False if it is not given."""
        value = self.given.get(name)
        match value:
            case None:
                return False
            case Scalar(node=ast.Constant(value=bool() as known)):
                return known
            case Static(value=known):
                return bool(known)
        return self.refuse(f"{name} is not True or False")

    def axes(self, name: str, rank: int) -> list[int]:
        """Axes, counted from the start; all of them if none is given."""
        if not self.has(name):
            return list(range(rank))
        value = self.given[name]
        parts = value if isinstance(value, tuple) else (value,)
        found = []
        for part in parts:
            axis = constant(part.node) if isinstance(part, Scalar) else None
            if axis is None or not -rank <= axis < rank:
                self.refuse(f"an axis of an array of rank {rank}")
            found.append(axis % rank)
        return sorted(found)

    def shape(self, name: str) -> Shape:
        """A shape: integers, as they are written."""
        value = self.given.get(name)
        parts = value if isinstance(value, tuple) else (value,)
        found = []
        for part in parts:
            if not isinstance(part, Scalar):
                self.refuse(f"{name} is not a shape")
            found.append(self.e.affine(self.e.program.aliases.written_out(part.node)))
        return tuple(found)

    def dtype(self, default: str) -> str:
        """The element type that is asked for."""
        return self.type_of("dtype") if self.has("dtype") else default

    def type_of(self, name: str) -> str:
        """An argument that is an element type."""
        value = self.given.get(name)
        found: str | None = element_type(value.value) if isinstance(value, Static) else None
        if found is None and isinstance(value, Static):
            found = _complex_type(value.value)
        if found is None:
            known = getattr(getattr(value, "value", None), "__name__", f"in {ast.unparse(self.node)}")
            self.e.refuse(self.node, f"the element type {known}", ALLOWED_TYPES)
        return found


def _complex_type(name: object) -> str | None:
    try:
        found = np.dtype(name).name  # type: ignore[call-overload]  # whatever it may be
    except TypeError:
        return None
    return found if found in COMPLEX else None


CALLS: dict[int, Call] = {}
_KEPT: list[object] = []


def called(function: object) -> Call | None:
    """What evaluates a call of a Python object; None if it is none that can be read."""
    owner = getattr(function, "__self__", None)
    if isinstance(owner, np.ufunc) and getattr(function, "__name__", "") == "outer":
        return partial(_ufunc_outer, owner)
    if isinstance(owner, np.ufunc) and getattr(function, "__name__", "") == "at":
        return partial(updated_at, owner)
    return CALLS.get(id(function))


def _define(call: Call, *functions: object) -> None:
    for function in functions:
        CALLS[id(function)] = call
        _KEPT.append(function)


def _for(names: str, *functions: object) -> Callable[[Callable[[Expressions, Arguments], Value]], Any]:
    """Register a function of an evaluator and its named arguments."""

    def register(
        function: Callable[[Expressions, Arguments], Value],
    ) -> Callable[[Expressions, Arguments], Value]:
        def call(
            e: Expressions, node: ast.Call, args: list[Value], named: dict[str, Value], into: Array | None
        ) -> Value:
            return function(e, Arguments(e, node, names, args, named))

        _define(call, *functions)
        return function

    return register


# formulas of elements


Form = Callable[[Expressions, ast.expr, Sequence[Array | Scalar]], Array | Scalar]
"""A function of the values of a call of which one is complex."""


def _elementwise(
    count: int,
    make: Callable[..., ast.expr],
    dtype: Callable[[list[str]], str],
    numbers: bool = True,
    complex_form: Form | None = None,
) -> Call:
    """A function of elements; `complex_form` is that of complex numbers, where there is one."""

    def call(
        e: Expressions, node: ast.Call, args: list[Value], named: dict[str, Value], into: Array | None
    ) -> Value:
        out = named.pop("out", None) or (args.pop() if len(args) == count + 1 else None)
        if len(args) != count or named:
            e.refuse(node, f"{ast.unparse(node)}: these arguments", f"{count} arguments")
        values = [e.number_or_array(node, value) for value in args]
        types = [value.dtype for value in values]

        def formula(*parts: ast.expr) -> ast.expr:
            return make(
                e, *(as_number(p, t) if numbers else as_test(p, t) for p, t in zip(parts, types, strict=True))
            )

        if not any(map(is_complex, types)) or not numbers:
            made = e.program.elementwise(formula, dtype(types), values)
        elif complex_form is not None:
            made = complex_form(e, node, values)
        else:
            e.refuse(
                node, f"{ast.unparse(node)} of complex numbers", f"{COMPLEX_OPERATIONS} of complex numbers"
            )
        if out is None:
            return made
        if not isinstance(out, Array) or out.storage is None:
            e.refuse(node, f"{ast.unparse(node)}: out is not an array that can be stored to", "arrays")
        e.program.store(out, made)
        return out

    return call


def _function(name: str) -> Callable[..., ast.expr]:
    return lambda e, a: e.program.call(name, a)


def _operator(op: ast.operator) -> Callable[..., ast.expr]:
    return lambda e, a, b: ast.BinOp(a, op, b)


def _comparison(op: ast.cmpop) -> Callable[..., ast.expr]:
    return lambda e, a, b: ast.Compare(a, [op], [b])


def _logical(op: ast.boolop) -> Callable[..., ast.expr]:
    return lambda e, a, b: ast.BoolOp(op, [a, b])


def _complex_operator(op: ast.operator) -> Form:
    return lambda e, node, values: e.operation(node, op, list(values))


def _complex_comparison(op: ast.cmpop) -> Form:
    return lambda e, node, values: e.compared(op, list(values), node)


def _complex_function(
    make: Callable[[Callable[..., ast.expr], ast.expr], ast.expr],
    dtype: Callable[[str], str] = lambda own: own,
) -> Form:
    def form(e: Expressions, node: ast.expr, values: Sequence[Array | Scalar]) -> Array | Scalar:
        return e.program.elementwise(partial(make, e.program.call), dtype(values[0].dtype), values)

    return form


@_for("x", np.sign)
def _sign(e: Expressions, a: Arguments) -> Value:
    value = a.either("x")
    if value.dtype == BOOL or is_complex(value.dtype):
        a.refuse("conditions or complex numbers, which have no sign")

    def make(x: ast.expr) -> ast.expr:
        below = ast.IfExp(ast.Compare(x, [ast.Lt()], [number(0)]), number(-1), x)
        signed = NUMBER_TYPES[value.dtype].signed
        return ast.IfExp(ast.Compare(x, [ast.Gt()], [number(0)]), number(1), below if signed else x)

    return e.program.elementwise(make, value.dtype, [value])


def _real(types: list[str]) -> str:
    return real_type(common_type(types))  # type: ignore[arg-type]  # a type of nests


def _bool(types: list[str]) -> str:
    return BOOL


for _name, _objects in {
    "sqrt": (np.sqrt,),
    "log": (np.log,),
    "sin": (np.sin,),
    "cos": (np.cos,),
    "tanh": (np.tanh,),
    "tan": (np.tan,),
    "asin": (np.arcsin,),
    "acos": (np.arccos,),
    "sinh": (np.sinh,),
    "cosh": (np.cosh,),
    "asinh": (np.arcsinh,),
    "acosh": (np.arccosh,),
    "atanh": (np.arctanh,),
    "log2": (np.log2,),
    "log10": (np.log10,),
    "log1p": (np.log1p,),
    "expm1": (np.expm1,),
}.items():
    _define(_elementwise(1, _function(_name), _real), *_objects)
_define(
    _elementwise(1, _function("exp"), _real, complex_form=_complex_function(complex_numbers.exponential)),
    np.exp,
)
_define(
    _elementwise(
        1,
        _function("abs"),
        common_type,
        complex_form=_complex_function(complex_numbers.magnitude, part_type),
    ),
    np.abs,
    builtins.abs,
)
_define(_elementwise(1, _function("abs"), common_type), np.fabs)
_define(
    _elementwise(
        1,
        lambda e, a: ast.UnaryOp(ast.USub(), a),
        common_type,
        complex_form=_complex_function(lambda call, a: complex_numbers.minus(a)),
    ),
    np.negative,
)
_define(
    _elementwise(
        1,
        lambda e, a: ast.BinOp(a, ast.Mult(), a),
        common_type,
        complex_form=lambda e, node, values: e.operation(node, ast.Mult(), [*values, *values]),
    ),
    np.square,
)
_define(
    _elementwise(
        1,
        lambda e, a: ast.BinOp(number(1.0), ast.Div(), a),
        _real,
        complex_form=lambda e, node, values: e.operation(
            node, ast.Div(), [Scalar(number(1.0), "fraction"), *values]
        ),
    ),
    np.reciprocal,
)
_define(
    _elementwise(
        1,
        lambda e, a: a,
        common_type,
        complex_form=_complex_function(lambda call, a: complex_numbers.conjugate(a)),
    ),
    np.conjugate,
    np.ndarray.conjugate,
    np.ndarray.conj,
)
_define(_elementwise(1, lambda e, a: ast.BinOp(number(2.0), ast.Pow(), a), _real), np.exp2)
_define(_elementwise(1, _function("floor"), common_type), np.floor)
_define(_elementwise(1, _function("ceil"), common_type), np.ceil)
_define(_elementwise(2, lambda e, a, b: e.program.call("max", a, b), common_type), np.maximum, np.fmax)
_define(_elementwise(2, lambda e, a, b: e.program.call("min", a, b), common_type), np.minimum, np.fmin)
_define(
    _elementwise(
        2,
        lambda e, a, b: e.program.call(
            "sqrt", ast.BinOp(ast.BinOp(a, ast.Mult(), a), ast.Add(), ast.BinOp(b, ast.Mult(), b))
        ),
        _real,
    ),
    np.hypot,
)
for _op, _functions in {
    ast.Add: (np.add,),
    ast.Sub: (np.subtract,),
    ast.Mult: (np.multiply,),
    ast.Pow: (np.power,),
}.items():
    _define(
        _elementwise(2, _operator(_op()), common_type, complex_form=_complex_operator(_op())), *_functions
    )
_define(
    _elementwise(
        2,
        _operator(ast.Div()),
        lambda t: common_type(t, divides=True),
        complex_form=_complex_operator(ast.Div()),
    ),
    np.divide,
)
for _cmp, _ufunc in {
    ast.Lt: np.less,
    ast.LtE: np.less_equal,
    ast.Gt: np.greater,
    ast.GtE: np.greater_equal,
    ast.Eq: np.equal,
    ast.NotEq: np.not_equal,
}.items():
    _define(_elementwise(2, _comparison(_cmp()), _bool, complex_form=_complex_comparison(_cmp())), _ufunc)
_define(_elementwise(2, _logical(ast.And()), _bool, numbers=False), np.logical_and)
_define(_elementwise(2, _logical(ast.Or()), _bool, numbers=False), np.logical_or)
_define(_elementwise(1, lambda e, a: ast.UnaryOp(ast.Not(), a), _bool, numbers=False), np.logical_not)
_define(_elementwise(1, lambda e, a: ast.Compare(a, [ast.NotEq()], [a]), _bool), np.isnan)


def _less_itself(e: Expressions, a: ast.expr) -> ast.expr:
    """0 of a finite number, NaN of the others."""
    return ast.BinOp(a, ast.Sub(), a)


def _is_finite(e: Expressions, a: ast.expr) -> ast.expr:
    return ast.Compare(_less_itself(e, a), [ast.Eq()], [number(0)])


def _is_infinite(e: Expressions, a: ast.expr) -> ast.expr:
    own = ast.Compare(a, [ast.Eq()], [a])
    return ast.BoolOp(ast.And(), [own, ast.Compare(_less_itself(e, a), [ast.NotEq()], [number(0)])])


def _of_integers(op: ast.operator, e: Expressions, a: Arguments) -> Value:
    return e.operation(a.node, op, [a.either("x1"), a.either("x2")])


_define(_elementwise(1, _is_finite, _bool), np.isfinite)
_define(_elementwise(1, _is_infinite, _bool), np.isinf)
for _integers, _made_by in (
    (ast.FloorDiv, np.floor_divide),
    (ast.Mod, np.remainder),
    (ast.LShift, np.left_shift),
    (ast.RShift, np.right_shift),
    (ast.BitAnd, np.bitwise_and),
    (ast.BitOr, np.bitwise_or),
    (ast.BitXor, np.bitwise_xor),
):
    _for("x1 x2", _made_by)(partial(_of_integers, _integers()))


@_for("x", np.invert)
def _invert(e: Expressions, a: Arguments) -> Value:
    value = a.either("x")
    if value.dtype == BOOL:
        return e.program.elementwise(lambda x: ast.UnaryOp(ast.Not(), x), BOOL, [value])
    return e.inverted(a.node, value)


@_for("condition x y", np.where)
def _where(e: Expressions, a: Arguments) -> Value:
    test, x, y = (a.either(name) for name in ("condition", "x", "y"))
    dtype = common_type([x.dtype, y.dtype])

    def make(t: ast.expr, first: ast.expr, second: ast.expr) -> ast.expr:
        if is_complex(dtype):
            return chosen(as_test(t, test.dtype), first, second, [x.dtype, y.dtype])
        if dtype != BOOL:
            first, second = as_number(first, x.dtype), as_number(second, y.dtype)
        return ast.IfExp(as_test(t, test.dtype), first, second)

    return e.program.elementwise(make, dtype, [test, x, y])


@_for("a min max out", np.clip, np.ndarray.clip)
def _clip(e: Expressions, a: Arguments) -> Value:
    value: Scalar | Array = a.either("a")
    if is_complex(value.dtype):
        a.refuse("an order of complex numbers")
    for name, function in (("min", "max"), ("max", "min")):
        if a.has(name):
            bound = a.either(name)
            dtype = common_type([value.dtype, bound.dtype])
            value = e.program.elementwise(partial(e.program.call, function), dtype, [value, bound])
    return value


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


@_for("a decimals", np.round, np.around, np.ndarray.round)
def _round(e: Expressions, a: Arguments) -> Value:
    """The nearest number of so many decimals, of two the even one."""
    value, decimals = a.either("a"), a.integer("decimals", 0)
    if is_integer(value.dtype) and decimals >= 0:
        return value
    if not is_real(value.dtype):
        a.refuse("integers to tens")
    scale = Scalar(number(10 ** abs(decimals)), "integer")
    steps: tuple[ast.operator, ast.operator] = (
        (ast.Mult(), ast.Div()) if decimals > 0 else (ast.Div(), ast.Mult())
    )
    scaled = e.operation(a.node, steps[0], [value, scale]) if decimals else value
    made = e.inlined(e, a.node, rint, [scaled], {})
    assert isinstance(made, Array | Scalar), "a number is rounded to a number"
    return e.operation(a.node, steps[1], [made, scale]) if decimals else made


@_for("a b", np.outer)
def _outer(e: Expressions, a: Arguments) -> Value:
    left, right = (_flat(e, a, a.array(name)) for name in ("a", "b"))
    column = reshaped(left, (left.shape[0], number(1)), lambda i: (i[0],))
    return _times(e, column, right)


def _times(e: Expressions, left: Array | Scalar, right: Array | Scalar) -> Array | Scalar:
    return e.operation(e.program.place, ast.Mult(), [left, right])  # type: ignore[arg-type]  # for messages only


# views


@_for("a axes a1 a2 a3", np.transpose, np.ndarray.transpose)
def _transpose(e: Expressions, a: Arguments) -> Value:
    array = a.array("a")
    order = list(range(array.rank))[::-1]
    if a.has("axes"):
        given = a.given["axes"]
        rest = [a.given[name] for name in ("a1", "a2", "a3") if name in a.given]
        parts = given if isinstance(given, tuple) else (given, *rest)
        order = [constant(p.node) % array.rank for p in parts if isinstance(p, Scalar)]  # type: ignore[operator]
        if sorted(order) != list(range(array.rank)):
            a.refuse(f"axes of an array of rank {array.rank}")
    return permuted(array, order)


def permuted(array: Array, order: Sequence[int]) -> Array:
    """The array whose axis k is the given one's axis order[k]."""
    return reshaped(
        array,
        tuple(array.shape[axis] for axis in order),
        lambda index: tuple(index[order.index(axis)] for axis in range(array.rank)),
    )


@_for("a axis1 axis2", np.swapaxes, np.ndarray.swapaxes)
def _swapaxes(e: Expressions, a: Arguments) -> Value:
    array = a.array("a")
    order = list(range(array.rank))
    i, j = (a.integer(name) % array.rank for name in ("axis1", "axis2"))
    order[i], order[j] = order[j], order[i]
    return permuted(array, order)


@_for("a axis", np.flip)
def _flip(e: Expressions, a: Arguments) -> Value:
    array = a.array("a")
    axes = a.axes("axis", array.rank)
    parts = [Cut(None, None, -1 if axis in axes else 1) for axis in range(array.rank)]
    return subscripted(e.program.geometry, array, parts)


@_for("a", np.flipud)
def _flipud(e: Expressions, a: Arguments) -> Value:
    return subscripted(e.program.geometry, a.array("a"), [Cut(None, None, -1)])


@_for("a", np.fliplr)
def _fliplr(e: Expressions, a: Arguments) -> Value:
    return subscripted(e.program.geometry, a.array("a"), [Cut(None, None), Cut(None, None, -1)])


@_for("a axis", np.expand_dims)
def _expand_dims(e: Expressions, a: Arguments) -> Value:
    array = a.array("a")
    axis = a.integer("axis") % (array.rank + 1)
    parts: list[Cut | None] = [Cut(None, None)] * array.rank
    parts.insert(axis, None)
    return subscripted(e.program.geometry, array, parts)


@_for("a axis", np.squeeze, np.ndarray.squeeze)
def _squeeze(e: Expressions, a: Arguments) -> Value:
    array = a.array("a")
    ones = [axis for axis in range(array.rank) if constant(array.shape[axis]) == 1]
    axes = a.axes("axis", array.rank) if a.has("axis") else ones
    if not set(axes) <= set(ones):
        a.refuse("an axis that is not known to have extent 1")
    return _dropped(array, axes)


def _dropped(array: Array, axes: Sequence[int]) -> Array:
    """The array without some axes of extent 1."""
    rest = [axis for axis in range(array.rank) if axis not in axes]
    return reshaped(
        array,
        tuple(array.shape[axis] for axis in rest),
        lambda index: tuple(
            index[rest.index(axis)] if axis in rest else number(0) for axis in range(array.rank)
        ),
    )


@_for("a", np.ravel, np.ndarray.ravel, np.ndarray.flatten)
def _ravel(e: Expressions, a: Arguments) -> Value:
    return _flat(e, a, a.array("a"))


def _flat(e: Expressions, a: Arguments, array: Array) -> Array:
    size: ast.expr = number(1)
    for extent in array.shape:
        size = times(size, extent)
    return array if array.rank == 1 else _in_shape(a, array, (size,), e)


@_for("a shape s1 s2 s3 s4", np.reshape, np.ndarray.reshape)
def _reshape(e: Expressions, a: Arguments) -> Value:
    array = a.array("a")
    rest = [a.given.pop(name) for name in ("s1", "s2", "s3", "s4") if name in a.given]
    if rest:
        a.given["shape"] = (a.given["shape"], *rest)
    shape = list(a.shape("shape"))
    for position, extent in enumerate(shape):
        if constant(extent) == -1:
            shape[position] = _missing(a, array.shape, shape[:position] + shape[position + 1 :])
    return _in_shape(a, array, tuple(shape), e)


def _missing(a: Arguments, own: Shape, others: Sequence[ast.expr]) -> ast.expr:
    """The extent that -1 stands for."""
    left = list(own)
    factor = 1
    for extent in others:
        match = next((p for p in left if a.e.program.geometry.same(p, extent)), None)
        if match is not None:
            left.remove(match)
        elif (value := constant(extent)) is not None:
            factor *= value
        else:
            a.refuse("the extent of -1 is not known")
    size: ast.expr = number(1)
    for extent in left:
        size = times(size, extent)
    value = constant(size)
    if factor == 1:
        return size
    return (
        number(value // factor) if value is not None and value % factor == 0 else a.refuse("the extent of -1")
    )


def _in_shape(a: Arguments, array: Array, shape: Shape, e: Expressions) -> Array:
    """A reshape whose groups of axes have equal sizes; inside of a group all extents but the first are constants."""
    groups = _groups(a, array.shape, shape)

    def index(given: Index) -> Index:
        parts: dict[int, ast.expr] = {}
        for olds, news in groups:
            position: ast.expr = number(0)
            for new in news:
                position = plus(
                    times(position, shape[new]) if constant(position) != 0 else number(0), given[new]
                )
            step = 1
            for old in reversed(olds):
                extent = constant(array.shape[old])
                whole = quotient(position, step)
                first = old == olds[0]
                parts[old] = whole if first or extent is None else _modulo(whole, extent)
                step *= extent or 1
        return tuple(parts.get(axis, number(0)) for axis in range(array.rank))

    return reshaped(array, shape, index)


def _modulo(node: ast.expr, extent: int) -> ast.expr:
    if extent == 1:
        return number(0)
    value = constant(node)
    return number(value % extent) if value is not None else ast.BinOp(node, ast.Mod(), number(extent))


def _groups(a: Arguments, old: Shape, new: Shape) -> list[tuple[list[int], list[int]]]:
    """Axes before and after that hold the same elements. NotAffine where they are not known to."""
    same = a.e.program.geometry.same
    groups = []
    i = j = 0
    while i < len(old) or j < len(new):
        one_old = i < len(old) and constant(old[i]) == 1
        one_new = j < len(new) and constant(new[j]) == 1
        if one_old != one_new:  # an axis of extent 1 holds nothing: it comes and goes alone
            groups.append(([i], []) if one_old else ([], [j]))
            i, j = i + one_old, j + one_new
            continue
        olds, news = [], []
        left: ast.expr = number(1)
        right: ast.expr = number(1)
        if i < len(old):
            olds, left, i = [i], old[i], i + 1
        if j < len(new):
            news, right, j = [j], new[j], j + 1
        while not same(left, right):
            before = (i, j)
            a_size, b_size = constant(left), constant(right)
            shorter = a_size is not None and (b_size is None or a_size < b_size)
            if i < len(old) and (shorter or j == len(new)):
                left, olds, i = times(left, old[i]), [*olds, i], i + 1
            elif j < len(new):
                right, news, j = times(right, new[j]), [*news, j], j + 1
            if (i, j) == before and a.e.program.equal(left, right):
                break
            if (i, j) == before:
                a.refuse(
                    f"the shape {shape_text(old)} is not known to hold as many elements as {shape_text(new)}"
                )
        mixed = [
            extent for axes, shape in ((olds, old), (news, new)) for extent in (shape[x] for x in axes[1:])
        ]
        if any(constant(extent) is None for extent in mixed) and (len(olds) > 1 or len(news) > 1):
            a.refuse(
                f"from {shape_text(old)} to {shape_text(new)} a subscript is a product of sizes, which is not affine"
            )
        groups.append((olds, news))
    return groups


@_for("a", np.copy, np.ndarray.copy)
def _copied(e: Expressions, a: Arguments) -> Value:
    array = a.either("a")
    return (
        Array(array.shape, array.dtype, array.element, None, array.mask)
        if isinstance(array, Array)
        else array
    )


def _to_type(dtype: DType) -> Callable[[Expressions, Arguments], Value]:
    return lambda e, a: e.program.converted(a.either("x"), dtype)


for _dtype in get_args(DType):
    _for("x", np.dtype(_dtype).type)(_to_type(_dtype))


@_for("a dtype copy", np.asarray, np.array, np.ascontiguousarray, np.ndarray.astype)
def _astype(e: Expressions, a: Arguments) -> Value:
    array = a.either("a")
    wanted = a.dtype(array.dtype)
    if wanted == array.dtype:
        return _copied(e, a) if isinstance(array, Array) else array
    return e.program.converted(array, wanted)


@_for("m k", np.triu)
def _triu(e: Expressions, a: Arguments) -> Value:
    return _triangle(e, a, upper=True)


@_for("m k", np.tril)
def _tril(e: Expressions, a: Arguments) -> Value:
    return _triangle(e, a, upper=False)


def _triangle(e: Expressions, a: Arguments, upper: bool) -> Array:
    array, k = a.array("m"), a.integer("k", 0)

    def at(index: Index) -> ast.expr:
        *_, i, j = index
        kept = ast.Compare(minus(j, i), [ast.GtE() if upper else ast.LtE()], [number(k)])
        own = array.element(index)
        if is_complex(array.dtype):
            return chosen(kept, own, number(0), [array.dtype, "integer"])
        return ast.IfExp(kept, as_number(own, array.dtype), number(0))

    return Array(array.shape, array.dtype, at)


@_for("a k", np.diag, np.diagonal, np.ndarray.diagonal)
def _diagonal(e: Expressions, a: Arguments) -> Value:
    array, k = a.array("a"), a.integer("k", 0)
    if array.rank == 2:
        rows, columns = array.shape
        if not e.program.geometry.same(rows, columns):
            a.refuse("a matrix that is not known to be square")
        length = minus(rows, number(abs(k)))
        return reshaped(
            array, (length,), lambda i: (plus(i[0], number(max(-k, 0))), plus(i[0], number(max(k, 0))))
        )
    size = plus(array.shape[0], number(abs(k)))

    def at(index: Index) -> ast.expr:
        i, j = index
        own = array.element((minus(i, number(max(-k, 0))),))
        on = ast.Compare(minus(j, i), [ast.Eq()], [number(k)])
        return chosen(on, own, number(0), [array.dtype, "integer"])

    return Array((size, size), array.dtype, at)


@_for("a axis1 offset", np.trace, np.ndarray.trace)
def _trace(e: Expressions, a: Arguments) -> Value:
    array = a.array("a")
    line = reshaped(array, (array.shape[0],), lambda i: (i[0], i[0]))
    return e.program.reduced(SUM, line, [0], "trace")


# joining


@_for("arrays axis", np.concatenate)
def _concatenate(e: Expressions, a: Arguments) -> Value:
    arrays = _list(e, a, "arrays")
    return _joined(e, a, arrays, a.integer("axis", 0) % arrays[0].rank)


@_for("arrays", np.hstack)
def _hstack(e: Expressions, a: Arguments) -> Value:
    arrays = _list(e, a, "arrays")
    return _joined(e, a, arrays, 0 if arrays[0].rank == 1 else 1)


@_for("arrays", np.vstack)
def _vstack(e: Expressions, a: Arguments) -> Value:
    arrays = [_with_axis(x, 0) if x.rank == 1 else x for x in _list(e, a, "arrays")]
    return _joined(e, a, arrays, 0)


@_for("arrays axis", np.stack)
def _stack(e: Expressions, a: Arguments) -> Value:
    arrays = _list(e, a, "arrays")
    axis = a.integer("axis", 0) % (arrays[0].rank + 1)
    return _joined(e, a, [_with_axis(x, axis) for x in arrays], axis)


def _with_axis(array: Array, axis: int) -> Array:
    shape = (*array.shape[:axis], number(1), *array.shape[axis:])
    return reshaped(array, shape, lambda i: (*i[:axis], *i[axis + 1 :]))


def _list(e: Expressions, a: Arguments, name: str) -> list[Array]:
    values = a.given.get(name)
    parts = values if isinstance(values, tuple) else ()
    found = [part for part in parts if isinstance(part, Array)]
    if not found or len(found) != len(parts) or len({part.rank for part in found}) > 1:
        a.refuse("arrays of equal rank are expected")
    return found


def _joined(e: Expressions, a: Arguments, arrays: list[Array], axis: int) -> Array:
    """The arrays one after the other along an axis."""
    first, *rest = arrays
    for other in rest:
        for position, (x, y) in enumerate(zip(first.shape, other.shape, strict=True)):
            if position != axis and not e.program.geometry.same(x, y):
                a.refuse(
                    f"the shapes {shape_text(first.shape)} and {shape_text(other.shape)} are not known to fit"
                )
    ends, end = [], number(0)
    for array in arrays:
        end = plus(end, array.shape[axis])
        ends.append(end)
    shape = (*first.shape[:axis], end, *first.shape[axis + 1 :])
    dtype = common_type([array.dtype for array in arrays])

    def at(index: Index) -> ast.expr:
        made: ast.expr | None = None
        for array, stop in reversed(list(zip(arrays, ends, strict=True))):
            begin = minus(stop, array.shape[axis])
            own = array.element((*index[:axis], minus(index[axis], begin), *index[axis + 1 :]))
            own = as_complex(own, array.dtype) if is_complex(dtype) else as_number(own, array.dtype)
            test = ast.Compare(index[axis], [ast.Lt()], [stop])
            made = own if made is None else chosen(test, own, made, [dtype, dtype])
        assert made is not None, "there is at least one array"
        return made

    return Array(shape, dtype, at)


@_for("a shift axis", np.roll)
def _roll(e: Expressions, a: Arguments) -> Value:
    array, shift = a.array("a"), a.integer("shift")
    if array.rank > 1 and not a.has("axis"):
        a.refuse("roll without an axis")
    axis = a.integer("axis", 0) % array.rank
    extent = array.shape[axis]
    if shift == 0:
        return array

    def at(index: Index) -> ast.expr:
        moved = minus(index[axis], number(shift))
        inside = array.element((*index[:axis], moved, *index[axis + 1 :]))
        wrapped = plus(moved, extent) if shift > 0 else minus(moved, extent)
        other = array.element((*index[:axis], wrapped, *index[axis + 1 :]))
        op = ast.GtE() if shift > 0 else ast.Lt()
        bound = number(0) if shift > 0 else extent
        return chosen(ast.Compare(moved, [op], [bound]), inside, other, [array.dtype] * 2)

    return Array(array.shape, array.dtype, at)


@_for("a repeats axis", np.repeat, np.ndarray.repeat)
def _repeat(e: Expressions, a: Arguments) -> Value:
    array, repeats = a.array("a"), a.integer("repeats")
    if array.rank > 1 and not a.has("axis"):
        a.refuse("repeat without an axis")
    axis = a.integer("axis", 0) % array.rank
    shape = (*array.shape[:axis], times(array.shape[axis], number(repeats)), *array.shape[axis + 1 :])
    return reshaped(array, shape, lambda i: (*i[:axis], quotient(i[axis], repeats), *i[axis + 1 :]))


@_for("a reps", np.tile)
def _tile(e: Expressions, a: Arguments) -> Value:
    array, given = a.array("a"), a.given.get("reps")
    counts = [
        constant(p.node) if isinstance(p, Scalar) else None
        for p in (given if isinstance(given, tuple) else (given,))
    ]
    known = [count for count in counts if count is not None]
    if len(known) < len(counts):
        a.refuse("reps are not constant integers")
    rank = max(array.rank, len(known))
    known = [1] * (rank - len(known)) + known
    shape = (*[number(1)] * (rank - array.rank), *array.shape)
    parts = list(range(rank - array.rank, rank))
    if any(
        count != 1 and constant(extent) is None
        for count, extent in zip(known[rank - array.rank :], array.shape, strict=True)
    ):
        a.refuse(
            "an axis is repeated whose extent is a size: its subscript would be modulo that, which is not affine"
        )
    return reshaped(
        array,
        tuple(times(extent, number(count)) for extent, count in zip(shape, known, strict=True)),
        lambda i: tuple(_modulo(i[p], constant(shape[p]) or 1) if known[p] != 1 else i[p] for p in parts),
    )


@_for("x y indexing", np.meshgrid)
def _meshgrid(e: Expressions, a: Arguments) -> Value:
    x, y = a.array("x"), a.array("y")
    indexing = a.given.get("indexing", Static("xy"))
    if x.rank != 1 or y.rank != 1 or not isinstance(indexing, Static) or indexing.value not in ("xy", "ij"):
        a.refuse("other grids than those of two vectors")
    first = 1 if indexing.value == "xy" else 0
    shape = (y.shape[0], x.shape[0]) if first else (x.shape[0], y.shape[0])
    return (
        reshaped(x, shape, lambda i: (i[first],)),
        reshaped(y, shape, lambda i: (i[1 - first],)),
    )


@_for("a width mode constant_values", np.pad)
def _pad(e: Expressions, a: Arguments) -> Value:
    array = a.array("a")
    mode = a.given.get("mode")
    if isinstance(mode, Static) and mode.value != "constant":
        a.refuse("another mode than 'constant'")
    fill = a.either("constant_values") if a.has("constant_values") else Scalar(number(0), "integer")
    widths = _widths(a, array.rank)
    extents = [
        plus(extent, number(before + after))
        for extent, (before, after) in zip(array.shape, widths, strict=True)
    ]

    def at(index: Index) -> ast.expr:
        inside: list[ast.expr] = []
        moved = []
        for i, extent, (before, after) in zip(index, array.shape, widths, strict=True):
            position = minus(i, number(before))
            moved.append(position)
            if before:
                inside.append(ast.Compare(position, [ast.GtE()], [number(0)]))
            if after:
                inside.append(ast.Compare(position, [ast.Lt()], [extent]))
        own = array.element(tuple(moved))
        if not inside:
            return own
        test = inside[0] if len(inside) == 1 else ast.BoolOp(ast.And(), inside)
        value = fill if isinstance(fill, Scalar) else Scalar(number(0), "integer")
        return chosen(test, own, value.node, [array.dtype, value.dtype])

    return Array(tuple(extents), array.dtype, at)


def _widths(a: Arguments, rank: int) -> list[tuple[int, int]]:
    def integers(value: Value | None) -> Any:
        if isinstance(value, tuple):
            return [integers(part) for part in value]
        found = constant(value.node) if isinstance(value, Scalar) else None
        return a.refuse("widths that are no constants") if found is None else found

    found = integers(a.given.get("width"))
    pairs: list[tuple[int, int]] = [tuple(pair) for pair in np.broadcast_to(found, (rank, 2)).tolist()]
    return pairs


# new arrays


def _filled(value: float | None) -> Callable[[Expressions, Arguments], Value]:
    def make(e: Expressions, a: Arguments) -> Value:
        shape, dtype = a.shape("shape"), a.dtype("float64")
        return _constant(e, shape, dtype, value)

    return make


def _constant(e: Expressions, shape: Shape, dtype: str, value: float | None) -> Array:
    if value is None:
        return e.program.array(shape, dtype, "empty_array")
    literal = number(float(value) if is_real(dtype) or is_complex(dtype) else int(value))
    if is_complex(dtype):
        literal = pair(literal, number(0.0))
    if dtype == BOOL:
        literal = ast.Compare(number(int(value)), [ast.NotEq()], [number(0)])
    return Array(shape, dtype, lambda index: literal)


def _filled_like(value: float | None) -> Callable[[Expressions, Arguments], Value]:
    def make(e: Expressions, a: Arguments) -> Value:
        array = a.array("a")
        shape = a.shape("shape") if a.has("shape") else array.shape
        return _constant(e, shape, a.dtype(array.dtype), value)

    return make


for _value, _plain, _like in (
    (0.0, np.zeros, np.zeros_like),
    (1.0, np.ones, np.ones_like),
    (None, np.empty, np.empty_like),
):
    _for("shape dtype order", _plain)(_filled(_value))
    _for("a dtype order subok shape", _like)(_filled_like(_value))
_for("shape dtype", np.ndarray)(_filled(None))


@_for("shape value dtype", np.full)
def _full(e: Expressions, a: Arguments) -> Value:
    value = a.either("value")
    made = e.program.broadcast(value, a.shape("shape"))
    return _of_type(e, made, a.dtype(stored_type(value.dtype)))


@_for("a value dtype", np.full_like)
def _full_like(e: Expressions, a: Arguments) -> Value:
    array = a.array("a")
    made = e.program.broadcast(a.either("value"), array.shape)
    return _of_type(e, made, a.dtype(array.dtype))


def _of_type(e: Expressions, made: Array, dtype: str) -> Array:
    """An array of a type. A literal is one of the type already where it is of that kind."""
    if is_number(made.dtype) and is_real(made.dtype) <= is_real(dtype) and dtype != BOOL:
        return Array(made.shape, dtype, made.element)
    if is_complex(made.dtype) and is_complex(dtype) and is_number(made.dtype):
        return Array(made.shape, dtype, made.element)
    found = e.program.converted(made, dtype)
    assert isinstance(found, Array), "a converted array is an array"
    return found


@_for("N M k dtype", np.eye)
def _eye(e: Expressions, a: Arguments) -> Value:
    rows = a.shape("N")[0]
    columns = a.shape("M")[0] if a.has("M") else rows
    k = a.integer("k", 0)
    one, zero = (number(1.0), number(0.0))

    def at(index: Index) -> ast.expr:
        return ast.IfExp(ast.Compare(minus(index[1], index[0]), [ast.Eq()], [number(k)]), one, zero)

    dtype = a.dtype("float64")
    if is_complex(dtype):
        return Array((rows, columns), dtype, lambda index: as_complex(at(index), "float64"))
    return Array((rows, columns), dtype, at)


_define(
    lambda e, node, args, named, into: _eye(e, Arguments(e, node, "N dtype", args, named)),
    np.identity,
)


@_for("start stop step dtype", np.arange)
def _arange(e: Expressions, a: Arguments) -> Value:
    if not a.has("stop"):
        a.given["stop"] = a.given.pop("start")
    if any(isinstance(v, Scalar) and not is_integer(v.dtype) for v in a.given.values()):
        a.refuse("arange of other numbers than integers")
    start = a.shape("start")[0] if a.has("start") else number(0)
    stop, step = a.shape("stop")[0], a.integer("step", 1)
    if step == 0:
        a.refuse("a step of 0")
    length = minus(stop, start) if step > 0 else minus(start, stop)
    extent = quotient(plus(length, number(abs(step) - 1)), abs(step))
    return Array((extent,), a.dtype("int64"), lambda i: plus(start, times(number(step), i[0])))


@_for("start stop num endpoint retstep dtype", np.linspace)
def _linspace(e: Expressions, a: Arguments) -> Value:
    start, stop = a.either("start"), a.either("stop")
    count = a.shape("num")[0] if a.has("num") else number(50)
    ends = a.truth("endpoint") if a.has("endpoint") else True
    if not (isinstance(start, Scalar) and isinstance(stop, Scalar)):
        a.refuse("between arrays")
    parts = minus(count, number(1)) if ends else count

    def at(index: Index) -> ast.expr:
        step = ast.BinOp(ast.BinOp(stop.node, ast.Sub(), start.node), ast.Div(), parts)
        return ast.BinOp(start.node, ast.Add(), ast.BinOp(index[0], ast.Mult(), step))

    return Array((count,), a.dtype("float64"), at)


# reductions


def _reduction(how: Reduction, stem: str) -> Call:
    def call(
        e: Expressions, node: ast.Call, args: list[Value], named: dict[str, Value], into: Array | None
    ) -> Value:
        a = Arguments(e, node, "a axis dtype out keepdims", args, named)
        value = a.either("a")
        if isinstance(value, Scalar):
            return value
        if how.begin is None and a.has("dtype"):
            a.refuse("the argument dtype")
        axes = a.axes("axis", value.rank)
        dtype = a.dtype(e.program.type_of_reduction(how, value.dtype))
        keeps = a.truth("keepdims")
        if value.mask is not None and a.has("axis"):
            a.refuse("an axis of the elements that a mask selects")
        made = e.program.reduced(how, value, axes, stem, dtype, None if keeps else into)
        return _with_kept(value, axes, made) if keeps else made

    return call


def _with_kept(value: Array, axes: Sequence[int], made: Array | Scalar) -> Array:
    """A reduction's result with extent 1 for each axis that is gone."""
    rest = [axis for axis in range(value.rank) if axis not in axes]
    shape = tuple(number(1) if axis in axes else value.shape[axis] for axis in range(value.rank))
    if isinstance(made, Scalar):
        node = made.node
        return Array(shape, made.dtype, lambda index: node)
    return reshaped(made, shape, lambda index: tuple(index[axis] for axis in rest))


_define(_reduction(SUM, "total"), np.sum, np.ndarray.sum, builtins.sum)
_define(_reduction(PRODUCT, "product"), np.prod, np.ndarray.prod)
_define(_reduction(MAXIMUM, "largest"), np.max, np.ndarray.max, np.amax)
_define(_reduction(MINIMUM, "smallest"), np.min, np.ndarray.min, np.amin)


def _truth(how: Reduction) -> Call:
    plain = _reduction(how, "truth")

    def call(
        e: Expressions, node: ast.Call, args: list[Value], named: dict[str, Value], into: Array | None
    ) -> Value:
        value = e.number_or_array(node, args[0])
        return plain(e, node, [e.program.converted(value, BOOL), *args[1:]], named, None)

    return call


_define(_truth(MINIMUM), np.all, np.ndarray.all)
_define(_truth(MAXIMUM), np.any, np.ndarray.any)


@_for("a axis dtype out keepdims", np.mean, np.ndarray.mean)
def _mean(e: Expressions, a: Arguments) -> Value:
    value = a.array("a")
    axes = a.axes("axis", value.rank)
    made = _mean_of(e, value, axes, a.dtype(_mean_type(value)), 0)
    return _with_kept(value, axes, made) if a.truth("keepdims") else made


def _mean_type(value: Array) -> str:
    return value.dtype if is_real(value.dtype) or is_complex(value.dtype) else "float64"


def _mean_of(e: Expressions, value: Array, axes: Sequence[int], dtype: str, less: int) -> Array | Scalar:
    """The sum over some axes, divided by the number of elements, less some."""
    e.program.hint = None
    total = e.program.reduced(SUM, value, axes, "total", dtype)
    if value.mask is not None:
        ones = Array(value.shape, "int64", lambda index: number(1), mask=value.mask)
        count = e.program.reduced(SUM, ones, axes, "count", "int64")
    else:
        size: ast.expr = number(1)
        for axis in axes:
            size = _size_product(size, value.shape[axis])
        count = Scalar(minus(size, number(less)), "integer")
    types = [dtype, count.dtype]
    return e.program.elementwise(lambda x, n: applied(ast.Div(), x, n, types), dtype, [total, count])


@_for("a axis dtype out ddof keepdims", np.var, np.ndarray.var)
def _var(e: Expressions, a: Arguments) -> Value:
    value = a.array("a")
    if is_complex(value.dtype):
        a.refuse("complex numbers")
    axes, dtype = a.axes("axis", value.rank), a.dtype(_mean_type(value))
    mean = _with_kept(value, axes, _mean_of(e, value, axes, dtype, 0))
    mean = e.program.kept(mean, "mean") if len(axes) < value.rank else mean
    distance = e.operation(a.node, ast.Sub(), [value, mean])
    assert isinstance(distance, Array), "an array less its mean is an array"
    square = e.operation(a.node, ast.Mult(), [distance, distance])
    assert isinstance(square, Array), "a product of arrays is an array"
    made = _mean_of(e, square, axes, dtype, a.integer("ddof", 0))
    return _with_kept(value, axes, made) if a.truth("keepdims") else made


@_for("a axis dtype out ddof keepdims", np.std, np.ndarray.std)
def _std(e: Expressions, a: Arguments) -> Value:
    made = _var(e, a)
    assert isinstance(made, Array | Scalar), "a variance is a number, or one each"
    return e.program.elementwise(lambda x: e.program.call("sqrt", x), made.dtype, [made])


def _size_product(left: ast.expr, right: ast.expr) -> ast.expr:
    """A product of extents, as a value: it need not be affine."""
    return right if constant(left) == 1 else times(left, right)


@_for("a axis dtype out", np.cumsum, np.ndarray.cumsum)
def _cumsum(e: Expressions, a: Arguments) -> Value:
    value = a.array("a")
    if value.rank > 1 and not a.has("axis"):
        value = _flat(e, a, value)
    axis = a.integer("axis", 0) % value.rank
    made = e.program.array(value.shape, a.dtype(e.program.type_of_reduction(SUM, value.dtype)), "running")

    def at(index: Index) -> ast.expr:
        before = made.element((*index[:axis], minus(index[axis], number(1)), *index[axis + 1 :]))
        own = (
            value.element(index) if is_complex(value.dtype) else as_number(value.element(index), value.dtype)
        )
        first = ast.Compare(index[axis], [ast.GtE()], [number(1)])
        types = [made.dtype, value.dtype if value.dtype != BOOL else "integer"]
        return chosen(first, applied(ast.Add(), before, own, types), own, types)

    e.program.scan(made, Array(value.shape, made.dtype, at))
    return made


# products


def _matmul(
    e: Expressions, node: ast.Call, args: list[Value], named: dict[str, Value], into: Array | None
) -> Value:
    a = Arguments(e, node, "a b", args, named)
    left, right = a.either("a"), a.either("b")
    if isinstance(left, Scalar) or isinstance(right, Scalar):
        return _times(e, left, right)
    return product(e, node, left, right, into)


def product(e: Expressions, node: ast.Call, left: Array, right: Array, into: Array | None) -> Array | Scalar:
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
    batch = e.program.common_shape(some)
    a = e.program.broadcast(left, (*batch, *left.shape[-2:])) if left.rank > 1 else left
    b = e.program.broadcast(right, (*batch, *right.shape[-2:])) if right.rank > 1 else right
    count = len(batch)

    def at(index: Index) -> ast.expr:
        outer, inner, k = index[:count], index[count:-1], index[-1]
        i, j = inner[: len(rows)], inner[len(rows) :]
        mine = a.element((*outer, *i, k) if left.rank > 1 else (k,))
        theirs = b.element((*outer, k, *j) if right.rank > 1 else (k,))
        return applied(ast.Mult(), mine, theirs, [left.dtype, right.dtype])

    dtype = common_type([left.dtype, right.dtype])
    terms = Array((*batch, *rows, *columns, own), dtype, at)
    return e.program.reduced(SUM, terms, [terms.rank - 1], "product", dtype, into)


def _operand(e: Expressions, array: Array, reused: bool) -> Array:
    """An operand of a product: a formula whose elements are read more than once is computed first."""
    return e.program.kept(array, "operand") if reused and array.storage is None else array


_define(_matmul, np.matmul)


def _dot(
    e: Expressions, node: ast.Call, args: list[Value], named: dict[str, Value], into: Array | None
) -> Value:
    a = Arguments(e, node, "a b", args, named)
    if any(isinstance(v, Array) and v.rank > 2 for v in (a.either("a"), a.either("b"))):
        a.refuse("more than two dimensions")
    return _matmul(e, node, args, named, into)


_define(_dot, np.dot, np.ndarray.dot)


def _inner(
    e: Expressions, node: ast.Call, args: list[Value], named: dict[str, Value], into: Array | None
) -> Value:
    a = Arguments(e, node, "a b", args, named)
    if a.array("a").rank != 1 or a.array("b").rank != 1:
        a.refuse("other operands than vectors")
    return _matmul(e, node, args, named, into)


def _vdot(
    e: Expressions, node: ast.Call, args: list[Value], named: dict[str, Value], into: Array | None
) -> Value:
    """np.vdot: of complex numbers, those of the first vector are conjugated."""
    first = Arguments(e, node, "a b", args, named).array("a")
    conjugated = e.program.elementwise(complex_numbers.conjugate, first.dtype, [first])
    return _inner(e, node, [conjugated if is_complex(first.dtype) else first, *args[1:]], named, into)


_define(_inner, np.inner)
_define(_vdot, np.vdot)


def _einsum(
    e: Expressions, node: ast.Call, args: list[Value], named: dict[str, Value], into: Array | None
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
    return e.program.reduced(SUM, terms, list(range(len(result), len(order))), "product", dtype, into)


_define(_einsum, np.einsum)


@_for("a b axes", np.tensordot)
def _tensordot(e: Expressions, a: Arguments) -> Value:
    left, right, count = a.array("a"), a.array("b"), a.integer("axes", 2)
    own, other = left.shape[left.rank - count :], right.shape[:count]
    if not all(map(e.program.equal, own, other)):
        a.refuse(f"{shape_text(own)} is not known to be {shape_text(other)}")
    kept_left, kept_right = left.shape[: left.rank - count], right.shape[count:]

    def at(index: Index) -> ast.expr:
        i = index[: len(kept_left)]
        j = index[len(kept_left) : len(kept_left) + len(kept_right)]
        k = index[len(kept_left) + len(kept_right) :]
        types = [left.dtype, right.dtype]
        return applied(ast.Mult(), left.element((*i, *k)), right.element((*k, *j)), types)

    dtype = common_type([left.dtype, right.dtype])
    terms = Array((*kept_left, *kept_right, *own), dtype, at)
    return e.program.reduced(SUM, terms, list(range(terms.rank - count, terms.rank)), "product", dtype)


# complex numbers


@_for("val", np.real)
def _real_part(e: Expressions, a: Arguments) -> Value:
    return part_of(a.either("val"), "real")


@_for("val", np.imag)
def _imaginary_part(e: Expressions, a: Arguments) -> Value:
    return part_of(a.either("val"), "imag")


@_for("real imag", builtins.complex)
def _complex(e: Expressions, a: Arguments) -> Value:
    real = a.either("real")
    imaginary = a.either("imag") if a.has("imag") else Scalar(number(0), "integer")
    if any(is_complex(part.dtype) or isinstance(part, Array) for part in (real, imaginary)):
        a.refuse("other parts than two real numbers")
    dtype = with_parts(common_type([real.dtype, imaginary.dtype, "fraction"]))
    return e.program.elementwise(pair, dtype, [real, imaginary])


def _to_complex(dtype: str) -> Callable[[Expressions, Arguments], Value]:
    return lambda e, a: e.program.converted(a.either("x"), dtype)


for _complex_dtype in COMPLEX:
    _for("x", np.dtype(_complex_dtype).type)(_to_complex(_complex_dtype))


@_for("a", builtins.len)
def _len(e: Expressions, a: Arguments) -> Value:
    value = a.given.get("a")
    if isinstance(value, tuple):
        return e.placed_scalar(number(len(value)), a.node)
    return e.placed_scalar(a.array("a").shape[0], a.node)


@_for("a axis", np.shape)
def _shape(e: Expressions, a: Arguments) -> Value:
    array = a.array("a")
    if a.has("axis"):
        return e.placed_scalar(array.shape[a.integer("axis")], a.node)
    return tuple(e.placed_scalar(extent, a.node) for extent in array.shape)


def _program(function: Callable[..., Any]) -> Call:
    """A call that is inlined as another function's."""

    def call(
        e: Expressions, node: ast.Call, args: list[Value], named: dict[str, Value], into: Array | None
    ) -> Value:
        return e.inlined(e, node, function, args, named)

    return call


for _own, _numpy in (
    (cov, np.cov),
    (cholesky, np.linalg.cholesky),
    (arctan, np.arctan),
    (arctan2, np.arctan2),
    (trunc, np.trunc),
    (trunc, np.fix),
    (rint, np.rint),
):
    _define(_program(_own), _numpy)
