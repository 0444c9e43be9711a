"""Running a nest: a statement that stands alone at once, everything else instance by instance."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import islpy as isl
import numpy as np

from polyfuse.interpret.affine import Ints, Points, chunks, values
from polyfuse.interpret.arguments import Array, memory_of, named_arrays, solve_sizes
from polyfuse.interpret.body import Function, function_of
from polyfuse.ir import Access, Nest, Statement
from polyfuse.ir.tensor import computed_in
from polyfuse.ir.tree import Loop, Tree, depth, path_to, statements
from polyfuse.ir.tree import Sequence as Siblings

CHUNK = 1 << 21
"""Points of a statement's bounding box that are evaluated at once: 16 MB an array of float64."""

UFUNCS: Mapping[str, np.ufunc] = {"+=": np.add, "*=": np.multiply, "max=": np.maximum, "min=": np.minimum}
NONE = np.empty(0, np.int64)


def interpret(
    nest: Nest,
    inputs: Mapping[str, Any] | Sequence[Any],
    sizes: Mapping[str, int] | None = None,
) -> dict[str, Array]:
    """What the nest computes, run in its original order: outputs and inouts by name.

    `inputs` are arrays by name, or in the order of nest.inputs; constants may be given other values by name. The
    caller's arrays are never changed. `sizes` are needed for symbolic sizes that no input's shape says. Elements that
    are never written come back as NaN (integers: the smallest). A sum's rounding may differ from a sequential loop's:
    where a reduction stands alone its terms are added pairwise, in the tensor's own precision.

    BadArgument if an array is missing or has the wrong shape or element type, or a size is unknown.
    """
    arrays = named_arrays(nest, inputs)
    found = solve_sizes(nest, arrays, sizes or {})
    state = State(nest, found, memory_of(nest, arrays, found))
    with np.errstate(all="ignore"):
        for part in nest.order.children if isinstance(nest.order, Siblings) else (nest.order,):
            runs = [Run(state, nest.statement(name)) for name in statements(part)]
            if len(runs) == 1 and runs[0].stands_alone:
                at_once(runs[0])
            else:
                one_by_one(runs, part)
    return {tensor.name: state.memory[tensor.name] for tensor in nest.outputs}


@dataclass(frozen=True)
class State:
    """A nest with numbers for its sizes and arrays for its tensors."""

    nest: Nest
    sizes: Mapping[str, int]
    memory: Mapping[str, Array]


@dataclass(frozen=True)
class Run:
    """A statement with the arrays it touches."""

    state: State
    statement: Statement

    @cached_property
    def domain(self) -> isl.Set:
        """The statement's instances, within the context."""
        return self.state.nest.domains[self.statement.name]

    @cached_property
    def target(self) -> Array:
        """The elements it writes, as a vector."""
        return self.vector(self.statement.write)

    @cached_property
    def function(self) -> Function:
        """The body as a function of its reads, its dimensions and the sizes, in this order."""
        names = [f"read{k}" for k in range(len(self.statement.reads))]
        names += [*self.statement.dims, *self.state.sizes]
        return function_of(self.statement.body, {name: k for k, name in enumerate(names)})

    @property
    def stands_alone(self) -> bool:
        """Whether its instances can run in any order: it reads nothing it writes, and assigns no element twice."""
        s = self.statement
        if any(access.tensor == s.write.tensor for access in s.reads):
            return False
        return s.is_reduction or s.write.map.intersect_domain(self.domain).is_injective()

    def vector(self, access: Access) -> Array:
        """A tensor's elements in row-major order (a view)."""
        return self.state.memory[access.tensor].reshape(-1)

    def at(self, access: Access, position: Any) -> Any:
        """Elements by their position in `vector`, as values in a body: those of a half are float32 numbers."""
        found = self.vector(access)[position]
        return found.astype(np.float32) if self.state.nest.tensor(access.tensor).is_half else found

    def stored(self, value: Any) -> Any:
        """A body's value as the target holds it, but for its format: for a half, a float32 number."""
        half = self.state.nest.tensor(self.statement.write.tensor).is_half
        return np.asarray(value).astype(np.float32) if half else value

    def elements(self, access: Access, at: Points) -> Ints:
        """The position in `vector` that each point's access touches."""
        subscripts = access.subscripts()
        position = np.asarray(0, np.int64)
        for d, size in enumerate(self.state.memory[access.tensor].shape):
            position = position * size + values(subscripts.get_pw_aff(d), at)
        return position

    def numbers(self, at: Points) -> list[Any]:
        """The dimensions and sizes as the body's numbers: in the target's own precision, if that is a float."""
        dtype = np.dtype(computed_in(self.state.nest.tensor(self.statement.write.tensor).dtype))
        dtype = dtype if dtype.kind == "f" else np.dtype(np.int64)
        used = {symbol.name for symbol in self.statement.body.free_symbols}
        dims = [
            d.astype(dtype) if name in used else d
            for name, d in zip(self.statement.dims, at.dims, strict=True)
        ]
        return [*dims, *self.state.sizes.values()]


