"""Use split-k for products with few results and many steps, which would leave most of a GPU idle.

    for i: for j: { y = 0; for k: y += a[i, k] * b[k, j]; z = y + c }
    ->  for p: for i: for j: { s = 0; for k (of p): s += a[i, k] * b[k, j]; y_parts[p, i, j] = s }
        for i: for j: { y = 0; for p: y += y_parts[p, i, j]; z = y + c }

A part takes consecutive steps, so that its tiles are copied as those of the whole product are; parts are a dimension of
a batch. Their results lie in memory that is planned ahead, and the kernel that reads them adds them in order, so that
equal calls give equal bits: no atomics. Only the declared reduction is reassociated. The number of parts is what the
model of register tiles expects to be fastest (`tile_candidates.py`), against the product in one piece. Where tiles
leave the last wave of blocks nearly empty, parts are equal shares of all tiles' steps (`stream_k.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import ceil, isfinite, prod

from polyfuse.ir import Nest
from polyfuse.ir.scalar import read
from polyfuse.machine import GpuMachine, Machine
from polyfuse.measure import duration
from polyfuse.rewrite import accumulate
from polyfuse.rewrite.reductions.split_reduction import split_reduction, why_not_split_reduction
from polyfuse.rewrite.shares import Shares
from polyfuse.sets import bounding_count, dimension
from polyfuse.strategy.candidates import Choose, cheapest
from polyfuse.strategy.cuda.gemm.schedule import product_of, whole_steps
from polyfuse.strategy.cuda.gemm.stream_k import InShares, Priced, cheapest_in_shares, seconds_to_add
from polyfuse.strategy.cuda.tiles.tile_candidates import tiles_for
from polyfuse.strategy.match.gemm import Product
from polyfuse.strategy.match.gemm_problem import Extents
from polyfuse.strategy.match.operand_rows import kept_factors, may_run_ahead, terms_of
from polyfuse.strategy.remarks import Remark, weighed

PASS = "split-k"

MOST_PARTS = 256
"""More parts than this are more than a thread adds up one after the other while others wait."""

LEAST_STEPS = 64
"""Steps of a part: four tiles."""

WORTH = 0.99
"""Parts are taken where they are expected to take less than this of the time in one piece. What large products gain is
a last wave that is fuller, a percent or less, for an array of partial results and another kernel."""

WORTH_SHARES = 0.9
"""The same for equal shares, whose blocks have bounds to compute."""

MOST_SHARED = 2
"""Products of a nest in equal shares: to prove and to write one takes isl 5 to 25 s."""


@dataclass(frozen=True)
class Parted:
    """A nest some of whose products are summed in parts, the statements that sum one part, and a remark on each."""

    nest: Nest
    products: tuple[str, ...]
    remarks: tuple[Remark, ...]
    shared: Mapping[str, InShares] = field(default_factory=dict)
    """The products whose tiles are split in equal shares."""


@dataclass(frozen=True)
class _Choice:
    """How many steps a part takes, how many parts there are, and what the model expects; `shared` in equal shares.

    A share takes several pieces of so many steps.
    """

    size: int
    parts: int
    seconds: float
    shared: Priced | None = None

    @property
    def name(self) -> str:
        """As a wish calls it (candidates.py)."""
        return f"{self.parts} {'parts' if self.shared is None else 'shares'}"


def _shares_of(nest: Nest, product: Product, priced: Priced) -> Shares:
    """The shares of a product's tiles."""
    dims, shape = nest.statement(product.statement).dims, priced.tile.shape
    tile = {dims[product.rows]: shape.block_rows, dims[product.columns]: shape.block_columns}
    return Shares(priced.count, shape.steps, tile)


def in_parts(nest: Nest, machine: GpuMachine, choose: Choose = cheapest) -> Parted | None:
    """The nest with the products split whose parts are expected to be faster; None if there are none."""
    if nest.params:
        return None
    done, products, said, dealt_out = nest, list[str](), list[Remark](), dict[str, InShares]()
    for name in [s.name for s in nest.statements]:
        product = product_of(nest, name)
        if product is None:
            continue
        if _is_in_parts(nest, name):
            done = accumulate(done, nest.statement(name).write.tensor) or done
            products.append(name)
            continue
        extents, itemsize = extents_of(nest, product, machine), _itemsize(nest, product)
        whole, *split = _choices(extents, itemsize, machine)
        shapes = tiles_for(extents, itemsize, machine, machine.gpu)
        able = len(dealt_out) < MOST_SHARED
        shared = cheapest_in_shares(shapes, extents, machine, machine.gpu) if able else None
        taken = _taken(name, whole, split, shared, choose)
        if taken is None:
            continue
        dim, shared = nest.statement(name).dims[product.steps[0]], taken.shared
        size = taken.size if shared is None else None
        shares = None if shared is None else _shares_of(nest, product, shared)
        if why_not_split_reduction(done, name, dim, size=size, shares=shares) is not None:
            continue
        made = split_reduction(done, name, dim, size=size, shares=shares)
        done = accumulate(made.nest, made.tensor) or made.nest
        products.append(made.partial)
        if shared is not None and made.dealt is not None:
            dealt_out[made.partial] = InShares(shared.tile, made.dealt)
        line = (
            f"{made}, {taken.size} steps of {dim} each: {duration(taken.seconds)}, "
            f"{duration(whole.seconds)} in one piece."
        )
        chosen = choose.wished(PASS, (name,))
        names = name, made.partial
        said.append(weighed(PASS, names, True, line, taken.seconds, whole.seconds, chosen))
    return Parted(done, tuple(products), tuple(said), dealt_out) if products else None


