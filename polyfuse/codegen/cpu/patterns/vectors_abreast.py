"""How many vectors of a loop of functions run side by side (intrinsics/interleave.py).

    for j in range(0, 512): y[j] = exp(x[j])   ->   for j in range(0, 512): interleave(4); y[j] = exp(x[j])

On one core of a Zen 3, sixteen registers of eight numbers, cycles a vector of float32 with LLVM's choice (one), two and
four: exp 12, 11, 10; tanh 20, 18, 16 to 17; sin 67, 61, 52; gelu 32, 28, 27; exp of exp 31, 28, 22; tanh of sigmoid 54,
42, 34; sin of exp 131, 101, 74. So four make of a function of a function what both take in loops of their own.

Where a row is short, vectors that do not fill a turn run one after the other behind it, and a sum is added up from four
registers: softmax of rows of 16, 24 and 48 took 25, 37 and 63 ns a row, and 31, 44 and 81 with four; of 32 and 64 the
same with and without, of 100 and more 2 to 11 % less.
"""

from __future__ import annotations

import sympy

from polyfuse.codegen.looptree.nodes import For, Store, nodes_in
from polyfuse.codegen.looptree.product import most_of
from polyfuse.codegen.vector_math.vector_functions import VECTOR_FUNCTIONS
from polyfuse.ir.number_types import ITEMSIZE

REGISTER = 64
"""Bytes of the widest register: what is whole in it is whole in shorter ones."""

LONG = 16
"""Registers of a row from which on it does not matter how many are left behind the last turn."""


def vectors_abreast(loop: For) -> int:
    """4, 2, or 1 where LLVM chooses, as in all loops that have one inside or run on cores."""
    inside = tuple(nodes_in(loop.body))
    if loop.bind not in ("vector", None) or any(isinstance(node, For) for node in inside):
        return 1
    stores = [node for node in inside if isinstance(node, Store)]
    functions = {type(one).__name__ for store in stores for one in store.body.atoms(sympy.Function)}
    if functions.isdisjoint(VECTOR_FUNCTIONS):
        return 1
    count = most_of(loop)
    lanes = REGISTER // min(ITEMSIZE[store.target.dtype] for store in stores)
    for vectors in (4, 2):
        if count is None or count >= LONG * lanes or count % (vectors * lanes) == 0:
            return vectors
    return 1
