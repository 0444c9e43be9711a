"""Find the statements under a maximum: exponentials of differences to it, and sums that are linear in them.

    M: m[r] max= a[r, k]
    E: e[r, k] = exp(a[r, k] - m[r])          exponentials, kept in a temporary
    L: l[r] += e[r, k]                        sums of them, each term with one such factor
    O: o[r, j] += exp(a[r, k] - m[r]) * v[k, j]

Each instance is dated by the k under which M saw the same element of a.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import islpy as isl
import sympy

from polyfuse.errors import IllegalRewrite
from polyfuse.errors.refusals import Refusal
from polyfuse.ir import Access, Nest, Statement
from polyfuse.ir.number_types import is_real
from polyfuse.ir.scalar import reads_in
from polyfuse.ir.tree import statements
from polyfuse.rewrite.reductions.factor_out import factors, first_value
from polyfuse.rewrite.refusal import refused
from polyfuse.sets import IN, dimension


@dataclass(frozen=True)
class Found:
    """A maximum M and what runs under it.

    `first` sets M's first value. `dates` gives for each instance the value of M's reduced `dimension` that it belongs
    to, `under` for each sum the element of m that an element of it is under: { l[r] -> m[r] }.
    """

    maximum: Statement
    first: Statement
    dimension: str
    exponentials: tuple[Statement, ...]
    sums: tuple[Statement, ...]
    dates: Mapping[str, isl.PwAff]
    under: Mapping[str, isl.Map]

    @property
    def names(self) -> tuple[str, ...]:
        """All statements that run in the blocks."""
        return (self.maximum.name, *(s.name for s in (*self.exponentials, *self.sums)))


def found_under(nest: Nest, maximum: str, call: str) -> Found:
    """Return the statements under a maximum. Raises IllegalRewrite if they cannot run before it is known."""
    search = _Search(nest, maximum, call)
    for name in statements(nest.order):
        search.take(nest.statement(name))
    if not search.sums:
        raise search.no(f"no sum runs under {maximum}", "sums of exp(a - m), m the maximum of a")
    for s in search.exponentials:
        search.all_summed(s)
    return Found(
        search.maximum,
        search.first,
        search.maximum.dims[search.position],
        tuple(search.exponentials),
        tuple(search.sums),
        search.dates,
        search.under,
    )


class _Search:
    """Statement by statement in the original order."""

    def __init__(self, nest: Nest, maximum: str, call: str) -> None:
        self.nest, self.call = nest, call
        m = self.maximum = nest.statement(maximum)
        tensor = nest.tensor(m.write.tensor)
        if m.op != "max=" or len(m.reads) != 1 or tensor.is_visible or not is_real(tensor.dtype):
            raise self.no(
                f"{maximum} is not a maximum of one value into a temporary", "m max= a[…] into a temporary"
            )
        free = [d for d in range(len(m.dims)) if not m.write.map.involves_dims(IN, d, 1)]
        if len(free) != 1:
            raise self.no(f"{maximum} reduces over {len(free)} dimensions", "one reduced dimension")
        self.position = free[0]
        others = [s for s in nest.statements if s is not m and s.write.tensor == tensor.name]
        if len(others) != 1 or not _is_lowest(others[0].body):
            raise self.no(
                f"{tensor.name} does not start from -inf in one statement", "an initial -inf, set once"
            )
        self.first = others[0]
        self.dates: dict[str, isl.PwAff] = {maximum: dimension(m.domain, self.position)}
        self.under: dict[str, isl.Map] = {}
        self.relative: dict[str, Statement] = {}  # by the temporary that holds exponentials
        self.exponentials: list[Statement] = []
        self.sums: list[Statement] = []

    def take(self, s: Statement) -> None:
        """A statement that is linear in exponentials under the maximum joins them; others that need m come after."""
        place = self._factor(s) if s is not self.maximum else None
        if place is None:
            return
        instance, under = place
        kept = s.op == "=" and self.nest.tensor(s.write.tensor).role == "temporary"
        if s.op != "+=" and not kept:
            return
        date = _as_function(instance.apply_range(_date_map(self.maximum, self.position)), s)
        if date is None:
            raise self.no(
                f"one instance of {s.name} reads several values of {self.maximum.dims[self.position]}",
                "one of them",
            )
        if kept:
            self.exponentials.append(s)
            self.relative[s.write.tensor] = s
        else:
            self._sum(s, under)
        self.dates[s.name] = date

    def all_summed(self, s: Statement) -> None:
        """Exponentials in a temporary are used by sums under the same maximum alone."""
        own = set(self.dates)
        for reader in self.nest.statements:
            if s.write.tensor in (a.tensor for a in reader.reads) and reader.name not in own:
                raise self.no(
                    f"{reader.name} needs {s.write.tensor} under the final maximum",
                    "only sums of the exponentials",
                )

    def no(self, why: str, remedy: str) -> IllegalRewrite:
        """The refusal, to be raised."""
        refusal: Refusal = refused(self.call, why, remedy)
        return IllegalRewrite(refusal)

    def _sum(self, s: Statement, under: isl.Map) -> None:
        if first_value(self.nest, s) is None:
            raise self.no(
                f"{s.write.tensor} does not start from 0 in one statement", "an initial 0, set once"
            )
        elements = s.write.map.intersect_domain(s.domain).reverse().apply_range(under)
        if not elements.is_single_valued():
            raise self.no(
                f"an element of {s.write.tensor} is a sum under several maxima", "one maximum an element"
            )
        self.under[s.name] = elements
        self.sums.append(s)

    def _factor(self, s: Statement) -> tuple[isl.Map, isl.Map] | None:
        """({ instance -> M's instance that saw the same element }, { instance -> its maximum }) of the one factor."""
        every = factors(s.body)
        found = {at: place for at, part in enumerate(every) if (place := self._place(s, part)) is not None}
        rest = {
            s.reads[x.position].tensor
            for at, part in enumerate(every)
            for x in reads_in(part)
            if at not in found
        }
        return (
            next(iter(found.values())) if len(found) == 1 and self.maximum.write.tensor not in rest else None
        )

    def _place(self, s: Statement, part: sympy.Basic) -> tuple[isl.Map, isl.Map] | None:
        leaves = reads_in(part)
        if part in leaves and s.reads[leaves[0].position].tensor in self.relative:
            return self._through(s, s.reads[leaves[0].position])
        return self._difference(s, part.args[0]) if isinstance(part, sympy.exp) else None

    def _through(self, s: Statement, access: Access) -> tuple[isl.Map, isl.Map]:
        """Return accesses through the temporary that holds exponentials."""
        e = self.relative[access.tensor]
        instances = access.map.intersect_domain(s.domain).apply_range(
            e.write.map.intersect_domain(e.domain).reverse()
        )
        place = self._factor(e)
        assert place is not None, "it holds exponentials"
        return instances.apply_range(place[0]), instances.apply_range(place[1])

    def _difference(self, s: Statement, argument: sympy.Basic) -> tuple[isl.Map, isl.Map] | None:
        """a - m with the element of a that M compared: what stands under exp."""
        both = _difference(s, argument, self.maximum)
        if both is None:
            return None
        a, m = both
        seen = self.maximum.reads[0].map.intersect_domain(self.maximum.domain)
        instance = a.map.intersect_domain(s.domain).apply_range(seen.reverse())
        maxima = m.map.intersect_domain(s.domain)
        return (instance, maxima) if instance.apply_range(self.maximum.write.map).is_equal(maxima) else None


def has_exponential(s: Statement, maximum: Statement) -> bool:
    """True if a factor of a statement is exp(a - m), where m is the maximum and a its argument."""
    every = (part for part in factors(s.body) if isinstance(part, sympy.exp))
    return any(_difference(s, part.args[0], maximum) is not None for part in every)


def _difference(s: Statement, argument: sympy.Basic, maximum: Statement) -> tuple[Access, Access] | None:
    """Return (a, m) of an expression a + (-1) * m; None for others."""
    leaves = {s.reads[leaf.position].tensor: s.reads[leaf.position] for leaf in reads_in(argument)}
    m, a = leaves.get(maximum.write.tensor), leaves.get(maximum.reads[0].tensor) if maximum.reads else None
    if m is None or a is None or not isinstance(argument, sympy.Add) or len(argument.args) != 2:
        return None
    left, right = argument.args
    shown = [s.reads[leaf.position] for leaf in (*reads_in(left), *reads_in(right))]
    same = shown == [a, m] and left in reads_in(left) and factors(right)[:-1] == [sympy.Integer(-1)]
    return (a, m) if same else None


def _is_lowest(body: sympy.Basic) -> bool:
    """True if a body is the number -inf."""
    return bool(body.doit() == -sympy.oo)  # -inf may be written as (-1) * inf


def _date_map(m: Statement, position: int) -> isl.Map:
    return isl.Map.from_pw_aff(dimension(m.domain, position))


def _as_function(dates: isl.Map, s: Statement) -> isl.PwAff | None:
    """{ instance -> [date] } as a function, if each instance has just one date."""
    if not dates.is_single_valued() or not s.domain.is_subset(dates.domain()):
        return None
    return isl.PwMultiAff.from_map(dates).get_pw_aff(0).gist(s.domain)
