"""Formulas of elements: ufuncs, np.where, np.clip, np.round, and what chooses or converts an element."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from polyfuse.frontend.python.numpy import complex_numbers
from polyfuse.frontend.python.numpy.broadcasting import converted, elementwise
from polyfuse.frontend.python.numpy.complex_numbers import applied, chosen, pair, parts
from polyfuse.frontend.python.numpy.expressions.evaluator import Call, Evaluator
from polyfuse.frontend.python.numpy.expressions.lists import number_or_array
from polyfuse.frontend.python.numpy.expressions.names import part_of
from polyfuse.frontend.python.numpy.expressions.operators import (
    COMPLEX_OPERATIONS,
    compared,
    inverted,
    of_complex,
    operation,
)
from polyfuse.frontend.python.numpy.functions import complex_functions
from polyfuse.frontend.python.numpy.functions.arguments import Arguments
from polyfuse.frontend.python.numpy.functions.calls import Calls
from polyfuse.frontend.python.numpy.functions.programs import rint
from polyfuse.frontend.python.numpy.stores import store
from polyfuse.frontend.python.numpy.syntax import constant, number
from polyfuse.frontend.python.numpy.values import (
    BOOL,
    Array,
    Scalar,
    Value,
    as_number,
    as_test,
    common_type,
    stored_type,
)
from polyfuse.ir.number_types import (
    COMPLEX,
    NUMBER_TYPES,
    is_complex,
    is_integer,
    is_number,
    is_real,
    part_type,
    real_type,
    with_parts,
)

CALLS = Calls()


# formulas of elements


Form = Callable[[Evaluator, ast.expr, Sequence[Array | Scalar]], Array | Scalar]
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
        e: Evaluator, node: ast.Call, args: list[Value], named: dict[str, Value], into: Array | None
    ) -> Value:
        out = named.pop("out", None) or (args.pop() if len(args) == count + 1 else None)
        if len(args) != count or named:
            e.refuse(node, f"{ast.unparse(node)}: these arguments", f"{count} arguments")
        values = [number_or_array(e, node, value) for value in args]
        types = [value.dtype for value in values]

        def formula(*parts: ast.expr) -> ast.expr:
            return make(
                e, *(as_number(p, t) if numbers else as_test(p, t) for p, t in zip(parts, types, strict=True))
            )

        if not any(map(is_complex, types)) or not numbers:
            made = elementwise(e.program, formula, dtype(types), values)
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
        store(e.program, out, made)
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
    return lambda e, node, values: operation(e, node, op, list(values))


def _complex_comparison(op: ast.cmpop) -> Form:
    return lambda e, node, values: compared(e, op, list(values), node)


def _complex_function(
    make: Callable[[Callable[..., ast.expr], ast.expr], ast.expr],
    dtype: Callable[[str], str] = lambda own: own,
) -> Form:
    def form(e: Evaluator, node: ast.expr, values: Sequence[Array | Scalar]) -> Array | Scalar:
        return elementwise(e.program, partial(make, e.program.call), dtype(values[0].dtype), values)

    return form


def _complex_program(program: Callable[..., Any]) -> Form:
    """The form that is a program on real and imaginary parts, inlined."""

    def form(e: Evaluator, node: ast.expr, values: Sequence[Array | Scalar]) -> Array | Scalar:
        made = e.inlined(e, node, program, list(values), {})  # type: ignore[arg-type]  # for messages only
        assert isinstance(made, Array | Scalar), "a function of numbers is a number"
        return made

    return form


def _complex_power(e: Evaluator, node: ast.expr, values: Sequence[Array | Scalar]) -> Array | Scalar:
    """z ** w: products for a constant integer, else exp(w * log(z))."""
    base, exponent = values
    count = (
        constant(exponent.node) if isinstance(exponent, Scalar) and not is_complex(exponent.dtype) else None
    )
    if count is None or abs(count) > complex_numbers.LARGEST_POWER:
        dtype = stored_type(common_type([base.dtype, exponent.dtype]))
        both = [converted(e.program, v, dtype) if is_complex(v.dtype) else v for v in values]
        return _complex_program(complex_functions.power)(e, node, both)
    if count == 0:
        return elementwise(e.program, lambda a: pair(number(1.0), number(0.0)), base.dtype, [base])
    size = Scalar(number(abs(count)), "integer")
    made = of_complex(
        e, node, base.dtype, lambda kinds: lambda a, b: applied(ast.Pow(), a, b, kinds), [base, size]
    )
    return made if count > 0 else operation(e, node, ast.Div(), [Scalar(number(1.0), "fraction"), made])


@CALLS.reads("x", np.sign)
def _sign(e: Evaluator, a: Arguments) -> Value:
    value = a.either("x")
    if is_complex(value.dtype):
        return _complex_program(complex_functions.sign)(e, a.node, [value])
    if value.dtype == BOOL:
        a.refuse("conditions, which have no sign")

    def make(x: ast.expr) -> ast.expr:
        below = ast.IfExp(ast.Compare(x, [ast.Lt()], [number(0)]), number(-1), x)
        signed = NUMBER_TYPES[value.dtype].signed
        return ast.IfExp(ast.Compare(x, [ast.Gt()], [number(0)]), number(1), below if signed else x)

    return elementwise(e.program, make, value.dtype, [value])


def _real(types: list[str]) -> str:
    return real_type(common_type(types))  # type: ignore[arg-type]  # a type of nests


def _bool(types: list[str]) -> str:
    return BOOL


REAL_FUNCTIONS: Mapping[np.ufunc, tuple[str, Callable[..., Any]]] = {
    np.sqrt: ("sqrt", complex_functions.sqrt),
    np.log: ("log", complex_functions.log),
    np.sin: ("sin", complex_functions.sin),
    np.cos: ("cos", complex_functions.cos),
    np.tanh: ("tanh", complex_functions.tanh),
    np.tan: ("tan", complex_functions.tan),
    np.arcsin: ("asin", complex_functions.arcsin),
    np.arccos: ("acos", complex_functions.arccos),
    np.sinh: ("sinh", complex_functions.sinh),
    np.cosh: ("cosh", complex_functions.cosh),
    np.arcsinh: ("asinh", complex_functions.arcsinh),
    np.arccosh: ("acosh", complex_functions.arccosh),
    np.arctanh: ("atanh", complex_functions.arctanh),
    np.log2: ("log2", complex_functions.log2),
    np.log10: ("log10", complex_functions.log10),
    np.log1p: ("log1p", complex_functions.log1p),
    np.expm1: ("expm1", complex_functions.expm1),
}
"""NumPy's functions that are functions of nests: the name there, and the program for complex numbers."""

