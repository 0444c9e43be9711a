"""Outputs whose sums are made in a temporary, because their neighbours in memory are no columns of the product.

A convolution's output with channels first has pixels as neighbours, and its product filters as columns: in blocks the
sums are kept in panels of columns, and what reads them stores them turned. An output has no reader, so it gets one. So
does an output that pooling after a convolution reduces into: it is stored once, and not for every value.
"""

from __future__ import annotations

from polyfuse.ir import Nest
from polyfuse.ir.tree import statements
from polyfuse.machine import Machine
from polyfuse.rewrite.reductions.detach_output import detach
from polyfuse.strategy.match.epilogue import needs_of
from polyfuse.strategy.match.gemm import products_of
from polyfuse.strategy.remarks import Remark, applied

PASS = "detach output"


def with_readers(nest: Nest, machine: Machine) -> tuple[Nest, tuple[Remark, ...]]:
    """The nest with such outputs detached, and a sentence on each; the same nest where there are none."""
    said: list[Remark] = []
    for name in across(nest) if machine.kind == "cpu" else ():
        output = nest.statement(name).write.tensor
        done = detach(nest, output) if nest.tensor(output).role == "output" else None
        if isinstance(done, Nest):
            nest = done
            line = f"{name} sums in a temporary, which is stored in {output}: columns lie across that."
            said.append(applied(PASS, (name,), line))
    return nest, tuple(said)


def across(nest: Nest) -> tuple[str, ...]:
    """The products whose sums' neighbours in memory are no columns, and the reductions that follow them."""
    order = statements(nest.order)
    found: list[str] = []
    for position, name in enumerate(order):
        products = products_of(nest, name)
        if products and products[0].across:
            needs = needs_of(nest, name, order[position + 1 :])
            found += [name, *(after for after in needs if nest.statement(after).is_reduction)]
    return tuple(dict.fromkeys(found))
