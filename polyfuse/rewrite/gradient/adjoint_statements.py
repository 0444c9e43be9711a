"""The adjoint of each statement, in reversed order.

    alone in its loops     each term in loops of its own, by the owners of the elements that it adds to
    otherwise              instance by instance: v = T_bar[w]; T_bar[w] = 0; R_bar[r] += v * df/dR

A statement stays in order where an instance reads or overwrites what another one in the same loops wrote. Terms of
sums that nothing in the loops around reads wait until these loops are done.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import islpy as isl
import sympy

from polyfuse.ir import Access, Nest, Statement
from polyfuse.ir.nest import own_loops
from polyfuse.ir.number_types import computed_in
from polyfuse.ir.scalar import Read, mul, read, reads_in, substitute
from polyfuse.ir.tree import Leaf, Loop, Tree, date_map, parts, sequence
from polyfuse.ir.tree import Sequence as Siblings
from polyfuse.rewrite.gradient.adjoint_bodies import pull
from polyfuse.rewrite.gradient.adjoint_tensors import ZERO, AdjointTensors, Contribution
from polyfuse.rewrite.gradient.draft import Draft, element, onto
from polyfuse.rewrite.gradient.gathers import Addition, gathered
from polyfuse.rewrite.gradient.lifetimes import Lifetimes, meets
from polyfuse.rewrite.gradient.owners import Instances, owned, same
from polyfuse.rewrite.gradient.partial_sums import PartialSum, Term, partial_sum, regrouped
from polyfuse.rewrite.gradient.phases import in_own_array, lies_apart
from polyfuse.rewrite.gradient.shares import Share, share_of
from polyfuse.rewrite.gradient.stored import Stored
from polyfuse.sets import IN, OUT, SET, dim_names, dimension


class AdjointStatements:
    """The adjoints of a nest's statements as they are made.

    Attributes:
        origins: For each adjoint statement, the statement that it is of, and its instances.
        sunk: Terms that wait until the loops around them are done.
        remarks: For each statement how its adjoints find the elements that they add to.
    """

    def __init__(
        self, nest: Nest, draft: Draft, lives: Lifetimes, stored: Stored, adjoints: AdjointTensors
    ) -> None:
        """Statements of the draft that add to these adjoints, from values that `stored` keeps where they are lost."""
        self.nest, self.draft, self.lives, self.stored, self.adjoints = nest, draft, lives, stored, adjoints
        self.origins: dict[str, tuple[str, Instances]] = {}
        self.sunk: list[Tree] = []
        self.remarks: list[str] = []

    def of(self, tree: Tree, outer: tuple[Loop, ...]) -> Tree | None:
        """The adjoint of a part of the nest's order: everything in reversed order."""
        if len(tree.names) == 1:
            s = self.nest.statement(tree.names[0])
            if not self.adjoints.contributions(s) and not self._ends(s):
                return None
            if not self._reads_itself(s, outer):
                made = self._free(s, outer)
                if made is not None:
                    self.remarks += self._owners(s)
                    return sequence(tuple(made)) if made else None
        match tree:
            case Leaf(name):
                self.remarks.append(
                    f"{name}: it reads or overwrites what it wrote in the same loops, so its adjoints run instance by "
                    "instance, in reversed order"
                )
                return self._in_order(self.nest.statement(name))
            case Siblings():
                found = [self.of(child, outer) for child in reversed(tree.children)]
                inside = tuple(one for one in found if one is not None)
                return sequence(inside) if inside else None
            case Loop():
                body = self.of(tree.body, (*outer, tree))
                return None if body is None else Loop(tree.name, self._dates(tree, body), body)

    def _owners(self, s: Statement) -> list[str]:
        """A line for a statement whose adjoints are added up by the owners of the elements."""
        reached = dict.fromkeys(
            self.adjoints.bars[one.access.tensor] for one in self.adjoints.contributions(s)
        )
        if not reached:
            return []
        return [
            f"{s.name}: each element of {', '.join(reached)} is owned by an iteration that meets all its terms"
        ]

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
        return s.write.tensor in self.adjoints.active and self.lives.resets(s)

    def _free(self, s: Statement, outer: tuple[Loop, ...]) -> list[Tree] | None:
        """The adjoints of a statement alone in its loops: each in its own loops, by owners; None if order matters."""
        kept = [d for d in range(len(s.dims)) if any(self._is_loop_of(loop, s, d) for loop in outer)]
        share = None if s.op in ("=", "+=") else share_of(s, self.nest, self.draft)
        if self._overwrites_itself(s, outer):
            return None
        found: list[Tree] = [own_loops(one) for one in share.statements] if share is not None else []
        wanted = self.adjoints.contributions(s)
        terms = {one.position: Term(one.access, *self._term(s, one.position, share)) for one in wanted}
        assigns = {one.position for one in wanted if (s.name, one.position) in self.adjoints.assigned}
        sinking = {
            one.position
            for one in wanted
            if outer and one.position not in assigns and self._sinks(s, one, terms[one.position].accesses)
        }
        apart = {
            k: term
            for k, term in terms.items()
            if k not in assigns
            and (not outer or k in sinking)
            and term.target.tensor not in self.adjoints.covered
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
            f"{s.name}_to_{self.adjoints.tensor_of(one.write.tensor)}",
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
        tensor = self.adjoints.tensor_of(one.write.tensor)
        phase = in_own_array(one, f"{tensor}_phase", self.nest, self.draft)
        domain = phase.terms.instances.domain.gist_params(self.nest.context)
        whole = element(phase.elements, phase.total)
        back = self._added(s, "=" if tensor in self.adjoints.covered else "+=", phase.back)
        return [
            self.draft.alone(f"zero_{phase.total}", phase.elements, whole, "=", [], ZERO),
            self.draft.alone(
                f"{s.name}_phase", domain, phase.terms.write, "+=", phase.terms.accesses, one.body
            ),
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
        """The additions for one read, by owners of the elements; the loops that stay come first."""
        used = frozenset(symbol.name for symbol in term.body.free_symbols if not isinstance(symbol, Read))
        target = self.adjoints.of(term.target)
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
        dtype = self.draft.tensors[self.adjoints.bars[tensor.name]].dtype
        total = self.draft.tensor(f"{s.name}_part", tensor.shape, dtype, "temporary").name
        every = self.draft.elements(tensor)
        found = [self.draft.alone(f"zero_{total}", every, element(every, total), "=", [], ZERO)]
        used = frozenset(symbol.name for symbol in shared.terms.free_symbols if not isinstance(symbol, Read))
        for here in owned(domain, own.target.map, (), used):
            accesses = [here.access(a) for a in own.accesses]
            where = here.domain.gist_params(self.nest.context)
            found.append(
                self.draft.alone(
                    f"{s.name}_sum", where, here.access(onto(own.target, total)), "+=", accesses, shared.terms
                )
            )
        at = own.target.map.intersect_domain(domain)
        elements = Instances(_like(at.range().coalesce(), every), at.reverse())
        for position, factor in shared.multiples.items():
            term = terms[position]
            known = {leaf.position for leaf in reads_in(factor)}
            accesses = [elements.access(a) if k in known else a for k, a in enumerate(term.accesses)]
            target = elements.access(self.adjoints.of(term.target))
            name, body = f"{s.name}_to_{term.target.tensor}", mul(read(len(accesses)), factor)
            accesses.append(element(elements.domain, total))
            found.append(self.draft.alone(name, elements.domain, target, "+=", accesses, body))
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
        """True if a loop counts a dimension, up or down: each iteration is one value of it."""
        date, dim = loop.date(s.name), dimension(s.domain, d)
        return bool(date.sub(dim).is_cst() or date.add(dim).is_cst())

    def _sinks(self, s: Statement, one: Contribution, accesses: Sequence[Access]) -> bool:
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
        """The term that a statement adds to the adjoint of one of its reads, and the accesses that its leaves are."""
        n = len(s.reads)
        accesses = [*s.reads, self.adjoints.of(s.write), s.write]
        seed: sympy.Expr = read(n)
        if share is not None:
            accesses += share.accesses
            seed = share.seed(s, n)
        body = pull(s.body, seed)[read(position)]
        if s.op == "=" and s.body.args and self.lives.is_last(s):
            body = substitute(body, {s.body: read(n + 1)})
        return self.stored.of(s, accesses, body), body

    def _reset(self, s: Statement) -> Statement:
        target = self.adjoints.of(s.write)
        return self.draft.statement(f"{s.name}_reset", s.domain, target, "=", [], ZERO)

    def _in_order(self, s: Statement) -> Tree | None:
        """The adjoints of a statement, instance by instance: v = T_bar[w]; T_bar[w] = 0; R_bar[r] += v * df/dR."""
        terms = self.adjoints.contributions(s)
        own = [c for c in terms if c.access.tensor == s.write.tensor]
        target = self.adjoints.of(s.write)
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
            op = "=" if (s.name, one.position) in self.adjoints.assigned else "+="
            accesses, body = self._term(s, one.position, None)
            accesses[len(s.reads)] = seed
            bar = self.adjoints.of(one.access)
            made.append(
                self.draft.statement(f"{s.name}_to_{one.access.tensor}", s.domain, bar, op, accesses, body)
            )
        if reset and not shared:
            made.append(self._reset(s))
        for one_made in made:
            self._record(s, one_made, same(s.domain))
        return sequence(tuple(Leaf(one.name) for one in made)) if made else None


def _like(domain: isl.Set, other: isl.Set) -> isl.Set:
    """A set with the names of another one's dimensions."""
    for d, name in enumerate(dim_names(other)):
        domain = domain.set_dim_name(SET, d, name)
    return domain
