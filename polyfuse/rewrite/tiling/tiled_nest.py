"""The nest of overlapped tiling: names of instances and elements, and their dates.

S[i] of tile t       is   S[t, i - corner(t)]         corner(t): where what the tile needs of S begins
T[e] of tile t       is   T[t, e - corner(t)]         for a temporary that each tile has for itself
loop at date i       is   at date i - corner(t)       where all statements in it begin at the same date
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import islpy as isl

from polyfuse.ir import Access, Nest, Statement, Tensor
from polyfuse.ir.sizes import extent_text
from polyfuse.ir.tree import (
    Loop,
    Tree,
    children,
    date_map,
    loops,
    parts,
    restrict,
    sequence,
    statements,
    with_children,
)
from polyfuse.rewrite.tiling.footprints import Grid, Needs, Window
from polyfuse.sets import OUT, SET, dimension, on_domain

Dates = list[isl.PwAff | int]


@dataclass(frozen=True)
class TiledNest:
    """A nest, the tiles of some of its statements, what each tile needs, and the boxes that hold it."""

    before: Nest
    grid: Grid
    need: Needs
    windows: Mapping[str, Window]

    @cached_property
    def loops(self) -> tuple[str, ...]:
        """The names of the tiles' loops, which statements have as dimensions: i_tile, j_tile."""
        taken = {loop.name for loop in loops(self.before.order)} | {
            d for s in self.before.statements for d in s.dims
        }
        names = []
        for d in self.grid.dims:
            name = f"{d}_tile"
            while name in taken:
                name += "_"
            taken.add(name)
            names.append(name)
        return tuple(names)

    # -- instances -------------------------------------------------------------------------------------------------

    def space(self, statement: str) -> isl.Set:
        """Every instance of the result, in its domain or not."""
        everywhere = isl.Set.universe(self.before.domains[statement].get_space())
        everywhere = everywhere.insert_dims(SET, 0, len(self.loops)).set_tuple_name(statement)
        for d, name in enumerate((*self.loops, *self.before.statement(statement).dims)):
            everywhere = everywhere.set_dim_name(SET, d, name)
        return everywhere

    def tile(self, statement: str) -> list[isl.PwAff]:
        """The tile that an instance of the result runs in, number by number."""
        return [dimension(self.space(statement), d) for d in range(len(self.loops))]

    def corner(self, statement: str, of: str) -> list[isl.PwAff]:
        """Return the corner of the tile's part of a tensor, or of a statement's instances."""
        return [part.pullback_pw_multi_aff(self._tile_of(statement)) for part in self.windows[of].corner]

    def origin(self, statement: str) -> isl.PwMultiAff:
        """Return the map from the result's instances to the nest's."""
        own, tiles = self.space(statement), len(self.loops)
        parts: Dates = [
            dimension(own, tiles + d).add(corner)
            for d, corner in enumerate(self.corner(statement, statement))
        ]
        return isl.PwMultiAff.from_map(date_map(own, parts).set_tuple_name(OUT, statement))

    def domain(self, statement: str) -> isl.Set:
        """The instances of the result."""
        tiles, origin = len(self.loops), self.origin(statement)
        depth = origin.dim(OUT)
        parts: Dates = [*self.tile(statement), *(origin.get_pw_aff(d) for d in range(depth))]
        placed = isl.PwMultiAff.from_map(date_map(self.space(statement), parts))
        flat = self.need[statement].wrap().flatten()
        assert flat.dim(SET) == tiles + depth, "a tile and an instance"
        domain = flat.preimage_pw_multi_aff(placed).coalesce().gist_params(self.before.context)
        for d, name in enumerate((*self.loops, *self.before.statement(statement).dims)):
            domain = domain.set_dim_name(SET, d, name)
        return domain

    # -- statements, tensors, order --------------------------------------------------------------------------------

    def statement(self, s: Statement) -> Statement:
        """The statement over the result's instances, with the tiles' own temporaries."""
        if s.name not in self.need:
            return s
        changed = tuple(self.access(s.name, access) for access in s.accesses)
        return replace(s, domain=self.domain(s.name), write=changed[0], reads=changed[1:])

    def access(self, statement: str, access: Access) -> Access:
        """T[e]  ->  T[tile, e - corner(tile)]; an element of another tensor is found through the instance's origin."""
        element = access.subscripts().pullback_pw_multi_aff(self.origin(statement))
        parts: Dates = [element.get_pw_aff(d) for d in range(element.dim(OUT))]
        if access.tensor in self.windows:
            corner = self.corner(statement, access.tensor)
            moved = (
                part.sub(c) for part, c in zip(parts, corner, strict=True) if isinstance(part, isl.PwAff)
            )
            parts = [*self.tile(statement), *moved]
        map_ = date_map(self.space(statement), parts).set_tuple_name(OUT, access.tensor)
        return Access(access.tensor, on_domain(map_, self.domain(statement)))

    def tensor(self, tensor: Tensor) -> Tensor | None:
        """The tensor with a dimension for each of the tiles' loops; None if their number is not an extent.

        The window of complex numbers may have their real or their imaginary parts alone: it is one of real numbers.
        """
        if tensor.name not in self.windows:
            return tensor
        counts = self.tile_counts
        if counts is None:
            return None
        return replace(tensor, shape=(*counts, *self.windows[tensor.name].shape), pairs=False)

    @cached_property
    def tile_counts(self) -> tuple[int | str, ...] | None:
        """Return the number of tiles along each loop; None if it is not affine in the sizes."""
        tiles = isl.Set.empty(next(iter(self.need.values())).domain().get_space())
        for need in self.need.values():
            tiles = tiles.union(need.domain())
        counts = []
        for d in range(len(self.loops)):
            last = tiles.dim_max(d).gist(self.before.context)
            text = extent_text(last.add_constant_val(isl.Val(1)))
            if text is None:
                return None
            counts.append(text)
        return tuple(counts)

    def order(self) -> Tree:
        """The tiles' loops around all stages, where the last of them stood; the rest as it was."""
        group = frozenset(self.need)
        inside = restrict(self.before.order, group)
        assert inside is not None, "there is a consumer"
        body = self._pulled_back(inside)
        for d, name in reversed(list(enumerate(self.loops))):
            body = Loop(name, tuple((n, self.tile(n)[d]) for n in statements(body)), body)
        run = parts(self.before.order)
        last = max(p for p, part in enumerate(run) if group & set(statements(part)))
        placed: list[Tree] = []
        for position, part in enumerate(run):
            rest = restrict(part, frozenset(statements(part)) - group)
            placed += [rest] if rest is not None else []
            placed += [body] if position == last else []
        return sequence(tuple(placed))

    def _pulled_back(self, tree: Tree) -> Tree:
        """The order of the nest among the instances of one tile."""
        below = with_children(tree, tuple(self._pulled_back(child) for child in children(tree)))
        if not isinstance(below, Loop):
            return below
        dates = {n: date.pullback_pw_multi_aff(self.origin(n)) for n, date in below.dates}
        starts = {n: date.pullback_pw_multi_aff(self._first(n)) for n, date in dates.items()}
        first, *others = starts.values()
        if all(other.is_equal(first) for other in others):
            dates = {n: date.sub(first.pullback_pw_multi_aff(self._tile_of(n))) for n, date in dates.items()}
        return replace(below, dates=tuple(dates.items()))

    def _tile_of(self, statement: str) -> isl.PwMultiAff:
        """{ S[t, a] -> [t] }."""
        return isl.PwMultiAff.from_map(date_map(self.space(statement), [*self.tile(statement)]))

    def _first(self, statement: str) -> isl.PwMultiAff:
        """{ [t] -> S[t, 0] }."""
        own = self.space(statement)
        zeros: Dates = [0] * (own.dim(SET) - len(self.loops))
        at_zero = date_map(own, [*self.tile(statement), *zeros]).set_tuple_name(OUT, statement)
        reached = self._tile_of(statement).as_map().reverse().apply_range(at_zero)
        return isl.PwMultiAff.from_map(reached)
