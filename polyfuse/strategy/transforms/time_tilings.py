"""Candidate shapes on a CPU for a kernel whose outermost loop carries a dependence, as drafts of public verbs.

in order        for t: for i: for j (vector)                                what was written, or another order
inner parallel  for t: for i (cores): for j (vector)                        a parallel region a step
side by side    for i (of 16, cores): for j: for i_in (vector)              rows that wait along the row
jammed          for i (of 4): for j (vector): for i_in (unrolled)           what stays from row to row is loaded once
inner turned    for t: { for i: for j (vector); for k: for j (vector) }     each inner nest in an order of its own
outer parallel  for j (tiles, cores): for i: for k: for j_in (vector)       a parallel loop of a permutable band
tiled           for t, i, j (tiles): for t_in: for i_in: for j_in           a permutable band, tile after tile
pipelined       for t (tiles, pipeline): for i (tiles): for j (tiles): …    a row of tiles behind the row before
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from polyfuse.analysis.bands import among, is_parallel, permutable, within
from polyfuse.ir.tree import Loop, loops, statements
from polyfuse.schedule.binding import extent
from polyfuse.strategy.cost.counts import dims_of
from polyfuse.strategy.draft import Draft
from polyfuse.strategy.fusion.group_search import part_of
from polyfuse.strategy.transforms.band_verbs import far_and_near
from polyfuse.strategy.transforms.inner_loops import STEPS, interleaved, jammed, outermost, turned
from polyfuse.strategy.transforms.loop_order import (
    loop_along_memory,
    parted,
    reordered,
    row_length,
    rows_apart,
)

OUTER_SIZES = (8, 16, 32)
"""Values of a tiled loop that is not the innermost."""

NARROW = 4
"""Values of the last of three such loops or more: heat-3d of 120³ in tiles of 8 × 16 × 4 × 256 took 371 ms, in 8 ×
8 × 8 × 256 394, in 8 × 16 × 16 × 256 407 (two threads of a Xeon)."""

OUTER_PARTS = (2, 4, 8, 16)
"""Tiles of a parallel loop along memory that goes outermost: long rows, or enough tiles for the cores."""

OUTER_COLUMNS = (1024, 512, 256, 64)
"""Values of such a tile where the loop's extent is not known."""

WHOLE = 16
"""Columns that a tile has a multiple of: two vectors of 64 bytes of float64."""

INNER_SIZES = (256, 512)
"""Values of the tiled loop along memory: whole vectors, and long enough to enter the loop rarely."""


def shapes(draft: Draft, names: tuple[str, ...], cores: int) -> Iterator[Draft]:
    """Every candidate from one order of a kernel's statements; rows of tiles at once only for several cores."""
    tree = part_of(draft.tree, names[0])
    pairs = among(draft.nest, tree)
    band = permutable(tree, pairs)
    along = loop_along_memory(draft, names, band)
    straight = in_order(draft, names, band, along)
    yield vectorized(straight, names)
    yield vectorized(inner_parallel(straight, names), names)
    inwards = turned(draft, names)
    if inwards is not draft:
        inwards = inwards.noted("inner loops are taken apart and follow memory")
        yield vectorized(inwards, names)
        yield vectorized(inner_parallel(inwards, names), names)
    together = jammed(draft, names)
    if together is not draft:
        yield vectorized(together, names).noted(f"{STEPS} iterations in one pass along memory")
    rows = interleaved(draft, names)
    if rows is not draft:
        rows = rows.noted("rows that wait along the row run side by side")
        yield vectorized(rows, names)
        yield vectorized(inner_parallel(rows, names), names)
    parallel = next((loop for loop in band if is_parallel(loop, pairs)), None)
    if parallel is not None:
        yield from _outer_parallel(draft, names, band, along, parallel)
        return
    yield from _behind_one(draft, names, band, along)
    if len(band) > 1 and along is not None:
        for sizes in _sizes(draft, names, band, along):
            tiled = _tiled(draft, names, band, along, sizes)
            yield vectorized(tiled, names)
            if cores > 1:
                yield vectorized(_pipelined(tiled, names, band), names)
        yield from _staggered(draft, names, band, along, cores)


