"""Lower a function's statements on arrays to statements on elements; inline the functions that it calls.

    y[:] = x + 1                 ->   for i0 in range(N): y[i0] = x[i0] + 1
    t = x + 1                    ->   t = np.empty(N), and the same loop: a new array
    row = A[i]                   ->   nothing: a view, whose elements are A[i, …]
    a = b = e                    ->   e is computed once
    x[i], y[i] = y[i], x[i]      ->   both values are kept before one is stored
    for j, v in enumerate(x)     ->   for j in range(N): v = x[j]
    if c: continue               ->   the rest of the body in an else
    y = f(x)                     ->   the statements of f, with names of their own

A name that a loop or a branch assigns keeps its array's memory: it is the same array in every iteration.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from polyfuse.errors import NotAffine
from polyfuse.frontend.python.aliases import assigned_in
from polyfuse.frontend.python.conditions import Predicate
from polyfuse.frontend.python.numpy.complex_numbers import as_complex, pair
from polyfuse.frontend.python.numpy.expressions import Expressions
from polyfuse.frontend.python.numpy.frames import Frame, LocalFunction
from polyfuse.frontend.python.numpy.functions.table import called
from polyfuse.frontend.python.numpy.program import Program, shape_text, stored_array
from polyfuse.frontend.python.numpy.scatters import AT_PLACES
from polyfuse.frontend.python.numpy.syntax import (
    constant,
    element,
    minus,
    name,
    number,
    placed,
    plus,
    quotient,
    stored,
    times,
)
from polyfuse.frontend.python.numpy.values import (
    BOOL,
    Array,
    Scalar,
    Static,
    Value,
    as_number,
    common_type,
    stored_type,
)
from polyfuse.frontend.python.parameters import DTYPES
from polyfuse.frontend.python.scope import Branch, Range
from polyfuse.frontend.python.source import source_of
from polyfuse.ir.expression import OPERATORS
from polyfuse.ir.number_types import is_complex, is_integer, is_real

MOST_STEPS = 64
"""Iterations of a loop that is written out."""

DEEPEST = 16
"""Calls inside of calls: a function that calls itself ends here."""


@dataclass
class Result:
    """What an inlined function has returned: one value, or a tuple."""

    value: Value = field(default_factory=lambda: Static(None))
    is_given: bool = False


class Statements:
    """Lowers the statements of one frame after the other into one program."""

    def __init__(self, program: Program, frame: Frame) -> None:
        self.program = program
        self.frames = [frame]
        self.expressions = Expressions(program, frame, called, self.inlined)
        self.results: list[Result] = []
        self.around: list[ast.For] = []

    @property
    def frame(self) -> Frame:
        """The function that is being read."""
        return self.frames[-1]

    def block(self, body: Sequence[ast.stmt]) -> list[ast.stmt]:
        """The lowered statements of a body."""
        outside, self.program.block = self.program.block, []
        try:
            self.statements(body)
            return self.program.block
        finally:
            self.program.block = outside

    def statements(self, body: Sequence[ast.stmt]) -> None:
        """Lower statements into the current block."""
        for position, node in enumerate(body):
            rest = list(body[position + 1 :])
            match node:
                case ast.If(body=[*first, ast.Continue()], orelse=[]):
                    inside = first or [ast.copy_location(ast.Pass(), node)]
                    self.statement(ast.copy_location(ast.If(node.test, inside, rest), node))
                    return
                case ast.If() if any(map(_returns, (node,))):
                    self.returning(node, rest)
                    return
                case ast.Continue():
                    return
            self.statement(node)

    def statement(self, node: ast.stmt) -> None:
        """Lower one statement."""
        program = self.program
        if self.frame.is_first:
            program.place = node
        match node:
            case ast.Assign():
                self.assign(node)
            case ast.AugAssign():
                self.update(node)
            case ast.AnnAssign(target=ast.Name(id=variable), value=ast.expr()) if self.frame.is_first:
                program.emit(node)
                self.frame.variables[variable] = Scalar(name(variable), "fraction")
            case ast.For():
                self.loop(node)
            case ast.If():
                self.branch(node)
            case ast.FunctionDef():
                self.frame.variables[node.name] = Static(LocalFunction(node, self.frame))
            case ast.Return():
                self.give_back(node)
            case ast.Expr(value=ast.Call() as call):
                self.bare_call(node, call)
            case ast.Expr(value=ast.Constant()) | ast.Pass() if not self.frame.is_first:
                pass
            case ast.Assert():
                self.assertion(node)
            case ast.With() if self._only_warns(node):
                self.statements(node.body)
            case _ if self.frame.is_first:
                program.emit(node)
            case _:
                self.expressions.refuse(
                    node,
                    f"{type(node).__name__.lower()} is not a statement of an affine program",
                    "for … in range(…), if, assignments, return at the end",
                )

    # assignments

    def assign(self, node: ast.Assign) -> None:
        """target = … = value."""
        if self.frame.is_first and self._is_plain_array(node):
            return
        target = node.targets[0]
        into = self._view(target) if len(node.targets) == 1 and isinstance(target, ast.Subscript) else None
        named = (
            isinstance(target, ast.Name) and target.id not in self.frame.carried and self._is_free(target.id)
        )
        self.program.hint = target.id if named and isinstance(target, ast.Name) else None
        value = self.expressions.value(node.value, into)
        self.program.hint = None
        if into is not None and value is into:
            return
        if len(node.targets) > 1 or isinstance(target, ast.Tuple | ast.List):
            if isinstance(value, Scalar) and not isinstance(value.node, ast.Constant | ast.Name):
                stem = next((t.id for t in node.targets if isinstance(t, ast.Name)), "value")
                value = self.program.variable(value, f"{stem}_value")
            elif isinstance(value, Array) and value.storage is None:
                value = self.program.kept(value, "value")
        for one in node.targets:
            self.assign_one(node, one, value)

    def _is_plain_array(self, node: ast.Assign) -> bool:
        """True for `name = np.zeros(…)` with a shape that the reader of elements knows; it is left as it stands."""
        match node:
            case ast.Assign(targets=[ast.Name(id=variable)], value=ast.Call(args=[shape, *_]) as call):
                pass
            case _:
                return False
        names = self.program.names
        maker = names.array_maker(call)
        known = self.frame.variables.get(variable)
        if maker is None or variable in self.frame.carried:
            return False
        if known is not None and not (isinstance(known, Array) and known.storage == variable):
            return False
        if maker.endswith("_like"):
            model = self.frame.found(shape.id) if isinstance(shape, ast.Name) else None
            if isinstance(model, Array) and not (isinstance(shape, ast.Name) and model.storage == shape.id):
                return False
        types = [*call.args[1:2], *(word.value for word in call.keywords if word.arg == "dtype")]
        if any(isinstance(dtype, ast.Attribute) and dtype.attr == "dtype" for dtype in types):
            return False
        parts = shape.elts if isinstance(shape, ast.Tuple | ast.List) else [shape]
        if not maker.endswith("_like") and any(
            isinstance(part, ast.Attribute | ast.Starred)
            or any(isinstance(inner, ast.Attribute) and inner.attr == "size" for inner in ast.walk(part))
            or (isinstance(part, ast.Name) and isinstance(self.frame.found(part.id), tuple))
            for part in parts
        ):
            return False
        if isinstance(known, Array):
            self.program.emit(node)
            return True
        keep = deepcopy(call)
        try:
            value = self._of_maker(keep, maker)
        except NotAffine:
            value = None
        if value is not None and is_complex(value.dtype):
            return False
        self.program.emit(node)
        if value is not None:
            self.program.storages.add(variable)
            self.frame.variables[variable] = stored_array(variable, value.shape, value.dtype)
        return True

    def _of_maker(self, call: ast.Call, maker: str) -> Array | None:
        """The array that a call makes, without statements."""
        outside, self.program.block = self.program.block, []
        taken = set(self.program.taken)
        try:
            value = self.expressions.value(call)
        finally:
            self.program.block, self.program.taken = outside, taken
        return replace(value, dtype=stored_type(value.dtype)) if isinstance(value, Array) else None

    def _view(self, target: ast.Subscript) -> Array | None:
        """The view that a subscripted target is; None for one element."""
        base = self.expressions.value(target.value)
        if not isinstance(base, Array):
            return None
        found = self.expressions.selected(target, base)
        if not isinstance(found, Array):
            return None
        if found.storage is None:
            self.expressions.refuse(
                target, f"{ast.unparse(target)} is no array's memory", "a view of an array"
            )
        return found

    def assign_one(self, node: ast.stmt, target: ast.expr, value: Value) -> None:
        """Assign a value to one target."""
        match target:
            case ast.Name():
                self.bind(node, target, value)
            case ast.Tuple() | ast.List():
                self.assign_parts(node, target, value)
            case ast.Subscript():
                view = self._view(target)
                if view is None:
                    self.assign_element(node, target, value)
                    return
                self.program.store(view, self.expressions.number_or_array(target, value))
                self.changed(view.storage)
            case ast.Attribute() if not self.frame.is_first:
                self.expressions.refuse(
                    target, f"{ast.unparse(target)} cannot be assigned", "variables and elements"
                )
            case _:
                self.program.emit(node)

    def assign_element(self, node: ast.stmt, target: ast.Subscript, value: Value) -> None:
        """A[i, j] = value."""
        base = self.expressions.value(target.value)
        if not isinstance(base, Array):
            if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(value, Scalar):
                self.program.emit(_assigned(node, target, value.node))
                return
            self.expressions.refuse(
                target, f"{ast.unparse(target)} is no element of an array", "arrays made before"
            )
        element = self.expressions.selected(target, base)
        if isinstance(value, Array) and all(constant(e) == 1 for e in value.shape):
            value = Scalar(value.element(tuple(number(0) for _ in value.shape)), value.dtype)
        if not isinstance(value, Scalar):
            self.expressions.refuse(
                target, "an array is assigned to one element", "a number, or a slice as the target"
            )
        assert isinstance(element, Scalar), "this target is one element"
        left = target if element.node is target else element.node
        stored_node = left if left is target or is_complex(element.dtype) else stored(left)
        plain = self.program.fitting(value.node, value.dtype, element.dtype)
        if is_complex(element.dtype):
            for statement in self.program.assigned(element.node, plain):
                self.program.emit(statement)
        else:
            self.program.emit(_assigned(node, stored_node, plain))
        self.changed(base.storage)

    def assign_parts(self, node: ast.stmt, target: ast.Tuple | ast.List, value: Value) -> None:
        """a, b = values: numbers and formulas that a store could change are kept; a view shows what was stored."""
        if not isinstance(value, tuple):
            if isinstance(value, Array) and constant(value.shape[0]) == len(target.elts):
                value = tuple(
                    self.expressions.selected(
                        ast.copy_location(ast.Subscript(target, number(k), ast.Load()), target), value
                    )
                    for k in range(len(target.elts))
                )
            else:
                self.expressions.refuse(
                    target, f"{ast.unparse(target)} is assigned what is no tuple", "as many values"
                )
        starred = [k for k, part in enumerate(target.elts) if isinstance(part, ast.Starred)]
        if len(starred) == 1 and len(value) >= len(target.elts) - 1:
            first, taken = starred[0], len(value) - len(target.elts) + 1
            value = (*value[:first], value[first : first + taken], *value[first + taken :])
            plain = [part.value if isinstance(part, ast.Starred) else part for part in target.elts]
            target = ast.copy_location(ast.Tuple(plain, ast.Store()), target)
        if len(value) != len(target.elts):
            self.expressions.refuse(
                target, f"{len(target.elts)} targets and {len(value)} values", "as many values as targets"
            )
        changed = {part.id for part in ast.walk(target) if isinstance(part, ast.Name)}
        stored_to = [_base(part) for part in target.elts if isinstance(part, ast.Subscript)]
        bases = {part.id for part in stored_to if isinstance(part, ast.Name)}
        rebound = {part.id for part in target.elts if isinstance(part, ast.Name)} & self.frame.carried
        storages, own = (
            {v.storage for v in map(self.frame.found, names) if isinstance(v, Array) and v.storage}
            for names in (bases | rebound, rebound)
        )
        kept: list[Value] = []
        for part in value:
            read = set()
            if isinstance(part, Scalar):
                read = {inner.id for inner in ast.walk(part.node) if isinstance(inner, ast.Name)}
                if read & (changed | storages) or is_complex(part.dtype):
                    part = self.program.variable(part, "value")
            elif isinstance(part, Array) and (part.storage is None or part.storage in own):
                part = self.program.kept(part, "value")
            kept.append(part)
        for one, part in zip(target.elts, kept, strict=True):
            self.assign_one(ast.copy_location(ast.Assign([one], node.value), node), one, part)  # type: ignore[attr-defined]

    def bind(self, node: ast.stmt, target: ast.Name, value: Value) -> None:
        """name = value."""
        frame, variable = self.frame, target.id
        if isinstance(value, Static | tuple):
            self._bind_known(node, target, value)
        elif isinstance(value, Scalar):
            self.bind_scalar(node, target, value)
        elif variable in frame.carried:
            self.rebind(target, value)
        elif value.mask is not None or value.storage is not None:
            frame.variables[variable] = value
        else:
            self.program.hint = variable if self._is_free(variable) else None
            frame.variables[variable] = self.program.kept(value, variable)

    def _is_free(self, variable: str) -> bool:
        """True if an array that is made now may have a variable's own name."""
        return self.frame.is_first and not isinstance(self.frame.variables.get(variable), Scalar)

    def _bind_known(self, node: ast.stmt, target: ast.Name, value: Static | tuple[Value, ...]) -> None:
        if target.id in self.frame.carried:
            self.expressions.refuse(node, f"{target.id} is an array, and assigned something else", "arrays")
        self.frame.variables[target.id] = value

    def rebind(self, target: ast.Name, value: Array) -> None:
        """name = array, where a loop or branch around has the name's array already: into the same memory."""
        known = self.frame.variables[target.id]
        assert isinstance(known, Array), "carried names are arrays"
        same = len(known.shape) == len(value.shape) and all(
            map(self.program.geometry.same, known.shape, value.shape)
        )
        if not same or (value.dtype not in ("integer", "fraction") and value.dtype != known.dtype):
            self.expressions.refuse(
                target,
                f"{target.id} has shape {shape_text(known.shape)} and type {known.dtype} before this loop or "
                f"branch, and {shape_text(value.shape)} and {value.dtype} in it",
                "arrays of one shape and type, or another name",
            )
        for frame in self.frames:
            for other, alias in list(frame.variables.items()):
                is_this = frame is self.frame and other == target.id
                if not is_this and isinstance(alias, Array) and alias.storage == known.storage:
                    frame.variables[other] = self.program.kept(alias, other)
        self.program.store(known, value)
        self.changed(known.storage)

    def bind_scalar(self, node: ast.stmt, target: ast.Name, value: Scalar) -> None:
        """name = number."""
        frame, program = self.frame, self.program
        known = frame.variables.get(target.id)
        dtype = value.dtype
        if isinstance(known, Scalar) and is_complex(known.dtype) is not is_complex(dtype):
            if is_complex(dtype) and (program.scope or self.around):
                self.expressions.refuse(
                    target,
                    f"{target.id} is a real number before this loop or branch, and a complex one in it",
                    f"{target.id} = 0j before",
                )
            dtype = common_type([known.dtype, dtype])
        if isinstance(known, Array) and frame.is_first:
            self.expressions.refuse(
                target,
                f"the array {target.id} is assigned as a whole, to a number",
                "another name for the number",
            )
        if isinstance(known, Scalar) and known.dtype != dtype:
            dtype = common_type([known.dtype, dtype])
        if is_complex(dtype):
            self._bind_complex(target.id, as_complex(value.node, value.dtype), dtype)
            return
        variable = self.variable(target.id)
        plain = value.node if dtype == BOOL else as_number(value.node, value.dtype)
        if frame.is_first:
            program.emit(_assigned(node, target, plain))
        else:
            program.set(variable, plain, dtype)
        frame.variables[target.id] = Scalar(name(variable), dtype)
        self.alias(variable, value.node, dtype)

    def _bind_complex(self, own: str, value: ast.expr, dtype: str) -> None:
        """name = a complex number: two variables, which the name keeps."""
        variables = pair(*(name(self._part(own, part)) for part in ("real", "imag")))
        for statement in self.program.assigned(variables, value):
            self.program.emit(statement)
        self.frame.variables[own] = Scalar(variables, dtype)

    def _part(self, own: str, part: str) -> str:
        """The variable of a complex variable's real or imaginary part."""
        names = self.frame.names
        key = f"{own}.{part}"
        if key not in names:
            names[key] = self.program.fresh(f"{own}_{part}")
        return names[key]

    def own_numbers(self, parameters: Sequence[str]) -> list[ast.stmt]:
        """Variables for complex parameters that the function assigns, whose caller never sees that."""
        outside, self.program.block = self.program.block, []
        for parameter in parameters:
            given = self.frame.variables[parameter]
            assert isinstance(given, Scalar), "a number is given"
            self._bind_complex(parameter, given.node, given.dtype)
        made, self.program.block = self.program.block, outside
        return made

    def alias(self, variable: str, value: ast.expr, dtype: str) -> None:
        """Know an integer variable's value where it is affine."""
        program = self.program
        written = program.aliases.written_out(value)
        program.aliases = program.aliases.without([variable])
        if is_integer(dtype) and program.geometry.is_affine(written):
            program.aliases = program.aliases.having(variable, written)

    def variable(self, own: str) -> str:
        """The name that a variable has in the lowered function."""
        frame = self.frame
        if frame.is_first:
            return own
        if own not in frame.names:
            frame.names[own] = self.program.fresh(own)
        return frame.names[own]

    def update(self, node: ast.AugAssign) -> None:
        """target op= value."""
        target = node.target
        current = self.expressions.value(_loaded(target))
        into = None
        if isinstance(current, Array) and current.storage is not None and isinstance(node.op, ast.Add):
            into = replace(current, adds=True)
        value = self.expressions.value(node.value, into)
        if isinstance(node.op, ast.MatMult):
            product = ast.copy_location(ast.BinOp(_loaded(target), ast.MatMult(), node.value), node)
            made = self.expressions.value(product)
            if not isinstance(current, Array) or current.storage is None:
                self.expressions.refuse(target, f"{ast.unparse(target)} is no array's memory", "an array")
            self.program.store(current, self.expressions.number_or_array(product, made))
            self.changed(current.storage)
            return
        if isinstance(current, Array):
            if current.storage is None:
                self.expressions.refuse(
                    target, f"{ast.unparse(target)} is no array's memory", f"a view of an array; {AT_PLACES}"
                )
            operand = self.expressions.number_or_array(node.value, value)
            if isinstance(operand, Array) and operand.adds:
                self.changed(current.storage)
                return
            plain = replace(current, mask=None)
            if isinstance(operand, Array) and operand.mask is not None:
                if self.program.mask_text(operand) != self.program.mask_text(current):
                    self.expressions.refuse(
                        node.value, "the elements that another mask selects", "the same mask on both sides"
                    )
                operand = replace(operand, mask=None)
            made = self.expressions.operation(_whole(node), node.op, [plain, operand])
            if not np.can_cast(stored_type(made.dtype), current.dtype, "same_kind"):
                self.expressions.refuse(
                    node,
                    f"{ast.unparse(target)} is {current.dtype}, the result {made.dtype}: NumPy refuses that too",
                    "values of the array's type; .astype",
                )
            self.program.store(current, made)
            self.changed(current.storage)
            return
        if not isinstance(value, Scalar):
            if isinstance(value, Array) and isinstance(current, Scalar) and isinstance(target, ast.Name):
                made = self.expressions.operation(node.value, node.op, [current, value])
                self.bind(node, target, made)
                return
            self.expressions.refuse(node, f"{ast.unparse(node)}: an array for one number", "a number")
        self.update_scalar(node, current, value)

    def update_scalar(self, node: ast.AugAssign, current: Value, value: Scalar) -> None:
        """One number op= a number: it stays as it is written."""
        if not isinstance(current, Scalar):
            self.expressions.refuse(node, f"{ast.unparse(node.target)} is no number", "numbers and arrays")
        dtype = common_type([current.dtype, value.dtype], divides=isinstance(node.op, ast.Div))
        if is_complex(dtype):
            self._update_complex(node, current, value)
            return
        if isinstance(node.op, ast.FloorDiv | ast.Mod) and is_real(dtype):
            new = self.expressions.operation(_whole(node), node.op, [current, value])
            self.assign_one(ast.copy_location(ast.Assign([node.target], node.value), node), node.target, new)
            return
        if type(node.op) in OPERATORS.values():
            self.expressions.integers(_whole(node), [current.dtype, value.dtype])
        whole = ast.copy_location(ast.BinOp(current.node, node.op, value.node), node)
        if isinstance(node.target, ast.Name):
            frame, own = self.frame, node.target.id
            variable = self.variable(own)
            target: ast.expr = node.target if frame.is_first else ast.Name(variable, ast.Store())
            self.program.emit(_updated(node, target, value.node))
            frame.variables[own] = Scalar(name(variable), dtype)
            self.alias(variable, whole, dtype)
            return
        first = self.frame.is_first
        same = current.node is not None and ast.unparse(current.node) == ast.unparse(node.target)
        target = node.target if first and same else stored(current.node)
        self.program.emit(_updated(node, target, value.node))
        base = self.expressions.value(_base(node.target))
        self.changed(base.storage if isinstance(base, Array) else None)

    def _update_complex(self, node: ast.AugAssign, current: Scalar, value: Scalar) -> None:
        """One complex number op= a number. A sum is one of each part."""
        program = self.program
        plain = isinstance(node.op, ast.Add | ast.Sub) and is_complex(current.dtype)
        own = {part.id for part in ast.walk(current.node) if isinstance(part, ast.Name)}
        if plain and not own & {part.id for part in ast.walk(value.node) if isinstance(part, ast.Name)}:
            for statement in program.updated(current.node, node.op, as_complex(value.node, value.dtype)):
                program.emit(statement)
        else:
            whole = _whole(node)
            made = self.expressions.operation(whole, node.op, [current, value])
            self.assign_one(ast.copy_location(ast.Assign([node.target], whole), node), node.target, made)
        base = self.expressions.value(_base(node.target))
        self.changed(base.storage if isinstance(base, Array) else None)

    def changed(self, storage: str | None) -> None:
        """Forget the elements that masks select of what has changed."""
        for frame in self.frames:
            for variable, value in list(frame.variables.items()):
                if isinstance(value, Array) and value.mask is not None and storage is not None:
                    index = tuple(name("i") for _ in value.shape)
                    read = (value.element(index), value.mask.element(index))
                    if any(isinstance(p, ast.Name) and p.id == storage for e in read for p in ast.walk(e)):
                        del frame.variables[variable]

    # loops and branches

    def loop(self, node: ast.For) -> None:
        """for i in range(…), reversed(range(…)), enumerate(…), zip(…), an array."""
        program, frame = self.program, self.frame
        items = self._items(node.iter)
        if items is not None:
            self._written_out(node, items)
            return
        heads = self.heads(node)
        if heads is None:
            program.emit(node)
            return
        variable, bounds, bindings = heads
        steps = self._steps(node, variable, bounds)
        if steps is not None:
            for at in steps:
                frame.variables[variable] = Scalar(placed(number(at), node), "integer")
                self.statements(node.body)
            return
        own = self.variable(variable)
        body = node.body
        assigned = [*assigned_in(body), *assigned_in([node.target])]
        for dead in self._dead(node):
            frame.variables.pop(dead)
        before = set(frame.carried)
        self.carry(body)
        self._own_variables(assigned_in(body))
        objects = {v: value for v, value in frame.variables.items() if isinstance(value, Static | tuple)}
        gone = {frame.names.get(v, v) for v in assigned}
        outside = program.aliases = program.aliases.without(gone)
        frame.variables[variable] = Scalar(name(own), "integer")
        frame.over.pop(variable, None)
        scope, args = program.scope, [program.aliases.written_out(b) for b in bounds]
        step = constant(args[2]) if len(args) == 3 else 1
        start = args[0] if len(args) > 1 else number(0)
        stop = args[1] if len(args) > 1 else args[0]
        if step and all(program.geometry.is_affine(b) for b in (start, stop)):
            program.scope = (*scope, Range(own, start, stop, step))
        place = program.place
        outer_block, program.block = program.block, []
        for target, value in bindings:
            self.assign_one(ast.copy_location(ast.Assign([target], node.iter), node), target, value)
        self.around.append(node)
        self.statements(body)
        self.around.pop()
        for variable, value in objects.items():
            now = frame.variables.get(variable)
            if now is not value and variable in assigned and (now is None or not _same_value(now, value)):
                self.expressions.refuse(
                    node,
                    f"{variable} is another object in later iterations of this loop",
                    "arrays and numbers",
                )
        made, program.block = program.block, outer_block
        program.place, program.scope, program.aliases = place, scope, outside
        frame.carried = before
        self._leave(own)
        function = (
            node.iter.func
            if isinstance(node.iter, ast.Call)
            and self.frame.is_first
            and not bindings
            and self._function_of(node.iter) == "range"
            and _same_call(node, bounds)
            else program.function("range")
        )
        call = ast.copy_location(ast.Call(function, bounds, []), node.iter)
        target_node = ast.copy_location(ast.Name(own, ast.Store()), node.target)
        if made or node.orelse:
            program.emit(
                ast.copy_location(ast.For(target_node, call, made or [ast.Pass()], node.orelse), node)
            )

    def _items(self, node: ast.expr) -> list[Value] | None:
        """The elements of a tuple or list that is iterated over, also by enumerate and zip; None for anything else."""
        function = self._function_of(node)
        if (
            function in ("enumerate", "zip")
            and isinstance(node, ast.Call)
            and node.args
            and not node.keywords
        ):
            parts = [self._items(arg) for arg in node.args[: None if function == "zip" else 1]]
            known = [part for part in parts if part is not None]
            if len(known) < len(parts):
                return None
            if function == "zip":
                return list(zip(*known, strict=False))
            begin = self.expressions.known(node.args[1]) if len(node.args) == 2 else 0
            if begin is None:
                return None
            return [
                (Scalar(placed(number(k), node), "integer"), value) for k, value in enumerate(known[0], begin)
            ]
        if function is not None or not isinstance(node, ast.Tuple | ast.List | ast.Name):
            return None
        value = self.expressions.value(node)
        return list(value) if isinstance(value, tuple) else None

    def _written_out(self, node: ast.For, items: Sequence[Value]) -> None:
        """for w in (0.5, 0.25): x *= w    ->    twice the body."""
        if len(items) > MOST_STEPS or node.orelse:
            self.expressions.refuse(
                node.iter, f"a loop over {len(items)} elements, which is written out", f"{MOST_STEPS} of them"
            )
        for item in items:
            self.assign_one(ast.copy_location(ast.Assign([node.target], node.iter), node), node.target, item)
            self.statements(node.body)

    def _only_warns(self, node: ast.With) -> bool:
        """True for `with np.errstate(…)`, which changes no value."""
        calls = [item.context_expr for item in node.items]
        return all(
            isinstance(call, ast.Call)
            and isinstance(found := self.expressions.value(call.func), Static)
            and found.value is np.errstate
            for call in calls
        )

    def _steps(self, node: ast.For, index: str, bounds: Sequence[ast.expr]) -> range | None:
        """The values of a loop's index if the body has powers of a number with it as exponent, as extents of arrays.

        for i in range(3): y.reshape(2**i, -1)    ->    three times the body: no extent is a power of an index
        """
        known = [self.expressions.known(bound) for bound in bounds]
        powers = [
            part
            for statement in node.body
            for part in ast.walk(statement)
            if isinstance(part, ast.BinOp)
            and isinstance(part.op, ast.Pow)
            and any(isinstance(inner, ast.Name) and inner.id == index for inner in ast.walk(part.right))
        ]
        values = [bound for bound in known if bound is not None]
        if len(values) < len(known) or not any(self._is_whole(part.left) for part in powers):
            return None
        steps = range(*values)
        if len(steps) > MOST_STEPS:
            self.expressions.refuse(
                node, f"{len(steps)} steps with powers of {index} as extents", f"{MOST_STEPS} of them"
            )
        return steps

    def _is_whole(self, node: ast.expr) -> bool:
        """True for an integer that is known when the function is read."""
        found = self.frame.found(node.id) if isinstance(node, ast.Name) else None
        return self.expressions.known(found.node if isinstance(found, Scalar) else node) is not None

    def _dead(self, node: ast.For) -> list[str]:
        """The views whose value nobody reads any more: the loop's body assigns them first, nobody reads them later."""
        frame = self.frame
        first: dict[str, bool] = {}
        for statement in node.body:
            for part in (statement.value if isinstance(statement, ast.Assign) else statement, statement):
                for inner in ast.walk(part):
                    if isinstance(inner, ast.Name):
                        plain = isinstance(statement, ast.Assign) and isinstance(inner.ctx, ast.Store)
                        first.setdefault(inner.id, plain)
        inside = {id(part) for part in ast.walk(node)}
        region = self.around[0] if self.around else node
        later = {
            part.id
            for part in ast.walk(frame.source.tree)
            if isinstance(part, ast.Name)
            and isinstance(part.ctx, ast.Load)
            and id(part) not in inside
            and part.lineno >= region.lineno
        }
        return [
            variable
            for variable, assigned in first.items()
            if assigned
            and variable not in later
            and isinstance(known := frame.variables.get(variable), Array)
            and not self._owns(variable, known)
            and variable not in frame.carried
        ]

    def _leave(self, index: str) -> None:
        """Forget the values that are those of one iteration of a loop that is over."""
        for frame in self.frames:
            for variable, value in list(frame.variables.items()):
                if isinstance(value, Array) and index in _names_of(value):
                    del frame.variables[variable]
                    frame.over[variable] = index

    def heads(self, node: ast.For) -> tuple[str, list[ast.expr], list[tuple[ast.expr, Value]]] | None:
        """(the index, the arguments of range, what is assigned first in the body) of a loop, if it is known."""
        target = node.target
        call = node.iter
        function = self._function_of(call)
        if function in ("range", "prange") and isinstance(call, ast.Call) and isinstance(target, ast.Name):
            if (
                call.keywords
                or not 1 <= len(call.args) <= 3
                or any(isinstance(a, ast.Starred) for a in call.args)
            ):
                return None
            return target.id, [self.expressions.integer(arg) for arg in call.args], []
        if (
            function == "reversed"
            and isinstance(call, ast.Call)
            and self._function_of(call.args[0]) in ("range", "prange")
        ):
            inner = call.args[0]
            assert isinstance(inner, ast.Call), "a call has a function"
            if isinstance(target, ast.Name):
                return target.id, self._backwards(inner), []
        if (
            function == "enumerate"
            and isinstance(call, ast.Call)
            and isinstance(target, ast.Tuple)
            and len(call.args) == 1
            and not call.keywords
            and self._function_of(call.args[0]) not in ("zip", "enumerate")
        ):
            counter, element = target.elts
            if isinstance(counter, ast.Name):
                inside = self._iterated(call.args[0], counter.id)
                if inside is not None:
                    return counter.id, [inside[0]], [(element, inside[1])]
        if function in ("zip", "enumerate") and isinstance(call, ast.Call) and isinstance(target, ast.Tuple):
            own = self.program.fresh("k")
            inside = self._iterated(call, own)
            return None if inside is None else (own, [inside[0]], [(target, inside[1])])
        if function in (None, "other"):
            own = self.program.fresh("k")
            inside = self._iterated(call, own)
            if inside is not None:
                return own, [inside[0]], [(target, inside[1])]
        return None

    def _counted(self, call: ast.Call, index: str) -> tuple[ast.expr, Value] | None:
        """(the length, the pair of counter and element) of enumerate(…)."""
        words = {str(word.arg): word.value for word in call.keywords}
        begin = call.args[1] if len(call.args) == 2 else words.get("start")
        inside = self._iterated(call.args[0], index)
        if inside is None:
            return None
        counter = name(self.variable(index))
        if begin is not None:
            counter = plus(counter, self.expressions.integer(begin))
        return inside[0], (Scalar(counter, "integer"), inside[1])

    def _zipped(self, call: ast.Call, index: str) -> tuple[ast.expr, Value] | None:
        """(the smallest length, the tuple of elements) of zip(…)."""
        parts = [self._iterated(arg, index) for arg in call.args]
        known = [part for part in parts if part is not None]
        if len(known) < len(parts) or not known:
            return None
        geometry = self.program.geometry
        for length, _ in known:
            if all(geometry.at_most(length, other) for other, _ in known):
                return length, tuple(element for _, element in known)
        return self.expressions.refuse(
            call,
            f"{ast.unparse(call)}: which length is the smallest is not known",
            "equal lengths; assert N == M",
        )

    def _iterated(self, node: ast.expr, index: str) -> tuple[ast.expr, Value] | None:
        """(the length of what is iterated over, its element at an index)."""
        at = name(self.variable(index))
        if self._function_of(node) in ("range", "prange") and isinstance(node, ast.Call):
            args = [self.expressions.integer(arg) for arg in node.args]
            start = args[0] if len(args) > 1 else number(0)
            stop = args[1] if len(args) > 1 else args[0]
            step = constant(args[2]) if len(args) == 3 else 1
            if not step:
                return None
            distance = minus(stop, start) if step > 0 else minus(start, stop)
            length = quotient(plus(distance, number(abs(step) - 1)), abs(step))
            return length, Scalar(plus(times(number(step), at), start), "integer")
        if self._function_of(node) == "enumerate" and isinstance(node, ast.Call):
            return self._counted(node, index)
        if self._function_of(node) == "zip" and isinstance(node, ast.Call):
            return self._zipped(node, index)
        value = self.expressions.value(node)
        if not isinstance(value, Array) or value.mask is not None:
            return None
        rest = value.shape[1:]
        if not rest:
            return value.shape[0], Scalar(value.element((at,)), value.dtype)
        row = Array(rest, value.dtype, lambda i: value.element((at, *i)), value.storage)
        return value.shape[0], row

    def _function_of(self, node: ast.expr) -> str | None:
        """The name of the loop's function: range, prange, reversed, enumerate, zip; None for another."""
        if not isinstance(node, ast.Call):
            return None
        value = self.expressions.value(node.func)
        found = value.value if isinstance(value, Static) else None
        builtin = {id(f): f.__name__ for f in (range, reversed, enumerate, zip)}
        if id(found) in builtin:
            return builtin[id(found)]
        is_prange = getattr(found, "__name__", "") == "prange" and str(
            getattr(found, "__module__", "")
        ).startswith("numba")
        return "prange" if is_prange else "other"

    def _backwards(self, call: ast.Call) -> list[ast.expr]:
        """The arguments of the range that reversed(range(…)) is."""
        args = [self.expressions.integer(arg) for arg in call.args]
        start = args[0] if len(args) > 1 else number(0)
        stop = args[1] if len(args) > 1 else args[0]
        step = constant(args[2]) if len(args) == 3 else 1
        if not step:
            self.expressions.refuse(call, f"{ast.unparse(call)} backwards", "a constant step")
        distance = minus(stop, start) if step > 0 else minus(start, stop)
        steps = quotient(plus(distance, number(abs(step) - 1)), abs(step))
        last = plus(start, times(number(step), minus(steps, number(1))))
        return [last, plus(start, number(-1 if step > 0 else 1)), number(-step)]

    def carry(self, body: Sequence[ast.stmt]) -> None:
        """Give arrays that the body of a loop or branch assigns memory of their own, unless they have it."""
        frame = self.frame
        for variable in _rebound(body):
            known = frame.variables.get(variable)
            if not isinstance(known, Array):
                continue
            if not self._owns(variable, known):
                frame.variables[variable] = self.program.kept(replace(known, storage=None), variable)
            frame.carried.add(variable)

    def _owns(self, variable: str, known: Array) -> bool:
        """True if a variable is the only name of the memory that a function has made for it."""
        storage = known.storage
        if storage is None or storage in self.program.parameters or known.mask is not None:
            return False
        index = tuple(name(f"d{k}") for k in range(known.rank))
        if ast.unparse(known.element(index)) != ast.unparse(
            stored_array(storage, known.shape, known.dtype).element(index)
        ):
            return False
        return not any(
            isinstance(value, Array) and value.storage == storage
            for frame in self.frames
            for other, value in frame.variables.items()
            if not (frame is self.frame and other == variable)
        )

    def branch(self, node: ast.If) -> None:
        """if test: … else: …; one whose test is known is one of its bodies."""
        program, frame = self.program, self.frame
        test = self.expressions.test(node.test)
        if isinstance(test, bool):
            self.statements(node.body if test else node.orelse)
            return
        changed = assigned_in((*node.body, *node.orelse))
        before = set(frame.carried)
        self.carry([*node.body, *node.orelse])
        self._own_variables(changed)
        written = program.aliases.written_out(test)
        affine = program.geometry.here().affine.is_condition(placed(written, node))
        scope, aliases, place = program.scope, program.aliases, program.place
        start, taken_names = dict(frame.variables), set(program.taken)
        bodies: list[list[ast.stmt]] = [[], []]
        ends = [aliases, aliases]
        found: list[dict[str, Value]] = [{}, {}]
        joined = False
        both = set(assigned_in(node.body)) & set(assigned_in(node.orelse))
        branches = [(0, True, node.body), (1, False, node.orelse)]
        if isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.Eq):
            branches.reverse()  # where two sizes are equal, the shapes of the other branch are those of this one, too
        for at, taken, body in branches:
            part = Branch(written, taken) if affine else Predicate(written, taken, frozenset())
            program.scope = (*scope, part)
            program.aliases = aliases
            bodies[at] = self.block(body)
            ends[at] = program.aliases
            found[at] = frame.variables
            shared = self._shared(found[at], both - set(start))
            joined |= bool(shared)
            frame.variables = {**start, **shared}
        self._merge(node, found, not affine)
        own = [frame.names.get(v, v) for v in changed]
        program.aliases = (
            aliases.after_branches(written, ends[0], ends[1], own) if affine else aliases.without(own)
        )
        program.scope, program.place, frame.carried = scope, place, before
        if joined or not affine:
            bodies = self._made_before(bodies, taken_names, not affine)
        if not affine:
            for variable in both - set(start):
                known = frame.variables.get(variable)
                if (
                    isinstance(known, Scalar)
                    and isinstance(known.node, ast.Name)
                    and max(map(len, bodies)) > 1
                ):
                    program.emit(ast.Assign([stored(known.node)], _zero(known.dtype)))
        if bodies[0] or bodies[1]:
            made = ast.If(test, bodies[0] or [ast.copy_location(ast.Pass(), node)], bodies[1])
            program.emit(ast.copy_location(made, node))

    def _own_variables(self, names: Sequence[str]) -> None:
        """Give a variable to each number that a loop or branch of an inlined function assigns."""
        frame = self.frame
        if frame.is_first:
            return
        for own in names:
            known = frame.variables.get(own)
            if not isinstance(known, Scalar) or is_complex(known.dtype):
                continue
            variable = self.variable(own)
            if isinstance(known.node, ast.Name) and known.node.id == variable:
                continue
            self.program.set(variable, as_number(known.node, known.dtype), known.dtype)
            frame.variables[own] = Scalar(name(variable), known.dtype)
            self.alias(variable, known.node, known.dtype)

    def _shared(self, found: dict[str, Value], names: set[str]) -> dict[str, Value]:
        """The arrays of one branch to whose memory the other one stores what it assigns to the same names."""
        shared: dict[str, Value] = {}
        for variable in names:
            known = found.get(variable)
            if isinstance(known, Array) and self._owns(variable, known):
                self.frame.carried.add(variable)
                shared[variable] = known
        return shared

    def _merge(self, node: ast.If, found: Sequence[dict[str, Value]], by_data: bool) -> None:
        """Behind a branch: numbers have both branches' type; a name of two things is refused where it is read."""
        frame = self.frame
        merged: dict[str, Value] = {}
        for variable in dict.fromkeys((*found[0], *found[1])):
            values = [one[variable] for one in found if variable in one]
            first, last = values[0], values[-1]
            if isinstance(first, Scalar) and isinstance(last, Scalar):
                wide = common_type([first.dtype, last.dtype])
                merged[variable] = last if first.dtype == last.dtype else replace(last, dtype=wide)
            elif len(values) == 2 and (first is last or _same_value(first, last)):
                merged[variable] = last
            elif len(values) == 1 and not (by_data and isinstance(first, Array)):
                merged[variable] = first
            else:
                frame.divided[variable] = ast.unparse(node.test)
        frame.variables = merged

    def _made_before(
        self, bodies: Sequence[list[ast.stmt]], taken: set[str], by_data: bool
    ) -> list[list[ast.stmt]]:
        """Make the arrays of two branches before them. Where data decide, a store keeps the values if the test fails.

        if x[0] > 0:                        t = empty(N); for i0 in range(N): t[i0] = 0.0
            t = empty(N)            ->      if x[0] > 0:
            for i0 …: t[i0] = …                 for i0 …: t[i0] = …
        """
        maker = ast.unparse(self.program.function("empty"))
        arrays: list[ast.Assign] = []
        numbers: dict[str, ast.AnnAssign] = {}

        class Without(ast.NodeTransformer):
            def visit_Assign(self, part: ast.Assign) -> ast.stmt | None:
                if isinstance(part.value, ast.Call) and ast.unparse(part.value.func) == maker:
                    arrays.append(part)
                    return None
                return part

            def visit_AnnAssign(self, part: ast.AnnAssign) -> ast.stmt:
                if isinstance(part.target, ast.Name) and part.target.id not in taken:
                    numbers.setdefault(part.target.id, part)
                return part

        kept = [
            [one for part in body for one in [Without().visit(part)] if one is not None] for body in bodies
        ]
        for part in arrays:
            assert isinstance(part.value, ast.Call), "an array is made by a call"
            shape, dtype = part.value.args
            assert isinstance(shape, ast.Tuple), "the program makes arrays of tuples"
            assert isinstance(dtype, ast.Constant), "and of named types"
            assert isinstance(part.targets[0], ast.Name), "which are variables"
            self.program.emit(part)
            if not by_data:
                continue
            loops, index = self.program.loops("i", shape.elts)
            target = element(part.targets[0].id, index)
            self.program.emit_nest(loops, [ast.Assign([stored(target)], _zero(str(dtype.value)))])
        for annotated in numbers.values() if by_data else ():
            note = annotated.annotation
            zero = _zero(DTYPES[str(note.value)]) if isinstance(note, ast.Constant) else number(0)
            self.program.emit(ast.AnnAssign(annotated.target, note, zero, 1))
        return kept

    def assertion(self, node: ast.Assert) -> None:
        """An assert on sizes at the top is left to the reader of elements; in an inlined function it must hold."""
        test = self.expressions.value(node.test)
        if isinstance(test, Static) and test.value:
            return
        if not isinstance(test, Scalar):
            self.expressions.refuse(node, f"{ast.unparse(node)} is not known to hold", "conditions on sizes")
        program = self.program
        if self.frame.is_first and not program.scope:
            made = ast.Assert(program.aliases.written_out(test.node), node.msg)
            program.emit(node if test.node is node.test else ast.copy_location(made, node))
            affine = program.geometry.here().affine
            if affine.is_condition(test.node):
                program.context = program.context.intersect(affine.condition(test.node).params())
            return
        if self.frame.is_first:
            program.emit(node)
            return
        affine = program.geometry.here().affine
        written = placed(program.aliases.written_out(test.node), program.place)
        holds = affine.is_condition(written) and (
            program.geometry.here()
            .domain.intersect_params(program.context)
            .is_subset(affine.condition(written))
        )
        if not holds:
            self.expressions.refuse(
                node, f"{ast.unparse(node)} is not known to hold", "conditions on sizes that hold"
            )

    # calls

    def bare_call(self, node: ast.Expr, call: ast.Call) -> None:
        """f(x): for what it does to its arguments."""
        before = len(self.program.block)
        value = self.expressions.value(call)
        is_same = isinstance(value, Scalar) and value.node is call
        if is_same and len(self.program.block) == before and self.frame.is_first:
            self.program.emit(node)

    def give_back(self, node: ast.Return) -> None:
        """return value, …."""
        if self.frame.is_first:
            self._give_back_first(node)
            return
        result = self.results[-1]
        if node.value is not None:
            result.value = self.expressions.value(node.value)
        result.is_given = True

    def _give_back_first(self, node: ast.Return) -> None:
        if node.value is None or (isinstance(node.value, ast.Constant) and node.value.value is None):
            self.program.emit(node)
            return
        if isinstance(node.value, ast.List):
            self.expressions.refuse(node.value, "a list is returned", "a tuple, or np.array(…)")
        value = self.expressions.value(node.value)
        if (
            isinstance(value, Static) and value.value is None
        ):  # that of a function that is called for what it changes
            self.program.emit(ast.copy_location(ast.Return(None), node))
            return
        values = value if isinstance(value, tuple) else (value,)
        written = node.value.elts if isinstance(node.value, ast.Tuple) else []
        nodes = written if len(written) == len(values) else [node.value] * len(values)
        parts: list[ast.expr] = []
        for part, one in zip(nodes, values, strict=True):
            if isinstance(one, Scalar) and is_complex(one.dtype):
                parts.append(self._result(part, self.program.broadcast(one, ()), []))
            elif isinstance(one, Scalar):
                parts.append(one.node)
            elif isinstance(one, Array):
                parts.append(self._result(part, one, [p.id for p in parts if isinstance(p, ast.Name)]))
            else:
                parts.append(part)
        same = len(parts) == len(nodes) and all(a is b for a, b in zip(parts, nodes, strict=True))
        if same:
            self.program.emit(node)
            return
        whole = parts[0] if len(parts) == 1 else ast.Tuple(parts, ast.Load())
        self.program.emit(ast.copy_location(ast.Return(whole), node))

    def _result(self, node: ast.expr, value: Array, given: Sequence[str]) -> ast.expr:
        """The variable of an array that is returned: one that the function made, or a copy of another."""
        index = tuple(name(f"d{k}") for k in range(value.rank))
        whole = value.storage is not None and ast.unparse(value.element(index)) == ast.unparse(
            stored_array(value.storage, value.shape, value.dtype).element(index)
        )
        plain = whole and value.storage not in self.program.parameters and value.storage not in given
        if plain and value.storage is not None:
            is_name = isinstance(node, ast.Name) and node.id == value.storage
            return node if is_name else ast.copy_location(ast.Name(value.storage, ast.Load()), node)
        made = self.program.kept(replace(value, storage=None), "result")
        assert made.storage is not None, "kept arrays have memory"
        return ast.copy_location(ast.Name(made.storage, ast.Load()), node)

    def returning(self, node: ast.If, rest: list[ast.stmt]) -> None:
        """if c: return a; return b  ->  a if c else b."""
        test = self.expressions.test(node.test)
        if isinstance(test, bool):
            self.statements(
                [*(node.body if test else node.orelse), *([] if test and _ends(node.body) else rest)]
            )
            return
        then, other = node.body, [*node.orelse, *rest]
        match then, other:
            case [ast.Return(value=ast.expr() as a)], [ast.Return(value=ast.expr() as b), *_]:
                both = ast.copy_location(ast.IfExp(node.test, a, b), node)
                if self.results:
                    self.results[-1].value, self.results[-1].is_given = self.expressions.value(both), True
                else:
                    self.give_back(ast.copy_location(ast.Return(both), node))
                return
        early = next(part for part in ast.walk(node) if isinstance(part, ast.Return))
        self.expressions.refuse(early, "a return before the end", "if test: return a, and then return b")

    def inlined(
        self,
        expressions: Expressions,
        node: ast.Call,
        function: Any,
        args: list[Value],
        named: dict[str, Value],
    ) -> Value:
        """The value of a call, whose statements are emitted here."""
        if self.frame.depth >= DEEPEST:
            expressions.refuse(
                node, f"{DEEPEST} calls inside of calls", "functions that do not call themselves"
            )
        if isinstance(function, LocalFunction):
            tree: ast.FunctionDef | ast.Lambda = function.node
            source, around = function.frame.source, function.frame
            label = getattr(tree, "name", "lambda")
            defaults: tuple[Any, ...] = ()
        else:
            source, around, label = source_of(function), None, function.__name__
            tree, defaults = source.tree, function.__defaults__ or ()
        inner = Frame(source, around=around, caller=self.frame, call=node, label=label)
        given = self._arguments(expressions, node, tree, args, named, defaults)
        for parameter, value in given.items():
            if isinstance(value, Scalar) and is_integer(value.dtype):
                whole = expressions.known(value.node)
                value = value if whole is None else Scalar(placed(number(whole), node), value.dtype)
            if isinstance(value, Scalar) and isinstance(value.node, ast.Name | ast.Attribute):
                value = replace(value, node=placed(expressions.with_literals(value.node), node))
            if isinstance(value, Scalar) and not isinstance(value.node, ast.Constant):
                value = self._argument(inner, parameter, value)
            elif isinstance(value, Array) and value.storage is None and _count(tree, parameter) > 1:
                value = self.program.kept(value, parameter) if value.mask is None else value
            inner.variables[parameter] = value
        body = [ast.copy_location(ast.Return(tree.body), node)] if isinstance(tree, ast.Lambda) else tree.body
        self.frames.append(inner)
        self.results.append(Result())
        outer, self.expressions.frame = self.expressions.frame, inner
        try:
            self.statements(body)
        finally:
            self.expressions.frame = outer
            self.frames.pop()
            result = self.results.pop()
        return result.value

    def _argument(self, inner: Frame, parameter: str, value: Scalar) -> Scalar:
        """A number as an argument: by its name or its affine value, else kept in a variable."""
        names = self.program.names
        if isinstance(value.node, ast.Name) and value.node.id in set(names.tensors) - names.locals:
            return value
        if is_complex(value.dtype):
            kept = self.program.variable(value, parameter)
            assert isinstance(kept.node, ast.Tuple), "a complex number is a pair"
            own = [part.id for part in kept.node.elts if isinstance(part, ast.Name)]
            inner.names.update(zip((f"{parameter}.real", f"{parameter}.imag"), own, strict=True))
            return kept
        written = self.program.aliases.written_out(value.node)
        if self.program.geometry.is_affine(written):
            return Scalar(written, value.dtype)
        kept = self.program.variable(value, parameter)
        if isinstance(kept.node, ast.Name):
            inner.names[parameter] = kept.node.id
        return kept

    def _arguments(
        self,
        expressions: Expressions,
        node: ast.Call,
        tree: ast.FunctionDef | ast.Lambda,
        args: list[Value],
        named: dict[str, Value],
        defaults: tuple[Any, ...],
    ) -> dict[str, Value]:
        """The values of a function's parameters."""
        parameters = [arg.arg for arg in (*tree.args.posonlyargs, *tree.args.args)]
        only = [arg.arg for arg in tree.args.kwonlyargs]
        if tree.args.vararg or tree.args.kwarg or len(args) > len(parameters):
            expressions.refuse(node, f"{ast.unparse(node)}: these arguments", "plain parameters")
        given = dict(zip(parameters, args, strict=False))
        for word, value in named.items():
            if word not in (*parameters, *only) or word in given:
                expressions.refuse(node, f"{ast.unparse(node)}: the argument {word}", ", ".join(parameters))
            given[word] = value
        written = tree.args.defaults
        for parameter, default in zip(parameters[len(parameters) - len(written) :], written, strict=True):
            if parameter not in given:
                given[parameter] = self._default(expressions, default, defaults, written)
        for parameter, keyword in zip(only, tree.args.kw_defaults, strict=True):
            if parameter not in given and keyword is not None:
                given[parameter] = expressions.value(keyword)
        missing = [parameter for parameter in (*parameters, *only) if parameter not in given]
        if missing:
            expressions.refuse(
                node, f"{ast.unparse(node)}: no {', '.join(missing)} is given", "all parameters"
            )
        return {parameter: given[parameter] for parameter in (*parameters, *only)}

    def _default(
        self, expressions: Expressions, written: ast.expr, values: tuple[Any, ...], every: Sequence[ast.expr]
    ) -> Value:
        if not values:
            return expressions.value(written)
        value = values[[part is written for part in every].index(True)]
        if isinstance(value, bool | int | float):
            return Scalar(
                ast.copy_location(number(value), written),
                BOOL if isinstance(value, bool) else "integer" if isinstance(value, int) else "fraction",
            )
        return Static(value)


