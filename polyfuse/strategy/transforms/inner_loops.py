"""Distribute the loops inside one that carries a dependence, and order each nest for memory.

    for k: for j: { R = 0; for i: R += Q A; for i: A -= Q R }
    ->  for k: { for j: R = 0; for i: for j (vector): R += Q A; for i: for j (vector): A -= Q R }

What stands around stays: this is a shape for programs whose outer loops have no better order than the one written.
"""

from __future__ import annotations

from collections.abc import Iterator

from polyfuse.analysis.bands import facts, is_parallel, open_at, permutable
from polyfuse.ir.tree import Loop, Sequence, Tree, children, loops, parts, statements
from polyfuse.schedule.binding import extent
from polyfuse.strategy.cost.counts import dims_of
from polyfuse.strategy.draft import Draft
from polyfuse.strategy.fusion.group_search import part_of
from polyfuse.strategy.transforms.band_verbs import far_and_near
from polyfuse.strategy.transforms.loop_order import loop_along_memory, parted, separable

STEPS = 4
"""Steps of a sum that go by in one pass over the loop along memory: its results are loaded and stored once for all."""


def turned(draft: Draft, names: tuple[str, ...], only: tuple[str, ...] = ()) -> Draft:
    """A part's inner loops taken apart and put in the best order, as far as dependences allow; itself if they are.

    What waits in one order may come apart in another, so that statements that share a nest are turned together first.
    `only`: the nest of these statements, and nothing else.
    """
    own = only or names
    for name in own:
        draft = _towards_memory(draft, names, name, together=True)
    draft = _apart(draft, names, own)
    for name in own:
        draft = _towards_memory(draft, names, name, together=False)
    return draft


def nest_of(draft: Draft, names: tuple[str, ...], name: str) -> tuple[str, ...]:
    """The statements of the perfect nest that this one is the first of, inside the part's outermost loop."""
    top = _own(draft, names, name)
    return () if top is None else statements(top)


def _apart(draft: Draft, names: tuple[str, ...], own: tuple[str, ...]) -> Draft:
    """Loops inside the outermost one distributed over their parts, innermost first, where nothing runs back."""
    while True:
        tree = part_of(draft.tree, names[0])
        inside = parts(tree.body) if isinstance(tree, Loop) else ()
        mine = inside if own == names else tuple(part for part in inside if part.members <= {*own})
        found = next((loop for loop in (_mixed(draft, part) for part in mine) if loop is not None), None)
        if found is None:
            return draft
        draft = draft.do("distribute", statements(found)[0], found.name)


def _mixed(draft: Draft, tree: Tree) -> Loop | None:
    """The innermost loop with several parts that may be taken apart; statements that wait together stay together."""
    for child in children(tree):
        found = _mixed(draft, child)
        if found is not None:
            return found
    if not isinstance(tree, Loop) or not separable(draft, tree):
        return None
    return None if _is_innermost(tree) and waits(draft, tree) else tree


def waits(draft: Draft, loop: Loop) -> bool:
    """True if an iteration of a loop waits for the one before, other than to add to its sum."""
    pairs = tuple(p for p in open_at(draft.nest, draft.tree, loop) if p.kind != "reduction")
    return not is_parallel(loop, pairs)


def innermost(tree: Tree) -> Iterator[Loop]:
    """The loops of a tree that have no loops inside."""
    return (loop for loop in loops(tree) if _is_innermost(loop))


def _is_innermost(loop: Loop) -> bool:
    return not any(isinstance(part, Loop) for part in parts(loop.body))


def _towards_memory(draft: Draft, names: tuple[str, ...], name: str, together: bool) -> Draft:
    """The loop along memory innermost in a perfect nest of several statements, or in one of this statement alone.

    for j: for i: R[j] += A[i, j]    ->  for i (of 4): for j: for i_in: R[j] += A[i, j]
    for j: for k: { S at k = j; R } ->  for k: { for j = k: S; for j: R }
    """
    top = _own(draft, names, name)
    if top is None or (len(statements(top)) > 1) != together:
        return draft
    own = statements(top)
    band = permutable(top, open_at(draft.nest, draft.tree, top))
    along = loop_along_memory(draft, own, band)
    if along is None or along is band[-1]:
        return draft
    draft = draft.do("reorder", name, *(loop.name for loop in band if loop is not along), along.name)
    return parted(draft, own) if together else _stepped(draft, name, along.name)


def _own(draft: Draft, names: tuple[str, ...], name: str) -> Loop | None:
    """The outermost loop of the perfect nest that this statement is the first of, inside the part's outermost loop."""
    around = draft.loops(name)
    own = statements(around[-1]) if around else ()
    if not own or own[0] != name or set(own) == set(names):
        return None
    return next(loop for loop in around if statements(loop) == own)


def _stepped(draft: Draft, name: str, along: str) -> Draft:
    """for k: for j: R[j] += …  ->  for k (of 4): for j: for k_in: R[j] += …, where 4 divides the values of k."""
    steps = draft.loops(name)[-2]
    size = extent(draft.nest, steps)
    if not draft.nest.statement(name).is_reduction or size is None or size % STEPS or size == STEPS:
        return draft
    draft = draft.do("split", name, steps.name, STEPS)
    few = draft.loops(name)[-2].name
    return draft.do("interchange", name, few, along).do("unroll", name, few).do("vectorize", name, along)


ROWS = 16
"""Rows that go side by side: two vectors of float64 and more, so that a division of one hides behind the others'."""

ADJACENT_ROWS = 256
"""The same where neighbouring rows are neighbours in memory: whole vectors, and many before the next line of them."""


