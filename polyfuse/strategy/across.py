"""Outputs whose sums are made in a temporary, because their neighbours in memory are no columns of the product.

A convolution's output with channels first has pixels as neighbours, and its product filters as columns: in blocks the
sums are kept in panels of columns, and what reads them stores them turned. An output has no reader, so it gets one.
"""

from __future__ import annotations

from polyfuse.ir import Nest
from polyfuse.machine import Machine
from polyfuse.rewrite.detach import detach
from polyfuse.rewrite.refusal import Refusal
from polyfuse.strategy.contraction import products_of


def with_readers(nest: Nest, machine: Machine) -> tuple[Nest, tuple[str, ...]]:
    """The nest with such outputs detached, and a sentence on each; the same nest where there are none."""
    said: list[str] = []
    for s in nest.statements if machine.kind == "cpu" else ():
        products = products_of(nest, s.name)
        output = s.write.tensor
        if not products or not products[0].across or nest.tensor(output).role != "output":
            continue
        done = detach(nest, output)
        if not isinstance(done, Refusal):
            nest = done
            said.append(
                f"{s.name} sums in a temporary, which is stored in {output}: columns lie across that."
            )
    return nest, tuple(said)
