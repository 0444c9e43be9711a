"""Price a product on a CPU, classically and by a bilinear algorithm.

    classical   blocks of (M, N, K), as strategy.blocking prices them
    fast        r blocks of (M/m, N/n, K/k)  +  every sum of blocks written once, and what it adds up read once

Three forms are priced. In the batched one all products are one kernel, which a machine with several cores shares out by
products; with each product apart its rows or columns are shared out, and the result is added up in place, which reads
and writes its blocks more often. A side's sums may then also be computed where the product packs them, which writes
none and reads what they add up for each block that is packed. A side that is constant has its sums computed once for
all calls and costs none. Sizes that are no multiples are padded, or peeled, whichever is cheaper.

Constants that a call reads come from where a call keeps them, and a fast product has more of them: Strassen's weights
are 7/4 of the network's. They come in while the product is computed, but not all the time: together the two take the
root of the sum of their squares. One layer of 4096, the model's arithmetic and the weights from memory at the 33 GB/s
that a batch of 2 gets (one Zen 5 core), ms:

    batch        classical: alone, together, measured      Strassen: alone, together, measured
    16           2.6 and 2.0      3.3    2.7               2.1 and 3.6      4.1    4.1
    32           4.9 and 2.0      5.3    5.0               4.1 and 3.6      5.4    5.7
    64           9.3 and 2.0      9.6   10.0               8.1 and 3.6      8.8    9.6
    128         18.5 and 2.0     18.7   19.7              15.9 and 3.6     16.3   17.5

and of a Xeon, Strassen's product with a constant 2048 x 2048 over the classical one, with weights from memory at 12
GB/s, products at 185 GFLOP/s and sums at 14 GB/s: 64 rows 1.22 (1.16 by the rule), 128 0.98 (1.01), 256 0.94 (0.96),
512 0.92 (0.95).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from math import ceil, hypot, inf, prod
from typing import Any

from polyfuse.bilinear import Algorithm
from polyfuse.ir import Nest
from polyfuse.machine import CpuMachine
from polyfuse.rewrite.bilinear.dimension_roles import Roles
from polyfuse.strategy.cost.bilinear_products import REST, is_constant
from polyfuse.strategy.cpu.gemm.blocking import blocking
from polyfuse.strategy.cpu.gemm.blocks import Extents, Operand, Task

IN_LOADS = 3.0
"""The slowdown of summing rows from several places while packing, compared with a separate kernel of sums: right sums
in the loads took 0.9 ms at 1024 and 5.4 at 2048 (by this 1.0 and 4.0; one Zen 5 core). On a Xeon they took less than
kernels of their own: auto may leave a gain there."""


@dataclass(frozen=True)
class Price:
    """A product of known sizes in a nest, priced on a CPU.

    `held` are the bytes of what a call reads and writes for the caller, and of its constants.
    """

    roles: Roles
    machine: CpuMachine
    extents: Extents
    itemsize: int
    constant: tuple[bool, bool]
    held: int
    constants: int

    @staticmethod
    def of(nest: Nest, roles: Roles, machine: CpuMachine) -> Price | None:
        """None if the model has no answer: sizes that are not known, or a GPU."""
        extents = _extents(roles)
        if extents is None or machine.kind != "cpu":
            return None
        itemsize = nest.tensor(roles.statement.write.tensor).itemsize
        constant = is_constant(nest, roles, roles.left), is_constant(nest, roles, roles.right)
        sizes = [(tensor.role, _bytes(tensor.shape, tensor.itemsize)) for tensor in nest.tensors]
        held = sum(size for role, size in sizes if role not in ("temporary", "gathered"))
        constants = sum(size for role, size in sizes if role == "constant")
        return Price(roles, machine, extents, itemsize, constant, held, constants)

    def classical(self) -> float | None:
        """Seconds of the product as it stands; None if blocking has no answer."""
        found = self._products(self.extents, self.held, over_batches=False)
        return None if found is None else found[0]

    def fast(self, x: Algorithm, form: Mapping[str, Any]) -> float | None:
        """Seconds of one form, inf where blocking has no answer; None without whole blocks, or anything to peel."""
        e, machine = self.extents, self.machine
        apart, padded = bool(form.get("apart")), form.get("edges") == "pad"
        whole = e.rows % x.m == e.steps % x.k == e.columns % x.n == 0
        if whole and form.get("edges") == "peel":
            return None
        part = ceil if padded else int
        m, k, n = part(e.rows / x.m), part(e.steps / x.k), part(e.columns / x.n)
        if min(m, k, n) == 0:
            return None
        more = self.constants * x.rank / (x.k * x.n) - self.constants
        made = (m * k * (not self.constant[0]) + k * n * (not self.constant[1]) + m * n) * x.rank * e.batches
        held = int(self.held + more + made * self.itemsize)
        each = Extents(m, n, k, e.batches if apart else e.batches * x.rank)
        found = self._products(each, held, over_batches=not apart)
        if found is None:
            return inf
        product, width = found
        moved = self.itemsize * self._moved(x, form, (m, k, n), width)
        seconds = product * (x.rank if apart else 1) + moved / self._sums(held)
        kernels = 1 + sum(not fixed for fixed in self.constant)
        seconds += machine.launch_seconds * kernels
        rest = 2.0 * e.batches * (e.rows * e.steps * e.columns - (m * x.m) * (k * x.k) * (n * x.n))
        peak = machine.peak(self.itemsize, machine.units)
        return seconds + (0.0 if padded else max(0.0, rest) / (REST * peak))

    def _moved(self, x: Algorithm, form: Mapping[str, Any], block: tuple[int, int, int], width: int) -> int:
        """The elements that pass for the sums: in kernels of their own, and beside the products in theirs."""
        m, k, n = block
        apart, batches = bool(form.get("apart")), self.extents.batches
        moved = m * n * batches * (2 * _terms(x.result) if apart else x.rank + x.m * x.n)
        for side, constant, size, sums in (
            ("left", self.constant[0], m * k * batches, x.left),
            ("right", self.constant[1], k * n * batches, x.right),
        ):
            if side in form.get("inline", ()):  # a tile's rows wait for theirs, in each block of columns
                moved += int(IN_LOADS * size * _terms(sums)) * (ceil(n / width) if side == "left" else 1)
            elif not constant:
                moved += size * (len(sums[0]) * (2 if apart else 1) + x.rank)
        return moved

    def _sums(self, held: int) -> float:
        """Bytes per second of kernels of sums: a dozen rows at once, from behind L2, as factors go by between."""
        level = self.machine.keeping(max(held, self.machine.levels[1].size + 1))
        return level.rows * self.machine.bandwidth(level, self.machine.units)

    def _products(self, e: Extents, held: int, over_batches: bool) -> tuple[float, int] | None:
        """Seconds of so many products of a size, and the columns of a block; cores take products, or parts of each."""
        itemsize, machine = self.itemsize, self.machine
        left = Operand("left", e.steps * itemsize, True, self.constant[0])
        right = Operand("right", e.columns * itemsize, True, self.constant[1])
        found = blocking(Task(e, left, right, itemsize, machine))
        if found is None:
            return None
        units = machine.units
        busy = e.batches / ceil(e.batches / units) if over_batches else units
        coming = 0.0
        if self.constant[1] and held > machine.levels[1].size:
            size = e.batches * e.steps * e.columns * itemsize
            coming = size / machine.reading(machine.keeping(held), units)
        return machine.launch_seconds + hypot(found.seconds / busy, coming), found.width


def _terms(sums: Sequence[Sequence[int]]) -> int:
    """The number of blocks that all sums together add."""
    return sum(map(bool, chain.from_iterable(sums)))


def _extents(roles: Roles) -> Extents | None:
    """Rows, columns, steps, and how many such products there are; None if a size is not known."""
    extents = {d: axis.size for d, axis in roles.box.items()}
    if not all(isinstance(size, int) for size in extents.values()):
        return None
    own = (roles.rows, roles.columns, roles.steps)
    rows, columns, steps = (int(extents[d]) for d in own)
    return Extents(rows, columns, steps, prod(int(size) for d, size in extents.items() if d not in own))


def _bytes(shape: Sequence[int | str], itemsize: int) -> int:
    """The bytes of a tensor; of one without known sizes none."""
    known = [size for size in shape if isinstance(size, int)]
    return itemsize * prod(known) if len(known) == len(shape) else 0
