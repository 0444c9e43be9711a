"""The explanation of a compile: a text, and its decisions as values, to be filtered, folded, written as JSON or HTML.

explanation ::= kernel*  remark*  check
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self

from polyfuse.errors import BadArgument, quantity
from polyfuse.errors.refusals import Instance, Violation
from polyfuse.errors.viewed import Viewed, equal_but_for_numbers, shorter
from polyfuse.measure import duration
from polyfuse.strategy.remarks import Reason, Remark

WIDTH, SCREEN = 150, 40
"""Letters of a line and lines of a summary."""


@dataclass(frozen=True)
class Kernel:
    """A launch: the kernel's name, its statements, and the line that describes it."""

    name: str
    statements: tuple[str, ...]
    text: str


class Explanation(str, Viewed):
    """A text, with the decisions that it tells as values.

    `str` methods work on the text. `only` filters, `summary` folds equal lines, `to_json` and `to_html` write it.

    Attributes:
        kernels: The launches, in order.
        remarks: The decisions.
    """

    kernels: tuple[Kernel, ...]
    remarks: tuple[Remark, ...]

    def __new__(cls, text: str, kernels: Iterable[Kernel] = (), remarks: Iterable[Remark] = ()) -> Self:
        """A text, and what it tells."""
        made = super().__new__(cls, text)
        made.kernels, made.remarks = tuple(kernels), tuple(remarks)
        return made

    def __getnewargs__(self) -> tuple[str, tuple[Kernel, ...], tuple[Remark, ...]]:  # type: ignore[override]
        return str(self), self.kernels, self.remarks

    def __repr__(self) -> str:
        return self.summary()

    def only(
        self,
        *statements: str,
        reason: Reason | str | None = None,
        taken: bool | None = None,
        least: float = 0.0,
    ) -> Explanation:
        """Return the decisions that fit, each with its price and, if refused, the two instances.

        Args:
            *statements: Statements that the decision is about, all of them.
            reason: The reason, as a `Reason` or its name in lower or upper case: "illegal", "dearer".
            taken: True for what was done, False for what was not.
            least: The least difference in seconds between the two forms; what was not priced is left out above 0.

        Returns:
            The explanation with these decisions, and the kernels with these statements.

        Raises:
            BadArgument: if there is no such statement or reason.
        """
        about = (*(kernel.statements for kernel in self.kernels), *(r.statements for r in self.remarks))
        known = dict.fromkeys(name for names in about for name in names)
        for name in statements:
            if name not in known:
                raise BadArgument(f"explain: no statement {name!r}; there are {', '.join(known)}")
        why = _reason(reason)
        found = [
            remark
            for remark in self.remarks
            if {*statements} <= {*remark.statements}
            and (why is None or remark.reason is why)
            and (taken is None or remark.taken is taken)
            and difference(remark) >= least
        ]
        kernels = [kernel for kernel in self.kernels if {*statements} <= {*kernel.statements}]
        lines = [shorter(kernel.text, WIDTH) for kernel in kernels] if statements else []
        text = "\n".join((*lines, *map(told, found)))
        return Explanation(text or f"no decision of {len(self.remarks)} fits", kernels, found)

    def by_kernel(self) -> dict[str, tuple[Remark, ...]]:
        """Return the decisions by the kernel that has all their statements; "" for those on several kernels or none."""
        found: dict[str, list[Remark]] = {
            name: [] for name in ("", *(kernel.name for kernel in self.kernels))
        }
        inside = [(kernel.name, {*kernel.statements}) for kernel in self.kernels]
        for remark in self.remarks:
            about = {*remark.statements}
            home = next((name for name, names in inside if about and about <= names), "")
            found[home].append(remark)
        return {name: tuple(remarks) for name, remarks in found.items()}

    def summary(self) -> str:
        """Return the text with lines that differ in the numbers of names once, in at most a screen of lines."""
        folded = equal_but_for_numbers(self.splitlines())
        lines = [f"{shorter(line, WIDTH)}{f'  × {times}' if times > 1 else ''}" for line, times in folded]
        if len(lines) > SCREEN:
            left = f"… and {quantity(len(lines) - SCREEN + 1, 'line')} more: print(…), or .only(statement)"
            lines = [*lines[: SCREEN - 1], left]
        return "\n".join(lines)

    def to_html(self) -> str:
        """Return it as HTML: the kernels, and the decisions of each with prices and refused instances."""
        return self._repr_html_()

    def to_json(self) -> str:
        """Return it as JSON: "text", "kernels" and "remarks", with prices and refused instances."""
        return json.dumps(self.data(), ensure_ascii=False, indent=1)

    def data(self) -> dict[str, Any]:
        """Return what `to_json` writes."""
        return {
            "text": str(self),
            "kernels": [asdict(kernel) for kernel in self.kernels],
            "remarks": [_data(remark) for remark in self.remarks],
        }

    @staticmethod
    def of_data(found: Mapping[str, Any]) -> Explanation:
        """The inverse of `data`."""
        kernels = [Kernel(k["name"], tuple(k["statements"]), k["text"]) for k in found["kernels"]]
        return Explanation(found["text"], kernels, map(_remark, found["remarks"]))


def difference(remark: Remark) -> float:
    """The seconds between the two forms that a pass compared; 0 where it compared none."""
    return 0.0 if remark.seconds is None else abs(remark.seconds[0] - remark.seconds[1])


def told(remark: Remark) -> str:
    """Return a decision in full: its sentence, both prices, and of a refusal the two instances."""
    lines = [f"- {remark.text}"]
    if remark.seconds is not None:
        so, otherwise = map(duration, remark.seconds)
        done = "taken" if remark.taken else "not taken"
        lines.append(f"    {done}: {so} with it, {otherwise} without; {remark.reason.value}")
    if remark.violation is not None and str(remark.violation) not in remark.text:
        lines.append(f"    {remark.violation}")
    return "\n".join(lines)


def _reason(given: Reason | str | None) -> Reason | None:
    if given is None or isinstance(given, Reason):
        return given
    name = given.upper().replace(" ", "_")
    if name not in Reason.__members__:
        every = ", ".join(repr(each.lower()) for each in Reason.__members__)
        raise BadArgument(f"explain: no reason {given!r}; there are {every}")
    return Reason[name]


def _data(remark: Remark) -> dict[str, Any]:
    refused = remark.violation
    return {
        "pass": remark.pass_,
        "statements": remark.statements,
        "taken": remark.taken,
        "reason": remark.reason.name,
        "text": remark.text,
        "seconds": remark.seconds,
        "violation": None if refused is None else asdict(refused),
    }


def _remark(found: Mapping[str, Any]) -> Remark:
    seconds, refused = found["seconds"], found["violation"]
    return Remark(
        found["pass"],
        tuple(found["statements"]),
        found["taken"],
        Reason[found["reason"]],
        found["text"],
        None if seconds is None else (seconds[0], seconds[1]),
        None if refused is None else _violation(refused),
    )


def _violation(found: Mapping[str, Any]) -> Violation:
    ends = {
        side: Instance(found[side]["statement"], tuple(found[side]["point"])) for side in ("source", "sink")
    }
    return Violation(
        found["verb"], found["kind"], **ends, why=found["why"], remedy=found["remedy"], sizes=found["sizes"]
    )
