"""Forward mode: each statement with its tangent.

    S[i]: T[w(i)]  = f(R[r(i)], …)     ->     T_dot[w(i)]  = R_dot[r(i)] * df/dR + …;   S[i]
    S[i]: T[w(i)] += f(R[r(i)], …)     ->     T_dot[w(i)] += R_dot[r(i)] * df/dR + …;   S[i]

The tangent reads what its statement reads, at the same time, so that nothing is kept. A statement alone in its loops,
which reads nothing that it writes, runs first: its tangent may then read its result.
"""

from __future__ import annotations

from dataclasses import replace

import sympy

from polyfuse.errors.proving import proving
from polyfuse.ir import Nest, Statement, Tensor
from polyfuse.ir.given import nest_given
from polyfuse.ir.nest import own_loops
from polyfuse.ir.scalar import add, number, read, substitute
from polyfuse.ir.tensor import Role
from polyfuse.ir.tree import Leaf, Loop, Tree, parts, sequence
from polyfuse.ir.tree import Sequence as Siblings
from polyfuse.rewrite.gradient.activity import (
    Names,
    active,
    chosen_inputs,
    chosen_outputs,
    derived_reads,
)
from polyfuse.rewrite.gradient.adjoint_bodies import pull
from polyfuse.rewrite.gradient.assembly import assembled
from polyfuse.rewrite.gradient.copies import on_copies
from polyfuse.rewrite.gradient.draft import Draft, element, onto
from polyfuse.rewrite.gradient.shares import Share, share_of, with_explicit
from polyfuse.sets import IN

ZERO = number(0.0)


@proving("the rewrite jvp")
def jvp(nest: Nest, wrt: Names = None, outputs: Names = None, *, values: bool = False) -> Nest:
    """Return the nest of a Jacobian-vector product: forward-mode derivatives.

    for i: y[i] = x[i] * x[i]    ->    for i: y_dot[i] = x_dot[i] * 2.0 * x[i]

    It is called with the nest's inputs, then a tangent of each of `wrt`, of its shape and element type, and returns the
    tangents of `outputs` in their order; with `values`, the values of `outputs` first. An inout array is not changed:
    its tangent is that of its first value, its result that of its last.

    Griewank and Walther, Evaluating Derivatives (2008), section 3.1.

    Args:
        nest: The nest.
        wrt: Names of inputs, inouts or constants of floating-point numbers; by default all inputs and inouts of them.
        outputs: Names of outputs or inouts; by default all of floating-point numbers.
        values: True returns the values too.

    Returns:
        The nest. Its tangents are named x_dot and y_dot.

    Raises:
        BadArgument: if a name is unknown, or of integers, or no input or output.
    """
    nest_given("jvp", nest)
    by, of = chosen_inputs("jvp", nest, wrt), chosen_outputs("jvp", nest, outputs)
    return _Tangents(nest, by, of).nest_of(values)