def _same_value(left: Value, right: Value) -> bool:
    """True if two values are known to be the same array or object."""
    if isinstance(left, tuple) and isinstance(right, tuple):
        return len(left) == len(right) and all(map(_same_value, left, right))
    if isinstance(left, Static) and isinstance(right, Static):
        return left.value is right.value or bool(left.value == right.value)
    if isinstance(left, Scalar) and isinstance(right, Scalar):
        return left.dtype == right.dtype and ast.unparse(left.node) == ast.unparse(right.node)
    if not isinstance(left, Array) or not isinstance(right, Array):
        return False
    same = (left.storage, left.dtype, left.rank) == (right.storage, right.dtype, right.rank)
    return same and _text_of(left) == _text_of(right)


def _text_of(value: Array) -> str:
    """What an array's elements are, as text."""
    index = tuple(name(f"d{k}") for k in range(value.rank))
    mask = "" if value.mask is None else ast.unparse(value.mask.element(index))
    return f"{shape_text(value.shape)} {ast.unparse(value.element(index))} {mask}"


def _zero(dtype: str) -> ast.expr:
    """A zero of a type; of conditions one that is false."""
    if dtype == BOOL:
        return ast.Compare(number(0), [ast.NotEq()], [number(0)])
    return number(0.0 if is_real(dtype) else 0)


