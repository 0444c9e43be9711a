"""`@pf.nest`: a plain Python function of loops, read from its source, as a nest.

    function  ::= def name(parameter: "type", …): statement*
    statement ::= for index in range(…): statement*
                | if cond: statement* [else: statement*]
                | target = value | target += value | -= *= /=
                | assert cond                      on sizes, at the top: an assumption that a call checks
                | pass | a docstring
                | name = np.empty(…)               at the top: a local array (arrays.py)
    target    ::= scalar | A[aff, …] | A[aff]…[aff]

`aff` and `cond` are in affine.py, `value` in body.py, types in parameters.py.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from types import FunctionType
from typing import Any, NoReturn

import islpy as isl

from polyfuse.errors import BadArgument, InvalidNest
from polyfuse.frontend.affine import Affine, instances
from polyfuse.frontend.arrays import is_array
from polyfuse.frontend.assignment import Assigned, assignment, copy_of
from polyfuse.frontend.assumptions import with_bounds
from polyfuse.frontend.parameters import base_context, names_of
from polyfuse.frontend.reference import reference
from polyfuse.frontend.scope import Branch, Place, Range, Scope, place, range_of
from polyfuse.frontend.source import source_of
from polyfuse.frontend.types import local_types
from polyfuse.ir import Nest, Statement, Tensor
from polyfuse.ir.tree import Leaf, Loop, Tree, sequence, statements

ALLOWED = "for … in range(…), if on indices and sizes, assignments, assert on sizes"


@dataclass(frozen=True)
class PythonNest(Nest):
    """A nest read from a Python function, which stays callable as `python` (and knows the sizes then)."""

    python: Callable[..., Any] | None = field(default=None, compare=False, repr=False)

    def __call__(self, *args: Any, **named: Any) -> NoReturn:
        """Not compiled yet: a call that would silently run at Python's speed is refused."""
        raise BadArgument(
            f"{self.name} is a nest, nothing is compiled yet: pf.compile({self.name})(…) runs it, "
            f"{self.name}.python(…) is the Python function itself"
        )


def nest(function: Callable[..., Any]) -> PythonNest:
    """The nest of a Python function that consists of affine loops.

    Arrays that the function writes have role inout, everything else it is given role input; scalar parameters are
    tensors without dimensions; local variables are temporaries. The order is the source's. Numbers that the function
    finds outside of itself are read once, now.

    Raises NotAffine, with file, line and column, for what is no affine program; NoSource for a function without
    source; InvalidNest, with an instance, for subscripts that cannot be in bounds and variables read before they are
    written. Negative subscripts do not count from the end: they are out of bounds.
    """
    if not isinstance(function, FunctionType):
        raise BadArgument(f"pf.nest reads a Python function, not {function!r}")
    reader = _Reader(function)
    first = reader.own_copies()
    order = reader.block(reader.source.tree.body, ())
    return reader.finished(sequence((*first, order)) if order is not None else None)


