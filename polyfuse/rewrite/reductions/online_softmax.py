"""Online softmax: accumulate sums of exponentials block by block, before the maximum is known.

    for k: m = max(m, a[k])                     for block:
    for k: l += exp(a[k] - m)           ->          old = m
    for k: o += exp(a[k] - m) * v[k]                for k in block: m = max(m, a[k])
                                                    l = l * exp(old - m);  o = o * exp(old - m)
                                                    for k in block: l += exp(a[k] - m)
                                                    for k in block: o += exp(a[k] - m) * v[k]

After a block, l is Σ exp(a[k] - m) over the blocks so far, m the maximum over them: exp(x - old) · exp(old - m) is
exp(x - m), for any x. So after the last block all is as before, up to the rounding of one product a block; and a block
of `a` may be computed, used and forgotten (Milakov & Gimelshein, "Online normalizer calculation for softmax", 2018;
attention in one kernel, Dao et al., 2022). The maximum starts from the lowest finite number instead of -inf, so that a
block that is -inf throughout (a mask) leaves the sums as they are.

Statements that make `a` for the blocks alone (attention's scores) run in them too, each instance in the block of the
values that it goes into. Which of the others run before the blocks and which after them follows from the dependences;
that every other dependence keeps its order is checked, and a refusal shows the two instances that would not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import islpy as isl
import numpy as np
import sympy

from polyfuse.errors import IllegalRewrite
from polyfuse.errors.proving import proving
from polyfuse.ir import Access, Nest, Statement, Tensor
from polyfuse.ir.dependences import Pairs
from polyfuse.ir.fresh_names import fresh
from polyfuse.ir.nest import own_loops
from polyfuse.ir.scalar import add, mul, neg, number, read
from polyfuse.ir.tree import Loop, Sequence, Tree, date_map, loops, restrict, sequence, statements
from polyfuse.rewrite.recorded import recorded
from polyfuse.rewrite.reductions.factor_out import elements_of
from polyfuse.rewrite.reductions.maximum_producers import feeding
from polyfuse.rewrite.reductions.under_maximum import Found, found_under
from polyfuse.rewrite.refusal import refused
from polyfuse.sets import OUT, SET, dimension, maps_of


@dataclass(frozen=True)
class Online:
    """The result of `online`.

    Attributes:
        nest: The new nest.
        maximum: The statement that computes the maximum.
        sums: The sums that are rescaled.
        block: Elements per block.
        loop: The loop over blocks.
        corrections: The statements that rescale.
    """

    nest: Nest
    maximum: str
    sums: tuple[str, ...]
    block: int
    loop: str
    corrections: tuple[str, ...]

    def __str__(self) -> str:
        return (
            f"{self.maximum} and {', '.join(self.sums)} run in blocks of {self.block}; "
            f"{', '.join(self.corrections)} correct the sums where the maximum grew"
        )


@recorded("online")
@proving("the rewrite online")
def online(nest: Nest, maximum: str, block: int) -> Online:
    """Compute a maximum and the sums of exponentials under it in one pass over blocks.

    M: m max= a;  E: e = exp(a - m);  L: l += e   ->   for block: { M; l *= exp(old - m); E; L }

    Milakov and Gimelshein, Online normalizer calculation for softmax (2018).

    Args:
        nest: The nest.
        maximum: The statement that computes the maximum; the statements that depend on it are found.
        block: Elements per block.

    Returns:
        The new nest.

    Raises:
        IllegalRewrite: with the reason, if a value needs the exponentials under the final maximum, or the order is
            illegal.
    """
    call = f"online({maximum!r}, {block})"
    if block < 1:
        raise IllegalRewrite(refused(call, f"a block has {block} values", "at least 1 value"))
    if nest.domains[nest.statement(maximum).name].is_empty():
        raise IllegalRewrite(refused(call, f"{maximum} never runs", "a maximum of at least one value"))
    found = found_under(nest, maximum, call)
    fed = feeding(nest, found)
    group = frozenset((*found.names, *fed))
    after = _reached(nest, group)
    before = frozenset(statements(nest.order)) - group - after
    made = _Blocks(nest, found, fed, block)
    run = (restrict(nest.order, before), made.order(), restrict(nest.order, after))
    order = sequence(tuple(part for part in run if part is not None))
    result = replace(nest, tensors=made.tensors(), statements=made.statements(statements(order)), order=order)
    late = _too_late(nest, result, group, maximum)
    if late is not None:
        why = f"{late.source} would run after {late.sink}, which has to come later"
        raise IllegalRewrite(refused(call, why, "sums that depend on no other value of the blocks", late.map))
    result.check()
    sums = tuple(s.name for s in found.sums)
    return Online(result, maximum, sums, block, made.loop, tuple(s.name for s in made.corrections))


def _reached(nest: Nest, group: frozenset[str]) -> frozenset[str]:
    """The other statements that depend on some, directly or not."""
    reached = group
    while True:
        more = {pair.sink for pair in nest.dependences().pairs if pair.source in reached}
        if more <= reached:
            return reached - group
        reached |= more


def _too_late(before: Nest, after: Nest, group: frozenset[str], maximum: str) -> Pairs | None:
    """A dependence of the nest that the new order breaks, but for the flow from the maximum, which is the theorem's."""
    dates = after.original_dates()
    for pair in before.dependences().pairs:
        known = pair.kind == "flow" and pair.source == maximum and pair.sink in group
        if known or pair.kind == "reduction":
            continue
        first = dates.intersect_domain(isl.UnionSet.from_set(before.domains[pair.source]))
        second = dates.intersect_domain(isl.UnionSet.from_set(before.domains[pair.sink]))
        broken = isl.UnionMap.from_map(pair.map).subtract(first.lex_lt_union_map(second))
        if not broken.is_empty():
            return Pairs(pair.kind, pair.source, pair.sink, maps_of(broken)[0])
    return None


