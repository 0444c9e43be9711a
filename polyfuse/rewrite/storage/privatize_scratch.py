"""Privatize an array of the caller that iterations use as scratch, and copy out its last values.

    for r: { T[p] = 0; T[p] += A[r, s] * C[s, p]; A[r, p] = T[p] }
    ->  for r: { t[r, p] = 0; t[r, p] += A[r, s] * C[s, p]; A[r, p] = t[r, p]; if r is the last: T[p] = t[r, p] }

A temporary is expanded (expansion.py); what a caller passes has to end up as it would have, and the memory that it
brings along is what keeps the iterations in order. The theorem. Where every value that is read of T was written by the
nest, T may be a temporary t, which expands as temporaries do. Let d(e) be the last iteration of the loops around that
writes T[e]. What T[e] ends up as is what t holds for e when d(e) ends, so that a copy then and there keeps it. This is
what OpenMP calls lastprivate (Tu and Padua, "Automatic array privatization", 1993, section 2, live-out arrays).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import reduce

import islpy as isl

from polyfuse.errors import IllegalRewrite, ValidationFailure
from polyfuse.errors.proving import proving
from polyfuse.errors.refusals import Refusal
from polyfuse.ir import Access, Instance, Nest, Statement, Tensor
from polyfuse.ir.dependences import earlier, relation_of
from polyfuse.ir.fresh_names import fresh
from polyfuse.ir.nest import own_loops
from polyfuse.ir.scalar import read
from polyfuse.ir.tree import Loop, Tree, date_map, loops_around, parts, replace_node, sequence
from polyfuse.rewrite.recorded import recorded
from polyfuse.rewrite.refusal import refused
from polyfuse.rewrite.storage.expansion import Expansion, expand
from polyfuse.sets import IN, OUT, SET, dimension, on_domain, point_of, sets_of


@dataclass(frozen=True)
class Scratch:
    """The result of `scratch`.

    Attributes:
        nest: The new nest.
        tensor: The caller's array.
        private: The private temporary.
        loops: The loops to whose iterations it is private.
        copy: The statement that copies the last values out.
    """

    nest: Nest
    tensor: str
    private: str
    loops: tuple[str, ...]
    copy: str

    def __str__(self) -> str:
        each = f"an iteration of {', '.join(self.loops)}, as {self.private}"
        return f"{self.tensor} is private to {each}, and {self.copy} keeps what it ends as"


@proving("the rewrite scratch")
def scratch(nest: Nest, tensor: str) -> Scratch:
    """Privatize an array of the caller that serves as scratch, and copy out its last values.

    for r: { T = …; … = T }  ->  for r: { t[r] = …; … = t[r]; if r is the last: T = t[r] }

    Args:
        nest: The nest.
        tensor: The tensor's name.

    Returns:
        The new nest; values and the array's final contents stay the same.

    Raises:
        IllegalRewrite: if `why_not_scratch` returns a reason.
    """
    done = tried(nest, tensor)
    if isinstance(done, Refusal):
        raise IllegalRewrite(done)
    return done


@proving("the question why_not_scratch")
def why_not_scratch(nest: Nest, tensor: str) -> Refusal | None:
    """Return the reason why an array cannot be privatized, with an instance that reads the caller's values.

    Args:
        nest: The nest.
        tensor: The tensor's name.

    Returns:
        The reason; None if the rewrite is legal.
    """
    done = tried(nest, tensor)
    return done if isinstance(done, Refusal) else None


def is_reused(nest: Nest, tensor: str) -> bool:
    """True if elements of a caller's array are written more than once, other than by accumulation; a cheap test."""
    assigns = [s for s in nest.writers(tensor) if not s.is_reduction]
    if nest.tensor(tensor).role not in ("output", "inout") or not assigns:
        return False
    return len(assigns) > 1 or not _elements(assigns[0], assigns[0].write).is_injective()


