"""The verb `promote`: give a loop a buffer in faster memory.

Three cases, told apart by who writes the tensor:
  - a temporary that lives and dies inside one iteration of the loop is *contracted*: its elements go to a buffer the
    size of what one iteration accesses, and no copy is needed;
  - a tensor that the loop only reads is *copied in*: a new statement fills a new temporary with the footprint that isl
    computes, the loop's reads go there, and the new temporary is contracted;
  - a *value* in a statement's body that depends on fewer of its dimensions is computed once for the loop, by such a
    statement: the prologue of a product, applied while its operand is packed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Literal, TypeVar
from warnings import warn

import islpy as isl

from polyfuse.analysis.copies import holds_rounded
from polyfuse.analysis.storage import BLOCKS, block_ids, prefix_of
from polyfuse.errors import InvalidSchedule
from polyfuse.ir.access import Access
from polyfuse.ir.nest import Nest
from polyfuse.ir.precision import Math
from polyfuse.ir.scalar import read
from polyfuse.ir.statement import Statement
from polyfuse.ir.tensor import Tensor
from polyfuse.ir.tree import (
    Buffer,
    Loop,
    Panel,
    Tree,
    date_map,
    loops,
    loops_around,
    replace_node,
    statements,
)
from polyfuse.layouts import CoreMatrixLayout, Layout, SmemLayout, SwizzledLayout
from polyfuse.schedule.chains import loop_named
from polyfuse.schedule.microkernel_verb import check_math
from polyfuse.schedule.promote.copy_statements import Copied, Promoted, copied_in, rounding_of, sized
from polyfuse.schedule.promote.promoted_values import Value, dims_named, value_dims, value_in, value_named
from polyfuse.sets import IN, OUT

MEMORIES = ("local", "register", "shared")
"""The memories for a buffer of `promote`: of a core or thread, of a thread, of a block."""


def promote(
    nest: Nest,
    tree: Tree,
    tensor: str,
    statement: str,
    at: str,
    memory: str,
    panel: tuple[int, int] | None = None,
    layout: Layout | None = None,
    stages: int = 1,
    axes: tuple[str, ...] | None = None,
    padded: bool = False,
    rounded: Math = "ieee",
) -> Promoted:
    """for i: { S; T }  ->  for i: { buffer; copy in; S; T }, S and T accessing the buffer instead of the tensor."""
    if memory not in MEMORIES:
        raise InvalidSchedule(f"promote: unknown memory {memory!r}; expected one of {', '.join(MEMORIES)}")
    check_math("promote: rounded", rounded)
    _check_layout(memory, panel, layout)
    _check_stages(memory, stages)
    loop = loop_named(tree, statement, at)
    if axes is not None or padded or all(known.name != tensor for known in nest.tensors):
        s = nest.statement(statement)
        value = value_named(s, tensor)
        dims = value_dims(s, value) if axes is None else dims_named(s, axes)
        panels = None if panel is None else panel_of(tensor, len(dims), panel)
        place = Buffer(tensor, memory, panels, layout, stages)
        return value_in(nest, tree, Value(s, value, dims, axes is not None, padded, rounded), loop, place)
    known = nest.tensor(tensor)
    panels = None if panel is None else panel_of(tensor, known.rank, panel)
    buffer = Buffer(tensor, memory, panels, layout, stages)
    inside = [nest.statement(name) for name in statements(loop)]
    touching = [s for s in inside if tensor in s.tensors]
    if not touching:
        raise InvalidSchedule(f"promote: nothing inside {at} around {statement} accesses {tensor}")
    if any(buffer.tensor == tensor for other in loops(tree) for buffer in other.buffers):
        raise InvalidSchedule(f"promote: {tensor} is promoted already")
    if not any(s.write.tensor == tensor for s in touching):
        return _tensor_in(nest, tree, known, loop, buffer, rounded)
    if rounded != "ieee":
        raise InvalidSchedule(
            f"promote: {tensor} is computed inside {at}; only what is copied in can be rounded"
        )
    if known.role != "temporary":
        raise InvalidSchedule(
            f"promote: {tensor} is written inside {at} and visible to the caller ({known.role}); "
            "only a tensor that is private to the loop, or only read in it, can be promoted"
        )
    return sized(
        Promoted(nest, replace_node(tree, loop, replace(loop, buffers=(*loop.buffers, buffer)))), buffer
    )


def layout_of(
    layout: Layout | None,
    spread: tuple[int, ...] | None,
    cores: tuple[int, ...] | Literal["swizzled"] | None,
) -> Layout | None:
    """Return the layout given to `promote`, perhaps as numbers, as until 0.1.0; None for contiguous rows.

    Raises InvalidSchedule for more than one, and for numbers that are not a layout.
    """
    if layout is not None and not isinstance(layout, Layout):
        raise InvalidSchedule(
            "promote: a layout is pf.SmemLayout(…), pf.CoreMatrixLayout(…) or pf.SwizzledLayout(), "
            f"not {layout!r}"
        )
    if spread is None and cores is None:
        return layout
    warn("promote: spread= and cores= are deprecated; give layout=", DeprecationWarning, stacklevel=3)
    if [layout, spread, cores].count(None) != 2:
        raise InvalidSchedule("promote: layout, spread and cores are alternatives; give one of them")
    if spread is not None:
        return _of_numbers(SmemLayout, spread)
    if cores == "swizzled":
        return SwizzledLayout()
    assert cores is not None, "one of them is given"
    found = _of_numbers(CoreMatrixLayout, cores)
    return replace(found, turned=bool(found.turned))


AnyLayout = TypeVar("AnyLayout", SmemLayout, CoreMatrixLayout)


def _of_numbers(kind: type[AnyLayout], numbers: object) -> AnyLayout:
    """A layout from the numbers in a tuple."""
    names = [field.name for field in fields(kind)]
    if not isinstance(numbers, tuple | list) or len(numbers) != len(names):
        raise InvalidSchedule(f"promote: a {kind.__name__} has {', '.join(names)}, not {numbers!r}")
    return kind(*numbers)


def _check_layout(memory: str, panel: tuple[int, int] | None, layout: Layout | None) -> None:
    if layout is None:
        return
    if memory != "shared" or panel is None:
        raise InvalidSchedule("promote: only panels in shared memory can be spread")
    if isinstance(layout, SwizzledLayout):
        return
    if isinstance(layout, CoreMatrixLayout):
        if not layout.fits(panel[1]):
            raise InvalidSchedule(
                f"promote: {layout!r} does not fit panels of {panel[1]}; a panel is a whole number of `lanes` tiles, a "
                "tile whole cores `side` by side, and gaps a whole number of 16 bytes"
            )
        return
    whole = min(layout.tile, layout.vector, layout.every) >= 1 and min(layout.gap, layout.skip) >= 0
    if not whole or layout.tile % layout.vector or panel[1] % layout.tile:
        raise InvalidSchedule(
            f"promote: {layout} does not fit panels of {panel[1]}; a panel is a whole number of tiles, "
            "a tile a whole number of vectors, and gaps are not negative"
        )


def _check_stages(memory: str, stages: int) -> None:
    if not isinstance(stages, int) or isinstance(stages, bool) or stages < 1:
        raise InvalidSchedule(f"promote: stages={stages!r}, expected at least 1")
    if stages > 1 and memory == "register":
        raise InvalidSchedule(
            "promote: registers cannot have stages, because a stage is selected at run time and registers have no "
            "addresses; promote to local or shared memory"
        )


def panel_of(what: str, rank: int, panel: tuple[int, int]) -> Panel:
    """(axis, width) as a layout of so many axes. Raises InvalidSchedule if there are no such panels."""
    if not isinstance(panel, tuple | list) or len(panel) != 2:
        raise InvalidSchedule(f"panel={panel!r}, expected (axis, width), as in panel=(1, 32)")
    axis, width = panel
    if not 0 <= axis < rank or width < 2:
        raise InvalidSchedule(
            f"no panels of width {width} along axis {axis}: {what} has axes 0 to {rank - 1}, "
            "and a panel is at least 2 wide"
        )
    return Panel(axis, width)


# -- tensors -----------------------------------------------------------------------------------------------------------


def _tensor_in(nest: Nest, tree: Tree, tensor: Tensor, loop: Loop, place: Buffer, rounded: Math) -> Promoted:
    """A copy of what one iteration of a loop reads of a tensor."""
    reader = next(name for name in statements(loop) if tensor.name in nest.statement(name).tensors)
    prefix, blocks = prefix_of(tree, loop, reader), _blocks_inside(loop, reader)
    inside = [nest.statement(name) for name in statements(loop)]
    where = {s.name: _where(tree, s, prefix, blocks) for s in inside}
    footprint = _footprint(nest, tensor, inside, where)
    element = isl.Map.identity(footprint.range().get_space().map_from_set()).reset_tuple_id(IN)
    reads = (Access(tensor.name, element.insert_dims(IN, 0, len(prefix) + len(blocks))),)

    def redirected(buffer: str) -> dict[str, Statement]:
        return {s.name: _redirected(s, tensor.name, buffer, where[s.name]) for s in inside}

    done = rounded != "ieee" and holds_rounded(nest, tensor.name, rounded)
    body, dtype = rounding_of(tensor.name, read(0), tensor.dtype, rounded, done)
    what = Copied(tensor.name, footprint.reset_tuple_id(OUT), reads, body, dtype)
    return copied_in(nest, tree, prefix, what, redirected, place, blocks)


def _blocks_inside(loop: Loop, reader: str) -> tuple[Loop, ...]:
    """The loops over blocks inside a loop, around a statement: each block has a copy of its own."""
    return tuple(x for x in loops_around(loop.body, reader) if x.bind in BLOCKS)


def _where(tree: Tree, s: Statement, prefix: tuple[Loop, ...], blocks: tuple[Loop, ...]) -> isl.Map:
    """{ instance -> values of the loops of `prefix`, then the block that runs it along the axes of `blocks` }."""
    own = dict(zip(BLOCKS, block_ids(tree, s), strict=True))
    ids = (own[block.bind] for block in blocks if block.bind is not None)
    return date_map(s.domain, [*(x.date(s.name) for x in prefix), *(0 if b is None else b for b in ids)])


def _footprint(nest: Nest, tensor: Tensor, inside: list[Statement], where: Mapping[str, isl.Map]) -> isl.Map:
    """{ values of the loops down to `loop`, the block -> elements of the tensor read in that iteration }."""
    found = None
    for s in inside:
        for access in s.reads:
            if access.tensor != tensor.name:
                continue
            domain = nest.domains[s.name]
            here = access.map.intersect_domain(domain).apply_domain(where[s.name].intersect_domain(domain))
            found = here if found is None else found.union(here)
    assert found is not None, "promote looked for a reader before"
    return found.coalesce()


def _redirected(s: Statement, tensor: str, buffer: str, where: isl.Map) -> Statement:
    """The statement with its reads of `tensor` going to `buffer`[dates of the loops, the block, element]."""

    def moved(access: Access) -> Access:
        if access.tensor != tensor:
            return access
        return Access(
            buffer, where.flat_range_product(access.map.reset_tuple_id(OUT)).set_tuple_name(OUT, buffer)
        )

    return replace(s, reads=tuple(moved(access) for access in s.reads))
