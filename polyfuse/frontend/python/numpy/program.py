"""The program under construction: its lowered statements, and the names, places and loops of those that follow."""

from __future__ import annotations

import ast
import builtins
import math
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import NoReturn

import islpy as isl
import numpy as np

from polyfuse.frontend.python.aliases import Aliases
from polyfuse.frontend.python.numpy.geometry import Geometry
from polyfuse.frontend.python.numpy.syntax import (
    constant,
    data_bounds,
    end_of_cut,
    loop,
    minus,
    name,
    number,
    placed,
)
from polyfuse.frontend.python.numpy.values import Index
from polyfuse.frontend.python.scope import Scope
from polyfuse.frontend.python.scope_names import MISSING, Names, outer_value
from polyfuse.ir.number_types import ITEMSIZE

CALLED: dict[str, object] = {
    "max": builtins.max,
    "min": builtins.min,
    "abs": builtins.abs,
    "float": builtins.float,
    "range": builtins.range,
    "sqrt": np.sqrt,
    "exp": np.exp,
    "log": np.log,
    "sin": np.sin,
    "cos": np.cos,
    "tanh": np.tanh,
    "erf": math.erf,
    "tan": np.tan,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": math.atan,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "log2": np.log2,
    "log10": np.log10,
    "log1p": np.log1p,
    "expm1": np.expm1,
    "floor": np.floor,
    "ceil": np.ceil,
    "floor_divide": np.floor_divide,
    "remainder": np.remainder,
    "empty": np.empty,
    **{dtype: np.dtype(dtype).type for dtype in ITEMSIZE},
}
"""The functions that lowered statements call, by the name they get where it is free."""


