"""Limit isl's work: an operation beyond the limit raises isl.Error instead of running for minutes.

isl counts operations, of which an allocation is one, and stops at a limit (`at_most`). Plans do not depend on a clock,
therefore: the same nest is given the same answers on a slow machine and on a fast one. Only a budget in seconds is one
of time, too (`until`): where divisors multiply, isl does 27,000 operations a second, not 2,000,000.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import TypeVar

import islpy as isl

from polyfuse.errors import BudgetExceeded
from polyfuse.errors.alarm import alarm

T = TypeVar("T")
U = TypeVar("U")

OPERATIONS_PER_SECOND = 2_000_000
"""What a second is worth where a caller gives a budget in seconds: as many operations as isl does in about one."""

STOPPED = "maximal number of operations"
"""The message of isl when its limit of operations is reached."""

LATE = "the time for isl is over"
"""The message of an error that isl reports after its time."""

_end: ContextVar[float | None] = ContextVar("end", default=None)
"""When the time for isl is over, of the clock `time.monotonic`."""


def stopped(error: isl.Error) -> bool:
    """True if an error says that isl's operations or its time were limited, and not that isl failed."""
    return STOPPED in str(error) or late(error)


def late(error: isl.Error) -> bool:
    """True if an error comes of the time that isl had."""
    return LATE in str(error) or bool(isl.DEFAULT_CONTEXT.aborted())


@contextmanager
def until(context: isl.Context, seconds: float) -> Iterator[None]:
    """isl raises isl.Error inside once so many seconds are over, in the middle of a call too.

    Times lie inside each other: the earlier end holds. Where isl is stopped, any other error comes from that, as in
    `at_most`.
    """
    around, end = _end.get(), time.monotonic() + seconds
    if around is not None and around <= end:
        yield
        return
    before, back = _end.set(end), alarm(context, seconds)
    try:
        yield
    except Exception as error:
        if isinstance(error, BudgetExceeded) or not context.aborted():
            raise
        raise _instead_of(error, LATE) from error
    finally:
        back()
        _end.reset(before)
        if around is not None and time.monotonic() >= around:
            context.abort()  # what `back` took back may have been the end around this


def _instead_of(error: Exception, message: str) -> isl.Error:
    """An error of isl's with the steps that another one was told."""
    told = isl.Error(message)
    for step in getattr(error, "__notes__", ()):
        told.add_note(step)
    return told


@contextmanager
def at_most(context: isl.Context, operations: int) -> Iterator[None]:
    """isl raises isl.Error inside once it has done this many operations (0: no limit).

    Limits lie inside each other. One around this stays in force: what is done inside counts for it, too, and no more
    is done inside than it has left.

    Where nothing is left, any other error comes from that, too: isl's reader tells a limit as an error of syntax, and
    callers tell this as a text that nobody can read. Ctrl-C leaves no limit behind, at whichever line it comes.
    """
    if context.aborted():  # isl does nothing, and there is nothing to count
        yield
        return
    before = _left(context)
    limit = min((each for each in (before, operations or None) if each is not None), default=None)
    restored = False
    try:
        try:
            _leave(context, limit)
            yield
        except Exception as error:
            said = isinstance(error, BudgetExceeded) or (isinstance(error, isl.Error) and stopped(error))
            if said or context.aborted() or limit is None or _left(context):
                raise
            raise _instead_of(error, STOPPED) from error
        finally:
            if before is None or limit is None:
                _leave(context, None)
            else:
                _leave(context, before - limit + (_left(context) or 0))
            restored = True
    finally:
        if not restored:  # Ctrl-C came while limits were changed
            _leave(context, before)


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
        if not stopped(error) or context.aborted() or _left(context) == 0:
            raise
    return otherwise()


def _leave(context: isl.Context, left: int | None) -> None:
    """Let isl do so many operations from now on; None: as many as it takes."""
    context.reset_operations()
    context.set_max_operations(0 if left is None else max(left, 1))
    if left is not None and left <= 0:
        with suppress(isl.Error):  # where isl's time is over, nothing is left anyhow
            isl.Val.zero(context)  # the only one


def _left(context: isl.Context) -> int | None:
    """The operations that isl may still do; None if there is no limit.

    isl does not tell its count. It is the least limit at which an operation fails, and is found by halves.
    """
    limit = int(context.get_max_operations())
    if not limit:
        return None
    if context.aborted():
        return 0
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
