"""isl helpers, with the direction of each relation in words and a literal example."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from math import prod
from threading import current_thread, main_thread
from types import FrameType
from typing import Any, Literal, TypeVar

import islpy as isl

R = TypeVar("R")
U = TypeVar("U", isl.UnionSet, isl.UnionMap)
Fixed = TypeVar("Fixed", isl.Set, isl.Map)

IN, OUT, PARAM, SET = isl.dim_type.in_, isl.dim_type.out, isl.dim_type.param, isl.dim_type.set

_NOTATION = "and or not exists implies mod floor ceil floord ceild min max rat int true false infty NaN inf"
WORDS = frozenset(_NOTATION.split(" "))
"""Words of isl's notation, which printed nests could not tell from names."""


def numbered(text: str, numbers: Mapping[str, int]) -> str:
    """Return isl's text with numbers in place of tuple names.

    >>> numbered("{ mac0[i, k] -> x[i, k] : 0 <= i < N }", {"mac0": 0, "x": 1})
    '{ #0[i, k] -> #1[i, k] : 0 <= i < N }'
    """
    return re.sub(r"\b(\w+)\[", lambda found: f"#{numbers.get(found[1], found[1])}[", text)


def union_set(sets: Iterable[isl.Set]) -> isl.UnionSet:
    """The union of sets of any spaces.

    >>> print(union_set([isl.Set("{ A[i] : i = 0 }"), isl.Set("{ B[] }")]).is_empty())
    False
    """
    every = [isl.UnionSet.from_set(one) for one in sets]
    return _halved(every) if every else isl.UnionSet("{ }")


def union_map(maps: Iterable[isl.Map]) -> isl.UnionMap:
    """The union of maps of any spaces.

    >>> union_map([isl.Map("{ A[i] -> B[i] }"), isl.Map("{ A[i] -> C[i] }")]).n_map()
    2
    """
    every = [isl.UnionMap.from_map(one) for one in maps]
    return _halved(every) if every else isl.UnionMap("{ }")


def _halved(parts: list[U]) -> U:
    """The union of the unions of both halves: isl copies what it adds to, which one by one is a square of copies."""
    while len(parts) > 1:
        last = parts[-1:] if len(parts) % 2 else []
        parts = [one.union(other) for one, other in zip(parts[::2], parts[1::2], strict=False)] + last
    return parts[0]


def maps_of(relation: isl.UnionMap) -> list[isl.Map]:
    """The maps of a union, one per pair of spaces, in a fixed order (by their text).

    >>> [str(m) for m in maps_of(isl.UnionMap("{ B[] -> A[]; A[] -> B[] }"))]
    ['{ A[] -> B[] }', '{ B[] -> A[] }']
    """
    found: list[isl.Map] = []
    relation.foreach_map(found.append)
    return sorted(found, key=str)


def sets_of(union: isl.UnionSet) -> list[isl.Set]:
    """The sets of a union, one per space, in a fixed order (by their text)."""
    found: list[isl.Set] = []
    union.foreach_set(found.append)
    return sorted(found, key=str)


def coalesced(relation: isl.UnionMap) -> isl.UnionMap:
    """Return a relation in fewer pieces, in isl's normal form.

    What isl leaves after subtracting and coalescing (islpy 2026.2.2) may be simplified further, which its scheduler and
    its lexmin do in place: { S[j, k] -> S[j, k - 2] : j mod 3 = 2 and (N + 3k) mod 6 = 3 and j < N } then lost both
    conditions, for all who hold the relation. Intersecting it with all sizes simplifies it at once.
    """
    every_size = isl.Set("{ : }")
    return union_map(one.intersect_params(every_size) for one in _by_names(relation.coalesce()))


def tuple_names(relation: isl.Map) -> tuple[str, str]:
    """The names of a map's two tuples.

    >>> tuple_names(isl.Map("{ S[i] -> T[i] }"))
    ('S', 'T')
    """
    return relation.get_tuple_name(IN) or "", relation.get_tuple_name(OUT) or ""


def named(relation: isl.Map, source: str, sink: str) -> isl.Map:
    """The relation with other names of its two tuples; "" stands for none.

    >>> print(named(isl.Map("{ [i] -> [i] }"), "S", "T"))
    { S[i] -> T[i] }
    """
    for side, name in ((IN, source), (OUT, sink)):
        relation = relation.set_tuple_name(side, name) if name else relation.reset_tuple_id(side)
    return relation


