"""The verb that gives a loop a memory of its own: promote.

Three cases, told apart by who writes the tensor:
  - a temporary that lives and dies inside one iteration of the loop is *contracted*: its elements go to a buffer the
    size of what one iteration touches, and no copy is needed;
  - a tensor that the loop only reads is *copied in*: a new statement fills a new temporary with the footprint that isl
    computes, the loop's reads go there, and the new temporary is contracted;
  - a *value* in a statement's body that depends on fewer of its dimensions is computed once for the loop, by such a
    statement: the prologue of a product, applied while its operand is packed.
"""

from __future__ import annotations

from dataclasses import replace

import islpy as isl
import sympy

from polyfuse.analysis.storage import prefix_of
from polyfuse.errors import InvalidSchedule
from polyfuse.ir.access import Access
from polyfuse.ir.nest import Nest
from polyfuse.ir.scalar import Read, read, reads_in, substitute
from polyfuse.ir.statement import Statement
from polyfuse.ir.tensor import Tensor
from polyfuse.ir.text import body_text, value_text
from polyfuse.ir.tree import (
    Buffer,
    Loop,
    Panel,
    Spread,
    Tree,
    date_map,
    loops,
    replace_node,
    statements,
)
from polyfuse.schedule.chains import loop_named
from polyfuse.schedule.copying import Copied, Promoted, copied_in, prefix_map, sized
from polyfuse.sets import IN, OUT, dimension

MEMORIES = ("local", "register", "shared")
"""Where `promote` may put a buffer: of a core or thread, of a thread, of a block."""


def promote(
    nest: Nest,
    tree: Tree,
    tensor: str,
    statement: str,
    at: str,
    memory: str,
    panel: tuple[int, int] | None = None,
    spread: Spread | None = None,
    stages: int = 1,
) -> Promoted:
    """for i: { S; T }  ->  for i: { buffer; copy in; S; T }, S and T touching the buffer instead of the tensor."""
    if memory not in MEMORIES:
        raise InvalidSchedule(f"promote: no memory {memory!r}; there are {', '.join(MEMORIES)}")
    _check_spread(memory, panel, spread)
    _check_stages(memory, stages)
    loop = loop_named(tree, statement, at)
    if all(known.name != tensor for known in nest.tensors):
        s = nest.statement(statement)
        value = _value(s, tensor)
        layout = None if panel is None else panel_of(tensor, len(value_dims(s, value)), panel)
        return _value_in(nest, tree, value, s, loop, Buffer(tensor, memory, layout, spread, stages))
    known = nest.tensor(tensor)
    layout = None if panel is None else panel_of(tensor, known.rank, panel)
    buffer = Buffer(tensor, memory, layout, spread, stages)
    inside = [nest.statement(name) for name in statements(loop)]
    touching = [s for s in inside if tensor in s.tensors]
    if not touching:
        raise InvalidSchedule(f"promote: nothing inside {at} around {statement} touches {tensor}")
    if any(buffer.tensor == tensor for other in loops(tree) for buffer in other.buffers):
        raise InvalidSchedule(f"promote: {tensor} is promoted already")
    if not any(s.write.tensor == tensor for s in touching):
        return _tensor_in(nest, tree, known, loop, buffer)
    if known.role != "temporary":
        raise InvalidSchedule(
            f"promote: {tensor} is written inside {at} and visible to the caller ({known.role}); "
            "only what the loop alone uses, or only reads, can be promoted"
        )
    return sized(
        Promoted(nest, replace_node(tree, loop, replace(loop, buffers=(*loop.buffers, buffer)))), buffer
    )


