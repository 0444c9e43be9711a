"""Limit isl's work: an operation beyond the limit raises isl.Error instead of running for minutes.

isl counts operations, of which an allocation is one, and stops at a limit. Plans do not depend on a clock, therefore:
the same nest is given the same answers on a slow machine and on a fast one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import islpy as isl

from polyfuse.errors import BudgetExceeded

T = TypeVar("T")
U = TypeVar("U")

OPERATIONS_PER_SECOND = 2_000_000
"""What a second is worth where a caller gives a budget in seconds: as many operations as isl does in about one."""

STOPPED = "maximal number of operations"
"""The message of isl when its limit of operations is reached."""


def stopped(error: isl.Error) -> bool:
    """True if an error says that isl's operations were limited, and not that isl failed."""
    return STOPPED in str(error)


@contextmanager
def at_most(context: isl.Context, operations: int) -> Iterator[None]:
    """isl raises isl.Error inside once it has done this many operations (0: no limit).

    Limits lie inside each other. One around this stays in force: what is done inside counts for it, too, and no more
    is done inside than it has left.

    Where nothing is left, any other error comes from that, too: isl's reader tells a limit as an error of syntax, and
    callers tell this as a text that nobody can read.
    """
    before = _left(context)
    limit = min((each for each in (before, operations or None) if each is not None), default=None)
    _leave(context, limit)
    try:
        yield
    except Exception as error:
        said = isinstance(error, BudgetExceeded) or (isinstance(error, isl.Error) and stopped(error))
        if said or limit is None or _left(context):
            raise
        told = isl.Error(STOPPED)
        for step in getattr(error, "__notes__", ()):
            told.add_note(step)
        raise told from error
    finally:
        if before is None or limit is None:
            _leave(context, None)
        else:
            _leave(context, before - limit + (_left(context) or 0))


def within(context: isl.Context, operations: int, call: Callable[[], T], otherwise: Callable[[], U]) -> T | U:
    """What `call` returns, or `otherwise` where isl needs more operations for it than these.

    Where a limit around this is reached, its error goes on to whoever set it.

    Args:
        context: isl's context, which counts.
        operations: The operations that isl may do in `call`.
        call: Asks isl something that can take it long.
        otherwise: A legal answer that needs nothing of isl, or a refusal.

    Returns:
        The answer of one of them.
    """
    try:
        with at_most(context, operations):
            return call()
    except isl.Error as error:
        if not stopped(error) or _left(context) == 0:
            raise
    return otherwise()


def _leave(context: isl.Context, left: int | None) -> None:
    """Let isl do so many operations from now on; None: as many as it takes."""
    context.reset_operations()
    context.set_max_operations(0 if left is None else max(left, 1))
    if left is not None and left <= 0:
        isl.Val.zero(context)  # the only one


def _left(context: isl.Context) -> int | None:
    """The operations that isl may still do; None if there is no limit.

    isl does not tell its count. It is the least limit at which an operation fails, and is found by halves.
    """
    limit = int(context.get_max_operations())
    if not limit:
        return None
    low, high, asked = 0, limit, 0  # isl had done at least `low` and at most `high`, and `asked` more since
    while low < high:
        middle = (low + high + 1) // 2
        context.set_max_operations(middle + asked)
        try:
            isl.Val.zero(context)
        except isl.Error:
            low = middle
        else:
            high = middle - 1
            asked += 1
    context.set_max_operations(limit + asked)
    return limit - low
