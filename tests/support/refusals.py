"""Is a refusal real? The refused tree and its two instances, looked at with plain arithmetic and no proofs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import islpy as isl
import numpy as np

from polyfuse.analysis.barriers import place_barriers
from polyfuse.analysis.legality import PARALLEL, Broken
from polyfuse.analysis.storage import BLOCKS, PRIVATE, THREADS
from polyfuse.errors import IllegalSchedule
from polyfuse.errors.refusals import Instance, Violation
from polyfuse.interpret.affine_grid import Points, values
from polyfuse.ir import Nest
from polyfuse.ir.bindings import Binding
from polyfuse.ir.tree import Leaf, Loop, Sequence, Tree, loops, loops_around, path_to, statements
from polyfuse.schedule import Schedule
from tests.support.enumeration import Step, steps
from tests.support.verbs import Call


class Recorder(Schedule):
    """A schedule that remembers the trees it was asked to prove."""

    def __init__(self, of: Schedule) -> None:
        self.__dict__.update(of.__dict__)
        self.asked: list[tuple[Nest, Tree]] = []

    def _proof(self, nest: Nest, tree: Tree, known: Tree | None) -> Broken | None:
        self.asked.append((nest, tree))
        return super()._proof(nest, tree, known)


def refused_tree(schedule: Schedule, call: Call) -> tuple[Nest, Tree]:
    """The tree that a refused verb would have made (fuse tries several: the first is the one its refusal is about)."""
    if call.verb == "synchronised":
        return schedule.nest, place_barriers(schedule.nest, schedule.tree)
    recorder = Recorder(schedule)
    try:
        call.on(recorder)
    except IllegalSchedule:
        return recorder.asked[0]
    raise AssertionError(f"{call} was refused once and taken once")


@dataclass(frozen=True)
class Witness:
    """The two instances of a violation, found among all instances of the nest in their original order."""

    violation: Violation
    source: Step
    sink: Step
    ordered: bool


def witness(nest: Nest, violation: Violation) -> Witness:
    """The violation's instances; AssertionError if one is not in its domain."""
    every = steps(nest, violation.sizes)
    place = {step.instance: position for position, step in enumerate(every)}
    first, second = (place[(x.statement, x.point)] for x in (violation.source, violation.sink))
    return Witness(violation, every[first], every[second], first < second)


def depends(found: Witness) -> bool:
    """Whether the two touch one element as the violation's kind says, the source first in the original order."""
    source, sink = found.source, found.sink
    adds = sink.statement.is_reduction
    match found.violation.kind:
        case "flow":
            return found.ordered and (source.write in sink.reads or (adds and source.write == sink.write))
        case "anti":
            return found.ordered and sink.write in source.reads
        case "output":
            return found.ordered and source.write == sink.write
        case "reduction":
            same = adds and source.statement.op == sink.statement.op
            return same and found.ordered and source.write == sink.write
        case "reuse":
            return sink.write[0] in source.statement.tensors
    return False


def date(loop: Loop, instance: Instance, sizes: Mapping[str, int]) -> int:
    """The loop's value at an instance."""
    return value(loop.date(instance.statement), instance, sizes)


def value(function: isl.PwAff, instance: Instance, sizes: Mapping[str, int]) -> int:
    """A function of instances at one of them."""
    at = Points(tuple(np.array([x]) for x in instance.point), sizes, 1)
    return int(np.broadcast_to(values(function, at), (1,))[0])


def wrong(tree: Tree, violation: Violation) -> bool:
    """Whether the tree runs the two in the wrong order, or at once, or loses a value between them."""
    return disordered(tree, violation) or loses(tree, violation) or unmet(tree, violation)


