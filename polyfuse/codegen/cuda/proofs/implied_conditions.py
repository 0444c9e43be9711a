"""Prove that conditions follow from others: comparisons of sums of integers.

    r < 131 - 16*by - 4*ty  =>  0 < 131 - 16*by - 4*ty          r is from 0 to 3

What is not negative where a comparison holds is a number of times that of another one, and more.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping

from polyfuse.codegen.looptree.index import expanded, terms
from polyfuse.codegen.looptree.intervals import Interval, interval


def implies(known: Iterable[ast.expr], condition: ast.expr, ranges: Mapping[str, range]) -> bool:
    """True if a comparison holds wherever some others do, by one of these or by itself; False if that does not show.

    `ranges` are the values that names may have.

    >>> parse = lambda text: ast.parse(text, mode="eval").body
    >>> implies([parse("r < n - 4*t")], parse("4*t < n"), {"r": range(4)})
    True
    >>> implies([parse("r < n - 4*t")], parse("4*t + 1 < n"), {"r": range(4)})
    False
    >>> implies([parse("r < 65 - 2*t")], parse("0 < 130 - 4*t"), {"r": range(2)})
    True
    """
    wanted = _slack(condition)
    if wanted is None:
        return False
    bounds = {name: Interval(values[0], values[-1]) for name, values in ranges.items() if values}
    found = [ast.Constant(0), *(slack for each in known if (slack := _slack(each)) is not None)]
    more = (
        ast.BinOp(wanted, ast.Sub(), ast.BinOp(ast.Constant(times), ast.Mult(), slack))
        for slack in found
        for times in _times(wanted, slack)
    )
    lows = (interval(expanded(left), bounds).low for left in more)
    return any(low is not None and low >= 0 for low in lows)


def _times(wanted: ast.expr, slack: ast.expr) -> set[int]:
    """The multiples of a sum in another one, from their common terms: 2*t - 4*u in 6*t - 8*u  ->  3, 2."""
    each = {ast.unparse(atom): factor for atom, factor in terms(slack) if factor}
    both = ((factor, each.get(ast.unparse(atom), 0)) for atom, factor in terms(wanted))
    return {1} | {factor // one for factor, one in both if one and factor % one == 0 and factor // one > 0}


def _slack(condition: ast.expr) -> ast.expr | None:
    """The expression that is not negative iff a comparison holds: a < b  ->  b - a - 1; None of others."""
    match condition:
        case ast.Compare(left, [ast.Lt()], [right]):
            return ast.BinOp(ast.BinOp(right, ast.Sub(), left), ast.Sub(), ast.Constant(1))
        case ast.Compare(left, [ast.LtE()], [right]):
            return ast.BinOp(right, ast.Sub(), left)
        case ast.Compare(left, [ast.Gt()], [right]):
            return ast.BinOp(ast.BinOp(left, ast.Sub(), right), ast.Sub(), ast.Constant(1))
        case ast.Compare(left, [ast.GtE()], [right]):
            return ast.BinOp(left, ast.Sub(), right)
    return None
