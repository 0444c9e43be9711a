"""Sum products whose results lie apart in memory in temporaries where they lie side by side.

    y = 0;  y[2 * k, 2 * l] += a * b   ->   s = 0;  s[k, l] += a * b;  y[2 * k, 2 * l] = s[k, l]

The phases of a transposed convolution of stride 2 are such sums. Tiles in registers need neighbours in memory: four
phases of 32 channels of 16 x 16, of 64 channels and windows of 4 x 4, took 1090 µs element by element, and take 200
(one Zen 4 core).

    m = -inf;  m[f, p, q] max= a[f, 2 * p + s, 2 * q + t]   ->   s = -inf;  s[f, p, q] max= a[…];  m = s

Pooling behind a convolution gets a temporary, too, whose neighbours are filters, as those of the sums in a tile are: it
is stored once, and not for every value.

    y[n, f, p] += w[f, c] * a[n, c, p];  m[f] += y[n, f, p]   ->   s[n, f, p] += …;  y = s;  m[f] += y[n, f, p]

    a = d;  a[n, f, p] += w[g, f] * y[n, g, p]   ->   a = d;  s = a;  s[n, f, p] += …;  a = s

So does one that adds to what others began, as the gradient of what both branches of a residual block read: for 256
channels of 4 x 4, four images, 9.8 ms without tiles and 0.67 with (one Zen 5 core). And so does a convolution whose
results a sum over all images reads, as the statistics of batch norm in training are: they have to be in memory, and a
tile's sums have a buffer only where nothing else sees them.

    y[n, f, p] += …;  a = max(y, 0);  …;  y_bar = where(y <= 0, 0, a_bar)   ->   s[n, f, p] += …;  y = s;  a = max(y, 0)

And so does one whose results are read again behind another product that came of them, as those of a convolution in a
training step: no kernel has both. 512 channels of 2 x 2, four images, ReLU: 8.1 ms without tiles, 1.2 with.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial

from polyfuse.ir import Nest, Statement
from polyfuse.ir.scalar import Read
from polyfuse.ir.tree import statements
from polyfuse.machine import Machine
from polyfuse.rewrite import expand, inline, own_sums, why_not_inline
from polyfuse.rewrite.reductions.own_accumulator import lie_apart
from polyfuse.strategy.candidates import Choose, cheapest
from polyfuse.strategy.match.epilogue import columns_axes
from polyfuse.strategy.match.gemm import moved_axes, products_of
from polyfuse.strategy.remarks import Remark, applied
from polyfuse.strategy.rewrites.detach_output import across
from polyfuse.strategy.rewrites.reductions.priced_alone import seconds_alone, taken_if_cheaper

PASS = "dense sums"


def with_dense_sums(
    nest: Nest, machine: Machine, choose: Choose = cheapest
) -> tuple[Nest, tuple[Remark, ...]]:
    """The nest with such products summed apart where that is cheaper, and a sentence on each."""
    said: list[Remark] = []
    spread: dict[str, None] = {}
    whole, begun, again = summed_over_batches(nest), begun_by_others(nest), read_again(nest)
    for name in dict.fromkeys((*pooled(nest), *whole, *begun, *again)):
        made = own_sums(nest, name) if choose.asks(PASS, (name,)) else None
        if made is not None:
            sums, target = (one.statement(name).write.tensor for one in (made, nest))
            why = " for a reader behind a further product" if name in again else ""
            why = " for a sum over all of it" if name in whole else why
            why = " and begins as others left it" if name in begun else why
            line = (
                f"{name} reduces in {sums}, which is then stored in {target}{why}: columns lie across that."
            )
            said.append(applied(PASS, (name,), line))
            nest, spread = made, {**spread, target: None}
    for name in [s.name for s in nest.statements]:
        made = _apart(nest, name)
        if made is None:
            continue
        known = {s.name for s in nest.statements}
        _, end = (s.name for s in made.statements if s.name not in known)
        sums, target = (one.statement(name).write.tensor for one in (made, nest))
        line = f"{name} sums in {sums}, where results that lie apart in {target} lie side by side"
        names = (name, end)
        taken, remark = taken_if_cheaper(
            PASS, name, line, partial(_prices, nest, made, names, machine), choose, "where they lie"
        )
        said.append(remark)
        if taken:
            nest, spread = made, {**spread, target: None}
    return _begun_in_place(nest, tuple(spread)), tuple(said)


def _prices(nest: Nest, made: Nest, names: tuple[str, str], machine: Machine) -> tuple[float, float]:
    return seconds_alone(nest, names[:1], machine), seconds_alone(made, names, machine)


def pooled(nest: Nest) -> tuple[str, ...]:
    """The reductions of values into temporaries behind a product whose columns lie across both its sums and these."""
    found = []
    order = statements(nest.order)
    for product in (p for name in order for p in products_of(nest, name)[:1] if p.across):
        behind = order[order.index(product.statement) + 1 :]
        axes = columns_axes(nest, product, behind)
        for name in behind:
            s = nest.statement(name)
            target = s.write.tensor
            lies_across = (
                axes.get(target, len(nest.tensor(target).shape)) < len(nest.tensor(target).shape) - 1
            )
            if lies_across and s.is_reduction and isinstance(s.body, Read):
                found.append(name)
    following = across(nest, "temporary")
    return tuple(dict.fromkeys(name for name in found if name in following))


def summed_over_batches(nest: Nest) -> tuple[str, ...]:
    """The products into temporaries across memory whose results a sum over their batches reads: over all images."""
    found = []
    for product in (p for s in nest.statements for p in products_of(nest, s.name)[:1] if p.across):
        s = nest.statement(product.statement)
        axes = moved_axes(s.write, len(s.dims)) or {}
        batches = {axes[d] for d in product.others if d in axes}
        target = nest.tensor(s.write.tensor)
        if target.role == "temporary" and any(
            _drops(r, target.name, batches) for r in nest.readers(target.name)
        ):
            found.append(s.name)
    return tuple(found)


def read_again(nest: Nest) -> tuple[str, ...]:
    """The products into temporaries across memory whose results are read again behind a product that came of them."""
    order = [nest.statement(name) for name in statements(nest.order)]
    products = {s.name: found[0] for s in order if s.is_reduction and (found := products_of(nest, s.name))}
    return tuple(
        name
        for name, product in products.items()
        if product.across and nest.tensor(nest.statement(name).write.tensor).role == "temporary"
        if _is_read_behind(nest.statement(name).write.tensor, order, products)
    )


def _is_read_behind(target: str, order: Sequence[Statement], products: Collection[str]) -> bool:
    """True if a statement reads a tensor, and what products of that tensor's values led to."""
    near, far = {target}, set[str]()
    for s in order:
        reads = {access.tensor for access in s.reads}
        if target in reads and reads & far:
            return True
        if reads & far or (reads & near and s.name in products):
            far.add(s.write.tensor)
        elif reads & near:
            near.add(s.write.tensor)
    return False


