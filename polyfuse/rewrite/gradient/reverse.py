"""Reverse mode: the nest's statements, and after them their adjoints in reversed order.

    S[i]: T[w(i)]  = f(R[r(i)], …)     ->     S_to_R[i]: R_bar[r(i)] += T_bar[w(i)] * df/dR      for each read of S
                                              S_reset[i]: T_bar[w(i)] = 0                        if T had a value before
    S[i]: T[w(i)] += f(R[r(i)], …)     ->     S_to_R[i]: R_bar[r(i)] += T_bar[w(i)] * df/dR

The theorem (Griewank & Walther, Evaluating Derivatives, section 3). An instance is a map of memory to memory; its
adjoint applies the transpose of its Jacobian to the adjoint memory. The transpose of a composition is that of its
parts in reversed order. Updates of one adjoint element by += are a declared reduction, and so may run in any
order wherever nothing reads the element in between, which `Dependences` says for the result as for any nest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

import islpy as isl
import sympy

from polyfuse.errors import BadArgument
from polyfuse.errors.proving import proving
from polyfuse.ir import Access, Nest, Statement
from polyfuse.ir.given import nest_given
from polyfuse.ir.nest import own_loops
from polyfuse.ir.number_types import computed_in
from polyfuse.ir.scalar import Read, Select, mul, number, read, reads_in, substitute
from polyfuse.ir.tensor import Role
from polyfuse.ir.tree import Leaf, Loop, Tree, date_map, parts, sequence
from polyfuse.ir.tree import Sequence as Siblings
from polyfuse.ir.whole import whole
from polyfuse.rewrite.gradient.activity import (
    Names,
    active,
    chosen_inputs,
    chosen_outputs,
    derived_reads,
)
from polyfuse.rewrite.gradient.adjoint_bodies import pull
from polyfuse.rewrite.gradient.apart import in_own_loops, with_products_apart
from polyfuse.rewrite.gradient.assembly import assembled
from polyfuse.rewrite.gradient.checkpoints import (
    Checkpoints,
    Cut,
    Replay,
    Segments,
    cut,
    order_without_number,
    without_number,
)
from polyfuse.rewrite.gradient.copies import on_copies
from polyfuse.rewrite.gradient.draft import Draft, element, onto
from polyfuse.rewrite.gradient.gathers import Addition, gathered
from polyfuse.rewrite.gradient.layouts import Order, window_layout
from polyfuse.rewrite.gradient.lifetimes import Lifetimes, meets
from polyfuse.rewrite.gradient.owners import Instances, owned, same
from polyfuse.rewrite.gradient.partial_sums import PartialSum, Term, partial_sum, regrouped
from polyfuse.rewrite.gradient.phases import in_own_array, lies_apart
from polyfuse.rewrite.gradient.recompute import Passes, numbers_alone, recomputed
from polyfuse.rewrite.gradient.shares import Share, share_of, with_explicit
from polyfuse.rewrite.gradient.stored import Stored, with_copies
from polyfuse.sets import IN, OUT, SET, dim_names, dimension

ZERO = number(0.0)

Unreached = Literal["zero", "error"]
"""What becomes of the gradient of a tensor that the outputs do not depend on."""


@dataclass(frozen=True)
class Reversed:
    """The result of `reverse`.

    Attributes:
        nest: The nest of values and gradients.
        gradients: The output that holds the gradient, by the tensor that it is for.
        cotangents: The input that holds the cotangent, by the output that it is for; empty for `grad`.
        values: The output that holds the value, by the nest's output; empty unless asked for.
        stored: Arrays that keep a value which the nest overwrites, with the statement that reads it.
        zero: The tensors whose gradient is 0 because no derivative reaches the outputs.
        forward: The statements of the forward pass.
        cut: The time loop that runs in segments; None without checkpoints.
    """

    nest: Nest
    gradients: Mapping[str, str]
    cotangents: Mapping[str, str]
    values: Mapping[str, str]
    stored: tuple[str, ...] = ()
    zero: tuple[str, ...] = ()
    forward: frozenset[str] = frozenset()
    cut: Cut | None = None

    def __str__(self) -> str:
        lines = [f"{output}: cotangent {name}" for output, name in self.cotangents.items()]
        lines += [f"{tensor}: gradient {name}" for tensor, name in self.gradients.items()]
        lines += [f"{tensor}: zero, as no derivative reaches the outputs" for tensor in self.zero]
        return "\n".join([*lines, *self.stored])


def reverse_scalar(
    nest: Nest,
    wrt: Names = None,
    *,
    values: bool = False,
    unreached: Unreached = "zero",
    checkpoints: Checkpoints | None = None,
) -> Reversed:
    """`reverse` of an output of one element with the cotangent 1; arguments and errors are those of `pf.grad`."""
    outputs = chosen_outputs("grad", nest_given("grad", nest), None)
    tensors = [nest.tensor(name) for name in outputs]
    if len(tensors) != 1 or any(size != 1 for size in tensors[0].shape):
        found = ", ".join(map(str, tensors)) or "none"
        raise BadArgument(
            f"grad: expected one output of one element, given {found}: reduce it to a sum or a mean, or use "
            "pf.vjp, which takes a cotangent"
        )
    return reverse(
        nest, wrt, outputs, values=values, seeded=True, unreached=unreached, checkpoints=checkpoints
    )


@proving("the rewrite reverse")
def reverse(
    nest: Nest,
    wrt: Names = None,
    outputs: Names = None,
    *,
    values: bool = False,
    seeded: bool = False,
    unreached: Unreached = "zero",
    further: Sequence[str] = (),
    checkpoints: Checkpoints | None = None,
) -> Reversed:
    """Return what `pf.vjp` does, with names of cotangents and gradients, stored values and zero gradients.

    Args:
        nest: The nest.
        wrt: As for `pf.vjp`.
        outputs: As for `pf.vjp`.
        values: As for `pf.vjp`.
        seeded: True takes 1 for the cotangents.
        unreached: As for `pf.vjp`.
        further: Outputs that are returned after the values and not differentiated.
        checkpoints: As for `pf.vjp`.

    Returns:
        The nest and its names.

    Raises:
        BadArgument: as for `pf.vjp`.
        IllegalRewrite: as for `pf.vjp`.
    """
    call = "grad" if seeded else "vjp"
    nest_given(call, nest)
    by, of = chosen_inputs(call, nest, wrt), chosen_outputs(call, nest, outputs)
    if unreached not in get_args(Unreached):
        raise BadArgument(f"{call}: unreached is {unreached!r}, expected 'zero' or 'error'")
    if checkpoints not in (None, "auto") and whole(f"{call}: checkpoints", checkpoints) < 1:
        raise BadArgument(
            f"{call}: checkpoints={checkpoints}, expected the number of segments of a time loop, or 'auto'"
        )
    reversal = _Reversal(nest, by, of, (*(of if values else ()), *further), seeded)
    found = reversal.done()
    if checkpoints is not None:
        segments = cut(call, reversal.whole, reversal.stored, checkpoints)
        found = _Reversal(nest, by, of, (*(of if values else ()), *further), seeded, segments).done()
    if unreached == "error" and found.zero:
        raise BadArgument(
            f"{call}: no derivative connects {', '.join(found.zero)} with {', '.join(of)}: leave "
            f"{'it' if len(found.zero) == 1 else 'them'} out of wrt, or take unreached='zero'"
        )
    return found


@dataclass(frozen=True)
class _Contribution:
    """A read of a statement, to whose adjoint the statement's adjoint adds."""

    statement: Statement
    position: int

    @property
    def access(self) -> Access:
        return self.statement.reads[self.position]


