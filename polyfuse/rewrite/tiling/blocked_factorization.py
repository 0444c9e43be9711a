"""Blocked eliminations: factorise a panel of steps first, then update the rest by products.

    for i: for j: { for k < min(i, j): S: A[i, j] -= A[i, k] * A[k, j];   if j < i: T: A[i, j] /= A[j, j] }
    ->  for b:
          for i, j, k:  S, T                                            i and j in the block: its own corner
          for i, j, k:  S_below, T_below                                i behind the block
          for i, j, k:  S_right                                         j behind it
          for i: for j: for k < 64:
            S_rest: A[i, j] -= A[i, 64 b + k] * A[64 b + k, j]          both: a product

The loops are those of any order in which rows, columns and steps of all statements may change places: LU and Cholesky
have a permutable band (Bondhugula et al., PLDI 2008). Its steps are cut into blocks, and the statements' index sets are
split (Griebl, Feautrier & Lengauer, "Index set splitting", IJPP 2000) where rows and columns leave the block. That
is the right-looking blocked algorithm of LAPACK (Dongarra, Duff, Sorensen & van der Vorst, 1998, section 5), from
loops. Sums that do the same on other instances, as LU's above and below its diagonal, are one statement before that.

The theorem: every instance runs once under a new name, and all that depends on each other stays in order
(kept_order.py). Both are checked on the result.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import islpy as isl
import sympy

from polyfuse.errors import IllegalRewrite
from polyfuse.errors.proving import proving
from polyfuse.errors.refusals import Refusal
from polyfuse.ir import Access, Nest, Statement
from polyfuse.ir.fresh_names import fresh
from polyfuse.ir.scalar import Read
from polyfuse.ir.tree import Leaf, Loop, Tree, parts, sequence, statements
from polyfuse.ir.whole import is_whole
from polyfuse.rewrite.kept_order import turned_round
from polyfuse.rewrite.recorded import recorded
from polyfuse.rewrite.refusal import refused
from polyfuse.sets import IN, OUT, dimension, union_map, union_set

NAMES = "i", "j", "k"
"""The loops of the band, where no statement has a name for each: rows, columns and steps."""

LOOPS = len(NAMES)

Behind = tuple[bool | None, bool | None]
"""Pairs (rows, columns) of a region: True if behind the block; None if not involved."""


@dataclass(frozen=True)
class Panels:
    """The result of `panels`.

    Attributes:
        nest: The new nest, which eliminates in blocks.
        size: Steps per block.
        updates: The products that update what lies behind the panels.
    """

    nest: Nest
    size: int
    updates: tuple[str, ...]

    def __str__(self) -> str:
        return f"blocks of {self.size} steps, {', '.join(self.updates)} behind each block"


@recorded("panels")
@proving("the rewrite panels")
def panels(nest: Nest, dates: Mapping[str, str], size: int) -> Panels:
    """Block a factorization: eliminate in panels, and update the rest by products (LAPACK).

    panels(lu, {"S0": "[i, j, k, 1]", "S1": "[i, j, j, 0]", "S2": "[i, j, k, 2]"}, 64), where S0 and S2 are LU's sums
    below and above the diagonal, and S1 its quotients.

    Args:
        nest: The nest.
        dates: The row, column, step and position of each statement's instances, as text.
        size: Steps per block.

    Returns:
        The new nest.

    Raises:
        IllegalRewrite: if `why_not_panels` returns a reason.
    """
    made = _in_blocks(nest, dates, size)
    if isinstance(made, Refusal):
        raise IllegalRewrite(made)
    return made


@proving("the question why_not_panels")
def why_not_panels(nest: Nest, dates: Mapping[str, str], size: int) -> Refusal | None:
    """Return the reason why a part cannot be blocked by these dates.

    Args:
        nest: The nest.
        dates: The row, column, step and position of each statement's instances, as text.
        size: Steps per block.

    Returns:
        The reason; None if the rewrite is legal.
    """
    made = _in_blocks(nest, dates, size)
    return made if isinstance(made, Refusal) else None


def _in_blocks(nest: Nest, dates: Mapping[str, str], size: int) -> Panels | Refusal:
    call = f"panels({dict(dates)}, {size})"
    if not is_whole(size) or size < 1:
        return refused(call, f"a block has {size!r} steps", "an integer, at least 1")
    at = next((p for p, part in enumerate(parts(nest.order)) if set(statements(part)) == set(dates)), None)
    if at is None:
        named = ", ".join(dates) or "no statements"
        return refused(
            call,
            f"{named} are not exactly the statements of one outermost loop",
            "dates for all statements of one outermost loop",
        )
    vectors: dict[str, isl.Map] = {}
    for name, text in dates.items():
        found = _dates(nest, name, text)
        if found is None:
            dims = ", ".join(nest.statement(name).dims)
            return refused(
                call,
                f"{text!r} are not valid dates of {name}",
                f"[rows, columns, steps, place] in {dims}, others for each instance, the place a number, and a value "
                "that is made of reads and numbers alone",
            )
        vectors[name] = found
    made = _Made(nest, vectors, size)
    last = made.pieces[-1] if made.pieces else ()
    updates = tuple(p.statement.name for p in last if p.statement.is_reduction)
    if not updates:
        return refused(
            call, "no sum updates rows and columns behind a block of steps", "an elimination such as LU"
        )
    result = made.result(at)
    late = turned_round(nest, result, made.origins)
    if late is not None:
        return refused(
            call,
            "two instances would run in the wrong order",
            "interchangeable rows, columns and steps",
            late,
        )
    result.check()
    return Panels(result, size, updates)


def _dates(nest: Nest, name: str, text: str) -> isl.Map | None:
    """{ S[i, j, k] -> [rows, columns, steps, place] } on the statement's instances; None if the text is not that."""
    s, domain = nest.statement(name), nest.domains[name]
    try:
        found = isl.Map(f"[{', '.join(nest.params)}] -> {{ {name}[{', '.join(s.dims)}] -> {text} }}")
    except isl.Error:
        return None
    found = found.intersect_domain(domain)
    if found.dim(OUT) != LOOPS + 1 or not found.is_single_valued() or not found.is_injective():
        return None
    place = found.project_out(OUT, 0, LOOPS).range()
    indices = {symbol.name for symbol in s.body.free_symbols} & {*s.dims}
    return found if place.is_singleton() and not indices else None


