"""Remarks: each candidate of a pass, whether it was taken, the costs of both forms, and the reason.

As LLVM's optimization remarks: a record that programs read by its fields, with a sentence for a person. Nothing reads
the sentence back.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from polyfuse.errors.refusals import Violation
from polyfuse.errors.viewed import Viewed, shorter
from polyfuse.measure import duration


class Reason(Enum):
    """The reason for a pass's decision."""

    CHEAPER = "the model expects it to cost less"
    DEARER = "the model expects it to cost no less"
    ALWAYS = "the pass does so wherever it can"
    WANTED = "an option of the compile asks for it"
    OTHERS_CHANGE = "other kernels would become something else"
    ILLEGAL = "a dependence, or a condition of a verb or a rewrite, forbids it"
    OTHER_FORM = "the statements or their loops have not the form that it takes"
    NO_SIZE = "no size or shape that it has fits"
    NO_TILES = "a product would have no tiles of results"
    BUDGET = "isl's work was stopped before there was an answer"
    CHOSEN = "a search or the caller chose so"
    FOUND = "nothing was decided: what analysis found, or the pass did on its way"


@dataclass(frozen=True)
class Refused:
    """The reason why something cannot be done, returned instead of a result; `text` is for a person."""

    reason: Reason
    text: str

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Remark(Viewed):
    """One decision of a pass.

    Attributes:
        pass_: the name of the pass, as in the lists of `polyfuse.strategy.pipeline`.
        statements: what it was about; empty for a whole nest.
        taken: whether the plan has what the pass considered.
        reason: why, for programs.
        text: the same as a sentence for a person.
        seconds: what the model expects (with it, without it), of the kernels or calls that the pass compared; None
            where nothing was compared.
        violation: the dependence and two instances that forbid it, or forbid a form of it that was tried first.
    """

    pass_: str
    statements: tuple[str, ...]
    taken: bool
    reason: Reason
    text: str
    seconds: tuple[float, float] | None = None
    violation: Violation | None = None

    def __repr__(self) -> str:
        about = f" of {shorter(', '.join(self.statements))}" if self.statements else ""
        price = ""
        if self.seconds is not None:
            price = f"; {duration(self.seconds[0])} with it, {duration(self.seconds[1])} without"
        done = "taken" if self.taken else "not taken"
        return f"<Remark: {self.pass_}{about}: {done}, {self.reason.name}{price}>"

    def __str__(self) -> str:
        return self.text


def applied(pass_: str, statements: Iterable[str], text: str, reason: Reason = Reason.ALWAYS) -> Remark:
    """The remark on something that was done and not priced."""
    return Remark(pass_, tuple(statements), True, reason, text)


def refused(pass_: str, statements: Iterable[str], reason: Reason, text: str) -> Remark:
    """The remark on something that was not done and not priced."""
    return Remark(pass_, tuple(statements), False, reason, text)


def weighed(
    pass_: str,
    statements: Iterable[str],
    taken: bool,
    text: str,
    so: float,
    otherwise: float,
    chosen: bool = False,
) -> Remark:
    """The remark on something that was done, or not, for what the model expects with it (`so`) and without.

    Unless it was `chosen`, by a wish and not for its price.
    """
    reason = Reason.CHOSEN if chosen else Reason.CHEAPER if taken else Reason.DEARER
    return Remark(pass_, tuple(statements), taken, reason, text, (so, otherwise))


def details(pass_: str, statements: Iterable[str], notes: Iterable[str]) -> tuple[Remark, ...]:
    """Remarks on a kernel that a pass has put into shape: what was found in its loops and done with them."""
    names = tuple(statements)
    return tuple(Remark(pass_, names, True, Reason.FOUND, note) for note in notes)
