"""One assignment as a statement, with reductions recognised.

    x += e   x = x + e   x = e + x   x -= e        ->  x += e   (x += -e)
    x *= e   x = x * e   x = e * x                 ->  x *= e
    x = max(x, e)   x = min(e, x)                  ->  x max= e, x min= e

where e never reads the element that is written, and some element is written more than once: by the statement, or by it
and one that accumulates there by the same operator (`joined`). An accumulation that happens once an element is an
assignment otherwise, x = x + e, and hides what was there.

In a branch on data every instance runs, and keeps what was there where the branch is not taken: x = e if test else x;
a sum or product stays one, x += e if test else 0.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass, replace

import islpy as isl
import sympy

from polyfuse.frontend.python.body import Body, scalar_access
from polyfuse.frontend.python.conditions import Predicate
from polyfuse.frontend.python.parameters import DTYPES
from polyfuse.frontend.python.scope import Place
from polyfuse.frontend.python.scope_names import Names
from polyfuse.ir import Access, DType, Statement
from polyfuse.ir.nest_text import BINARY
from polyfuse.ir.scalar import And, Select, number, turned

TARGETS = "a variable, or one element of an array that is given or made before"
OPERATORS = "= += -= *= /= **=, //= %= <<= >>= &= |= ^= of integers"
NEUTRAL = {"+=": 0, "*=": 1}
"""The neutral elements of addition and multiplication."""


@dataclass(frozen=True)
class Assigned:
    """A statement, and what decides the type of a variable it assigns.

    `leaves` are the tensors whose elements are part of the value, `fractional` says that a float or a division is,
    `integral` that an integer without a type is, such as an index; `types` are those of its conversions. `update` is
    the statement as an accumulation, where it is an assignment because it happens once an element.
    """

    statement: Statement
    leaves: frozenset[str]
    fractional: bool
    declared: DType | None
    update: Statement | None = None
    types: frozenset[DType] = frozenset()
    integral: bool = False


@dataclass(frozen=True)
class Term:
    """`target op value`; negated: the value with its sign turned."""

    op: str
    value: ast.expr
    negated: bool = False


def assignment(
    names: Names, here: Place, node: ast.Assign | ast.AugAssign | ast.AnnAssign, context: isl.Set
) -> Assigned:
    """The statement of an assignment. NotAffine if a subscript is not, or the value cannot be computed in a nest."""
    target = target_of(names, node)
    write = Body(here.affine).access(target)
    if write is None:
        names.source.refuse(
            target, f"{ast.unparse(target)} is assigned, but not given, nor made before", TARGETS
        )
    declared = declared_type(names, node)
    whole = whole_value(names, node, target)
    name = target.id if isinstance(target, ast.Name) else None
    predicates = tuple(p for p in here.predicates if name not in p.own)
    update: Statement | None = None
    for term in terms(names, node, whole):
        if not is_target(here, term, write, whole) or (predicates and term.op not in NEUTRAL):
            continue
        body = Body(here.affine)
        value = body.value(term.value)
        value = turned(value) if term.negated else value
        if predicates:
            value = Select(_all(body, predicates), value, number(NEUTRAL[term.op]))
        if reads_target(here, write, body.reads, context):
            continue
        made = _assigned(here, write, term.op, body, value, declared)
        if is_repeated(made.statement, context):
            return made
        update = update or made.statement
    body = Body(here.affine)
    value = body.value(whole)
    if predicates:
        value = Select(_all(body, predicates), value, body.leaf(write))
    return replace(_assigned(here, write, "=", body, value, declared), update=update)


def joined(found: Sequence[Assigned], context: isl.Set) -> list[Assigned]:
    """Make updates of elements on which another statement accumulates by the same operator accumulate too, repeatedly.

    for i: for j: { S: t[i] = max(t[i], a[i]) at j = 0;  R: t[i] max= b[i, j] }   ->   S: t[i] max= a[i]
    """
    sums = [made.statement for made in found if made.statement.is_reduction]
    reached = list(sums)
    while reached:
        updates = (made.update for made in found if made.update is not None and made.update not in sums)
        reached = [u for u in updates if any(_meet(u, other, context) for other in reached)]
        sums += reached
    return [replace(made, statement=made.update) if made.update in sums else made for made in found]


def _meet(update: Statement, other: Statement, context: isl.Set) -> bool:
    if (update.op, update.write.tensor) != (other.op, other.write.tensor):
        return False
    mine, theirs = (
        s.write.map.intersect_domain(s.domain.intersect_params(context)).range() for s in (update, other)
    )
    return not mine.intersect(theirs).is_empty()


def kept_test(here: Place, name: str, test: ast.expr) -> Assigned:
    """The statement name = 1 if test else 0, in the type of what is compared."""
    body = Body(here.affine)
    value = Select(body.test(test), number(1), number(0))
    body.leaves = {access.tensor for access in body.reads}
    return _assigned(here, scalar_access(here.affine, name), "=", body, value)


def copy_of(here: Place, parameter: str) -> Assigned:
    """The statement parameter_local = parameter."""
    body = Body(here.affine)
    value = body.leaf(scalar_access(here.affine, parameter))
    return _assigned(here, scalar_access(here.affine, body.local_name(parameter)), "=", body, value)


def _all(body: Body, predicates: tuple[Predicate, ...]) -> sympy.Basic:
    """Return the condition that an instance is in all of some branches."""
    first, *rest = (body.holds(predicate) for predicate in predicates)
    return And(first, *rest, evaluate=False) if rest else first


def _assigned(
    here: Place, write: Access, op: str, body: Body, value: sympy.Expr, declared: DType | None = None
) -> Assigned:
    name = here.domain.get_tuple_name()
    assert name is not None, "place() named the instances"
    reads = tuple(_on(here.domain, access) for access in body.reads)
    made = Statement(name, here.domain, _on(here.domain, write), op, reads, value)
    return Assigned(
        made, frozenset(body.leaves), body.fractional, declared, None, frozenset(body.types), body.integral
    )


def _on(domain: isl.Set, access: Access) -> Access:
    """An access of several pieces as the domain alone sees it: x[N - 1 if i == 0 else i - 1] for i > 0 is x[i - 1]."""
    if access.map.n_basic_map() < 2 or domain.is_empty():
        return access
    simpler = access.map.intersect_domain(domain).coalesce().gist_domain(domain)
    # without its conditions a piece may reach into another's place, outside of the domain
    return Access(access.tensor, simpler) if simpler.is_single_valued() else access


def target_of(names: Names, node: ast.Assign | ast.AugAssign | ast.AnnAssign) -> ast.expr:
    """Return the target of an assignment. Raises NotAffine for several targets, tuples, attributes."""
    if isinstance(node, ast.Assign) and len(node.targets) != 1:
        names.source.refuse(node.targets[1], "two targets in one assignment", "one assignment each")
    target = node.targets[0] if isinstance(node, ast.Assign) else node.target
    if not isinstance(target, ast.Name | ast.Subscript):
        names.source.refuse(target, f"{ast.unparse(target)} cannot be assigned in a nest", TARGETS)
    return target


def declared_type(names: Names, node: ast.stmt) -> DType | None:
    """The type in `x: "f32" = …`."""
    if not isinstance(node, ast.AnnAssign):
        return None
    note = node.annotation
    text = note.value if isinstance(note, ast.Constant) else note.id if isinstance(note, ast.Name) else None
    if isinstance(text, str) and text in DTYPES:
        return DTYPES[text]
    return names.source.refuse(
        note, f"the annotation {ast.unparse(note)}", ", ".join(f'"{d}"' for d in DTYPES)
    )


def whole_value(names: Names, node: ast.Assign | ast.AugAssign | ast.AnnAssign, target: ast.expr) -> ast.expr:
    """The value that is stored: `x op= e` stores x op e."""
    if not isinstance(node, ast.AugAssign):
        assert node.value is not None, "an annotation without a value is not an assignment"
        return node.value
    if type(node.op) not in BINARY:
        names.source.refuse(node, f"{ast.unparse(node)}: this operator", OPERATORS)
    return ast.copy_location(ast.BinOp(target, node.op, node.value), node)


def terms(names: Names, node: ast.stmt, whole: ast.expr) -> tuple[Term, ...]:
    """The ways in which a value could be an accumulation, if its other operand is the target."""
    match whole:
        case ast.BinOp(op=ast.Add()):
            return Term("+=", whole.right), Term("+=", whole.left)
        case ast.BinOp(op=ast.Mult()):
            return Term("*=", whole.right), Term("*=", whole.left)
        case ast.BinOp(op=ast.Sub()):
            return (Term("+=", whole.right, negated=True),)
        case ast.Call(args=[a, b]) if names.function(whole.func) in ("max", "min"):
            op = f"{names.function(whole.func)}="
            return Term(op, b), Term(op, a)
    return ()


def is_target(here: Place, term: Term, write: Access, whole: ast.expr) -> bool:
    """True if the operand that a term leaves out is the element that is written."""
    pair = whole.args if isinstance(whole, ast.Call) else [whole.left, whole.right]  # type: ignore[attr-defined]
    other = pair[0] if pair[1] is term.value else pair[1]
    if not isinstance(other, ast.Name | ast.Subscript):
        return False
    if isinstance(other, ast.Name) and here.affine.variable(other.id) is not None:
        return False
    access = Body(here.affine).access(other)
    return access is not None and access.tensor == write.tensor and access.map.is_equal(write.map)


def reads_target(here: Place, write: Access, reads: list[Access], context: isl.Set) -> bool:
    """True if an instance reads the element that it writes."""
    domain = here.domain.intersect_params(context)
    own = (access.map for access in reads if access.tensor == write.tensor)
    return any(not element.intersect(write.map).intersect_domain(domain).is_empty() for element in own)


def is_repeated(s: Statement, context: isl.Set) -> bool:
    """True if a statement writes some element more than once."""
    return not s.write.map.intersect_domain(s.domain.intersect_params(context)).is_injective()