for _ufunc, (_name, _program) in REAL_FUNCTIONS.items():
    CALLS.define(_elementwise(1, _function(_name), _real, complex_form=_complex_program(_program)), _ufunc)
CALLS.define(
    _elementwise(1, _function("exp"), _real, complex_form=_complex_function(complex_numbers.exponential)),
    np.exp,
)
CALLS.define(
    _elementwise(
        1,
        _function("abs"),
        common_type,
        complex_form=_complex_function(complex_numbers.magnitude, part_type),
    ),
    np.abs,
    builtins.abs,
)
CALLS.define(_elementwise(1, _function("abs"), _real), np.fabs)
CALLS.define(
    _elementwise(
        1,
        lambda e, a: ast.UnaryOp(ast.USub(), a),
        common_type,
        complex_form=_complex_function(lambda call, a: complex_numbers.minus(a)),
    ),
    np.negative,
)
CALLS.define(
    _elementwise(
        1,
        lambda e, a: ast.BinOp(a, ast.Mult(), a),
        common_type,
        complex_form=lambda e, node, values: operation(e, node, ast.Mult(), [*values, *values]),
    ),
    np.square,
)


@CALLS.reads("x", np.reciprocal)
def _reciprocal(e: Evaluator, a: Arguments) -> Value:
    value = a.either("x")
    if not is_integer(value.dtype):
        return operation(e, a.node, ast.Div(), [Scalar(number(1.0), "fraction"), value])

    def towards_zero(x: ast.expr) -> ast.expr:
        small = ast.BoolOp(
            ast.And(), [ast.Compare(x, [ast.GtE()], [number(-1)]), ast.Compare(x, [ast.LtE()], [number(1)])]
        )
        return ast.IfExp(small, x, number(0))

    return elementwise(e.program, towards_zero, value.dtype, [value])


