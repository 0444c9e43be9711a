"""The meanings of the device operations (polyfuse.codegen.cuda.device_ops) in lock-step, by NumPy.

Every element goes through the memories' checks, as the plain loops' would.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np

from polyfuse.codegen.cuda.device_ops import DEVICE_OPS
from polyfuse.codegen.looptree.half_types import CONVERTED, converted, copied_bits
from polyfuse.ir.number_types import HALVES, ITEMSIZE
from polyfuse.ir.precision import ROWS_OF_ONE, STEPS, STORED, Math
from polyfuse.layouts.core_matrix import FORMATS, INSTRUCTION_ROWS
from polyfuse.layouts.wgmma_descriptors import UNIT, WARPGROUP, Form
from polyfuse.simulator.agents import HANDOVER_MEANINGS
from polyfuse.simulator.mma_fragments import Fragments, multiplied
from polyfuse.simulator.races import poison
from polyfuse.simulator.threads import (
    WIDE,
    Asked,
    Begun,
    Given,
    Meaning,
    Numbers,
    Threads,
    element,
    line,
    literal,
    spread,
)
from polyfuse.simulator.tma_copies import BULK_MEANINGS
from polyfuse.simulator.values import Value
from polyfuse.simulator.wgmma_matrices import matrices, warpgroups_multiplied

CORNERS = ((0, 0), (0, 1), (1, 0), (1, 1))
"""(h, e) of four registers in a row of a warpgroup's instruction."""


def perform(threads: Threads, name: str, node: ast.stmt, arguments: list[ast.expr]) -> None:
    """One call of an operation by the active threads."""
    MEANINGS[name](threads, node, DEVICE_OPS[name].named(arguments))


def _numbers(given: Given, *names: str) -> list[int]:
    """The integers that are given for some parameters."""
    return [literal(given, name) for name in names]


def _factor_numbers(given: Given, side: str) -> list[int]:
    """The integers that describe a factor's layout, in the order of the parameters."""
    start = f"{side}_"
    return [literal(given, name) for name in given if name.startswith(start) and name != f"{side}_at"]


def _tile_fma(threads: Threads, node: ast.stmt, given: Given) -> None:
    rows, columns = _numbers(given, "rows", "columns")
    y, a, b = (element(node, given[name]) for name in ("y", "a", "b"))
    a_lines, b_lines = _factor_numbers(given, "a"), _factor_numbers(given, "b")
    a_at, b_at, count = (np.asarray(threads.value(given[name])) for name in ("a_at", "b_at", "count"))
    places = [[np.int64(r), np.int64(c)] for r in range(rows) for c in range(columns)]
    sums = [np.asarray(threads.load(y, place)) for place in places]
    outer = threads.active
    for step in range(int(np.max(threads.active.pick(count)))):
        runs = np.asarray(step < count)
        threads.active = outer.where(np.broadcast_to(runs, np.shape(sums[0]))) if runs.ndim else outer
        if threads.active.count == 0 or (runs.ndim == 0 and not runs):
            break
        left = line(threads, a, a_at, rows, step, a_lines)
        right = line(threads, b, b_at, columns, step, b_lines)
        new = [s + x * z for s, (x, z) in zip(sums, ((x, z) for x in left for z in right), strict=True)]
        sums = [np.where(runs, after, before) for after, before in zip(new, sums, strict=True)]
    threads.active = outer
    for total, place in zip(sums, places, strict=True):
        threads.store(y, place, total)