@dataclass
class Program:
    """The statements lowered so far, and the place of the next one.

    `taken` are the names that are in use; `added` the names that lowered statements need from outside; `notes` say
    where a temporary was needed to keep NumPy's order of reads and stores. `parameters` are the arrays that are given,
    `storages` those that were made, `pairs` those of both that hold complex numbers, with their real and
    imaginary parts along a last axis, `placed` those whose numbers are places of other arrays. `assumed` are the
    equalities of sizes that NumPy checks. `longer` are the new arrays with more memory than their shape. `hint` is the
    name that the next array made gets, if it is free.
    """

    names: Names
    context: isl.Set
    taken: set[str]
    parameters: set[str]
    scope: Scope = ()
    block: list[ast.stmt] = field(default_factory=list)
    aliases: Aliases = field(default_factory=Aliases)
    added: dict[str, object] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    place: ast.AST = field(default_factory=ast.Pass)
    indices: dict[str, str] = field(default_factory=dict)
    storages: set[str] = field(default_factory=set)
    pairs: set[str] = field(default_factory=set)
    placed: set[str] = field(default_factory=set)
    assumed: list[ast.stmt] = field(default_factory=list)
    longer: set[str] = field(default_factory=set)
    hint: str | None = None

    @property
    def geometry(self) -> Geometry:
        """What is known at this place."""
        return Geometry(self.names, self.scope, self.context)

    def emit(self, statement: ast.stmt) -> None:
        """Append a statement; new parts of it get the place in the source that is lowered now."""
        self.block.append(placed(statement, self.place))

    def fresh(self, stem: str) -> str:
        """A name that is not in use: the stem, or with a number."""
        found, count = stem, 0
        while found in self.taken:
            count += 1
            found = f"{stem}_{count}"
        self.taken.add(found)
        return found

    def index(self, text: str) -> str:
        """The name of an index of a loop that no other lowered loop is inside of: i0, or another if that is taken."""
        if text not in self.indices:
            self.indices[text] = self.fresh(text)
        return self.indices[text]

    def equal(self, left: ast.expr, right: ast.expr) -> bool:
        """True if two extents are equal where NumPy raises an error if they are not.

        Sizes that may be equal are assumed to be: a call with others is refused, as NumPy's is.
        """
        if self.alike(left, right):
            return True
        return not self.scope and self._assumes(ast.Compare(left, [ast.Eq()], [right]))

    def alike(self, left: ast.expr, right: ast.expr) -> bool:
        """True if two extents are equal, where bounds of slices are assumed to count from the start and to be inside.

        x[:N - 2] has N - 2 elements for N >= 2, and 2 * N - 2 for N = 1. A call with N = 1 is refused if an array of
        N - 2 elements has to have as many. x[:K] has K elements for K <= N, else N: where N are needed, K < N is
        refused, as it is by NumPy.
        """
        return self.geometry.same(left, right) or any(
            self._alike_in(left, right, behind) for behind in (False, True)
        )

    def _alike_in(self, left: ast.expr, right: ast.expr, behind: bool) -> bool:
        """True if two extents are equal in one case of their bounds, which is assumed: `behind` the end or not."""
        tests: list[ast.expr] = []
        plain = [_in_one_case(side, tests, behind) for side in (left, right)]
        return bool(tests) and self.geometry.same(*plain) and all(map(self._assumes, tests))

    def settled(self, extent: ast.expr) -> ast.expr:
        """The extent of a slice whose bounds are assumed to count from the start and to be inside the array."""
        tests: list[ast.expr] = []
        plain = _in_one_case(extent, tests, behind=False)
        return plain if all(map(self._assumes, tests)) else extent

    def _assumes(self, test: ast.expr) -> bool:
        """Assume a condition on sizes, which calls are checked for. False if it is none, or never holds."""
        used = {part.id for part in ast.walk(test) if isinstance(part, ast.Name)}
        test = placed(test, self.place)
        affine = self.geometry.here().affine
        if not used <= set(self.names.sizes) or not affine.is_condition(test):
            return False
        context = self.context.intersect(affine.condition(test).params())
        if context.is_empty():
            return False
        if not context.is_equal(self.context):
            self.context = context
            self.assumed.append(placed(ast.Assert(test), self.place))
        return True

    def function(self, text: str) -> ast.expr:
        """The name by which a lowered statement calls a function of CALLED."""
        wanted = CALLED[text]
        own = {*self.names.locals, *self.names.tensors, *self.names.sizes}
        if text not in own and outer_value(self.names.source, text) is wanted:
            return name(text)
        for known, value in self.added.items():
            if value is wanted:
                return name(known)
        found = text
        while found in self.taken or outer_value(self.names.source, found) is not MISSING:
            found += "_"
        self.taken.add(found)
        self.added[found] = wanted
        return name(found)

    def call(self, text: str, *args: ast.expr) -> ast.expr:
        """A call of a function of CALLED."""
        return ast.Call(self.function(text), list(args), [])

    def refuse(self, why: str, allowed: str, node: ast.AST | None = None) -> NoReturn:
        """Raise NotAffine at a node, or at the expression that is lowered now."""
        self.names.source.refuse(node or self.place, why, allowed)

    def named(self, stem: str) -> str:
        """A name for what is made now: that of the variable it is assigned to, if nothing else has that yet."""
        wanted, self.hint = self.hint, None
        if (
            wanted is not None
            and wanted not in self.storages | self.parameters
            and wanted not in self.names.sizes
        ):
            self.taken.add(wanted)
            return wanted
        return self.fresh(wanted or stem)

    def loops(self, stem: str, shape: Sequence[ast.expr]) -> tuple[list[tuple[str, ast.expr]], Index]:
        """(the loops over a shape, the index of an element); a dimension of extent 1 needs none.

        Between bounds that are data a loop begins at the first of them.
        """
        loops, index = [], []
        for position, extent in enumerate(shape):
            if constant(extent) == 1:
                index.append(number(0))
                continue
            variable = self.index(f"{stem}{position}")
            loops.append((variable, extent))
            bounds = data_bounds(extent)
            index.append(name(variable) if bounds is None else minus(name(variable), bounds[0]))
        return loops, tuple(index)

    def emit_nest(
        self,
        loops: Sequence[tuple[str, ast.expr]],
        body: list[ast.stmt],
        order: Sequence[bool] | None = None,
    ) -> None:
        """Emit loops, outermost first, around some statements; those that `order` says run backwards."""
        for (variable, extent), backwards in reversed(
            list(zip(loops, order or (False,) * len(loops), strict=True))
        ):
            made = loop(variable, extent, body, backwards)
            made.iter.func = self.function("range")  # type: ignore[attr-defined]  # loop() made it of a call
            body = [made]
        for statement in body:
            self.emit(statement)

    def nested(self, loops: Sequence[tuple[str, ast.expr]], body: list[ast.stmt]) -> list[ast.stmt]:
        """Return loops, outermost first, around some statements, without emitting them."""
        outside, self.block = self.block, []
        self.emit_nest(loops, body)
        made, self.block = self.block, outside
        return made


def _in_one_case(extent: ast.expr, tests: list[ast.expr], behind: bool) -> ast.expr:
    """An extent as it is where the bounds of slices count from the start; the conditions for that go to `tests`.

    K if K <= N else N    ->   K for K <= N, or `behind` the array's end N for N <= K
    """

    class OneCase(ast.NodeTransformer):
        def visit_IfExp(self, node: ast.IfExp) -> ast.expr:
            end = end_of_cut(node)
            if behind and end is not None:
                tests.append(ast.Compare(end, [ast.LtE()], [node.body]))
                made = self.visit(end)
            else:
                tests.append(node.test)
                made = self.visit(node.body)
            assert isinstance(made, ast.expr), "an expression stays one"
            return made

    found = OneCase().visit(deepcopy(extent))
    assert isinstance(found, ast.expr), "an expression stays one"
    return found
