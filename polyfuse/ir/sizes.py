"""Symbolic sizes: inferred from arrays, fixed to numbers, written as the extents of tensors.

    extent ::= integer | size | extent + extent | extent - extent | integer * extent | floor((extent)/integer)

which is isl's notation and, with `floor` known, Python's.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import reduce

import islpy as isl
import sympy

from polyfuse.errors import BadArgument
from polyfuse.ir.access import Access
from polyfuse.ir.empty import drop_empty
from polyfuse.ir.nest_data import AnyNest, NestData
from polyfuse.ir.scalar import substitute
from polyfuse.ir.statement import Statement
from polyfuse.ir.tensor import Tensor
from polyfuse.ir.tree import Loop, Tree, children, restrict, with_children
from polyfuse.ir.whole import is_whole
from polyfuse.sets import PARAM, fix_params, unmet

Sizes = Mapping[str, int]


def extent(size: int | str, sizes: Sizes) -> int:
    """A tensor's extent in numbers; a negative one is 0, as in `range`.

    >>> extent("floor((N)/2)", {"N": 7}), extent("2 * N + 1", {"N": 3}), extent("N - 2", {"N": 1})
    (3, 7, 0)
    """
    return size if isinstance(size, int) else max(0, _value(size, sizes))


def _value(text: str, sizes: Sizes) -> int:
    return int(eval(text, {"__builtins__": {}, "floor": math.floor}, dict(sizes)))


def solved(shapes: Iterable[tuple[int | str, int]], known: Sizes) -> dict[str, int]:
    """The sizes that (extent as text, extent in numbers) pairs determine, beyond those known.

    An extent with one unknown size, in which it is linear, says what it is; a size that no extent says is left out.

    >>> solved([("M + N", 9), ("2 * N + 1", 7)], {})
    {'N': 3, 'M': 6}
    """
    found = dict(known)
    open_ = [(text, actual) for text, actual in shapes if isinstance(text, str)]
    progress = True
    while progress:
        progress = False
        for text, actual in open_:
            unknown = [name for name in _names(text) if name not in found]
            if len(unknown) != 1:
                continue
            value = _solve(text, unknown[0], actual, found)
            if value is not None:
                found[unknown[0]] = value
                progress = True
    return found


def _names(text: str) -> tuple[str, ...]:
    code = compile(text, "<extent>", "eval")
    return tuple(name for name in code.co_names if name != "floor")


def _solve(text: str, name: str, actual: int, known: Sizes) -> int | None:
    at = [_value(text, {**known, name: value}) for value in (0, 1, 2)]
    slope = at[1] - at[0]
    if slope == 0 or at[2] - at[1] != slope or "floor" in text:
        return None
    return (actual - at[0]) // slope


def extent_text(value: isl.PwAff) -> int | str | None:
    """A function of sizes alone as an extent; None if it has several pieces.

    >>> extent_text(isl.PwAff("[N] -> { [] -> [(floor(N/3) - 1)] }"))
    'floor((N)/3) - 1'
    """
    pieces = value.get_pieces()
    if len(pieces) != 1:
        return None
    text = _aff_text(pieces[0][1])
    return int(text) if text.lstrip("-").isdigit() else text


def _aff_text(aff: isl.Aff) -> str:
    scale = aff.get_denominator_val()

    def scaled(coefficient: isl.Val) -> int:
        return int(coefficient.mul(scale).to_python())

    terms: list[tuple[int, str | None]] = []
    for p in range(aff.dim(PARAM)):
        terms.append((scaled(aff.get_coefficient_val(PARAM, p)), str(aff.get_dim_name(PARAM, p))))
    for k in range(aff.dim(isl.dim_type.div)):
        factor = scaled(aff.get_coefficient_val(isl.dim_type.div, k))
        if factor:  # an integer division's own text has all of them in its space, unused
            terms.append((factor, _aff_text(aff.get_div(k))))
    terms.append((scaled(aff.get_constant_val()), None))
    text = _sum_text([(factor, name) for factor, name in terms if factor])
    return text if scale.is_one() else f"floor(({text})/{scale.to_python()})"


def _sum_text(terms: list[tuple[int, str | None]]) -> str:
    text = ""
    for factor, name in terms:
        size = abs(factor)
        part = str(size) if name is None else name if size == 1 else f"{size} * {name}"
        sign = "-" if factor < 0 else "+" if text else ""
        text += f" {sign} {part}" if text else f"{sign}{part}"
    return text or "0"


LARGEST = 2**40
"""A size at most: with factors of up to 2**20 (ir/check.py), index arithmetic cannot leave 64 bits."""


def check_names(nest: NestData, sizes: Sizes) -> None:
    """BadArgument for a size that the nest does not have."""
    unknown = [name for name in sizes if name not in nest.params]
    if unknown:
        raise BadArgument(
            f"the nest {nest.name} has no size {', '.join(unknown)}; its sizes are {', '.join(nest.params) or 'none'}"
        )


def check_sizes(nest: NestData, sizes: Sizes) -> None:
    """BadArgument, naming the assumption that fails, for sizes that the context does not allow, or beyond 2**40.

    So are those that are not integers.
    """
    for name, value in sizes.items():
        if not is_whole(value):
            raise BadArgument(f"the size {name} is {value!r}, expected an integer")
        if abs(value) > LARGEST:
            raise BadArgument(
                f"the size {name} is {value}, beyond 2**40: index arithmetic could leave 64 bits"
            )
    if sizes and fix_params(nest.context, dict(sizes)).is_empty():
        failing = unmet(nest.context, dict(sizes)) or "together, they"
        raise BadArgument(
            f"sizes {dict(sizes)} are outside of what the nest allows: {failing} does not hold; "
            f"its context is {nest.context}"
        )


def with_sizes(nest: AnyNest, sizes: Sizes) -> AnyNest:
    """The same program for fixed sizes: domains, accesses, dates, shapes and bodies with numbers in their place.

    A size that the caller passes as an integer argument stays in the context, as the one value it may have.
    Raises BadArgument for a size that the nest does not have, and for values its context does not allow.
    """
    check_names(nest, sizes)
    check_sizes(nest, sizes)
    context = fix_params(nest.context, dict(sizes))
    for name in (t.name for t in nest.inputs if t.rank == 0 and t.name in sizes):
        context = context.intersect(isl.Set(f"[{name}] -> {{ : {name} = {sizes[name]} }}"))
    new = drop_empty(
        replace(
            nest,
            tensors=tuple(_tensor(t, sizes) for t in nest.tensors),
            statements=tuple(_statement(s, sizes) for s in nest.statements),
            order=_order(nest.order, sizes),
            context=context,
        )
    )
    before, known = nest.general
    known = {**known, **sizes}
    new.__dict__["general"] = narrowed(before, known), known
    return new


def narrowed(nest: AnyNest, sizes: Sizes) -> AnyNest:
    """Return the nest without what never runs at some sizes: statements, and pieces of domains that other sizes have.

    if N == M: S  else: T      { T : N < M or N > M } at N = 4, M = 6   ->   T alone, in the context N < M

    The context loses other sizes only. isl's questions take as many steps as domains have pieces, twice.
    """
    context, domains = nest.context, dict[str, isl.Set]()
    for s in nest.statements:
        every = nest.domains[s.name].get_basic_sets()
        pieces = [p for p in map(isl.Set.from_basic_set, every) if not fix_params(p, dict(sizes)).is_empty()]
        if not pieces:
            continue
        domains[s.name] = s.domain
        if len(pieces) < len(every):
            domains[s.name] = reduce(isl.Set.union, pieces)
            context = _within(context, domains[s.name].params(), sizes)
    order = restrict(nest.order, frozenset(domains))
    if order is None or (order is nest.order and context is nest.context):
        return nest
    kept = (s for s in nest.statements if s.name in domains)
    statements = tuple(s if domains[s.name] is s.domain else replace(s, domain=domains[s.name]) for s in kept)
    return replace(nest, statements=statements, order=order, context=context)


def _within(context: isl.Set, allowed: isl.Set, sizes: Sizes) -> isl.Set:
    """The context with some sizes alone, if they are one polyhedron and all that is fixed to `sizes` stays."""
    narrower = context.intersect(allowed.coalesce()).coalesce()
    known = dict(sizes)
    same = fix_params(context, known).is_subset(fix_params(narrower, known))
    return narrower if same and narrower.n_basic_set() == 1 else context


def _tensor(tensor: Tensor, sizes: Sizes) -> Tensor:
    shape = tuple(_extent(size, sizes) for size in tensor.shape)
    below = tuple(limit.with_extents(lambda size: _extent(size, sizes)) for limit in tensor.below)
    return replace(tensor, shape=shape, below=below)


def at_sizes(value: isl.PwAff, sizes: Sizes) -> isl.PwAff:
    """A function with numbers for some of its sizes."""
    relation = value.as_map()
    for name, number in sizes.items():
        at = relation.find_dim_by_name(PARAM, name)
        if at >= 0:
            relation = relation.fix_val(PARAM, at, isl.Val(number)).project_out(PARAM, at, 1)
    return isl.PwMultiAff.from_map(relation).get_pw_aff(0)


def _extent(size: int | str, sizes: Sizes) -> int | str:
    if isinstance(size, int) or not any(name in sizes for name in _names(size)):
        return size
    names = ", ".join(dict.fromkeys(_names(size)))
    value = isl.PwAff(f"[{names}] -> {{ [] -> [({size})] }}")
    fixed = extent_text(at_sizes(value, sizes))
    assert fixed is not None, "an extent has one piece"
    return fixed


def _statement(s: Statement, sizes: Sizes) -> Statement:
    numbers: dict[sympy.Basic, sympy.Basic] = {sympy.Symbol(n): sympy.Integer(v) for n, v in sizes.items()}
    return replace(
        s,
        domain=fix_params(s.domain, dict(sizes)),
        write=_access(s.write, sizes),
        reads=tuple(_access(a, sizes) for a in s.reads),
        body=substitute(s.body, numbers),
    )


def _access(access: Access, sizes: Sizes) -> Access:
    relation = access.map
    for name, value in sizes.items():
        at = relation.find_dim_by_name(PARAM, name)
        if at >= 0:
            relation = relation.fix_val(PARAM, at, isl.Val(value)).project_out(PARAM, at, 1)
    return replace(access, map=relation)


def _order(tree: Tree, sizes: Sizes) -> Tree:
    below = with_children(tree, tuple(_order(child, sizes) for child in children(tree)))
    if not isinstance(below, Loop):
        return below
    return replace(below, dates=tuple((name, at_sizes(date, sizes)) for name, date in below.dates))
