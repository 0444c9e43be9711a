"""Compute contractions by a bilinear algorithm: one asked for by name, or where the cost model expects a gain.

What each takes by the model is in `strategy.fast_prices`, on a GPU in `strategy.fast_prices_cuda`; auto takes the
cheapest where it clearly pays.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import inf
from typing import Any

from polyfuse.bilinear import KNOWN, Algorithm, error_growth, named
from polyfuse.errors import IllegalRewrite
from polyfuse.errors.refusals import Refusal
from polyfuse.ir import Nest, Statement
from polyfuse.ir.number_types import is_real
from polyfuse.machine import CpuMachine, GpuMachine, Machine
from polyfuse.measure import duration
from polyfuse.rewrite.bilinear.apply import bilinear
from polyfuse.rewrite.bilinear.dimension_roles import Roles, roles_of
from polyfuse.strategy.cost.bilinear_products import is_constant
from polyfuse.strategy.cpu.gemm.bilinear_cost import Price
from polyfuse.strategy.cuda.gemm.bilinear_cost import GpuPrice
from polyfuse.strategy.remarks import Reason, Refused, Remark, applied, refused, weighed

PASS = "fast matmul"

CLEARLY = 0.94
"""The largest cost of a fast product to be chosen, as a fraction of the classical one's: the model knows kernels to
within some percent, and auto is not to lose by more than three. Expected and measured on one Zen 5 core: 8 layers of
1024 at batch 64 and 128 0.97 and 0.92, 0.94 and 0.90, of 2048 0.97 and 0.95, 0.92 and 0.92, one of 4096 at batch 32,
64 and 128 1.01 and 1.21, 0.92 and 0.96, 0.89 and 0.87; squares of 1024, 2048, 3072 and 4096 0.96 and 1.01 to 1.11, 0.93
and 0.91 to 0.96, 0.86 and 0.86, 0.86 and 0.88."""

AUTOMATIC = ("strassen", "winograd")
"""Algorithms that auto chooses from. Two levels would need a search over hundreds of statements, and are there by
name."""


@dataclass(frozen=True)
class Wanted:
    """The rewrites with other rounding that a compile may use.

    Algorithms to choose from, whether by cost, and how inexact they may be: `accuracy` is the error bound that auto
    allows, in multiples of the classical product's. `fold`: whether constant scales may join weights. `ieee`: whether
    NaN and infinity are promised where the classical product has them, which auto then keeps to.
    """

    candidates: tuple[Algorithm, ...] = ()
    automatic: bool = False
    accuracy: float = inf
    fold: bool = True
    ieee: bool = False

    @staticmethod
    def of(
        fast_matmul: str | Algorithm | None, accuracy: float, fold: bool = True, ieee: bool = False
    ) -> Wanted:
        """From compile's options; InvalidAlgorithm for a name that no algorithm has."""
        if fast_matmul is None:
            return Wanted(fold=fold)
        if fast_matmul == "auto":
            return Wanted(tuple(KNOWN[name] for name in AUTOMATIC), True, accuracy, fold, ieee)
        algorithm = named(fast_matmul) if isinstance(fast_matmul, str) else fast_matmul
        return Wanted((algorithm,), fold=fold)

    @property
    def key(self) -> dict[str, str]:
        """The parts of a cache key that it decides."""
        return {"fast_matmul": repr(self)} if self.candidates else {} if self.fold else {"fold": "False"}


@dataclass(frozen=True)
class Fast:
    """A nest whose contractions are computed as chosen, and what was decided about each."""

    nest: Nest
    remarks: tuple[Remark, ...] = ()


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
    remarks: list[Remark] = []
    for s in _contractions(nest):
        roles = roles_of(nest, s, "", None)
        assert not isinstance(roles, Refusal), "contractions have roles"
        options = [o for x in wanted.candidates for o in _options(nest, roles, x, machine)]
        if wanted.automatic:
            nest, said = _automatic(nest, roles, machine, options, wanted)
        else:
            nest, said = _named(nest, s, options)
        text = f"{s.name} ({_by(roles)}) {said.text}"
        remarks.append(replace(said, statements=(s.name,), text=text))
    if not remarks:
        line = "no statement is a sum of products that a bilinear algorithm could compute"
        remarks.append(refused(PASS, (), Reason.OTHER_FORM, line))
    return Fast(nest, tuple(remarks))


def _contractions(nest: Nest) -> Iterator[Statement]:
    for s in nest.statements:
        if s.is_reduction and not isinstance(roles_of(nest, s, "", None), Refusal):
            yield s


