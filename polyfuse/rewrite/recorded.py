"""Note on each nest which rewrite made it of which nest, so that a schedule can name the rewrites before its verbs.

    nest --widen("w")--> nest --split_reduction("mac", "k", size=64)--> nest        each one knows the one before it

A rewrite that calls others is one step: the outermost is noted. Arguments are plain data, or values of PLAIN's types.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass
from functools import wraps
from inspect import signature
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

from polyfuse.bilinear import Algorithm
from polyfuse.ir.nest import Nest
from polyfuse.ir.statement import Statement
from polyfuse.rewrite.shares import Shares

P = ParamSpec("P")
R = TypeVar("R")

PLAIN = (str, int, float, bool, type(None), Algorithm, Shares)
"""The types of arguments that a step may have, besides tuples and dictionaries of them."""


@dataclass(frozen=True)
class Origin:
    """The rewrite that made a nest: the nest before, the rewrite's name, its arguments."""

    before: Nest
    rewrite: str
    args: tuple[object, ...]
    options: Mapping[str, object]


def recorded(
    name: str, without: tuple[str, ...] = ()
) -> Callable[[Callable[Concatenate[Nest, P], R]], Callable[Concatenate[Nest, P], R]]:
    """Make a rewrite note what it was called with on the nest that it makes.

    The rewrite returns a nest, or a value with an attribute `nest`; what has neither was refused.

    Args:
        name: The rewrite's name in `polyfuse.schedule.rewriting.REWRITES`.
        without: Parameters that only save work, such as what is known of the nest already.
    """

    def decorate(function: Callable[Concatenate[Nest, P], R]) -> Callable[Concatenate[Nest, P], R]:
        known = signature(function)

        @wraps(function)
        def noted(nest: Nest, *args: P.args, **options: P.kwargs) -> R:
            result = function(nest, *args, **options)
            made = result if isinstance(result, Nest) else getattr(result, "nest", None)
            if isinstance(made, Nest) and made is not nest:
                given = known.bind(nest, *args, **options)
                for parameter in without:
                    given.arguments.pop(parameter, None)
                named = {key: plain(value) for key, value in given.kwargs.items()}
                made.__dict__["origin"] = Origin(nest, name, tuple(map(plain, given.args[1:])), named)
            return result

        return cast(Callable[Concatenate[Nest, P], R], noted)

    return decorate


def plain(value: Any) -> object:
    """An argument as data: a statement by its name, collections as tuples, those without an order sorted."""
    if isinstance(value, Statement):
        return value.name
    if isinstance(value, Mapping):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, Set):
        return tuple(sorted(value))
    if isinstance(value, tuple | list):
        return tuple(map(plain, value))
    assert isinstance(value, PLAIN), f"a rewrite cannot be noted with {value!r}"
    return value
