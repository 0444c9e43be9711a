"""Which contractions a bilinear algorithm computes: asked for by name, or where the cost model finds that it pays.

    classical   blocks of (M, N, K), as strategy.blocking prices them
    fast        r blocks of (M/m, N/n, K/k)  +  every sum of blocks written once, and what it adds up read once

Three forms are priced. In the batched one all products are one kernel, which a machine with several cores shares out by
products; with each product apart its rows or columns are shared out, and the result is added up in place, which reads
and writes its blocks more often. A side's sums may then also be computed where the product packs them, which writes
none and reads what they add up for each block that is packed. A side that is constant has its sums computed once for
all calls and costs none. Sizes that are no multiples are padded, or peeled, whichever is cheaper.

Kernels of sums go at memory's rate even where a cache could hold them: one core of a Xeon with 480 MiB of L3 did 14
GB/s at 1024 and 11 at 4096, of 31 and 12 that L3 and memory give to readers. Strassen's product there, the classical
one's time over its own, batched, with the right sums in its loads, and with both: 1024 0.89, 1.06, 1.06; 2048 1.00,
1.04, 1.02; 4096 1.06, 1.06, 1.02.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from math import ceil, inf, prod
from typing import Any

from polyfuse.analysis.once import constant_tensors
from polyfuse.bilinear import KNOWN, Algorithm, error_growth, named
from polyfuse.errors import IllegalRewrite
from polyfuse.ir import Nest, Statement
from polyfuse.machine import Machine
from polyfuse.rewrite.bilinear import bilinear
from polyfuse.rewrite.bilinear_roles import Roles, roles_of
from polyfuse.rewrite.refusal import Refusal
from polyfuse.strategy.blocking import Extents, Operand, Task, blocking
from polyfuse.strategy.cost import microseconds

CLEARLY = 0.925
"""What a fast product may cost by the model, as a part of the classical one, to be chosen: the model knows kernels to
within some percent, and auto is not to lose by more than three."""

SMALL_BLOCKS = 16
"""Blocks of so many rows, steps or columns cost twice what blocking expects, and larger ones less by the square.
Strassen's product of 64 rows and a constant 2048 x 2048 took 1.22 times the classical one's time, where 0.97 was
expected, of 128 rows 0.98 (0.94), of 256 rows 0.94 (0.95), of 512 rows 0.92 (0.91): one core of a Xeon, in turns."""

AUTOMATIC = ("strassen", "winograd")
"""Algorithms that auto chooses from. Two levels would need a search over hundreds of statements, and are there by
name."""

REST = 0.25
"""What the rest of a peeled product reaches of the peak: thin products read more than they compute."""


@dataclass(frozen=True)
class Wanted:
    """Which rewrites that round otherwise a compile was asked for.

    Algorithms to choose from, whether by cost, and how inexact they may be: `accuracy` is the error bound that auto
    allows, in multiples of the classical product's. `fold`: whether constant scales may join weights.
    """

    candidates: tuple[Algorithm, ...] = ()
    automatic: bool = False
    accuracy: float = inf
    fold: bool = True

    @staticmethod
    def of(fast_matmul: str | Algorithm | None, accuracy: float, fold: bool = True) -> Wanted:
        """From compile's options; InvalidAlgorithm for a name that no algorithm has."""
        if fast_matmul is None:
            return Wanted(fold=fold)
        if fast_matmul == "auto":
            return Wanted(tuple(KNOWN[name] for name in AUTOMATIC), True, accuracy, fold)
        algorithm = named(fast_matmul) if isinstance(fast_matmul, str) else fast_matmul
        return Wanted((algorithm,), fold=fold)

    @property
    def key(self) -> dict[str, str]:
        """What a cache has to know of it."""
        return {"fast_matmul": repr(self)} if self.candidates else {} if self.fold else {"fold": "False"}


@dataclass(frozen=True)
class Fast:
    """A nest whose contractions are computed as chosen, and what was decided about each."""

    nest: Nest
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True)
class Option:
    """One way to compute a contraction, with the options of the rewrite."""

    algorithm: Algorithm
    form: dict[str, Any]
    seconds: float

    def __str__(self) -> str:
        how = "each product apart" if self.form.get("apart") else f"in one batch, edges {self.form['edges']}"
        inline = " and ".join(self.form.get("inline", ()))
        packed = f", sums of the {inline} operand{'s' * (' ' in inline)} in its loads" if inline else ""
        return (
            f"{self.algorithm}, {how.replace('edges pad', 'padded').replace('edges peel', 'peeled')}{packed}"
        )


