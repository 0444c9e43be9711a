"""The errors a user can meet. Every message says what was given, what was expected, and what would work."""

from __future__ import annotations

from polyfuse.refusals import Refusal, Violation
from polyfuse.tracebacks import Shown


class PolyfuseError(Shown):
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


class IllegalRewrite(PolyfuseError):
    """A rewrite would change a value, or is not defined for what it was given. `refusal` is that as a value."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(str(refusal))
        self.refusal = refusal

    def __reduce__(self) -> tuple[type[IllegalRewrite], tuple[Refusal]]:
        return type(self), (self.refusal,)


class ValidationFailure(PolyfuseError):
    """Translation validation found a finished schedule wrong: a bug of the compiler, reported with its witness."""

    is_fault_of_ours = True


class InvalidTuning(PolyfuseError):
    """A search for a schedule was asked for that cannot be made: of no trials, for a target or sizes it has not."""


class InvalidMath(PolyfuseError):
    """Factors were to be rounded to a format that is none, or that the target or the nest cannot have."""


class InvalidAlgorithm(PolyfuseError):
    """A bilinear algorithm that is none: other shapes, a file that cannot be read, an identity that is false."""


class BadArgument(PolyfuseError):
    """A call's arrays do not match the nest: wrong shape, dtype, rank, device, or one is missing."""


class TargetUnavailable(PolyfuseError):
    """A target was asked for that this machine or this installation does not have."""


class DeviceFailure(PolyfuseError):
    """A GPU did not do what it was asked to: the driver's own words, and the kernels and statements that it concerns.

    `kernels` are the names of the kernels that may have failed: one where its launch was refused, those of a call where
    the failure was found later, none where it was no kernel's.
    """

    def __init__(self, message: str, kernels: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.kernels = kernels

    def __reduce__(self) -> tuple[type[DeviceFailure], tuple[str, tuple[str, ...]]]:
        return type(self), (str(self), self.kernels)


class OutOfDeviceMemory(DeviceFailure, MemoryError):
    """A GPU has no memory left for a buffer: how much was asked for, what for, and what is free."""


class NotAffine(PolyfuseError):
    """A Python function is no affine program: where (file, line and column, counted from 1), and what is allowed."""

    def __init__(self, why: str, file: str, line: int, column: int, text: str, allowed: str) -> None:
        number = f"{line:6d}"
        caret = " " * (len(number) + column - 1) + "   ^"
        super().__init__(
            f"{file}:{line}:{column}: {why}\n{number} | {text}\n{caret}\nallowed here: {allowed}"
        )
        self.why, self.file, self.line, self.column = why, file, line, column
        self.text, self.allowed = text, allowed

    def __reduce__(self) -> tuple[type[NotAffine], tuple[str, str, int, int, str, str]]:
        return type(self), (self.why, self.file, self.line, self.column, self.text, self.allowed)


class NoSource(PolyfuseError):
    """A Python function has no source text that could be read."""


class BudgetExceeded(PolyfuseError):
    """isl needed more operations for a proof than it was given: what is not proven is not run."""


class IslFailure(PolyfuseError):
    """isl, which proves what polyfuse does, failed at a question: what was being proven, and isl's own words."""


class CacheDamaged(PolyfuseError):
    """A cache entry's checksum does not match; the entry is ignored and rebuilt."""
