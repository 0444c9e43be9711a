"""Which tensors a derivative passes through, and what a caller may ask for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from polyfuse.errors import BadArgument
from polyfuse.ir import Nest, Statement, Tensor
from polyfuse.ir.number_types import is_real
from polyfuse.ir.scalar import read
from polyfuse.rewrite.gradient.adjoint_bodies import pull
from polyfuse.rewrite.gradient.lifetimes import Lifetimes
from polyfuse.rewrite.gradient.shifts import still

GIVEN = ("input", "inout", "constant")

Names = str | Sequence[str] | None


def chosen_inputs(call: str, nest: Nest, given: Names) -> tuple[str, ...]:
    """The tensors to differentiate by; by default all inputs of floating-point numbers."""
    allowed = [t for t in nest.with_role(*GIVEN) if is_real(t.dtype)]
    if given is None:
        given = tuple(t.name for t in allowed if t.role != "constant")
    return _chosen(call, nest, "wrt", given, allowed, "an input or a constant")


def chosen_outputs(call: str, nest: Nest, given: Names) -> tuple[str, ...]:
    """The results to differentiate; by default all of floating-point numbers."""
    allowed = [t for t in nest.outputs if is_real(t.dtype)]
    if given is None:
        given = tuple(t.name for t in allowed)
    return _chosen(call, nest, "outputs", given, allowed, "an output")


def _chosen(
    call: str, nest: Nest, option: str, given: str | Sequence[str], allowed: Sequence[Tensor], kind: str
) -> tuple[str, ...]:
    names = (given,) if isinstance(given, str) else tuple(given)
    known = {t.name: t for t in nest.tensors}
    expected = f"expected names of {', '.join(t.name for t in allowed) or 'nothing: the nest has none'}"
    for name in names:
        if name not in known:
            raise BadArgument(f"{call}: {option} has {name!r}, which is no tensor of {nest.name}; {expected}")
        if known[name] not in allowed:
            what = "integers have no derivative" if "int" in known[name].dtype else f"it is not {kind}"
            raise BadArgument(f"{call}: {option} has {known[name]}: {what}; {expected}")
    if len(set(names)) != len(names):
        raise BadArgument(f"{call}: {option} names a tensor twice: {', '.join(names)}")
    if not names and not allowed:
        these = ", ".join(map(str, nest.inputs if option == "wrt" else nest.outputs)) or "none at all"
        what = "input" if option == "wrt" else "output"
        raise BadArgument(
            f"{call}: {nest.name} has no {what} of floating-point numbers, and others have no derivative: {these}"
        )
    if not names:
        raise BadArgument(f"{call}: {option} is empty: there is nothing to differentiate; {expected}")
    return names


def derived_reads(s: Statement) -> tuple[int, ...]:
    """The positions of the reads by which a statement's value has a derivative."""
    known: tuple[int, ...] | None = s.answers.get(("derived reads",))
    if known is None:
        known = tuple(sorted(leaf.position for leaf in pull(s.body, read(len(s.reads)))))
        s.answers["derived reads",] = known
    return known


def active(nest: Nest, wrt: Iterable[str], outputs: Iterable[str]) -> frozenset[str]:
    """The tensors that depend on `wrt` and that `outputs` depend on, through derivatives.

    A maximum that is subtracted to no effect is not among them.
    """
    outputs = tuple(outputs)
    passive = still(nest, outputs, Lifetimes(nest))
    edges = [(s.reads[k].tensor, s.write.tensor) for s in nest.statements for k in derived_reads(s)]
    edges += [(t.gather.table, t.name) for t in nest.with_role("gathered") if t.gather is not None]
    floats = {t.name for t in nest.tensors if is_real(t.dtype)}
    edges = [(a, b) for a, b in edges if a in floats and b in floats and b not in passive]
    return _reached(wrt, edges) & _reached(outputs, [(b, a) for a, b in edges])


def _reached(start: Iterable[str], edges: Sequence[tuple[str, str]]) -> frozenset[str]:
    found = set(start)
    while new := {b for a, b in edges if a in found} - found:
        found |= new
    return frozenset(found)