def at_once(run: Run) -> None:
    """Run all instances of a statement that stands alone, some millions at a time."""
    for at in chunks(run.domain, run.state.sizes, CHUNK):
        reads = [run.at(access, run.elements(access, at)) for access in run.statement.reads]
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


def one_by_one(runs: Sequence[Run], tree: Tree) -> None:
    """Run the instances of statements whose loops interleave, in the order of their dates."""
    every = [instances(run) for run in runs]
    dates = np.concatenate([dates_of(run, tree, at) for run, at in zip(runs, every, strict=True)])
    counts = [at.shape[0] for at in every]
    owners = np.repeat(np.arange(len(runs)), counts).tolist()
    rows = np.concatenate([np.arange(count) for count in counts]).tolist()
    steps = [step(run, at) for run, at in zip(runs, every, strict=True)]
    for instance in np.lexsort(dates.T[::-1]).tolist():
        steps[owners[instance]](rows[instance])


def instances(run: Run) -> Points:
    """All instances of a statement, as vectors."""
    parts = [at.flat() for at in chunks(run.domain, run.state.sizes, CHUNK)]
    columns = [np.concatenate([NONE, *(at.dims[d] for at in parts)]) for d in range(len(run.statement.dims))]
    return Points(tuple(columns), run.state.sizes, sum(at.shape[0] for at in parts))


def dates_of(run: Run, tree: Tree, at: Points) -> Ints:
    """When each point runs: one row a point, ordered lexicographically, padded with zeros to the tree's depth."""
    name = run.statement.name
    found = np.zeros((at.shape[0], depth(tree) + 1), np.int64)
    for column, node in enumerate(path_to(tree, name)):
        match node:
            case Loop():
                found[:, column] = values(node.date(name), at)
            case Siblings():
                found[:, column] = next(
                    k for k, child in enumerate(node.children) if name in statements(child)
                )
    return found


def step(run: Run, at: Points) -> Callable[[int], None]:
    """What runs the instance at one row of `at`."""

    def rows(column: Ints) -> list[int]:
        return [int(v) for v in np.broadcast_to(column, at.shape)]

    reads = [(access, rows(run.elements(access, at))) for access in run.statement.reads]
    where, target = rows(run.elements(run.statement.write, at)), run.target
    dims = list(zip(*run.numbers(at)[: len(at.dims)], strict=True))
    sizes = tuple(run.state.sizes.values())
    combine = UFUNCS.get(run.statement.op)

    def execute(row: int) -> None:
        point = dims[row] if dims else ()
        value = run.function([*(run.at(access, at_row[row]) for access, at_row in reads), *point, *sizes])
        element = where[row]
        target[element] = run.stored(value) if combine is None else combine(target[element], value)

    return execute
