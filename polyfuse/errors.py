"""The errors a user can meet. Every message says what was given, what was expected, and what would work."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from polyfuse.ir.violation import Violation


class PolyfuseError(Exception):
    """The root of the family: catch this to catch everything polyfuse raises on purpose."""


class InvalidNest(PolyfuseError):
    """A nest breaks one of its invariants: a subscript out of bounds, a value read before it is written, …"""


class InvalidSchedule(PolyfuseError):
    """A verb was called with arguments that name nothing: an unknown statement, loop, binding or memory."""


class IllegalSchedule(PolyfuseError):
    """A verb, or a finished schedule, would change what the nest computes.

    `violation` is the refusal as a value: verb, dependence kind, both statements, two concrete instances.
    """

    def __init__(self, violation: Violation) -> None:
        super().__init__(str(violation))
        self.violation = violation

    def __reduce__(self) -> tuple[type[IllegalSchedule], tuple[Violation]]:
        return type(self), (self.violation,)


class ValidationFailure(PolyfuseError):
    """Translation validation found a finished schedule wrong: a bug of the compiler, reported with its witness."""


class BadArgument(PolyfuseError):
    """A call's arrays do not match the nest: wrong shape, dtype, rank, device, or one is missing."""


class TargetUnavailable(PolyfuseError):
    """A target was asked for that this machine or this installation does not have."""


class BudgetExceeded(PolyfuseError):
    """isl needed more operations than it was given."""


class CacheDamaged(PolyfuseError):
    """A cache entry's checksum does not match; the entry is ignored and rebuilt."""
