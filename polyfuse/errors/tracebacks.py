"""Tracebacks of errors that polyfuse raises on purpose: the user's lines and the message, none of polyfuse's own.

    File "net.py", line 7, in <module>: net = pf.compile(nest)
    polyfuse.errors.InvalidNest: statement S: x[1 + i] is out of bounds of x[8] at S[7]

IPython asks the error itself for this text (`_render_traceback_`); elsewhere it is Python's hook for exceptions that
nobody catches, unless somebody else has set one. With POLYFUSE_TRACEBACK=full every frame is shown.
"""

from __future__ import annotations

import os
import sys
import sysconfig
import traceback
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

SWITCH = "POLYFUSE_TRACEBACK"
"""Set to "full", it says that nothing is hidden."""

OURS = Path(__file__).parents[1]
LIBRARIES = tuple({Path(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib", "purelib", "platlib")})


class Shown(Exception):
    """An error that says how it is shown."""

    is_fault_of_ours = False
    """True if polyfuse's own frames are what a reader needs: it is a bug to be reported."""

    @property
    def _render_traceback_(self) -> Callable[[], list[str]]:
        """IPython's question for a traceback's text; it makes its usual one if there is no such attribute."""
        if is_in_full(self):
            raise AttributeError("_render_traceback_")
        return lambda: short(self)


def asked_in_full() -> bool:
    """True if the environment asks for every frame."""
    return os.environ.get(SWITCH) == "full"


def is_in_full(error: Shown) -> bool:
    """True if all frames of an error are shown."""
    return error.is_fault_of_ours or asked_in_full()


def users_lines(error: BaseException) -> list[str]:
    """The lines outside polyfuse that led to an error, outermost first.

    Of libraries those are shown that the user's lines call and that call polyfuse: not what runs a script or a
    notebook, nor what polyfuse calls.
    """
    found, users, ours = [], False, False
    for frame in traceback.extract_tb(error.__traceback__):
        path = Path(frame.filename)
        library = frame.filename.startswith("<frozen ") or any(each in path.parents for each in LIBRARIES)
        if OURS in path.parents:
            ours = True
        elif not library or (users and not ours):
            users = True
            text = f": {frame.line}" if frame.line else ""
            found.append(f'File "{frame.filename}", line {frame.lineno}, in {frame.name}{text}')
    return found


def short(error: BaseException) -> list[str]:
    """The user's lines and the message."""
    return [*users_lines(error), *"".join(traceback.format_exception_only(error)).splitlines()]


def _hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if isinstance(error, Shown) and not is_in_full(error):
        print(*short(error), sep="\n", file=sys.stderr)
    else:
        sys.__excepthook__(kind, error, trace)


if sys.excepthook is sys.__excepthook__:
    sys.excepthook = _hook