class _Tangents:
    """The tangent statements of one nest as they are made."""

    def __init__(self, given: Nest, wrt: tuple[str, ...], outputs: tuple[str, ...]) -> None:
        copied, self.last = on_copies(given)
        self.nest = with_explicit(copied)
        self.draft = Draft(self.nest)
        self.wrt, self.outputs = wrt, outputs
        last = [self.last[name] for name in outputs]
        self.active = active(self.nest, wrt, last)
        self.dots: dict[str, Tensor] = {}
        self._of: dict[str, str] = {}
        for name in wrt:
            tensor = self.nest.tensor(name)
            self.dots[name] = self.draft.tensor(f"{name}_dot", tensor.shape, tensor.dtype, "input")
        ends = {self.last[name]: f"{name}_dot" for name in outputs}
        for tensor in self.nest.tensors:
            if tensor.name in self.dots or tensor.name not in self.active | set(ends):
                continue
            if tensor.gather is not None:
                table, index = self.dots[tensor.gather.table], self.nest.tensor(tensor.gather.index)
                self.dots[tensor.name] = self.draft.add(Tensor.gathered(f"{tensor.name}_dot", table, index))
            else:
                role: Role = "output" if tensor.name in ends else "temporary"
                name = ends.get(tensor.name, f"{tensor.name}_dot")
                self.dots[tensor.name] = self.draft.tensor(name, tensor.shape, tensor.dtype, role)

    def nest_of(self, values: bool) -> Nest:
        """The nest with the tangents, without what they do not need."""
        nest, draft = self.nest, self.draft
        every: list[Tree] = []
        for part in parts(nest.order):
            s = nest.statement(part.names[0])
            if len(part.names) == 1 and all(a.tensor != s.write.tensor for a in s.reads):
                every += [part, *map(own_loops, self._after(s))]
            else:
                every.append(self._among(part))
        for output in self.outputs:
            tensor = nest.tensor(self.last[output])
            if tensor.name not in self.active:
                domain = draft.elements(tensor)
                dot = self.dots[tensor.name]
                zero = draft.statement(f"zero_{dot.name}", domain, element(domain, dot.name), "=", [], ZERO)
                every.append(own_loops(zero))
        results = [self.last[name] for name in self.outputs]
        return assembled(
            nest,
            {**{s.name: s for s in nest.statements}, **draft.statements},
            draft.tensors,
            sequence(tuple(every)),
            [self.dots[name].name for name in self.wrt],
            [*(results if values else ()), *(self.dots[name].name for name in results)],
            f"{nest.name}_jvp",
        )

    def _after(self, s: Statement) -> list[Statement]:
        """The tangent of a statement that stands alone, to run after it."""
        share = None if s.op in ("=", "+=") else share_of(s, self.nest, self.draft)
        if share is not None and s.write.tensor in self.active:
            target = self.nest.tensor(s.write.tensor)
            domain, dot = self.draft.elements(target), self.dots[s.write.tensor].name
            begin = self.draft.statement(f"{s.name}_begin", domain, element(domain, dot), "=", [], ZERO)
            return [*share.statements, begin, *self._tangent(s, share, True)]
        return self._tangent(s, None, True)

    def _tangent(self, s: Statement, share: Share | None, has_result: bool) -> list[Statement]:
        """T_dot[w] op the sum over the reads of R_dot[r] * df/dR."""
        if s.write.tensor not in self.active:
            return []
        n = len(s.reads)
        accesses = [*s.reads, s.write, s.write, *(share.accesses if share is not None else ())]
        seed = read(n) if share is None else share.seed(s, n)
        body: sympy.Expr | None = None
        terms = pull(s.body, seed)
        for k in derived_reads(s):
            if s.reads[k].tensor not in self.active:
                continue
            accesses.append(onto(s.reads[k], self.dots[s.reads[k].tensor].name))
            term = substitute(terms[read(k)], {read(n): read(len(accesses) - 1)})
            body = term if body is None else add(body, term)
        if body is None:
            if s.op != "=":
                return []
            body = ZERO
        if has_result and s.op == "=" and s.body.args:
            body = substitute(body, {s.body: read(n + 1)})
        op = "=" if s.op == "=" else "+="
        write = onto(s.write, self.dots[s.write.tensor].name)
        made = self.draft.statement(f"{s.name}_dot", s.domain, write, op, accesses, body)
        self._of[made.name] = s.name
        return [made]

    def _among(self, tree: Tree) -> Tree:
        """A part of the nest with each statement's tangent just before it."""
        match tree:
            case Leaf(name):
                before = self._tangent(self.nest.statement(name), None, False)
                return sequence((*(Leaf(one.name) for one in before), tree))
            case Siblings():
                return sequence(tuple(map(self._among, tree.children)))
            case Loop():
                body = self._among(tree.body)
                added = [name for name in body.names if name not in tree.members]
                dates = [
                    (
                        one,
                        tree.date(self._of[one]).set_tuple_id(
                            IN, self.draft.statements[one].domain.get_tuple_id()
                        ),
                    )
                    for one in added
                ]
                return replace(tree, dates=(*tree.dates, *dates), body=body)
