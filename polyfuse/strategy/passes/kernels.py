"""Group statements into kernels, give each kernel its shape, and run the passes that revise the result.

start  --claims, groups, shapes-->  plan and doubtful groups  --backtrack, wavefront, loop partition-->  plan
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from polyfuse.machine import CpuMachine
from polyfuse.strategy.candidates import Choose
from polyfuse.strategy.claims import Claims
from polyfuse.strategy.cost.roofline import Model
from polyfuse.strategy.cpu.by_data import kernels_by_data
from polyfuse.strategy.driver import Start
from polyfuse.strategy.fusion.group_search import KeptApart
from polyfuse.strategy.passes.backtrack import Doubt, Doubted, reconsidered
from polyfuse.strategy.passes.equal_kernels import Shapes
from polyfuse.strategy.passes.grouping import Grouped, in_kernels
from polyfuse.strategy.passes.loop_partition import with_full_tiles
from polyfuse.strategy.passes.shape_each import in_shapes
from polyfuse.strategy.passes.wavefront import PASS as WAVEFRONT
from polyfuse.strategy.passes.wavefront import behind_each_other, cheaper_in_turns, may_run_behind
from polyfuse.strategy.plan import Plan
from polyfuse.strategy.remarks import Refused, refused
from polyfuse.strategy.rewrites.overlapped_tiling import PASS as OVERLAPPED_TILING
from polyfuse.strategy.rewrites.overlapped_tiling import recomputed


@dataclass(frozen=True)
class Groups:
    """Statements of a start with these claims in kernels, by the groups that none of them holds: found once each."""

    start: Start
    claims: Claims
    found: dict[KeptApart, tuple[Claims, Model, Grouped]] = field(default_factory=dict)

    def without(self, apart: KeptApart) -> tuple[Claims, Model, Grouped]:
        """The kernels, none of a group that is kept apart."""
        if apart not in self.found:
            self.found[apart] = in_kernels(self.start, self.claims, apart)
        return self.found[apart]


@dataclass(frozen=True)
class Kernels:
    """A plan for a start with these claims, and the groups that turned out far dearer than the search thought.

    `groups` are the kernels of all searches so far, `shapes` the shapes that kernels have had.
    """

    start: Start
    claims: Claims
    plan: Plan
    doubts: tuple[Doubt, ...]
    groups: Groups
    shapes: Shapes

    @staticmethod
    def of(start: Start) -> Kernels:
        """Statements in the groups that the search finds, each kernel in its shape."""
        claims, machine = start.claims, start.model_machine
        if claims is None:
            claims = Claims(start.nest)
            if start.fuse and isinstance(machine, CpuMachine) and start.choose.asks(OVERLAPPED_TILING):
                claims = recomputed(start.nest, machine, start.choose)
        if isinstance(machine, CpuMachine):
            by_data, remarks = kernels_by_data(claims.nest, claims.statements)
            claims = replace(claims, by_data=by_data, remarks=(*claims.remarks, *remarks))
        groups, shapes = Groups(start, claims), Shapes()
        return Kernels(start, claims, *_in_shape(groups, frozenset(), start.choose, shapes), groups, shapes)


@dataclass(frozen=True)
class KernelPass:
    """A pass over kernels: its name for remarks and for `force`, and what it makes of them."""

    name: str
    run: Callable[[Kernels], Kernels]


def _in_shape(groups: Groups, apart: KeptApart, choose: Choose, shapes: Shapes) -> Doubted:
    """Statements in kernels, none of them of a group that is kept apart, and each kernel in its shape."""
    start = groups.start
    claims, model, kernels = groups.without(start.apart | apart)
    plan, doubts = in_shapes(start, claims, model, kernels, choose, shapes)
    return replace(plan, remarks=(*start.remarks, *plan.remarks)), doubts


def backtracked(found: Kernels) -> Kernels:
    """The kernels without the doubtful groups that cost less in parts."""
    if not found.doubts:
        return found
    groups, choose = found.groups, found.start.choose

    def without(apart: KeptApart) -> Doubted:
        return _in_shape(groups, apart, choose.without_search(), found.shapes)

    first = without(frozenset()) if choose.searches else (found.plan, found.doubts)
    again = reconsidered(first, without, choose)
    if not choose.searches:
        return replace(found, plan=again.plan)
    chosen, _ = _in_shape(groups, again.refused, choose, found.shapes)
    return replace(found, plan=chosen.with_remarks(*again.remarks))


def with_wavefront(found: Kernels) -> Kernels:
    """The kernels, or those whose loops in time run behind each other on cores if that is cheaper."""
    start = found.start
    if not start.fuse or not may_run_behind(found.claims.nest, start.model_machine):
        return found
    claims, model, kernels = found.groups.without(frozenset())
    behind = behind_each_other(kernels[0], model, start.choose)
    if behind is None:
        return found
    if isinstance(behind, Refused):
        remark = refused(WAVEFRONT, (), behind.reason, behind.text)
        return replace(found, plan=found.plan.with_remarks(remark))
    grouped = (behind.grouped, *kernels[1:])
    other, _ = in_shapes(start, claims, model, grouped, start.choose, found.shapes, behind)
    other = replace(other, remarks=(*start.remarks, *other.remarks))
    return replace(found, plan=cheaper_in_turns(found.plan, other, behind, model.counts, start.choose))


def with_loop_partition(found: Kernels) -> Kernels:
    """The kernels with full tiles apart."""
    return replace(found, plan=with_full_tiles(found.plan, found.start.choose))
