"""Find loops that are steps along rows on vector lanes, and print them (outer-loop vectorization).

    for j in range(1, 400):                                     rows lie along memory, and each step needs the last
        for r in range(0, 16):  on vector lanes
            t[16*i + r, j] = x[16*i + r, j] + 0.5 * t[16*i + r, j - 1]
    ->  rows_abreast(…)                                          recurrence_rows.py: whole squares
        for j in range(385, 400): for r: …                       what is left

    for w in range(max(0, …), min(…)):                          a diagonal at a time, not all rows in the first ones
        for r in range(max(0, w - 399), min(16, w + 1)):
            t[r + 1, w - r + 1] = max(t[r, w - r + 1], t[r + 1, w - r]) + s[r, w - r]

Arrays in which rows are neighbours (u[j, 16*i + r]) are loaded and stored a step at a time, beside those along memory.

As LLVM has it each vector is gathered from as many rows, and scattered over them. Of 400 x 400 float32 numbers an edit
distance took 167 µs so, a filter of two steps 58 (one Zen 5 core).

Loads of a square come before its stores: what a step reads was computed by an earlier step of the same rows, which is
known by its distance, or lies where nothing is stored before it in the loops' own order.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass, replace

from polyfuse.codegen.cpu.intrinsics.extrema import EXTREMA
from polyfuse.codegen.cpu.intrinsics.microkernels.tile_mac import VECTOR_BYTES
from polyfuse.codegen.cpu.intrinsics.recurrence_rows import LINE, NUMBER, READ, STILL, TARGET, Abreast
from polyfuse.codegen.cpu.intrinsics.vector_expression import ELEMENTS, are_on_vectors
from polyfuse.codegen.cpu.patterns.calls import named, printed
from polyfuse.codegen.cpu.patterns.triangle_border import with_all_rows
from polyfuse.codegen.cpu.patterns.vector_rows import Define
from polyfuse.codegen.looptree.body_source import IN_PLACE, Values, own_name
from polyfuse.codegen.looptree.gather_rows import is_chosen
from polyfuse.codegen.looptree.index import binary, mentions, operand
from polyfuse.codegen.looptree.leading_reference import distance
from polyfuse.codegen.looptree.nodes import Block, Element, For, Node, Store
from polyfuse.codegen.looptree.product import corner, movement, numbers_in, parts_of
from polyfuse.ir.expression import call
from polyfuse.ir.number_types import ITEMSIZE

ROWS_ABREAST = "rows_abreast"

MOST = 4
"""Vectors of rows side by side: the 32 rows of float64 numbers that a tile of the strategy's has at most."""


@dataclass(frozen=True)
class RowsAbreast:
    """Lines that say where whole squares begin and end, those of their call, and a loop over the steps that are left.

    With a `part` the loop stands in `for part in range(2)`: over those before the squares, and over those behind them.
    """

    bounds: tuple[str, ...]
    call: tuple[str, ...]
    left: For
    part: str | None = None

    def lines(self, left: list[str]) -> list[str]:
        """All of it, given the lines of the loop."""
        if self.part is None:
            return [*self.bounds, *self.call, *left]
        inside = [f"if {self.part} == 1:", *(f"    {line}" for line in self.call), *left]
        return [*self.bounds, f"for {self.part} in range(2):", *(f"    {line}" for line in inside)]


@dataclass(frozen=True)
class _Steps:
    """The loops: steps, and rows on vector lanes around stores; how many of them, of how many vectors' lanes."""

    steps: For
    rows: For
    stores: tuple[Store, ...]
    first: int
    count: int

    @property
    def lanes(self) -> int:
        """Rows in a vector, and steps in a square."""
        return VECTOR_BYTES // ITEMSIZE[self.stores[0].target.dtype]


