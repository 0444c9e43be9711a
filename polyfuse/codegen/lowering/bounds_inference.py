"""Bounds inference for unrolled loops: each copy of the body needs a constant index.

    for c in range(f(x), min(g(x), h(x)))  ->  for c in range(max(0, f(x)), min(16, g(x), h(x)))

isl finds no numbers where a loop's values are digits of a dimension, 2 * (j // 8) + j % 2, and others' are the rest.
"""

from __future__ import annotations

import ast

import islpy as isl

from polyfuse.codegen.looptree.product import numbers_in
from polyfuse.ir.nest import Nest
from polyfuse.ir.tree import Loop


def bounded(nest: Nest, loop: Loop, low: ast.expr, high: ast.expr) -> tuple[ast.expr, ast.expr]:
    """A loop's bounds, with numbers among them if there are any."""
    if numbers_in(low, "max") and numbers_in(high, "min"):
        return low, high
    every = [nest.domains[name].apply(date.as_map()) for name, date in loop.dates if name in nest.domains]
    ends = [(values.dim_min_val(0), values.dim_max_val(0)) for values in every if not values.is_empty()]
    if not ends or not all(end.is_int() for pair in ends for end in pair):
        return low, high
    least, most = min(_number(a) for a, _ in ends), max(_number(b) for _, b in ends)
    return _among(low, "max", least), _among(high, "min", most + 1)


def _among(bound: ast.expr, of: str, number: int) -> ast.expr:
    match bound:
        case ast.Call(func=ast.Name(id=name), args=arguments) if name == of:
            return ast.Call(ast.Name(of), [ast.Constant(number), *arguments], [])
    return ast.Call(ast.Name(of), [ast.Constant(number), bound], [])


def _number(value: isl.Val) -> int:
    return int(value.to_python())
