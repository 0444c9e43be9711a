"""Evaluate a function's expressions to values: numbers stay as they are written, arrays become views and formulas.

An expression of numbers alone is given back as it stands, so that what the reader of single elements refuses, it
refuses at its place in the source.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import replace
from types import FunctionType, ModuleType
from typing import Any, NoReturn

import numpy as np

from polyfuse.errors import NotAffine
from polyfuse.frontend.python.gathers import is_from_data
from polyfuse.frontend.python.numpy import complex_numbers
from polyfuse.frontend.python.numpy.complex_numbers import applied, as_complex, chosen, pair, parts
from polyfuse.frontend.python.numpy.frames import Frame, LocalFunction
from polyfuse.frontend.python.numpy.program import CALLED, Program
from polyfuse.frontend.python.numpy.subscripts import Cut, Part, from_start, subscripted
from polyfuse.frontend.python.numpy.syntax import constant, minus, number, placed, plus, times
from polyfuse.frontend.python.numpy.values import (
    BOOL,
    Array,
    Scalar,
    Static,
    Value,
    as_number,
    as_test,
    common_type,
    weak_type,
)
from polyfuse.frontend.python.scope_names import FUNCTIONS, MISSING
from polyfuse.ir.expression import OPERATORS
from polyfuse.ir.number_types import (
    ITEMSIZE,
    NUMBER_TYPES,
    is_complex,
    is_integer,
    is_number,
    is_real,
    part_type,
    real_type,
)

Call = Callable[["Expressions", ast.Call, list[Value], dict[str, Value], Array | None], Value]

ALLOWED = "array expressions of NumPy: slices, arithmetic, @, sums and maxima over axes, np.where, np.exp, …"
COMPLEX_OPERATIONS = (
    "+ - * / == !=, ** of constant integers, np.exp abs conj real imag sum mean matmul einsum"
)
LARGEST_CONSTANT = 256
"""Elements of a constant array from outside, which becomes one statement each."""


class Expressions:
    """Evaluates the expressions of one frame at a time; what needs statements of its own emits them to the program."""

    def __init__(
        self,
        program: Program,
        frame: Frame,
        calls: Callable[[object], Call | None],
        inlined: Callable[[Expressions, ast.Call, Any, list[Value], dict[str, Value]], Value],
    ) -> None:
        self.program, self.frame = program, frame
        self.calls, self.inlined = calls, inlined
        self.constants: dict[int, Array] = {}

    def refuse(self, node: ast.AST, why: str, allowed: str = ALLOWED) -> NoReturn:
        """Raise NotAffine at a node of the frame's source, with the calls that lead there."""
        chain = self.frame.chain()
        self.frame.source.refuse(node, f"{why} ({chain})" if chain else why, allowed)

    def unread(self, node: ast.expr, whole: ast.expr | None = None) -> Scalar:
        """What is left to the reader of elements, which refuses it if it is nothing to it either.

        In an inlined function it is refused here, since that reader knows the decorated function's names alone.
        """
        if not self.frame.is_first:
            self.refuse(node, f"{ast.unparse(node)}, which pf.nest does not read")
        return Scalar(whole or node, "fraction")

    # values

    def value(self, node: ast.expr, into: Array | None = None) -> Value:
        """The value of an expression. `into` is where a reduction may leave its result."""
        hint, self.program.hint = self.program.hint, None
        match node:
            case ast.Constant(value=bool() | int() | float() as literal):
                return Scalar(node, weak_type(literal) or "integer")
            case ast.Constant(value=complex() as literal):
                return self.outer(node, literal)
            case ast.Constant():
                return Static(node.value)
            case ast.Name():
                return self.name(node)
            case ast.Tuple() | ast.List():
                return tuple(value for part in node.elts for value in self.parts(part))
            case ast.Attribute():
                return self.attribute(node)
            case ast.Subscript():
                return self.subscript(node)
            case ast.UnaryOp():
                return self.unary(node)
            case ast.BinOp(op=ast.MatMult()):
                left, right = self.array(node.left), self.array(node.right)
                call = self.calls(np.matmul)
                assert call is not None, "matmul is one of the calls"
                self.program.hint = hint
                made = ast.copy_location(ast.Call(node.left, [], []), node)
                return call(self, made, [left, right], {}, into)
            case ast.BinOp():
                return self.binary(node)
            case ast.Compare():
                return self.comparison(node)
            case ast.BoolOp():
                return self.boolean(node)
            case ast.IfExp():
                return self.choice(node)
            case ast.Call():
                return self.call(node, into, hint)
            case ast.Lambda():
                return Static(LocalFunction(node, self.frame))
        return self.unread(node)

    def parts(self, node: ast.expr) -> tuple[Value, ...]:
        """An element of a tuple as it is written: *t are all elements of t."""
        if not isinstance(node, ast.Starred):
            return (self.value(node),)
        found = self.value(node.value)
        if not isinstance(found, tuple):
            self.refuse(node, f"{ast.unparse(node)} of what is no tuple", "tuples")
        return found

    def name(self, node: ast.Name) -> Value:
        """A variable, or what the name is outside of the function."""
        found = self.frame.found(node.id)
        if found is not None:
            return (
                Scalar(node, found.dtype) if isinstance(found, Scalar) and _is(found.node, node.id) else found
            )
        if node.id in self.frame.over:
            index = self.frame.over[node.id]
            self.refuse(
                node,
                f"{node.id} is a view or an array of one iteration of the loop over {index}, which is over",
                ALLOWED,
            )
        return self.outer(node, self.frame.outside(node.id))

    def outer(self, node: ast.expr, outside: object) -> Value:
        """A Python object as a value: a number keeps its name in the decorated function."""
        dtype = weak_type(outside)
        if dtype is not None and is_complex(dtype):
            assert isinstance(outside, complex | np.complexfloating), "weak_type knows numbers"
            return Scalar(placed(_literals(outside), node), dtype)
        if dtype is not None:
            assert isinstance(outside, int | float | np.generic), "weak_type knows numbers"
            literal = outside.item() if isinstance(outside, np.generic) else outside
            return Scalar(node if self.frame.is_first else ast.copy_location(number(literal), node), dtype)
        if (
            isinstance(outside, np.ndarray)
            and outside.ndim
            and weak_type(outside.flat[0] if outside.size else 0)
        ):
            return self.constant_array(node, outside)
        if outside is MISSING:
            return self.unread(node)
        return Static(outside)

    def constant_array(self, node: ast.expr, outside: np.ndarray[Any, Any]) -> Array:
        """A module's array: its elements now, one statement each."""
        known = self.constants.get(id(outside))
        if known is not None:
            return known
        if outside.size > LARGEST_CONSTANT:
            self.refuse(
                node, f"{ast.unparse(node)} is an array of {outside.size} elements from outside", "parameters"
            )
        program = self.program
        made = program.array(
            [number(n) for n in outside.shape], outside.dtype.name, ast.unparse(node).split(".")[-1]
        )
        for index in np.ndindex(*outside.shape):
            target = made.element(tuple(number(i) for i in index))
            value = outside[index].item()
            literal = _literals(value) if isinstance(value, complex) else number(value)
            for statement in program.assigned(target, literal):
                program.emit(statement)
        self.constants[id(outside)] = made
        return made

    def attribute(self, node: ast.Attribute) -> Value:
        """x.T, x.shape, x.size, x.ndim, x.dtype, or a name in a module."""
        inner = self.value(node.value)
        if isinstance(inner, Array):
            match node.attr:
                case "T":
                    call = self.calls(np.transpose)
                    assert call is not None, "transpose is one of the calls"
                    return call(self, ast.copy_location(ast.Call(node, [], []), node), [inner], {}, None)
                case "shape":
                    return tuple(self.placed_scalar(extent, node) for extent in inner.shape)
                case "size":
                    size: ast.expr = number(1)
                    for extent in inner.shape:
                        size = times(size, extent)
                    return self.placed_scalar(size, node)
                case "ndim":
                    return self.placed_scalar(number(inner.rank), node)
                case "dtype":
                    return Static(np.dtype(inner.dtype))
                case "real" | "imag":
                    return part_of(inner, node.attr)
            self.refuse(
                node, f"{ast.unparse(node)} of an array", ".T .shape .size .ndim .dtype and NumPy's methods"
            )
        if isinstance(inner, Static):
            found = getattr(inner.value, node.attr, MISSING)
            if isinstance(inner.value, ModuleType):
                return self.outer(node, found)
            if found is not MISSING:
                return Static(found)
        if isinstance(inner, Scalar) and is_complex(inner.dtype) and node.attr in ("real", "imag"):
            return part_of(inner, node.attr)
        if isinstance(inner, Scalar) and node.attr == "dtype" and inner.dtype in ITEMSIZE:
            return Static(np.dtype(inner.dtype))
        return self.unread(node)

    def placed_scalar(self, node: ast.expr, where: ast.AST) -> Scalar:
        """An integer that was made here, at a place in the source."""
        return Scalar(placed(_copy(node), where), "integer")

    def subscript(self, node: ast.Subscript) -> Value:
        """An element, a view, the elements that a mask selects, or an element of a tuple."""
        base = self.value(node.value)
        if isinstance(base, tuple):
            position = self.value(node.slice)
            at = constant(position.node) if isinstance(position, Scalar) else None
            if at is None or not -len(base) <= at < len(base):
                self.refuse(
                    node, f"{ast.unparse(node)} is not an element that is known here", "a constant subscript"
                )
            found: Value = base[at]
            return found
        if isinstance(base, Static) and base.value is np.mgrid:
            return self.grid(node)
        if not isinstance(base, Array):
            return self.unread(node)
        return self.selected(node, base)

    def grid(self, node: ast.Subscript) -> Value:
        """np.mgrid[a:b, c:d]: an array of each subscript, as a tuple."""
        parts = list(node.slice.elts) if isinstance(node.slice, ast.Tuple) else [node.slice]
        cuts = [self.written_out(self.part(part)) if isinstance(part, ast.Slice) else None for part in parts]
        bounds = [
            (cut.start or number(0), cut.stop)
            for cut in cuts
            if isinstance(cut, Cut) and cut.stop is not None and cut.step == 1
        ]
        if len(bounds) < len(parts) or len(parts) < 2:
            self.refuse(node, f"{ast.unparse(node)}: these subscripts", "np.mgrid[a:b, c:d] of integers")
        shape = tuple(minus(stop, start) for start, stop in bounds)
        return tuple(Array(shape, "int64", _counted(k, start)) for k, (start, _) in enumerate(bounds))

    def selected(self, node: ast.Subscript, base: Array) -> Value:
        """base[…]."""
        parts = list(node.slice.elts) if isinstance(node.slice, ast.Tuple) else [node.slice]
        if len(parts) == 1 and not isinstance(parts[0], ast.Slice):
            only = self.value(parts[0])
            if isinstance(only, Array) and only.dtype == BOOL:
                if only.rank != base.rank:
                    self.refuse(
                        node, f"{ast.unparse(node)}: a mask of another rank", "a mask of the array's shape"
                    )
                return replace(base, mask=self.program.broadcast(only, base.shape))
        if isinstance(node.ctx, ast.Load) and base.rank and base.mask is None:
            index = (
                None if isinstance(parts[0], ast.Slice) or _is_ellipsis(parts[0]) else self.value(parts[0])
            )
            if isinstance(index, Array) and index.rank and is_integer(index.dtype):
                return self.gathered(node, base, index, parts[1:])
        count = sum(not (_is_ellipsis(part) or self.is_none(part)) for part in parts)
        if count > base.rank:
            self.refuse(
                node,
                f"{ast.unparse(node)} has {count} subscripts, {ast.unparse(node.value)} has rank {base.rank}",
                "one subscript a dimension",
            )
        read: list[Part] = []
        for part in parts:
            if _is_ellipsis(part):
                read += [Cut(None, None)] * (base.rank - count)
            else:
                read.append(self.part(part))
        if base.mask is not None:
            self.refuse(node, "a subscript of the elements that a mask selects", "x[i] of an array")
        if count == base.rank and all(isinstance(part, ast.expr) for part in read):
            return self.single(node, base, [part for part in read if isinstance(part, ast.expr)])
        written = [self.written_out(part) for part in read]
        return subscripted(self.program.geometry, base, written)

    def gathered(self, node: ast.Subscript, base: Array, index: Array, rest: Sequence[ast.expr]) -> Array:
        """base[index, …]: the rows that an array of integers chooses; no view, as in NumPy."""
        rank = index.rank
        made = Array(
            (*index.shape, *base.shape[1:]),
            base.dtype,
            lambda i: base.element((index.element(i[:rank]), *i[rank:])),
        )
        count = sum(not (_is_ellipsis(part) or self.is_none(part)) for part in rest)
        if count > base.rank - 1 or any(_is_ellipsis(part) for part in rest):
            self.refuse(
                node,
                f"{ast.unparse(node)}: these subscripts behind an array",
                "x[idx], x[idx, i], x[idx, 1:]",
            )
        read = [self.written_out(self.part(part)) for part in rest]
        return subscripted(self.program.geometry, made, [*[Cut(None, None)] * rank, *read])

    def is_none(self, node: ast.expr) -> bool:
        """True for None by any name: np.newaxis."""
        if isinstance(node, ast.Slice):
            return False
        value = self.value(node)
        return isinstance(value, Static) and value.value is None

    def single(self, node: ast.Subscript, base: Array, parts: list[ast.expr]) -> Scalar:
        """One element. It keeps its syntax where that names the element already."""
        geometry = self.program.geometry
        index = []
        for part, extent in zip(parts, base.shape, strict=True):
            written = self.program.aliases.written_out(part)
            counted = geometry.is_affine(written) and geometry.is_negative(written)
            index.append(from_start(geometry, written, extent) if counted else part)
        if base.dtype == BOOL:
            return Scalar(placed(base.element(tuple(index)), node), BOOL)
        made = base.element(tuple(index))
        same = self.frame.is_first and ast.unparse(made) == ast.unparse(node)
        return Scalar(node if same else placed(_copy(made), node), base.dtype)

    def part(self, node: ast.expr) -> Part:
        """One subscript."""
        if isinstance(node, ast.Slice):
            step = 1
            if node.step is not None:
                found = constant(self.program.aliases.written_out(self.integer(node.step)))
                if not found:
                    self.refuse(
                        node.step, f"the step {ast.unparse(node.step)}", "an integer constant other than 0"
                    )
                step = found
            bounds = [
                None if bound is None or self.is_none(bound) else self.integer(bound)
                for bound in (node.lower, node.upper)
            ]
            return Cut(bounds[0], bounds[1], step)
        value = self.value(node)
        if isinstance(value, Static) and value.value is None:
            return None
        if not isinstance(value, Scalar):
            self.refuse(node, f"{ast.unparse(node)} as a subscript", "integers, slices, None, ... and masks")
        return value.node

    def written_out(self, part: Part) -> Part:
        """A subscript without variables that stand for an integer. NotAffine if it is not affine then."""
        aliases, geometry = self.program.aliases, self.program.geometry
        if part is None:
            return None
        if isinstance(part, Cut):
            bounds = [None if b is None else aliases.written_out(b) for b in (part.start, part.stop)]
            for bound in bounds:
                if bound is not None:
                    self.affine(bound)
            return Cut(bounds[0], bounds[1], part.step)
        written = aliases.written_out(part)
        if is_from_data(written):
            return written
        if not geometry.is_affine(written):
            self.affine(written)
        return written

    def affine(self, node: ast.expr) -> ast.expr:
        """An integer that is affine. NotAffine, with the calls that lead here, if it is not."""
        try:
            self.program.geometry.here().affine.value(placed(node, self.program.place))
        except NotAffine as error:
            chain = self.frame.chain()
            raise (
                NotAffine(
                    f"{error.why} ({chain})", error.file, error.line, error.column, error.text, error.allowed
                )
                if chain
                else error
            ) from None
        return node

    def known(self, node: ast.expr) -> int | None:
        """The integer that an expression is when the function is read, by literals and numbers from outside."""
        frame = self.frame

        class Written(ast.NodeTransformer):
            def visit_Name(self, part: ast.Name) -> ast.expr:
                outside = frame.outside(part.id) if frame.found(part.id) is None else None
                return part if not isinstance(outside, int) or isinstance(outside, bool) else number(outside)

        made = Written().visit(deepcopy(self.program.aliases.written_out(node)))
        assert isinstance(made, ast.expr), "an expression stays one"
        return constant(made)

    def integer(self, node: ast.expr) -> ast.expr:
        """An integer in a bound or a shape, as it is written."""
        value = self.value(node)
        if not isinstance(value, Scalar):
            self.refuse(
                node, f"{ast.unparse(node)} where an integer is expected", "integers, sizes and indices"
            )
        return value.node

    def array(self, node: ast.expr) -> Value:
        """The value of an operand of an array operation."""
        return self.value(node)

    def number_or_array(self, node: ast.expr, value: Value) -> Scalar | Array:
        """A value that has elements. NotAffine for others."""
        if isinstance(value, tuple):
            return self.stacked(node, value)
        if isinstance(value, Static):
            self.refuse(node, f"{ast.unparse(node)} is no number and no array", ALLOWED)
        return value

    def stacked(self, node: ast.expr, values: tuple[Value, ...]) -> Array:
        """A list of numbers as an array."""
        parts = [part for part in values if isinstance(part, Scalar)]
        if len(parts) != len(values) or not parts:
            self.refuse(node, f"{ast.unparse(node)} as an array", "lists of numbers")
        dtype = common_type([part.dtype for part in parts])

        def at(index: tuple[ast.expr, ...]) -> ast.expr:
            *rest, last = parts
            made = as_complex(last.node, last.dtype) if is_complex(dtype) else last.node
            for position in range(len(rest) - 1, -1, -1):
                test = ast.Compare(index[0], [ast.Eq()], [number(position)])
                made = chosen(test, rest[position].node, made, [rest[position].dtype, dtype])
            return made

        return Array((number(len(parts)),), dtype, at)

    # operators

    def operands(self, nodes: Sequence[ast.expr]) -> list[Scalar | Array] | None:
        """The operands of an operation; None if one of them has no elements."""
        values = [self.value(node) for node in nodes]
        if any(isinstance(value, Static) for value in values):
            return None
        if any(isinstance(value, tuple) for value in values) and not any(
            isinstance(v, Array) for v in values
        ):
            return None
        return [self.number_or_array(node, value) for node, value in zip(nodes, values, strict=True)]

    def unary(self, node: ast.UnaryOp) -> Value:
        """-x, +x, not x, ~x."""
        values = self.operands([node.operand])
        if values is None:
            known = self.value(node.operand)
            if isinstance(node.op, ast.Not) and isinstance(known, Static):
                return Static(not known.value)
            self.refuse(node, f"{ast.unparse(node)} is no number", ALLOWED)
        value = values[0]
        if is_complex(value.dtype) and isinstance(node.op, ast.USub | ast.UAdd):
            return self.program.elementwise(
                complex_numbers.minus if isinstance(node.op, ast.USub) else lambda a: a, value.dtype, values
            )
        if isinstance(node.op, ast.Invert) and value.dtype != BOOL:
            return self.inverted(node, value)
        if isinstance(node.op, ast.USub) and value.dtype == BOOL:
            self.refuse(node, f"{ast.unparse(node)} of conditions", "~")
        if (
            isinstance(node.op, ast.USub)
            and is_integer(value.dtype)
            and value.dtype not in ("integer", "int64")
        ):
            # the sign of a term is read as a difference, which has the type of both operands: -x has that of x
            return self.operation(node, ast.Sub(), [Scalar(number(0), "integer"), value])
        if isinstance(value, Scalar):
            dtype = BOOL if isinstance(node.op, ast.Not | ast.Invert) else value.dtype
            if isinstance(node.op, ast.Invert):
                return Scalar(ast.copy_location(ast.UnaryOp(ast.Not(), value.node), node), BOOL)
            return Scalar(_rebuilt(node, operand=_tested(value)), dtype)
        if isinstance(node.op, ast.Invert | ast.Not):
            if value.dtype != BOOL or isinstance(node.op, ast.Not):
                self.refuse(node, f"{ast.unparse(node)} of an array", "~ of a condition")
            return self.program.elementwise(lambda a: ast.UnaryOp(ast.Not(), a), BOOL, values)
        dtype = value.dtype
        return self.program.elementwise(
            lambda a: ast.UnaryOp(node.op, as_number(a, dtype)), common_type([dtype]), values
        )

    def inverted(self, node: ast.expr, value: Scalar | Array) -> Scalar | Array:
        """~x of integers: -1 - x, or the largest number less x where none is negative."""
        self.integers(node, [value.dtype])
        known = NUMBER_TYPES[value.dtype]
        ones = Scalar(number(-1 if known.signed else known.largest), "integer")
        return self.operation(node, ast.Sub(), [ones, value])

    def binary(self, node: ast.BinOp) -> Value:
        """x op y."""
        values = self.operands([node.left, node.right])
        if values is None:
            left, right = self.value(node.left), self.value(node.right)
            if isinstance(left, tuple) and isinstance(right, tuple) and isinstance(node.op, ast.Add):
                return (*left, *right)
            self.refuse(node, f"{ast.unparse(node)} is no operation on numbers", ALLOWED)
        return self.operation(node, node.op, values)

    def operation(self, node: ast.expr, op: ast.operator, values: list[Scalar | Array]) -> Scalar | Array:
        """An operator of two values."""
        types = [value.dtype for value in values]
        if any(map(is_complex, types)):
            return self.of_complex(
                node, common_type(types), lambda kinds: lambda a, b: applied(op, a, b, kinds), values
            )
        logical = {ast.BitAnd: ast.And, ast.BitOr: ast.Or, ast.Mult: ast.And, ast.Add: ast.Or}
        if type(op) in logical and types == [BOOL, BOOL]:
            join = logical[type(op)]()
            return self.program.elementwise(lambda a, b: ast.BoolOp(join, [a, b]), BOOL, values)
        if isinstance(op, ast.BitXor) and types == [BOOL, BOOL]:
            return self.compared(ast.NotEq(), values, node)
        if types == [BOOL, BOOL] and not isinstance(op, ast.Div):
            self.refuse(
                node, f"{ast.unparse(node)}: this operator on conditions", "+ * / & | ^ ~; .astype(np.int8)"
            )
        dtype = common_type(types, divides=isinstance(op, ast.Div))
        if isinstance(op, ast.Pow) and dtype == "integer" and all(isinstance(v, Scalar) for v in values):
            base, exponent = (value.node for value in values if isinstance(value, Scalar))
            whole = self.known(ast.BinOp(base, op, exponent))
            if whole is not None:
                return Scalar(placed(number(whole), node), dtype)
        if isinstance(op, ast.FloorDiv | ast.Mod) and is_real(dtype):
            function = "floor_divide" if isinstance(op, ast.FloorDiv) else "remainder"
            return self.program.elementwise(
                lambda a, b: placed(
                    self.program.call(function, as_number(a, types[0]), as_number(b, types[1])), node
                ),
                dtype,
                values,
            )
        if type(op) in OPERATORS.values():
            self.integers(node, types)
        if BOOL in types and all(known == BOOL or is_number(known) for known in types):
            values = [self.program.converted(v, "int64") if v.dtype == BOOL else v for v in values]
            types = [value.dtype for value in values]
        if all(isinstance(value, Scalar) for value in values):
            left, right = (
                as_number(value.node, value.dtype) for value in values if isinstance(value, Scalar)
            )
            if isinstance(node, ast.BinOp):
                return Scalar(_rebuilt(node, left=left, right=right), dtype)
            return Scalar(ast.copy_location(ast.BinOp(left, op, right), node), dtype)

        def make(a: ast.expr, b: ast.expr) -> ast.expr:
            return ast.BinOp(as_number(a, types[0]), op, as_number(b, types[1]))

        return self.program.elementwise(make, dtype, values)

    def of_complex(
        self,
        node: ast.expr,
        dtype: str,
        formula: Callable[[list[str]], Callable[..., ast.expr]],
        values: Sequence[Scalar | Array],
    ) -> Scalar | Array:
        """An operation of which one operand is complex, as a formula on numbers of some types."""
        values = self.program.in_parts(values)
        make = formula([value.dtype for value in values])
        index = tuple(number(0) for _ in range(max(v.rank if isinstance(v, Array) else 0 for v in values)))
        try:
            make(*(v.node if isinstance(v, Scalar) else v.element(index[: v.rank]) for v in values))
        except ValueError as error:
            self.refuse(node, f"{ast.unparse(node)}: {error}", f"{COMPLEX_OPERATIONS} of complex numbers")
        return self.program.elementwise(make, dtype, values)

    def integers(self, node: ast.expr, types: Sequence[str]) -> None:
        """Refuse an operation of integers on other numbers."""
        other = next((t for t in [*types, common_type(types)] if is_real(t)), None)
        if other is not None:
            what = "fractions" if other == "fraction" else f"{other} numbers"
            self.refuse(
                node, f"{ast.unparse(node)}: an operation of integers on {what}", "np.floor, or integers"
            )

    def comparison(self, node: ast.Compare) -> Value:
        """x < y, chained too; `is` and == of Python objects that are known."""
        nodes = [node.left, *node.comparators]
        values = self.operands(nodes)
        if values is None:
            known = [self.value(part) for part in nodes]
            return self.known_comparison(node, known)
        if all(isinstance(value, Scalar) for value in values):
            if isinstance(node.ops[0], ast.Is | ast.IsNot):  # a number is not None
                return Static(isinstance(node.ops[0], ast.IsNot))
            if any(is_complex(value.dtype) for value in values):
                if len(node.ops) > 1:
                    self.refuse(node, f"{ast.unparse(node)} of complex numbers", "one comparison: == !=")
                return self.compared(node.ops[0], values, node)
            parts = [value.node for value in values if isinstance(value, Scalar)]
            return Scalar(_rebuilt(node, left=parts[0], comparators=parts[1:]), BOOL)
        if len(node.ops) > 1 or not isinstance(
            node.ops[0], ast.Lt | ast.LtE | ast.Gt | ast.GtE | ast.Eq | ast.NotEq
        ):
            self.refuse(node, f"{ast.unparse(node)} of arrays", "one comparison: < <= > >= == !=")
        return self.compared(node.ops[0], values, node)

    def compared(self, op: ast.cmpop, values: list[Scalar | Array], node: ast.expr) -> Scalar | Array:
        """One comparison, element by element."""
        types = [value.dtype for value in values]
        if any(map(is_complex, types)):
            return self.of_complex(
                node, BOOL, lambda kinds: lambda a, b: complex_numbers.compared(op, a, b, kinds), values
            )
        return self.program.elementwise(
            lambda a, b: ast.Compare(as_number(a, types[0]), [op], [as_number(b, types[1])]), BOOL, values
        )

    def known_comparison(self, node: ast.Compare, known: list[Value]) -> Value:
        """A comparison of which one side is a Python object."""
        left, right = known[0], known[1]
        a, b = (side.value if isinstance(side, Static) else side for side in (left, right))
        if len(known) == 2 and isinstance(node.ops[0], ast.Is | ast.IsNot):
            return Static((a is b) == isinstance(node.ops[0], ast.Is))
        both = len(known) == 2 and isinstance(left, Static) and isinstance(right, Static)
        if both and isinstance(node.ops[0], ast.Eq | ast.NotEq):
            return Static((a == b) == isinstance(node.ops[0], ast.Eq))
        return self.refuse(node, f"{ast.unparse(node)} is not known here", "comparisons of numbers")

    def boolean(self, node: ast.BoolOp) -> Value:
        """x and y; what is known when the function is read decides."""
        values = [self.value(part) for part in node.values]
        if any(isinstance(value, Static) for value in values):
            is_and = isinstance(node.op, ast.And)
            rest = []
            for part, value in zip(node.values, values, strict=True):
                if not isinstance(value, Static):
                    rest.append(part)
                elif bool(value.value) != is_and:
                    return Static(not is_and)
            if not rest:
                return Static(is_and)
            return self.value(
                rest[0] if len(rest) == 1 else ast.copy_location(ast.BoolOp(node.op, rest), node)
            )
        if not all(isinstance(value, Scalar) for value in values):
            self.refuse(node, f"{ast.unparse(node)}: the truth of an array", "np.logical_and, & and |")
        return Scalar(
            _rebuilt(node, values=[_tested(value) for value in values if isinstance(value, Scalar)]), BOOL
        )

    def test(self, node: ast.expr) -> ast.expr | bool:
        """A condition of numbers; its truth if that is known when the function is read."""
        value = self.value(node)
        if isinstance(value, Static):
            return bool(value.value)
        if not isinstance(value, Scalar):
            self.refuse(
                node, f"{ast.unparse(node)}: the truth of an array", "np.where, or a condition of one element"
            )
        return _tested(value)

    def choice(self, node: ast.IfExp) -> Value:
        """a if test else b."""
        test = self.test(node.test)
        if isinstance(test, bool):
            return self.value(node.body if test else node.orelse)
        values = self.operands([node.body, node.orelse])
        if values is None:
            self.refuse(node, f"{ast.unparse(node)} chooses what is no number", "numbers")
        types = [value.dtype for value in values]
        dtype = common_type(types)
        if is_complex(dtype):
            return self.program.elementwise(lambda a, b: chosen(test, a, b, types), dtype, values)
        if all(isinstance(value, Scalar) for value in values):
            body, orelse = (value.node for value in values if isinstance(value, Scalar))
            return Scalar(_rebuilt(node, test=test, body=body, orelse=orelse), dtype)
        return self.program.elementwise(lambda a, b: ast.IfExp(test, a, b), dtype, values)

    # calls

    def call(self, node: ast.Call, into: Array | None, hint: str | None) -> Value:
        """f(…): a function of NumPy or Python, a method of an array, or a function that is inlined."""
        function: object = None
        before: list[Value] = []
        if isinstance(node.func, ast.Attribute):
            inner = self.value(node.func.value)
            if isinstance(inner, Array) or (isinstance(inner, Scalar) and is_complex(inner.dtype)):
                before = [inner]
                function = getattr(np.ndarray, node.func.attr, None)
                if self.calls(function) is None:
                    self.refuse(node.func, f"{ast.unparse(node.func)}, a method that cannot be read", ALLOWED)
        if not before:
            called = self.value(node.func)
            function = called.value if isinstance(called, Static) else None
            function = getattr(function, "py_func", function)
        scalar_name = next((n for n, known in FUNCTIONS if any(function is one for one in known)), None)
        if any(isinstance(arg, ast.Starred) for arg in node.args) or any(
            k.arg is None for k in node.keywords
        ):
            self.refuse(node, f"{ast.unparse(node)}: starred arguments", "plain arguments")
        if function is None:
            return self.unread(node.func, node)
        inlines = isinstance(function, FunctionType | LocalFunction) and self.calls(function) is None
        if not inlines and self.calls(function) is None and scalar_name is None:
            return self.unread(node.func, node)
        args = [*before, *(self.value(arg) for arg in node.args)]
        named = {str(word.arg): self.value(word.value) for word in node.keywords}
        if inlines:
            return self.inlined(self, node, function, args, named)
        plain = [value for value in args if isinstance(value, Scalar) and not is_complex(value.dtype)]
        if scalar_name is not None and len(plain) == len(args) and not named:
            return self.scalar_call(node, scalar_name, plain)
        call = self.calls(function)
        if call is None:
            self.refuse(node, f"{ast.unparse(node.func)} of arrays", ALLOWED)
        self.program.hint = hint
        return call(self, node, args, named, into)

    def scalar_call(self, node: ast.Call, called: str, args: list[Scalar]) -> Scalar:
        """A function of numbers, which the reader of single elements knows."""
        types = [arg.dtype for arg in args]
        if called in ITEMSIZE:
            dtype = called
        elif called in ("max", "min", "abs", "pow", "floor", "ceil", "floor_divide", "remainder"):
            dtype = common_type(types)
        elif called == "where":
            dtype = common_type(types[1:])
        elif called in ("len", "range"):
            dtype = "integer"
        else:
            dtype = real_type(common_type(types)) if types else "fraction"  # type: ignore[arg-type]
        nodes = [arg.node for arg in args]
        function = node.func if self.frame.is_first or called not in CALLED else self.program.function(called)
        if called in ("pow", "where") and not self.frame.is_first:
            made: ast.expr = (
                ast.BinOp(nodes[0], ast.Pow(), nodes[1])
                if called == "pow"
                else ast.IfExp(as_test(nodes[0], types[0]), nodes[1], nodes[2])
            )
            return Scalar(ast.copy_location(made, node), dtype)
        return Scalar(_rebuilt(node, func=function, args=nodes), dtype)


