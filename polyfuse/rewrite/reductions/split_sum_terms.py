"""Split a sum whose step adds several terms into several sums into the same element.

    for i, j, k: S: y[i, j] += a[i, k] * b[k, j] + c[i, k] * d[k, j]
    ->  for i, j, k: S: y[i, j] += a[i, k] * b[k, j];    for i, j, k: S_1: y[i, j] += c[i, k] * d[k, j]

The theorem. Σ (s + t) = Σ s + Σ t: each term is added once, in another order, which a declared reduction allows. No
term may read what the sum makes, since it would then see the terms before it. The loops that are doubled hold nothing
else, so that nobody sees the sums in between. Two products in one sum are two products then.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import islpy as isl
import sympy

from polyfuse.errors.proving import proving
from polyfuse.errors.refusals import Refusal
from polyfuse.ir import Access, Nest, Statement
from polyfuse.ir.fresh_names import fresh
from polyfuse.ir.tree import Leaf, Loop, Tree, children, sequence
from polyfuse.rewrite.recorded import recorded
from polyfuse.rewrite.reductions.factor_out import with_body
from polyfuse.rewrite.refusal import check_legal, refused
from polyfuse.sets import IN


@dataclass(frozen=True)
class Terms:
    """The result of `terms`.

    Attributes:
        nest: The new nest.
        statements: The statements that add one term each; the first keeps the old name.
    """

    nest: Nest
    statements: tuple[str, ...]

    def __str__(self) -> str:
        return f"the terms of {self.statements[0]} are sums of their own: {', '.join(self.statements)}"


@recorded("terms")
@proving("the rewrite terms")
def terms(nest: Nest, statement: str) -> Terms:
    """Split a sum's terms into statements of their own.

    S: y += s + t   ->   S: y += s;  S_1: y += t

    Args:
        nest: The nest.
        statement: The statement that accumulates.

    Returns:
        The new nest.

    Raises:
        IllegalRewrite: if `why_not_terms` returns a reason.
    """
    check_legal(why_not_terms(nest, statement))
    s, made = nest.statement(statement), one_for_each_term(nest, statement)
    every = tuple(y for x in nest.statements for y in (made if x is s else (x,)))
    order = _behind(nest.order, statement, made[1:])
    result = nest.rewritten(nest.tensors, every, order, frozenset(s.tensors))
    result.check(frozenset(s.tensors))
    return Terms(result, tuple(x.name for x in made))


def one_for_each_term(nest: Nest, statement: str) -> tuple[Statement, ...]:
    """Return the statements that `terms` makes of one; the first has its name."""
    s = nest.statement(statement)
    taken = {x.name for x in nest.statements}
    first, *others = terms_of(s.body)
    made = [with_body(s, s.reads, first)]
    for number, term in enumerate(others, start=1):
        name = fresh(f"{statement}_{number}", taken)
        taken.add(name)
        made.append(_called(with_body(s, s.reads, term), name))
    return tuple(made)


@proving("the question why_not_terms")
def why_not_terms(nest: Nest, statement: str) -> Refusal | None:
    """Return the reason why a sum's terms cannot be split.

    Args:
        nest: The nest.
        statement: The statement's name.

    Returns:
        The reason; None if the rewrite is legal.
    """
    s = nest.statement(statement)
    call = f"terms({statement!r})"
    if s.op != "+=":
        return refused(call, f"{statement} is not a sum (its operator is {s.op})", "a statement with +=")
    if not isinstance(s.body, sympy.Add):
        return refused(call, f"{statement} adds one term", "a sum of several terms, such as a * b + c * d")
    if any(access.tensor == s.write.tensor for access in s.reads):
        return refused(
            call,
            f"a term of {statement} reads {s.write.tensor}, which the sum accumulates",
            "terms that do not read it",
        )
    return None


def terms_of(body: sympy.Basic) -> list[sympy.Basic]:
    """The terms of nested sums, in order: (a + b) + c  ->  a, b, c."""
    if isinstance(body, sympy.Add):
        return [term for arg in body.args for term in terms_of(arg)]
    return [body]


def _called(s: Statement, name: str) -> Statement:
    """The same statement under another name."""

    def moved(access: Access) -> Access:
        return Access(access.tensor, access.map.set_tuple_name(IN, name))

    write, *reads = map(moved, s.accesses)
    return replace(s, name=name, domain=s.domain.set_tuple_name(name), write=write, reads=tuple(reads))


def _behind(tree: Tree, statement: str, others: Sequence[Statement]) -> Tree:
    """The tree with others behind the outermost loop that holds a statement alone, in loops like that."""
    if tree.names == (statement,):
        return sequence((tree, *(_like(tree, other) for other in others)))
    if isinstance(tree, Leaf) or statement not in tree.members:
        return tree
    below = tuple(_behind(child, statement, others) for child in children(tree))
    if not isinstance(tree, Loop):
        return sequence(below)
    date = tree.date(statement)
    return replace(tree, body=below[0], dates=(*tree.dates, *(_of(date, other) for other in others)))


def _like(tree: Tree, s: Statement) -> Tree:
    """The same loops around another statement."""
    if not isinstance(tree, Loop):
        return Leaf(s.name)
    ((_, date),) = tree.dates
    return replace(tree, dates=(_of(date, s),), body=_like(tree.body, s))


def _of(date: isl.PwAff, s: Statement) -> tuple[str, isl.PwAff]:
    """{ S[i] -> [i] }  ->  "S_1", { S_1[i] -> [i] }."""
    return s.name, date.set_tuple_id(IN, s.domain.get_tuple_id())
