"""The verb `affine`: give statements a new order at once.

Every statement gets a vector of dates, as in Kelly & Pugh, "A unifying framework for iteration reordering
transformations" (1995); the vectors are compared lexicographically:

    S[t, i] at [t, 2t + i, 0]     R[t, i] at [t, 2t + i + 1, 1]
    ->  for t: for i: { S[t, i - 2t]; R[t, i - 2t - 1] }

A position at which statements have different constants is a sequence; any other position is a loop.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import islpy as isl

from polyfuse.errors import InvalidSchedule
from polyfuse.ir.fresh_names import fresh
from polyfuse.ir.nest import Nest
from polyfuse.ir.tree import (
    Leaf,
    Loop,
    Sequence,
    Tree,
    date_map,
    loops,
    loops_around,
    path_to,
    replace_node,
    sequence,
    statements,
    walk,
)
from polyfuse.sets import IN, OUT, dim_names, first_pair, greatest

Vectors = Mapping[str, tuple[isl.PwAff, ...]]


def affine(nest: Nest, tree: Tree, texts: Mapping[str, str]) -> Tree:
    """for t: { for i: S; for i: R }  ->  for t: for i: { S at i; R at i + 1 }, by the statements' dates."""
    if not texts:
        raise InvalidSchedule("affine: give at least one statement its dates")
    for name in texts:
        if name not in statements(tree):
            raise InvalidSchedule(
                f"affine: unknown statement {name!r}; expected one of {', '.join(statements(tree))}"
            )
    vectors = {name: _vector(nest, name, texts[name]) for name in statements(tree) if name in texts}
    parent, old = _place(tree, frozenset(texts))
    for loop in (x for part in old for x in loops(part)):
        if loop.bind is not None or loop.buffers:
            raise InvalidSchedule(
                f"affine: loop {loop.name} is bound or holds a buffer; give the dates first"
            )
    around = {x.name for x in path_to(tree, next(iter(texts))) if isinstance(x, Loop)}
    outside = around - {x.name for part in old for x in loops(part)}
    new = _tree(vectors, 0, outside)
    if parent is None:
        done = replace_node(tree, old[0], new)
    else:
        kept = tuple(new if child is old[0] else child for child in parent.children if child not in old[1:])
        done = replace_node(tree, parent, sequence(kept))
    for name in texts:
        _one_date_each(nest, done, name)
    return done


def _one_date_each(nest: Nest, tree: Tree, name: str) -> None:
    """{ S[i, k] -> [i] } has S[0, 0] and S[0, 1] at one date: which of them runs first is not said."""
    when = date_map(nest.domains[name], [loop.date(name) for loop in loops_around(tree, name)])
    if when.is_injective():
        return
    found = first_pair(
        when.apply_range(when.reverse()).subtract(isl.Map.identity(when.get_space().domain().map_from_set()))
    )
    assert found is not None, "two instances share a date"
    raise InvalidSchedule(
        f"affine: {name}{list(found[1])} and {name}{list(found[2])} share all dates; give them one more"
    )


def _vector(nest: Nest, name: str, text: str) -> tuple[isl.PwAff, ...]:
    """A statement's dates from their text in its dimensions and sizes."""
    domain = nest.domains[name]
    params = ", ".join(nest.params)
    try:
        relation = isl.Map(f"[{params}] -> {{ {name}[{', '.join(dim_names(domain))}] -> {text} }}")
        dates = isl.PwMultiAff.from_map(relation)
    except isl.Error as error:
        raise InvalidSchedule(
            f"affine: cannot read the dates {text!r} of {name}: expected [expression, …] in "
            f"{', '.join(dim_names(domain)) or 'constants'}"
        ) from error
    return tuple(dates.get_pw_aff(d) for d in range(dates.dim(OUT)))


def _place(tree: Tree, names: frozenset[str]) -> tuple[Sequence | None, tuple[Tree, ...]]:
    """The outermost node with exactly these statements; or neighbours in a sequence that hold them together."""
    for node in walk(tree):
        own = statements(node)
        if set(own) == names:
            return None, (node,)
        if isinstance(node, Sequence):
            inside = [p for p, child in enumerate(node.children) if names & set(statements(child))]
            chosen = tuple(node.children[p] for p in inside)
            held = {name for child in chosen for name in statements(child)}
            if held == names and inside == list(range(inside[0], inside[-1] + 1)):
                return node, chosen
    raise InvalidSchedule(
        f"affine: {', '.join(sorted(names))} are not all the statements of one loop, nor of neighbours in a sequence"
    )


def _tree(vectors: Vectors, depth: int, taken: set[str]) -> Tree:
    if all(len(dates) == depth for dates in vectors.values()):
        names = tuple(vectors)
        if len(names) > 1:
            pair = " and ".join(names[:2])
            raise InvalidSchedule(f"affine: {pair} share all dates; end them with different constants")
        return Leaf(names[0])
    for name, dates in vectors.items():
        if len(dates) == depth:
            raise InvalidSchedule(
                f"affine: the dates of {name} end where those of others go on; give it one more"
            )
    fixed = {name: _number(dates[depth]) for name, dates in vectors.items()}
    values = sorted({value for value in fixed.values() if value is not None})
    if len(values) > 1 and None not in fixed.values():
        groups = ({n: v for n, v in vectors.items() if fixed[n] == value} for value in values)
        return sequence(tuple(_tree(group, depth + 1, taken) for group in groups))
    name = fresh(_loop_name(vectors, depth, taken), taken)
    dates = tuple((statement, vector[depth]) for statement, vector in vectors.items())
    return Loop(name, dates, _tree(vectors, depth + 1, {*taken, name}))


def _number(date: isl.PwAff) -> int | None:
    """The value of a constant date."""
    value = greatest(date) if date.is_cst() else None
    return int(value.to_python()) if value is not None and value.is_int() else None


def _loop_name(vectors: Vectors, depth: int, taken: set[str]) -> str:
    """The dimension that a loop steps through: the innermost that a date depends on and no loop outside is called."""
    found = sorted((d for d in _dims(vectors, depth)), key=len)
    new = [dims[-1] for dims in found if dims[-1] not in taken]
    return new[0] if new else found[0][-1] if found else "once"


def _dims(vectors: Vectors, depth: int) -> Iterator[tuple[str, ...]]:
    for dates in vectors.values():
        date = dates[depth]
        used = [d for d in range(date.dim(IN)) if date.involves_dims(IN, d, 1)]
        if used:
            yield tuple(date.get_dim_name(IN, d) or f"d{d}" for d in used)
