"""The state of one running statement: its body as a function, and the elements that its points access."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import islpy as isl
import numpy as np
import sympy

from polyfuse.interpret.affine_grid import Ints, Points, values
from polyfuse.interpret.array_body import Function, function_of
from polyfuse.interpret.oracle_arguments import Array
from polyfuse.ir import Access, Nest, Statement
from polyfuse.ir.number_types import computed_in
from polyfuse.ir.scalar import AsType

CHUNK = 1 << 21
"""Points that are evaluated at once: 16 MB an array of float64."""

UFUNCS: Mapping[str, np.ufunc] = {"+=": np.add, "*=": np.multiply, "max=": np.maximum, "min=": np.minimum}


@dataclass(frozen=True)
class State:
    """A nest with numbers for its sizes and arrays for its tensors."""

    nest: Nest
    sizes: Mapping[str, int]
    memory: Mapping[str, Array]


@dataclass(frozen=True)
class Read:
    """A tensor's elements, and which of them each point reads."""

    vector: Array
    at: Ints
    half: bool
    own: bool  # of the tensor that the statement writes

    def __getitem__(self, points: Any) -> Any:
        """The values at some points, as in a body: those of a half are float32 numbers."""
        found = self.vector[self.at[points]]
        return found.astype(np.float32) if self.half else found


@dataclass(frozen=True)
class Run:
    """A statement with the arrays it accesses."""

    state: State
    statement: Statement

    @cached_property
    def domain(self) -> isl.Set:
        """The statement's instances, within the context."""
        return self.state.nest.domains[self.statement.name]

    @cached_property
    def rounds(self) -> bool:
        """True if it writes halves."""
        return self.state.nest.tensor(self.statement.write.tensor).is_half

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
        """True if instances can run in any order: it reads nothing that it writes, and assigns no element twice."""
        s = self.statement
        if any(access.tensor == s.write.tensor for access in s.reads):
            return False
        return s.is_reduction or s.write.map.intersect_domain(self.domain).is_injective()

    def vector(self, access: Access) -> Array:
        """A tensor's elements in row-major order (a view)."""
        return self.state.memory[access.tensor].reshape(-1)

    def read(self, access: Access, at: Points) -> Read:
        """Return the elements that each point reads by an access."""
        tensor = self.state.nest.tensor(access.tensor)
        own = access.tensor == self.statement.write.tensor
        return Read(self.vector(access), self.elements(access, at), tensor.is_half, own)

    def stored(self, value: Any) -> Any:
        """A body's value as the target holds it, but for its format: for a half, a float32 number."""
        return np.asarray(value).astype(np.float32) if self.rounds else value

    def elements(self, access: Access, at: Points) -> Ints:
        """The position in `vector` that each point's access accesses."""
        subscripts = access.subscripts()
        position = np.asarray(0, np.int64)
        for d, size in enumerate(self.state.memory[access.tensor].shape):
            position = position * size + values(subscripts.get_pw_aff(d), at)
        return position if at.length is None else np.broadcast_to(position, at.shape)

    def numbers(self, at: Points) -> list[Any]:
        """The dimensions and sizes as the body's numbers: in the target's own precision, if that is a float.

        Those that occur in conversions alone are integers.
        """
        dtype = np.dtype(computed_in(self.state.nest.tensor(self.statement.write.tensor).dtype))
        dtype = dtype if dtype.kind == "f" or dtype == np.uint64 else np.dtype(np.int64)
        used = {symbol.name for symbol in numbers_in(self.statement.body)}
        dims = [
            d.astype(dtype) if name in used else d
            for name, d in zip(self.statement.dims, at.dims, strict=True)
        ]
        sizes = (dtype.type(n) if name in used else np.int64(n) for name, n in self.state.sizes.items())
        return [*dims, *sizes]


def numbers_in(body: sympy.Basic) -> set[sympy.Symbol]:
    """The leaves of a body but for those whose conversion is asked for."""
    if isinstance(body, AsType) and isinstance(body.args[0], sympy.Symbol):
        return set()
    return {body} if isinstance(body, sympy.Symbol) else set().union(*map(numbers_in, body.args))
