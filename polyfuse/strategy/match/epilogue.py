"""Find a product's epilogue, and the tile sizes at which each follower reads from one tile only.

mac[i, f, k, l] -> relu[i, f, k, l] -> max[i, f, p, q] over (2p, 2p + 1) x (2q, 2q + 1)

relu: one value of k and l at a time; max: blocks of 2 values of k, tiles of an even number of values of l
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import islpy as isl

from polyfuse.ir import Access, Nest
from polyfuse.ir.tree import Loop
from polyfuse.sets import SET
from polyfuse.strategy.match.gemm import Product, moved_axes

LARGEST_BLOCK = 4
"""Values of a dimension that followers may need at once in a tile: pooling by 2, 3 and 4."""

Needs = Mapping[str, isl.Map]
"""For each statement after a product, { follower -> product }: whose sums it reads, also through other statements."""


def needs_of(nest: Nest, product: str, after: tuple[str, ...]) -> Needs:
    """The flow dependences of a kernel from its product on, composed; a reduction needs all of its sum."""
    domain = nest.domains[product]
    found: dict[str, isl.Map] = {product: isl.Map.identity(domain.get_space().map_from_set())}
    for name in after:
        maps = [
            p.map.reverse().apply_range(found[p.source])
            for p in nest.dependences().before(name)
            if p.kind in ("flow", "reduction") and p.source in found and p.source != name
        ]
        if maps:
            every = maps[0]
            for other in maps[1:]:
                every = every.union(other)
            written = nest.statement(name).write.map.intersect_domain(nest.domains[name])
            found[name] = written.apply_range(written.reverse()).apply_range(every)
    return {name: found[name].coalesce() for name in after if name in found}


def connected(product: str, flow: Iterable[tuple[str, str]], names: Iterable[str]) -> frozenset[str]:
    """The statements of a kernel that values go to from a product, or from, also through others.

    >>> sorted(connected("mac", [("zero", "mac"), ("mac", "relu"), ("a", "b")], ("a", "b", "zero", "mac", "relu")))
    ['mac', 'relu', 'zero']
    """
    near, own = frozenset({product}), frozenset(names)
    pairs = [frozenset(pair) for pair in flow if own.issuperset(pair)]
    while more := frozenset().union(*(pair for pair in pairs if pair & near)) - near:
        near |= more
    return near


def reached(nest: Nest, name: str, names: tuple[str, ...]) -> tuple[str, ...]:
    """The statements among these that must run behind one, directly or because of others; the nearest first."""
    found = [name]
    for source in found:
        sinks = (p.sink for p in nest.dependences().after(source) if p.sink in names)
        found += [sink for sink in dict.fromkeys(sinks) if sink not in found]
    return tuple(found[1:])


def block_of(nest: Nest, product: Product, dim: int, needs: Needs) -> int | None:
    """The fewest values of a dimension, from a multiple on, that hold all that each follower needs; None if none do.

    max[p, q] <- mac[2p .. 2p + 1, …]: 2, since floor(k / 2) is p for both. None for windows that overlap.
    """
    space = nest.domains[product.statement].get_space()
    value = isl.Aff.var_on_domain(isl.LocalSpace.from_space(space), SET, dim)
    for size in range(1, LARGEST_BLOCK + 1):
        block = isl.Map.from_aff(value.scale_down_val(isl.Val(size)).floor())
        if all(need.apply_range(block).is_single_valued() for need in needs.values()):
            return size
    return None


def belongs(need: isl.Map, product: str, loops: tuple[Loop, ...]) -> bool:
    """True if all that each instance of a follower needs is computed in one iteration of these loops."""
    dates = (isl.Map.from_pw_aff(loop.date(product)) for loop in loops)
    return all(need.apply_range(date).is_single_valued() for date in dates)


def columns_axes(nest: Nest, product: Product, names: tuple[str, ...]) -> Mapping[str, int]:
    """For each tensor of a kernel that moves with the product's columns, the axis along which it does."""
    own = nest.statement(product.statement).write.tensor
    found = {own: product.lanes}
    for name in names:
        dim = columns_dim(nest, name, found)
        for access in nest.statement(name).accesses if dim is not None else ():
            axes = _axes(access, len(nest.statement(name).dims))
            if dim in axes:
                found.setdefault(access.tensor, axes[dim])
    return found


def columns_dim(nest: Nest, name: str, axes: Mapping[str, int]) -> int | None:
    """The dimension of a statement that is the product's columns; None if none is."""
    for access in nest.statement(name).accesses:
        if access.tensor in axes:
            moved = _axes(access, len(nest.statement(name).dims))
            dims = [d for d, axis in moved.items() if axis == axes[access.tensor]]
            if len(dims) == 1:
                return dims[0]
    return None


def _axes(access: Access, dims: int) -> dict[int, int]:
    """The axis along which each dimension moves an access, whatever its map holds for; none where one moves several.

    { norm[i, j] -> y[0, j] : i = 0 and 0 <= j < 8 }: j along axis 1, though subscripts hold for some i and j alone.
    """
    return moved_axes(Access(access.tensor, access.map.gist_domain(access.map.domain())), dims) or {}
