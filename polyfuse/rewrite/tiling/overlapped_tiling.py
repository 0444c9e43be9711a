"""Overlapped tiling: each tile of the consumers recomputes the producers' elements that it needs.

    for i: T[i] = a[i] + a[i + 1]
    for i: y[i] = T[i] * T[i + 1]
                                    ->
    for i_tile:
        for i in 32 i_tile … 32 i_tile + 32:  T[i_tile, i - 32 i_tile] = a[i] + a[i + 1]
        for i in 32 i_tile … 32 i_tile + 31:  y[i] = T[i_tile, i - 32 i_tile] * T[i_tile, i - 32 i_tile + 1]

Neighbouring tiles compute the elements between them twice; in return no tile waits for another, and a schedule can keep
T in a buffer of one tile (Krishnamoorthy et al., PLDI 2007; Ragan-Kelley et al., PLDI 2013). Which instances a tile
needs is footprints.py's question. The theorem: the result computes what the nest did if, for each of its instances,
every value comes from the instance of the nest it came from before, in whichever copy; and if visible elements are
written in the order they were. Both are checked on the result's exact dependences, whatever was rewritten.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import prod

import islpy as isl

from polyfuse.errors import IllegalRewrite
from polyfuse.errors.proving import proving
from polyfuse.errors.refusals import Refusal
from polyfuse.ir import Nest
from polyfuse.ir.tree import statements
from polyfuse.rewrite.recorded import recorded
from polyfuse.rewrite.refusal import check_legal, refused
from polyfuse.rewrite.tiling.footprints import Needs, Window, advance, grid_of, needs, touched, window
from polyfuse.rewrite.tiling.tiled_nest import TiledNest
from polyfuse.sets import maps_of, tuple_names, union_map

Tiles = Mapping[str, Mapping[str, int]]
"""For each consumer, how many values of its dimensions one tile has: {"S9": {"i": 32, "j": 256}}."""


@dataclass(frozen=True)
class Recomputed:
    """One stage of overlapped tiling.

    Attributes:
        statement: The statement.
        computed: Instances that a whole tile computes.
        own: Instances of a tile that no other tile computes.
    """

    statement: str
    computed: int
    own: float

    @property
    def times(self) -> float:
        """The number of times that an instance is computed, away from the borders."""
        return self.computed / self.own


@dataclass(frozen=True)
class Overlapped:
    """The result of `overlap`.

    Attributes:
        nest: The new nest.
        consumers: The tiled consumers.
        loops: The tile loops, outermost first.
        sizes: The tile's extents along them.
        stages: Each producer's and consumer's recomputation.
    """

    nest: Nest
    consumers: tuple[str, ...]
    loops: tuple[str, ...]
    sizes: tuple[int, ...]
    stages: tuple[Recomputed, ...]

    @property
    def statements(self) -> tuple[str, ...]:
        """The names of producers and consumers."""
        return (*(stage.statement for stage in self.stages), *self.consumers)

    def __str__(self) -> str:
        tile = " x ".join(map(str, self.sizes))
        again = ", ".join(f"{s.statement} {s.times:.2f} times" for s in self.stages)
        return f"in tiles of {tile} for {', '.join(self.consumers)}: computed per element: {again}"


@recorded("overlap")
@proving("the rewrite overlap")
def overlap(nest: Nest, tiles: Tiles, producers: Iterable[str]) -> Overlapped:
    """Tile consumers, and recompute in each tile the producers' elements that it needs (PolyMage).

    for i: P;  for i: C   ->   for i_tile: { for i: P (what the tile needs);  for i: C (the tile) }

    The producers' instances and temporaries get the tile's numbers as first dimensions, and count from the corner of
    the elements that a tile accesses. The order inside a tile is the nest's.

    Args:
        nest: The nest.
        tiles: For each consumer the tile's extent in some of its dimensions; tiles of several consumers run together.
        producers: The statements to recompute; they write temporaries that only they and the consumers read.

    Returns:
        The new nest.

    Raises:
        IllegalRewrite: with the reason, and with instances if two show it.
    """
    call = f"overlap({', '.join(f'{n}: {dict(sizes)}' for n, sizes in tiles.items())})"
    wanted = {*tiles, *producers}
    group = tuple(n for n in statements(nest.order) if n in wanted)
    check_legal(_ill_formed(nest, call, tiles, tuple(n for n in group if n not in tiles)))
    grid = grid_of(nest, tiles)
    need = needs(nest, grid, (n for n in group if n not in tiles))
    stages = tuple(n for n in group if n in need and n not in tiles)
    windows: dict[str, Window] = {}
    for name, footprint in _footprints(nest, need, tiles).items():
        box = window(footprint)
        if box is None:
            why = f"one tile's footprint in {name} has no constant shape"
            raise IllegalRewrite(
                refused(call, why, f"tiles in the dimensions of {name}, or {name} outside of them")
            )
        windows[name] = box
    tiled = TiledNest(nest, grid, need, windows)
    result = _rewritten(tiled)
    if result is None:
        raise IllegalRewrite(refused(call, "the number of tiles is not affine in the sizes", "fixed sizes"))
    lost = _moved(nest, result, tiled)
    if lost is not None:
        raise IllegalRewrite(refused(call, lost[0], "consumers whose tiles may run in any order", lost[1]))
    result.check()
    times = tuple(_recomputed(windows[n], n) for n in stages)
    return Overlapped(result, tuple(n for n in group if n in tiles), tiled.loops, grid.sizes, times)


def _ill_formed(nest: Nest, call: str, tiles: Tiles, producers: tuple[str, ...]) -> Refusal | None:
    """Return the reason why these statements cannot be tiled together, from their form; None if there is none."""
    first = next(iter(tiles.values()), {})
    for name, sizes in tiles.items():
        dims = nest.statement(name).dims
        if not sizes or len(sizes) != len(first) or any(d not in dims or s < 1 for d, s in sizes.items()):
            why = f"{name} has the dimensions {', '.join(dims)}"
            return refused(call, why, "positive sizes for some of them, as many for each consumer")
    group = {*tiles, *producers}
    for name in group:
        s = nest.statement(name)
        if set(s.dims) & {symbol.name for symbol in s.body.free_symbols}:
            return refused(
                call, f"the value of {name} depends on its index", "a value of tensors and numbers only"
            )
    for name in producers:
        s = nest.statement(name)
        tensor = nest.tensor(s.write.tensor)
        outside = [x.name for x in nest.statements if tensor.name in x.tensors and x.name not in group]
        if tensor.role != "temporary":
            return refused(call, f"{name} writes {tensor.name}, which the caller sees", "temporaries only")
        if outside:
            return refused(
                call,
                f"{outside[0]} uses {tensor.name} outside of the tiles",
                "this statement among the stages",
            )
    place = {name: position for position, name in enumerate(statements(nest.order))}
    for pair in nest.dependences().pairs:
        inside = pair.kind == "flow" and pair.source in producers and pair.sink in group
        if inside and place[pair.source] >= place[pair.sink]:
            why = f"{pair.sink} reads values of {pair.source} from earlier iterations"
            return refused(call, why, "stages that read values of earlier stages only", pair.map)
    return None


def _footprints(nest: Nest, need: Needs, tiles: Tiles) -> dict[str, isl.Map]:
    """Return a tile's instances by stage, and its elements by producer's tensor."""
    running = [nest.statement(n) for n in need]
    tensors = dict.fromkeys(s.write.tensor for s in running if s.name not in tiles)
    return {**need, **{t: touched(need, running, t) for t in tensors}}


def _rewritten(tiled: TiledNest) -> Nest | None:
    """The nest of the tiles, not proven yet; None if the number of tiles is not an extent in the sizes."""
    nest = tiled.before
    tensors = [tiled.tensor(t) for t in nest.tensors]
    if None in tensors:
        return None
    return nest.rewritten(
        tensors=tuple(t for t in tensors if t is not None),
        statements=tuple(tiled.statement(s) for s in nest.statements),
        order=tiled.order(),  # the rest keeps its order, so what passes through other tensors stays as it is
        touched=frozenset(t for n in tiled.need for t in nest.statement(n).tensors),
    )


def _moved(nest: Nest, result: Nest, tiled: TiledNest) -> tuple[str, isl.Map] | None:
    """Return a value that the result would read from elsewhere, with the instances; None if there is none.

    o: x' -> x says which instance of the nest one of the result computes. For every x' the sources of its values must
    be copies of the sources of x: { o(w') -> x' : w' -> x' in the result's flow } = { w -> x' : w -> o(x') in flow }.
    """
    origins = union_map(
        tiled.origin(n).as_map().intersect_domain(d) if n in tiled.need else _itself(d)
        for n, d in result.domains.items()
    )
    expected = nest.dependences().flow.apply_range(origins.reverse())
    found = result.dependences().flow.apply_domain(origins)
    for pair in maps_of(found.subtract(expected)):
        return "the second would read what the first writes, and did not before", pair
    for pair in maps_of(expected.subtract(found)):
        return "the second would not read what the first writes, and did before", pair
    visible = {t.name for t in nest.outputs}
    outputs = (p for p in nest.dependences().pairs if p.kind == "output")
    ending = union_map(p.map for p in outputs if nest.statement(p.sink).write.tensor in visible)
    ending = ending.apply_domain(origins.reverse()).apply_range(origins.reverse())
    dates = {tuple_names(part)[0]: part for part in maps_of(result.original_dates())}
    for pair in maps_of(ending):  # their dates alone: those of all statements would be pairs by the square
        first, second = (dates[name] for name in tuple_names(pair))
        late = pair.subtract(first.lex_lt_map(second))
        if not late.is_empty():
            return "the first would overwrite what the second leaves", late
    return None


def _itself(domain: isl.Set) -> isl.Map:
    return isl.Map.identity(domain.get_space().map_from_set()).intersect_domain(domain)


def _recomputed(box: Window, statement: str) -> Recomputed:
    """Instances of a whole tile, and by how many the needs of neighbouring tiles are apart."""
    own = 1.0
    for corner, extent in zip(box.corner, box.shape, strict=True):
        own *= advance(corner) or extent
    return Recomputed(statement, prod(box.shape), own)