def _check_spread(memory: str, panel: tuple[int, int] | None, spread: Spread | None) -> None:
    if spread is None:
        return
    if memory != "shared" or panel is None:
        raise InvalidSchedule("promote: only panels in shared memory can be spread")
    whole = spread.tile % spread.vector == 0 and panel[1] % spread.tile == 0
    if not whole or min(spread.tile, spread.vector, spread.every) < 1 or min(spread.gap, spread.skip) < 0:
        raise InvalidSchedule(
            f"promote: {spread} does not fit panels of {panel[1]}; a panel is a whole number of tiles, "
            "a tile a whole number of vectors, and gaps are not negative"
        )


def _check_stages(memory: str, stages: int) -> None:
    if not isinstance(stages, int) or isinstance(stages, bool) or stages < 1:
        raise InvalidSchedule(f"promote: stages are a number from 1 on, not {stages!r}")
    if stages > 1 and memory == "register":
        raise InvalidSchedule(
            "promote: registers have no stages: which one is meant is known when the loop runs, and registers have no "
            "addresses; promote to local or shared memory"
        )


def panel_of(what: str, rank: int, panel: tuple[int, int]) -> Panel:
    """(axis, width) as a layout of so many axes. Raises InvalidSchedule where there are no such panels."""
    axis, width = panel
    if not 0 <= axis < rank or width < 2:
        raise InvalidSchedule(
            f"no panels of {width} along axis {axis}; {what} has axes 0 to {rank - 1}, "
            "and a panel is at least 2 wide"
        )
    return Panel(axis, width)


# -- tensors -----------------------------------------------------------------------------------------------------------


def _tensor_in(nest: Nest, tree: Tree, tensor: Tensor, loop: Loop, place: Buffer) -> Promoted:
    """A copy of what one iteration of a loop reads of a tensor."""
    reader = next(name for name in statements(loop) if tensor.name in nest.statement(name).tensors)
    prefix = prefix_of(tree, loop, reader)
    footprint = _footprint(nest, tensor, loop, prefix)
    element = isl.Map.identity(footprint.range().get_space().map_from_set()).reset_tuple_id(IN)
    reads = (Access(tensor.name, element),)

    def redirected(buffer: str) -> dict[str, Statement]:
        inside = (nest.statement(name) for name in statements(loop))
        return {s.name: _redirected(s, tensor.name, buffer, prefix) for s in inside}

    what = Copied(tensor.name, footprint.reset_tuple_id(OUT), reads, read(0), tensor.dtype)
    return copied_in(nest, tree, prefix, what, redirected, place)


def _footprint(nest: Nest, tensor: Tensor, loop: Loop, prefix: tuple[Loop, ...]) -> isl.Map:
    """{ values of the loops down to `loop` -> elements of the tensor read in that iteration }."""
    found = None
    for name in statements(loop):
        s = nest.statement(name)
        for access in s.reads:
            if access.tensor != tensor.name:
                continue
            dates = prefix_map(nest.domains[name], name, prefix)
            here = access.map.intersect_domain(nest.domains[name]).apply_domain(dates)
            found = here if found is None else found.union(here)
    assert found is not None, "promote looked for a reader before"
    return found.coalesce()


def _redirected(s: Statement, tensor: str, buffer: str, prefix: tuple[Loop, ...]) -> Statement:
    """The statement with its reads of `tensor` going to `buffer`[dates of the loops, element]."""

    def moved(access: Access) -> Access:
        if access.tensor != tensor:
            return access
        dates = prefix_map(s.domain, s.name, prefix)
        return Access(
            buffer, dates.flat_range_product(access.map.reset_tuple_id(OUT)).set_tuple_name(OUT, buffer)
        )

    return replace(s, reads=tuple(moved(access) for access in s.reads))


# -- values ------------------------------------------------------------------------------------------------------------