def disordered(tree: Tree, violation: Violation) -> bool:
    """Whether the source comes after the sink, or runs at the same time."""
    source, sink = violation.source, violation.sink
    for node in path_to(tree, source.statement):
        match node:
            case Leaf():
                return True
            case Loop():
                a, b = (date(node, x, violation.sizes) for x in (source, sink))
                at_once = node.bind in (*PARALLEL, "pipeline") or (
                    node.bind == "vector" and violation.kind != "reduction"
                )
                if a != b and node.bind == "pipeline" and isinstance(node.body, Loop):
                    c, d = (date(node.body, x, violation.sizes) for x in (source, sink))
                    return (a < b and c > d) or (a > b and (c < d or violation.kind != "reduction"))
                if a != b:
                    return at_once or (a > b and violation.kind != "reduction")
            case Sequence():
                a, b = (position(node, x.statement) for x in (source, sink))
                if a != b:
                    return a > b and violation.kind != "reduction"
    raise AssertionError("a path ends at a leaf")


def position(node: Sequence, statement: str) -> int:
    return next(p for p, child in enumerate(node.children) if statement in statements(child))


def thread(
    tree: Tree, instance: Instance, sizes: Mapping[str, int], axes: tuple[Binding, ...] = THREADS
) -> tuple[int, ...]:
    """The thread (x, y, z) that runs an instance, or its place along other axes; 0 where no loop says."""
    around = {loop.bind: loop for loop in loops_around(tree, instance.statement)}
    return tuple(date(around[a], instance, sizes) if a in around else 0 for a in axes)


def loses(tree: Tree, violation: Violation) -> bool:
    """Whether a buffer's life does not span the two, or each of them has a buffer of its own."""
    sizes, ends = violation.sizes, (violation.source, violation.sink)
    for loop in loops(tree):
        for buffer in loop.buffers:
            if f"{buffer.tensor} is kept" not in violation.why:
                continue
            if not {x.statement for x in ends} <= set(statements(loop)):
                return True
            around = loops_around(tree, ends[0].statement)
            prefix = around[: next(p for p, x in enumerate(around) if x is loop) + 1]
            if any(date(x, ends[0], sizes) != date(x, ends[1], sizes) for x in prefix):
                return True
            if buffer.memory in PRIVATE:
                axes = *BLOCKS, *THREADS  # a thread's buffer is its block's own, too
                return thread(tree, ends[0], sizes, axes) != thread(tree, ends[1], sizes, axes)
    return False


Dates = tuple[float, ...]


def unmet(tree: Tree, violation: Violation) -> bool:
    """Whether two threads of a block run the two, and no barrier on the way of either lies between."""
    source, sink = violation.source, violation.sink
    sizes = violation.sizes
    if thread(tree, source, sizes) == thread(tree, sink, sizes):
        return False
    first, second = when(tree, source, sizes), when(tree, sink, sizes)
    meetings = [*barriers(tree, source, sizes), *barriers(tree, sink, sizes)]
    return not any(first < meeting < second for meeting in meetings)


def when(tree: Tree, instance: Instance, sizes: Mapping[str, int]) -> Dates:
    """The dates of an instance in program order; threads run at once, so their loops have no date."""
    found: list[float] = []
    for node in path_to(tree, instance.statement):
        if isinstance(node, Loop):
            found.append(0 if node.bind in THREADS else date(node, instance, sizes))
        elif isinstance(node, Sequence):
            found.append(position(node, instance.statement))
    return tuple(found)


def barriers(tree: Tree, instance: Instance, sizes: Mapping[str, int]) -> list[Dates]:
    """The dates of the barriers in the loops and sequences around an instance, in its own iterations."""
    dates, found = when(tree, instance, sizes), []
    inner = [node for node in path_to(tree, instance.statement) if not isinstance(node, Leaf)]
    for depth, node in enumerate(inner):
        if isinstance(node, Loop) and node.barrier:
            found.append((*dates[:depth], dates[depth] + 0.5))
        elif isinstance(node, Sequence):
            found += [(*dates[:depth], p + 0.5) for p in node.barriers]
    return found
