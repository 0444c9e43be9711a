"""What emitted CPU source calls, in plain Python: operations element by element, cores in a random order."""

from __future__ import annotations

import math
import operator
import random
from collections.abc import Callable
from types import FunctionType, SimpleNamespace
from typing import Any

import numpy as np

from polyfuse.codegen.cpu.intrinsics.microkernels.tile_spec import AT_LEAST, TileSpec
from polyfuse.codegen.cpu.intrinsics.recurrence_rows import RowElement
from polyfuse.codegen.cpu.intrinsics.worksharing import share_from
from tests.support.plain_recurrence_rows import plain_rows_abreast

Array = np.ndarray[Any, Any]

FUNCTIONS: dict[str, Callable[..., Any]] = {
    "joined": lambda array, axis: array.reshape((*array.shape[:axis], -1, *array.shape[axis + 2 :])),
    **{f"vector_{name}": getattr(np, name) for name in ("exp", "log", "tanh", "sin", "cos", "floor", "ceil")},
    "vector_erf": math.erf,
    "vector_pow": np.power,
    "larger": np.maximum,
    "smaller": np.minimum,
    "interleave": lambda vectors: None,
}
"""The functions of CPU kernels in plain Python."""


def plain_names(seed: int) -> dict[str, Any]:
    """What emitted CPU source imports, in plain Python: cores in a random order, fresh memory full of NaN."""
    rng = random.Random(seed)

    def on_cores(part: Callable[..., None], members: int, arguments: tuple[Any, ...]) -> None:
        for member in rng.sample(range(members), members):
            part(*arguments, member, members)

    def shuffled(*bounds: int) -> list[int]:
        values = range(*bounds)
        return rng.sample(values, len(values))

    def full_of_nan(shape: tuple[int, ...], dtype: type) -> Array:
        return np.full(shape, 77 if np.dtype(dtype).kind in "iub" else np.nan, dtype)

    def unsigned(index: int) -> int:
        assert index >= 0, "an index counted from the end"
        return index

    numpy = SimpleNamespace(empty=full_of_nan, float64=np.float64, float32=np.float32)
    return {
        "math": math,
        "np": numpy,
        "int64": int,
        "uint64": int,
        "whole_registers": lambda: None,
        "opaque": int,
        "add_any_order": operator.add,
        "multiply_any_order": operator.mul,
        "max_any_order": np.maximum,
        "min_any_order": np.minimum,
        **FUNCTIONS,
        "TileSpec": TileSpec,
        "tile_dot": plain_dots,
        "tile_mac": plain_tile,
        "tile_mac_ahead": plain_tile_ahead,
        "tile_mac_rows_ahead": plain_tile_rows_ahead,
        "tile_mac_columns_ahead": plain_tile_columns_ahead,
        "tile_mac_cut": plain_cut_tile,
        "tile_mac_slanted": plain_slanted_tile,
        "tile_mac_windows": plain_windows,
        "tile_zero": plain_zeros,
        "tile_first": plain_first_values,
        "tile_like": lambda array, rows, columns: full_of_nan((rows, columns), array.dtype),
        "store_transposed": plain_transposed,
        "load_transposed": plain_transposed_load,
        "address": lambda array, index: (array, index),
        "VectorRow": plain_row,
        "RowElement": RowElement,
        "short_row": plain_short_row,
        "reduced_row": plain_reduced_row,
        "beside": lambda place, array, by: by,
        "rows_abreast": plain_rows_abreast,
        "on_heap": full_of_nan,
        "on_stack": full_of_nan,
        "line_of": lambda array, count: np.full(count, np.nan, array.dtype),
        "past_line": lambda array, index: rng.randrange(16),
        "store_past": plain_store,
        "stores_done": lambda: None,
        "turns_of": lambda count: [-(2**63)] * (count + 1),
        "next_turn": next_turn,
        "await_turn": await_turn,
        "await_all": lambda turns, turn: await_turn(turns, turn, 2**63 - 2),
        "end_turn": end_turn,
        "close_turns": lambda turns, turn: end_turn(turns, turn, 2**63 - 2),
        "get_num_threads": lambda: 3,
        "Part": lambda function: function,
        "Relay": lambda function: function,
        "run": lambda part, arguments: part(*arguments),
        "on_cores": on_cores,
        "shuffled": shuffled,
        "team_of": lambda members: ([0] * members, [0] * members),
        "first_share": lambda team, phase, member: first_share(rng, team, phase, member),
        "next_share": lambda team, phase, share: next_share(rng, team, phase, share),
        "share_from": share_from,
        "within": within,
        "float64": float,
        "float32": np.float32,
    }