def with_fast_products(nest: Nest, machine: Machine, wanted: Wanted) -> Fast:
    """The nest with bilinear algorithms in its contractions: the one that is wanted, or where one pays."""
    if not wanted.candidates:
        return Fast(nest)
    reasons: list[str] = []
    for s in _contractions(nest):
        roles = roles_of(nest, s, "", None)
        assert not isinstance(roles, Refusal), "contractions have roles"
        options = [o for x in wanted.candidates for o in _options(nest, roles, x, machine)]
        if wanted.automatic:
            nest, said = _automatic(nest, roles, machine, options, wanted.accuracy)
        else:
            nest, said = _named(nest, s, options)
        reasons.append(f"{s.name} ({_by(roles)}) {said}")
    if not reasons:
        reasons.append("no statement is a sum of products that a bilinear algorithm could compute")
    return Fast(nest, tuple(reasons))


def _contractions(nest: Nest) -> Iterator[Statement]:
    for s in nest.statements:
        if s.is_reduction and not isinstance(roles_of(nest, s, "", None), Refusal):
            yield s


def _named(nest: Nest, s: Statement, options: list[Option]) -> tuple[Nest, str]:
    """The statement by the algorithm that was asked for, in its cheapest form."""
    refused = "it is too small"
    for option in sorted(options, key=lambda o: o.seconds):
        try:
            done = bilinear(nest, s.name, option.algorithm, **option.form)
            return done.nest, f"is computed by {option}, as asked for: {done.additions} additions of blocks."
        except IllegalRewrite as error:
            refused = str(error)
    return nest, f"is computed as it stands: {refused}"


def _automatic(
    nest: Nest, roles: Roles, machine: Machine, options: list[Option], accuracy: float
) -> tuple[Nest, str]:
    """The statement by the cheapest algorithm that is accurate enough, if it clearly pays."""
    usual = classical(nest, roles, machine)
    steps = roles.box[roles.steps].size
    if usual is None or not isinstance(steps, int):
        return nest, "is computed as it stands: fast products are priced for known sizes on a CPU."
    growth = {o.algorithm.name: error_growth(o.algorithm, steps) for o in options}
    floats = nest.tensor(roles.statement.write.tensor).dtype.startswith("float")
    exact = [o for o in options if not floats or growth[o.algorithm.name] <= accuracy]
    best = min(exact, key=lambda o: o.seconds, default=None)
    if best is None:
        least = min(growth.values(), default=inf)
        return nest, (
            f"is computed as it stands: the error bound of every fast product is at least {least:.3g} times the "
            f"classical one's, the limit is {accuracy:g}."
        )
    compared = f"{microseconds(best.seconds)} by {best}, {microseconds(usual)} as it stands"
    if best.seconds >= CLEARLY * usual:
        return nest, f"is computed as it stands, a fast product does not clearly pay: {compared}."
    done, said = _named(nest, roles.statement, [best])
    if done is nest:
        return nest, said
    bound = (
        f"; its error bound is {growth[best.algorithm.name]:.3g} times the classical one's" if floats else ""
    )
    return done, f"is computed by {best.algorithm}: {compared}{bound}."


# -- prices ------------------------------------------------------------------------------------------------------------


def classical(nest: Nest, roles: Roles, machine: Machine) -> float | None:
    """Seconds of the product as it stands; None where the model has no answer."""
    sizes = _sizes(roles)
    if sizes is None or machine.kind != "cpu":
        return None
    rows, steps, columns, batches = sizes
    found = _products(nest, roles, machine, Extents(rows, columns, steps, batches), over_batches=False)
    return None if found is None else found[0]


def _options(nest: Nest, roles: Roles, x: Algorithm, machine: Machine) -> Iterator[Option]:
    """Every form of a fast product with its seconds; without known sizes, or for a GPU, each costs nothing."""
    sizes = _sizes(roles)
    priced = sizes is not None and machine.kind == "cpu"
    for form in _forms(nest, roles):
        if not priced or sizes is None:
            yield Option(x, form, 0.0)
            continue
        seconds = _fast(nest, roles, x, machine, sizes, form)
        if seconds is not None:
            yield Option(x, form, seconds)


def _forms(nest: Nest, roles: Roles) -> Iterator[dict[str, Any]]:
    """The rewrite's options; sums of constants are computed once for all calls, and so never in a product's loads."""
    yield from ({"edges": "pad"}, {"edges": "peel"}, {"apart": True})
    if not _is_constant(nest, roles, roles.right):
        yield {"apart": True, "inline": ("right",)}
        if not _is_constant(nest, roles, roles.left):
            yield {"apart": True, "inline": ("left", "right")}


