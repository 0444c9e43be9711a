"""Decisions and plans: the options considered, the choices and their reasons, for a person to read."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from warnings import warn

from polyfuse.analysis.once import once
from polyfuse.errors import quantity
from polyfuse.errors.viewed import Viewed
from polyfuse.ir import Violation
from polyfuse.machine import Machine
from polyfuse.measure import duration
from polyfuse.schedule import Schedule
from polyfuse.strategy.cost.roofline import KernelCost
from polyfuse.strategy.remarks import Reason, Remark


@dataclass(frozen=True)
class Decision:
    """One producer–consumer pair (or two readers of one input): fused or not, and why.

    `at` is the innermost loop the two share, or the deepest one tried. `bytes_saved` no longer cross a kernel's
    border, `launches_saved` kernels are no longer started. Costs are in seconds, for the kernels of the two alone; 0
    for a fusion that is illegal, which is not priced. `chosen` says that a wish decided, and not the costs.
    """

    producer: str
    consumer: str
    taken: bool
    at: str | None
    bytes_saved: int
    launches_saved: int
    cost_apart: float
    cost_together: float
    violation: Violation | None
    sentence: str
    chosen: bool = False

    def __str__(self) -> str:
        return self.sentence

    @property
    def remark(self) -> Remark:
        """The same as every other pass records its decisions."""
        priced = (self.cost_together, self.cost_apart) if self.cost_together else None
        pair, refused = (self.producer, self.consumer), self.violation
        return Remark("group", pair, self.taken, self.reason, self.sentence, priced, refused)

    @property
    def reason(self) -> Reason:
        """The reason why the two are fused or not."""
        if self.chosen:
            return Reason.CHOSEN
        if self.taken:
            return Reason.CHEAPER if self.cost_together else Reason.ALWAYS
        if self.violation is not None and not self.cost_together:
            return Reason.ILLEGAL
        return Reason.OTHER_FORM if self.at is None else Reason.DEARER


@dataclass(frozen=True)
class Group:
    """The statements of one kernel and what the model expects of it.

    `remarks` say what form its loops have and why, and what was found in them; of one that several were joined into,
    these `parts` have remarks of their own.
    """

    statements: tuple[str, ...]
    cost: KernelCost
    remarks: tuple[Remark, ...] = ()
    parts: tuple[Group, ...] = ()

    @property
    def notes(self) -> tuple[str, ...]:
        """The texts of its own remarks."""
        return tuple(map(str, self.remarks))

    @property
    def every_remark(self) -> tuple[Remark, ...]:
        """Its own remarks, and those of the kernels that were joined into it."""
        return (*self.remarks, *(remark for part in self.parts for remark in part.every_remark))

    @property
    def lines(self) -> tuple[str, ...]:
        """Each text behind the kernel's statements, those of parts too."""
        own = tuple(f"{', '.join(self.statements)}: {note}" for note in self.notes)
        return (*own, *(line for part in self.parts for line in part.lines))

    def __str__(self) -> str:
        return f"{', '.join(self.statements)}: {self.cost}"


