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
        if node.id in self.frame.divided:
            test = self.frame.divided[node.id]
            self.refuse(
                node,
                f"{node.id} is another array or object if {test} than if not, and which one is not known here",
                "arrays of the branches' own, of one shape: .copy()",
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
                case "mT":
                    call = self.calls(np.matrix_transpose)
                    assert call is not None, "matrix_transpose is one of the calls"
                    return call(self, ast.copy_location(ast.Call(node, [], []), node), [inner], {}, None)
                case "itemsize" | "nbytes":
                    size = number(np.dtype(inner.dtype).itemsize)
                    for extent in inner.shape if node.attr == "nbytes" else ():
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
            if isinstance(inner.value, np.finfo | np.iinfo) and weak_type(found) is not None:
                assert isinstance(found, int | float | np.generic), "weak_type knows numbers"
                plain = found.item() if isinstance(found, np.generic) else found
                return Scalar(placed(number(plain), node), weak_type(found) or "integer")
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
        if isinstance(base, tuple) and isinstance(node.slice, ast.Slice):
            bounds = [
                None if bound is None else self.known(self.integer(bound))
                for bound in (node.slice.lower, node.slice.upper, node.slice.step)
            ]
            return tuple(base[slice(*bounds)])
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
        """np.mgrid[a:b, c:d]: an array for each subscript, one after the other."""
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
        rows = tuple(Array(shape, "int64", _counted(k, start)) for k, (start, _) in enumerate(bounds))
        return self.stacked(node, rows)

    def selected(self, node: ast.Subscript, base: Array) -> Value:
        """base[…]."""
        parts = list(node.slice.elts) if isinstance(node.slice, ast.Tuple) else [node.slice]
        if len(parts) == 1 and not isinstance(parts[0], ast.Slice):
            only = self.value(parts[0])
            if isinstance(only, Array) and only.dtype == BOOL and only.rank == base.rank:
                return replace(base, mask=self.program.broadcast(only, base.shape))
        masked = self.masked(node, base, parts)
        if masked is not None:
            return masked
        if isinstance(node.ctx, ast.Load) and base.rank and base.mask is None:
            places = self.places(parts)
            if places:
                return self.gathered(node, base, places, parts[len(places) :])
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

    def masked(self, node: ast.Subscript, base: Array, parts: Sequence[ast.expr]) -> Array | None:
        """A[m], A[:, m], A[m, 0] of a mask of some axes, as the whole of these axes with a mask; None without one."""
        plain: list[ast.expr] = []
        found: list[Array] = []
        for part in parts:
            value = None if isinstance(part, ast.Slice) or _is_ellipsis(part) else self.value(part)
            if isinstance(value, Array) and value.dtype == BOOL and value.rank:
                found.append(value)
                plain += [ast.copy_location(ast.Slice(), part)] * value.rank
            else:
                plain.append(part)
        if len(found) != 1 or any(map(_is_ellipsis, parts)):
            return None
        (mask,) = found
        at = next(k for k, (a, b) in enumerate(zip(parts, plain, strict=False)) if a is not b)
        where = ast.copy_location(ast.Subscript(node.value, ast.Tuple(plain, ast.Load()), ast.Load()), node)
        view = self.selected(where, base)
        before = [self.value(part) for part in plain[:at] if not isinstance(part, ast.Slice)]
        axis = at - sum(isinstance(value, Scalar) for value in before)
        assert isinstance(view, Array), "a subscript with a slice is a view"
        own = view.shape[axis : axis + mask.rank]
        if not all(map(self.program.geometry.same, own, mask.shape)):
            self.refuse(
                node, f"{ast.unparse(node)}: the mask has another extent", "a mask of the axis' extent"
            )
        return replace(
            view,
            mask=Array(view.shape, BOOL, lambda index: mask.element(index[axis : axis + mask.rank])),
        )

    def places(self, parts: Sequence[ast.expr]) -> list[Array]:
        """The arrays of integers, and lists of numbers, with which a subscript begins."""
        found = []
        for part in parts:
            if isinstance(part, ast.Slice) or _is_ellipsis(part):
                break
            value = self.value(part)
            if isinstance(value, tuple) and value and isinstance(part, ast.List):
                value = self.stacked(part, value)
            if not isinstance(value, Array) or not value.rank or not is_integer(value.dtype):
                break
            found.append(value)
        return found

    def gathered(
        self, node: ast.Subscript, base: Array, places: Sequence[Array], rest: Sequence[ast.expr]
    ) -> Array:
        """base[index, …]: the elements, or rows, that arrays of integers choose; no view, as in NumPy."""
        if len(places) > base.rank:
            self.refuse(
                node, f"{ast.unparse(node)} has {len(places)} subscripts", "one subscript a dimension"
            )
        shape = self.program.common_shape(places)
        rank, count_of_places = len(shape), len(places)
        seen = [self.program.broadcast(place, shape) for place in places]
        made = Array(
            (*shape, *base.shape[count_of_places:]),
            base.dtype,
            lambda i: base.element((*(place.element(i[:rank]) for place in seen), *i[rank:])),
        )
        count = sum(not (_is_ellipsis(part) or self.is_none(part)) for part in rest)
        if count > base.rank - count_of_places or any(_is_ellipsis(part) for part in rest):
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
        if isinstance(value, Array) and value.mask is not None:
            self.refuse(
                node,
                f"{ast.unparse(node)}: how many elements a mask selects is not known",
                "the mask as a condition: np.where(m, a, b)",
            )
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
            if part.step == 1 and any(bound is not None and is_from_data(bound) for bound in bounds):
                return Cut(bounds[0], bounds[1])
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
        """A list of numbers, or of arrays of one shape, as an array."""
        values = tuple(self.stacked(node, part) if isinstance(part, tuple) else part for part in values)
        rows = [part for part in values if isinstance(part, Array) and part.mask is None]
        if rows and len(rows) == len(values) and len({row.rank for row in rows}) == 1:
            return self.stacked_arrays(node, rows)
        parts = [part for part in values if isinstance(part, Scalar)]
        if len(parts) != len(values) or not parts:
            self.refuse(
                node, f"{ast.unparse(node)} as an array", "lists of numbers, or of arrays of one shape"
            )
        dtype = common_type([part.dtype for part in parts])

        def at(index: tuple[ast.expr, ...]) -> ast.expr:
            *rest, last = parts
            made = as_complex(last.node, last.dtype) if is_complex(dtype) else last.node
            for position in range(len(rest) - 1, -1, -1):
                test = ast.Compare(index[0], [ast.Eq()], [number(position)])
                made = chosen(test, rest[position].node, made, [rest[position].dtype, dtype])
            return made

        return Array((number(len(parts)),), dtype, at)

    def stacked_arrays(self, node: ast.expr, rows: Sequence[Array]) -> Array:
        """Arrays of one shape as the rows of one array."""
        first = rows[0]
        for row in rows[1:]:
            if not all(map(self.program.geometry.same, first.shape, row.shape)):
                self.refuse(
                    node, f"{ast.unparse(node)} as an array", "arrays that are known to have one shape"
                )
        dtype = common_type([row.dtype for row in rows])

        def at(index: tuple[ast.expr, ...]) -> ast.expr:
            made: ast.expr | None = None
            known = constant(index[0])
            for position in range(len(rows) - 1, -1, -1):
                own = rows[position].element(index[1:])
                if known == position:
                    return own
                test = ast.Compare(index[0], [ast.Eq()], [number(position)])
                made = own if made is None else chosen(test, own, made, [rows[position].dtype, dtype])
            assert made is not None, "there is at least one array"
            return made

        return Array((number(len(rows)), *first.shape), dtype, at)

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
        if any(map(is_complex, types)) and isinstance(op, ast.Pow):
            call = self.calls(np.power)
            assert call is not None, "power is one of the calls"
            made = call(self, node, list(values), {}, None)  # type: ignore[arg-type]  # for messages only
            assert isinstance(made, Array | Scalar), "a power is a number"
            return made
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
        if (
            isinstance(op, ast.Pow | ast.LShift | ast.RShift)
            and types[0] == BOOL
            and types[1] in (BOOL, "integer")
        ):
            small = [
                self.program.converted(value, "int8") if t == BOOL else value
                for value, t in zip(values, types, strict=True)
            ]
            return self.operation(node, op, small)
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
            if all(isinstance(part, tuple) for part in known) and len(known) == 2:
                return self.compared_tuples(node, known[0], known[1])  # type: ignore[arg-type]  # they are tuples
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

    def compared_tuples(self, node: ast.Compare, left: tuple[Value, ...], right: tuple[Value, ...]) -> Value:
        """x.shape == y.shape: equal if all elements are."""
        op = node.ops[0]
        parts = [part for part in (*left, *right) if isinstance(part, Scalar)]
        if not isinstance(op, ast.Eq | ast.NotEq) or len(parts) < len(left) + len(right):
            self.refuse(node, f"{ast.unparse(node)} is not known here", "comparisons of numbers")
        if len(left) != len(right):
            return Static(isinstance(op, ast.NotEq))
        join = ast.And() if isinstance(op, ast.Eq) else ast.Or()
        pairs = zip(parts[: len(left)], parts[len(left) :], strict=True)
        tests: list[ast.expr] = [
            ast.copy_location(ast.Compare(a.node, [op], [b.node]), node)
            for a, b in pairs
            if not self.program.geometry.same(a.node, b.node)
        ]
        if not tests:
            return Static(isinstance(op, ast.Eq))
        return Scalar(tests[0] if len(tests) == 1 else ast.copy_location(ast.BoolOp(join, tests), node), BOOL)

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
        if len(known) == 2 and isinstance(node.ops[0], ast.Eq | ast.NotEq):
            other = [s.value for s in (left, right) if isinstance(s, Static)]
            if len(other) == 1 and (other[0] is None or isinstance(other[0], str)):  # no number is
                return Static(isinstance(node.ops[0], ast.NotEq))
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
        if isinstance(value, tuple):
            return bool(value)
        known = self.decided(value.node) if isinstance(value, Scalar) else None
        if known is not None:
            return known
        if not isinstance(value, Scalar):
            self.refuse(
                node, f"{ast.unparse(node)}: the truth of an array", "np.where, or a condition of one element"
            )
        return _tested(value)

    def with_literals(self, node: ast.expr) -> ast.expr:
        """An expression in which numbers from outside stand as literals: PI, np.inf."""
        frame = self.frame

        class Written(ast.NodeTransformer):
            def visit_Name(self, part: ast.Name) -> ast.expr:
                outside = frame.outside(part.id) if frame.found(part.id) is None else None
                return number(outside) if isinstance(outside, bool | int | float) else part

            def visit_Attribute(self, part: ast.Attribute) -> ast.expr:
                module = frame.outside(part.value.id) if isinstance(part.value, ast.Name) else None
                outside = getattr(module, part.attr, None) if isinstance(module, ModuleType) else None
                return number(outside) if isinstance(outside, bool | int | float) else part

        made = Written().visit(deepcopy(node))
        assert isinstance(made, ast.expr), "an expression stays one"
        return made

    def decided(self, node: ast.expr) -> bool | None:
        """The truth of a condition on literals and numbers from outside; None if it depends on anything else."""
        allowed = (
            ast.Constant, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.BinOp,
            ast.cmpop, ast.boolop, ast.unaryop, ast.Add, ast.Sub, ast.Mult, ast.Mod, ast.FloorDiv,
        )  # fmt: skip
        made = self.with_literals(node)
        if not all(isinstance(part, allowed) for part in ast.walk(made)):
            return None
        try:
            return bool(
                eval(compile(ast.fix_missing_locations(ast.Expression(made)), "<condition>", "eval"), {})
            )
        except (TypeError, ValueError, ZeroDivisionError):
            return None

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
        if any(k.arg is None for k in node.keywords):
            self.refuse(node, f"{ast.unparse(node)}: arguments by **", "plain arguments")
        if function is None:
            return self.unread(node.func, node)
        if function in (np.finfo, np.iinfo):
            return self.limits(node, function)
        inlines = isinstance(function, FunctionType | LocalFunction) and self.calls(function) is None
        if not inlines and self.calls(function) is None and scalar_name is None:
            return self.unread(node.func, node)
        args = [*before, *(value for arg in node.args for value in self.parts(arg))]
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

    def limits(self, node: ast.Call, function: Any) -> Value:
        """np.finfo(type), np.iinfo(type)."""
        values = [self.value(arg) for arg in node.args]
        known = values[0].value if len(values) == 1 and isinstance(values[0], Static) else None
        try:
            return Static(function(known))
        except (TypeError, ValueError):
            self.refuse(
                node, f"{ast.unparse(node)} of what is no type", "np.finfo(np.float64), np.finfo(x.dtype)"
            )

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