def rows_abreast(
    steps: For, place: Callable[[Element], ast.expr], unused: Callable[[str], str], define: Define
) -> RowsAbreast | None:
    """The pieces of a loop over steps that wait for each other, around rows on lanes that lie along memory.

    `place` writes an element, `unused` makes a name that stands for nothing else, `define` a vector row.
    """
    found = _loops(steps)
    known = None if found is None else _named(found)
    if found is None or known is None:
        return None
    elements, names = known
    body = [
        line
        for store, read in zip(found.stores, names, strict=True)
        for line in _lines(store, elements, read)
    ]
    dtypes = {one.name: one.dtype for one, _ in elements}
    waits = any(one.steps for one, _ in elements)
    turned = any(one.form in (READ, TARGET) and one.by for one, _ in elements)
    if not are_on_vectors(ast.parse("\n".join(body)).body, dtypes) or not waits or not turned:
        return None
    whole = _whole(found)
    if whole is None:
        return None
    start, stop = whole
    begin, done = (unused(f"{steps.variable}_{what}") for what in ("first", "done"))
    first = {steps.variable: ast.Name(begin), found.rows.variable: ast.Constant(found.first)}
    targets = [one.name for one, _ in elements if one.form == TARGET]
    parameters = [f"{one.name}: {one.annotation(targets)}" for one, _ in elements]
    row = define(parameters, [*body, f"return {', '.join(targets)}"])
    in_memory = [(one, element) for one, element in elements if one.form != NUMBER]
    operation = named(
        ROWS_ABREAST,
        *(ast.Name(row), ast.Name(found.stores[0].target.dtype)),
        rows=ast.Constant(found.count),
        steps=binary(ast.Sub(), ast.Name(done), ast.Name(begin)),
        places=ast.Tuple([call("address", [ast.Name(e.array), corner(e, first)]) for _, e in in_memory]),
        apart=ast.Tuple([_apart(e, found.rows if one.by else steps) for one, e in in_memory]),
        numbers=ast.Tuple([place(e) for one, e in elements if one.form == NUMBER]),
    )
    bounds = (
        f"{begin} = {ast.unparse(start)}",
        f"{done} = {begin} + max(0, {operand(stop)} - {begin}) // {found.lanes} * {found.lanes}",
    )
    squares = tuple(printed(operation))
    if start is steps.low:
        return RowsAbreast(bounds, squares, replace(steps, low=ast.Name(done)))
    part = unused(f"{steps.variable}_part")
    until = call("min", [ast.Name(begin), steps.high])
    behind = ast.Compare(ast.Name(part), [ast.Eq()], [ast.Constant(1)])
    low, high = (
        ast.IfExp(behind, after, before)
        for after, before in ((ast.Name(done), steps.low), (steps.high, until))
    )
    return RowsAbreast(bounds, squares, replace(steps, low=low, high=high), part)


def _loops(steps: For) -> _Steps | None:
    """The loops, if rows are a number of whole vectors and stores assign numbers of one size."""
    inside = _in_rows(steps.body)
    if inside is None or steps.bind is not None or steps.step != 1 or steps.ahead or steps.streams:
        return None
    rows, stores = inside
    assigned = tuple(one for one in stores if isinstance(one, Store) and one.op in ("=", *IN_PLACE))
    low, high = numbers_in(rows.low, "max"), numbers_in(rows.high, "min")
    if not low or not high or len(assigned) < len(stores) or any(store.indices for store in assigned):
        return None
    dtypes = {e.dtype for store in assigned for e in (store.target, *store.reads)}
    if not dtypes <= set(ELEMENTS) or len({ITEMSIZE[dtype] for dtype in dtypes}) > 1:
        return None
    found = _Steps(steps, rows, assigned, max(low), min(high) - max(low))
    fits = found.count > 0 and found.count % found.lanes == 0 and found.count // found.lanes <= MOST
    return found if fits else None