class Alike:
    """Answers of isl about pairs of relations, found once for all that differ in the names of their tuples alone.

    >>> alike, maps = Alike(), [isl.Map("{ S[i] -> a[i] }"), isl.Map("{ a[i] -> T[i + 1] }")]
    >>> print(alike.asked(isl.Map.apply_range, *maps))
    { [i] -> [1 + i] }
    >>> other = [named(each, "R", "Q") for each in maps]
    >>> alike.asked(isl.Map.apply_range, *maps) is alike.asked(isl.Map.apply_range, *other)
    True
    """

    def __init__(self) -> None:
        self._bare: dict[int, tuple[isl.Map, isl.Map]] = {}
        self._known: dict[tuple[object, ...], list[isl.Map]] = {}
        self._answers: dict[tuple[object, int, int], isl.Map] = {}

    def nameless(self, relation: isl.Map) -> isl.Map:
        """The relation without names, one object for all that are equal without them."""
        key = id(relation)  # it is kept
        if key not in self._bare:
            self._bare[key] = relation, self._interned(relation.reset_tuple_id(IN).reset_tuple_id(OUT))
        return self._bare[key][1]

    def _interned(self, bare: isl.Map) -> isl.Map:
        dims = ((side, d) for side in (IN, OUT) for d in range(bare.dim(side)))
        key = (
            hash(bare),
            *(bare.get_dim_name(*place) for place in dims),
        )  # isl compares no names of dimensions
        same = self._known.setdefault(key, [])
        found = next((known for known in same if known.plain_is_equal(bare)), None)
        if found is None:
            same.append(bare)
            self._bare[id(bare)] = bare, bare
        return bare if found is None else found

    def asked(self, how: Callable[[isl.Map, isl.Map], isl.Map], one: isl.Map, other: isl.Map) -> isl.Map:
        """Return what a function of isl makes of two relations, without names of tuples."""
        first, second = self.nameless(one), self.nameless(other)
        key = how, id(first), id(second)  # both are kept
        if key not in self._answers:
            self._answers[key] = self._interned(how(first, second))
        return self._answers[key]


def meeting(first: isl.UnionMap, second: isl.UnionMap) -> Iterator[tuple[isl.Map, isl.Map]]:
    """The maps of two relations that may meet: no coordinate of what they share is fixed to two values.

    isl's own composition asks every map of one about every map of the other: 64 slices that are stacked are 64 × 64
    questions, and 64 pairs that meet.

    >>> a = isl.UnionMap("{ A[] -> y[0, 3]; B[] -> y[1, 3] }")
    >>> [(str(m), str(n)) for m, n in meeting(a, a.reverse())]
    [('{ A[] -> y[0, 3] }', '{ y[0, 3] -> A[] }'), ('{ B[] -> y[1, 3] }', '{ y[1, 3] -> B[] }')]
    """
    late: dict[tuple[str, int], list[tuple[isl.Map, list[int | None]]]] = {}
    for other in _by_names(second):
        late.setdefault((tuple_names(other)[0], other.dim(IN)), []).append((other, _fixed(other, IN)))
    for one in _by_names(first):
        values = _fixed(one, OUT)
        for other, known in late.get((tuple_names(one)[1], len(values)), ()):
            if all(a == b or a is None or b is None for a, b in zip(values, known, strict=True)):
                yield one, other


def _by_names(relation: isl.UnionMap) -> list[isl.Map]:
    """The maps of a union, in an order that costs no text."""
    found: list[isl.Map] = []
    relation.foreach_map(found.append)
    return sorted(found, key=tuple_names)


def _fixed(relation: isl.Map, side: isl.dim_type) -> list[int | None]:
    """The value of each coordinate of one side where isl knows at once that it has only one; else None."""
    values = (relation.plain_get_val_if_fixed(side, d) for d in range(relation.dim(side)))
    return [int(value.to_python()) if value.is_int() else None for value in values]


def between(relation: isl.UnionMap, sources: isl.UnionSet, sinks: isl.UnionSet) -> isl.UnionMap:
    """The pairs of a relation whose first is in `sources` and whose second is in `sinks`."""
    return relation.intersect_domain(sources).intersect_range(sinks)


