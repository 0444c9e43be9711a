"""How calls of operations on tiles and rows are printed: arguments by name, an operand, or several places, in a line.

::

    tile_mac(
        TileSpec(rows=8, columns=32),
        y=y, y_at=(0, 0), y_row=0,
        a=x, a_at=(8 * i, 0), a_row=0, a_step=1,
        b=w, b_at=(j, 0, 0), b_step=1,
        steps=512,
    )
    short_row(
        bias_relu_row, float32,
        count=32,
        places=(address(y, (i, 0)), address(b, (32 * j,))),
        numbers=(),
    )
"""

from __future__ import annotations

import ast
from itertools import groupby

from polyfuse.codegen.cpu.intrinsics.microkernels.tile_spec import TileSpec

COLUMNS = 80
"""Characters of a call that stays in one line."""

MOST = 30
"""Arguments of a call, with those by name counted twice, that CPython passes on its stack."""

OPERANDS = ("y", "a", "b")
"""The sums and the two factors: the arguments about one of them begin with its name."""


def named(function: str, *first: ast.expr, **arguments: ast.expr) -> ast.Call:
    """A call with some arguments by position, and the others by name."""
    assert len(first) + 2 * len(arguments) <= MOST, (
        "CPython makes another call of more, which numba may refuse"
    )
    by_name = [ast.keyword(name, value) for name, value in arguments.items()]
    return ast.Call(ast.Name(function), list(first), by_name)


def of_tile(function: str, tile: TileSpec, /, **arguments: ast.expr) -> ast.Call:
    """The call of an operation on a tile."""
    return named(function, ast.parse(str(tile), mode="eval").body, **arguments)


def printed(call: ast.Call) -> list[str]:
    """The lines of a call: several if it is a long one that has operands, or places."""
    text = ast.unparse(call)
    if len(text) <= COLUMNS or not any(map(_line_of, call.keywords)):
        return [text]
    groups = [", ".join(map(ast.unparse, group)) for _, group in groupby(call.keywords, _line_of)]
    inside = [", ".join(map(ast.unparse, call.args)), *groups]
    return [f"{ast.unparse(call.func)}(", *(f"    {line}," for line in inside), ")"]


def _line_of(argument: ast.keyword) -> str | None:
    """What the line of an argument is about: an operand, or several places; None for any other argument."""
    name = str(argument.arg)
    operand = name.split("_", maxsplit=1)[0]
    if operand in OPERANDS:
        return operand
    return name if isinstance(argument.value, ast.Tuple) and argument.value.elts else None
