"""Sum outputs in a temporary if their contiguous elements are not columns of the product.

A convolution's output with channels first has pixels as neighbours, and its product filters as columns: in blocks the
sums are kept in panels of columns, and what reads them stores them turned. An output has no reader, so it gets one. So
does an output that pooling after a convolution reduces into: it is stored once, and not for every value.
"""

from __future__ import annotations

from polyfuse.ir import Nest
from polyfuse.ir.tree import statements
from polyfuse.machine import Machine
from polyfuse.rewrite.reductions.detach_output import detach
from polyfuse.strategy.candidates import Choose, cheapest
from polyfuse.strategy.match.gemm import products_of
from polyfuse.strategy.remarks import Remark, applied

PASS = "detach output"


def with_readers(nest: Nest, machine: Machine, choose: Choose = cheapest) -> tuple[Nest, tuple[Remark, ...]]:
    """The nest with such outputs detached, and a sentence on each; the same nest if there are none."""
    said: list[Remark] = []
    for name in across(nest) if machine.kind == "cpu" else ():
        if not choose.asks(PASS, (name,)):
            continue
        output = nest.statement(name).write.tensor
        done = detach(nest, output) if nest.tensor(output).role == "output" else None
        if isinstance(done, Nest):
            nest = done
            line = f"{name} sums in a temporary, which is stored in {output}: columns lie across that."
            said.append(applied(PASS, (name,), line))
    return nest, tuple(said)


def across(nest: Nest, role: str = "output") -> tuple[str, ...]:
    """The products into outputs whose neighbours in memory are no columns, and the reductions that follow such sums.

    Or those into tensors of another role.

    A reduction follows a product that values reach it from, directly or through statements in between. It comes behind
    the first of these, in the nest's order.
    """
    order = statements(nest.order)
    into = {s.name for s in nest.statements if s.is_reduction and nest.tensor(s.write.tensor).role == role}
    if not into:
        return ()
    first: dict[str, int] = {}
    for position, name in enumerate(order):
        leads = [
            first[p.source]
            for p in nest.dependences().before(name)
            if p.kind in ("flow", "reduction") and p.source in first and p.source != name
        ]
        products = products_of(nest, name)
        if products and products[0].across:
            leads.append(position)
        if leads:
            first[name] = min(leads)
    return tuple(sorted((name for name in order if name in into & first.keys()), key=first.__getitem__))
