"""Run a nest: a statement with loops of its own in one step, interleaved loops in the order of their dates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from polyfuse.errors.proving import proving
from polyfuse.interpret.affine_grid import Ints, chunks
from polyfuse.interpret.interleaved import interleaved
from polyfuse.interpret.oracle_arguments import Array, memory_of, named_arrays, solve_sizes
from polyfuse.interpret.state import CHUNK, UFUNCS, Run, State
from polyfuse.ir import Nest
from polyfuse.ir.given import nest_given
from polyfuse.ir.tensor import complex_of
from polyfuse.ir.tree import Sequence as Siblings
from polyfuse.ir.tree import statements


@proving("interpret")
def interpret(
    nest: Nest,
    inputs: Mapping[str, Any] | Sequence[Any],
    sizes: Mapping[str, int] | None = None,
) -> dict[str, Array]:
    """Run a nest in its original order, with NumPy.

    Elements that are never written come back as NaN (integers: the smallest). A sum's rounding may differ from a
    sequential loop's: terms of a reduction that stands alone are added pairwise, in the tensor's own precision.

    Args:
        nest: The nest.
        inputs: Arrays by name, or in the order of nest.inputs; constants may be overridden by name. They are not
            changed.
        sizes: Values of symbolic sizes that no input's shape determines.

    Returns:
        The arrays of outputs and inouts by name.

    Raises:
        BadArgument: if an array is missing or has the wrong shape or element type, or a size is unknown.
    """
    arrays = named_arrays(nest_given("interpret", nest), inputs)
    found = solve_sizes(nest, arrays, sizes or {})
    state = State(nest, found, memory_of(nest, arrays, found))
    with np.errstate(all="ignore"):
        for part in nest.order.children if isinstance(nest.order, Siblings) else (nest.order,):
            runs = [Run(state, nest.statement(name)) for name in statements(part)]
            if len(runs) == 1 and runs[0].stands_alone:
                at_once(runs[0])
            else:
                interleaved(runs, part)
    return {tensor.name: complex_of(tensor, state.memory[tensor.name]) for tensor in nest.outputs}


def at_once(run: Run) -> None:
    """Run all instances of a statement that stands alone, some millions at a time."""
    for at in chunks(run.domain, run.state.sizes, CHUNK):
        reads = [run.read(access, at)[...] for access in run.statement.reads]
        value = np.broadcast_to(run.function([*reads, *run.numbers(at)]), at.shape)
        where = run.elements(run.statement.write, at)
        if run.statement.is_reduction:
            accumulate(run, where, value)
        else:
            run.target[np.broadcast_to(where, at.shape).ravel()] = run.stored(value).ravel()


def accumulate(run: Run, where: Ints, value: Array) -> None:
    """target[where] op= value: first along the axes on which `where` does not depend, then element by element."""
    ufunc = UFUNCS[run.statement.op]
    where = where.reshape([1] * (value.ndim - where.ndim) + list(where.shape))
    axes = tuple(axis for axis, size in enumerate(value.shape) if where.shape[axis] == 1 and size > 1)
    terms = ufunc.reduce(value, axis=axes, keepdims=True) if axes else value
    ufunc.at(run.target, where.ravel(), terms.astype(run.target.dtype, copy=False).ravel())