def _rebound(body: Sequence[ast.stmt]) -> tuple[str, ...]:
    """The names that statements give another array: x += e changes the one that x has."""
    updated = {id(n.target) for part in body for n in ast.walk(part) if isinstance(n, ast.AugAssign)}
    return tuple(
        dict.fromkeys(
            n.id
            for part in body
            for n in ast.walk(part)
            if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store) and id(n) not in updated
        )
    )


def _names_of(value: Array) -> set[str]:
    """The variables in an array's shape and elements."""
    index = tuple(number(0) for _ in value.shape)
    parts = (*value.shape, value.element(index), *([] if value.mask is None else [value.mask.element(index)]))
    return {part.id for one in parts for part in ast.walk(one) if isinstance(part, ast.Name)}


def _assigned(node: ast.stmt, target: ast.expr, value: ast.expr) -> ast.stmt:
    """`target = value`: the statement itself if these are what it has."""
    if isinstance(node, ast.Assign) and node.targets == [target] and node.value is value:
        return node
    if isinstance(node, ast.AugAssign):
        return ast.copy_location(ast.AugAssign(stored(target), node.op, value), node)
    return ast.copy_location(ast.Assign([target], value), node)


def _whole(node: ast.AugAssign) -> ast.BinOp:
    """target op value, of target op= value."""
    return ast.copy_location(ast.BinOp(_loaded(node.target), node.op, node.value), node)


