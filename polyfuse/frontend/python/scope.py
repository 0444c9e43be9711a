"""Loops and branches around an assignment: the domain of its statement, and the dates of its instances.

    for i in range(a, b, s):  S[i]   ->   { S[i] : a <= i < b and (i - a) mod s = 0 }    at floor((i - a)/s)
    for i in range(a, b, -s): S[i]   ->   { S[i] : b < i <= a and (a - i) mod s = 0 }    at floor((a - i)/s)
    if c: S else: T                  ->   S where c holds, T where it does not      (c asks for no data)

With s = 1 the dates are i and -i: an index keeps its value, so that dates of different loops can be compared.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass

import islpy as isl

from polyfuse.frontend.python.affine import Affine, instances
from polyfuse.frontend.python.conditions import Predicate
from polyfuse.frontend.python.scope_names import Names
from polyfuse.sets import SET


@dataclass(frozen=True)
class Range:
    """`for variable in range(start, stop, step)`."""

    variable: str
    start: ast.expr
    stop: ast.expr
    step: int


@dataclass(frozen=True)
class Branch:
    """A branch of `if test`; `taken` says which."""

    test: ast.expr
    taken: bool


Scope = tuple[Range | Branch | Predicate, ...]
"""The loops and conditions around an assignment, outermost first."""


@dataclass(frozen=True)
class Place:
    """A statement's instances and when they run: one date per loop around it, outermost first.

    `predicates` say for which of them it counts.
    """

    domain: isl.Set
    dates: tuple[isl.PwAff, ...]
    affine: Affine
    predicates: tuple[Predicate, ...] = ()


def place(names: Names, scope: Scope, name: str | None) -> Place:
    """The instances of a statement called `name` in a scope. NotAffine if a bound or a condition is not."""
    dims = tuple(part.variable for part in scope if isinstance(part, Range))
    everywhere = instances(name, names.sizes, dims)
    domain, dates, position = everywhere, [], 0
    for part in scope:
        # a bound knows the indices of the loops around its own, not those inside
        outer = Affine(names, everywhere)
        if isinstance(part, Branch):
            holds = outer.condition(part.test)
            domain = domain.intersect(holds if part.taken else holds.complement())
        if not isinstance(part, Range):
            continue
        index = isl.PwAff.var_on_domain(isl.LocalSpace.from_space(everywhere.get_space()), SET, position)
        inside, date = _iterations(index, outer.value(part.start), outer.value(part.stop), part.step)
        domain = domain.intersect(inside)
        dates.append(date)
        position += 1
    predicates = tuple(part for part in scope if isinstance(part, Predicate))
    return Place(domain.coalesce(), tuple(dates), Affine(names, everywhere), predicates)


def _iterations(index: isl.PwAff, start: isl.PwAff, stop: isl.PwAff, step: int) -> tuple[isl.Set, isl.PwAff]:
    """The values a loop takes, and the date of each."""
    up = step > 0
    inside = (
        index.ge_set(start).intersect(index.lt_set(stop))
        if up
        else index.le_set(start).intersect(index.gt_set(stop))
    )
    if abs(step) == 1:
        return inside, index if up else index.neg()
    gone = index.sub(start) if up else start.sub(index)
    stride = isl.Val(abs(step))
    exact = gone.mod_val(stride).zero_set()
    return inside.intersect(exact), gone.scale_down_val(stride).floor()


def range_of(names: Names, node: ast.For) -> Range:
    """The loop of a `for` statement. NotAffine if it is not one over `range` with a constant step."""
    refuse = names.source.refuse
    if not isinstance(node.target, ast.Name):
        refuse(node.target, f"the loop variable {ast.unparse(node.target)} is not a name", "one name")
    call = node.iter
    if not (isinstance(call, ast.Call) and names.function(call.func) == "range" and 1 <= len(call.args) <= 3):
        refuse(
            call,
            f"a loop over {ast.unparse(call)}",
            "range(stop), range(start, stop), range(start, stop, step)",
        )
    if call.keywords or any(isinstance(arg, ast.Starred) for arg in call.args):
        refuse(call, f"a loop over {ast.unparse(call)}", "range with one to three plain arguments")
    if node.orelse:
        refuse(node.orelse[0], "a loop with an else", "the statements after the loop")
    start, stop = (
        (ast.copy_location(ast.Constant(0), call), call.args[0]) if len(call.args) == 1 else call.args[:2]
    )
    step = 1
    if len(call.args) == 3:
        value = Affine(names, instances(None, names.sizes, ())).value(call.args[2])
        step = int(value.max_val().to_python()) if value.is_cst() else 0
        if step == 0:
            refuse(call.args[2], f"the step {ast.unparse(call.args[2])}", "an integer constant other than 0")
    return Range(node.target.id, start, stop, step)
