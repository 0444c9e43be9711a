"""Keep, repeat, compare and change schedules: what is done with their steps as data.

    s.save("mlp.json"); pf.Schedule.load("mlp.json", nest)      the same schedule in another process
    s.replay(nest)                                              the same steps on another nest
    s.with_step(3, size=8)                                      one step changed, the steps behind it again
    s.without(3)                                                one step left out, with what needs it

Every step is proven again where it is repeated, so that a file, or an edit, makes no schedule that verbs could not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from functools import partial
from inspect import Parameter, signature
from pathlib import Path
from typing import Self, TypeVar

from polyfuse.errors import BadArgument, IllegalRewrite, IllegalSchedule, InvalidSchedule, PolyfuseError
from polyfuse.errors.viewed import Viewed
from polyfuse.ir.given import nest_given
from polyfuse.ir.nest import Nest
from polyfuse.schedule.files import read_steps, to_json
from polyfuse.schedule.proven import Proven
from polyfuse.schedule.rewriting import REWRITE, REWRITES, history, rewritten
from polyfuse.schedule.step import Step

E = TypeVar("E", bound=Proven)

FORMS_CODE = ("separate",)
"""Verbs that only give code another form: where an edit leaves them nothing to do, they are left out."""


@dataclass(frozen=True)
class ScheduleDiff:
    """The difference of two schedules, step by step.

    Attributes:
        lines: (mark, step): " " is in both, "-" only in the first, "+" only in the second schedule.
    """

    lines: tuple[tuple[str, Step], ...]

    @property
    def removed(self) -> tuple[Step, ...]:
        """The steps that only the first schedule has."""
        return tuple(step for mark, step in self.lines if mark == "-")

    @property
    def added(self) -> tuple[Step, ...]:
        """The steps that only the second schedule has."""
        return tuple(step for mark, step in self.lines if mark == "+")

    def __bool__(self) -> bool:
        return bool(self.removed or self.added)

    def __str__(self) -> str:
        return "\n".join(f"{mark} {step}" for mark, step in self.lines) if self else "the same steps"


class Edited(Proven, Viewed):
    """A schedule whose steps can be kept, repeated and changed."""

    def rewrite(self, name: str, /, *args: object, **options: object) -> Self:
        """Rewrite the nest: compute the same values by other statements, or in other places (`polyfuse.rewrite`).

        mac0 += x * w0;  scale0 = mac0 * r   ->   fold0 = w0 * r;  mac0 += x * fold0        rewrite("fold", "scale0")

        Rewrites come before all verbs. A compile that rewrites a nest records them, so that its schedule is one of the
        nest that was given.

        Args:
            name: The rewrite: "fold", "split_reduction", "widen", ….
            *args: Its arguments after the nest.
            **options: Its options.

        Returns:
            The new schedule.

        Raises:
            InvalidSchedule: if a verb has been taken, there is no such rewrite, or it does nothing.
            IllegalRewrite: if the rewrite would change a value.
        """
        step = Step(REWRITE, (name, *args), tuple(options.items()))
        if self.tree is not self.source.order or self.nest is not self.source:
            raise InvalidSchedule(f"{step}: rewrites come before the verbs, and {self.steps[-1]} was taken")
        return self._of(self.given, rewritten(self.source, step), (*self.steps, step))

    def _of(self, given: Nest, source: Nest, steps: tuple[Step, ...]) -> Self:
        """The order as written of a nest that rewrites made of the given one."""
        new = type(self)(source)
        new.given, new.steps = given, steps
        return new

    def rooted_in(self, nest: Nest) -> Self:
        """Return the same schedule as one of a nest of which rewrites made this one's: they become its first steps.

        Args:
            nest: The nest before the rewrites.

        Returns:
            The schedule; itself if nothing was rewritten.
        """
        first = history(self.source, nest)
        if not first:
            return self
        new = self.followed_by((), self.nest, self.tree)
        new.given, new.steps = nest, (*first, *self.steps)
        return new

    def replay(self, nest: Nest) -> Self:
        """Take the same steps on another nest with the same statements, such as one of other sizes.

        Args:
            nest: The nest.

        Returns:
            Its schedule.

        Raises:
            IllegalSchedule: if a step breaks a dependence of this nest; the message has the step's number.
            InvalidSchedule: if a step does not fit.
            IllegalRewrite: if a rewrite does not fit.
        """
        nest = nest_given("replay", nest)
        return _taken(type(self)(nest), self.steps, 0, _numbered)

    def with_step(self, number: int, **changes: object) -> Self:
        """Change one step's arguments and take the steps behind it again.

        tile('mac0', i=32, j=32), separate('mac0', 'i')  --with_step(0, i=8)-->  tile('mac0', i=8, j=32), …

        Args:
            number: The step's position in `steps`, from 0; a negative one counts from the end.
            **changes: New values by argument: a loop of `tile` or `bind`, or a parameter of the verb, as `size` of
                `split`.

        Returns:
            The new schedule. A later `separate` that finds no partial tiles any more is left out.

        Raises:
            IllegalSchedule: if the changed step, or one behind it, breaks a dependence; the message names both.
            InvalidSchedule: if it has no such argument, or a step does not fit any more.
        """
        at = self._position("with_step", number)
        step = _changed(self.steps[at], changes, type(self))
        return self._edited(at, (step,), f"step {at} as {step}")

    def without(self, *numbers: int) -> Self:
        """Leave steps out, with the steps behind them that do not fit without them, and take the others again.

        split('S', 'j', 8), vectorize('S', 'j_in'), bind('S', i='cores')  --without(0)-->  bind('S', i='cores')

        A step does not fit any more if it names a loop or a statement that was made by one that is left out, or has
        nothing to do. `diff` lists what has gone.

        Args:
            *numbers: The steps' positions in `steps`, as for `with_step`.

        Returns:
            The new schedule.

        Raises:
            IllegalSchedule: if a step behind them fits, but breaks a dependence; the message names both, and the call
                that leaves out both.
            InvalidSchedule: if there is no such step.
        """
        left = sorted({self._position("without", number) for number in numbers})
        if not left:
            return self
        edit = f"without {', '.join(f'step {at}, {self.steps[at]}' for at in left)}"
        schedule = _taken(type(self)(self.given), self.steps[: left[0]], 0, _numbered)
        for number, step in enumerate(self.steps):
            if number < left[0] or number in left:
                continue
            try:
                schedule = _taken(schedule, (step,), number, partial(_behind, edit), may_go=lambda step: True)
            except IllegalSchedule as refused:
                both = f"without({', '.join(map(str, sorted([*left, number])))})"
                remedy = f"{refused.violation.remedy}, or leave this step out too: {both}"
                raise IllegalSchedule(replace(refused.violation, remedy=remedy)) from refused
        return schedule

    def _edited(self, at: int, steps: tuple[Step, ...], edit: str) -> Self:
        """The schedule with other steps in place of one."""
        start = _taken(type(self)(self.given), self.steps[:at], 0, _numbered)
        done = _taken(start, steps, at, lambda number, step: edit)
        return _taken(done, self.steps[at + 1 :], at + 1, partial(_behind, edit), may_go=_only_gives_form)

    def _position(self, method: str, number: int) -> int:
        count = len(self.steps)
        if not -count <= number < count:
            raise InvalidSchedule(f"{method}({number}): the schedule has {count} steps, numbered from 0")
        return number % count

    def diff(self, other: Self) -> ScheduleDiff:
        """Compare the steps of two schedules.

        Args:
            other: The second schedule.

        Returns:
            The steps that both have, and those that one has; print it, or read `removed` and `added`.
        """
        mine, theirs = (tuple(map(str, schedule.steps)) for schedule in (self, other))
        lines: list[tuple[str, Step]] = []
        for kind, a, b, c, d in SequenceMatcher(None, mine, theirs, autojunk=False).get_opcodes():
            if kind == "equal":
                lines += [(" ", step) for step in self.steps[a:b]]
                continue
            lines += [("-", step) for step in self.steps[a:b]]
            lines += [("+", step) for step in other.steps[c:d]]
        return ScheduleDiff(tuple(lines))

    def save(self, path: str | Path) -> None:
        """Write the steps to a file, as JSON.

        Args:
            path: The file.

        Raises:
            BadArgument: if it cannot be written.
        """
        try:
            Path(path).write_text(to_json(self.given, self.steps), encoding="utf-8")
        except OSError as error:
            raise BadArgument(f"cannot write {path}: {error.strerror or error}") from error

    @classmethod
    def load(cls, path: str | Path, nest: Nest) -> Self:
        """Read a file that `save` wrote, and take its steps, each proven again. No code of the file is run.

        Args:
            path: The file.
            nest: The nest that the schedule is for.

        Returns:
            The schedule.

        Raises:
            BadArgument: if there is no such file.
            InvalidSchedule: if it is no schedule, or one of other statements, or a step does not fit.
            IllegalSchedule: if a step breaks a dependence of the nest; the message has the step's number.
        """
        nest = nest_given("load", nest)
        steps = read_steps(path, nest)
        return _taken(cls(nest), steps, 0, lambda number, step: f"{path}: step {number}, {step},")


def _numbered(number: int, step: Step) -> str:
    return f"step {number}, {step},"


def _behind(edit: str, number: int, step: Step) -> str:
    return f"{edit}: {_numbered(number, step)}"


def _only_gives_form(step: Step) -> bool:
    return step.verb in FORMS_CODE


def _taken(
    schedule: E,
    steps: Sequence[Step],
    first: int,
    said: Callable[[int, Step], str],
    may_go: Callable[[Step], bool] = lambda step: False,
) -> E:
    """The schedule after steps, which begin with number `first`; `said` is how an error names one.

    A step that does not fit is left out if it may go.
    """
    for number, step in enumerate(steps, first):
        try:
            schedule = getattr(schedule, step.verb)(*step.args, **dict(step.options))
        except IllegalSchedule as refused:
            verb = said(number, step)
            raise IllegalSchedule(replace(refused.violation, verb=verb)) from refused
        except IllegalRewrite as refused:
            raise IllegalRewrite(replace(refused.refusal, rewrite=said(number, step))) from refused
        except (PolyfuseError, TypeError, ValueError, AttributeError) as error:
            if isinstance(error, InvalidSchedule) and may_go(step):
                continue
            raise InvalidSchedule(f"{said(number, step)} does not fit: {error}") from error
    return schedule


def _changed(step: Step, changes: Mapping[str, object], kind: type[Edited]) -> Step:
    """A step with other values of some arguments."""
    lead: tuple[object, ...] = ()
    method, args = getattr(kind, step.verb), step.args
    if step.verb == REWRITE:
        method, lead, args = REWRITES[str(args[0])], args[:1], args[1:]
    known = signature(method)
    bound = known.bind(None, *args, **dict(step.options))
    every = next((n for n, p in known.parameters.items() if p.kind is Parameter.VAR_KEYWORD), None)
    single = [
        n
        for n, p in list(known.parameters.items())[1:]
        if p.kind not in (Parameter.VAR_KEYWORD, Parameter.VAR_POSITIONAL)
    ]
    for name, value in changes.items():
        if name in single:
            bound.arguments[name] = value
        elif every is not None:
            bound.arguments[every] = {**bound.arguments.get(every, {}), name: value}
        else:
            raise InvalidSchedule(
                f"with_step: {step} has no argument {name!r}; {step.verb} takes {', '.join(single)}"
            )
    return Step(step.verb, (*lead, *bound.args[1:]), tuple(bound.kwargs.items()))