def on_domain(relation: isl.Map, domain: isl.Set) -> isl.Map:
    """Return a function of instances without the constraints that their domain implies.

    On an empty domain it is 0: isl's gist by an empty set is the relation of all pairs, which is no function. Neither
    is what has several values outside of the domain without these constraints, which then stay.

    >>> print(on_domain(isl.Map("{ S[i] -> x[i] : 0 <= i < 4 }"), isl.Set("{ S[i] : 0 <= i < 4 }")))
    { S[i] -> x[i] }
    >>> print(on_domain(isl.Map("{ S[i] -> x[i] }"), isl.Set("{ S[i] : 0 <= i < 0 }")))
    { S[i] -> x[0] }
    """
    if not domain.is_empty():
        simpler = relation.gist_domain(domain)
        return simpler if simpler.is_single_valued() else relation
    zeros = isl.Map.universe(relation.get_space())
    for d in range(relation.dim(OUT)):
        zeros = zeros.fix_val(OUT, d, isl.Val(0))
    return zeros


def mixes_results(relation: isl.Map) -> bool:
    """True if an equation of a function ties two of its results to each other, and gives neither as a sum.

    isl has then written a quotient by one result in terms of another, and takes minutes to find it again.

    >>> mixes_results(isl.Map("{ S[i, j] -> x[a, b] : 49b = 32i + 96j - 96a and 49i + 3j - 98 <= 3a <= 49i + 3j }"))
    True
    >>> mixes_results(isl.Map("{ S[i] -> x[a, b] : 6a + b = i and 0 <= b < 6 }"))
    False
    """
    for part in relation.get_basic_maps():
        for each in part.get_constraints():
            factors = [each.get_coefficient_val(OUT, d) for d in range(relation.dim(OUT))]
            tied = [abs(factor.to_python()) for factor in factors if not factor.is_zero()]
            if each.is_equality() and len(tied) > 1 and 1 not in tied:
                return True
    return False


def dim_names(set_: isl.Set) -> tuple[str, ...]:
    """The names of a set's dimensions; an unnamed one is called by its position.

    >>> dim_names(isl.Set("{ S[i, j] }"))
    ('i', 'j')
    """
    return tuple(set_.get_dim_name(SET, d) or f"d{d}" for d in range(set_.dim(SET)))


def param_names(set_: isl.Set | isl.Map) -> tuple[str, ...]:
    """The names of a set's or map's parameters (the symbolic sizes).

    >>> param_names(isl.Set("[N] -> { S[i] : i < N }"))
    ('N',)
    """
    return tuple(set_.get_dim_name(PARAM, d) for d in range(set_.dim(PARAM)))


def point_of(set_: isl.Set) -> tuple[dict[str, int], tuple[int, ...]] | None:
    """One point of a set, the smallest if it is bounded, as (sizes, coordinates); None if it is empty.

    >>> point_of(isl.Set("[N] -> { S[i, j] : 2 <= i < N and j = i + 1 }"))
    ({'N': 3}, (2, 3))
    """
    if set_.is_empty():
        return None
    fixed = (
        set_.intersect_params(isl.Set.from_point(set_.params().sample_point())) if set_.dim(PARAM) else set_
    )
    if fixed.is_bounded():
        # dimension by dimension: isl_set_lexmin (islpy 2026.2.2) fails on some sets with divs
        for d in range(fixed.dim(SET)):
            fixed = fixed.fix_val(SET, d, _least(fixed, d))
    point = fixed.sample_point()
    sizes = {n: int(point.get_coordinate_val(PARAM, d).to_python()) for d, n in enumerate(param_names(set_))}
    values = tuple(int(point.get_coordinate_val(SET, d).to_python()) for d in range(set_.dim(SET)))
    return sizes, values


def _least(set_: isl.Set, d: int) -> isl.Val:
    """The least value along a dimension of a bounded set with points.

    isl's may lie below them all: where a piece has no point, but would if divs were fractions, it counts too.
    """
    value = set_.dim_min_val(d).ceil()
    while set_.fix_val(SET, d, value).is_empty():
        value = value.add(isl.Val(1))
    return value


def first_pair(relation: isl.Map) -> tuple[dict[str, int], tuple[int, ...], tuple[int, ...]] | None:
    """One pair of a relation as (sizes, first, second); None if there is none.

    >>> first_pair(isl.Map("{ S[i] -> T[j] : i = 4 and j = i + 1 }"))
    ({}, (4,), (5,))
    """
    found = point_of(relation.wrap().flatten())
    if found is None:
        return None
    sizes, values = found
    return sizes, values[: relation.dim(IN)], values[relation.dim(IN) :]


