"""Bounds as values: the least work and traffic of a nest or of a schedule's kernels, beside the schedule's own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import islpy as isl

from polyfuse.analysis.once import once
from polyfuse.errors import BadArgument
from polyfuse.errors.budget import within
from polyfuse.errors.viewed import Viewed, shorter, without_numbers
from polyfuse.ir.bindings import ON_CORES
from polyfuse.ir.nest import Nest
from polyfuse.ir.tree import Tree, loops, parts, restrict, statements
from polyfuse.lower_bounds.accesses import least_operations
from polyfuse.lower_bounds.chains import most
from polyfuse.lower_bounds.compulsory import compulsory
from polyfuse.lower_bounds.formulas import Formula, formula
from polyfuse.lower_bounds.program_bound import program_bound
from polyfuse.lower_bounds.traffic import Counter, NotCounted, Traffic
from polyfuse.machine import Machine
from polyfuse.machine.levels import UNBOUNDED, bytes_text
from polyfuse.schedule import Schedule
from polyfuse.strategy.cost.counts import nominal_sizes

CLOSE = 1.2
"""The ratio of a schedule's traffic to the bound up to which it counts as at the bound."""

OPERATIONS = 20_000_000
"""isl operations for the traffic of one kernel: about ten seconds. Beyond them it is not counted."""


@dataclass(frozen=True)
class FastMemory:
    """The memory whose traffic is bounded.

    Attributes:
        name: A level's name, or "" for a size that was given.
        size: Bytes that one unit has.
        units: Units of the machine that each have their own.
    """

    name: str
    size: int
    units: int = 1

    @property
    def total(self) -> int:
        """Bytes of all units."""
        return self.size * self.units

    def __str__(self) -> str:
        text = f"{self.name} of {bytes_text(self.size)}" if self.name else bytes_text(self.size)
        return f"{self.units} × {text}" if self.units > 1 else text


@dataclass(frozen=True)
class Bound:
    """The least work and traffic of some statements, and a schedule's traffic beside it. All figures are of one call.

    Attributes:
        statements: The statements.
        flops: Operations outside of the branches of `where`; of a domain that is not counted, those of a box around it.
        compulsory: Bytes that are loaded or stored once at least.
        least: Bytes that any order of the same instances moves at least; `compulsory` or more.
        formulas: The bounds that grow as fast memory shrinks, statement by statement.
        traffic: Bytes that the schedule moves; None for a nest, or if they were not counted.
        excess: (tensor, bytes moved, bytes that are loaded or stored once) where the schedule moves most beyond once.
        predicted: The cost model's seconds; None for a nest, or if the schedule cannot be priced.
        measured: The measured seconds, after a profile.
        once: True for a kernel that runs once for all calls.
    """

    statements: tuple[str, ...]
    flops: int
    compulsory: int
    least: int
    formulas: tuple[Formula, ...] = ()
    traffic: int | None = None
    excess: tuple[str, int, int] | None = None
    predicted: float | None = None
    measured: float | None = None
    once: bool = False

    @property
    def ratio(self) -> float | None:
        """The schedule's traffic relative to the bound; None if it was not counted."""
        return None if self.traffic is None else self.traffic / max(1, self.least)

    @property
    def close(self) -> bool:
        """True if the schedule's traffic is at most 1.2 × the bound."""
        return self.ratio is not None and self.ratio <= CLOSE

    @property
    def intensity(self) -> float:
        """The greatest operational intensity of any order: FLOP per byte of the bound."""
        return self.flops / max(1, self.least)

    @property
    def schedule_intensity(self) -> float | None:
        """The schedule's operational intensity: FLOP per byte that it moves."""
        return None if self.traffic is None else self.flops / max(1, self.traffic)

    @property
    def verdict(self) -> str:
        """Whether the schedule is at the bound, and where its traffic goes if it is not."""
        if self.traffic is None:
            return ""
        if self.close:
            return f"within {CLOSE:g} ×"
        if self.excess is None:
            return f"{self.ratio:.3g} ×"
        tensor, moved, least = self.excess
        rest = f", once is {bytes_text(least)}" if least else " between kernels"
        return f"{tensor}: {bytes_text(moved)}{rest}"

    @property
    def against(self) -> str:
        """The verdict as a sentence about the bound, for a table that has no column with the ratio."""
        if self.traffic is None:
            return "not counted for the schedule"
        if self.close:
            return f"within {CLOSE:g} × of the bound"
        where = f", {self.verdict}" if self.excess is not None else ""
        return f"{self.ratio:.3g} × the bound{where}"


HEADER = ("kernel", "FLOP", "compulsory", "at least", "moved", "moved / least", "where")


