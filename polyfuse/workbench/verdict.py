"""`pf.verdict`: what becomes of steps that somebody, or something, proposes for a nest. Data goes in, data comes out.

verdict(nest, [{"verb": "tile", "args": ["mac0"], "options": {"i": 8, "j": 32}}])
    -> legal, or the number of the refused step with its two instances; the seconds that the model predicts
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from inspect import Parameter, signature
from typing import Any, get_type_hints

from polyfuse.errors import (
    IllegalRewrite,
    IllegalSchedule,
    InvalidSchedule,
    PolyfuseError,
)
from polyfuse.errors.proving import proving
from polyfuse.errors.refusals import Instance, Refusal, Violation
from polyfuse.ir.given import nest_given
from polyfuse.ir.nest import Nest
from polyfuse.machine import Machine
from polyfuse.schedule import Schedule
from polyfuse.schedule.files import read_step
from polyfuse.schedule.step import VERBS, Step
from polyfuse.strategy.cost.price import cost
from polyfuse.strategy.next_steps import taken
from polyfuse.workbench.compare import compare


@dataclass(frozen=True)
class Verdict:
    """What became of proposed steps.

    Attributes:
        legal: True if every step was taken.
        schedule: The schedule after all steps, or after those before the refused one.
        refused: The number of the refused step, from 0; None if all are legal.
        violation: The dependence, or the rewrite's condition, that the refused step would break.
        why: The refusal as a sentence; for a schedule that cannot be priced, the reason; else empty.
        predicted: The cost model's seconds of a call; None if a step was refused, or it cannot be priced.
        measured: The median of the measured seconds of a call; None if inputs were not given.
    """

    legal: bool
    schedule: Schedule
    refused: int | None = None
    violation: Violation | Refusal | None = None
    why: str = ""
    predicted: float | None = None
    measured: float | None = None

    @property
    def instances(self) -> tuple[Instance, ...]:
        """The two instances that show why a step is refused."""
        if isinstance(self.violation, Violation):
            return self.violation.source, self.violation.sink
        return self.violation.instances if self.violation is not None else ()

    def data(self) -> dict[str, Any]:
        """Return the same as JSON's values.

        Returns:
            "legal", "refused", "violation", "instances", "why", "predicted", "measured", and the "steps" taken.
        """
        broken = self.violation
        violation: dict[str, Any] | None = None
        if isinstance(broken, Violation):
            violation = {"kind": broken.kind, "why": broken.why, "remedy": broken.remedy}
            violation["sizes"] = dict(broken.sizes)
        elif broken is not None:
            violation = {"kind": "rewrite", "why": broken.why, "remedy": broken.remedy}
            violation["sizes"] = dict(broken.sizes)
        return {
            "legal": self.legal,
            "refused": self.refused,
            "violation": violation,
            "instances": [{"statement": i.statement, "point": list(i.point)} for i in self.instances],
            "why": self.why,
            "predicted": self.predicted,
            "measured": self.measured,
            "steps": list(map(str, self.schedule.steps)),
        }


@proving("verdict")
def verdict(
    nest: Nest,
    steps: Sequence[Step | Mapping[str, Any]],
    *,
    machine: Machine | str | None = None,
    inputs: Sequence[Any] | Mapping[str, Any] | None = None,
) -> Verdict:
    """Take steps one after the other, each proven, and price the schedule that they make.

    Args:
        nest: The nest.
        steps: Steps of a schedule, or dictionaries as a saved schedule has them: {"verb": "split", "args": ["mac0",
            "j", 32], "options": {}}. Arguments are checked against the verb's signature; no code is run.
        machine: The machine that prices it, or a preset's name; by default this computer's CPU.
        inputs: The arrays of a call. With them the schedule is compiled and measured.

    Returns:
        The verdict. A step that a dependence forbids is one of its values, not an error.

    Raises:
        BadArgument: if something else than a nest is given.
        InvalidSchedule: if a step cannot be read, or names a statement, a loop or an argument that does not exist.
    """
    schedule = Schedule(nest_given("verdict", nest))
    for number, given in enumerate(steps):
        step = checked(f"step {number}", given)
        try:
            schedule = taken(schedule, step)
        except IllegalSchedule as error:
            return Verdict(False, schedule, number, error.violation, str(error.violation))
        except IllegalRewrite as error:
            return Verdict(False, schedule, number, error.refusal, str(error.refusal))
        except (PolyfuseError, TypeError, ValueError, AttributeError) as error:
            raise InvalidSchedule(f"step {number}, {step}, does not fit: {error}") from error
    try:
        predicted, why = cost(schedule, machine).seconds, ""
    except InvalidSchedule as error:
        predicted, why = None, str(error)
    measured = None
    if inputs is not None:
        measured = compare({"proposed": schedule}, inputs, machine=machine).rows[0].seconds
    return Verdict(True, schedule, why=why, predicted=predicted, measured=measured)


def checked(where: str, given: Step | Mapping[str, Any]) -> Step:
    """Return a step whose arguments fit its verb's signature.

    Args:
        where: How an error names the step.
        given: The step.

    Raises:
        InvalidSchedule: if it is no step, or its arguments do not fit.
    """
    if isinstance(given, Step):
        step = given
    elif isinstance(given, Mapping):
        unknown = given.keys() - {"verb", "args", "options"}
        if unknown:
            raise InvalidSchedule(
                f"{where} has {', '.join(map(repr, sorted(map(str, unknown))))}; a step has verb, args and options"
            )
        step = read_step(where, {"args": [], "options": {}, **given})
    else:
        raise InvalidSchedule(
            f"{where} is {given!r}; expected a step such as "
            '{"verb": "split", "args": ["mac0", "j", 32], "options": {}}'
        )
    if step.verb not in VERBS:
        return step  # a rewrite, which checks its own arguments
    method = getattr(Schedule, step.verb)
    known = signature(method)
    try:
        bound = known.bind(None, *step.args, **dict(step.options))
    except TypeError as error:
        raise InvalidSchedule(f"{where}, {step}: {error}; expected {step.verb}{_said(method)}") from error
    hints = get_type_hints(method)
    for name, value in bound.arguments.items():
        kind = known.parameters[name].kind
        every = value.values() if kind is Parameter.VAR_KEYWORD else [value]
        every = value if kind is Parameter.VAR_POSITIONAL else every
        plain = hints.get(name)
        if plain in (str, int) and not all(isinstance(v, plain) and not isinstance(v, bool) for v in every):
            raise InvalidSchedule(
                f"{where}, {step}: {name} is {value!r}; expected {step.verb}{_said(method)}"
            )
    return step


def _said(method: Any) -> str:
    """A verb's signature without `self`: "(statement: str, loop: str, size: int)"."""
    known = signature(method, eval_str=True)
    own = [p for name, p in known.parameters.items() if name != "self"]
    return str(known.replace(parameters=own, return_annotation=known.empty))