class _Blocks:
    """The statements of one rewrite, as they become."""

    def __init__(self, nest: Nest, found: Found, fed: Mapping[str, isl.PwAff], block: int) -> None:
        self.nest, self.found, self.fed, self.size = nest, found, fed, block
        names = {s.name for s in nest.statements}
        self.dates = {**fed, **found.dates}
        self.block = {name: _block_of(date, block) for name, date in self.dates.items()}
        self.loop = fresh(f"{found.dimension}_block", {x.name for x in loops(nest.order)})
        self.maximum = nest.tensor(found.maximum.write.tensor)
        self.old = replace(
            self.maximum, name=fresh(f"{self.maximum.name}_old", {t.name for t in nest.tensors})
        )
        self.keep = self._keep(fresh(f"{found.maximum.name}_old", names))
        self.corrections = tuple(self._correction(s, fresh(f"{s.name}_correct", names)) for s in found.sums)

    def tensors(self) -> tuple[Tensor, ...]:
        return (*self.nest.tensors, self.old)

    def statements(self, names: tuple[str, ...]) -> tuple[Statement, ...]:
        lowest = number(float(np.finfo(self.maximum.dtype).min))
        first = self.found.first
        same = (replace(s, body=lowest) if s is first else s for s in self.nest.statements)
        every = {s.name: s for s in (*same, self.keep, *self.corrections)}
        return tuple(every[name] for name in names)

    def order(self) -> Tree:
        """for block: { what makes a; old = m; m max= …; corrections; exponentials and sums as they stood }"""
        inside = restrict(self.nest.order, frozenset(self.found.names) - {self.found.maximum.name})
        assert inside is not None, "there are sums"
        first = restrict(self.nest.order, frozenset(self.fed))
        body: list[Tree] = [
            *(self._in_block(self.nest.statement(name)) for name in (statements(first) if first else ())),
            _inner_loops(self.keep),
            self._in_block(self.found.maximum),
            *(_inner_loops(s) for s in self.corrections),
            *(self._in_block(self.nest.statement(name)) for name in statements(inside)),
        ]
        added = {s.name: dimension(s.domain, 0) for s in (self.keep, *self.corrections)}
        dates = {**self.block, **added}
        whole = Sequence(tuple(body))
        return Loop(self.loop, tuple((n, dates[n]) for n in statements(whole)), whole)

    def _in_block(self, s: Statement) -> Tree:
        """A statement's loops inside the loop over blocks: its place in the block in the place of k itself."""
        return _inside_blocks(s, self.dates[s.name], self.size)

    def _keep(self, name: str) -> Statement:
        """old[r] = m[r], at the beginning of every block but the first."""
        domain = self._each_block(elements_of(self.found.maximum, name))
        element = _element(domain)
        write = Access(self.old.name, element.set_tuple_name(OUT, self.old.name))
        source = Access(self.maximum.name, element.set_tuple_name(OUT, self.maximum.name))
        return Statement(name, domain, write, "=", (source,), read(0))

    def _correction(self, s: Statement, name: str) -> Statement:
        """l[e] = l[e] * exp(old[r] - m[r]), where l[e] is a sum under m[r]."""
        domain = self._each_block(elements_of(s, name))
        element = _element(domain)
        own = Access(s.write.tensor, element.set_tuple_name(OUT, s.write.tensor))
        under = element.set_tuple_name(OUT, s.write.tensor).apply_range(self.found.under[s.name])
        old = Access(self.old.name, under.set_tuple_name(OUT, self.old.name))
        new = Access(self.maximum.name, under)
        factor = sympy.exp(add(read(1), neg(read(2))), evaluate=False)
        return Statement(name, domain, own, "=", (own, old, new), mul(read(0), factor))

    def _each_block(self, elements: isl.Set) -> isl.Set:
        """{ name[e] } for every block but the first: { name[block, e] }."""
        values = self.found.maximum.domain.apply(
            date_map(self.found.maximum.domain, [self.block[self.found.maximum.name]])
        )
        later = values.subtract(values.lexmin())
        name = elements.get_tuple_name()
        together = later.reset_tuple_id().flat_product(elements.reset_tuple_id()).set_tuple_name(name)
        together = together.set_dim_name(SET, 0, self.loop)
        for d in range(elements.dim(SET)):
            together = together.set_dim_name(SET, d + 1, elements.get_dim_name(SET, d))
        return together.coalesce()


def _inside_blocks(s: Statement, date: isl.PwAff, size: int) -> Tree:
    """for i: for k: S   ->   for i: for k mod size: S, where `date` gives k."""

    def moved(tree: Tree) -> Tree:
        if not isinstance(tree, Loop):
            return tree
        ((name, own),) = tree.dates
        own = own.mod_val(isl.Val(size)) if own.is_equal(date) else own
        return replace(tree, dates=((name, own),), body=moved(tree.body))

    return moved(own_loops(s))


def _block_of(date: isl.PwAff, block: int) -> isl.PwAff:
    """floor(k / block)."""
    return date.scale_down_val(isl.Val(block)).floor()


def _element(domain: isl.Set) -> isl.Map:
    """{ name[block, e] -> [e] }."""
    return isl.Map.identity(domain.get_space().map_from_set()).project_out(OUT, 0, 1).reset_tuple_id(OUT)


def _inner_loops(s: Statement) -> Tree:
    """A statement's loops inside the loop over blocks, which is its first dimension."""
    whole = own_loops(s)
    assert isinstance(whole, Loop), "blocks are its first dimension"
    return whole.body
