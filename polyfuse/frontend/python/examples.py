"""Annotations from example arguments: types as they are, sizes as symbols.

    f(x, y) with x: float64 (20, 30), y: float64 (30,)     ->   x: "f64[n20, n30]", y: "f64[n30]"
    f(N, A) with N = 20 and A: float32 (20, 20)            ->   N: "i64", A: "f32[N, N]"

Equal extents are one size, and an extent of 1 stays 1: a call with arrays of other shapes is refused, or needs an
example of its own. A float of Python is no f64: it takes the type of what it meets.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import FunctionType
from typing import Any

import numpy as np

from polyfuse.errors import BadArgument
from polyfuse.frontend.python.parameters import DTYPES, PYTHON_FLOAT
from polyfuse.frontend.python.source import Source
from polyfuse.ir.number_types import COMPLEX_NOTES


def annotations_of(
    function: FunctionType, example: Sequence[Any] | Mapping[str, Any], symbolic: bool = True
) -> dict[str, str]:
    """The annotation of each parameter for which there is an example. BadArgument for a type that nests do not have.

    Extents are numbers where they are not to be `symbolic`.
    """
    given = (
        dict(example)
        if isinstance(example, Mapping)
        else dict(zip(_parameters(function), example, strict=False))
    )
    if not isinstance(example, Mapping) and len(example) > len(given):
        raise BadArgument(f"example has {len(example)} values, {function.__name__} {len(given)} parameters")
    integers = {
        value: name
        for name, value in reversed(given.items())
        if symbolic and _is_integer(value) and value > 1 and name.isascii()
    }
    notes = {dtype: note for note, dtype in (*DTYPES.items(), *COMPLEX_NOTES.items())}
    found = {}
    for name, value in given.items():
        if type(value) is float:
            found[name] = PYTHON_FLOAT
            continue
        array = np.asarray(value)
        dtype = array.dtype.name
        if dtype not in notes:
            raise BadArgument(
                f"the example of {name} has type {dtype}; nests have {', '.join(sorted(notes))}"
            )
        shape = ", ".join(str(n) if n == 1 or not symbolic else integers.get(n, f"n{n}") for n in array.shape)
        found[name] = f"{notes[dtype]}[{shape}]" if array.shape else notes[dtype]
    return found


def annotations_of_defaults(function: FunctionType) -> dict[str, str]:
    """The annotation of each parameter without one that is a number by default: i64, float or f64."""
    given = inspect.signature(function).parameters.values()
    known = [p for p in given if p.annotation is p.empty and isinstance(p.default, int | float)]
    return {
        p.name: "i64" if _is_integer(p.default) else PYTHON_FLOAT if type(p.default) is float else "f64"
        for p in known
        if not isinstance(p.default, bool)
    }


def annotated(source: Source, annotations: Mapping[str, str]) -> Source:
    """The source with other annotations of some parameters. BadArgument for a name that is no parameter."""
    given = source.tree.args
    arguments = [*given.args, *given.kwonlyargs]
    unknown = set(annotations) - {arg.arg for arg in arguments}
    if unknown:
        raise BadArgument(f"{source.function.__name__} has no parameter {', '.join(sorted(unknown))}")
    made = []
    for arg in arguments:
        text = annotations.get(arg.arg)
        note = arg.annotation if text is None else ast.copy_location(ast.Constant(text), arg)
        made.append(ast.copy_location(ast.arg(arg.arg, note), arg))
    fields = {name: getattr(source.tree, name) for name in source.tree._fields}
    args = ast.arguments(
        given.posonlyargs,
        made[: len(given.args)],
        given.vararg,
        made[len(given.args) :],
        given.kw_defaults,
        given.kwarg,
        given.defaults,
    )
    tree = ast.copy_location(ast.FunctionDef(**{**fields, "args": args}), source.tree)
    return replace(source, tree=tree)


def _parameters(function: FunctionType) -> list[str]:
    return list(inspect.signature(function).parameters)


def _is_integer(value: Any) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)
