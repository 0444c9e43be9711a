"""Mixed-radix digits of indices: the elements along an axis that have cells in a buffer, and their order.

    t[i], t[i + 64], t[i + 128]                       i // 64                            one digit, of 64
    t[i], t[i + 1], t[i + 8], t[i + 9], t[i + 16]     i % 2 + 2 * (i // 8)               two digits, of 1 and of 8

A buffer in which elements are left out is as small as what it holds (storage.py).
"""

from __future__ import annotations

from math import gcd

import islpy as isl

from polyfuse.layouts.core_matrix import Digit
from polyfuse.sets import OUT, SET, points

MOST_LISTED = 1024
"""Elements along an axis at most that are listed to see which of them are left out."""

EVERY = (Digit(1, None, 1),)
"""An axis along which nothing is left out."""


def floored(value: isl.PwAff, by: int) -> isl.PwAff:
    """floor(value / by)."""
    return value if by == 1 else value.scale_down_val(isl.Val(by)).floor()


def digits_of(value: isl.PwAff, digits: tuple[Digit, ...]) -> isl.PwAff:
    """The sum of value // divisor % modulus * weight."""
    found = None
    for digit in digits:
        part = floored(value, digit.divisor)
        if digit.modulus is not None:
            part = part.sub(floored(part, digit.modulus).scale_val(isl.Val(digit.modulus)))
        part = part if digit.weight == 1 else part.scale_val(isl.Val(digit.weight))
        found = part if found is None else found.add(part)
    assert found is not None, "an index has digits"
    return found


def left_out(value: isl.PwAff, digits: tuple[Digit, ...]) -> isl.Set:
    """The instances whose index is not a sum of such digits times what they stand for."""
    held = digits_of(value, tuple(Digit(d.divisor, d.modulus, d.divisor) for d in digits))
    return held.ne_set(value)


def held_along(touched: isl.Map, d: int, corner: isl.PwAff, span: int) -> tuple[Digit, ...]:
    """The digits of the indices along an axis that are accessed, counted from a corner, of `span` with those between.

    { [i] -> t[i]; [i] -> t[i + 64]; [i] -> t[i + 192] }  ->  one digit, of 64
    { [i] -> t[i + 8 * j + e] : 0 <= j < 4, 0 <= e < 2 }  ->  two, of 1 and of 8
    """
    axis = touched.project_out(OUT, d + 1, touched.dim(OUT) - d - 1).project_out(OUT, 0, d)
    inside = axis.sum(isl.Map.from_pw_aff(corner.neg())).range()
    step = _common(inside)
    whole = isl.Set(f"{{ [x] : 0 <= x < {span} and x mod {step} = 0 }}")
    inside = inside.project_out(isl.dim_type.param, 0, inside.dim(isl.dim_type.param)).reset_tuple_id()
    every = (Digit(step, None, 1),)
    if whole.is_subset(inside):
        return every
    if span // step > MOST_LISTED:
        return _in_groups(inside, whole, step) or every
    return _digits(sorted(number for (number,) in points(inside))) or every


def _in_groups(inside: isl.Set, whole: isl.Set, step: int) -> tuple[Digit, ...] | None:
    """Two digits of numbers of which so many neighbours follow each other, in groups that begin equally far apart.

    { 0 … 7, 512 … 519, 1024 … 1031 }  ->  x % 8 + 8 * (x // 512)
    """
    count = whole.subtract(inside).dim_min_val(0).to_python() // step
    later = inside.lower_bound_val(SET, 0, isl.Val(count * step))
    if later.is_empty():
        return None
    apart = later.dim_min_val(0).to_python()
    groups = isl.Set(f"{{ [x] : 0 <= x mod {apart} < {count * step} and x mod {step} = 0 }}")
    if apart % (count * step) or not inside.is_subset(groups):
        return None
    return Digit(step, count, 1), Digit(apart, None, count)


def cells_of(digits: tuple[Digit, ...], span: int) -> int:
    """Return the number of cells for indices below `span`."""
    last = digits[-1]
    return last.weight * ((span - 1) // last.divisor + 1)


def _common(inside: isl.Set) -> int:
    """The largest number of which all of these are multiples."""
    found = 0
    for part in map(isl.Set.from_basic_set, inside.get_basic_sets()):
        first, last = part.dim_min_val(0), part.dim_max_val(0)
        found = gcd(found, first.to_python(), 0 if first.eq(last) else part.get_stride(0).to_python())
    return max(1, found)


def _digits(numbers: list[int]) -> tuple[Digit, ...] | None:
    """Digits whose sums these numbers are, each once; None if there are none.

    >>> _digits([0, 1, 8, 9, 16, 17])
    (Digit(divisor=1, modulus=2, weight=1), Digit(divisor=8, modulus=None, weight=2))
    """
    found, weight = list[Digit](), 1
    while len(numbers) > 1:
        step = numbers[1]
        count = next((n for n, number in enumerate(numbers) if number != n * step), len(numbers))
        groups = [numbers[first : first + count] for first in range(0, len(numbers), count)]
        alike = all([number - group[0] for number in group] == numbers[:count] for group in groups)
        numbers = [group[0] for group in groups]
        if not alike or any(number % (step * count) for number in numbers):
            return None
        found.append(Digit(step, None if len(numbers) == 1 else count, weight))
        weight *= count
    return tuple(found) if found and not numbers[0] else None