def _in_rows(body: Node) -> tuple[For, tuple[Node, ...]] | None:
    """The loop over rows on vector lanes that a step is, and what it holds; several of the same rows are one.

    { for r (vector): A; for r (vector): B }   ->   for r (vector): { A; B }, a vector of A before B
    """
    loops = [loop for loop in _parts(body) if isinstance(loop, For) and loop.bind == "vector"]
    values = {(loop.variable, ast.dump(loop.low), ast.dump(loop.high)) for loop in loops}
    plain = all(loop.step == 1 and not loop.ahead and not loop.streams for loop in loops)
    if len(values) != 1 or len(loops) < len(_parts(body)) or not plain:
        return None
    return loops[0], tuple(part for loop in loops for part in _parts(loop.body))


def _parts(node: Node) -> tuple[Node, ...]:
    return node.parts if isinstance(node, Block) else (node,)


def _named(found: _Steps) -> tuple[list[tuple[Abreast, Element]], list[dict[str, str]]] | None:
    """Each element that is loaded or stored and how it goes, and what each store calls what it reads; None for others.

    An element that is read before it is stored has two names: as it was, and as it is computed.
    """
    targets = {store.target.array: store.target for store in found.stores}
    ways = {array: _way(target, found) for array, target in targets.items()}
    if len(targets) < len(found.stores) or None in ways.values():
        return None
    names: dict[tuple[str, bool], str] = {}
    elements: list[tuple[Abreast, Element]] = []

    def add(element: Element, form: Abreast) -> str:
        key = str(element), form.form == TARGET
        if key not in names:
            names[key] = own_name(element, names.values())
        named = replace(form, name=names[key])
        if all(named != one for one, _ in elements):
            elements.append((named, element))
        return named.name

    called = {
        array: add(target, Abreast("", target.dtype, TARGET, by=ways[array] or 0))
        for array, target in targets.items()
    }
    stored: set[str] = set()
    reads: list[dict[str, str]] = []
    for store in found.stores:
        reads.append({})
        for read in store.reads if store.op == "=" else (store.target, *store.reads):
            own = targets.get(read.array)
            if own is not None and str(read) == str(own) and read.array in stored:
                reads[-1][str(read)] = called[read.array]
                continue
            form = _still_form(read, found) if own is None else _own_form(read, own, called, found)
            if form is None:
                return None
            reads[-1][str(read)] = add(read, form)
        stored.add(store.target.array)
    return elements, reads


def _own_form(read: Element, target: Element, called: dict[str, str], found: _Steps) -> Abreast | None:
    """The form in which an element of a stored array is read: as an earlier step computed it, or as it was before."""
    if movement(read, found.steps) != movement(target, found.steps):
        return None
    by = _way(target, found) or 0
    ago_and_over = _apart_along(read, target, found) if by else _apart_across(read, target, found)
    if ago_and_over is None:
        return None
    ago, over = ago_and_over
    if ago < 0 or str(read) == str(target):
        return Abreast("", read.dtype, READ, by=by)
    near = 0 < ago < found.lanes and abs(over) < found.lanes
    return Abreast("", read.dtype, called[target.array], ago, over, by) if near else None


def _apart_along(read: Element, target: Element, found: _Steps) -> tuple[int, int] | None:
    """The distance in steps and rows, along memory with steps, of an element from a target in the same array."""
    apart = _distances(read, target)
    rows = movement(target, found.rows)
    if apart is None or rows is None:
        return None
    *lines, last = apart
    axis = next(k for k, _ in enumerate(lines) if rows[k])
    over = -lines[axis] // rows[axis]
    if any(number != -over * rows[k] for k, number in enumerate(lines)):
        return None
    return (-last - over * rows[-1]) * _along(target, found.steps), over


def _apart_across(read: Element, target: Element, found: _Steps) -> tuple[int, int] | None:
    """The same where rows are neighbours in memory: of the same row only."""
    apart, step = _distances(read, target), movement(target, found.steps)
    if apart is None or step is None:
        return None
    axis = next(k for k, by in enumerate(step) if by)
    ago = -apart[axis] // step[axis]
    same = all(number == -ago * by for number, by in zip(apart, step, strict=True))
    return (ago, 0) if same else None