def plain_store(array: Array, index: tuple[int, ...], line: Array, first: int, count: int) -> None:
    """What a piece of a row past the caches is: it lies in the row, and in its line."""
    *outer, start = index
    assert 0 < count <= line.size - first
    assert 0 <= start <= array.shape[-1] - count
    array[(*outer, slice(start, start + count))] = line[first : first + count]


def plain_row(function: FunctionType) -> FunctionType:
    """A vector row's function for NumPy's arrays of one element."""
    of_arrays = SimpleNamespace(fabs=np.abs, sqrt=np.sqrt, inf=math.inf, nan=math.nan)
    made = FunctionType(function.__code__, {**function.__globals__, "math": of_arrays})
    made.__annotations__ = function.__annotations__
    return made


def plain_short_row(
    row: Callable[..., None],
    kind: Callable[[float], Any],
    count: int,
    places: tuple[tuple[Array, tuple[int, ...]], ...],
    numbers: tuple[Any, ...],
) -> None:
    """What a short row computes, element by element: the row assigns to arrays of one."""
    for c in range(count):
        starts = ((array, outer, last + c) for array, (*outer, last) in places)
        elements = (array[(*outer, slice(start, start + 1))] for array, outer, start in starts)
        row(*elements, *map(kind, numbers))


def next_turn(turns: list[int]) -> int:
    """One value of a pipeline after the other."""
    turns[0] = max(0, turns[0] + 1)
    return turns[0]


def await_turn(turns: list[int], turn: int, value: int) -> None:
    """The value before has ended: nothing runs at once here."""
    assert turn == 0 or turns[turn] > value


def end_turn(turns: list[int], turn: int, value: int) -> None:
    """Values of the inner loop end in their order."""
    assert turns[turn + 1] <= value
    turns[turn + 1] = value + 1


Team = tuple[list[int], list[int]]
"""How many loops each share has been begun in, and in how many it has ended."""


def first_share(rng: random.Random, team: Team, phase: int, member: int) -> int:
    """A core's own share where nobody has taken it."""
    begun, _ = team
    if begun[member] != phase:
        return another_share(rng, team, phase)
    begun[member] += 1
    return member


def within(value: int, first: int, end: int) -> int:
    """A value of which machine code assumes this range."""
    assert first <= value < end
    return value


def next_share(rng: random.Random, team: Team, phase: int, share: int) -> int:
    """One core runs the whole region before another begins: it takes all shares, its own first."""
    _, ended = team
    assert ended[share] == phase
    ended[share] += 1
    return another_share(rng, team, phase)


def another_share(rng: random.Random, team: Team, phase: int) -> int:
    """Any share of a loop that nobody has begun; -1 where all have ended."""
    begun, ended = team
    free = [share for share, loops in enumerate(begun) if loops == phase]
    if not free:
        assert min(ended) > phase
        return -1
    share = rng.choice(free)
    begun[share] += 1
    return share


def plain_tile(
    tile: TileSpec,
    y: Array,
    y_at: tuple[int, ...],
    y_row: int,
    a: Array,
    a_at: tuple[int, ...],
    a_row: int,
    a_step: int,
    b: Array,
    b_at: tuple[int, ...],
    b_step: int,
    steps: int,
) -> None:
    """What the microkernel computes, element by element."""

    def moved(at: tuple[int, ...], *steps: tuple[int, int]) -> tuple[int, ...]:
        by = dict(steps)
        return tuple(index + by.get(axis, 0) for axis, index in enumerate(at))

    for r, c, k in np.ndindex(tile.rows, tile.columns, max(0, steps)):
        left = a[moved(a_at, (a_row, r), (a_step, k))]
        right = b[moved(b_at, (b_step, k), (b.ndim - 1, c))]
        y[moved(y_at, (y_row, r), (y.ndim - 1, c))] += left * right