@dataclass
class _Reader:
    """Walks one function; keeps the statements found so far, with the dates of the loops around each."""

    function: FunctionType
    found: list[Assigned] = field(default_factory=list)
    dates: dict[str, tuple[isl.PwAff, ...]] = field(default_factory=dict)
    assumed: list[ast.expr] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.source = source_of(self.function)
        self.names = names_of(self.source)
        every = (*self.names.tensors.values(), *self.names.arrays.values())
        self.context = base_context(self.names, every)

    def own_copies(self) -> tuple[Leaf, ...]:
        """alpha_local = alpha, for every parameter that is assigned: the caller never sees that."""
        made = []
        for tensor in self.names.tensors.values():
            if tensor.name in self.names.locals:
                here = place(self.names, (), self._free_name())
                made.append(self._keep(here, copy_of(here, tensor.name)))
        return tuple(made)

    def block(self, body: list[ast.stmt], scope: Scope) -> Tree | None:
        """The order of some statements; None if nothing is left of them."""
        parts = tuple(part for node in body for part in [self.statement(node, scope)] if part is not None)
        return sequence(parts) if parts else None

    def statement(self, node: ast.stmt, scope: Scope) -> Tree | None:
        """The order of one Python statement. NotAffine if it is none that can be read."""
        if is_array(self.names, node):
            return None  # names_of has read it
        match node:
            case ast.For():
                return self.loop(node, scope)
            case ast.If():
                return self.branches(node, scope)
            case ast.Assign() | ast.AugAssign() | ast.AnnAssign(value=ast.expr()):
                return self.assign(node, scope)
            case ast.Assert() if not scope:
                self.assume(node)
                return None
            case ast.Pass() | ast.Expr(value=ast.Constant()) | ast.Return(value=None) if self._does_nothing(
                node
            ):
                return None
            case ast.Return():
                self.source.refuse(
                    node, "a return with a value, or before the end", "results in arrays that are given"
                )
        self.source.refuse(
            node, f"{type(node).__name__.lower()} is no statement of an affine program", ALLOWED
        )

    def loop(self, node: ast.For, scope: Scope) -> Tree | None:
        """for i in range(…): body."""
        around = range_of(self.names, node)
        if any(isinstance(part, Range) and part.variable == around.variable for part in scope):
            self.source.refuse(
                node.target, f"{around.variable} is the variable of a loop around this one", "another"
            )
        place(self.names, (*scope, around), None)  # bounds are refused even where nothing is in the loop
        depth = sum(isinstance(part, Range) for part in scope)
        body = self.block(node.body, (*scope, around))
        if body is None:
            return None
        return Loop(
            around.variable, tuple((name, self.dates[name][depth]) for name in statements(body)), body
        )

    def branches(self, node: ast.If, scope: Scope) -> Tree | None:
        """if test: body else: orelse. Every instance is in one of the two, so they can stand one after the other."""
        place(self.names, (*scope, Branch(node.test, True)), None)
        then = self.block(node.body, (*scope, Branch(node.test, True)))
        other = self.block(node.orelse, (*scope, Branch(node.test, False)))
        parts = tuple(part for part in (then, other) if part is not None)
        return sequence(parts) if parts else None

    def assign(self, node: ast.Assign | ast.AugAssign | ast.AnnAssign, scope: Scope) -> Tree | None:
        """target op value: a statement; nothing if no instance can ever run."""
        here = place(self.names, scope, self._free_name())
        made = assignment(self.names, here, node, self.context)
        if here.domain.intersect_params(self.context).is_empty():
            return None
        return self._keep(here, made)

    def _free_name(self) -> str:
        name = f"S{len(self.found)}"
        while self.names.rank(name) is not None or name in self.names.sizes:
            name = f"{name}_"
        return name

    def _keep(self, here: Place, made: Assigned) -> Leaf:
        self.found.append(made)
        self.dates[made.statement.name] = here.dates
        return Leaf(made.statement.name)

    def assume(self, node: ast.Assert) -> None:
        """assert cond: the context is limited to sizes for which it holds."""
        holds = Affine(self.names, instances(None, self.names.sizes, ())).condition(node.test)
        self.context = self.context.intersect(holds.params())

    def finished(self, order: Tree | None) -> PythonNest:
        """The nest of everything read."""
        if order is None:
            raise InvalidNest(f"{self.function.__name__} computes nothing: no statement in it ever runs")
        found = tuple(made.statement for made in self.found)
        tensors = self.tensors(found)
        context = with_bounds(self.context, found, {t.name: t for t in tensors})
        made = PythonNest(tensors, found, order, context, {}, self.function.__name__, reference(self.names))
        made.check()
        return made

    def tensors(self, found: tuple[Statement, ...]) -> tuple[Tensor, ...]:
        """Parameters in order, those that are written with role inout; then local arrays and variables."""
        written = {s.write.tensor for s in found}
        given = [replace(t, role="inout") if t.name in written else t for t in self.names.tensors.values()]
        given += self.names.arrays.values()
        types = local_types(self.found, {t.name: t.dtype for t in given})
        return (*given, *(Tensor(name, (), dtype, "temporary") for name, dtype in types.items()))

    def _does_nothing(self, node: ast.stmt) -> bool:
        return not isinstance(node, ast.Return) or node is self.source.tree.body[-1]
