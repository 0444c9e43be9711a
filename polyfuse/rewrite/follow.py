"""Give a statement the loops in which another one accesses the same elements.

    for g: for f: for k: M: y[4*g + f] += x[g, k] * w[f, k]        for g: for f: for k: M: y[4*g + f] += …
    for c: S: z[c] = 2 * y[c]                                  ->  for g: for f: S: z[4*g + f] = 2 * y[4*g + f]

The theorem. Let R take an instance of S to those dimensions of M that move its results, by the element both access. If
R is a function of every instance of S, and no two instances have the same value, then S's instances may be called by
these values: it is the same set of instances, each of which reads and writes what it did. S is alone in its loops, so
that only the order among its own instances changes, which is none of anybody's business where no dependence is between
them. Loops can then be compared one by one: M and S are fused at each.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import islpy as isl

from polyfuse.errors.proving import proving
from polyfuse.errors.refusals import Refusal
from polyfuse.ir import Access, Nest, Statement
from polyfuse.ir.nest import own_loops
from polyfuse.ir.tree import parts, sequence, statements
from polyfuse.rewrite.recorded import recorded
from polyfuse.rewrite.refusal import check_legal, refused
from polyfuse.sets import IN, OUT, dim_names, on_domain


@dataclass(frozen=True)
class Followed:
    """The result of `follow`.

    Attributes:
        nest: The new nest.
        statement: The statement whose loops were changed.
        leader: The statement whose loops it has now.
    """

    nest: Nest
    statement: str
    leader: str

    def __str__(self) -> str:
        return f"{self.statement} has the loops of {self.leader}'s results: {', '.join(self.dims)}"

    @property
    def dims(self) -> tuple[str, ...]:
        """The new loops, outermost first."""
        return self.nest.statement(self.statement).dims


@recorded("follow")
@proving("the rewrite follow")
def follow(nest: Nest, statement: str, leader: str) -> Followed:
    """Give a statement the loops in which another one computes the same elements.

    for c: S[c]   ->   for g: for f: S[g, f], where M[g, f, k] writes the element that S[4g + f] accesses.

    Args:
        nest: The nest.
        statement: The statement to change.
        leader: The statement whose result loops it gets.

    Returns:
        The new nest.

    Raises:
        IllegalRewrite: if `why_not_follow` returns a reason.
    """
    check_legal(why_not_follow(nest, statement, leader))
    s = nest.statement(statement)
    renamed = _renaming(nest, s, nest.statement(leader))
    assert renamed is not None, "asked before"
    names = dim_names(renamed.range())
    domain = renamed.range().coalesce()

    def moved(access: Access) -> Access:
        there = on_domain(renamed.reverse().apply_range(access.map), domain)
        for d, name in enumerate(names):
            there = there.set_dim_name(IN, d, name)
        return Access(access.tensor, there)

    changed = replace(s, domain=domain, write=moved(s.write), reads=tuple(map(moved, s.reads)))
    order = sequence(
        tuple(own_loops(changed) if statements(part) == (statement,) else part for part in parts(nest.order))
    )
    every = tuple(changed if x is s else x for x in nest.statements)
    result = nest.rewritten(nest.tensors, every, order, frozenset(s.tensors))
    result.check(frozenset(s.tensors))
    return Followed(result, statement, leader)


@proving("the question why_not_follow")
def why_not_follow(nest: Nest, statement: str, leader: str) -> Refusal | None:
    """Return the reason why a statement cannot have the loops of another one's results.

    Args:
        nest: The nest.
        statement: The statement to change.
        leader: The statement whose result loops it would get.

    Returns:
        The reason; None if the rewrite is legal.
    """
    s, m, call = nest.statement(statement), nest.statement(leader), f"follow({statement!r}, {leader!r})"
    tensor = m.write.tensor
    if (statement,) not in map(statements, parts(nest.order)):
        return refused(call, f"{statement} shares loops with others", "separate loops (`distribute`)")
    if set(s.dims) & {symbol.name for symbol in s.body.free_symbols}:
        return refused(
            call, f"the value of {statement} depends on its index", "a value of tensors and numbers only"
        )
    if any(p.source == p.sink == statement for p in nest.dependences().pairs):
        return refused(
            call, f"instances of {statement} depend on each other", "a statement without such dependences"
        )
    if len({str(access.map) for access in s.accesses if access.tensor == tensor}) != 1:
        return refused(call, f"{statement} does not access {tensor} exactly once", f"one access to {tensor}")
    if _renaming(nest, s, m) is None:
        return refused(
            call,
            f"instances of {statement} and results of {leader} do not correspond one to one",
            f"exactly one instance for each element of {tensor}",
        )
    return None


def _renaming(nest: Nest, s: Statement, leader: Statement) -> isl.Map | None:
    """{ S[c] -> S[g, f] } for all instances of S; None if it is no such map, or the same dimensions."""
    (access, *_) = (a for a in s.accesses if a.tensor == leader.write.tensor)
    results = leader.write.map.intersect_domain(nest.domains[leader.name])
    every = range(len(leader.dims))  # a loop of one value need not be seen in the element
    kept = [d for d in every if not leader.is_reduction or leader.write.map.involves_dims(IN, d, 1)]
    for d in reversed(every):
        if d not in kept:
            results = results.project_out(IN, d, 1)
    results = results.set_tuple_name(IN, s.name).coalesce()
    onto = access.map.intersect_domain(s.domain).apply_range(results.reverse()).coalesce()
    one_to_one = onto.is_single_valued() and onto.is_injective()
    if not one_to_one or not onto.domain().is_equal(s.domain):
        return None
    for at, d in enumerate(kept):
        onto = onto.set_dim_name(OUT, at, leader.dims[d])
    return onto