CALLS.define(
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
CALLS.define(
    _elementwise(
        1,
        lambda e, a: ast.BinOp(number(2.0), ast.Pow(), a),
        _real,
        complex_form=_complex_program(complex_functions.exp2),
    ),
    np.exp2,
)
CALLS.define(
    _elementwise(1, lambda e, a: a, common_type, complex_form=lambda e, node, values: values[0]), np.positive
)
CALLS.define(_elementwise(1, _function("floor"), common_type), np.floor)
CALLS.define(_elementwise(1, _function("ceil"), common_type), np.ceil)
CALLS.define(_elementwise(2, lambda e, a, b: e.program.call("max", a, b), common_type), np.maximum, np.fmax)
CALLS.define(_elementwise(2, lambda e, a, b: e.program.call("min", a, b), common_type), np.minimum, np.fmin)
_hypot = _elementwise(
    2,
    lambda e, a, b: e.program.call(
        "sqrt", ast.BinOp(ast.BinOp(a, ast.Mult(), a), ast.Add(), ast.BinOp(b, ast.Mult(), b))
    ),
    _real,
)


@CALLS.reads("x1 x2 out", np.hypot)
def _hypotenuse(e: Evaluator, a: Arguments) -> Value:
    """The root of the sum of squares, which are those of floats: squares of integers wrap."""
    values = [a.either("x1"), a.either("x2")]
    dtype = _real([value.dtype for value in values])
    sides: list[Value] = [
        converted(e.program, value, dtype)
        if is_integer(value.dtype) and not is_number(value.dtype)
        else value
        for value in values
    ]
    return _hypot(e, a.node, sides, {"out": a.array("out")} if a.has("out") else {}, None)


for _op, _functions in {
    ast.Add: (np.add,),
    ast.Sub: (np.subtract,),
    ast.Mult: (np.multiply,),
}.items():
    CALLS.define(
        _elementwise(2, _operator(_op()), common_type, complex_form=_complex_operator(_op())), *_functions
    )
CALLS.define(_elementwise(2, _operator(ast.Pow()), common_type, complex_form=_complex_power), np.power)
CALLS.define(
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
    CALLS.define(
        _elementwise(2, _comparison(_cmp()), _bool, complex_form=_complex_comparison(_cmp())), _ufunc
    )
CALLS.define(_elementwise(2, _logical(ast.And()), _bool, numbers=False), np.logical_and)
CALLS.define(_elementwise(2, _logical(ast.Or()), _bool, numbers=False), np.logical_or)
CALLS.define(_elementwise(1, lambda e, a: ast.UnaryOp(ast.Not(), a), _bool, numbers=False), np.logical_not)
CALLS.define(
    _elementwise(
        1,
        lambda e, a: ast.Compare(a, [ast.NotEq()], [a]),
        _bool,
        complex_form=lambda e, node, values: compared(e, ast.NotEq(), [*values, *values], node),
    ),
    np.isnan,
)


def _less_itself(e: Evaluator, a: ast.expr) -> ast.expr:
    """0 of a finite number, NaN of the others."""
    return ast.BinOp(a, ast.Sub(), a)


def _is_finite(e: Evaluator, a: ast.expr) -> ast.expr:
    return ast.Compare(_less_itself(e, a), [ast.Eq()], [number(0)])


def _is_infinite(e: Evaluator, a: ast.expr) -> ast.expr:
    own = ast.Compare(a, [ast.Eq()], [a])
    return ast.BoolOp(ast.And(), [own, ast.Compare(_less_itself(e, a), [ast.NotEq()], [number(0)])])


def _of_parts(op: ast.boolop, test: Callable[..., ast.expr]) -> Form:
    """A test of both parts of a complex number."""

    def form(e: Evaluator, node: ast.expr, values: Sequence[Array | Scalar]) -> Array | Scalar:
        return elementwise(
            e.program, lambda a: ast.BoolOp(op, [test(e, part) for part in parts(a)]), BOOL, values
        )

    return form


def _of_integers(op: ast.operator, e: Evaluator, a: Arguments) -> Value:
    return operation(e, a.node, op, [a.either("x1"), a.either("x2")])


CALLS.define(_elementwise(1, _is_finite, _bool, complex_form=_of_parts(ast.And(), _is_finite)), np.isfinite)
CALLS.define(_elementwise(1, _is_infinite, _bool, complex_form=_of_parts(ast.Or(), _is_infinite)), np.isinf)
for _integers, _made_by in (
    (ast.FloorDiv, np.floor_divide),
    (ast.Mod, np.remainder),
    (ast.LShift, np.left_shift),
    (ast.RShift, np.right_shift),
    (ast.BitAnd, np.bitwise_and),
    (ast.BitOr, np.bitwise_or),
    (ast.BitXor, np.bitwise_xor),
):
    CALLS.reads("x1 x2", _made_by)(partial(_of_integers, _integers()))


@CALLS.reads("x", np.invert)
def _invert(e: Evaluator, a: Arguments) -> Value:
    value = a.either("x")
    if value.dtype == BOOL:
        return elementwise(e.program, lambda x: ast.UnaryOp(ast.Not(), x), BOOL, [value])
    return inverted(e, a.node, value)


@CALLS.reads("condition x y", np.where)
def _where(e: Evaluator, a: Arguments) -> Value:
    test, x, y = (a.either(name) for name in ("condition", "x", "y"))
    dtype = common_type([x.dtype, y.dtype])

    def make(t: ast.expr, first: ast.expr, second: ast.expr) -> ast.expr:
        if is_complex(dtype):
            return chosen(as_test(t, test.dtype), first, second, [x.dtype, y.dtype])
        if dtype != BOOL:
            first, second = as_number(first, x.dtype), as_number(second, y.dtype)
        return ast.IfExp(as_test(t, test.dtype), first, second)

    return elementwise(e.program, make, dtype, [test, x, y])


@CALLS.reads("a min|a_min max|a_max", np.clip, np.ndarray.clip)
def _clip(e: Evaluator, a: Arguments) -> Value:
    value: Scalar | Array = a.either("a")
    if is_complex(value.dtype):
        a.refuse("an order of complex numbers")
    for name, function in (("min", "max"), ("max", "min")):
        if a.has(name):
            bound = a.either(name)
            dtype = common_type([value.dtype, bound.dtype])
            value = elementwise(e.program, partial(e.program.call, function), dtype, [value, bound])
    return value


@CALLS.reads("a decimals", np.round, np.around, np.ndarray.round)
def _round(e: Evaluator, a: Arguments) -> Value:
    """The nearest number of so many decimals, of two the even one."""
    value, decimals = a.either("a"), a.integer("decimals", 0)
    if is_integer(value.dtype) and decimals >= 0:
        return value
    if is_complex(value.dtype):
        rounded = [_rounded(e, a, part_of(value, part), decimals) for part in ("real", "imag")]
        return elementwise(e.program, pair, value.dtype, rounded)
    if not is_real(value.dtype):
        a.refuse("integers to tens")
    return _rounded(e, a, value, decimals)


def _rounded(e: Evaluator, a: Arguments, value: Array | Scalar, decimals: int) -> Array | Scalar:
    scale = Scalar(number(10 ** abs(decimals)), "integer")
    steps: tuple[ast.operator, ast.operator] = (
        (ast.Mult(), ast.Div()) if decimals > 0 else (ast.Div(), ast.Mult())
    )
    scaled = operation(e, a.node, steps[0], [value, scale]) if decimals else value
    made = e.inlined(e, a.node, rint, [scaled], {})
    assert isinstance(made, Array | Scalar), "a number is rounded to a number"
    return operation(e, a.node, steps[1], [made, scale]) if decimals else made


# complex numbers


@CALLS.reads("val", np.real)
def _real_part(e: Evaluator, a: Arguments) -> Value:
    return part_of(a.either("val"), "real")


@CALLS.reads("val", np.imag)
def _imaginary_part(e: Evaluator, a: Arguments) -> Value:
    return part_of(a.either("val"), "imag")


@CALLS.reads("real imag", builtins.complex)
def _complex(e: Evaluator, a: Arguments) -> Value:
    real = a.either("real")
    imaginary = a.either("imag") if a.has("imag") else Scalar(number(0), "integer")
    if any(is_complex(part.dtype) or isinstance(part, Array) for part in (real, imaginary)):
        a.refuse("other parts than two real numbers")
    dtype = with_parts(common_type([real.dtype, imaginary.dtype, "fraction"]))
    return elementwise(e.program, pair, dtype, [real, imaginary])


def _to_complex(dtype: str) -> Callable[[Evaluator, Arguments], Value]:
    return lambda e, a: converted(e.program, a.either("x"), dtype)


for _complex_dtype in COMPLEX:
    CALLS.reads("x", np.dtype(_complex_dtype).type)(_to_complex(_complex_dtype))


@CALLS.reads("condlist choicelist default", np.select)
def _select(e: Evaluator, a: Arguments) -> Value:
    """The first choice whose condition holds."""
    tests, choices = a.given.get("condlist"), a.given.get("choicelist")
    if not isinstance(tests, tuple) or not isinstance(choices, tuple) or len(tests) != len(choices):
        a.refuse("lists of conditions and of as many choices are expected")
    found: Value = a.given.get("default", Scalar(number(0), "integer"))
    for test, choice in reversed(list(zip(tests, choices, strict=True))):
        found = _where(e, Arguments(e, a.node, "condition x y", [test, choice, found], {}))
    return found


@CALLS.reads("x", builtins.int)
def _int(e: Evaluator, a: Arguments) -> Value:
    """int(x): towards zero."""
    return converted(e.program, a.either("x"), "int64")


@CALLS.reads("x digits", builtins.round)
def _round_number(e: Evaluator, a: Arguments) -> Value:
    """round(x): the nearest integer, of two the even one; with digits, a number of so many decimals."""
    value = a.either("x")
    if is_integer(value.dtype):
        return value
    made = _rounded(e, a, value, a.integer("digits", 0))
    return made if a.has("digits") else converted(e.program, made, "int64")