def interleaved(draft: Draft, names: tuple[str, ...]) -> Draft:
    """Parallel rows that each wait along the row, a few side by side on vector lanes.

    for i: { p[i] = …; for j: p[i] = f(p[i]) }
    ->  for i (of 16): { for i_in: p[i] = …; for j: for i_in (vector): p[i] = f(p[i]) }
    """
    tree = part_of(draft.tree, names[0])
    for loop in tuple(outermost(draft, tree)):
        if any(waits(draft, inside) for inside in innermost(loop.body)):
            draft = _side_by_side(draft, _rows_of(draft, loop))
    return draft


def _rows_of(draft: Draft, outer: Loop) -> Loop:
    """The loop over rows among the parallel loops that begin here: the innermost one with enough iterations.

    for b < 4: for i < 1000: for j: y[b, i, j] = f(y[b, i, j - 1])   ->   i
    """
    parallel = {
        id(fact.loop) for fact in facts(draft.nest, outer) if fact.parallel and fact.loop.bind is None
    }
    chain = [outer]
    while isinstance(chain[-1].body, Loop) and id(chain[-1].body) in parallel:
        chain.append(chain[-1].body)
    around = [loop for loop in chain if any(loops(loop.body))]
    return next((loop for loop in reversed(around) if (extent(draft.nest, loop) or ROWS) >= ROWS), outer)


TURNS = 8
"""Rows whose steps take turns: enough for a division of one to hide behind those of the others."""


def rows_by_turns(draft: Draft, own: tuple[str, ...]) -> Draft:
    """for i: for k: { T; S }  ->  for i (of 8): for k: for i_in: { T; S }, where rows are parallel and steps wait.

    Below a block of LU's steps a row's step divides what the step before it has changed.
    """
    name = own[0]
    chain = [loop for loop in draft.loops(name) if statements(loop) == own]
    free = {id(fact.loop) for fact in facts(draft.nest, part_of(draft.tree, name)) if fact.parallel}
    if len(chain) < 2 or id(chain[0]) not in free or not waits(draft, chain[1]):
        return draft
    rows, steps = chain[0].name, chain[1].name
    at = [loop.name for loop in draft.loops(name)].index(rows)
    draft = draft.do("split", name, rows, TURNS)
    few = draft.loops(name)[at + 1].name
    return draft.do("reorder", name, rows, steps, few)


def outermost(draft: Draft, tree: Tree) -> Iterator[Loop]:
    """The outermost parallel loops that have loops inside: those without are for vectors."""
    unbound = (f.loop for f in facts(draft.nest, tree) if f.parallel and f.loop.bind is None)
    free = {id(loop) for loop in unbound if extent(draft.nest, loop) != 1}
    return _outermost(tree, free)


def _outermost(tree: Tree, free: set[int]) -> Iterator[Loop]:
    if isinstance(tree, Loop) and id(tree) in free and any(loops(tree.body)):
        yield tree
        return
    for child in children(tree):
        yield from _outermost(child, free)


def _side_by_side(draft: Draft, rows: Loop) -> Draft:
    name = statements(rows)[0]
    jumps = any(far_and_near(draft.nest, s, dims_of(date))[0] for s, date in rows.dates)
    draft = draft.do("split", name, rows.name, ROWS if jumps else ADJACENT_ROWS)
    around = draft.loops(name)
    few = around[[loop.name for loop in around].index(rows.name) + 1]
    if isinstance(few.body, Sequence):
        draft = draft.do("distribute", name, few.name)
    for own in (statements(part) for part in parts(few.body)):
        first = own[0]
        chain = [loop for loop in draft.loops(first) if statements(loop) == own]
        inside = [loop.name for loop in chain if loop.name != few.name]
        if inside and _is_innermost(chain[-1]) and waits(draft, chain[-1]):
            draft = draft.do("reorder", first, *inside, few.name)
    return draft


def jammed(draft: Draft, names: tuple[str, ...]) -> Draft:
    """A few iterations of the outermost loop in one pass over the loops along memory: unroll and jam.

    What stays in place from row to row is loaded and stored once for all of them (Callahan, Cocke & Kennedy,
    "Estimating interlock and improving balance for pipelined architectures", 1988).

    for i: { t[i] = 0; for j: t[i] += A[i, j]; for j: y[j] += A[i, j] }
    ->  for i (of 4): { for i_in: t[i] = 0; for j: for i_in: t[i] += …; for j: for i_in: y[j] += … }
    """
    tree = part_of(draft.tree, names[0])
    if not isinstance(tree, Loop):
        return draft
    size = extent(draft.nest, tree)
    if size is None or size % STEPS or size == STEPS:
        return draft
    name = names[0]
    split = draft.do("split", name, tree.name, STEPS)
    few = split.loops(name)[1]
    if isinstance(few.body, Sequence):
        if not separable(split, few):
            return draft
        split = split.do("distribute", name, few.name)
    done = split
    for own in (statements(part) for part in parts(few.body)):
        done = _jammed_nest(done, own, few.name)
    return draft if done is split else done


def _jammed_nest(draft: Draft, own: tuple[str, ...], few: str) -> Draft:
    """for i_in: for j: S  ->  for j: for i_in (unrolled): S, where the loops inside stand around all statements."""
    chain = [loop for loop in draft.loops(own[0]) if statements(loop) == own]
    behind = [loop.name for loop in chain].index(few) + 1
    inside = [loop.name for loop in chain[behind:]]
    if not inside or not _is_innermost(chain[-1]):
        return draft
    draft = draft.do("reorder", own[0], *inside, few).do("unroll", own[0], few)
    return draft.do("vectorize", own[0], inside[-1])