def _tile_mma(math: Math, threads: Threads, node: ast.stmt, given: Given) -> None:
    """All lanes of a warp together: what each reads, and then the instructions on what all of them hold."""
    threads.together(node)
    rows, columns = _numbers(given, "rows", "columns")
    y, a, b = (element(node, given[name]) for name in ("y", "a", "b"))
    own = ("a_at", "b_at", "count", "lane_x", "lane_y")
    a_at, b_at, count, t, g = (np.asarray(threads.value(given[name])) for name in own)
    a_how, b_how = _factor_numbers(given, "a"), _factor_numbers(given, "b")
    if count.ndim:
        raise TypeError("the lanes of a warp take different numbers of steps")
    half, depth, each = columns // 2, STEPS[math], ROWS_OF_ONE[math]
    left = Fragments(threads, a, a_at, a_how, rows, True, math, t, g)
    right = Fragments(threads, b, b_at, b_how, half, False, math, t, g)
    places = [[np.int64(r), np.int64(c)] for r in range(rows) for c in range(columns)]
    sums = [np.asarray(threads.load(y, place)) for place in places]
    for first in range(0, int(count), depth):
        a_held, b_held = (side.at(first, int(count)) for side in (left, right))
        for m in range(0, rows, each):
            for n in range(half):
                two = (2 * n, 2 * n + 1) if right.transposed else (n, n + half)
                held = [r * columns + c for r in range(m, m + each) for c in two]
                new = multiplied(a_held[m : m + each], b_held[n], [sums[p] for p in held])
                for position, value in zip(held, new, strict=True):
                    sums[position] = value
    for total, place in zip(sums, places, strict=True):
        threads.store(y, place, total)


