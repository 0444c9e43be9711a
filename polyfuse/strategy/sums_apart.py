"""Products whose sums are made in temporaries of their own, so that they may stay in registers.

    C += a * b                             ->  C_sum += a * b; C = C_sum                     what the caller sees
    for t: { z[t] += h[t] * u;  … z[t] … } ->  for t: { s = z[t]; s += h[t] * u; z[t] = s; … }  in steps that wait

What others see while it is summed up has to lie in memory.
"""

from __future__ import annotations

from dataclasses import dataclass

from polyfuse.ir import Nest
from polyfuse.ir.tree import Loop, path_to
from polyfuse.rewrite import accumulate, own_sums
from polyfuse.strategy.counts import Counts
from polyfuse.strategy.products_cuda import product_of


@dataclass(frozen=True)
class Summed:
    """A nest in which some products are summed up in temporaries of their own, and these products."""

    nest: Nest
    products: tuple[str, ...]


def summed_apart(nest: Nest, decided: frozenset[str] = frozenset()) -> Summed | None:
    """The nest with products that the caller sees, or that go on in steps, summed up apart; None without such.

    Statements whose kernel is `decided` stay as they are.
    """
    products: list[str] = []
    for name in [s.name for s in nest.statements]:
        if name in decided or product_of(nest, name) is None:
            continue
        tensor = nest.statement(name).write.tensor
        seen = nest.tensor(tensor).role != "temporary"
        if not seen and not _in_steps(nest, name):
            continue
        done = accumulate(nest, tensor) if seen else own_sums(nest, name)
        if done is not None:
            nest, products = done, [*products, name]
    return Summed(nest, tuple(products)) if products else None


def _in_steps(nest: Nest, name: str) -> bool:
    """Whether a loop around a statement and others carries a dependence between them."""
    counts = Counts(nest)
    around = (x for x in path_to(nest.order, name) if isinstance(x, Loop) and len(x.members) > 1)
    return any(not counts.parallel(loop) for loop in around)
