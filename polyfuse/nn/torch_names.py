"""Arguments that go by torch's names as well: `nn.Conv2d(3, 8, kernel_size=3)`, `nn.sum(x, dim=1, keepdim=True)`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

from polyfuse.errors import BadArgument

Named = TypeVar("Named", bound=Callable[..., Any])


def torch_names(**names: str) -> Callable[[Named], Named]:
    """Let a function, or the layers of a class, take arguments by torch's names.

    Args:
        **names: The own name of an argument, by torch's: `kernel_size="window"`.

    Returns:
        The decorator. What it decorates raises BadArgument where one argument is given by both names.
    """

    def decorated(named: Named) -> Named:
        if isinstance(named, type):
            named.__init__ = _renaming(named.__init__, named.__name__, names)  # type: ignore[misc]  # of this class
            return named
        made: Named = _renaming(named, named.__name__, names)
        return made

    return decorated


def _renaming(function: Any, called: str, names: dict[str, str]) -> Any:
    @functools.wraps(function)
    def renamed(*args: Any, **given: Any) -> Any:
        for theirs, own in names.items():
            if theirs in given:
                if own in given:
                    raise BadArgument(f"{called}: {theirs} is torch's name of {own}; give one of them")
                given[own] = given.pop(theirs)
        return function(*args, **given)

    return renamed
