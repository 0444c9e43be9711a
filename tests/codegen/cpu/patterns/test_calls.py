"""How calls of operations on tiles are printed."""

from __future__ import annotations

import ast

import pytest

from polyfuse.codegen.cpu.intrinsics.microkernels.tile_spec import TileSpec
from polyfuse.codegen.cpu.patterns.calls import MOST, named, of_tile, printed


def test_a_long_call_has_a_line_for_each_operand() -> None:
    arguments = {"y": "y_tile", "y_at": "(0, 0)", "a": "activations", "a_at": "(8 * i, 0)", "a_step": "1"}
    arguments |= {"b": "weights", "b_at": "(j, 0, 0)", "steps": "512", "share": "4"}
    values = {name: ast.parse(text, mode="eval").body for name, text in arguments.items()}
    lines = printed(of_tile("tile_mac", TileSpec(8, 32), **values))
    assert lines == [
        "tile_mac(",
        "    TileSpec(rows=8, columns=32),",
        "    y=y_tile, y_at=(0, 0),",
        "    a=activations, a_at=(8 * i, 0), a_step=1,",
        "    b=weights, b_at=(j, 0, 0),",
        "    steps=512, share=4,",
        ")",
    ]
    call = ast.parse("\n".join(lines), mode="eval").body
    assert isinstance(call, ast.Call)
    assert [keyword.arg for keyword in call.keywords] == list(arguments)


def test_a_short_call_has_one_line() -> None:
    assert printed(of_tile("tile_zero", TileSpec(1, 4), y=ast.Name("y"))) == [
        "tile_zero(TileSpec(rows=1, columns=4), y=y)"
    ]


def test_more_arguments_than_fit_on_the_stack_are_a_fault() -> None:
    """CPython makes a dictionary of them, and numba refuses that where an argument is a condition."""
    arguments = {f"x{n}": ast.Constant(n) for n in range(MOST // 2)}
    named("f", **arguments)
    with pytest.raises(AssertionError):
        named("f", ast.Name("y"), **arguments)
