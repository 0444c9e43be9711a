"""Prefetch the next panel while a tile's product runs: each tile asks for its share of it.

for j: for i < 8: tile_mac(…, b=w, b_at=(j, 0, 0), …)
->  tile_mac_ahead(…, b=w, b_at=(j, 0, 0), …, following=(j + 1, 0, 0), part=i, share=4)

A panel from a far cache would come in while the first of its tiles runs, which waits, and the others would ask for
nothing. Each tile asks for an eighth of the next panel instead: 8 layers of 64 x 512 x 512, weights in L3, took 1.49
instead of 1.99 ms, of 64 x 1024 x 1024 6.4 instead of 8.1 (one core of a Xeon with 64-byte vectors).

for i: tile_mac(…, a=w, a_at=(i, 0, 0), …)   ->   tile_mac_rows_ahead(…, following=(i + 1, 0, 0), part=0, share=8)

So do tiles whose rows are in panels, as those of the filters of a layer on few pixels: 1024 to 256 channels of 4 x 4,
weights in memory, took 66 µs in blocks of 344 steps, 51 in one block of 1024, 36 in one that asks (a Zen 5 core).

for j: tile_mac(…, b=w, b_at=(k, 32 * j), …)   ->   tile_mac_columns_ahead(…, further=256)

Rows that lie as they are have no next panel: a tile asks for what lies some tiles further on in each of the few that it
reads. 8 x 10000 sums over 30000 steps, weights in memory, took 81 ms without (15 GB/s), 40 so (a Zen 5 core).
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

from polyfuse.codegen.looptree.index import binary, plus, substituted
from polyfuse.codegen.looptree.joint_values import Facts, cases
from polyfuse.codegen.looptree.leading_reference import distance
from polyfuse.codegen.looptree.nodes import For
from polyfuse.codegen.looptree.product import corner


def asked_ahead(
    top: For, around: Sequence[For], facts: Facts, panel: ast.Tuple, first: dict[str, ast.expr], width: int
) -> tuple[ast.expr, ast.expr, ast.expr] | None:
    """Return the next panel's start, the share of it that this tile prefetches, and the numbers of a share.

    `around` are the loops outside, outermost first, and `facts` what is known of their variables here: tiles that are
    cut short are elsewhere, and ask for nothing. `panel` is where this tile's panel begins, which has `width` numbers
    for a step, and `first` where the loops inside begin. None if nothing is asked for, or the loops between the two
    have no known numbers of tiles.
    """
    if not top.ahead:
        return None
    following = corner(top.ahead[0][0], first)
    depth = next((d for d, loop in enumerate(around) if _same(_next(panel, loop), following)), None)
    if depth is None:
        return None
    tiles = around[depth + 1 :]
    shares = 1
    position: ast.expr = ast.Constant(0)
    for loop in tiles:
        count = binary(ast.Sub(), loop.high, loop.low)
        if not (isinstance(count, ast.Constant) and isinstance(count.value, int)) or loop.step != 1:
            return None
        number = _values_here(loop, count.value, facts)
        here = binary(ast.Sub(), ast.Name(loop.variable), loop.low)
        position = binary(ast.Add(), binary(ast.Mult(), position, ast.Constant(number)), here)
        shares *= number
    share = -(-width // max(1, shares))
    last = -(-width // share) - 1
    if last < shares - 1:
        position = ast.Call(ast.Name("min"), [position, ast.Constant(last)], [])
    return following, position, ast.Constant(share)


def asked_further_on(top: For, panel: ast.Tuple, first: dict[str, ast.expr]) -> int | None:
    """How many numbers further on in the same rows a tile asks for; None if it asks for others, or nothing.

    `panel` is where the rows that it reads begin, and `first` where the loops inside begin.
    """
    if not top.ahead:
        return None
    *rows, asked = corner(top.ahead[0][0], first).elts
    *own, here = panel.elts
    further = distance(asked, here)
    in_these_rows = list(map(ast.dump, rows)) == list(map(ast.dump, own))
    return further if in_these_rows and further is not None and further > 0 else None


def _values_here(loop: For, every: int, facts: Facts) -> int:
    """The number of a loop's first values that known conditions leave: 2 of 3 where i <= 1."""
    values = cases([ast.Name(loop.variable)], facts)
    first = facts.ranges[loop.variable].low if values else None
    return every if not values or first is None else values[-1][0] - first + 1


def _next(panel: ast.Tuple, loop: For) -> ast.Tuple:
    """The start of the panel of a loop's next value."""
    step = {loop.variable: plus(ast.Name(loop.variable), loop.step)}
    return ast.Tuple([substituted(subscript, step) for subscript in panel.elts])


def _same(a: ast.Tuple, b: ast.Tuple) -> bool:
    return ast.dump(a) == ast.dump(b)