@dataclass(frozen=True)
class _Piece:
    """A new statement; { its instances -> those of the nest }, and when it runs: loops of its region, and place."""

    statement: Statement
    origin: isl.UnionMap
    loops: isl.PwMultiAff
    place: int


@dataclass(frozen=True)
class _Made:
    """The pieces of all statements of a part, by the dates of these and the size of a block."""

    nest: Nest
    dates: Mapping[str, isl.Map]
    size: int

    @cached_property
    def pieces(self) -> tuple[tuple[_Piece, ...], ...]:
        """For each region, return the pieces that run in it, in the order of their positions."""
        taken = {s.name for s in self.nest.statements}
        found = []
        for ending, behind in self._regions():
            here = self._region(*behind)
            made = (self._piece(group, ending, here, taken) for group in self._groups)
            found.append(tuple(sorted((p for p in made if p is not None), key=lambda piece: piece.place)))
        return tuple(found)

    def _regions(self) -> list[tuple[str, Behind]]:
        """Return the regions in the order in which they run: updates behind a block follow its steps.

        LU has rows and columns behind each step, a solver with many right sides rows only.
        """
        rows, columns = (self._behind(name) for name in ("i", "j"))
        if rows and columns:
            return [
                ("", (False, False)),
                ("_below", (True, False)),
                ("_right", (False, True)),
                ("_rest", (True, True)),
            ]
        if rows or columns:
            return [
                ("", (False if rows else None, False if columns else None)),
                ("_rest", (rows or None, columns or None)),
            ]
        return []

    def _behind(self, name: str) -> bool:
        """True if rows, or columns, are never before their steps: { [i, j, k] : i >= k }."""
        never = isl.Set(f"{{ [i, j, k] : {name} < k }}")
        return all(self._box(statement).is_disjoint(never) for statement in self.dates)

    @cached_property
    def origins(self) -> isl.UnionMap:
        """{ new instance -> the instance of the nest that it is }."""
        others = (d for name, d in self.nest.domains.items() if name not in self.dates)
        found = union_map(isl.Map.identity(d.get_space().map_from_set()).intersect_domain(d) for d in others)
        for piece in self._every:
            found = found.union(piece.origin)
        return found

    @property
    def _every(self) -> tuple[_Piece, ...]:
        return tuple(piece for region in self.pieces for piece in region)

    def result(self, at: int) -> Nest:
        """The nest with the pieces in the place of its part number `at`."""
        order = [*parts(self.nest.order)]
        order[at] = self._order()
        tree = sequence(tuple(order))
        known = {s.name: s for s in self.nest.statements if s.name not in self.dates}
        known |= {piece.statement.name: piece.statement for piece in self._every}
        return replace(self.nest, statements=tuple(known[name] for name in statements(tree)), order=tree)

    @cached_property
    def _groups(self) -> tuple[tuple[str, ...], ...]:
        """The statements, sums that do the same together; the first of a group is written for all."""
        found: list[tuple[str, ...]] = []
        for name in self.dates:
            for at, group in enumerate(found):
                # A[i, j] says what A[i, i] does, and not the other way round
                if self._alike(group[0], name):
                    found[at] = (*group, name)
                    break
                if self._alike(name, group[0]):
                    found[at] = (name, *group)
                    break
            else:
                found.append((name,))
        return tuple(found)

    def _alike(self, one: str, other: str) -> bool:
        """True if a sum does the same at the dates of another."""
        first, second = self.nest.statement(one), self.nest.statement(other)
        if not (first.is_reduction and first.op == second.op):
            return False
        here = self._box(other)

        def same(a: Access, b: Access) -> bool:
            both = (self._in_band(name, x).intersect_domain(here) for name, x in ((one, a), (other, b)))
            mine, theirs = both
            return a.tensor == b.tensor and bool(mine.is_equal(theirs))

        def alike(a: sympy.Basic, b: sympy.Basic) -> bool:
            if isinstance(a, Read) and isinstance(b, Read):
                return same(first.reads[a.position], second.reads[b.position])
            if a.func != b.func or len(a.args) != len(b.args):
                return False
            return all(map(alike, a.args, b.args)) if a.args else bool(a == b)

        return same(first.write, second.write) and alike(first.body, second.body)

    def _in_loops(self, name: str) -> isl.Map:
        """{ S[i, j, k] -> [rows, columns, steps] }."""
        return self.dates[name].project_out(OUT, LOOPS, 1)

    def _box(self, name: str) -> isl.Set:
        """{ [rows, columns, steps] } of a statement."""
        return self._in_loops(name).range()

    def _in_band(self, name: str, access: Access) -> isl.Map:
        """{ [rows, columns, steps] -> element }, beyond the statement's own instances too."""
        return self._in_loops(name).reverse().apply_range(access.map).gist_domain(self._box(name))

    def _region(self, below: bool | None, right: bool | None) -> isl.Map:
        """{ [b, i, j, k] -> [rows, columns, steps] }, where those in the block, as its steps, count from its first."""
        first = f"{self.size} b"
        at, within = {}, [f"0 <= k < {self.size}"]
        for name, behind in (("i", below), ("j", right)):
            at[name] = f"{first} + {name}" if behind is False else name
            within += [f"{name} < {self.size}"] if behind is False else []
            within += [f"{name} >= {first} + {self.size}"] if behind else []
        return isl.Map(f"{{ [b, i, j, k] -> [{at['i']}, {at['j']}, {first} + k] : {' and '.join(within)} }}")

    def _piece(self, group: tuple[str, ...], ending: str, here: isl.Map, taken: set[str]) -> _Piece | None:
        """The instances of a group in a region; None if there are none."""
        first = self.nest.statement(group[0])
        name = fresh(first.name + ending, taken) if ending else first.name
        box = isl.Set.from_union_set(union_set(self._box(member) for member in group))
        dates = here.intersect_range(box).coalesce()
        if dates.is_empty():
            return None
        loops = isl.Map("{ [b, i, j, k] -> [i, j, k] }").intersect_domain(dates.domain())
        dims = [self._block, *(first.dims if len(first.dims) == LOOPS else NAMES)]
        for d in reversed(range(1, LOOPS + 1)):
            less = dates.project_out(IN, d, 1)
            if less.is_single_valued():  # what the others say already: T[i, j] at [i, j, j]
                dates, loops = less, loops.project_out(IN, d, 1)
                del dims[d]
        dates, loops = (_called(relation, name, dims) for relation in (dates, loops))
        domain = dates.domain().coalesce()
        everywhere = dates.gist_domain(domain)

        def moved(access: Access) -> Access:
            return Access(access.tensor, everywhere.apply_range(self._in_band(first.name, access)))

        write, *reads = map(moved, first.accesses)
        s = Statement(name, domain, write, first.op, tuple(reads), first.body)
        origin = union_map(dates.apply_range(self._in_loops(member).reverse()) for member in group)
        found = isl.PwMultiAff.from_map(loops.gist_domain(domain))
        return _Piece(s, origin, found, self._place(first.name))

    @cached_property
    def _block(self) -> str:
        """The name of the loop over blocks."""
        return fresh("b", {d for s in self.nest.statements for d in s.dims} | {*self.nest.params})

    def _place(self, name: str) -> int:
        place = self.dates[name].project_out(OUT, 0, LOOPS).range()
        return int(place.dim_max_val(0).to_python())

    def _order(self) -> Tree:
        """for b: { for rows: for columns: for steps: a region; … }."""
        inside = sequence(tuple(_nest(region) for region in self.pieces if region))
        dates = tuple((p.statement.name, dimension(p.statement.domain, 0)) for p in self._every)
        return Loop(self._block, dates, inside)


def _called(relation: isl.Map, name: str, dims: list[str]) -> isl.Map:
    """{ [b, i, j] -> … } as { name[dims] -> … }."""
    for d, dim in enumerate(dims):
        relation = relation.set_dim_name(IN, d, dim)
    return relation.set_tuple_name(IN, name)


def _nest(region: tuple[_Piece, ...]) -> Tree:
    """for rows: for columns: for steps: the pieces of a region."""
    tree: Tree = sequence(tuple(Leaf(piece.statement.name) for piece in region))
    deepest = max((piece.statement.dims[1:] for piece in region), key=len)
    names = deepest if len(deepest) == LOOPS else NAMES
    for which in reversed(range(LOOPS)):
        dates = tuple((p.statement.name, p.loops.get_pw_aff(which)) for p in region)
        tree = Loop(names[which], dates, tree)
    return tree