def _distances(read: Element, target: Element) -> list[int] | None:
    """The distance of two elements of an array along each axis."""
    apart = [distance(a, b) for a, b in zip(read.subscripts, target.subscripts, strict=True)]
    known = [number for number in apart if number is not None]
    return known if len(known) == len(apart) else None


def _still_form(read: Element, found: _Steps) -> Abreast | None:
    """The movement of an element of a read-only array with steps and rows."""
    step, row = movement(read, found.steps), movement(read, found.rows)
    if step is None or row is None or is_chosen(read):
        return None
    if not any(step):
        return Abreast("", read.dtype, STILL if any(row) else NUMBER)
    if _is_across(read, found):
        return Abreast("", read.dtype, READ, by=0)
    by = _along(read, found.steps)
    return Abreast("", read.dtype, READ if any(row) else LINE, by=by) if by else None


def _way(target: Element, found: _Steps) -> int | None:
    """1 or -1 if steps go along memory, and each row is another line of it; 0 if that is the other way round."""
    row = movement(target, found.rows)
    if row is None or is_chosen(target):
        return None
    if _is_across(target, found):
        return 0
    return _along(target, found.steps) or None if any(row[:-1]) else None


def _is_across(element: Element, found: _Steps) -> bool:
    """True if rows are neighbours in memory, and each step is another line of it."""
    step, row = movement(element, found.steps), movement(element, found.rows)
    if step is None or row is None:
        return False
    return row[-1:] == (1,) and not any(row[:-1]) and any(step[:-1]) and not step[-1]


def _along(element: Element, steps: For) -> int:
    """1 where the next step's element is the next one in memory, -1 if it is the one before; 0 for others."""
    step = movement(element, steps) or (0,)
    return step[-1] if abs(step[-1]) == 1 and not any(step[:-1]) else 0


def _lines(store: Store, elements: list[tuple[Abreast, Element]], reads: dict[str, str]) -> list[str]:
    """A store's assignments to names."""
    own = next(one.name for one, element in elements if one.form == TARGET and element == store.target)
    target = replace(store.target)  # no read is the same object

    def name(element: Element) -> ast.expr:
        return ast.Name(own if element is target else reads[str(element)])

    *first, last = ast.parse(
        "\n".join(Values(replace(store, target=target), name, EXTREMA, at_once=True).lines())
    ).body
    if isinstance(last, ast.AugAssign):
        last = ast.Assign([last.target], ast.BinOp(name(store.target), last.op, last.value))
    return [ast.unparse(ast.fix_missing_locations(statement)) for statement in (*first, last)]


def _whole(found: _Steps) -> tuple[ast.expr, ast.expr] | None:
    """From where to where all rows take part in a step; None if that is no interval that is seen."""
    box = found.first, found.first + found.count
    reached = with_all_rows(found.steps, found.rows, *map(ast.Constant, box))
    if reached is None:
        return None
    first, end = reached
    for bound, of, order, number in (
        (found.rows.low, "max", ast.LtE(), box[0]),
        (found.rows.high, "min", ast.GtE(), box[1]),
    ):
        for part in parts_of(bound, of):
            if not isinstance(part, ast.Constant) and not mentions(part, found.steps.variable):
                holds = ast.Compare(part, [order], [ast.Constant(number)])
                end.append(ast.IfExp(holds, found.steps.high, found.steps.low))
    start = first[0] if len(first) == 1 else call("max", first)
    return start, end[0] if len(end) == 1 else call("min", end)


def _apart(element: Element, loop: For) -> ast.expr:
    """The bytes from an element to that of a loop's next value."""
    by = movement(element, loop) or ()
    return call(
        "beside", [ast.Constant(0), ast.Name(element.array), ast.Tuple([ast.Constant(n) for n in by])]
    )
