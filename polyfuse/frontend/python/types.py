"""Infer the element types of local variables from their assignments.

Python's numbers are weak, as they are to NumPy: `s = 0.0` followed by `s += A[i]` has A's type, and float32 where A is
a half, which no arithmetic is done in.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from polyfuse.frontend.python.assignment import Assigned
from polyfuse.ir import DType
from polyfuse.ir.number_types import Type, computed_in, joined


def local_types(found: Sequence[Assigned], given: Mapping[str, DType]) -> dict[str, DType]:
    """The type of every assigned tensor that is not given, in order of first assignment."""
    kinds: dict[str, list[Assigned]] = {}
    for made in found:
        if made.statement.write.tensor not in given:
            kinds.setdefault(made.statement.write.tensor, []).append(made)
    known: dict[str, DType] = dict(given)
    while True:
        found_now = {name: _joined(every, known) for name, every in kinds.items()}
        if all(known.get(name) == dtype for name, dtype in found_now.items()):
            return found_now
        known.update(found_now)


def _joined(every: Sequence[Assigned], known: Mapping[str, DType]) -> DType:
    declared = next((made.declared for made in every if made.declared is not None), None)
    if declared is not None:
        return declared
    types = [computed_in(known[leaf]) for made in every for leaf in made.leaves if leaf in known]
    types += [computed_in(dtype) for made in every for dtype in made.types]
    fractional, integral = any(made.fractional for made in every), any(made.integral for made in every)
    weak: list[Type] = ["fraction"] if fractional else ["integer"] if integral else []
    found = joined([*types, *weak])
    if found == "integer":
        return "int64"
    return "float64" if found == "fraction" else found
