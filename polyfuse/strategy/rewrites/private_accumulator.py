"""Accumulate products in private temporaries, so that their sums may stay in registers.

    C += a * b                             ->  C_sum += a * b; C = C_sum                     what the caller sees
    for t: { z[t] += h[t] * u;  … z[t] … } ->  for t: { s = z[t]; s += h[t] * u; z[t] = s; … }  in steps that wait
    P += a * b                             ->  P_sum += a * b; P = P_sum                     what another kernel reads

What others see while it is summed up has to lie in memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from polyfuse.ir import Nest
from polyfuse.ir.tree import Loop, parts, path_to
from polyfuse.rewrite import accumulate, own_sums
from polyfuse.schedule import Schedule
from polyfuse.strategy.cost.counts import Counts
from polyfuse.strategy.cost.kernel_model import internal
from polyfuse.strategy.cost.roofline import Model
from polyfuse.strategy.cuda.gemm.implicit_gemm import convolution_of
from polyfuse.strategy.cuda.gemm.schedule import product_of
from polyfuse.strategy.cuda.gemm.tile_choice import product_in
from polyfuse.strategy.remarks import Remark, applied

PASS = "private accumulator"

AFTER_GROUPING = "private accumulator after grouping"
"""The pass for sums of which it is known once statements are in kernels that another one reads them."""


@dataclass(frozen=True)
class Summed:
    """A nest in which some products are summed up in temporaries of their own, and these.

    `stores` are the statements that store such sums behind a product's loops, each with its product, and `remarks` are
    on those.
    """

    nest: Nest
    products: tuple[str, ...]
    remarks: tuple[Remark, ...] = ()
    stores: tuple[tuple[str, str], ...] = ()


def summed_apart(nest: Nest, others: frozenset[str] = frozenset()) -> Summed | None:
    """The nest with products that the caller sees, or that go on in steps, summed up apart; None without such.

    The `others` stay as they are.
    """
    products: list[str] = []
    for name in [s.name for s in nest.statements]:
        if name in others or not _has_tiles(nest, name):
            continue
        tensor = nest.statement(name).write.tensor
        seen = nest.tensor(tensor).role != "temporary"
        if not seen and not _in_steps(nest, name):
            continue
        done = accumulate(nest, tensor) if seen else own_sums(nest, name)
        if done is not None:
            nest, products = done, [*products, name]
    return Summed(nest, tuple(products)) if products else None


def _has_tiles(nest: Nest, name: str) -> bool:
    """True if a statement is a product or a convolution of which there may be tiles of results."""
    return product_of(nest, name) is not None or convolution_of(nest, name) is not None


def _in_steps(nest: Nest, name: str) -> bool:
    """True if a loop around a statement and others carries a dependence between them."""
    counts = Counts(nest)
    around = (x for x in path_to(nest.order, name) if isinstance(x, Loop) and len(x.members) > 1)
    return any(not counts.parallel(loop) for loop in around)


def read_elsewhere(schedule: Schedule, model: Model, decided: frozenset[str], seen: bool) -> Iterator[str]:
    """The products, each alone in its kernel, whose sums are a temporary that another kernel reads.

    Also those that the caller sees, where these too are `seen`. Those in `decided` kernels are left out.
    """
    nest = schedule.nest
    for part in parts(schedule.tree):
        kernel = model.kernel(part)
        product = product_in(nest, kernel) if kernel.band and decided.isdisjoint(kernel.names) else None
        if product is None:
            continue
        sums = nest.tensor(nest.statement(product.statement).write.tensor)
        if sums.name not in internal(kernel) and (seen or sums.role == "temporary"):
            yield product.statement


def stored_after(nest: Nest, products: Iterable[str]) -> Summed | None:
    """The nest with such products summed up apart and then stored; None without any for which that is allowed."""
    done: list[str] = []
    said: list[Remark] = []
    stores: list[tuple[str, str]] = []
    for name in products:
        tensor = nest.statement(name).write.tensor
        made = accumulate(nest, tensor, after=name) or own_sums(nest, name)
        if made is None:
            continue
        known = {s.name for s in nest.statements}
        added = [s.name for s in made.statements if s.name not in known]
        stores += [(name, added[0])] if len(added) == 1 else []
        nest, done = made, [*done, name]
        sums = nest.statement(name).write.tensor
        line = f"{name} sums in {sums}, which is then stored in {tensor}: others read that."
        said.append(applied(AFTER_GROUPING, (name,), line))
    return Summed(nest, tuple(done), tuple(said), tuple(stores)) if done else None
