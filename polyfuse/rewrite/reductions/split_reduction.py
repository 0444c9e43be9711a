"""Split reductions: compute partial results, which may run in parallel, and then combine them.

    for i: s += x[i]       ->      for b: p[b] = 0
                                   for b: for i < 4096: p[b] += x[4096 b + i]
                                   for b: s += p[b]

A reduction's operator is declared associative and commutative, with a neutral value. So the values of one total may be
combined in groups, the groups' totals in any order, and each group may start from the neutral value. Which group a
value belongs to is the dimension's value divided by a size (consecutive values), or modulo a number of parts, or which
of equal shares of all work it lies in (stream-k, stream_k.py): any quasi-affine function would do.
Partial totals are a temporary: what they take is in the memory plan, and nothing comes back to the host.

The result is checked on its exact flow: partial totals read what the reduction read, every one of them reaches the
total of its own element once, and the total reaches what it reached.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import islpy as isl

from polyfuse.errors import IllegalRewrite, ValidationFailure
from polyfuse.errors.proving import proving
from polyfuse.errors.refusals import Refusal
from polyfuse.ir import Access, Nest, Statement, Tensor
from polyfuse.ir import tree as trees
from polyfuse.ir.fresh_names import fresh
from polyfuse.ir.nest import own_loops
from polyfuse.ir.scalar import neutral, read
from polyfuse.ir.sizes import extent_text
from polyfuse.rewrite.recorded import recorded
from polyfuse.rewrite.reductions.stream_k import Dealt, dealt
from polyfuse.rewrite.refusal import refused
from polyfuse.rewrite.shares import Shares
from polyfuse.sets import IN, OUT, SET, dim_names, dimension, on_domain, union_map


@dataclass(frozen=True)
class SplitReduction:
    """The result of `split_reduction`: `partial` fills `tensor`, and the statement itself adds that up.

    Attributes:
        nest: The new nest.
        statement: The statement that adds up the partial results.
        partial: The statement that computes them.
        tensor: The temporary that holds them.
        parts: The largest number of parts of one result.
        dealt: The numbers of chunks of a tile and of a share; None without `shares`.
    """

    nest: Nest
    statement: str
    partial: str
    tensor: str
    parts: int | str
    dealt: Dealt | None = None

    def __str__(self) -> str:
        most = "" if self.dealt is None else "up to "
        found = f"{self.statement} combines {most}{self.parts} partial results ({self.tensor})"
        return f"{found}, which {self.partial} computes{'' if self.dealt is None else f': {self.dealt}'}"


@recorded("split_reduction")
@proving("the rewrite split_reduction")
def split_reduction(
    nest: Nest,
    statement: str,
    dim: str,
    *,
    size: int | None = None,
    parts: int | None = None,
    shares: Shares | None = None,
) -> SplitReduction:
    """Split a reduction into partial results that a second pass adds up (Halide's rfactor).

    for i: s += x[i]  ->  for b: p[b] = 0;  for b: for i: p[b] += x[…];  for b: s += p[b]

    One of `size`, `parts` and `shares` is given.

    Args:
        nest: The nest.
        statement: The statement that reduces.
        dim: The dimension to split.
        size: Consecutive values of the dimension per part, x[size * b + i]. A part of one value has no inner loop.
        parts: The number of parts; part b takes the values b, b + parts, …, so that neighbouring parts read neighbours.
        shares: Cut the work on all results, tile by tile, into equal shares (stream-k); part b of a result lies in the
            b-th share that has some of it.

    Returns:
        The new nest.

    Raises:
        IllegalRewrite: if `why_not_split_reduction` returns a reason.
        ValidationFailure: if the result's flow differs from the nest's: a compiler bug.
    """
    why = why_not_split_reduction(nest, statement, dim, size=size, parts=parts, shares=shares)
    if why is not None:
        raise IllegalRewrite(why)
    s = nest.statement(statement)
    found = None if shares is None else dealt(nest, s, s.dims.index(dim), shares)
    assert not isinstance(found, str), "asked before"
    made = _Split(nest, s, s.dims.index(dim), size, parts, found)
    count = made.count
    assert count is not None, "asked before"
    return SplitReduction(made.checked(), statement, made.partial, made.tensor, count, found)


@proving("the question why_not_split_reduction")
def why_not_split_reduction(
    nest: Nest,
    statement: str,
    dim: str,
    *,
    size: int | None = None,
    parts: int | None = None,
    shares: Shares | None = None,
) -> Refusal | None:
    """Return the reason why a reduction cannot be split along a dimension.

    Args:
        nest: The nest.
        statement: The statement that reduces.
        dim: The dimension to split.
        size: As for `split_reduction`.
        parts: As for `split_reduction`.
        shares: As for `split_reduction`.

    Returns:
        The reason; None if the rewrite is legal.
    """
    s = nest.statement(statement)
    ways = {"size": size, "parts": parts, "shares": shares}
    given = {name: way for name, way in ways.items() if way is not None}
    call = f"split_reduction({statement!r}, {dim!r}, {', '.join(f'{name}={way}' for name, way in given.items())})"
    if len(given) != 1 or any(isinstance(number, int) and number < 1 for number in given.values()):
        return refused(call, "size, parts and shares exclude each other", "exactly one of them, at least 1")
    if not s.is_reduction:
        return refused(call, f"{statement} assigns, it does not accumulate", "a reduction")
    if dim not in s.dims:
        return refused(call, f"{statement} has the dimensions {', '.join(s.dims)}", "one of these")
    at = s.dims.index(dim)
    if any(access.tensor == s.write.tensor for access in s.reads):
        why = f"{statement} reads {s.write.tensor}, which it accumulates"
        return refused(call, why, "values that do not change meanwhile")
    subscripts = s.write.subscripts()
    if any(subscripts.get_pw_aff(d).involves_dims(IN, at, 1) for d in range(s.write.map.dim(OUT))):
        return refused(call, f"each value of {dim} has its own result", "a reduced dimension")
    if dim in {symbol.name for symbol in s.body.free_symbols}:
        return refused(
            call,
            f"the value of {statement} depends on its index",
            "a value of tensors, numbers and other indices",
        )
    if not any(trees.statements(part) == (statement,) for part in trees.parts(nest.order)):
        return refused(
            call, f"{statement} shares its loops with other statements", "a statement with loops of its own"
        )
    value = dimension(s.domain, at)
    negative = nest.domains[statement].intersect(value.lt_set(value.sub(value)))
    if not negative.is_empty():
        return refused(call, f"{dim} has values below 0", "values from 0")
    found = None if shares is None else dealt(nest, s, at, shares)
    if isinstance(found, str):
        return refused(call, found, "size= or parts=, or tiles and sizes that give equal shares")
    if _Split(nest, s, at, size, parts, found).count is None:
        return refused(call, "the number of parts is not affine in the sizes", "parts=, which is a number")
    return None


@dataclass(frozen=True)
class _Split:
    """One reduction on its way into two; `at` is the dimension that is cut."""

    nest: Nest
    s: Statement
    at: int
    size: int | None
    parts: int | None
    dealt: Dealt | None

    @cached_property
    def partial(self) -> str:
        """The name of what computes the partial results."""
        return fresh(f"part_{self.s.name}", {s.name for s in self.nest.statements})

    @cached_property
    def first(self) -> str:
        """The name of what sets their first values."""
        return fresh(f"init_part_{self.s.name}", {s.name for s in self.nest.statements})

    @cached_property
    def tensor(self) -> str:
        """The name of the tensor that holds them."""
        return fresh(f"{self.s.write.tensor}_parts", {t.name for t in self.nest.tensors})

    @cached_property
    def origin(self) -> isl.Map:
        """{ part_S[b, t] -> S[size * b + t] }, or { part_S[b, t] -> S[parts * t + b] }, limited to the domain.

        { part_S[b] -> S[b] } for parts of one value each; with shares { part_S[b, t] -> S[t] }, b the part t lies in.
        """
        dims, params = [f"d{d}" for d in range(len(self.s.dims))], ", ".join(self.nest.params)
        inside = dims[self.at]
        where = list(dims)
        if self.dealt is not None:
            bound = f"b = {self.dealt.part}"
        elif self.size == 1:
            where[self.at], bound = "b", "b >= 0"
        elif self.size is not None:
            where[self.at], bound = f"{self.size}b + {inside}", f"0 <= {inside} < {self.size}"
        else:
            where[self.at], bound = f"{self.parts}{inside} + b", f"0 <= b < {self.parts} and {inside} >= 0"
        moved = f"{self.partial}[{', '.join(('b', *self._own(dims)))}] -> {self.s.name}[{', '.join(where)}] : {bound}"
        return isl.Map(f"[{params}] -> {{ {moved} }}").intersect_range(self.nest.domains[self.s.name])

    def _own(self, dims: Sequence[str]) -> tuple[str, ...]:
        """The dimensions of a part besides its number: the one that is cut is the number where parts have one value."""
        return tuple(dim for d, dim in enumerate(dims) if self.size != 1 or d != self.at)

    @cached_property
    def axes(self) -> tuple[int, ...]:
        """The axes of the total on which its elements differ: partial results have no others."""
        elements = self.s.write.map.range()
        every = range(elements.dim(SET))
        return tuple(d for d in every if not elements.plain_get_val_if_fixed(SET, d).is_int())

    @cached_property
    def placed(self) -> isl.Map:
        """{ part_S[b, t] -> p[b, e] }: where each value is added."""
        element = self.origin.apply_range(self.s.write.map)
        for axis in self._elsewhere():
            element = element.project_out(OUT, axis, 1)
        number_of = isl.Map.from_pw_aff(dimension(self.origin.domain(), 0))
        both = number_of.intersect_domain(self.origin.domain()).flat_range_product(element)
        return both.set_tuple_name(OUT, self.tensor)

    def _elsewhere(self) -> Iterator[int]:
        """The total's other axes, the last one first."""
        return (d for d in reversed(range(self.s.write.map.dim(OUT))) if d not in self.axes)

    @cached_property
    def count(self) -> int | str | None:
        """The number of parts; None if it is not affine in the sizes."""
        if self.parts is not None:
            return self.parts
        most = self.placed.range().dim_max(0).add_constant_val(isl.Val(1))
        return extent_text(most.gist(self.nest.context))

    def checked(self) -> Nest:
        """The nest after, if its flow is what the nest's says."""
        after = self._after()
        expected, found = self._expected(), after.dependences().flow
        if not found.is_equal(expected):
            raise ValidationFailure(f"splitting {self.s.name} changed the flow: {expected} became {found}")
        after.check()
        return after

    def _after(self) -> Nest:
        s, target = self.s, self.nest.tensor(self.s.write.tensor)
        assert self.count is not None, "asked before"
        shape = (self.count, *(target.shape[axis] for axis in self.axes))
        held = Tensor(self.tensor, shape, target.dtype, "temporary")
        made = self._statements()
        order: list[trees.Tree] = []
        for part in trees.parts(self.nest.order):
            order += map(own_loops, made) if trees.statements(part) == (s.name,) else [part]
        every: list[Statement] = []
        for other in self.nest.statements:
            every += made if other is s else [other]
        return self.nest.rewritten(
            tensors=(*self.nest.tensors[:-1], held, self.nest.tensors[-1]),
            statements=tuple(every),
            order=trees.sequence(tuple(order)),
            touched=frozenset({held.name, *s.tensors}),
        )

    def _statements(self) -> tuple[Statement, Statement, Statement]:
        s = self.s
        new = self._named(self.origin.domain(), (f"{s.dims[self.at]}_part", *self._own(s.dims)))
        everywhere = on_domain(self.origin, new)
        held = self.placed.range()
        names = (f"{s.dims[self.at]}_part", *self._totals())
        firsts, lasts = (self._named(held.set_tuple_name(name), names) for name in (self.first, s.name))
        value = neutral(s.op, self.nest.tensor(s.write.tensor).dtype)
        reads = tuple(
            Access(a.tensor, _called(on_domain(everywhere.apply_range(a.map), new), new)) for a in s.reads
        )
        whole = isl.Map.identity(held.get_space().map_from_set())
        total = _to(self._element_of(whole), s.name, s.write.tensor)
        target = Access(s.write.tensor, _called(total, firsts))

        def own(relation: isl.Map, name: str) -> Access:
            return Access(
                self.tensor,
                _called(_to(relation, name, self.tensor), new if name == self.partial else firsts),
            )

        return (
            Statement(self.first, firsts, own(whole, self.first), "=", (), value),
            Statement(self.partial, new, own(on_domain(self.placed, new), self.partial), s.op, reads, s.body),
            Statement(s.name, lasts, target, s.op, (own(whole, s.name),), read(0)),
        )

    def _element_of(self, whole: isl.Map) -> isl.Map:
        """{ p[b, e] -> y[e, 0] } of { p[b, e] -> p[b, e] }: the total of each partial result."""
        fixed, found = self.s.write.map.range(), whole.project_out(OUT, 0, 1)
        for axis in sorted(self._elsewhere()):
            found = found.insert_dims(OUT, axis, 1)
            found = found.fix_val(OUT, axis, fixed.plain_get_val_if_fixed(SET, axis))
        return found

    def _totals(self) -> Iterator[str]:
        """A name for each of the `axes`: the dimension that it is, if it is one."""
        subscripts = self.s.write.subscripts()
        for axis in self.axes:
            value = subscripts.get_pw_aff(axis)
            same = (
                d
                for d, _ in enumerate(self.s.dims)
                if value.is_equal(dimension(self.s.write.map.domain(), d))
            )
            found = next(same, None)
            yield f"e{axis}" if found is None else self.s.dims[found]

    def _named(self, domain: isl.Set, names: tuple[str, ...]) -> isl.Set:
        domain = domain.coalesce().gist_params(self.nest.context)
        for d, name in enumerate(names):
            domain = domain.set_dim_name(SET, d, name)
        return domain

    def _expected(self) -> isl.UnionMap:
        """The flow after: S's sources feed its parts, or the total, where they are its first value."""
        s, back = self.s, self.origin.reverse()
        combined = self.placed.set_tuple_name(OUT, s.name)
        total = back.apply_range(combined)
        flow = [combined, self.placed.reverse().set_tuple_name(IN, self.first)]
        held = self.placed.range()
        flow.append(
            _to(isl.Map.identity(held.get_space().map_from_set()).intersect_domain(held), self.first, s.name)
        )
        for pair in self.nest.dependences().pairs:
            if pair.kind == "flow":
                first_value = self.nest.statement(pair.source).write.tensor == s.write.tensor
                moved = pair.map.apply_domain(total) if pair.source == s.name else pair.map
                flow.append(
                    moved.apply_range(total if first_value else back) if pair.sink == s.name else moved
                )
        return union_map(flow)


def _to(relation: isl.Map, source: str, target: str) -> isl.Map:
    return relation.set_tuple_name(IN, source).set_tuple_name(OUT, target)


def _called(relation: isl.Map, domain: isl.Set) -> isl.Map:
    """The relation with its input dimensions named as the domain's."""
    for d, name in enumerate(dim_names(domain)):
        relation = relation.set_dim_name(IN, d, name)
    return relation