@dataclass(frozen=True, repr=False)
class Bounds(Viewed):
    """The least work and traffic of a nest, or of a schedule and each of its kernels. Print it, or read its fields.

    Attributes:
        name: What was asked about.
        machine: The machine whose memory and peaks are meant.
        memory: The fast memory.
        whole: All kernels of a call together.
        kernels: One entry for each kernel of a schedule, each alone between slow memory and slow memory.
        sizes: Values of symbolic sizes that were counted for.
    """

    name: str
    machine: Machine
    memory: FastMemory
    whole: Bound
    kernels: tuple[Bound, ...] = ()
    sizes: tuple[tuple[str, int], ...] = ()

    @property
    def rows(self) -> tuple[tuple[str, ...], ...]:
        """The table as text: HEADER's columns, a row for each kernel, then one for all."""
        scheduled = bool(self.kernels)
        return tuple(_row(name, bound, scheduled) for name, bound in self.named)

    @property
    def named(self) -> tuple[tuple[str, Bound], ...]:
        """Each kernel with its statements as its name, then what holds of all."""
        whole = "all" if self.kernels else _names(self.whole)
        return (*((_names(kernel), kernel) for kernel in self.kernels), (whole, self.whole))

    @property
    def title(self) -> str:
        """What the table is about."""
        sizes = "".join(f", {name} = {value}" for name, value in self.sizes)
        return f"{self.name}: least traffic through {self.memory}{sizes}"

    @property
    def formulas(self) -> tuple[Formula, ...]:
        """The formulas of all statements together."""
        return self.whole.formulas

    def __repr__(self) -> str:
        moved = "" if self.whole.traffic is None else f", {bytes_text(self.whole.traffic)} moved"
        return (
            f"<Bounds {self.name}: {self.whole.flops:,} FLOP, {bytes_text(self.whole.least)} at least{moved} "
            f"through {self.memory}>"
        )

    def __str__(self) -> str:
        table = (HEADER, *self.rows)
        filled = [c for c in range(len(HEADER)) if any(row[c] for row in table[1:])]
        widths = {c: max(len(row[c]) for row in table) for c in filled}
        lines = ["  ".join(row[c].ljust(widths[c]) for c in filled).rstrip() for row in table]
        rest = [ONCE] if self.whole.least == self.whole.compulsory else []
        return "\n".join((self.title, *lines, *(f"{one}\n    {other}" for one, other in self.told), *rest))

    @property
    def told(self) -> tuple[tuple[str, str], ...]:
        """Formulas and what they rest on, as text: those that apply if any do, and equal ones once."""
        chosen = [each for each in self.formulas if each.applies] or list(self.formulas)
        alike: dict[str, list[Formula]] = {}
        for each in chosen:
            alike.setdefault(without_numbers(f"{each.text} {each.inequality}"), []).append(each)
        lines = [
            (
                f"{each[0].statement}{f' × {len(each)}' if len(each) > 1 else ''}: {each[0].text} {each[0].value}",
                f"{each[0].inequality} ({each[0].source})",
            )
            for each in alike.values()
        ]
        return tuple(lines[:MOST_FORMULAS])


ONCE = "what is moved once is the largest bound known"
"""What is said where no formula applies."""

MOST_FORMULAS = 8
"""Different formulas that are printed."""


def _names(bound: Bound) -> str:
    names = shorter(", ".join(bound.statements), 32)
    return f"{names} (once)" if bound.once else names


def _row(name: str, bound: Bound, scheduled: bool) -> tuple[str, ...]:
    moved, ratio = "not counted" if scheduled else "", ""
    if bound.traffic is not None:
        moved, ratio = bytes_text(bound.traffic), f"{bound.ratio:.2f}"
    least, compulsory = bytes_text(bound.least), bytes_text(bound.compulsory)
    return name, f"{bound.flops:,}", compulsory, least, moved, ratio, bound.verdict


# -- what is asked about -----------------------------------------------------------------------------------------------


def fast_memory(memory: int | str | None, machine: Machine) -> FastMemory:
    """Return the memory that was asked about.

    Args:
        memory: Bytes, the name of one of the machine's levels, or None for its largest cache.
        machine: The machine.

    Raises:
        BadArgument: if it is neither, or has no size.
    """
    caches = [level for level in machine.levels if level.size < UNBOUNDED][: len(machine.levels) - 1]
    if isinstance(memory, int) and not isinstance(memory, bool):
        if memory < 1:
            raise BadArgument(f"bounds: memory={memory}, expected a positive number of bytes")
        return FastMemory("", memory)
    level = caches[-1] if memory is None else next((each for each in caches if each.name == memory), None)
    if level is None:
        names = ", ".join(repr(each.name) for each in caches)
        raise BadArgument(f"bounds: memory={memory!r}, expected bytes or one of {machine.name}'s {names}")
    return FastMemory(level.name, level.size, machine.units if level.private else 1)


def nest_bounds(nest: Nest, memory: FastMemory, machine: Machine) -> Bounds:
    """Return the bounds of a nest, whatever its schedule."""
    sizes = nominal_sizes(nest)
    numbers = nest.with_sizes(sizes) if sizes else nest
    names = tuple(s.name for s in nest.statements)
    whole = _bound(nest, numbers, names, memory.total)
    return Bounds(f"nest {nest.name}", machine, memory, whole, sizes=tuple(sizes.items()))


