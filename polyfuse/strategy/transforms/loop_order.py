"""Order loop nests inside a kernel: find the loop with contiguous accesses, and make it innermost."""

from __future__ import annotations

from polyfuse.analysis.bands import open_at
from polyfuse.ir import Nest
from polyfuse.ir.tree import Leaf, Loop, Sequence, parts, statements
from polyfuse.schedule.binding import extent
from polyfuse.strategy.cost.counts import dims_of
from polyfuse.strategy.draft import Draft
from polyfuse.strategy.transforms.band_verbs import far_and_near


def loop_along_memory(draft: Draft, names: tuple[str, ...], band: tuple[Loop, ...]) -> Loop | None:
    """The band's loop that walks along memory; None if the band ends before the innermost loops do."""
    if not band or any(isinstance(part, Loop) for part in parts(band[-1].body)):
        return None

    walked = {id(loop): (0, 0) for loop in band}
    for name in names:
        weight = 10 ** len(draft.nest.statement(name).dims)  # the work is in the deepest statements
        for loop, dims in zip(band, _stepped(band, name), strict=True):
            far, near = far_and_near(draft.nest, name, dims)
            before = walked[id(loop)]
            walked[id(loop)] = before[0] + weight * far, before[1] + weight * near
    return min(reversed(band), key=lambda loop: walked[id(loop)])


def row_length(nest: Nest, band: tuple[Loop, ...], names: tuple[str, ...]) -> int | None:
    """The most values that the last loop of a band takes while the others stay; None if that depends on sizes.

    for t < 500: for 2t <= k < 2t + 118: S   ->   118
    """
    longest = 0
    for name in names:
        domain, (*_, dims) = nest.domains[name], _stepped(band, name)
        for d in dims:
            low, high = domain.dim_min_val(d), domain.dim_max_val(d)
            if not (low.is_int() and high.is_int()):
                return None
            longest = max(longest, int(high.to_python()) - int(low.to_python()) + 1)
    return longest


def _stepped(band: tuple[Loop, ...], name: str) -> list[frozenset[int]]:
    """For each loop of a band the dimensions of a statement that change when it alone takes a step.

    t, t + i, 2t + i + j: a step of the last changes j; one of the second i, and j to keep the last; one of t all.
    """
    every = [dims_of(loop.date(name)) for loop in band]
    known: frozenset[int] = frozenset()
    new: list[frozenset[int]] = []
    for dims in every:
        new.append(dims - known)
        known |= dims
    found: list[frozenset[int]] = []
    for position in range(len(band)):
        moved = new[position]
        for later in range(position + 1, len(band)):
            moved |= new[later] if every[later] & moved else frozenset()
        found.append(moved)
    return found


def reordered(draft: Draft, statement: str, order: list[str]) -> Draft:
    """A statement's loops in this order; the draft itself if they are."""
    now = [loop.name for loop in draft.loops(statement) if loop.name in order]
    return draft if now == order else draft.do("reorder", statement, *order)


def parted(draft: Draft, names: tuple[str, ...]) -> Draft:
    """for j: { S; R }  ->  for j: S; for j: R, innermost loops, where no dependence runs back from R to S."""
    done: set[str] = set()
    for name in names:
        inner = draft.loops(name)[-1:]
        if name in done or not inner or not isinstance(inner[0].body, Sequence):
            continue
        done |= set(statements(inner[0]))
        if all(isinstance(part, Leaf) for part in inner[0].body.children) and separable(draft, inner[0]):
            draft = draft.do("distribute", name, inner[0].name)
    return draft


def rows_apart(draft: Draft, names: tuple[str, ...], most: int) -> Draft:
    """for i: { for j: S; for j: R }  ->  { for i: for j: S; for i: for j: R }, a loop of few rows, if that is legal.

    Neighbouring rows of one statement may then go side by side and load what both read once (stencil_row.py);
    of few rows the next statement finds what this one left in the nearest cache. heat-3d took 477 ms so, and 512 row by
    row (one core of a Xeon).
    """
    for loop in dict.fromkeys(draft.loops(name)[-2] for name in names if len(draft.loops(name)) > 1):
        few = extent(draft.nest, loop)
        rows = parts(loop.body)
        inner = all(isinstance(row, Loop) and isinstance(row.body, Leaf) for row in rows)
        if few is not None and few <= most and inner and separable(draft, loop):
            draft = draft.do("distribute", statements(loop)[0], loop.name)
    return draft


def separable(draft: Draft, loop: Loop) -> bool:
    """True if a loop has several parts, and no dependence open there orders a later one before an earlier one."""
    if not isinstance(loop.body, Sequence):
        return False
    place = {name: at for at, child in enumerate(loop.body.children) for name in statements(child)}
    ordered = (p for p in open_at(draft.nest, draft.tree, loop) if p.kind != "reduction")
    return all(place[p.source] <= place[p.sink] for p in ordered)
