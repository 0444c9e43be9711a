"""Calls that use fewer threads than this process may."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba


def on_threads(call: Callable[..., Any], threads: int | None) -> Callable[..., Any]:
    """Return a function that calls another one with at most some of numba's threads.

    numba keeps the number by thread of Python's, and each call gives back the one that it found.

    Args:
        call: The function.
        threads: The number; None changes nothing.

    Returns:
        The function.
    """
    if threads is None:
        return call

    def limited(*args: Any) -> Any:
        before = numba.get_num_threads()
        numba.set_num_threads(min(threads, before))
        try:
            return call(*args)
        finally:
            numba.set_num_threads(before)

    return limited
