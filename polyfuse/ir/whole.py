"""Check integers that a user passes, one or several: sizes, axes, windows, groups.

whole ::= an integer of Python's or NumPy's, no bool, and no 2.0
"""

from __future__ import annotations

from collections.abc import Iterable
from numbers import Integral
from typing import TypeGuard

from polyfuse.errors import BadArgument


def is_whole(given: object) -> TypeGuard[int]:
    """True for one integer.

    >>> import numpy as np
    >>> is_whole(4), is_whole(np.int64(4)), is_whole(4.0), is_whole(True), is_whole("4")
    (True, True, False, False, False)
    """
    return not isinstance(given, bool) and isinstance(given, Integral)


def whole(what: str, given: object) -> int:
    """One integer as Python's; BadArgument, with what it is for, for anything else."""
    if not is_whole(given):
        raise BadArgument(f"{what}: expected an integer, given {given!r}")
    return int(given)


def all_whole(what: str, given: object) -> tuple[int, ...]:
    """One integer, or each of several; BadArgument for anything else.

    >>> all_whole("reshape: the shape", 24), all_whole("reshape: the shape", [4, -1])
    ((24,), (4, -1))
    """
    if isinstance(given, Iterable) and not isinstance(given, str):
        every = tuple(given)
        if all(is_whole(one) for one in every):
            return tuple(int(one) for one in every)
    elif is_whole(given):
        return (int(given),)
    raise BadArgument(f"{what}: expected an integer, or several, given {given!r}")