def plain_tile_ahead(
    tile: TileSpec, following: tuple[int, ...], part: int, share: int, **operands: Any
) -> None:
    """The same, asking for what `following` says: what lies behind b's end begins as its last block of steps ends."""
    b, steps = operands["b"], operands["steps"]
    assert share * part < tile.columns
    assert all(0 <= index <= size + steps for index, size in zip(following, b.shape, strict=True))
    assert following != operands["b_at"]
    plain_tile(tile, **operands)


def plain_tile_rows_ahead(
    tile: TileSpec, following: tuple[int, ...], part: int, share: int, **operands: Any
) -> None:
    """The same, asking for what `following` says of the rows' factor."""
    a, steps = operands["a"], operands["steps"]
    assert share * part < tile.rows
    assert all(0 <= index <= size + steps for index, size in zip(following, a.shape, strict=True))
    assert following != operands["a_at"]
    plain_tile(tile, **operands)


def plain_tile_columns_ahead(tile: TileSpec, further: int, **operands: Any) -> None:
    """The same, asking for what lies so many numbers further on in each row of b."""
    assert further % tile.columns == 0 < further
    plain_tile(tile, **operands)


def plain_reduced_row(
    row: Callable[..., None],
    kind: Callable[[float], Any],
    count: int,
    target: tuple[Array, tuple[int, ...]],
    strides: tuple[int, ...],
    lows: tuple[int, ...],
    highs: tuple[int, ...],
    places: tuple[tuple[tuple[Array, tuple[int, ...]], ...], ...],
) -> None:
    """Run a reduced row step by step and element by element."""

    def element(place: tuple[Array, tuple[int, ...]], further: int) -> Array:
        array, (*outer, last) = place
        assert 0 <= last + further < array.shape[-1]
        return array[(*outer, slice(last + further, last + further + 1))]

    for low, high, read in zip(lows, highs, places, strict=True):
        assert 0 <= low < high <= count
        for c in range(low, high):
            reads = (element(place, stride * c) for place, stride in zip(read, strides, strict=True))
            row(element(target, c), *reads)


def plain_zeros(tile: TileSpec, y: Array, y_at: tuple[int, ...], y_row: int) -> None:
    """A tile of sums set to zero, element by element."""
    for r, c in np.ndindex(tile.rows, tile.columns):
        at = [index + (r if axis == y_row else 0) for axis, index in enumerate(y_at)]
        y[(*at[:-1], at[-1] + c)] = 0


def plain_first_values(
    tile: TileSpec, y: Array, y_at: tuple[int, ...], y_row: int, b: Array, b_at: tuple[int, ...]
) -> None:
    """Each row of a tile of sums set to the same numbers, element by element."""
    for r, c in np.ndindex(tile.rows, tile.columns):
        at = [index + (r if axis == y_row else 0) for axis, index in enumerate(y_at)]
        y[(*at[:-1], at[-1] + c)] = b[(*b_at[:-1], b_at[-1] + c)]


def plain_transposed(
    rows: int, columns: int, tile: Array, y: Array, y_at: tuple[int, ...], y_column: int, step: int = 1
) -> None:
    """A tile's rows along the last axis of y, element by element."""
    for r, c in np.ndindex(rows, columns):
        at = [index + (step * c if axis == y_column else 0) for axis, index in enumerate(y_at)]
        y[(*at[:-1], at[-1] + r)] = tile[r, c]


def plain_transposed_load(
    rows: int, columns: int, tile: Array, x: Array, x_at: tuple[int, ...], x_column: int, step: int = 1
) -> None:
    """A tile from rows along the last axis of x, element by element."""
    for r, c in np.ndindex(rows, columns):
        at = [index + (step * c if axis == x_column else 0) for axis, index in enumerate(x_at)]
        tile[r, c] = x[(*at[:-1], at[-1] + r)]