def begun_by_others(nest: Nest) -> tuple[str, ...]:
    """The products across memory that add to values which other statements compute."""
    found = []
    for product in (p for s in nest.statements for p in products_of(nest, s.name)[:1] if p.across):
        target = nest.statement(product.statement).write.tensor
        others = (s for s in nest.writers(target) if s.name != product.statement)
        if any(s.reads for s in others):
            found.append(product.statement)
    return tuple(found)


def _drops(reader: Statement, tensor: str, axes: set[int]) -> bool:
    """True if a reduction sums over these axes, all of them, of a tensor that it reads."""
    kept = moved_axes(reader.write, len(reader.dims))
    if not reader.is_reduction or kept is None or not axes:
        return False
    read = (moved_axes(access, len(reader.dims)) for access in reader.reads if access.tensor == tensor)
    return any(axes <= {axis for d, axis in moved.items() if d not in kept} for moved in read if moved)


def _apart(nest: Nest, name: str) -> Nest | None:
    """The nest with a product's results side by side; None for what is no product, or lies so already."""
    s = nest.statement(name)
    if not s.is_reduction or not lie_apart(s.write) or not products_of(nest, name):
        return None
    made = own_sums(nest, name)
    return None if made is None or lie_apart(made.statement(name).write) else made


def _begun_in_place(nest: Nest, targets: tuple[str, ...]) -> Nest:
    """The nest in which sums begin with a first value that stood in their target: y = 0; s = y  ->  s = 0."""
    if not targets:
        return nest
    nest = expand(nest, targets).nest
    for first in [s for s in nest.statements if s.write.tensor in targets and s.op == "=" and not s.reads]:
        if why_not_inline(nest, first.name) is None:
            nest = inline(nest, first.name).nest
    return nest
