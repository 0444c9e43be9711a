"""Nests and schedules as HTML: tables of tensors and statements, and a tree that folds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from xml.etree import ElementTree
from xml.etree.ElementTree import Element, SubElement

from polyfuse.errors.proving import proving
from polyfuse.ir import Nest
from polyfuse.ir.given import nest_given
from polyfuse.ir.nest_text import body_text
from polyfuse.schedule import Schedule
from polyfuse.show.card import line, table
from polyfuse.show.labels import Row, rows

Rows = Sequence[Sequence[str]]
"""The cells of a table."""


@proving("the view html")
def html(what: Nest | Schedule) -> str:
    """Return a nest as two HTML tables, or a schedule as its tree and its trace.

    Args:
        what: The nest or schedule.

    Returns:
        One element, without styles of its own.
    """
    takes = "a nest or a schedule"
    element = _schedule(what) if isinstance(what, Schedule) else _nest(nest_given("html", what, takes))
    return ElementTree.tostring(element, encoding="unicode", method="html")


def page(what: Nest | Schedule) -> str:
    """The same as a document of its own."""
    title = "nest" if isinstance(what, Nest) else "schedule"
    return f'<!DOCTYPE html>\n<meta charset="utf-8">\n<title>polyfuse: {title}</title>\n{html(what)}\n'


def _nest(nest: Nest) -> Element:
    block = Element("div", {"class": "polyfuse-nest"})
    nest_tables(nest, block, list)
    return block


def nest_tables(nest: Nest, into: Element, chosen: Callable[[Rows], Rows]) -> None:
    """Add a nest's tensors and statements, of each those rows that are chosen."""
    line(into, f"nest {nest.name}", f" over {nest.context}" if nest.params else "")
    tensors: Rows = [(t.name, t.role, str(t).partition(": ")[2]) for t in nest.tensors]
    table(into, ("tensor", "role", "elements"), chosen(tensors))
    statements: Rows = [(s.name, body_text(s), str(s.domain)) for s in nest.statements]
    table(into, ("statement", "computes", "for each instance in"), chosen(statements))


def _schedule(schedule: Schedule) -> Element:
    block = Element("div", {"class": "polyfuse-schedule"})
    line(
        block,
        f"schedule of {schedule.nest.name}",
        f", {len(schedule.steps)} step{'' if len(schedule.steps) == 1 else 's'}",
    )
    around = [block]  # the element that holds the rows of each depth
    for row in rows(schedule.nest, schedule.tree):
        del around[row.depth + 1 :]
        inside = _row(around[-1], row)
        if inside is not None:
            around.append(inside)
    trace = SubElement(block, "details")
    SubElement(trace, "summary").text = "the verbs that made it"
    SubElement(trace, "pre").text = schedule.trace()
    return block


def _row(parent: Element, row: Row) -> Element | None:
    """A row as an element; a loop returns what its body goes into."""
    if row.kind == "loop":
        fold = SubElement(parent, "details", {"open": "open", "style": "margin-left: 1.5em"})
        _words(SubElement(fold, "summary"), row)
        return fold
    _words(SubElement(parent, "div", {"style": "margin-left: 1.5em"}), row)
    return None


def _words(parent: Element, row: Row) -> None:
    text = SubElement(parent, "code")
    text.text = row.text
    if row.detail:
        text.tail = " "
        SubElement(parent, "code", {"style": "opacity: 0.65"}).text = row.detail
