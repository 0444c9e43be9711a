"""What the explorer shows, as plain data: dictionaries, lists, texts and numbers, ready to be written as JSON.

    data ::= { format, version, polyfuse, nest, machine, seconds, tensors, statements, windows, dependences, pairs,
               rows, steps, tiles, kernels, assembly, header, remarks, refused, next }

The guide's page on the explorer describes each field. What is repeated stands once, in `windows`, `pairs`, `rows`,
`tiles` and `assembly`, and is named by its position there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib import metadata
from typing import Any

import islpy as isl

from polyfuse.errors.refusals import Violation
from polyfuse.ir.nest import Nest
from polyfuse.ir.nest_text import body_text
from polyfuse.ir.statement import Statement
from polyfuse.ir.tree import loops_around
from polyfuse.machine import Machine
from polyfuse.schedule import Schedule
from polyfuse.sets import bounding_box, expression_text, fix_params, point_of
from polyfuse.show.explorer.source_lines import source_lines
from polyfuse.show.explorer.trees import Rows, repeated, splice
from polyfuse.show.explorer.windows import Window, pairs_inside, periods, tile_dates, window
from polyfuse.show.slices import tile_loops
from polyfuse.strategy.cost.counts import nominal_sizes
from polyfuse.strategy.next_steps import next_steps
from polyfuse.strategy.plan import Decision
from polyfuse.strategy.remarks import Reason, Remark

FORMAT, VERSION = "polyfuse explorer", 1

MOST_PAIRS = 60_000
"""Numbers of pairs of instances that are kept of all dependences together, so that the page stays small."""

MOST_INSTRUCTIONS = 30_000
"""Lines of machine code that are kept of all kernels together: about 1 MB."""

MOST_FOR_TILES = 60
"""A nest of more statements has tiles of its last schedule alone, not of the one after each step."""


@dataclass(frozen=True)
class Instruction:
    """One line of machine code.

    Attributes:
        text: The instruction, or a label.
        line: The line of the kernel's source that it comes from, counted from 1; None if it is of none, or of several.
    """

    text: str
    line: int | None = None


@dataclass(frozen=True)
class KernelShown:
    """One kernel of an executable, as the explorer shows it.

    Attributes:
        name: The kernel's name.
        statements: The statements that it runs.
        source: Its source.
        once: True if it runs once for all calls.
        bound: The roofline's least seconds.
        predicted: The cost model's seconds.
        measured: The seconds that a profile measured.
        assembly: Its machine code; empty if it is not shown.
    """

    name: str
    statements: tuple[str, ...]
    source: str
    once: bool = False
    bound: float | None = None
    predicted: float | None = None
    measured: float | None = None
    assembly: tuple[Instruction, ...] = ()


@dataclass
class _Once:
    """Values that are written once and named by their position."""

    values: list[Any] = field(default_factory=list)
    _places: dict[object, int] = field(default_factory=dict)

    def __contains__(self, key: object) -> bool:
        return key in self._places

    def put(self, key: object, make: Callable[[], Any]) -> int:
        if key not in self._places:
            self._places[key] = len(self.values)
            self.values.append(make())
        return self._places[key]


def explored(
    schedule: Schedule,
    machine: Machine,
    kernels: Sequence[KernelShown] = (),
    header: str = "",
    decisions: Sequence[Decision] = (),
    remarks: Sequence[Remark] = (),
    most_next: int = 12,
) -> dict[str, Any]:
    """Return what the explorer shows of a schedule.

    Args:
        schedule: The schedule.
        machine: The machine that next steps are priced for.
        kernels: The kernels that were emitted for it.
        header: What their sources import.
        decisions: The strategy's decisions on fusion.
        remarks: Every remark of the plan.
        most_next: The number of next steps at most; none are looked for if it is 0.
    """
    nest, sizes = schedule.nest, nominal_sizes(schedule.nest)
    places = {s.name: position for position, s in enumerate(nest.statements)}
    seen, shown = _Once(), _windows(schedule, sizes)
    windows = {name: seen.put(one, partial(_window, one)) for name, one in shown.items()}
    dependences, pairs = _dependences(nest, shown, places, sizes)
    rows, tiles = Rows(), _Once()
    steps = _steps(schedule, rows, tiles, shown, places, sizes)
    found = next_steps(schedule, machine, most_next) if most_next else ()
    assembly, positions = _assembly(kernels)
    return {
        "format": FORMAT,
        "version": VERSION,
        "polyfuse": metadata.version("polyfuse"),
        "nest": {"name": nest.name, "context": str(nest.context), "sizes": sizes},
        "machine": machine.name,
        "seconds": _sum([k.predicted for k in kernels if not k.once]),
        "tensors": [
            {"name": t.name, "role": t.role, "elements": str(t).partition(": ")[2]} for t in nest.tensors
        ],
        "statements": [_statement(s, windows.get(s.name)) for s in nest.statements],
        "windows": seen.values,
        "dependences": dependences,
        "pairs": pairs,
        "rows": [list(row) for row in rows.table],
        "steps": steps,
        "tiles": tiles.values,
        "kernels": [_kernel(kernel, places, codes) for kernel, codes in zip(kernels, positions, strict=True)],
        "assembly": assembly,
        "header": header,
        "remarks": [_remark(remark, places) for remark in remarks],
        "refused": [
            refusal(d.violation, _sentence(d, d.violation), nest, places)
            for d in decisions
            if d.violation is not None
        ],
        "next": [
            {"step": str(one.step), "python": f"s = s.{one.step}", "seconds": one.seconds} for one in found
        ],
    }


def _sum(values: Sequence[float | None]) -> float | None:
    return sum(v for v in values if v is not None) if values and None not in values else None


def _statement(s: Statement, window: int | None) -> dict[str, Any]:
    accesses = [("write", s.write), *(("read", access) for access in s.reads)]
    return {
        "name": s.name,
        "text": body_text(s),
        "dims": list(s.dims),
        "domain": str(s.domain),
        "accesses": [
            {"kind": kind, "text": str(access), "relation": str(access.map)} for kind, access in accesses
        ],
        "window": window,
    }


def _window(one: Window) -> dict[str, Any]:
    return {
        "box": [list(side) for side in one.box],
        "whole": [list(side) for side in one.whole],
        "points": None if one.filled else [list(point) for point in one.points],
    }


def _domain(nest: Nest, name: str, sizes: Mapping[str, int]) -> isl.Set:
    return fix_params(nest.domains[name], dict(sizes))


def _windows(schedule: Schedule, sizes: Mapping[str, int]) -> dict[str, Window]:
    """The window on each statement's domain; a statement without instances, or without bounds, has none.

    Dimensions that run through the same values have windows around the same one, so that what depends on each other is
    seen in both.
    """
    domains: dict[str, isl.Set] = {}
    steps: dict[str, list[int | None]] = {}
    widest: dict[tuple[int, int], int] = {}
    for s in schedule.nest.statements:
        domain = _domain(schedule.nest, s.name, sizes)
        box = None if domain.is_empty() or not domain.is_bounded() else bounding_box(domain)
        if box is None:
            continue
        domains[s.name] = domain
        steps[s.name] = periods(tile_loops(schedule.loops(s.name), None), s.name, len(s.dims))
        for side, step in zip(box, steps[s.name], strict=True):
            if step is not None and step <= side[1] - side[0]:
                widest[side] = max(step, widest.get(side, 1))
    known: dict[str, Window] = {}
    found: dict[str, Window] = {}
    for name, domain in domains.items():
        key = str(domain.reset_tuple_id())
        if key not in known:
            box = bounding_box(domain)
            known[key] = window(domain, [widest.get(side) for side in box or ()])
        found[name] = known[key]
    return found


def _dependences(
    nest: Nest, shown: Mapping[str, Window], places: Mapping[str, int], sizes: Mapping[str, int]
) -> tuple[list[dict[str, Any]], list[list[int]]]:
    """Each dependence between shown statements, and lists of pairs in their windows: source and sink as one list."""
    table, left = _Once(), MOST_PAIRS
    found = []
    for each in nest.dependences().pairs:
        entry = {"kind": each.kind, "source": places[each.source], "sink": places[each.sink]}
        entry |= {"relation": str(each.map)}
        if each.source in shown and each.sink in shown:
            source, sink = shown[each.source].box, shown[each.sink].box
            relation = str(each.map.reset_tuple_id(isl.dim_type.in_).reset_tuple_id(isl.dim_type.out))
            key = (relation, source, sink, each.source == each.sink)

            def pairs(each: Any = each, source: Any = source, sink: Any = sink) -> list[int]:
                return [
                    value for one in pairs_inside(each, source, sink, sizes) for end in one for value in end
                ]

            before = len(table.values)
            entry["pairs"] = table.put(key, pairs)
            if len(table.values) > before:
                width = len(source) + len(sink)
                del table.values[before][left // max(width, 1) * width :]
                left -= len(table.values[before])
        found.append(entry)
    return found, table.values


def _steps(
    schedule: Schedule,
    rows: Rows,
    tiles: _Once,
    shown: Mapping[str, Window],
    places: Mapping[str, int],
    sizes: Mapping[str, int],
) -> list[dict[str, Any]]:
    """Each step with the rows that it changed, and the tiles that it made; the first entry is the nest as written."""
    found: list[dict[str, Any]] = []
    before: tuple[int, ...] = ()
    had: dict[str, int | None] = {}
    every = [
        *repeated(schedule),
        (None, schedule),
    ]  # what a compile adds behind the steps is in the last tree alone
    for number, (step, now) in enumerate(every):
        after = rows.of(now.nest, now.tree)
        if number == len(every) - 1 and after == before and len(places) <= MOST_FOR_TILES:
            break
        changed: dict[str, int | None] = {}
        if len(places) <= MOST_FOR_TILES or number == len(every) - 1:
            for name in now.tree.names:
                if name in shown:
                    one = _tiles(now, name, shown[name], tiles, sizes)
                    if one != had.get(name):
                        changed[str(places[name])] = had[name] = one
        text = f"s.{step}" if step is not None else "as written" if number == 0 else "as compiled"
        found.append({"text": text, "splice": splice(before, after), "tiles": changed})
        before = after
    return found


def _tiles(now: Schedule, name: str, seen: Window, tiles: _Once, sizes: Mapping[str, int]) -> int | None:
    loops = tile_loops(loops_around(now.tree, name), None)
    domain = _domain(now.nest, name, sizes)
    if not loops:
        return None
    dates = tuple(expression_text(loop.date(name)) for loop in loops)
    key = (dates, tuple(loop.name for loop in loops), seen)

    def make() -> dict[str, Any]:
        values = tile_dates(seen, domain, loops, name, sizes)
        order = {date: rank for rank, date in enumerate(sorted(set(values)))}
        return {
            "loops": [loop.name for loop in loops],
            "dates": list(dates),
            "tiles": [list(date) for date in order],
            "of": [order[date] for date in values],
        }

    return tiles.put(key, make)


def _assembly(kernels: Sequence[KernelShown]) -> tuple[list[list[Any]], list[int | None]]:
    """Listings of machine code, each once, and the position of each kernel's; None where it has none."""
    table, left = _Once(), MOST_INSTRUCTIONS
    positions: list[int | None] = []
    for kernel in kernels:
        code = kernel.assembly
        if not code or (code not in table and len(code) > left):
            positions.append(None)
            continue
        left -= 0 if code in table else len(code)
        positions.append(table.put(code, partial(_listing, code)))
    return table.values, positions


