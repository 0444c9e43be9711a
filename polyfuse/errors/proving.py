"""The boundary between isl and polyfuse's users: an error of islpy's leaves as one that says what was being proven.

Every public function that asks isl is a step, by `proving`; steps lie inside each other, as validation does in a
compile. An error of islpy's passes through the inner ones, where polyfuse itself may handle it (a shape that is given
up), and leaves the outermost one as IslFailure, or as BudgetExceeded where isl's operations were limited.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from functools import wraps
from typing import Any, TypeVar, cast

import islpy as isl

from polyfuse.errors import BudgetExceeded, IslFailure
from polyfuse.errors.budget import late, stopped

C = TypeVar("C", bound=type)
F = TypeVar("F", bound=Callable[..., Any])

_inside: ContextVar[bool] = ContextVar("inside", default=False)
"""True if another step surrounds this one."""


class proving:
    """Name what isl is asked for in a block or, as a decorator, in a function: "the legality of split('S', 'i', 4)".

    Raises:
        IslFailure: for an error of islpy's that nothing inside the outermost step handled.
        BudgetExceeded: the same, where isl's operations were limited.
    """

    def __init__(self, step: str | Callable[[], str]) -> None:
        self._step = step

    def __enter__(self) -> None:
        self._outermost = not _inside.get()
        self._before = _inside.set(True)

    def __exit__(self, _: type[BaseException] | None, error: BaseException | None, __: object) -> None:
        _inside.reset(self._before)
        if isinstance(error, isl.Error):
            error.add_note(self._step if isinstance(self._step, str) else self._step())  # the innermost first
            if self._outermost:
                raise told(error) from error

    def __call__(self, function: F) -> F:
        """Return the function as a step. contextlib's decorator would put its frame among the user's in a traceback."""

        @wraps(function)
        def step(*args: Any, **options: Any) -> Any:
            with proving(self._step):
                return function(*args, **options)

        return cast(F, step)


def told(error: isl.Error) -> IslFailure | BudgetExceeded:
    """An error of islpy's that has passed through steps, as one that says what was being proven.

    One that stands for an error that was not islpy's, as of a number that isl did not give any more, has passed none.
    """
    innermost, *others = getattr(error, "__notes__", ("what is asked of this nest",))
    where = f" ({', '.join(f'in {step}' for step in others)})" if others else ""
    if late(error):
        return BudgetExceeded(f"{innermost}{where} needs more time of isl than it was given")
    if stopped(error):
        return BudgetExceeded(f"{innermost}{where} needs more operations of isl than it was given")
    return IslFailure(
        f"isl failed in {innermost}{where}: {error or 'without a message'}. The program is not at fault: please report "
        "it, with the program"
    )


def each_proving(what: str, *names: str) -> Callable[[C], C]:
    """Make steps of methods of a class: `what` is filled with a call, such as "split('S0', 'i', 4)"."""

    def made(cls: C) -> C:
        for name in names:
            setattr(cls, name, _as_step(what, getattr(cls, name)))
        return cls

    return made


def _as_step(what: str, method: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(method)
    def step(self: Any, *args: Any, **options: Any) -> Any:
        def call() -> str:
            given = (*map(repr, args), *(f"{name}={value!r}" for name, value in options.items()))
            return what.format(f"{method.__name__}({', '.join(given)})")

        with proving(call):
            return method(self, *args, **options)

    return step