def points(set_: isl.Set) -> Iterator[tuple[int, ...]]:
    """Every integer point of a bounded set without parameters, in lexicographic order.

    >>> list(points(isl.Set("{ S[i, j] : 0 <= i <= j <= 1 }")))
    [(0, 0), (0, 1), (1, 1)]
    """
    found: list[isl.Point] = []
    set_.foreach_point(found.append)
    dims = range(set_.dim(SET))
    return iter(sorted(tuple(int(p.get_coordinate_val(SET, d).to_python()) for d in dims) for p in found))


def constant(space_of: isl.Set, value: int) -> isl.PwAff:
    """The function that is `value` on every point of the set's space."""
    return isl.PwAff.val_on_domain(isl.Set.universe(space_of.get_space()), isl.Val(value))


def dimension(space_of: isl.Set, position: int) -> isl.PwAff:
    """The function that gives dimension `position` of the set's space.

    >>> print(dimension(isl.Set("{ S[i, j] }"), 1))
    { S[i, j] -> [(j)] }
    """
    return isl.PwAff.var_on_domain(isl.LocalSpace.from_space(space_of.get_space()), SET, position)


def dimension_of(value: isl.PwAff, domain: isl.Set) -> int | None:
    """The dimension of a set that a function is on it; None if it is something else.

    >>> dimension_of(isl.PwAff("{ S[i, j] -> [(i + j)] }"), isl.Set("{ S[i, j] : j = 0 <= i < 4 }"))
    0
    """
    own, every = value.intersect_domain(domain), range(domain.dim(SET))
    return next((d for d in every if own.is_equal(dimension(domain, d).intersect_domain(domain))), None)


Comparison = Literal["<", "=", ">"]


@dataclass(frozen=True)
class _Comparisons:
    """Comparisons of two functions, found by identity, or by hash of the functions without names of points."""

    same: dict[tuple[Comparison, int, int], tuple[isl.PwAff, isl.PwAff, isl.Map]] = field(
        default_factory=dict
    )
    alike: dict[tuple[Comparison, int, int], list[tuple[isl.PwAff, isl.PwAff, isl.Map]]] = field(
        default_factory=dict
    )

    def relation(self, first: isl.PwAff, how: Comparison, second: isl.PwAff) -> isl.Map:
        """The pairs of points, of these two functions or of two that are equal but for names."""
        key = how, id(first), id(second)
        if key not in self.same:
            self.same[key] = first, second, self._of_alike(first, how, second)
        return self.same[key][2]

    def _of_alike(self, first: isl.PwAff, how: Comparison, second: isl.PwAff) -> isl.Map:
        one, other = first.reset_tuple_id(IN), second.reset_tuple_id(IN)
        known = self.alike.setdefault((how, hash(one), hash(other)), [])
        found = (r for a, b, r in known if a.plain_is_equal(one) and b.plain_is_equal(other))
        relation = next(found, None)
        if relation is None:
            relation = _pairs_where(one, how, other)
            known.append((one, other, relation))
        for function, side in ((first, IN), (second, OUT)):
            if function.has_tuple_id(IN):
                relation = relation.set_tuple_id(side, function.get_tuple_id(IN))
        return relation


_compared: ContextVar[_Comparisons | None] = ContextVar("compared", default=None)


@contextmanager
def comparing_once() -> Iterator[None]:
    """Compare two functions once inside, whichever statements they belong to.

    isl takes 340 microseconds for two dates with domains of three dimensions (one Zen 3 core), and the proofs of a plan
    compare few dates often. What is known ends here: isl's operations for a plan do not depend on earlier ones.
    """
    before = _compared.set(_Comparisons())
    try:
        yield
    finally:
        _compared.reset(before)


def pairs_where(first: isl.PwAff, how: Comparison, second: isl.PwAff) -> isl.Map:
    """The pairs of points of which a function of the first is less than, equal to, or greater than one of the second.

    >>> print(pairs_where(isl.PwAff("{ S[i] -> [(i)] }"), ">", isl.PwAff("{ T[j] -> [(2j)] }")))
    { S[i] -> T[j] : 2j < i }
    """
    known = _compared.get()
    return _pairs_where(first, how, second) if known is None else known.relation(first, how, second)