def _listing(code: Sequence[Instruction]) -> list[list[Any]]:
    return [[each.text, each.line] for each in code]


def _kernel(kernel: KernelShown, places: Mapping[str, int], assembly: int | None) -> dict[str, Any]:
    lines = source_lines(kernel.source, kernel.statements)
    return {
        "name": kernel.name,
        "statements": [places[name] for name in kernel.statements],
        "once": kernel.once,
        "bound": kernel.bound,
        "predicted": kernel.predicted,
        "measured": kernel.measured,
        "source": [[line.text, [places[name] for name in line.statements], line.loop] for line in lines],
        "assembly": assembly,
    }


def _remark(remark: Remark, places: Mapping[str, int]) -> dict[str, Any]:
    return {
        "pass": remark.pass_,
        "statements": [places[name] for name in remark.statements if name in places],
        "taken": remark.taken,
        "reason": remark.reason.name.lower(),
        "text": remark.text,
        "seconds": None if remark.seconds is None else list(remark.seconds),
    }


def _sentence(decision: Decision, violation: Violation) -> str:
    """The refusal with its two instances, and behind it the decision, where a fusion at another loop is legal."""
    if decision.taken:
        return str(violation)
    return decision.sentence if decision.reason is Reason.ILLEGAL else f"{violation} {decision.sentence}"


def refusal(violation: Violation, sentence: str, nest: Nest, places: Mapping[str, int]) -> dict[str, Any]:
    """Return a refused step: the sentence, and its two instances, each with a window in which it lies.

    Args:
        violation: The violation.
        sentence: What is said of it.
        nest: The nest.
        places: The position of each statement.
    """
    ends: dict[str, dict[str, Any]] = {}
    for side, instance in (("source", violation.source), ("sink", violation.sink)):
        ends[side] = {"statement": places.get(instance.statement), "point": list(instance.point)}
        if instance.statement in places and point_of(nest.domains[instance.statement]) is not None:
            sizes = {**nominal_sizes(nest), **violation.sizes}
            domain = _domain(nest, instance.statement, sizes)
            if domain.is_bounded() and not domain.is_empty():
                near = window(domain, [None] * len(instance.point), instance.point)
                ends[side]["window"] = _window(near)
    return {
        "sentence": sentence,
        "step": violation.verb,
        "kind": violation.kind,
        "why": violation.why,
        "remedy": violation.remedy,
        "sizes": dict(violation.sizes),
        **ends,
    }
