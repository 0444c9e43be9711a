"""Index-set splitting: split the consumer of a tensor by the statements that write it.

    Y0[i]: y[i] = …                          Y0[i]: y[i] = …;  Y1[i]: y[8 + i] = …
    Y1[i]: y[8 + i] = …            ->        relu_0[i]: z[i] = max(y[i], 0)
    relu[i]: z[i] = max(y[i], 0)             relu_1[i]: z[8 + i] = max(y[8 + i], 0)

A piece has the iterations of its producer, so that the two can share loops (Feautrier, "Array expansion", ICS 1988, and
Griebl, Feautrier & Lengauer, "Index set splitting", IJPP 2000). Pieces of a consumer are producers for the next one, as
far as values go from one instance to one instance. (A reader of views is cut by producer too, but stays where it is and
keeps its own iterations: read_through.py.)

The theorem: the result computes what the nest did if every dependence of the nest still goes forward. Its instances are
those of the nest under other names, o: new instance -> old instance, so that is
{ o⁻¹(source) -> o⁻¹(sink) } being part of the new order's "before", and is checked.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

import islpy as isl

from polyfuse.errors.proving import proving
from polyfuse.ir import Access, Nest, Statement
from polyfuse.ir.fresh_names import fresh
from polyfuse.ir.nest import own_loops
from polyfuse.ir.tree import Tree, parts, sequence, statements
from polyfuse.rewrite.kept_order import turned_round
from polyfuse.rewrite.recorded import recorded
from polyfuse.sets import IN, dim_names, union_map


@dataclass(frozen=True)
class Pieces:
    """The result of `pieces`.

    Attributes:
        nest: The new nest.
        split: The statements into which each one was split.
    """

    nest: Nest
    split: dict[str, tuple[str, ...]]

    def __str__(self) -> str:
        return "; ".join(f"{name} runs in pieces: {', '.join(names)}" for name, names in self.split.items())


@recorded("pieces")
@proving("the rewrite pieces")
def pieces(nest: Nest) -> Pieces:
    """Split pointwise consumers of tensors that several statements write, a piece per writer (index-set splitting).

    Args:
        nest: The nest.

    Returns:
        The new nest, with every legal split.
    """
    known = {s.name: s for s in nest.statements}
    writers = {t.name: nest.writers(t.name) for t in nest.tensors}
    earlier: set[str] = set()
    split: dict[str, tuple[str, ...]] = {}
    origins: dict[str, tuple[str, isl.Map]] = {}
    placed: list[Tree] = []
    for part in parts(nest.order):
        names = statements(part)
        found = _split(nest, known, writers, names[0], earlier) if len(names) == 1 else ()
        if not found:
            placed.append(part)
            earlier.update(names)
            continue
        s = known.pop(names[0])
        writers[s.write.tensor] = (
            *(other for other in writers[s.write.tensor] if other is not s),
            *(piece for piece, _ in found),
        )
        known |= {piece.name: piece for piece, _ in found}
        origins |= {piece.name: (names[0], origin) for piece, origin in found}
        split[names[0]] = tuple(piece.name for piece, _ in found)
        placed += [own_loops(piece) for piece, _ in found]
        earlier.update(split[names[0]])
    order = sequence(tuple(placed))
    result = replace(nest, statements=tuple(known[n] for n in statements(order)), order=order)
    if not split or turned_round(nest, result, _origins(result, origins)) is not None:
        return Pieces(nest, {})
    return Pieces(result, split)


def _split(
    nest: Nest,
    known: Mapping[str, Statement],
    writers: Mapping[str, tuple[Statement, ...]],
    name: str,
    earlier: Collection[str],
) -> tuple[tuple[Statement, isl.Map], ...]:
    """A statement in pieces, each with the instances of the statement that its own are; nothing if it is not to be.

    `writers` are those of each tensor among the `known` statements, `earlier` the names of those that run before.
    """
    s = known[name]
    if s.is_reduction or {symbol.name for symbol in s.body.free_symbols} & set(s.dims):
        return ()
    for access in s.reads:
        producers = writers[access.tensor]
        if len(producers) < 2 or nest.tensor(access.tensor).role != "temporary":
            continue
        if any(x.is_reduction or x.name not in earlier for x in producers):
            continue
        found = _by_producer(nest, s, access, producers, known)
        if found:
            return found
    return ()


def _by_producer(
    nest: Nest, s: Statement, access: Access, writers: tuple[Statement, ...], taken: Collection[str]
) -> tuple[tuple[Statement, isl.Map], ...]:
    """The pieces by the producer of one read; nothing unless each instance has one producer, and that feeds one."""
    left = s.domain.intersect_params(nest.context)
    found: list[tuple[Statement, isl.Map]] = []
    for writer in writers:
        fed = feeds(writer, access).intersect_params(nest.context).intersect_range(left)
        if fed.is_empty():
            continue
        if not (fed.is_injective() and fed.is_single_valued()):
            return ()
        left = left.subtract(fed.range())
        name = fresh(f"{s.name}_{len(found)}", taken)
        found.append((_piece(s, name, writer, fed), fed.set_tuple_name(IN, name)))
    return tuple(found) if len(found) > 1 and left.is_empty() else ()


def feeds(writer: Statement, access: Access) -> isl.Map:
    """{ writer[i] -> reader[j] }: the elements that the one stores and the other reads.

    relu[i] reads y[i], Y1[i] writes y[8 + i]:  { Y1[i] -> relu[8 + i] }.
    """
    return writer.write.map.intersect_domain(writer.domain).apply_range(access.map.reverse())


def _piece(s: Statement, name: str, writer: Statement, fed: isl.Map) -> Statement:
    """Return the statement restricted to one producer's values, over the producer's instances."""
    domain = fed.domain().coalesce()
    for d, dim in enumerate(dim_names(writer.domain)):
        domain = domain.set_dim_name(isl.dim_type.set, d, dim)

    def moved(access: Access) -> Access:
        composed = fed.apply_range(access.map).gist_domain(domain)
        return Access(access.tensor, composed.set_tuple_name(IN, name))

    write, *reads = (moved(access) for access in s.accesses)
    return replace(s, name=name, domain=domain.set_tuple_name(name), write=write, reads=tuple(reads))


def _origins(result: Nest, split: dict[str, tuple[str, isl.Map]]) -> isl.UnionMap:
    """{ new instance -> the instance of the nest that it is }."""
    same = (
        isl.Map.identity(d.get_space().map_from_set()).intersect_domain(d)
        for n, d in result.domains.items()
        if n not in split
    )
    return union_map([*same, *(origin for _, origin in split.values())])