def is_inside_a_loop(nest: Nest, tensor: str) -> bool:
    """True if a loop is around all statements that use an array: without one `scratch` is refused; a cheap test."""
    users = [s.name for s in nest.statements if tensor in (s.write.tensor, *(a.tensor for a in s.reads))]
    outermost = [next(iter(loops_around(nest.order, name)), None) for name in users]
    return bool(outermost) and outermost[0] is not None and all(loop is outermost[0] for loop in outermost)


@recorded("scratch")
def tried(nest: Nest, tensor: str) -> Scratch | Refusal:
    """Return the result of `scratch`, or the reason of `why_not_scratch`."""
    call = f"scratch({tensor!r})"
    if not is_reused(nest, tensor):
        return refused(
            call, f"no loop overwrites {tensor} repeatedly", "an array that the nest reuses as scratch"
        )
    exposed = _exposed(nest, tensor)
    if exposed is not None:
        name, sizes, point = exposed
        why, remedy = (
            f"{name} reads the caller's values of {tensor}",
            "a tensor that is written before it is read",
        )
        return Refusal(call, why, remedy, (Instance(name, point),), sizes)
    alone = _with_temporary(nest, tensor)
    expanded = expand(alone, only=(own := alone.tensors[-1].name,))
    found = [each for each in expanded.expansions if each.tensor == own]
    if len(found) != 1 or not found[0].loops:
        why = "; ".join(each.why for each in found) or "no value is overwritten before its last use"
        return refused(call, why, "values that live within one iteration of a loop around all their uses")
    return _kept(nest, tensor, expanded.nest, found[0])


def _exposed(nest: Nest, tensor: str) -> tuple[str, dict[str, int], tuple[int, ...]] | None:
    """An instance that reads an element of the array, or adds to it, before any has assigned it, and its sizes."""
    writers = [s for s in nest.writers(tensor) if not s.is_reduction]
    assigned = relation_of((s, s.write) for s in writers)
    for s in nest.statements:
        used = [access for access in s.reads if access.tensor == tensor]
        if s.write.tensor == tensor and s.is_reduction:
            used.append(s.write)
        # all pairs of 30 statements' dates took isl ten times as long
        dates = nest.dates_of({s.name, *(writer.name for writer in writers)}) if used else None
        for access in used:
            reads = relation_of([(s, access)]).intersect_params(nest.context)
            assert dates is not None, "an array that is used has writers"
            for left in sets_of(reads.domain().subtract(earlier(assigned, reads, dates).range())):
                found = point_of(left)
                if found is not None:
                    return s.name, *found
    return None


def _with_temporary(nest: Nest, tensor: str) -> Nest:
    """The nest with a temporary, its last tensor, for the array: nothing is left in the caller's."""
    known = nest.tensor(tensor)
    own = Tensor(
        fresh(f"{tensor}_own", {t.name for t in nest.tensors}), known.shape, known.dtype, "temporary"
    )

    def moved(access: Access) -> Access:
        return (
            Access(own.name, access.map.set_tuple_name(OUT, own.name)) if access.tensor == tensor else access
        )

    changed = tuple(
        replace(s, write=moved(s.write), reads=tuple(map(moved, s.reads))) for s in nest.statements
    )
    return nest.rewritten((*nest.tensors, own), changed, nest.order, frozenset({tensor, own.name}))


