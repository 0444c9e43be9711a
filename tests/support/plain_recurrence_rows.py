"""Rows side by side in plain Python: of each square all loads, then each step of all rows, then all stores."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from polyfuse.codegen.cpu.intrinsics.recurrence_rows import (
    LINE,
    NUMBER,
    READ,
    STILL,
    TARGET,
    Abreast,
    elements_of,
)

Array = np.ndarray[Any, Any]
Places = dict[Abreast, tuple[Array, tuple[int, ...], tuple[int, ...]]]
"""For each element in memory its array, its index in the first step and row, and what the next row adds to that, or
the next step where rows are neighbours."""


def plain_rows_abreast(
    row: Callable[..., Any],
    kind: Callable[[float], Any],
    rows: int,
    steps: int,
    places: tuple[tuple[Array, tuple[int, ...]], ...],
    apart: tuple[tuple[int, ...], ...],
    numbers: tuple[Any, ...],
) -> None:
    """What `rows_abreast` computes."""
    found = elements_of(row)
    in_memory = [one for one in found if one.form != NUMBER]
    where = {one: (*place, by) for one, place, by in zip(in_memory, places, apart, strict=True)}
    single = [one.name for one in found if one.form == NUMBER]
    known = dict(zip(single, numbers, strict=True))
    lanes = 64 // places[0][0].itemsize
    for first in range(0, steps // lanes * lanes, lanes):
        computed = _square(where, range(rows), range(first, first + lanes), row, known)
        for (one, r, step), value in computed.items():
            array, here = _at(where, one, r, step)
            array[here] = value


def _square(
    where: Places, rows: range, steps: range, run: Callable[..., Any], known: dict[str, Any]
) -> dict[tuple[Abreast, int, int], Any]:
    """What the targets are in each row and step."""
    targets = {one.name: one for one in where if one.form == TARGET}
    loaded = {
        (one, row, step): _loaded(where, one, row, step)
        for one in where
        for row in rows
        for step in steps
        if one.form in (READ, LINE, STILL) or (one.steps and not _is_inside(one, row, step, rows, steps))
    }
    computed: dict[tuple[Abreast, int, int], Any] = {}
    for step in steps:
        for row in rows:
            space = dict.fromkeys(targets) | known
            for one in where:
                if (one, row, step) in loaded:
                    space[one.name] = loaded[one, row, step]
                elif one.steps:
                    space[one.name] = computed[targets[one.form], row - one.rows, step - one.steps]
            found = run(**space)
            values = found if isinstance(found, tuple) else (found,)
            computed |= {(one, row, step): x for one, x in zip(targets.values(), values, strict=True)}
    return computed


def _is_inside(one: Abreast, row: int, step: int, rows: range, steps: range) -> bool:
    """Whether a step of this square computes what a carried element is."""
    return row - one.rows in rows and step - one.steps in steps


def _loaded(where: Places, one: Abreast, row: int, step: int) -> Any:
    array, here = _at(where, one, row, 0 if one.form == STILL else step)
    return array[here]


def _at(where: Places, one: Abreast, row: int, step: int) -> tuple[Array, tuple[int, ...]]:
    array, index, by = where[one]
    moved = row if one.by else step
    *outer, last = (i + moved * b for i, b in zip(index, by, strict=True))
    here = (*outer, last + (one.by * step if one.by else row))
    assert all(0 <= i < n for i, n in zip(here, array.shape, strict=True)), "outside of an array"
    return array, here
