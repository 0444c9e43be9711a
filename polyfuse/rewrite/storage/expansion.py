"""Privatisation and expansion: give each live range of a reused temporary its own memory.

    for i: { s = 0;    for j: s += A[i, j];       y[i] = s }
    for i: { s[i] = 0; for j: s[i] += A[i, j];    y[i] = s[i] }           s is private to an iteration of i

The theorem. Let p be dates of loops around all uses of a temporary T, such that p(w) = p(r) for every flow pair
w -> r through T (and every reduction pair). Then T[e] may become T'[p, e]: a read r of T'[p(r), e] finds the last
write to e among those w with p(w) = p(r). The last write to e before r was one of these, so it still is the last.
Anti and output dependences between different p are gone. The result is checked: its flow must be the flow before.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import reduce

import islpy as isl

from polyfuse.errors import ValidationFailure
from polyfuse.errors.proving import proving
from polyfuse.ir import Access, Nest, Statement, Tensor
from polyfuse.ir.dependences import Pairs, access_relations, dependences, split
from polyfuse.ir.empty import drop_empty
from polyfuse.ir.sizes import extent_text
from polyfuse.ir.tree import Loop, date_map, dates, loops_around, restrict
from polyfuse.rewrite.recorded import recorded
from polyfuse.rewrite.storage.webs import Web, webs
from polyfuse.sets import OUT, maps_of, pairs_where


@dataclass(frozen=True)
class Expansion:
    """The expansion of one live range of a temporary.

    Attributes:
        tensor: The temporary.
        into: The new tensor.
        loops: The loops to whose iterations it is private.
        shape: The new tensor's shape.
        why: The reason for the expansion, or for none.
    """

    tensor: str
    into: str
    loops: tuple[str, ...]
    shape: tuple[int | str, ...]
    why: str

    def __str__(self) -> str:
        if not self.loops and self.into == self.tensor:
            return f"{self.tensor} stays as it is: {self.why}"
        shape = ", ".join(map(str, self.shape))
        return f"{self.tensor} becomes {self.into}[{shape}]: {self.why}"


@dataclass(frozen=True)
class Expanded:
    """The result of `expand`.

    Attributes:
        nest: The new nest.
        expansions: The expansions of every temporary that is written more than once.
    """

    nest: Nest
    expansions: tuple[Expansion, ...]

    def __str__(self) -> str:
        return "\n".join(map(str, self.expansions)) or "no temporary is written more than once"


@dataclass(frozen=True)
class _Dimension:
    """A new dimension: the loop it stands for, where its values begin, and how many there are."""

    loop: Loop
    start: isl.PwAff
    extent: int | str


@dataclass(frozen=True)
class _Place:
    """The new tensor of one web."""

    web: Web
    tensor: Tensor
    dims: tuple[_Dimension, ...]
    why: str


@recorded("expand")
@proving("the rewrite expand")
def expand(nest: Nest, only: Iterable[str] | None = None) -> Expanded:
    """Expand and rename temporaries to remove anti and output dependences (Feautrier 1988).

    for i: { s = …; … = s }  ->  for i: { s[i] = …; … = s[i] }        (s is private to an iteration of i)
    s = …; … = s; s = …; … = s  ->  s = …; … = s; s_2 = …; … = s_2    (two live ranges share only the name)

    Values, statements, domains and the order stay the same. A schedule's `promote` contracts the new dimensions again.

    Args:
        nest: The nest.
        only: The temporaries to expand; all by default.

    Returns:
        The new nest.

    Raises:
        ValidationFailure: if the result's flow differs from the nest's: a compiler bug.
    """
    wanted = {t.name for t in nest.with_role("temporary")}
    names = [t.name for t in nest.tensors if t.name in wanted and (only is None or t.name in set(only))]
    places: list[_Place] = []
    for name in names:
        if _written_again(nest, name):
            places += _places(
                nest, nest.tensor(name), {t.name for t in nest.tensors} | {p.tensor.name for p in places}
            )
    reports = tuple(
        Expansion(p.web.tensor, p.tensor.name, tuple(d.loop.name for d in p.dims), p.tensor.shape, p.why)
        for p in places
    )
    changed = [p for p in places if p.dims or p.tensor.name != p.web.tensor]
    if not changed:
        return Expanded(nest, reports)
    return Expanded(_checked(nest, _rewritten(nest, places), places), reports)


def _written_again(nest: Nest, tensor: str) -> bool:
    assigns = [s for s in nest.statements if s.write.tensor == tensor and not s.is_reduction]
    if len(assigns) != 1:
        return len(assigns) > 1
    (only,) = assigns
    return not only.write.map.intersect_domain(nest.domains[only.name]).is_injective()


def _places(nest: Nest, tensor: Tensor, taken: set[str]) -> list[_Place]:
    places: list[_Place] = []
    for web in webs(nest, tensor.name):
        name = tensor.name if not places else _free(tensor.name, taken)
        taken.add(name)
        places.append(_place(nest, tensor, web, name))
    return places


def _free(name: str, taken: set[str]) -> str:
    return next(made for n in range(2, len(taken) + 3) if (made := f"{name}_{n}") not in taken)


def _place(nest: Nest, tensor: Tensor, web: Web, name: str) -> _Place:
    split = "" if name == tensor.name else f"it shares nothing with {tensor.name} but the name"

    def stays(why: str) -> _Place:
        return _Place(web, replace(tensor, name=name), (), f"{split}; {why}" if split else why)

    common = _common_loops(nest, web)
    private = [loop for loop in common if all(_agrees(loop, pair) for pair in web.flow)]
    apart = [loop for loop in private if _tells_apart(nest, web, loop)]
    useful = [loop for loop in apart if not loop.reuse]
    if not apart and not false_pairs(nest, web):
        return stays("no value is overwritten before its last use")
    if not useful:
        shared = ", ".join(loop.name for loop in apart)
        why = f"the iterations of {shared} are to use the same memory"
        return stays(why if apart else _why_not(common, private, web))
    dims = [made for loop in useful if (made := _dimension(nest, web, loop)) is not None]
    if not dims:
        return stays(f"the extent of {', '.join(x.name for x in useful)} is not affine in the sizes")
    loops = ", ".join(d.loop.name for d in dims)
    why = f"its values live within one iteration of {loops}" + (f"; {split}" if split else "")
    shape = (*(d.extent for d in dims), *tensor.shape)
    return _Place(web, replace(tensor, name=name, shape=shape), tuple(dims), why)


@recorded("expand_temporaries")
def expand_temporaries(nest: Nest) -> Expanded:
    """Remove the dependences that memory alone makes, and statements that never run: `expand` with symbolic sizes.

    What holds for all sizes is quicker to find than what holds for some; the sizes become numbers again afterwards.
    """
    general, sizes = nest.general
    expanded = expand(drop_empty(general))
    if expanded.nest is general:
        return replace(expanded, nest=nest)
    return replace(expanded, nest=expanded.nest.with_sizes(sizes)) if sizes else expanded


def false_pairs(nest: Nest, web: Web) -> tuple[Pairs, ...]:
    """The anti and output pairs among the uses of a web that are not flow: what its memory alone forbids.

    Asked of the web by itself: in the nest, the writes of other webs lie in between and hide some.
    """
    accesses = access_relations(
        map(nest.statement, web.readers), map(nest.statement, web.writers), {web.tensor}
    )
    order = restrict(nest.order, frozenset(web.statements))
    assert order is not None, "a web has a writer"
    found = dependences(accesses, dates(order, nest.domains))
    true = found.flow.union(found.reduction)
    relations = (("anti", found.anti), ("output", found.output))
    return tuple(split(kind, pair) for kind, all_ in relations for pair in maps_of(all_.subtract(true)))


def _why_not(common: list[Loop], private: list[Loop], web: Web) -> str:
    if not common:
        return "no loop is around all its uses"
    carried = next((loop for loop in common if loop not in private), None)
    if carried is None:
        return "no loop around all its uses distinguishes its live ranges"
    pair = next(pair for pair in web.flow if not _agrees(carried, pair))
    return f"loop {carried.name} carries its value from {pair.source} to {pair.sink}"


def _common_loops(nest: Nest, web: Web) -> list[Loop]:
    paths = [loops_around(nest.order, name) for name in web.statements]
    return [first for first, *rest in zip(*paths, strict=False) if all(loop is first for loop in rest)]


def _agrees(loop: Loop, pair: Pairs) -> bool:
    """True if source and sink are always in the same iteration of a loop."""
    return bool(pair.map.is_subset(pairs_where(loop.date(pair.source), "=", loop.date(pair.sink))))


def _tells_apart(nest: Nest, web: Web, loop: Loop) -> bool:
    """True if iterations of a private loop write one element: then an anti or output pair goes between them.

    for i: { s = …; … = s }      { s[] -> i } is no function: S[0] and S[1] write s

    Of two such writes the next one after the first is in a later iteration, or the one after that, and flow never is.
    Each read has its write in its own iteration, so writes say it all.
    """
    uses = (
        nest.statement(name).write.map.intersect_domain(nest.domains[name]).reverse()
        .apply_range(date_map(nest.domains[name], [loop.date(name)]))
        for name in web.writers
    )  # fmt: skip
    return not reduce(isl.Map.union, uses).is_single_valued()


def _dimension(nest: Nest, web: Web, loop: Loop) -> _Dimension | None:
    """The dimension for a loop; None if its extent cannot be written as the extent of a tensor."""
    ranges = [date_map(nest.domains[name], [loop.date(name)]).range() for name in web.writers]
    values = ranges[0]
    for other in ranges[1:]:
        values = values.union(other)
    values = values.coalesce()
    least, most = values.dim_min(0), values.dim_max(0)
    zero = isl.PwAff.val_on_domain(isl.Set.universe(least.get_domain_space()), isl.Val(0))
    # indices that are natural numbers keep their value: s[k] for k >= 1 rather than s[k - 1]
    start = zero if least.lt_set(zero).is_empty() and least.is_cst() else least
    extent = extent_text(most.sub(start).add_constant_val(isl.Val(1)).gist(nest.context))
    begins = extent_text(start.gist(nest.context))
    return None if extent is None or begins is None else _Dimension(loop, start, extent)


def _rewritten(nest: Nest, places: list[_Place]) -> Nest:
    """The nest in which every web of the places lives in its own tensor."""
    touched = _touched(places)
    changed = tuple(
        _moved(nest, s, own) if (own := [p for p in places if s.name in p.web.statements]) else s
        for s in nest.statements
    )
    tensors: list[Tensor] = []
    for tensor in nest.tensors:
        tensors += (
            [p.tensor for p in places if p.web.tensor == tensor.name] if tensor.name in touched else [tensor]
        )
    return nest.rewritten(tuple(tensors), changed, nest.order, touched)


def _touched(places: Iterable[_Place]) -> frozenset[str]:
    """The temporaries of some places, before and after."""
    return frozenset(name for place in places for name in (place.web.tensor, place.tensor.name))


def _moved(nest: Nest, s: Statement, places: list[_Place]) -> Statement:
    def moved(access: Access, users: str) -> Access:
        for place in places:
            if place.web.tensor == access.tensor and s.name in getattr(place.web, users):
                return _access(s, access, place)
        return access

    return replace(s, write=moved(s.write, "writers"), reads=tuple(moved(a, "readers") for a in s.reads))


def _access(s: Statement, access: Access, place: _Place) -> Access:
    element = access.subscripts()
    everywhere = isl.Set.universe(s.domain.get_space())
    parts: list[isl.PwAff | int] = []
    for dim in place.dims:
        date = dim.loop.date(s.name)
        parts.append(date.sub(dim.start.insert_domain(date.get_domain_space())))
    parts += [element.get_pw_aff(d) for d in range(access.map.dim(OUT))]
    return Access(place.tensor.name, date_map(everywhere, parts).set_tuple_name(OUT, place.tensor.name))


def _checked(before: Nest, after: Nest, places: Iterable[_Place]) -> Nest:
    """The nest after, if every value comes from where it came from before, inside of its tensors."""
    old, new = before.dependences(), after.dependences()
    if not (new.flow.is_equal(old.flow) and new.reduction.is_equal(old.reduction)):
        raise ValidationFailure(f"expansion of {before.name} changed its flow: {old.flow} became {new.flow}")
    after.check(_touched(places))
    return after
