"""Code for named sizes beside code for all: which sizes were asked for, and which code a call runs.

    sizes ::= [named, …, general]      named ::= 8 | {"N": 8, "T": 128}      general ::= "N"

A call runs the first code whose sizes its arrays have. On the CPU that is decided in machine code: an entry refuses
arrays that it was not compiled for before anything has run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from polyfuse.errors import BadArgument
from polyfuse.ir.nest import Nest
from polyfuse.ir.sizes import Sizes, check_names, check_sizes
from polyfuse.ir.whole import is_whole


def listed(nest: Nest, given: Sequence[object]) -> tuple[Sizes, ...]:
    """Return the sizes named in a list that ends in the general one.

    Args:
        nest: The nest, with symbolic sizes.
        given: Numbers, or values by name; at the end the name of a symbolic size.

    Returns:
        The named sizes.

    Raises:
        BadArgument: if the list does not end in the name of a size, or the nest does not have or allow a named size.
    """
    *named, last = given or [None]
    if last not in nest.params:
        known = ", ".join(nest.params) or "none"
        raise BadArgument(
            f"compile: sizes={list(given)!r} has to end in a symbolic size, for which the general code is, as in "
            f'[1, 8, "N"]; the sizes of {nest.name} are {known}'
        )
    found = []
    for one in named:
        if is_whole(one) and len(nest.params) > 1:
            raise BadArgument(
                f"compile: sizes={list(given)!r}: {one} of which size? {nest.name} has {', '.join(nest.params)}; "
                f"write {{{nest.params[0]!r}: {one}}}"
            )
        sizes = {nest.params[0]: one} if is_whole(one) else one
        if not isinstance(sizes, Mapping) or not sizes:
            raise BadArgument(
                f"compile: sizes={list(given)!r}: expected numbers or values by name, not {one!r}"
            )
        check_names(nest, sizes)
        check_sizes(nest, sizes)
        found.append(dict(sizes))
    return tuple(found)


def has_sizes(nest: Nest, sizes: Sizes, given: Mapping[str, Any]) -> bool:
    """Whether a call's arguments have the sizes that a nest was compiled for.

    Args:
        nest: The nest, with numbers for these sizes.
        sizes: The sizes.
        given: The arguments by name.

    Returns:
        False if an axis, or an integer that is a size, has another value.
    """
    for tensor in nest.inputs:
        shape = tuple(getattr(given[tensor.name], "shape", ()))
        if len(shape) != tensor.rank or any(
            isinstance(size, int) and size != n for size, n in zip(tensor.shape, shape, strict=True)
        ):
            return False
        if tensor.name in sizes and int(given[tensor.name]) != sizes[tensor.name]:
            return False
    return True