def in_order(draft: Draft, names: tuple[str, ...], band: tuple[Loop, ...], along: Loop | None) -> Draft:
    """The loop along memory innermost, and each statement in a loop of its own there."""
    if along is None:
        return draft
    order = [loop.name for loop in band if loop is not along] + [along.name]
    return parted(reordered(draft, names[0], order), names)


def inner_parallel(draft: Draft, names: tuple[str, ...]) -> Draft:
    """The outermost parallel loop on each path over the cores, a parallel region a step of the loops around it."""
    tree = part_of(draft.tree, names[0])
    for loop in outermost(draft, tree):
        draft = draft.do("bind", statements(loop)[0], **{loop.name: "cores"})
    return draft


def vectorized(draft: Draft, names: tuple[str, ...]) -> Draft:
    """Innermost loops on vector lanes where they carry nothing but reductions."""
    done: set[str] = set()
    for name in names:
        inner = draft.loops(name)[-1:]
        if name in done or not inner or inner[0].bind is not None or any(loops(inner[0].body)):
            continue
        if extent(draft.nest, inner[0]) == 1:
            continue
        done |= set(statements(inner[0]))
        pairs = tuple(p for p in among(draft.nest, inner[0]) if p.kind != "reduction")
        for outer in draft.loops(name)[:-1]:
            pairs = within(outer, pairs)
        if is_parallel(inner[0], pairs):
            draft = draft.do("vectorize", name, inner[0].name)
    return draft


def _outer_parallel(
    draft: Draft, names: tuple[str, ...], band: tuple[Loop, ...], along: Loop | None, parallel: Loop
) -> Iterator[Draft]:
    """A parallel loop of the band outermost; cut into tiles where it is the one along memory."""
    rest = [loop.name for loop in band if loop is not parallel and loop is not along]
    inner = [along.name] if along is not None and along is not parallel else []
    name = names[0]
    moved = f"{parallel.name} is parallel and goes outermost"
    if parallel is not along and (along is not None or _jumps(draft, names, parallel)):
        done = reordered(draft, name, [parallel.name, *rest, *inner])
        done = done.do("bind", name, **{parallel.name: "cores"})
        yield vectorized(parted(done, names), names).noted(moved)
        return
    for size in _columns(extent(draft.nest, parallel)):
        done = draft.do("split", name, parallel.name, size)
        point = next(x for x in done.loops(name) if x.name.startswith(f"{parallel.name}_in")).name
        done = reordered(done, name, [parallel.name, *rest, point])
        done = done.do("bind", name, **{parallel.name: "cores"})
        done = turned(done, names) if along is None else parted(done, names)
        yield vectorized(done, names).noted(f"{moved}, in tiles of {size}")


def _jumps(draft: Draft, names: tuple[str, ...], loop: Loop) -> bool:
    """True if a step of a loop jumps in memory."""
    return any(far_and_near(draft.nest, name, dims_of(loop.date(name)))[0] for name in names)


