"""Find the sinks of dependences between iterations of a pipeline, which have to wait (doacross).

    for l (pipeline): for t: { l = 0: h0[t + 1] = f(h0[t])   l = 1: z = h1[t] @ u;  z += h0[t + 1] @ w;  h1[t + 1] = z }

    h0[t + 1] = f(…)  ->  z += h0[t + 1] @ w    from l = 0 to l = 1: only this product waits for layer 0's step t
    z = h1[t] @ u     ->  z += …                both at l = 1, on the same core

The theorem: a statement that is not a sink of a pair whose source has another value of the pipeline may run before its
value has waited, at whatever date the value before has come to. Two updates of a reduction are a pair without a
direction, so both are sinks of it.
"""

from __future__ import annotations

from polyfuse.analysis.legality import differing
from polyfuse.ir.dependences import Pairs
from polyfuse.ir.nest import Nest
from polyfuse.ir.tree import Loop, Tree, loops


def waiting(loop: Loop, pairs: tuple[Pairs, ...]) -> frozenset[str]:
    """The statements in a pipeline that have to wait for the value before theirs."""
    found: set[str] = set()
    for pair in pairs:
        sinks = {pair.source, pair.sink} if pair.kind == "reduction" else {pair.sink}
        if not {pair.source, pair.sink} <= loop.members or sinks <= found:
            continue
        if not differing(pair.map, loop.date(pair.source), loop.date(pair.sink)).is_empty():
            found |= sinks
    return frozenset(found)


def waiting_in(nest: Nest, tree: Tree) -> frozenset[str]:
    """The statements that have to wait in one of a tree's pipelines."""
    pipelines = [loop for loop in loops(tree) if loop.bind == "pipeline"]
    pairs = nest.pairs_in_order.pairs if pipelines else ()
    return frozenset[str]().union(*(waiting(loop, pairs) for loop in pipelines))
