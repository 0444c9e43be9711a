"""Call the Python function itself, with its annotations' sizes defined."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from types import CellType, FunctionType
from typing import Any

import numpy as np

from polyfuse.errors import BadArgument
from polyfuse.frontend.python.scope_names import Names
from polyfuse.ir.sizes import extent, solved
from polyfuse.ir.tensor import pairs_of


def reference(names: Names) -> Callable[..., Any]:
    """The function, run by Python, with the sizes in its annotations read off the arrays of each call.

    The function is the original where all sizes are parameters; else `__wrapped__` is. BadArgument for arrays whose
    shapes do not agree.
    """
    function = names.source.function
    free = [name for name in names.sizes if name not in names.tensors]
    if not free:
        return function
    signature = inspect.signature(function)

    @functools.wraps(function)
    def python(*args: Any, **named: Any) -> Any:
        given = signature.bind(*args, **named)
        given.apply_defaults()
        sizes = sizes_of(names, given.arguments)
        space = {**function.__globals__, **{name: sizes[name] for name in free}}
        # a size may have the name of a variable around the function as well
        around = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
        closure = tuple(CellType(sizes[name]) if name in free else cell for name, cell in around)
        inner = FunctionType(function.__code__, space, function.__name__, function.__defaults__, closure)
        inner.__kwdefaults__ = function.__kwdefaults__
        return inner(*args, **named)

    return python


def sizes_of(names: Names, arguments: dict[str, Any]) -> dict[str, int]:
    """The sizes of one call; BadArgument if its arrays do not agree on them."""
    shapes = {t.name: np.shape(pairs_of(t, arguments[t.name])) for t in names.tensors.values()}
    for tensor in names.tensors.values():
        if len(shapes[tensor.name]) != tensor.rank:
            raise BadArgument(f"{tensor.name}: shape {list(shapes[tensor.name])}, expected {tensor}")
    pairs = [(s, n) for t in names.tensors.values() for s, n in zip(t.shape, shapes[t.name], strict=True)]
    sizes = solved(pairs, {name: int(arguments[name]) for name in names.sizes if name in arguments})
    missing = [name for name in names.sizes if name not in sizes]
    if missing:
        raise BadArgument(
            f"the size {', '.join(missing)} cannot be inferred from the shapes of the arguments"
        )
    for wanted, actual in pairs:
        if extent(wanted, sizes) != actual:
            raise BadArgument(f"the extent {wanted} is {extent(wanted, sizes)} with {sizes}, given {actual}")
    return sizes
