"""Put a derived nest together: the statements that its results need, and the tensors in the order of a call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from polyfuse.ir import Nest, Statement, Tensor
from polyfuse.ir.tree import Tree, restrict


def assembled(
    nest: Nest,
    statements: Mapping[str, Statement],
    tensors: Mapping[str, Tensor],
    order: Tree,
    added: Sequence[str],
    results: Sequence[str],
    name: str,
) -> Nest:
    """Return the nest of some results.

    Args:
        nest: The nest that it is derived from.
        statements: All statements, by name.
        tensors: New tensors, and inputs that a call has to check, by name.
        order: The order of all statements.
        added: New inputs; a call passes them after the nest's own.
        results: The outputs, in the order in which a call returns them.
        name: The new nest's name.

    Returns:
        The checked nest, without statements and temporaries that the results do not need.
    """
    keep = _needed(statements, results)
    kept = restrict(order, keep)
    assert kept is not None, "a result is written"
    used = tuple(statements[one] for one in kept.names)
    touched = {access.tensor for s in used for access in s.accesses}
    known = {**{t.name: t for t in nest.tensors}, **tensors}
    inside = [
        replace(t, role="temporary") if t.role == "output" else t
        for t in known.values()
        if t.role not in ("input", "inout") and t.name not in results
    ]
    ordered = (
        *(known[t.name] for t in nest.tensors if t.role == "input"),
        *(known[one] for one in added),
        *(t for t in inside if t.name in touched or t.role == "constant"),
        *(replace(known[one], role="output") for one in results),
    )
    made = Nest.of(ordered, used, kept, nest.context, nest.constants, name)
    return replace(made, defaults=nest.defaults)


def _needed(statements: Mapping[str, Statement], results: Sequence[str]) -> frozenset[str]:
    """The statements that write some tensors, and all that those read."""
    keep: set[str] = set()
    known = set(results)
    while True:
        new = {s.name for s in statements.values() if s.write.tensor in known} - keep
        if not new:
            return frozenset(keep)
        keep |= new
        known |= {access.tensor for name in new for access in statements[name].reads}