class _Reversal:
    """One reversal: the adjoint tensors and statements as they are made.

    Attributes:
        nest: The nest to reverse, on copies of its inouts.
        last: The tensor with the last value of each output.
        active: The tensors that have adjoints.
        bars: The adjoint of each, by name.
        layouts: The order of an adjoint's axes, where it differs from the tensor's.
        first: For each adjoint that begins at 0, the part of the order whose adjoint adds to it first; -1: none does.
        assigned: Reads (statement, position) whose term is the first to reach each element of the adjoint.
        covered: Tensors whose adjoints are assigned by the phases of one sum.
        origins: For each adjoint statement, the statement that it is of, and its instances.
        sunk: Terms that wait until the loops around them are done.
    """

    def __init__(
        self,
        given: Nest,
        wrt: tuple[str, ...],
        outputs: tuple[str, ...],
        values: tuple[str, ...],
        seeded: bool,
        segments: Segments | None = None,
    ) -> None:
        copied, self.last = on_copies(given)
        self.whole = segments.whole if segments else with_explicit(in_own_loops(with_products_apart(copied)))
        self.nest = segments.one if segments else self.whole
        self.wrt, self.outputs, self.values, self.seeded = wrt, outputs, values, seeded
        self.draft = Draft(self.whole)
        self.replay = Replay(segments, self.draft) if segments else None
        self.lives = segments.lives if segments else Lifetimes(self.whole)
        self.stored = Stored(self.nest, self.draft, self.lives, segments.number if segments else None)
        self.active = active(self.nest, wrt, [self.last[name] for name in outputs])
        self.bars: dict[str, str] = {}
        self.layouts: dict[str, Order] = {}
        self.first: dict[str, int] = {}
        self.assigned: set[tuple[str, int]] = set()
        self.covered: set[str] = set()
        self.origins: dict[str, tuple[str, Instances]] = {}
        self.sunk: list[Tree] = []

    def done(self) -> Reversed:
        """Write the adjoints, then keep the statements that they need."""
        cotangents, backward = self._cotangents()
        self._adjoints()
        for position, part in reversed(list(enumerate(parts(self.nest.order)))):
            backward += self._zeros(position)
            tree = self._backward(part, ())
            adjoints = [*([tree] if tree is not None else []), *self.sunk]
            self.sunk = []
            if self._is_cut(position) and adjoints:
                assert self.replay is not None, "the loop is cut"
                adjoints = [self.replay.backward(self.stored.copies, adjoints)]
            backward += adjoints
        backward += self._gathers()
        gradients, ends = self._gradients()
        return self._assembled(cotangents, gradients, (*backward, *ends))

    def _is_cut(self, position: int) -> bool:
        """True if a part of the nest's order is a loop that runs in segments."""
        return self.replay is not None and self.replay.segments.loop.part == position

    # -- adjoint tensors ----------------------------------------------------------------------------------------------

    def _cotangents(self) -> tuple[dict[str, str], list[Tree]]:
        """An input for each output's cotangent, and copies of those that the backward pass changes."""
        named: dict[str, str] = {}
        begin: list[Tree] = []
        for output in self.outputs:
            tensor = self.nest.tensor(self.last[output])
            domain = self.draft.elements(tensor)
            if not self.seeded:
                named[output] = self.draft.tensor(f"{output}_bar", tensor.shape, tensor.dtype, "input").name
            if tensor.name not in self.active:
                continue
            read_again = any(a.tensor == tensor.name for s in self.nest.statements for a in s.reads)
            changed = read_again or not self.lives.settled(tensor.name)
            if self.seeded or changed or tensor.is_half:
                bar = self.draft.tensor(f"{output}_sum", tensor.shape, computed_in(tensor.dtype), "temporary")
                source = [] if self.seeded else [element(domain, named[output])]
                body = number(1.0) if self.seeded else read(0)
                begin.append(
                    self._alone(f"begin_{output}", domain, element(domain, bar.name), "=", source, body)
                )
                self.bars[tensor.name] = bar.name
            else:
                self.bars[tensor.name] = named[output]
        return named, begin

    def _adjoints(self) -> None:
        """A tensor for each adjoint, and where its first term assigns instead of adding."""
        fresh = [t for t in self.nest.tensors if t.name in self.active and t.name not in self.bars]
        for tensor in fresh:
            layout = self._layout(tensor.name)
            direct = tensor.name in self.wrt and not tensor.is_half and layout is None
            name = f"{tensor.name}_grad" if direct else f"{tensor.name}_bar"
            role: Role = "output" if direct else "temporary"
            shape = tensor.shape
            if layout is not None:
                self.layouts[tensor.name] = layout
                shape = tuple(shape[axis] for axis in layout)
            self.bars[tensor.name] = self.draft.tensor(name, shape, computed_in(tensor.dtype), role).name
        backwards = list(reversed(list(enumerate(parts(self.nest.order)))))
        for tensor in fresh:
            for position, part in backwards:
                statements = map(self.nest.statement, part.names)
                terms = [one for s in statements for one in self._contributions(s, tensor.name)]
                if terms and self._is_cut(position):
                    self.first[tensor.name] = position
                elif terms and self._assign(terms, tensor.name):
                    self.assigned.update((one.statement.name, one.position) for one in terms)
                elif len(terms) == 1 and part.names == (terms[0].statement.name,) and self._covers(terms[0]):
                    self.covered.add(tensor.name)
                elif terms:
                    self.first[tensor.name] = position
                if terms:
                    break
            else:
                self.first[tensor.name] = -1

    def _layout(self, tensor: str) -> Order | None:
        """The order of an adjoint's axes, where it is summed by one product over windows and not read in between."""
        terms = [one for s in self.nest.statements for one in self._contributions(s, tensor)]
        if len(terms) != 1 or self.nest.writers(tensor):
            return None
        return window_layout(terms[0].statement, terms[0].position)

    def _adjoint(self, access: Access) -> Access:
        """The adjoint of what an access accesses."""
        moved = onto(access, self.bars[access.tensor])
        layout = self.layouts.get(access.tensor)
        return moved if layout is None else Access(moved.tensor, _with_axes(moved.map, layout))

    def _adjoint_of(self, bar: str) -> str:
        """The tensor that an adjoint is of."""
        return next(tensor for tensor, name in self.bars.items() if name == bar)

    def _contributions(self, s: Statement, tensor: str | None = None) -> list[_Contribution]:
        if s.write.tensor not in self.active:
            return []
        wanted = [k for k in derived_reads(s) if s.reads[k].tensor in self.active]
        return [_Contribution(s, k) for k in wanted if tensor is None or s.reads[k].tensor == tensor]

    def _assign(self, terms: Sequence[_Contribution], tensor: str) -> bool:
        """True if each element gets one of a part's contributions, once, and no element is left out."""
        if not self.lives.settled(tensor) or any(tensor == one.statement.write.tensor for one in terms):
            return False
        missing = self.nest.tensor(tensor).elements(self.nest.params).intersect_params(self.nest.context)
        reached: list[isl.Set] = []
        for one in terms:
            where = one.access.map.intersect_domain(self.nest.domains[one.statement.name])
            here = where.range()
            if not where.is_injective() or not all(here.is_disjoint(other) for other in reached):
                return False
            reached.append(here)
            missing = missing.subtract(here)
        return bool(missing.is_empty())

    def _covers(self, one: _Contribution) -> bool:
        """True if the phases of a sum, which lie apart, have all elements of the adjoint."""
        s, tensor = one.statement, self.nest.tensor(one.access.tensor)
        numbers = any(not isinstance(symbol, Read) for symbol in s.body.free_symbols)
        if s.op != "+=" or numbers or any(a.tensor == s.write.tensor for a in s.reads):
            return False
        if not self.lives.settled(tensor.name) or tensor.name in self.layouts:
            return False
        domain = self.nest.domains[s.name]
        phases = [(here.domain, here.access(one.access)) for here in owned(domain, one.access.map)]
        elements = tensor.elements(self.nest.params).intersect_params(self.nest.context)
        reached = one.access.map.intersect_domain(domain).range()
        return all(lies_apart(*phase, self.nest) for phase in phases) and bool(elements.is_subset(reached))

    def _zeros(self, part: int) -> list[Tree]:
        """Adjoints whose first contributions are in a part begin at 0 before it."""
        found: list[Tree] = []
        for name, first in self.first.items():
            if first == part:
                domain = self.draft.elements(self.nest.tensor(name))
                target = self._adjoint(element(domain, name))
                found.append(self._alone(f"zero_{target.tensor}", domain, target, "=", [], ZERO))
        return found

    # -- adjoint statements -------------------------------------------------------------------------------------------

    def _backward(self, tree: Tree, outer: tuple[Loop, ...]) -> Tree | None:
        """The adjoint of a part of the nest's order: everything in reversed order."""
        if len(tree.names) == 1:
            s = self.nest.statement(tree.names[0])
            if not self._contributions(s) and not self._ends(s):
                return None
            if not self._reads_itself(s, outer):
                made = self._free(s, outer)
                if made is not None:
                    return sequence(tuple(made)) if made else None
        match tree:
            case Leaf(name):
                return self._in_order(self.nest.statement(name))
            case Siblings():
                found = [self._backward(child, outer) for child in reversed(tree.children)]
                inside = tuple(one for one in found if one is not None)
                return sequence(inside) if inside else None
            case Loop():
                body = self._backward(tree.body, (*outer, tree))
                return None if body is None else Loop(tree.name, self._dates(tree, body), body)

    def _dates(self, loop: Loop, body: Tree) -> tuple[tuple[str, isl.PwAff], ...]:
        """The loop's values, counted backwards."""
        found = []
        for name in body.names:
            source, instances = self.origins[name]
            domain = self.draft.statements[name].domain
            date = instances.date(loop.date(source)).neg().set_tuple_id(IN, domain.get_tuple_id())
            found.append((name, date.gist(domain)))
        return tuple(found)

    def _ends(self, s: Statement) -> bool:
        return s.write.tensor in self.active and self.lives.resets(s)

    def _free(self, s: Statement, outer: tuple[Loop, ...]) -> list[Tree] | None:
        """The adjoints of a statement alone in its loops: each in its own loops, by owners; None if order matters."""
        kept = [d for d in range(len(s.dims)) if any(self._is_loop_of(loop, s, d) for loop in outer)]
        share = None if s.op in ("=", "+=") else share_of(s, self.nest, self.draft)
        if self._overwrites_itself(s, outer):
            return None
        found: list[Tree] = [own_loops(one) for one in share.statements] if share is not None else []
        wanted = self._contributions(s)
        terms = {one.position: Term(one.access, *self._term(s, one.position, share)) for one in wanted}
        assigns = {one.position for one in wanted if (s.name, one.position) in self.assigned}
        sinking = {
            one.position
            for one in wanted
            if outer and one.position not in assigns and self._sinks(s, one, terms[one.position].accesses)
        }
        apart = {
            k: term
            for k, term in terms.items()
            if k not in assigns and (not outer or k in sinking) and term.target.tensor not in self.covered
        }
        shared = partial_sum(self.nest.domains[s.name], apart)
        if shared is not None:
            (self.sunk if outer else found).extend(self._multiples(s, shared, apart))
        alone = [k for k in terms if shared is None or k not in shared.multiples]
        for op, around, chosen in (
            ("=", kept, [k for k in alone if k in assigns]),
            ("+=", (), [k for k in alone if k in sinking]),
            ("+=", kept, [k for k in alone if k not in assigns and k not in sinking]),
        ):
            meeting = () if op == "=" else self._meeting(s, [terms[k].target for k in chosen])
            additions = [
                one
                for k in chosen
                for one in self._additions(s, terms[k], around, terms[k].target.tensor not in meeting)
            ]
            for one in gathered(additions, len(around)) if op == "+=" else additions:
                alone_in_loops = op == "+=" and (not outer or chosen[0] in sinking)
                if alone_in_loops and lies_apart(one.instances.domain, one.write, self.nest):
                    trees = self._phase(s, one)
                else:
                    made = self._added(s, op, one)
                    trees = [own_loops(made) if not around else own_loops(made, len(around))]
                (self.sunk if chosen[0] in sinking else found).extend(trees)
        if self._ends(s):
            here = same(self.nest.domains[s.name])
            made = self._reset(s)
            self._record(s, made, here)
            found.append(own_loops(made, 0, frozenset(kept)))
        return found

    def _added(self, s: Statement, op: str, one: Addition) -> Statement:
        """The statement of an addition."""
        made = self.draft.statement(
            f"{s.name}_to_{self._adjoint_of(one.write.tensor)}",
            one.instances.domain.gist_params(self.nest.context),
            one.write,
            op,
            one.accesses,
            one.body,
        )
        self._record(s, made, one.instances)
        return made

    def _phase(self, s: Statement, one: Addition) -> list[Tree]:
        """A phase of a stride, summed in an array of its own."""
        tensor = self._adjoint_of(one.write.tensor)
        phase = in_own_array(one, f"{tensor}_phase", self.nest, self.draft)
        domain = phase.terms.instances.domain.gist_params(self.nest.context)
        whole = element(phase.elements, phase.total)
        back = self._added(s, "=" if tensor in self.covered else "+=", phase.back)
        return [
            self._alone(f"zero_{phase.total}", phase.elements, whole, "=", [], ZERO),
            self._alone(f"{s.name}_phase", domain, phase.terms.write, "+=", phase.terms.accesses, one.body),
            own_loops(back),
        ]

    def _meeting(self, s: Statement, targets: Sequence[Access]) -> frozenset[str]:
        """The tensors that a statement reads an element of in several reads, which one gather adds up."""
        reached = [(a.tensor, a.map.intersect_domain(self.nest.domains[s.name]).range()) for a in targets]
        return frozenset(
            tensor
            for k, (tensor, here) in enumerate(reached)
            if any(tensor == other and not here.is_disjoint(there) for other, there in reached[:k])
        )

    def _additions(self, s: Statement, term: Term, kept: Sequence[int], moved: bool) -> list[Addition]:
        """What is added for one read, by owners of the elements; the loops that stay come first."""
        used = frozenset(symbol.name for symbol in term.body.free_symbols if not isinstance(symbol, Read))
        target = self._adjoint(term.target)
        if not term.target.map.intersect_domain(self.nest.domains[s.name]).is_injective():
            term = regrouped(term)
        return [
            Addition(here, here.element(target), tuple(map(here.access, term.accesses)), term.body)
            for here in owned(self.nest.domains[s.name], term.target.map, kept, used, moved)
        ]

    def _multiples(self, s: Statement, shared: PartialSum, terms: Mapping[int, Term]) -> list[Tree]:
        """A sum by the elements of a read, and the adjoints that are its multiples, each in loops of its own."""
        own, domain = terms[shared.position], self.nest.domains[s.name]
        tensor = self.nest.tensor(own.target.tensor)
        dtype = self.draft.tensors[self.bars[tensor.name]].dtype
        total = self.draft.tensor(f"{s.name}_part", tensor.shape, dtype, "temporary").name
        every = self.draft.elements(tensor)
        found = [self._alone(f"zero_{total}", every, element(every, total), "=", [], ZERO)]
        used = frozenset(symbol.name for symbol in shared.terms.free_symbols if not isinstance(symbol, Read))
        for here in owned(domain, own.target.map, (), used):
            accesses = [here.access(a) for a in own.accesses]
            where = here.domain.gist_params(self.nest.context)
            found.append(
                self._alone(
                    f"{s.name}_sum", where, here.access(onto(own.target, total)), "+=", accesses, shared.terms
                )
            )
        at = own.target.map.intersect_domain(domain)
        elements = Instances(_like(at.range().coalesce(), every), at.reverse())
        for position, factor in shared.multiples.items():
            term = terms[position]
            known = {leaf.position for leaf in reads_in(factor)}
            accesses = [elements.access(a) if k in known else a for k, a in enumerate(term.accesses)]
            target = elements.access(self._adjoint(term.target))
            name, body = f"{s.name}_to_{term.target.tensor}", mul(read(len(accesses)), factor)
            accesses.append(element(elements.domain, total))
            found.append(self._alone(name, elements.domain, target, "+=", accesses, body))
        return found

    def _reads_itself(self, s: Statement, outer: tuple[Loop, ...]) -> bool:
        """True if an instance reads what one in the same iteration of the loops around writes."""
        written = s.write.map.intersect_domain(self.nest.domains[s.name])
        return any(
            not self._in_one_iteration(s, outer, written.apply_range(a.map.reverse())).is_empty()
            for a in s.reads
            if a.tensor == s.write.tensor
        )

    @staticmethod
    def _in_one_iteration(s: Statement, outer: tuple[Loop, ...], pairs: isl.Map) -> isl.Map:
        for loop in outer:
            pairs = pairs.intersect(loop.date(s.name).eq_map(loop.date(s.name)))
        return pairs

    def _overwrites_itself(self, s: Statement, outer: tuple[Loop, ...]) -> bool:
        """True if two instances in one iteration of the loops around assign the same element."""
        if s.is_reduction:
            return False
        domain = self.nest.domains[s.name]
        twice = s.write.map.intersect_domain(domain)
        pairs = self._in_one_iteration(s, outer, twice.apply_range(twice.reverse()))
        return not pairs.is_subset(isl.Map.identity(pairs.get_space()))

    def _record(self, s: Statement, made: Statement, here: Instances) -> None:
        origin = here.origin.set_tuple_name(IN, made.name)
        self.origins[made.name] = (s.name, Instances(made.domain, origin))

    @staticmethod
    def _is_loop_of(loop: Loop, s: Statement, d: int) -> bool:
        return bool(loop.date(s.name).is_equal(dimension(s.domain, d)))

    def _sinks(self, s: Statement, one: _Contribution, accesses: Sequence[Access]) -> bool:
        """True if a term may wait until the loops around it are done: its sum is read by none of their statements,
        and nothing that it reads changes any more.
        """
        part = next(p for p in parts(self.nest.order) if s.name in p.members)
        written = {self.nest.statement(name).write.tensor for name in part.names}
        if one.access.tensor in written or not self.lives.settled(s.write.tensor):
            return False
        return all(
            a.tensor in self.draft.tensors or self.lives.survives(s.name, a.tensor)
            for a in accesses
            if a is not None
        )

    def _term(self, s: Statement, position: int, share: Share | None) -> tuple[list[Access], sympy.Basic]:
        """What a statement adds to the adjoint of one of its reads, and the accesses that its leaves are."""
        n = len(s.reads)
        accesses = [*s.reads, self._adjoint(s.write), s.write]
        seed: sympy.Expr = read(n)
        if share is not None:
            accesses += share.accesses
            seed = share.seed(s, n)
        body = pull(s.body, seed)[read(position)]
        if s.op == "=" and s.body.args and self.lives.is_last(s):
            body = substitute(body, {s.body: read(n + 1)})
        return self.stored.of(s, accesses, body), body

    def _reset(self, s: Statement) -> Statement:
        target = self._adjoint(s.write)
        return self.draft.statement(f"{s.name}_reset", s.domain, target, "=", [], ZERO)

    def _in_order(self, s: Statement) -> Tree | None:
        """The adjoints of a statement, instance by instance: v = T_bar[w]; T_bar[w] = 0; R_bar[r] += v * df/dR."""
        terms = self._contributions(s)
        own = [c for c in terms if c.access.tensor == s.write.tensor]
        target = self._adjoint(s.write)
        made: list[Statement] = []
        shared = any(meets(s, c.access.map, s.write.map) for c in own)
        if shared:
            dtype = computed_in(self.nest.tensor(s.write.tensor).dtype)
            value = self.draft.tensor(f"{s.name}_seed", (), dtype, "temporary").name
            everywhere = isl.Set.universe(s.domain.get_space())
            seed = Access(value, date_map(everywhere, []).set_tuple_name(OUT, value))
            made.append(self.draft.statement(f"{s.name}_take", s.domain, seed, "=", [target], read(0)))
        else:
            seed = target
        reset = self._ends(s) or (s.op == "=" and shared)
        if shared and reset:
            made.append(self._reset(s))
        for one in terms:
            op = "=" if (s.name, one.position) in self.assigned else "+="
            accesses, body = self._term(s, one.position, None)
            accesses[len(s.reads)] = seed
            bar = self._adjoint(one.access)
            made.append(
                self.draft.statement(f"{s.name}_to_{one.access.tensor}", s.domain, bar, op, accesses, body)
            )
        if reset and not shared:
            made.append(self._reset(s))
        for one_made in made:
            self._record(s, one_made, same(s.domain))
        return sequence(tuple(Leaf(one.name) for one in made)) if made else None

    def _alone(
        self,
        name: str,
        domain: isl.Set,
        write: Access,
        op: str,
        accesses: Sequence[Access],
        body: sympy.Basic,
    ) -> Tree:
        return own_loops(self.draft.statement(name, domain, write, op, accesses, body))

    # -- the ends -----------------------------------------------------------------------------------------------------

    def _gathers(self) -> list[Tree]:
        """table_bar[v, k] += where(index[i] == v, rows_bar[i, k], 0) for the rows of a table.

        The loop over v is around the row's numbers: of its iterations only the one that the index names is run
        (`polyfuse.ir.masks`).
        """
        found = self._zeros(-1)
        for tensor in self.nest.with_role("gathered"):
            if tensor.name not in self.active or tensor.gather is None:
                continue
            table, index = self.nest.tensor(tensor.gather.table), self.nest.tensor(tensor.gather.index)
            names = [f"i{d}" for d in range(index.rank)]
            inner = [f"k{d}" for d in range(table.rank - 1)]
            params = ", ".join(self.nest.params)
            dims = [*names, "v", *inner]
            bounds = zip(dims, (*index.shape, *table.shape), strict=True)
            where = " and ".join(f"0 <= {d} < {size}" for d, size in bounds)
            domain = isl.Set(f"[{params}] -> {{ S[{', '.join(dims)}] : {where} }}")

            def at(name: str, dims: Sequence[str], domain: isl.Set = domain, params: str = params) -> Access:
                every = ", ".join(dim_names(domain))
                return Access(name, isl.Map(f"[{params}] -> {{ S[{every}] -> {name}[{', '.join(dims)}] }}"))

            limits = self.draft.tensors.get(index.name, index).below
            self.draft.tensors[index.name] = replace(index, below=(*limits, table.shape[0]))
            body = Select(sympy.Eq(read(0), sympy.Symbol("v"), evaluate=False), read(1), number(0))
            accesses = [at(index.name, names), at(self.bars[tensor.name], [*names, *inner])]
            write = at(self.bars[table.name], ["v", *inner])
            found.append(self._alone(f"rows_to_{table.name}", domain, write, "+=", accesses, body))
        return found

    def _gradients(self) -> tuple[dict[str, str], list[Tree]]:
        """An output for each gradient that is not an adjoint itself: 0 for what is inactive, and halves rounded."""
        named: dict[str, str] = {}
        end: list[Tree] = []
        for name in self.wrt:
            tensor = self.nest.tensor(name)
            bar = self.bars.get(name)
            if bar is not None and self.draft.tensors[bar].role == "output":
                named[name] = bar
                continue
            made = self.draft.tensor(f"{name}_grad", tensor.shape, tensor.dtype, "output")
            named[name] = made.name
            domain = self.draft.elements(tensor)
            source, body = ([], ZERO) if bar is None else ([self._adjoint(element(domain, name))], read(0))
            end.append(self._alone(f"end_{name}", domain, element(domain, made.name), "=", source, body))
        return named, end

    def _assembled(
        self, cotangents: Mapping[str, str], gradients: Mapping[str, str], backward: Sequence[Tree]
    ) -> Reversed:
        """The statements that are needed, and their tensors in the order of a call."""
        wanted = {name: self.last[name] for name in self.values}
        forward_tree = self._forward()
        made = assembled(
            self.whole,
            {**{s.name: s for s in self.whole.statements}, **self._statements()},
            self.draft.tensors,
            sequence((forward_tree, *self._outside(backward))),
            list(cotangents.values()),
            [*wanted.values(), *gradients.values()],
            f"{self.nest.name}_{'grad' if self.seeded else 'vjp'}",
        )
        zero = tuple(name for name in self.wrt if name not in self.bars)
        forward = frozenset(forward_tree.names) & frozenset(s.name for s in made.statements)
        passes = Passes(made, forward)
        made = recomputed(passes, numbers_alone(passes))
        stored = (*self.stored.texts, *(self.replay.texts if self.replay else ()))
        cut = self.replay.cut(self.stored) if self.replay else None
        return Reversed(made, gradients, cotangents, wanted, stored, zero, forward, cut)

    def _forward(self) -> Tree:
        """The forward pass: statements with the copies that they need, and a loop in segments with its checkpoints."""
        found = [
            self.replay.forward()
            if self.replay is not None and self._is_cut(position)
            else with_copies(part, self.stored.copies)
            for position, part in enumerate(parts(self.whole.order))
        ]
        return sequence(tuple(found))

    def _outside(self, trees: Sequence[Tree]) -> list[Tree]:
        """The parts of the backward pass, those outside of a loop in segments without the number of a segment."""
        if self.replay is None:
            return list(trees)
        number = self.replay.segments.number
        return [order_without_number(tree, number) for tree in trees]

    def _statements(self) -> dict[str, Statement]:
        """The statements that were made, those outside of a loop in segments without the number of a segment."""
        if self.replay is None:
            return self.draft.statements
        number = self.replay.segments.number
        return {name: without_number(s, number) for name, s in self.draft.statements.items()}


def _like(domain: isl.Set, other: isl.Set) -> isl.Set:
    """A set with the names of another one's dimensions."""
    for d, name in enumerate(dim_names(other)):
        domain = domain.set_dim_name(SET, d, name)
    return domain


def _with_axes(access: isl.Map, layout: Order) -> isl.Map:
    """An access to an array whose axes are those of another one in some order."""
    subscripts = isl.PwMultiAff.from_map(access)
    places = [subscripts.get_pw_aff(axis) for axis in layout]
    everywhere = isl.Set.universe(access.domain().get_space())
    return date_map(everywhere, places).set_tuple_name(OUT, access.get_tuple_name(OUT))
