"""The errors that a user can meet. Each message says what was given, what was expected, and what would work."""

from __future__ import annotations

from polyfuse.errors.refusals import Refusal, Violation
from polyfuse.errors.tracebacks import Shown


def quantity(count: object, one: str, several: str | None = None) -> str:
    """Return a number with its noun, singular or plural.

    >>> quantity(1, "kernel"), quantity(2, "kernel"), quantity(0, "axis", "axes")
    ('1 kernel', '2 kernels', '0 axes')

    Args:
        count: The number, or a symbolic size, which is plural.
        one: The noun in the singular.
        several: The noun in the plural; by default with an "s".

    Returns:
        The number and the noun.
    """
    return f"{count} {one if count == 1 else several or one + 's'}"


class PolyfuseError(Shown):
    """The base class of all errors that polyfuse raises on purpose."""


class InvalidNest(PolyfuseError):
    """A nest breaks an invariant: a subscript is out of bounds, a value is read before it is written, …

    Attributes:
        statement: The name of the statement that breaks it; None if it is none in particular.
    """

    def __init__(self, message: str, statement: str | None = None) -> None:
        super().__init__(message)
        self.statement = statement


class InvalidSchedule(PolyfuseError):
    """A verb got an argument that does not exist or cannot be used: an unknown statement, loop, binding or memory."""


class IllegalSchedule(PolyfuseError):
    """A verb, or a finished schedule, would break a dependence.

    Attributes:
        violation: The refusal as a value: the verb, the dependence's kind, both statements, two concrete instances.
    """

    def __init__(self, violation: Violation) -> None:
        super().__init__(str(violation))
        self.violation = violation

    def __reduce__(self) -> tuple[type[IllegalSchedule], tuple[Violation]]:
        return type(self), (self.violation,)


class IllegalRewrite(PolyfuseError):
    """A rewrite would change a value, or does not apply to this nest.

    Attributes:
        refusal: The reason as a value, with instances that show it where two can.
    """

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(str(refusal))
        self.refusal = refusal

    def __reduce__(self) -> tuple[type[IllegalRewrite], tuple[Refusal]]:
        return type(self), (self.refusal,)


class ValidationFailure(PolyfuseError):
    """Translation validation found that a finished schedule is wrong: a compiler bug, reported with a witness."""

    is_fault_of_ours = True


class InvalidTuning(PolyfuseError):
    """A search for a schedule cannot be made: no trials, or a target or sizes that cannot be measured."""


class InvalidMath(PolyfuseError):
    """The format for rounded factors is unknown, or the target or the nest cannot use it."""


class InvalidAlgorithm(PolyfuseError):
    """A bilinear algorithm is invalid: wrong shapes, an unreadable file, or an identity that is false."""


class BadArgument(PolyfuseError):
    """An argument cannot be used: an array of the wrong shape, dtype, rank or device, a missing one, a bad option."""


class TargetUnavailable(PolyfuseError):
    """The requested target is not available on this machine or in this installation."""


class DeviceFailure(PolyfuseError):
    """A GPU operation failed; the message has the driver's words and the kernels and statements concerned.

    Attributes:
        kernels: The names of the kernels that may have failed: one if its launch was refused, all of a call if the
            failure was found later, none if no kernel failed.
    """

    def __init__(self, message: str, kernels: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.kernels = kernels

    def __reduce__(self) -> tuple[type[DeviceFailure], tuple[str, tuple[str, ...]]]:
        return type(self), (str(self), self.kernels)


class OutOfDeviceMemory(DeviceFailure, MemoryError):
    """A GPU buffer could not be allocated; the message says how much was requested, for what, and what is free."""


def in_source(why: str, file: str, line: int, column: int, text: str) -> str:
    """A message with its place in a source: file, line and column (from 1), the line's text, and a caret."""
    number = f"{line:6d}"
    caret = " " * (len(number) + column - 1) + "   ^"
    return f"{file}:{line}:{column}: {why}\n{number} | {text}\n{caret}"


class NotAffine(PolyfuseError):
    """A Python function is not an affine program.

    The message has the file, line and column (from 1), and the forms that are allowed there.
    """

    def __init__(self, why: str, file: str, line: int, column: int, text: str, allowed: str) -> None:
        super().__init__(f"{in_source(why, file, line, column, text)}\nallowed here: {allowed}")
        self.why, self.file, self.line, self.column = why, file, line, column
        self.text, self.allowed = text, allowed

    def __reduce__(self) -> tuple[type[NotAffine], tuple[str, str, int, int, str, str]]:
        return type(self), (self.why, self.file, self.line, self.column, self.text, self.allowed)


class NoSource(PolyfuseError):
    """The source text of a Python function cannot be read."""


class BudgetExceeded(PolyfuseError):
    """isl needed more operations for a proof than its budget; what is not proven is not run."""


class IslFailure(PolyfuseError):
    """An isl operation failed; the message has what was being proven and isl's own words."""