def _columns(size: int | None) -> Iterator[int]:
    """Columns of a tile, so that the tiles are about equal."""
    if size is None:
        yield from OUTER_COLUMNS
        return
    yield from dict.fromkeys(-(-size // (parts * WHOLE)) * WHOLE for parts in OUTER_PARTS)


def _behind_one(
    draft: Draft, names: tuple[str, ...], band: tuple[Loop, ...], along: Loop | None
) -> Iterator[Draft]:
    """for k: for i (cores): for j: a loop of the band in order outermost, if another is parallel inside it."""
    pairs = among(draft.nest, part_of(draft.tree, names[0]))
    for first in band if along is not None else ():
        inside = within(first, pairs)
        free = [x for x in band if x is not first and x is not along and is_parallel(x, inside)]
        if first is along or not free or along is None:
            continue
        rest = [x.name for x in band if x not in (first, free[0], along)]
        done = reordered(draft, names[0], [first.name, free[0].name, *rest, along.name])
        done = parted(done, names).do("bind", names[0], **{free[0].name: "cores"})
        yield vectorized(done, names).noted(f"{free[0].name} is parallel inside {first.name}")


def _sizes(
    draft: Draft, names: tuple[str, ...], band: tuple[Loop, ...], along: Loop
) -> Iterator[dict[str, int]]:
    """Tile sizes to price: one for all outer loops, another for the outermost, one for the loop along memory.

    Of three outer loops or more the last may have a narrow one too: what a tile shares with the next one along it is
    still in the cache, and the less a tile needs of the others' borders. Rows that are no longer than a tile stay
    whole: tiles would cut them where skewing moves them to, at no gain.
    """
    seen: set[tuple[int, ...]] = set()
    others = [loop for loop in band if loop is not along]
    narrow = ({}, {others[-1].name: NARROW}) if len(others) > 2 else ({},)
    row = row_length(draft.nest, band, names)
    short = len(others) > 1 and along is band[-1] and row is not None and row <= INNER_SIZES[0]
    rows = ({},) if short else tuple({along.name: size} for size in INNER_SIZES)
    for first, other, inner, last in product(OUTER_SIZES, OUTER_SIZES, rows, narrow):
        if first > other:
            continue
        wanted = {loop.name: other for loop in others} | {others[0].name: first} | inner | last
        capped = {name: min(size, _extent(draft, band, name) or size) for name, size in wanted.items()}
        if tuple(capped.values()) not in seen:
            seen.add(tuple(capped.values()))
            yield capped


def _extent(draft: Draft, band: tuple[Loop, ...], name: str) -> int | None:
    return extent(draft.nest, next(loop for loop in band if loop.name == name))


def _tiled(
    draft: Draft, names: tuple[str, ...], band: tuple[Loop, ...], along: Loop, sizes: dict[str, int]
) -> Draft:
    """for t: for i: for j  ->  for t, i, j (tiles): for t_in: for i_in: for j_in, the one along memory innermost.

    A loop without a size is the last one of the band, and stays whole.
    """
    ordered = {loop.name: sizes[loop.name] for loop in band if loop.name in sizes}
    done = draft.do("tile", names[0], **ordered)
    points = done.loops(names[0])[len(ordered) : len(ordered) + len(band)]
    at = next(p for p, loop in enumerate(band) if loop is along)
    order = [x.name for p, x in enumerate(points) if p != at] + [points[at].name]
    text = ", ".join(f"{name} by {size}" for name, size in ordered.items())
    whole = "" if along.name in ordered else f", rows of {along.name} whole"
    done = parted(reordered(done, names[0], order), names)
    return rows_apart(done, names, NARROW).noted(f"tiled: {text}{whole}")


def _staggered(
    draft: Draft, names: tuple[str, ...], band: tuple[Loop, ...], along: Loop, cores: int
) -> Iterator[Draft]:
    """for i: for j  ->  for j + i (in a tile): for i: rows each a step behind the one before, so that none waits.

    For a loop along memory that carries a dependence: its iterations wait for each other, rows side by side do not.
    """
    pairs = among(draft.nest, part_of(draft.tree, names[0]))
    others = [loop for loop in band if loop is not along]
    for outer in others[:-1]:
        pairs = within(outer, pairs)
    if band[-1] is not along or is_parallel(along, within(others[-1], pairs)):
        return
    row = others[-1].name
    done = draft.do("skew", names[0], along.name, by=row, factor=1)
    later = done.loops(names[0])[len(band) - 1]
    if not is_parallel(others[-1], within(later, pairs)):
        return
    note = (
        f"{along.name} at {along.name} + {row}: rows of {row} side by side, each a step behind the one before"
    )
    size = len(band)
    for rows, columns in product((8, 16, 32), INNER_SIZES):
        sizes = {loop.name: rows for loop in others} | {along.name: columns}
        tiled = done.do("tile", names[0], **sizes)
        points = [loop.name for loop in tiled.loops(names[0])[size : 2 * size]]
        tiled = reordered(tiled, names[0], [*points[:-2], points[-1], points[-2]])
        text = ", ".join(f"{name} by {count}" for name, count in sizes.items())
        tiled = parted(tiled, names).noted(note, f"tiled: {text}")
        yield vectorized(tiled, names)
        if cores > 1:
            yield vectorized(_pipelined(tiled, names, band), names)


def _pipelined(draft: Draft, names: tuple[str, ...], band: tuple[Loop, ...]) -> Draft:
    """for t: for i (tiles)  ->  for t (tiles, pipeline): for i: cores take rows of tiles, each behind that of t - 1."""
    done = draft.do("bind", names[0], **{band[0].name: "pipeline"})
    return done.noted(
        f"rows of tiles along {band[1].name} run at once, each tile behind that of the row before"
    )