@dataclass(frozen=True)
class Plan(Viewed):
    """A finished schedule, the kernels it consists of in order, and every decision on the way.

    `remarks` are those on the nest and on the plan as a whole: what each pass did or left, in the order in which the
    passes ran. What is about one kernel is in its group's.
    """

    schedule: Schedule
    decisions: tuple[Decision, ...]
    groups: tuple[Group, ...]
    machine: Machine
    remarks: tuple[Remark, ...] = ()

    @property
    def seconds(self) -> float:
        """The expected seconds of one call."""
        return sum(group.cost.total for group, each in zip(self.groups, self.once, strict=True) if not each)

    @cached_property
    def once(self) -> tuple[bool, ...]:
        """For each kernel whether it runs once for all calls."""
        return once(self.schedule.nest, self.schedule.tree)

    @property
    def notes(self) -> tuple[str, ...]:
        """The texts of all remarks: on the plan as a whole, then kernel by kernel behind its statements."""
        return (*map(str, self.remarks), *(line for group in self.groups for line in group.lines))

    @property
    def recomputed(self) -> tuple[str, ...]:
        """The texts of `remarks`: the name before they were values. Deprecated."""
        warn("Plan.recomputed is deprecated; read Plan.remarks", DeprecationWarning, stacklevel=2)
        return tuple(map(str, self.remarks))

    @property
    def log(self) -> tuple[Remark, ...]:
        """Every decision in one form: on the plan as a whole, on pairs of statements, and on each kernel."""
        kernels = (remark for group in self.groups for remark in group.every_remark)
        return (*self.remarks, *(decision.remark for decision in self.decisions), *kernels)

    def with_remarks(self, *remarks: Remark) -> Plan:
        """The plan with more to tell."""
        return replace(self, remarks=(*self.remarks, *remarks))

    def __repr__(self) -> str:
        expected = f"{duration(self.seconds)} expected on {self.machine.name}"
        taken = sum(remark.taken for remark in self.log)
        return (
            f"<Plan of {self.schedule.given.name}: {quantity(len(self.groups), 'kernel')}, {expected}; "
            f"{quantity(len(self.log), 'decision')}, {taken} taken>"
        )

    def __str__(self) -> str:
        lines = [
            f"{quantity(len(self.groups), 'kernel')}, {duration(self.seconds)} expected on {self.machine.name}"
        ]
        marks = [" (once for all calls)" if each else "" for each in self.once]
        lines += [f"  {group}{mark}" for group, mark in zip(self.groups, marks, strict=True)]
        return "\n".join([*lines, *(f"- {text}" for text in (*self.decisions, *self.notes))])


def fused_sentence(
    producer: str, consumer: str, at: str, bytes_saved: int, apart: float, together: float
) -> str:
    """The reason for a fusion."""
    kept = f"{bytes_saved} bytes and one launch are saved" if bytes_saved else "one launch is saved"
    return (
        f"{producer} and {consumer} are fused at {at}: {kept}; "
        f"{duration(together)} together, {duration(apart)} apart."
    )


def costly_sentence(
    producer: str, consumer: str, at: str, apart: KernelCost, together: KernelCost, total: float
) -> str:
    """The reason why a legal fusion was not taken: the two costs, and what makes the fused one dearer."""
    reasons = []
    if together.utilisation < apart.utilisation:
        reasons.append(
            f"{together.utilisation:.1%} of the machine would work instead of {apart.utilisation:.1%}"
        )
    if together.again > apart.again:
        reasons.append(f"{together.again} bytes would be read again instead of {apart.again}")
    why = f" ({' and '.join(reasons)})" if reasons else ""
    return (
        f"{producer} and {consumer} may be fused at {at}, which does not pay: "
        f"{duration(together.total)} together, {duration(total)} apart{why}."
    )


def marginal_sentence(producer: str, consumer: str, at: str, saved: float, least: float) -> str:
    """The reason why a fusion with an expected gain was not taken: the gain is within the model's error."""
    return (
        f"{producer} and {consumer} may be fused at {at}, which hardly pays: {duration(saved)} would be saved, "
        f"less than the {duration(least)} below which the model's answer is not worth a larger kernel."
    )


def kept_apart_sentence(producer: str, consumer: str, at: str) -> str:
    """Why two were not fused although nobody knows whether it would pay: a wish keeps them apart."""
    return f"{producer} and {consumer} may be fused at {at}; they are kept apart, as was asked for."


def doubtful_sentence(producer: str, consumer: str, at: str) -> str:
    """The reason why a fusion that the search wanted was not taken: the cost of the shaped loops, given elsewhere."""
    return f"{producer} and {consumer} may be fused at {at}, which does not pay in any shape of their loops."


def refused_sentence(producer: str, consumer: str, at: str, violation: Violation) -> str:
    """The reason why a fusion is illegal."""
    return f"{producer} and {consumer} must not be fused at {at}: {violation}"
