"""The views of values as cards, by type: `view` is what `_repr_html_` of a value calls."""

from __future__ import annotations

from collections.abc import Iterable
from functools import singledispatch
from math import isfinite
from xml.etree.ElementTree import Element, SubElement

from polyfuse.errors import quantity
from polyfuse.errors.refusals import Violation
from polyfuse.errors.viewed import equal_but_for_numbers, shorter
from polyfuse.ir.dependences import Dependences
from polyfuse.ir.nest import Nest
from polyfuse.ir.tree import Sequence
from polyfuse.lower_bounds.bounds import HEADER, ONCE, Bounds
from polyfuse.machine import Machine
from polyfuse.machine.levels import bytes_text
from polyfuse.measure import duration
from polyfuse.schedule import Schedule
from polyfuse.show.card import bar, card, equal_once, folded, line, table, text_block, written
from polyfuse.show.folded_tree import add_row, add_tree
from polyfuse.show.pages import nest_tables
from polyfuse.strategy.cost.price import ScheduleCost
from polyfuse.strategy.explanation import WIDTH, Explanation
from polyfuse.strategy.plan import Plan
from polyfuse.strategy.remarks import Remark
from polyfuse.strategy.tuning_trials import Tuning
from polyfuse.strategy.why_not_fused import FusionAnswer


def view(value: object) -> str:
    """Return a value as HTML: one element with its own style.

    Args:
        value: A value of a type that has a view.

    Returns:
        The text of the element.
    """
    made = card()
    fill(value, made)
    return written(made)


@singledispatch
def fill(value: object, into: Element) -> None:
    """Add what shows a value, by its type."""
    raise TypeError(f"no view of {type(value).__name__}")


@fill.register
def _(nest: Nest, into: Element) -> None:
    nest_tables(nest, into, equal_once)


@fill.register
def _(found: Dependences, into: Element) -> None:
    line(
        into,
        quantity(len(found.pairs), "dependence relation"),
        ", from the earlier instance to the later one",
    )
    rows = [(pair.kind, pair.source, pair.sink, str(pair.map.coalesce())) for pair in found.pairs]
    shown = into if len(rows) <= MOST_ROWS else folded(into, quantity(len(rows), "relation"))
    table(shown, ("kind", "from", "to", "instances"), rows)


MOST_ROWS = 24
"""Rows of a table that is shown without a click."""


@fill.register
def _(schedule: Schedule, into: Element) -> None:
    line(into, f"schedule of {schedule.given.name}", f", {quantity(len(schedule.steps), 'step')}")
    add_kernels(into, schedule)
    text_block(folded(into, "the verbs that made it"), schedule.trace())


def add_kernels(parent: Element, schedule: Schedule) -> None:
    """Add a schedule's tree, equal kernels once."""
    if isinstance(schedule.tree, Sequence):
        add_row(parent, schedule.nest, schedule.tree)
    else:
        add_tree(parent, schedule.nest, schedule.tree)


@fill.register
def _(plan: Plan, into: Element) -> None:
    total = (
        f": {quantity(len(plan.groups), 'kernel')}, {duration(plan.seconds)} expected on {plan.machine.label}"
    )
    line(into, f"plan of {plan.schedule.given.name}", total)
    rows = [
        (
            ", ".join(group.statements),
            duration(group.cost.total),
            f"{group.cost.flops:,}",
            f"{group.cost.compulsory + group.cost.again:,}",
            "once" if once else "each call",
        )
        for group, once in zip(plan.groups, plan.once, strict=True)
    ]
    table(into, ("kernel", "expected", "FLOP", "bytes", "runs"), equal_once(rows))
    add_kernels(folded(into, "the schedule"), plan.schedule)
    add_remarks(folded(into, quantity(len(plan.log), "decision")), plan.log)


def add_remarks(parent: Element, remarks: Iterable[Remark]) -> None:
    """Add a table of decisions with both prices, those that differ in the numbers of names once."""
    every = list(remarks)
    times = dict(equal_but_for_numbers(remark.text for remark in every))
    body = SubElement(SubElement(parent, "table"), "tbody")
    for remark in every:
        count = times.pop(remark.text, 0)
        if not count:
            continue
        row = SubElement(body, "tr")
        kind = "yes" if remark.taken else "no"
        SubElement(row, "td", {"class": kind}).text = "✓" if remark.taken else "✗"
        SubElement(row, "td", {"class": "dim"}).text = remark.pass_
        told = SubElement(row, "td")
        told.text = f"{remark.text}  × {count}" if count > 1 else remark.text
        if remark.violation is not None and str(remark.violation) not in remark.text:
            SubElement(told, "div", {"class": "dim"}).text = str(remark.violation)
        with_it, without = map(duration, remark.seconds) if remark.seconds is not None else ("", "")
        SubElement(row, "td", {"class": "number"}).text = with_it and f"{with_it} with, {without} without"