def _fast(
    nest: Nest,
    roles: Roles,
    x: Algorithm,
    machine: Machine,
    sizes: tuple[int, int, int, int],
    form: dict[str, Any],
) -> float | None:
    """Seconds of one form, inf where the model has no answer; None where it has no whole blocks, or nothing to peel."""
    rows, steps, columns, batches = sizes
    apart, padded = bool(form.get("apart")), form.get("edges") == "pad"
    whole = rows % x.m == steps % x.k == columns % x.n == 0
    if whole and form.get("edges") == "peel":
        return None
    part = ceil if padded else int
    m, k, n = part(rows / x.m), part(steps / x.k), part(columns / x.n)
    if min(m, k, n) == 0:
        return None
    itemsize = nest.tensor(roles.statement.write.tensor).itemsize
    each = Extents(m, n, k, batches if apart else batches * x.rank)
    found = _products(nest, roles, machine, each, over_batches=not apart)
    if found is None:
        return inf
    product, width = found
    inside, outside = 0, 0  # elements that pass inside the products' kernels, and in kernels of sums
    if apart:
        inside += m * n * batches * 2 * _terms(x.result)
    else:
        outside += m * n * batches * (x.rank + x.m * x.n)
    for side, value, size, sums in (
        ("left", roles.left, m * k * batches, x.left),
        ("right", roles.right, k * n * batches, x.right),
    ):
        if side == "right" and side in form.get("inline", ()):
            inside += size * (_terms(sums) - x.rank)
        elif side in form.get("inline", ()):  # a tile's rows wait for theirs, in each block of columns
            outside += size * (_terms(sums) - x.rank) * ceil(n / width)
        elif not _is_constant(nest, roles, value):
            outside += size * (len(sums[0]) * (2 if apart else 1) + x.rank)
    near = machine.bandwidth(machine.level(inside * itemsize), machine.units)
    memory = machine.bandwidth(machine.levels[-1], machine.units)
    seconds = product * (x.rank if apart else 1) * (1.0 + (SMALL_BLOCKS / min(m, k, n)) ** 2)
    seconds += itemsize * (inside / near + outside / memory)
    rest = 2.0 * batches * (rows * steps * columns - (m * x.m) * (k * x.k) * (n * x.n))
    return seconds + (0.0 if padded else max(0.0, rest) / (REST * machine.peak(itemsize, machine.units)))


def _terms(sums: Sequence[Sequence[int]]) -> int:
    """How many blocks all sums together add up."""
    return sum(map(bool, chain.from_iterable(sums)))


def _products(
    nest: Nest, roles: Roles, machine: Machine, e: Extents, over_batches: bool
) -> tuple[float, int] | None:
    """Seconds of so many products of a size, and the columns of a block; cores take products each, or parts of all."""
    tensor = nest.tensor(roles.statement.write.tensor)
    fixed = [_is_constant(nest, roles, value) for value in (roles.left, roles.right)]
    left = Operand("left", e.steps * tensor.itemsize, True, fixed[0])
    right = Operand("right", e.columns * tensor.itemsize, True, fixed[1])
    found = blocking(Task(e, left, right, tensor.itemsize, machine))
    if found is None:
        return None
    units = machine.units
    busy = e.batches / ceil(e.batches / units) if over_batches else units
    return machine.launch_seconds + found.seconds / busy, found.width


def _is_constant(nest: Nest, roles: Roles, value: Any) -> bool:
    """Whether a factor is of constants alone: its sums are computed once for all calls."""
    positions = {leaf.position for leaf in value.free_symbols if hasattr(leaf, "position")}
    fixed = constant_tensors(nest, nest.order)
    return all(roles.statement.reads[p].tensor in fixed for p in positions)


def _sizes(roles: Roles) -> tuple[int, int, int, int] | None:
    """Rows, steps, columns, and how many such products there are; None if a size is not known."""
    extents = {d: axis.size for d, axis in roles.box.items()}
    if not all(isinstance(size, int) for size in extents.values()):
        return None
    own = (roles.rows, roles.steps, roles.columns)
    rows, steps, columns = (int(extents[d]) for d in own)
    return rows, steps, columns, prod(int(size) for d, size in extents.items() if d not in own)


def _by(roles: Roles) -> str:
    return " x ".join(str(roles.box[d].size) for d in (roles.rows, roles.columns, roles.steps))