def _pairs_where(first: isl.PwAff, how: Comparison, second: isl.PwAff) -> isl.Map:
    match how:
        case "<":
            return first.lt_map(second)
        case "=":
            return first.eq_map(second)
        case ">":
            return first.gt_map(second)


def least(value: isl.PwAff) -> isl.Val:
    """Return the least value of a function, over all sizes too; no number if there is none.

    Asked of its values as a set: isl refuses `min_val` of a function that is a fraction somewhere else.

    >>> least(isl.PwAff("[N] -> { S[i] -> [(i/2)] : N <= i < N + 8 and i mod 2 = 0 and N >= 3 }"))
    Val("2")
    """
    return _values(value).dim_min_val(0)


def greatest(value: isl.PwAff) -> isl.Val:
    """Return the greatest value of a function, over all sizes too; no number if there is none.

    >>> greatest(isl.PwAff("[N] -> { [(N/2)] : 0 <= N < 8 and N mod 2 = 0 }"))
    Val("3")
    """
    return _values(value).dim_max_val(0)


def _values(value: isl.PwAff) -> isl.Set:
    """The values of a function of points, or of sizes alone."""
    if value.get_space().is_map():
        return isl.Map.from_pw_aff(value).range()
    return isl.Set.from_pw_aff(value)


def least_and_most(value: isl.PwAff, points: isl.Set) -> tuple[isl.Val, isl.Val]:
    """The least and the greatest value of a function on a set; no numbers if they depend on sizes or the set is empty.

    >>> least_and_most(isl.PwAff("{ S[i] -> [(i/2)] }"), isl.Set("{ S[i] : 0 <= i <= 8 and i mod 2 = 0 }"))
    (Val("0"), Val("4"))
    """
    values = _values(value.intersect_domain(points))
    return values.dim_min_val(0), values.dim_max_val(0)


Box = tuple[tuple[int, int], ...]
"""The least and the greatest value of each dimension."""


def bounding_box(set_: isl.Set) -> Box | None:
    """The smallest box around a set of known size; None if it is empty.

    >>> bounding_box(isl.Set("{ S[i, j] : 2 <= i < 5 and j = 2i }"))
    ((2, 4), (4, 8))
    """
    if set_.is_empty():
        return None
    ends = ((set_.dim_min_val(d), set_.dim_max_val(d)) for d in range(set_.dim(SET)))
    return tuple((int(low.to_python()), int(high.to_python())) for low, high in ends)


def volume(box: Box | None) -> int:
    """The number of points in a box."""
    return 0 if box is None else prod(high - low + 1 for low, high in box)


def around(one: Box | None, other: Box | None) -> Box | None:
    """The smallest box around two.

    >>> around(((0, 3),), ((5, 6),))
    ((0, 6),)
    """
    if one is None:
        return other
    if other is None:
        return one
    return tuple((min(a, c), max(b, d)) for (a, b), (c, d) in zip(one, other, strict=True))


def bounding_count(set_: isl.Set, sizes: dict[str, int]) -> int:
    """An upper bound on the number of points: the volume of the bounding box, sizes filled in from `sizes`.

    >>> bounding_count(isl.Set("[N] -> { S[i, j] : 0 <= i, j < N }"), {"N": 4})
    16
    """
    return volume(bounding_box(fix_params(set_, sizes)))


def fix_params(set_: Fixed, sizes: Mapping[str, int]) -> Fixed:
    """The set or map with those of its parameters that `sizes` names replaced by numbers.

    >>> print(fix_params(isl.Set("[N] -> { S[i] : 0 <= i < N }"), {"N": 2}))
    { S[i] : 0 <= i <= 1 }
    """
    for name in param_names(set_):
        if name in sizes:
            at = set_.find_dim_by_name(PARAM, name)
            set_ = set_.fix_val(PARAM, at, isl.Val(sizes[name])).project_out(PARAM, at, 1)
    return set_