def _updated(node: ast.AugAssign, target: ast.expr, value: ast.expr) -> ast.stmt:
    if target is node.target and value is node.value:
        return node
    return ast.copy_location(ast.AugAssign(stored(target), node.op, value), node)


def _loaded(target: ast.expr) -> ast.expr:
    """A target as the expression that reads it."""
    if isinstance(target, ast.Name):
        return ast.copy_location(ast.Name(target.id, ast.Load()), target)
    if isinstance(target, ast.Subscript):
        return ast.copy_location(ast.Subscript(target.value, target.slice, ast.Load()), target)
    return target


def _base(target: ast.expr) -> ast.expr:
    return target.value if isinstance(target, ast.Subscript) else target


def _count(tree: ast.AST, variable: str) -> int:
    return sum(isinstance(part, ast.Name) and part.id == variable for part in ast.walk(tree))


def _returns(node: ast.stmt) -> bool:
    return any(isinstance(part, ast.Return) for part in ast.walk(node))


def _ends(body: Sequence[ast.stmt]) -> bool:
    return bool(body) and isinstance(body[-1], ast.Return)


def _same_call(node: ast.For, bounds: Sequence[ast.expr]) -> bool:
    args = node.iter.args if isinstance(node.iter, ast.Call) else []
    return len(args) == len(bounds) and all(a is b for a, b in zip(args, bounds, strict=True))