def schedule_bounds(
    schedule: Schedule,
    memory: FastMemory,
    machine: Machine,
    predicted: Sequence[float] = (),
    measured: Sequence[float | None] = (),
) -> Bounds:
    """Return the bounds of a schedule and its kernels, and the traffic of each.

    Args:
        schedule: The schedule.
        memory: The fast memory.
        machine: The machine.
        predicted: The cost model's seconds of each kernel; none if they are not known.
        measured: The measured seconds of each kernel; none if they are not known.
    """
    every = parts(schedule.tree)
    asked = _Asked(schedule, memory)
    early = once(schedule.nest, schedule.tree)
    unknown: list[float | None] = [None] * len(every)
    times = zip(predicted or unknown, measured or unknown, strict=True)
    kernels = tuple(
        replace(asked.of(part), predicted=expected, measured=seconds, once=first)
        for part, first, (expected, seconds) in zip(every, early, times, strict=True)
    )
    calls = frozenset(name for kernel in kernels if not kernel.once for name in kernel.statements)
    kept = restrict(schedule.tree, calls)
    each = [kernel for kernel in kernels if not kernel.once]
    whole = Bound((), 0, 0, 0, traffic=0) if kept is None else asked.of(kept)
    whole = replace(
        whole,
        predicted=_total([kernel.predicted for kernel in each]),
        measured=_total([kernel.measured for kernel in each]),
    )
    name = f"schedule of {schedule.given.name}"
    return Bounds(name, machine, memory, whole, kernels, tuple(asked.sizes.items()))


def _total(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known and len(known) == len(values) else None


class _Asked:
    """A schedule whose parts are asked about.

    Copies that verbs have added, to local buffers and to panels, count as what they copy: a part's bound and traffic
    are those of the source's statements in it. A part that has none is asked about as it is.
    """

    def __init__(self, schedule: Schedule, memory: FastMemory) -> None:
        self.schedule, self.memory = schedule, memory
        self.sizes = nominal_sizes(schedule.nest)
        self._numbers: dict[int, Nest] = {}

    def of(self, tree: Tree) -> Bound:
        """A part's bound and its traffic."""
        schedule, names = self.schedule, statements(tree)
        own = tuple(name for name in names if name in schedule.source.names)
        given = schedule.source if own else schedule.nest
        nest, kept = self.at_sizes(given), restrict(tree, frozenset(own or names))
        shared = any(loop.bind in ON_CORES or (loop.bind and loop.bind.on_gpu) for loop in loops(tree))
        memory = self.memory.total if shared else self.memory.size
        bound = replace(_bound(given, nest, own or names, memory), statements=names)
        traffic = None if kept is None else self.traffic(nest, kept)
        if traffic is None:
            return bound
        moved = {t: each.elements * nest.tensor(t).itemsize for t, each in traffic.moved.items()}
        alone = {
            t: each.elements * nest.tensor(t).itemsize for t, each in compulsory(nest, own or names).items()
        }
        worst = max(moved, key=lambda tensor: moved[tensor] - alone[tensor], default=None)
        excess = None if worst is None else (worst, moved[worst], alone[worst])
        return replace(bound, traffic=sum(moved.values()), excess=excess)

    def traffic(self, nest: Nest, tree: Tree) -> Traffic | None:
        """The traffic of a part; None if it is not counted, or takes isl too long."""
        wanted = " and ".join(f"{name} = {value}" for name, value in self.sizes.items()) or "1 = 1"
        sizes = isl.Set(f"[{', '.join(self.sizes)}] -> {{ : {wanted} }}")
        counter = Counter(nest, sizes, self.memory.size)
        try:
            return within(sizes.get_ctx(), OPERATIONS, lambda: counter.of(tree), lambda: None)
        except NotCounted:
            return None

    def at_sizes(self, nest: Nest) -> Nest:
        """A nest with its sizes as numbers."""
        if id(nest) not in self._numbers:
            self._numbers[id(nest)] = nest.with_sizes(self.sizes) if self.sizes else nest
        return self._numbers[id(nest)]


def _bound(given: Nest, nest: Nest, names: Sequence[str], memory: int) -> Bound:
    """The least work and traffic of statements; `nest` is the given one with its sizes as numbers."""
    found = program_bound(nest, names, memory)
    known = [
        (bound, group.itemsize, found.applies(group, memory))
        for group in found.groups
        for bound in group.bounds
    ]
    known += [(bound, min(found.itemsizes.values()), False) for bound in found.others]
    formulas = tuple(formula(given, bound, memory // size, applies) for bound, size, applies in known)
    flops = sum(most(nest.domains[s.name]) * least_operations(s) for s in map(nest.statement, names))
    return Bound(tuple(names), flops, found.compulsory, found.least(memory), formulas)