def _taken(
    name: str, whole: _Choice, split: list[_Choice], priced: Priced | None, choose: Choose
) -> _Choice | None:
    """The parts to take of one product: the cheapest, in equal shares where these clearly pay; None for one piece."""
    best = min(split, key=lambda choice: choice.seconds, default=whole)
    pays = best.seconds < WORTH * whole.seconds
    options = sorted(split, key=lambda choice: choice.seconds)
    if priced is not None:
        shared = _Choice(priced.tile.shape.steps, priced.count, priced.seconds, priced)
        first = shared.seconds < min(WORTH_SHARES * whole.seconds, best.seconds)
        options, pays = [shared, *options] if first else [*options, shared], pays or first
    options = [choice for choice in options if isfinite(choice.seconds)]
    if not options or not choose.takes(PASS, (name,), pays):
        return None
    return choose.best(PASS, (name,), options, seconds=lambda each: each.seconds, name=lambda each: each.name)


def _is_in_parts(nest: Nest, name: str) -> bool:
    """True if a product's sums are only there to be added up by others, as `split_reduction` leaves them."""
    sums = nest.statement(name).write.tensor
    readers = [s for s in nest.statements if any(access.tensor == sums for access in s.reads)]
    added = all(s.op == "+=" and s.body == read(0) for s in readers)
    return bool(readers) and added and nest.tensor(sums).role == "temporary"


def fills_tiles(nest: Nest, name: str, machine: Machine) -> bool:
    """True if a statement is a product with results for a GPU's tile: its parts are these, not neighbouring steps."""
    if not isinstance(machine, GpuMachine):
        return False
    product = product_of(nest, name)
    if product is None:
        return False
    extents = extents_of(nest, product, machine)
    return bool(tiles_for(extents, _itemsize(nest, product), machine, machine.gpu))


def _choices(extents: Extents, itemsize: int, machine: GpuMachine) -> list[_Choice]:
    """The product in one piece, infinitely slow where no tile fits; then in 2, 4, … parts."""
    results = extents.rows * extents.columns * extents.count * itemsize

    def seconds(size: int, parts: int) -> float:
        whole = size if extents.whole_steps and extents.whole_steps % size == 0 else 0
        part = replace(extents, steps=size, count=extents.count * parts, whole_steps=whole)
        best = next(iter(tiles_for(part, itemsize, machine, machine.gpu)), None)
        return float("inf") if best is None else best.seconds

    found = [_Choice(extents.steps, 1, seconds(extents.steps, 1))]
    parts = 2
    while parts <= MOST_PARTS and extents.steps >= LEAST_STEPS * parts and results:
        size = ceil(extents.steps / parts / LEAST_STEPS) * LEAST_STEPS
        real = ceil(extents.steps / size)
        adding = seconds_to_add(real, real * results, machine)
        found.append(_Choice(size, real, seconds(size, real) + adding))
        parts *= 2
    return found


def seconds_in_parts(extents: Extents, itemsize: int, machine: GpuMachine) -> float:
    """The expected seconds of a product, in one piece or in parts; infinity if it has no tiles."""
    return min(choice.seconds for choice in _choices(extents, itemsize, machine))


def _itemsize(nest: Nest, product: Product) -> int:
    """Bytes of a result."""
    return nest.tensor(nest.statement(product.statement).write.tensor).itemsize


def extents_of(nest: Nest, product: Product, machine: GpuMachine) -> Extents:
    """A product's size, and how its factors lie."""
    s = nest.statement(product.statement)

    def extent(d: int) -> int:
        values = dimension(s.domain, d).intersect_domain(nest.domains[s.name])
        return bounding_count(values.as_map().range(), {})

    itemsize = nest.tensor(s.write.tensor).itemsize
    wide = all(may_run_ahead(nest, product, factor, itemsize) for factor in (product.left, product.right))
    (steps,) = product.steps
    count = prod(extent(d) for d in product.others)
    kept = kept_factors(nest, product, machine.math)
    whole = whole_steps(nest, product)
    return Extents(
        extent(product.rows),
        extent(product.columns),
        extent(steps),
        count,
        wide,
        whole_steps=whole,
        kept=kept,
        left=terms_of(product.left),
        right=terms_of(product.right),
    )
