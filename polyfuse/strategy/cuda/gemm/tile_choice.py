"""Choose the product and the register tile of a GPU's kernel, if the model expects a gain."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from polyfuse.ir import Nest
from polyfuse.ir.tree import Tree, parts, statements
from polyfuse.machine import GpuMachine
from polyfuse.measure import duration
from polyfuse.schedule import Schedule
from polyfuse.strategy.candidates import Choose
from polyfuse.strategy.cost.composite import finished_cost, kernels_of
from polyfuse.strategy.cost.counts import Counts
from polyfuse.strategy.cost.kernel_model import Kernel
from polyfuse.strategy.cost.roofline import KernelCost, Model, Tiling
from polyfuse.strategy.cuda.attention.mma_tiles import beside_tensor_cores
from polyfuse.strategy.cuda.attention.schedule import shaped
from polyfuse.strategy.cuda.attention.tiles import PassShape
from polyfuse.strategy.cuda.gemm.depthwise import in_window_rows
from polyfuse.strategy.cuda.gemm.implicit_gemm import (
    Convolution,
    convolution_of,
    convolution_tiles,
    in_patches,
)
from polyfuse.strategy.cuda.gemm.schedule import (
    band_by_dimension,
    in_register_tiles,
    of_one_step,
    product_tiles,
    why_seen,
)
from polyfuse.strategy.cuda.gemm.stream_k import InShares, in_shares
from polyfuse.strategy.cuda.tiles.tile import ThreadblockTile
from polyfuse.strategy.cuda.tiles.tile_cost import waiting_seconds
from polyfuse.strategy.cuda.tiles.tile_shape import EXPOSED
from polyfuse.strategy.match.attention import OneKernel
from polyfuse.strategy.match.gemm import Product, products_among
from polyfuse.strategy.plan import Group
from polyfuse.strategy.remarks import Reason, Refused, details
from polyfuse.strategy.transforms.packing import added
from polyfuse.strategy.transforms.time_loops import Planned

PASS = "register tiles"

UNDER_MAXIMUM = "attention"
"""The pass that sums under a maximum are of (attention.py)."""


def in_registers(
    schedule: Schedule,
    model: Model,
    part: Tree,
    choose: Choose,
    shared: Mapping[str, InShares],
    machine: GpuMachine,
) -> tuple[Schedule, list[Group]] | Refused | None:
    """The schedule with a kernel in register tiles; why it is not, or None if it holds no single product.

    Of the products in `shared` the shape is decided: the shares are of its tiles.
    """
    kernel, counts = model.kernel(part), model.counts
    own = next((shared[name] for name in kernel.names if name in shared), None)
    if own is not None:
        made = in_shares(schedule, counts, kernel, own, machine)
        return made if isinstance(made, Refused) else _grouped(schedule, model, part, own.tile, made, machine)
    product = product_in(schedule.nest, kernel) if kernel.band else None
    if product is None:
        return in_window_rows(schedule, model, part, choose, machine)
    band = band_by_dimension(kernel, product)
    if isinstance(band, Refused):
        return band
    seen = why_seen(kernel, schedule.nest.statement(product.statement).write.tensor)
    if seen is not None:
        return seen
    shapes = (
        convolution_tiles(schedule, counts, kernel, product, band, machine)
        if isinstance(product, Convolution)
        else product_tiles(schedule, counts, kernel, product, band, machine)
    )
    if not shapes:
        return Refused(Reason.NO_SIZE, "no tile of results fits the product's sizes")
    plain = model.cost(part)
    best, alone = shapes[0], plain.total + waiting_seconds(shapes[0], machine)
    if not choose.takes(PASS, kernel.names, best.seconds <= alone, "form", (best.seconds, alone)):
        line = f"{duration(best.seconds)} expected, {duration(alone)} with one result a thread"
        return Refused(Reason.DEARER, line)
    best = choose.best(
        PASS,
        kernel.names,
        shapes,
        seconds=lambda tile: tile.seconds,
        name=lambda tile: tile.name,
        what="register tiles",
    )
    done = (
        in_patches(schedule, counts, kernel, product, best, machine)
        if isinstance(product, Convolution)
        else in_register_tiles(schedule, counts, kernel, product, best, machine)
    )
    if isinstance(done, Refused) and best.cluster is not None and not isinstance(product, Convolution):
        why = f"blocks of {product.statement} are in no clusters: {done}"
        best = next(shape for shape in shapes if shape.cluster is None)
        done = in_register_tiles(schedule, counts, kernel, product, best, machine)
        done = done if isinstance(done, Refused) else replace(done, notes=(*done.notes, why))
    if isinstance(done, Refused) and best.copy.boxes and not isinstance(product, Convolution):
        why = f"no factor of {product.statement} is copied in boxes: {done}"
        best = next(shape for shape in shapes if not shape.copy.boxes)
        done = in_register_tiles(schedule, counts, kernel, product, best, machine)
        done = done if isinstance(done, Refused) else replace(done, notes=(*done.notes, why))
    return done if isinstance(done, Refused) else _grouped(schedule, model, part, best, done, machine)


def _grouped(
    before: Schedule,
    model: Model,
    part: Tree,
    tile: ThreadblockTile,
    done: Planned,
    machine: GpuMachine,
) -> tuple[Schedule, list[Group]]:
    """The schedule after a kernel was put into a shape, that kernel, and those that copy for it."""
    kernel = model.kernel(part)
    copies = added(before, done.schedule)
    (own,) = (statements(p) for p in parts(done.schedule.tree) if kernel.names[0] in statements(p))
    packs = kernels_of(done.schedule, tuple(name for name in copies if name not in own), machine)
    cost = _tiled_cost(model.cost(part), tile, kernel.itemsize, machine)
    return done.schedule, [*packs, Group(own, cost, details(PASS, own, done.notes))]


def product_in(nest: Nest, kernel: Kernel) -> Product | None:
    """The only product of a kernel, or its only convolution."""
    products = products_among(nest, kernel.names, by_value=True)
    if len(products) > 1:
        return None
    one = of_one_step(products[0]) if products else None
    if one is not None:
        return one
    found = [c for c in (convolution_of(nest, name) for name in kernel.names) if c is not None]
    return found[0] if len(found) == 1 else None


def under_maximum(
    before: Schedule, one: OneKernel, shape: PassShape, machine: GpuMachine
) -> tuple[Schedule, Group]:
    """The schedule with sums under a maximum in their shape, and their kernel."""
    done = shaped(before, one, shape)
    (part,) = (p for p in parts(done.tree) if one.names[0] in statements(p))
    itemsize = shape.scores.shape.itemsize
    cost = _tiled_cost(finished_cost(Counts(done.nest), part, machine), shape, itemsize, machine)
    notes = (*shape.sentences(one), *beside_tensor_cores(one, shape, machine))
    return done, Group(statements(part), cost, details(UNDER_MAXIMUM, statements(part), notes))


def _tiled_cost(
    plain: KernelCost, tile: ThreadblockTile | PassShape, itemsize: int, machine: GpuMachine
) -> KernelCost:
    """A kernel's cost in register tiles."""
    cost = replace(
        plain,
        tiling=Tiling((), ()),
        compute=tile.issuing,
        memory=tile.moving,
        again=0,
        utilisation=plain.flops / (_peak(itemsize, tile.math, machine) * tile.issuing),
        exposed=EXPOSED,
    )
    return replace(cost, waiting=tile.seconds - cost.total)


def _peak(itemsize: int, math: str, machine: GpuMachine) -> float:
    """The GPU's peak rate, of its tensor cores where they compute."""
    if math == "ieee":
        return machine.peak(itemsize, machine.units)
    return machine.tensor_peak(math, machine.units)