def _value_in(
    nest: Nest, tree: Tree, value: sympy.Basic, s: Statement, loop: Loop, place: Buffer
) -> Promoted:
    """for k: for j: y += (alpha * A[k]) * b[j]  ->  for k: t[k] = alpha * A[k];  for k: for j: y += t[k] * b[j]

    The buffer's axes are the dimensions that the value depends on. Operations keep their order, so that nothing rounds
    otherwise.
    """
    text, dims = place.tensor, value_dims(s, value)
    accesses = [s.reads[leaf.position] for leaf in reads_in(value)]
    dtypes = {nest.tensor(name).dtype for name in (s.write.tensor, *(a.tensor for a in accesses))}
    if len(dtypes) > 1:
        raise InvalidSchedule(
            f"promote: values of {' and '.join(sorted(dtypes))} meet in {text}, in {s.name}"
        )
    if set(s.dims) & {symbol.name for symbol in value.free_symbols}:
        raise InvalidSchedule(f"promote: {text} depends on an index of {s.name} as a number")
    prefix = prefix_of(tree, loop, s.name)
    everywhere = isl.Set.universe(s.domain.get_space())
    element = date_map(everywhere, [dimension(s.domain, d) for d in dims])
    dates = prefix_map(nest.domains[s.name], s.name, prefix)
    footprint = element.intersect_domain(nest.domains[s.name]).apply_domain(dates).coalesce()
    if any(footprint.range().dim_min_val(d).is_neg() for d in range(len(dims))):
        raise InvalidSchedule(f"promote: {text} has negative indices in {s.name}")
    reads = tuple(Access(a.tensor, element.reverse().apply_range(a.map)) for a in accesses)
    numbered = {leaf: read(p) for p, leaf in enumerate(reads_in(value))}

    def redirected(buffer: str) -> dict[str, Statement]:
        there = dates.flat_range_product(element).set_tuple_name(OUT, buffer)
        return {s.name: _with_buffer(s, value, Access(buffer, there))}

    main = accesses[0].tensor if len(accesses) == 1 else max(accesses, key=lambda a: a.map.dim(OUT)).tensor
    what = Copied(main, footprint, reads, substitute(value, numbered), dtypes.pop())
    return copied_in(nest, tree, prefix, what, redirected, place)


def _value(s: Statement, text: str) -> sympy.Basic:
    """The part of a statement's body that reads like this. A divisor's reciprocal is none: a / b is one division."""
    found = next((node for node in sympy.preorder_traversal(s.body) if value_text(s, node) == text), None)
    if found is not None and isinstance(found, sympy.Pow) and found.args[1] == -1:
        raise InvalidSchedule(
            f"promote: {text} is a divisor's reciprocal in {s.name}, where one division is asked for"
        )
    if found is None or not found.atoms(Read):
        raise InvalidSchedule(
            f"promote: no tensor {text!r}, and no value in {s.name} that reads like this: {body_text(s)}"
        )
    return found


def value_dims(s: Statement, value: sympy.Basic) -> tuple[int, ...]:
    """The dimensions that a value depends on, in the order of the axes of what it reads most of."""
    accesses = [s.reads[leaf.position] for leaf in reads_in(value)]
    axes = [moving_axes(access) for access in accesses]
    most = max(axes, key=len, default={})
    dims = {d for moved in axes for d in moved}
    return tuple(sorted(dims, key=lambda d: (most.get(d, -1), d)))


def moving_axes(access: Access) -> dict[int, int]:
    """For each of an instance's dimensions that an access moves with, the last axis along which it does."""
    subscripts, rank = access.subscripts(), access.map.dim(IN)
    return {
        d: axis
        for axis in range(access.map.dim(OUT))
        for d in range(rank)
        if subscripts.get_pw_aff(axis).involves_dims(IN, d, 1)
    }


def _with_buffer(s: Statement, value: sympy.Basic, buffer: Access) -> Statement:
    """The statement with reads of a buffer in place of a value."""
    new = len(s.reads)
    body = substitute(s.body, {value: read(new)})
    every, used = (*s.reads, buffer), [leaf.position for leaf in reads_in(body)]
    numbered = {read(old): read(position) for position, old in enumerate(used)}
    return replace(s, reads=tuple(every[p] for p in used), body=substitute(body, numbered))