@fill.register
def _(told: Explanation, into: Element) -> None:
    names = equal_but_for_numbers(kernel.name for kernel in told.kernels)
    line(
        into,
        quantity(len(told.kernels), "launch", "launches"),
        f", {quantity(len(told.remarks), 'decision')}",
    )
    texts = equal_but_for_numbers(kernel.text for kernel in told.kernels)
    add_texts(into, texts)
    times = dict(names)
    for name, remarks in told.by_kernel().items():
        if remarks:
            count = f" × {times[name]}" if times.get(name, 1) > 1 else ""
            title = f"{name}{count}" if name else "the whole net, and between kernels"
            add_remarks(folded(into, title, opened=True), remarks)


@fill.register
def _(answer: FusionAnswer, into: Element) -> None:
    first, second = answer.statements
    possible = answer.at is not None
    line(into, f"{first} and {second}: ", answer.text, "yes" if possible else "no")
    if answer.seconds is not None:
        rows = [("fused", duration(answer.seconds[0])), ("as it is", duration(answer.seconds[1]))]
        table(into, ("", "expected"), rows)
    if answer.violation is not None:
        fill(answer.violation, into)
    if answer.schedule is not None:
        fill(answer.schedule, folded(into, "the schedule of this form"))


def add_texts(parent: Element, texts: Iterable[tuple[str, int]]) -> None:
    """Add lines, each with how many times it stands for."""
    lines = (f"{shorter(text, WIDTH)}  × {n}" if n > 1 else shorter(text, WIDTH) for text, n in texts)
    text_block(parent, "\n".join(lines))


@fill.register
def _(found: Violation, into: Element) -> None:
    line(into, "refused: ", found.verb, "no")
    sizes = ", ".join(f"{name} = {value}" for name, value in found.sizes.items())
    rows = [
        ("dependence", f"{found.kind}: {found.source} -> {found.sink}"),
        *([("with", sizes)] if sizes else []),
        ("why", found.why),
        ("to make it legal", found.remedy),
    ]
    table(into, ("", ""), rows)


@fill.register
def _(remark: Remark, into: Element) -> None:
    line(into, remark.pass_, f": {'taken' if remark.taken else 'not taken'}, {remark.reason.value}")
    SubElement(into, "p").text = remark.text
    if remark.seconds is not None:
        rows = [("with it", duration(remark.seconds[0])), ("without", duration(remark.seconds[1]))]
        table(into, ("", "expected"), rows)


@fill.register
def _(machine: Machine, into: Element) -> None:
    peak = f"{machine.flops32 * machine.units / 1e9:,.0f} GFLOP/s (fp32)"
    line(into, machine.label, f": {machine.units} {machine.unit}, {peak}")
    rows = [
        (level.name, bytes_text(level.size), f"{level.bandwidth / 1e9:,.0f} GB/s") for level in machine.levels
    ]
    table(into, ("level", "size", "bandwidth"), rows)


@fill.register
def _(tuning: Tuning, into: Element) -> None:
    line(into, quantity(len(tuning.trials), "trial"), f" in {duration(tuning.spent)} ({tuning.ended})")
    best = tuning.best
    slowest = max((trial.ratio for trial in tuning.trials if isfinite(trial.ratio)), default=1.0)
    made = SubElement(into, "table")
    head = SubElement(made, "tr")
    for title in ("trial", "expected", "measured", "of the model's choice", "picks"):
        SubElement(head, "th").text = title
    for number, trial in enumerate(tuning.trials):
        row = SubElement(made, "tr", {"class": "yes"} if trial is best else {})
        picks = ", ".join(f"{name} {at + 1} of {of}" for name, (at, of) in trial.parameters.items())
        measured = f"refused: {trial.refused}" if trial.refused else duration(tuning.seconds_of(trial))
        for text in (str(number), duration(trial.predicted), measured):
            SubElement(row, "td").text = text
        part = SubElement(row, "td")
        if isfinite(trial.ratio):
            bar(part, trial.ratio / slowest)
            part[-1].tail = f"{trial.ratio:.2f}"
        SubElement(row, "td", {"class": "dim"}).text = picks or "the model's choice"


@fill.register
def _(price: ScheduleCost, into: Element) -> None:
    line(into, duration(price.seconds), f" a call on {price.machine.label}, at least {duration(price.bound)}")
    rows = [
        (
            ", ".join(kernel.statements),
            duration(kernel.seconds),
            duration(kernel.bound),
            duration(kernel.cost.compute),
            duration(kernel.cost.memory),
            duration(kernel.cost.overhead + kernel.cost.waiting),
            "once" if kernel.once else "each call",
        )
        for kernel in price.kernels
    ]
    table(into, ("kernel", "price", "bound", "arithmetic", "memory", "starts and waits", "runs"), rows)


@fill.register
def _(found: Bounds, into: Element) -> None:
    line(into, found.title)
    table(into, HEADER, found.rows)
    for formula, reason in found.told:
        SubElement(SubElement(into, "p"), "code").text = formula
        SubElement(into, "p", {"class": "dim"}).text = reason
    if found.whole.least == found.whole.compulsory:
        SubElement(into, "p").text = ONCE
