"""Run a nest on copies of its inouts, and read first values where the caller has them.

    inout A: A[i] = b * A[i];  …      ->      input A;  A_now[i] = b * A[i];  …

A gradient changes no array of its caller. What a read finds in the copy is in the caller's array, too, if only the
copy wrote it; there it stays, so that no derivative has to keep it.
"""

from __future__ import annotations

from dataclasses import replace

from polyfuse.ir import Access, Nest, Statement
from polyfuse.ir.nest import own_loops
from polyfuse.ir.scalar import read
from polyfuse.ir.tree import restrict, sequence
from polyfuse.rewrite.gradient.draft import Draft, element, onto


def on_copies(nest: Nest) -> tuple[Nest, dict[str, str]]:
    """Run a nest on copies of its inouts: return the nest, and by which name each output's last value goes.

    inout A   ->   input A;  A_now[i] = A[i];  … A_now …
    """
    draft = Draft(nest)
    working: dict[str, str] = {}
    copies: dict[str, Statement] = {}
    for tensor in nest.with_role("inout"):
        made = draft.tensor(f"{tensor.name}_now", tensor.shape, tensor.dtype, "output")
        working[tensor.name] = made.name
        domain = draft.elements(tensor)
        source = [element(domain, tensor.name)]
        copy = draft.statement(
            f"copy_{tensor.name}", domain, element(domain, made.name), "=", source, read(0)
        )
        copies[made.name] = copy
    last = {t.name: working.get(t.name, t.name) for t in nest.outputs}
    if not working:
        return nest, last
    moved = tuple(
        replace(
            s,
            write=onto(s.write, working.get(s.write.tensor, s.write.tensor)),
            reads=tuple(onto(a, working.get(a.tensor, a.tensor)) for a in s.reads),
        )
        for s in nest.statements
    )
    tensors = [replace(t, role="input") if t.name in working else t for t in nest.tensors]
    order = sequence((*map(own_loops, copies.values()), nest.order))
    on = replace(
        nest,
        tensors=(*tensors, *draft.tensors.values()),
        statements=(*copies.values(), *moved),
        order=order,
    )
    return _without_idle(_with_first_values(on, copies), copies), last


def _with_first_values(nest: Nest, copies: dict[str, Statement]) -> Nest:
    """Reads of copies whose values all come from there, as reads of what was copied."""
    flows = [pair for pair in nest.dependences().pairs if pair.is_value]

    def first(s: Statement, access: Access) -> bool:
        """True if a read finds nothing that another statement wrote."""
        for pair in flows:
            source = nest.statement(pair.source)
            if (
                pair.sink == s.name
                and source.write.tensor == access.tensor
                and source.name != copies[access.tensor].name
            ):
                same = source.write.map.apply_range(access.map.reverse())
                if not pair.map.intersect(same).is_empty():
                    return False
        return True

    def moved(s: Statement, access: Access) -> Access:
        if access.tensor not in copies or not first(s, access):
            return access
        return onto(access, copies[access.tensor].reads[0].tensor)

    every = tuple(replace(s, reads=tuple(moved(s, a) for a in s.reads)) for s in nest.statements)
    return replace(nest, statements=every)


def _without_idle(nest: Nest, copies: dict[str, Statement]) -> Nest:
    """The nest without copies that nobody reads and that are overwritten wherever they are."""
    idle = {copy.name for copy in copies.values() if _is_idle(nest, copy)}
    if not idle:
        return nest
    order = restrict(nest.order, frozenset(nest.order.names) - idle)
    assert order is not None, "what overwrites a copy is left"
    return replace(nest, statements=tuple(s for s in nest.statements if s.name not in idle), order=order)


def _is_idle(nest: Nest, copy: Statement) -> bool:
    if any(pair.is_value for pair in nest.dependences().after(copy.name)):
        return False
    left = nest.domains[copy.name].apply(copy.write.map)
    for s in nest.writers(copy.write.tensor):
        if s.name != copy.name and not s.is_reduction:
            left = left.subtract(nest.domains[s.name].apply(s.write.map))
    return bool(left.is_empty())