def _named(nest: Nest, s: Statement, options: list[Option]) -> tuple[Nest, Remark]:
    """The statement by the algorithm that was asked for, in its cheapest form."""
    why = Refused(Reason.NO_SIZE, "it is too small")
    for option in sorted(options, key=lambda o: o.seconds):
        try:
            done = bilinear(nest, s.name, option.algorithm, **option.form)
            line = f"is computed by {option}, as asked for: {done.additions} additions of blocks.{_spread(nest, s)}"
            return done.nest, applied(PASS, (s.name,), line, Reason.WANTED)
        except IllegalRewrite as error:
            why = Refused(Reason.ILLEGAL, str(error))
    return nest, refused(PASS, (s.name,), why.reason, f"is computed as it stands: {why}")


def _automatic(
    nest: Nest, roles: Roles, machine: Machine, options: list[Option], wanted: Wanted
) -> tuple[Nest, Remark]:
    """The statement by the cheapest algorithm that is accurate enough, if it clearly pays."""
    floats = _has_floats(nest, roles.statement)
    name, steps = roles.statement.name, roles.box[roles.steps].size
    if wanted.ieee and floats:
        line = (
            "is computed as it stands: math='ieee' promises NaN and infinity where the classical product has them, and "
            "in a fast product they spread to whole rows and columns."
        )
        return nest, refused(PASS, (name,), Reason.WANTED, line)
    price = price_of(nest, roles, machine)
    usual = None if price is None else price.classical()
    if usual is None or not isinstance(steps, int):
        where = "in register tiles" if machine.kind == "cuda" else "on a CPU"
        line = f"is computed as it stands: fast products are priced for known sizes {where}."
        return nest, refused(PASS, (name,), Reason.NO_SIZE, line)
    growth = {o.algorithm.name: error_growth(o.algorithm, steps) for o in options}
    exact = [o for o in options if not floats or growth[o.algorithm.name] <= wanted.accuracy]
    best = min(exact, key=lambda o: o.seconds, default=None)
    if best is None:
        least = min(growth.values(), default=inf)
        line = (
            f"is computed as it stands: the error bound of every fast product is at least {least:.3g} times the "
            f"classical one's, the limit is {wanted.accuracy:g}."
        )
        return nest, refused(PASS, (name,), Reason.WANTED, line)
    compared = f"{duration(best.seconds)} by {best}, {duration(usual)} as it stands"
    if best.seconds >= CLEARLY * usual:
        line = f"is computed as it stands, a fast product does not clearly pay: {compared}."
        return nest, weighed(PASS, (name,), False, line, best.seconds, usual)
    done, said = _named(nest, roles.statement, [best])
    if done is nest:
        return nest, said
    bound = (
        f"; its error bound is {growth[best.algorithm.name]:.3g} times the classical one's" if floats else ""
    )
    line = f"is computed by {best.algorithm}: {compared}{bound}.{_spread(nest, roles.statement)}"
    return done, weighed(PASS, (name,), True, line, best.seconds, usual)


def _has_floats(nest: Nest, s: Statement) -> bool:
    return is_real(nest.tensor(s.write.tensor).dtype)


def _spread(nest: Nest, s: Statement) -> str:
    """A sentence on values that are not finite: sums of blocks carry them into other products."""
    if not _has_floats(nest, s):
        return ""
    return (
        " NaN and infinity in a factor spread to rows and columns that are finite in the classical product."
    )


def price_of(nest: Nest, roles: Roles, machine: Machine) -> Price | GpuPrice | None:
    """The price of a product on a machine, by its kind's model; None if that has no answer."""
    if isinstance(machine, GpuMachine):
        return GpuPrice.of(nest, roles, machine)
    return Price.of(nest, roles, machine) if isinstance(machine, CpuMachine) else None


def _options(nest: Nest, roles: Roles, x: Algorithm, machine: Machine) -> Iterator[Option]:
    """Every form of a fast product with its seconds; if there is no price each costs nothing."""
    price = price_of(nest, roles, machine)
    for form in _forms(nest, roles):
        seconds = 0.0 if price is None else price.fast(x, form)
        if seconds is not None:
            yield Option(x, form, seconds)


def _forms(nest: Nest, roles: Roles) -> Iterator[dict[str, Any]]:
    """The rewrite's options; sums of constants are computed once for all calls, and so never in a product's loads."""
    yield from ({"edges": "pad"}, {"edges": "peel"}, {"apart": True})
    if not is_constant(nest, roles, roles.right):
        yield {"apart": True, "inline": ("right",)}
        if not is_constant(nest, roles, roles.left):
            yield {"apart": True, "inline": ("left", "right")}


def _by(roles: Roles) -> str:
    return " x ".join(str(roles.box[d].size) for d in (roles.rows, roles.columns, roles.steps))