def unmet(context: isl.Set, sizes: dict[str, int]) -> str:
    """The constraints on sizes that numbers for them break; of several pieces those of each that they break least.

    >>> unmet(isl.Set("[N, M] -> { : N >= 1 and N + 2 <= M }"), {"N": 3, "M": 4})
    'M >= 2 + N'
    >>> unmet(isl.Set("[N, M] -> { : N <= 4 or (M >= 1 and N <= M + 1) }"), {"N": 6, "M": 3})
    'N <= 4 or M >= -1 + N'
    """
    broken: list[tuple[str, ...]] = []
    for piece in context.get_basic_sets():
        alone = (
            isl.Set.from_basic_set(isl.BasicSet.universe(piece.get_space()).add_constraint(c))
            for c in piece.get_constraints()
        )
        failing = (part for part in alone if fix_params(part, sizes).is_empty())
        broken.append(tuple(str(part).partition(":")[2].rstrip("} ").strip() for part in failing))
    least = min(map(len, broken), default=0)
    return " or ".join(dict.fromkeys(" and ".join(texts) for texts in broken if len(texts) == least))


def single_expression(value: isl.PwAff) -> str | None:
    """The right-hand side of a function of one affine piece; None if there are several.

    >>> single_expression(isl.PwAff("{ S[i] -> [(i)] : i >= 0; S[i] -> [(-i)] : i < 0 }"))
    """
    text = expression_text(value)
    return None if ";" in text or " : " in text else text


def expression_text(value: isl.PwAff) -> str:
    """The right-hand side of a function of one affine piece, or isl's text if there are several.

    >>> expression_text(isl.PwAff("[N] -> { S[i] -> [(2*i + N)] }"))
    'N + 2i'
    """
    text = str(value)
    body = text[text.index("{") + 1 : text.rindex("}")].strip()
    if ";" in body or " : " in body:
        return body
    expression = body.split("->")[-1].strip().removeprefix("[").removesuffix("]").strip()
    return expression[1:-1] if expression.startswith("(") and expression.endswith(")") else expression


def merged_pieces(value: isl.PwAff) -> isl.PwAff:
    """A function of several pieces without its domain, if it is the same on all of them; else as it is.

    For a subscript, whose statement runs nowhere else. isl would simplify the function on each of 44 pieces of a
    convolution's copy, and then on their union, which takes it minutes.

    >>> print(merged_pieces(isl.PwAff("{ [i] -> [(2i)] : i < 0; [i] -> [(2i)] : i > 0 }")))
    { [i] -> [(2i)] }
    """
    if value.n_piece() < 2:
        return value
    first, *others = (function for _, function in value.get_pieces())
    return isl.PwAff.from_aff(first) if all(first.plain_is_equal(other) for other in others) else value


@contextmanager
def called_back() -> Iterator[Callable[[Callable[..., R], R | None], Callable[..., R | None]]]:
    """Let isl call back Python functions, each made into `kept(function, failed)`; what one raises is raised here.

    islpy (2026.2.2) loses what a function raises: isl.Error says "<no message>", after a second free of the node in
    some functions, which ends the process. A function that is kept raises nothing. It gives isl `failed` where an
    error is to be reported, and isl stops. Python's own handlers of signals wait until then, Ctrl-C's above all: they
    raise wherever Python code begins, also before the first line of a function that would catch it. A builtin such as
    a list's append runs no Python code and needs none of this.

    >>> def fails(one: isl.Set) -> None:
    ...     raise ValueError(one.get_tuple_name())
    >>> with called_back() as kept:
    ...     isl.UnionSet("{ A[i] }").foreach_set(kept(fails, None))
    Traceback (most recent call last):
    ValueError: A
    """
    raised: list[BaseException] = []
    handlers: dict[int, Callable[[int, FrameType | None], Any]] = {}
    waiting: list[tuple[int, FrameType | None]] = []

    def deliver() -> None:
        while waiting:
            number, frame = waiting.pop(0)
            handlers[number](number, frame)

    def kept(function: Callable[..., R], failed: R | None) -> Callable[..., R | None]:
        def call(*arguments: Any) -> R | None:
            if raised:
                return failed
            try:
                deliver()
                return function(*arguments)
            except BaseException as error:  # noqa: BLE001  # raised again where isl was called
                raised.append(error)
                return failed

        return call

    try:
        for number in signal.valid_signals() if current_thread() is main_thread() else ():
            handler = signal.getsignal(number)
            if callable(handler):
                handlers[number] = handler
                signal.signal(number, lambda *given: waiting.append(given))
        try:
            yield kept
        except isl.Error:
            if not raised:
                raise
    finally:
        for caught, handler in handlers.items():
            signal.signal(caught, handler)
        deliver()
    if raised:
        raise raised[0]