def _copy_converted(conversion: str, threads: Threads, node: ast.stmt, given: Given) -> None:
    count, run, step = _numbers(given, "count", "run", "step")
    target, source = element(node, given["target"]), element(node, given["source"])
    to, at = (np.asarray(threads.value(given[name])) for name in ("to", "at"))
    for lane in range(count):
        value = threads.load(source, threads.unravelled(source, at + lane), WIDE)
        held = copied_bits(conversion, value)
        place = threads.unravelled(target, to + lane // run * step + lane % run)
        threads.store(target, place, held, run * held.dtype.itemsize)


def _tile_wgmma(math: Math, threads: Threads, node: ast.stmt, given: Given) -> None:
    """All threads of a warpgroup together: an instruction reads its factors where descriptors say."""
    _begin_wgmma(math, threads, node, given)
    _await_wgmma(threads, node, given)


def _begin_wgmma(math: Math, threads: Threads, node: ast.stmt, given: Given) -> None:
    """Results are poison until they have been waited for."""
    threads.together(node, WARPGROUP)
    rows, columns, steps = _numbers(given, "rows", "columns", "steps")
    y, a, b = (element(node, given[name]) for name in ("y", "a", "b"))
    a_lines, b_lines = _factor_numbers(given, "a"), _factor_numbers(given, "b")
    places = [[np.int64(r), np.int64(c)] for r in range(rows) for c in range(columns)]
    assert isinstance(y.value, ast.Name)
    begun = [each for each in threads.begun if each.array == y.value.id]
    loaded = [np.asarray(threads.active.pick(threads.load(y, place))) for place in places]
    before = begun[-1].results if begun else loaded  # sums that tensor cores have go on there
    a_at, b_at = (
        _by_warpgroup(np.broadcast_to(threads.active.pick(threads.value(given[name])), before[0].shape))
        for name in ("a_at", "b_at")
    )
    for factor in (a, b):
        assert isinstance(factor.value, ast.Name)
        if factor.value.id in threads.unshown:
            raise TypeError(
                f"{factor.value.id} is read by tensor cores and was not shown to them since it was written"
            )

    def multiplied() -> list[Numbers]:
        sums = list(before)
        for step in range(0, steps, STEPS[math]):
            right = _matrices(math, threads, b, b_at, step, 4 * columns, b_lines)
            for m in range(rows // 2):
                first = a_at + m * a_lines[2]
                left = _matrices(math, threads, a, first, step, INSTRUCTION_ROWS, a_lines)
                own = [(2 * m + h) * columns + 2 * j + e for j in range(columns // 2) for h, e in CORNERS]
                new = warpgroups_multiplied(left, right, [sums[p] for p in own])
                for position, value in zip(own, new, strict=True):
                    sums[position] = value
        return sums

    threads.begun.append(Begun(threads.active, y.value.id, multiplied(), multiplied))
    for place in places:
        threads.store(y, place, poison("float32"))


def _await_wgmma(threads: Threads, node: ast.stmt, given: Given) -> None:
    """End all products that were begun; their factors must not have changed since."""
    (columns,) = _numbers(given, "columns")
    y, everyone = element(node, given["y"]), threads.active
    for begun in threads.begun:
        threads.active = begun.active
        _check_factors(begun)
        for position, value in enumerate(begun.results):
            threads.store(y, [np.int64(n) for n in divmod(position, columns)], spread(threads, value))
    threads.active = everyone
    threads.begun.clear()


def _await_wgmma_before(threads: Threads, node: ast.stmt, given: Given) -> None:
    """All but what was begun last has read its factors."""
    everyone = threads.active
    for begun in threads.begun[:-1]:
        threads.active = begun.active
        _check_factors(begun)
    threads.active = everyone
    del threads.begun[:-1]


def _check_factors(begun: Begun) -> None:
    for value, again in zip(begun.results, begun.multiplied(), strict=True):
        if not np.array_equal(value, again, equal_nan=True):
            raise TypeError("a factor was overwritten while tensor cores were to read it")


def _by_warpgroup(value: Numbers) -> Numbers:
    """The number that all threads of each warpgroup agree on."""
    by_group = value.reshape(-1, WARPGROUP)
    if (by_group != by_group[:, :1]).any():
        raise TypeError("the threads of a warpgroup name different places of a factor")
    return by_group[:, 0]


def _matrices(
    math: Math,
    threads: Threads,
    factor: ast.Subscript,
    at: Numbers,
    step: int,
    count: int,
    lines: list[int],
) -> Numbers:
    """Each warpgroup's matrix of so many rows, from a step on; `lines` as an operation has them."""
    held, (line, core, _, number) = STORED[math], lines
    form = Form.by(number)
    size = ITEMSIZE[held]
    first = at + step * size // UNIT * line
    bits = [form.described(int(start) * size, line * size, core * size) for start in first]

    # tensor cores read whole core matrices, of which no two words are in one bank: nothing waits
    def load(place: Numbers) -> Numbers:
        return np.asarray(
            threads.active.pick(threads.load(factor, [spread(threads, place // size)], nbytes=0))
        )

    found = matrices(bits, count, size, load, form.turned)
    return np.asarray(converted(f"from_{held}", found)) if held in HALVES else found


def _show_tensor_cores(threads: Threads, node: ast.stmt, given: Given) -> None:
    """Every thread shows what it has written."""
    if threads.active.mask is not None:
        raise TypeError("only some threads show what they wrote to the tensor cores")
    threads.unshown.clear()


def _copy_vector(threads: Threads, node: ast.stmt, given: Given) -> None:
    for target, place, value, width in _copied(threads, node, given):
        threads.store(target, place, value, width)


def _copy_padded(threads: Threads, node: ast.stmt, given: Given) -> None:
    target, source = element(node, given["target"]), element(node, given["source"])
    to, at, here = (np.asarray(threads.value(given[name])) for name in ("to", "at", "here"))
    threads.store(target, [to], _padded(threads, here, lambda: threads.load(source, [at])))


def _pad_converted(conversion: str, threads: Threads, node: ast.stmt, given: Given) -> None:
    """Only threads for which the condition holds load, the others have zeros."""
    here, everyone = np.asarray(threads.value(given["here"])), threads.active
    count, run, step = _numbers(given, "count", "run", "step")
    target, source = element(node, given["target"]), element(node, given["source"])
    to, at = (np.asarray(threads.value(given[name])) for name in ("to", "at"))
    for lane in range(count):
        value = threads.zeros(source)
        threads.active = everyone.where(here) if here.ndim else everyone
        if threads.active.count and np.any(here):
            wide = WIDE if count > 1 else None
            value = np.where(here, threads.load(source, threads.unravelled(source, at + lane), wide), value)
        threads.active = everyone
        held = copied_bits(conversion, value)
        place = threads.unravelled(target, to + lane // run * step + lane % run)
        threads.store(target, place, held, run * held.dtype.itemsize)


def _pad_ahead(threads: Threads, node: ast.stmt, given: Given) -> None:
    """Zeros too are on their way until they have been waited for."""
    here = np.asarray(threads.value(given["here"]))
    for target, place, value, width in _copied(threads, node, given, here):
        _ask(threads, target, place, value, width)


def _padded(threads: Threads, here: Any, load: Callable[[], Value]) -> Value:
    """Only threads for which a condition holds load, the others have zero."""
    everyone = threads.active
    threads.active = everyone.where(here) if here.ndim else everyone
    value: Value = np.float32(0)
    if threads.active.count and np.any(here):
        loaded = np.asarray(load())
        value = np.where(here, loaded, loaded.dtype.type(0))
    threads.active = everyone
    return value


def _copy_ahead(threads: Threads, node: ast.stmt, given: Given) -> None:
    for target, place, value, width in _copied(threads, node, given):
        _ask(threads, target, place, value, width)


def _ask(
    threads: Threads, target: ast.Subscript, place: list[Any], value: Value, width: int | None = None
) -> None:
    """Nobody may read what a copy is on its way to: it is poison until it has been waited for, and written then."""
    threads.store(target, place, poison(value.dtype.name), width)
    threads.groups[-1].append(Asked(threads.active, target, place, value))


def _copied(
    threads: Threads, node: ast.stmt, given: Given, here: Any = None
) -> Iterator[tuple[ast.Subscript, list[Any], Value, int | None]]:
    """(array, subscripts, value, bytes of the access) for each element of a copy; zero if it is not `here`."""
    count, step = _numbers(given, "count", "step")
    target, source = element(node, given["target"]), element(node, given["source"])
    to, at = (np.asarray(threads.value(given[name])) for name in ("to", "at"))
    wide = count * threads.itemsize(source) if count > 1 else None
    for lane in range(count):
        load = partial(threads.load, source, threads.unravelled(source, at + lane), wide)
        value = load() if here is None else _padded(threads, here, load)
        yield target, threads.unravelled(target, to + step * lane), value, wide if step == 1 else None


def _await_copies(threads: Threads, node: ast.stmt, given: Given) -> None:
    """The last group is complete; all groups but the last ones arrive. Who is not here has none on their way."""
    here = threads.active.mask
    asking = (asked.active.mask for group in threads.groups for asked in group)
    if here is not None and any((~here if mask is None else mask & ~here).any() for mask in asking):
        raise TypeError("only some threads wait for their copies: the others' groups would not be counted")
    (still_open,) = _numbers(given, "still_open")
    arrived = len(threads.groups) - still_open
    everyone = threads.active
    for asked in (each for group in threads.groups[: max(0, arrived)] for each in group):
        threads.active = asked.active
        threads.store(asked.target, asked.indices, asked.value, nbytes=0)
    threads.active = everyone
    threads.groups = [*threads.groups[max(0, arrived) :], []]


def _grid_barrier(threads: Threads, node: ast.stmt, given: Given) -> None:
    counter = given["arrivals"]
    assert isinstance(counter, ast.Name), "a parameter"
    threads.meet(node, counter.id)


MEANINGS: Mapping[str, Meaning] = {
    "tile_fma": _tile_fma,
    **{f"tile_mma_{math}": partial(_tile_mma, math) for math in STEPS},
    **{f"tile_wgmma_{math}": partial(_tile_wgmma, math) for math in FORMATS},
    **{f"begin_wgmma_{math}": partial(_begin_wgmma, math) for math in FORMATS},
    "await_wgmma": _await_wgmma,
    "await_wgmma_before": _await_wgmma_before,
    "show_tensor_cores": _show_tensor_cores,
    **{f"copy_{conversion}": partial(_copy_converted, conversion) for conversion in CONVERTED},
    "copy_vector": _copy_vector,
    "copy_ahead": _copy_ahead,
    **{f"pad_{conversion}": partial(_pad_converted, conversion) for conversion in CONVERTED},
    "copy_padded": _copy_padded,
    "pad_ahead": _pad_ahead,
    "await_copies": _await_copies,
    "grid_barrier": _grid_barrier,
    **BULK_MEANINGS,
    **HANDOVER_MEANINGS,
}
"""The meaning of each operation that is a statement, by name (polyfuse.codegen.cuda.device_ops)."""