def plain_dots(tile: TileSpec, rows_here: int, columns_here: int, b_row: int, **operands: Any) -> None:
    """What tile_dot computes: steps lie along the last axes of both factors, b's columns along `b_row`."""
    assert 0 < rows_here <= tile.rows
    assert 0 < columns_here <= tile.columns
    across, at = np.swapaxes(operands["b"], b_row, -1), list(operands["b_at"])
    at[b_row], at[-1] = at[-1], at[b_row]
    step = operands["a"].ndim - 1
    turned = {**operands, "a_step": step, "b": across, "b_at": tuple(at), "b_step": b_row}
    plain_tile(TileSpec(rows_here, columns_here), **turned)


def plain_cut_tile(tile: TileSpec, rows_here: int, columns_here: int, **operands: Any) -> None:
    """What the microkernel computes for a tile that may be cut short: to what was said beforehand, if it was."""
    assert rows_here <= tile.rows
    assert columns_here <= tile.columns
    assert tile.last_rows == 0 or rows_here in (tile.rows, tile.last_rows) or rows_here <= 0
    assert tile.last_columns == 0 or columns_here in (tile.columns, tile.last_columns) or columns_here <= 0
    plain_tile(TileSpec(rows_here, columns_here), **operands)


def plain_slanted_tile(
    tile: TileSpec,
    rows_here: int,
    lows: tuple[tuple[int, int], ...],
    highs: tuple[tuple[int, int], ...],
    **operands: Any,
) -> None:
    """What the microkernel computes for a tile that is cut aslant, row by row: each has columns of its own."""
    assert rows_here <= tile.rows
    for r in range(rows_here):
        low, high = max(first + by * r for first, by in lows), min(first + by * r for first, by in highs)
        assert low >= high or 0 <= low < high <= tile.columns
        y_at, a_at = (
            tuple(x + r * (n == operands[row]) for n, x in enumerate(operands[at]))
            for at, row in (("y_at", "y_row"), ("a_at", "a_row"))
        )
        y_at, b_at = ((*at[:-1], at[-1] + low) for at in (y_at, operands["b_at"]))
        if low < high:
            plain_tile(TileSpec(1, high - low), **{**operands, "y_at": y_at, "a_at": a_at, "b_at": b_at})


def plain_windows(
    tile: TileSpec,
    columns_here: int,
    y: Array,
    y_at: tuple[int, ...],
    y_row: tuple[int, ...],
    a: Array,
    a_at: tuple[int, ...],
    a_row: tuple[int, ...],
    a_steps: tuple[tuple[int, ...], ...],
    b: Array,
    b_at: tuple[int, ...],
    b_steps: tuple[tuple[int, ...], ...],
    counts: tuple[int, ...],
    lows: tuple[int, ...],
    highs: tuple[int, ...],
) -> None:
    """What the microkernel over windows computes, element by element; what is said of its rows has to be so."""

    def moved(at: tuple[int, ...], *moves: tuple[tuple[int, ...], int]) -> tuple[int, ...]:
        place = tuple(int(x) for x in np.add(at, np.sum([np.multiply(m, n) for m, n in moves], axis=0)))
        assert min(place) >= 0, "an index counted from the end"
        return place

    assert columns_here <= tile.columns
    assert all(low >= high or 0 <= low < high <= tile.rows for low, high in zip(lows, highs, strict=True))
    if tile.cases.startswith(AT_LEAST):
        for low, high, text in zip(lows, highs, tile.cases.removeprefix(AT_LEAST).split(), strict=True):
            first, end = map(int, text.split(":"))
            assert first >= end or low <= first < end <= high
    else:
        here = " ".join(f"{low}:{high}" for low, high in zip(lows, highs, strict=True))
        assert here in tile.cases.split(" or ")
    for *outer, inner in np.ndindex(*(max(0, count) for count in counts), len(lows)):
        for r, c in np.ndindex(tile.rows, columns_here):
            if lows[inner] <= r < highs[inner]:
                left = a[moved(a_at, (a_row, r), *zip(a_steps, (*outer, inner), strict=True))]
                lane = (*(0,) * (b.ndim - 1), 1)
                right = b[moved(b_at, (lane, c), *zip(b_steps, (*outer, inner), strict=True))]
                y[moved(y_at, (y_row, r), ((*(0,) * (y.ndim - 1), 1), c))] += left * right