def _kept(nest: Nest, tensor: str, expanded: Nest, made: Expansion) -> Scratch:
    """The expanded nest with a copy of what the array ends as, in the last iteration that writes each element."""
    writers = [s.name for s in nest.writers(tensor)]
    every = loops_around(expanded.order, writers[0])
    around = every[: 1 + max(p for p, loop in enumerate(every) if loop.name in made.loops)]
    moments = {name: [loop.date(name) for loop in around] for name in writers}
    # { [values of the loops around] -> T[element] } of all writes, and the last of them for each element
    written = [
        date_map(nest.domains[name], moments[name]).reverse().apply_range(nest.statement(name).write.map)
        for name in writers
    ]
    last = reduce(isl.Map.union, written).reverse().lexmax().reverse()
    name = fresh(f"keep_{tensor}", {s.name for s in nest.statements})
    domain = _named(last.wrap().flatten().coalesce(), name, around)
    element = isl.Map.identity(domain.get_space().map_from_set()).project_out(OUT, 0, len(around))
    element = element.reset_tuple_id(OUT).set_tuple_name(OUT, tensor)
    copy = Statement(
        name, domain, Access(tensor, element), "=", (_source(expanded, made, moments, domain),), read(0)
    )
    order = _behind(expanded.order, around, copy)
    place = max(expanded.statements.index(expanded.statement(each)) for each in around[-1].members) + 1
    every_one = (*expanded.statements[:place], copy, *expanded.statements[place:])
    result = expanded.rewritten(expanded.tensors, every_one, order, frozenset({tensor, made.into}))
    loops = tuple(loop.name for loop in around if loop.name in made.loops)
    return Scratch(_checked(nest, result, copy), tensor, made.into, loops, name)


def _named(domain: isl.Set, name: str, around: tuple[Loop, ...]) -> isl.Set:
    """The set as a statement's domain: its dimensions are the loops around, then the element's."""
    domain = domain.set_tuple_name(name)
    for d in range(domain.dim(SET)):
        own = around[d].name if d < len(around) else f"e{d - len(around)}"
        domain = domain.set_dim_name(SET, d, own)
    return domain


def _source(expanded: Nest, made: Expansion, moments: dict[str, list[isl.PwAff]], domain: isl.Set) -> Access:
    """Return the access to the private array at given values of the loops around, where the writers stored it."""
    found = []
    for name, dates in moments.items():
        private = expanded.statement(name).write.map
        element = private.project_out(OUT, 0, len(made.loops)).reset_tuple_id(OUT)
        here = date_map(expanded.domains[name], dates).flat_range_product(element)
        found.append(here.reverse().apply_range(private))
    source = reduce(isl.Map.union, found).set_tuple_name(IN, domain.get_tuple_name()).coalesce()
    return Access(made.into, on_domain(source, source.domain()))


def _behind(order: Tree, around: tuple[Loop, ...], copy: Statement) -> Tree:
    """The order with the copy at the end of each iteration of the innermost of some loops."""
    own = own_loops(copy)
    for _ in around:
        assert isinstance(own, Loop)
        own = own.body
    body = sequence((*parts(around[-1].body), own))
    for position, loop in reversed(list(enumerate(around))):
        dates = (*loop.dates, (copy.name, dimension(copy.domain, position)))
        new = Loop(loop.name, dates, body)
        body = (
            replace_node(around[position - 1].body, loop, new) if position else replace_node(order, loop, new)
        )
    return body


def _elements(s: Statement, access: Access) -> isl.Map:
    """{ instance -> element } on a statement's instances."""
    return access.map.intersect_domain(s.domain)


def _checked(before: Nest, after: Nest, copy: Statement) -> Nest:
    """The nest after, if values come from where they came from, and each written element is kept once, at its end."""
    old, new = before.dependences(), after.dependences()
    copies = isl.UnionSet.from_set(copy.domain)
    flow = new.flow.subtract_range(copies)
    if not (flow.is_equal(old.flow) and new.reduction.is_equal(old.reduction)):
        raise ValidationFailure(f"scratch of {before.name} changed its flow: {old.flow} became {new.flow}")
    kept = _elements(copy, copy.write)
    written = relation_of((s, s.write) for s in before.writers(copy.write.tensor))
    written = written.intersect_params(before.context).range()
    if not (kept.is_injective() and isl.UnionSet.from_set(kept.range()).is_equal(written)):
        raise ValidationFailure(
            f"scratch of {before.name} keeps {kept.range()}, which is not what it writes: {written}"
        )
    fed = isl.UnionSet.from_set(copy.domain).is_subset(new.flow.intersect_range(copies).range())
    if not fed or not new.flow.intersect_domain(copies).is_empty():
        raise ValidationFailure(
            f"scratch of {before.name} keeps values that nothing wrote, or feeds others with them"
        )
    after.check()
    return after