def part_of(value: Array | Scalar, which: str) -> Array | Scalar:
    """x.real or x.imag: of an array in memory a view."""
    position, dtype = ("real", "imag").index(which), part_type(value.dtype)
    if isinstance(value, Scalar):
        return Scalar(parts(as_complex(value.node, value.dtype))[position], dtype)
    if not is_complex(value.dtype):
        return value if not position else replace(value, element=lambda index: number(0), storage=None)
    return replace(value, dtype=dtype, element=lambda index: parts(value.element(index))[position])


def _tested(value: Scalar) -> ast.expr:
    """A number as a condition: a complex one is true if it is not 0."""
    return as_test(value.node, value.dtype) if is_complex(value.dtype) else value.node


def _literals(value: complex | np.complexfloating[Any, Any]) -> ast.expr:
    return pair(number(float(value.real)), number(float(value.imag)))


def _counted(axis: int, start: ast.expr) -> Callable[[tuple[ast.expr, ...]], ast.expr]:
    return lambda index: plus(index[axis], start)


def _copy(node: ast.expr) -> ast.expr:
    """A new node of the same parts, so that a place given to it is its own."""
    return ast.parse(ast.unparse(node), mode="eval").body if not hasattr(node, "lineno") else node


def _rebuilt(node: Any, **parts: Any) -> Any:
    """The node itself if its parts are those it has, else a new one of these parts at its place."""

    def same(new: Any, old: Any) -> bool:
        if isinstance(new, list):
            return len(new) == len(old) and all(a is b for a, b in zip(new, old, strict=True))
        return new is old

    if all(same(part, getattr(node, field)) for field, part in parts.items()):
        return node
    fields = {field: getattr(node, field) for field in node._fields}
    return ast.copy_location(type(node)(**{**fields, **parts}), node)


def _is(node: ast.expr, variable: str) -> bool:
    return isinstance(node, ast.Name) and node.id == variable


def _is_ellipsis(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is ...
