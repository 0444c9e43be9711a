"""Emit statements: how a layer's operation adds tensors and statements to a growing nest."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from polyfuse.errors import BadArgument
from polyfuse.ir import DType, Role, Statement, Tensor, statement
from polyfuse.ir.form import renamed_statement
from polyfuse.ir.nest import own_loops
from polyfuse.ir.number_types import computed_in
from polyfuse.ir.tree import Loop, Tree, sequence
from polyfuse.nn.sizes import Shape, Size, names_in, size_of

DIMS = "ijklmnpqrstuv"
"""Names of loop dimensions, outermost first; one that an input or a size has is passed over."""

_NAME = re.compile(r"\b(?!inf\b)[A-Za-z_]\w*\b(?!\()")
"""A word of an assignment that may be a tensor: what is called is a function, inf a number."""

Array = np.ndarray[Any, Any]


def element(tensor: Tensor, subscripts: Iterable[str]) -> str:
    """One element as text: "x[i, j]", or "x" of a tensor without dimensions."""
    inner = ", ".join(subscripts)
    return f"{tensor.name}[{inner}]" if inner else tensor.name


def extents(tensor: Tensor) -> Shape:
    """A tensor's shape as sizes."""
    return tuple(size_of(tensor.name, size) for size in tensor.shape)


@dataclass
class Emitter:
    """A nest under construction: its tensors, statements in their order, and constants so far.

    Everything one operation adds carries one number n, free for each of its names: "zero0", "mac0", "bias0".
    `sizes` are the names of symbolic sizes, and of those in `assumed` none may be negative.
    `further` holds what an operation computes beside its value, by the value's tensor and a name: an LSTM's cell state.
    """

    sizes: tuple[str, ...] = ()
    tensors: dict[str, Tensor] = field(default_factory=dict)
    statements: list[Statement] = field(default_factory=list)
    constants: dict[str, Array] = field(default_factory=dict)
    order: list[Tree] = field(default_factory=list)
    further: dict[tuple[str, str], Tensor] = field(default_factory=dict)
    assumed: dict[Size, None] = field(default_factory=dict)
    _next: dict[str, int] = field(default_factory=dict)
    _constant_names: dict[int, str] = field(default_factory=dict)
    _known: dict[tuple[str, str], tuple[Statement, tuple[str, ...]]] = field(default_factory=dict)

    def dims(self, rank: int) -> tuple[str, ...]:
        """Names for `rank` loop dimensions: i, j, k, …"""
        free = [name for name in DIMS if not self._is_taken(name)]
        if rank > len(free):
            raise BadArgument(f"an operation over {rank} dimensions; polyfuse.nn has names for {len(free)}")
        return tuple(free[:rank])

    def number(self, stems: Iterable[str]) -> int:
        """The smallest number not yet given to any of these names; it is taken for all of them."""
        every = tuple(stems)
        n = max((self._next.get(stem, 0) for stem in every), default=0)
        while any(self._is_taken(f"{stem}{n}") for stem in every):
            n += 1
        self._next.update(dict.fromkeys(every, n + 1))
        return n

    def tensor(self, name: str, shape: Shape, dtype: DType, role: Role) -> Tensor:
        """A new tensor of exactly this name; the name must be free."""
        if name in self.tensors:
            raise BadArgument(
                f"two tensors would be named {name!r}: use one value in both places, or rename an input"
            )
        if name in self.sizes:
            raise BadArgument(
                f"a tensor and a symbolic size would both be named {name!r}: rename one of them"
            )
        self.tensors[name] = Tensor(name, tuple(map(_extent, shape)), dtype, role)
        return self.tensors[name]

    def temporary(self, stem: str, n: int, shape: Shape, dtype: DType) -> Tensor:
        """Return a new temporary of an operation, named stem + n with the operation's number or the next free one.

        In float32 for a half: only the operation's value is rounded to that.
        """
        return self.value(stem, n, shape, computed_in(dtype))

    def value(self, stem: str, n: int, shape: Shape, dtype: DType) -> Tensor:
        """The value of an operation, in exactly this type."""
        return self.tensor(self._free(stem, n), shape, dtype, "temporary")

    def constant(self, array: Array, dtype: DType, stem: str, n: int) -> Tensor:
        """The tensor of role constant for this very array: the one it already has, or a new one."""
        known = self._constant_names.get(id(array))
        if known is not None:
            return self.tensors[known]
        name = self._free(stem, n)
        self._constant_names[id(array)] = name
        self.constants[name] = array
        return self.tensor(name, array.shape, dtype, "constant")

    def named_constant(self, array: Array, dtype: DType, name: str) -> None:
        """Declare the tensor of role constant for this very array under exactly this name; one that it has stays."""
        if id(array) not in self._constant_names:
            self._constant_names[id(array)] = self.tensor(name, array.shape, dtype, "constant").name
            self.constants[name] = array

    def gathered(self, table: Tensor, index: Tensor) -> Tensor:
        """The rows of a table that an index chooses, as a tensor to read: the one that is there, or a new one."""
        name = f"{table.name}_at_{index.name}"
        while (known := self.tensors.get(name)) is not None:
            if known == Tensor.gathered(name, table, index):
                return known
            name += "_"
        self.tensors[name] = Tensor.gathered(name, table, index)
        return self.tensors[name]

    def assume(self, sizes: Iterable[Size]) -> None:
        """Let the nest be for such symbolic sizes alone for which none of these is negative."""
        self.assumed.update(dict.fromkeys(size for size in sizes if not isinstance(size, int)))

    @property
    def context(self) -> str:
        """The symbolic sizes that the nest is for, as an isl set."""
        bounds = " and ".join(f"{size} >= 0" for size in (*self.sizes, *self.assumed))
        return f"{self._parameters}{{ : {bounds} }}"

    @property
    def _parameters(self) -> str:
        return f"[{', '.join(self.sizes)}] -> " if self.sizes else ""

    def assign(self, name: str, domain: Mapping[str, Size], text: str, where: Iterable[str] = ()) -> None:
        """A new statement over the box 0 <= dim < extent, or the part of it where some conditions hold."""
        box = (f"0 <= {dim} < {extent}" for dim, extent in domain.items())
        bounds = " and ".join((*box, *where)) or "1 = 1"
        self.statements.append(self._read(name, f"[{', '.join(domain)}] : {bounds}", text))
        self.order.append(own_loops(self.statements[-1]))

    def _read(self, name: str, bounds: str, text: str) -> Statement:
        """The statement of a text; one that is equal to an earlier one but for names is that one, renamed.

        Y0[i, j] += X[i, k] * W0[k, j]   and   Y1[i, j] += A0[i, k] * W1[k, j]   are   #0[i, j] += #1[i, k] * #2[k, j]
        """
        tensors: dict[str, str] = {}

        def numbered(found: re.Match[str]) -> str:
            word = found[0]
            return tensors.setdefault(word, f"#{len(tensors)}") if word in self.tensors else word

        form = bounds, _NAME.sub(numbered, text)
        known, names = self._known.get(form, (None, ()))
        if known is not None:
            return renamed_statement(known, dict(zip(names, (name, *tensors), strict=True)).__getitem__)
        made = statement(f"{self._parameters}{{ {name}{bounds} }}", text)
        if {*made.tensors} == tensors.keys():
            self._known[form] = made, (name, *tensors)
        return made

    @contextmanager
    def together(self, name: str) -> Iterator[None]:
        """Put the statements assigned inside into one loop over the first dimension of each.

        for t: A[t]; for t: B[t]   ->   for t: { A[t]; B[t] }
        """
        before = len(self.order)
        yield
        loops = [tree for tree in self.order[before:] if isinstance(tree, Loop)]
        dates = tuple(date for loop in loops for date in loop.dates)
        self.order[before:] = [Loop(name, dates, sequence(tuple(loop.body for loop in loops)))]

    def _free(self, stem: str, n: int) -> str:
        while self._is_taken(f"{stem}{n}"):
            n += 1
        return f"{stem}{n}"

    def _is_taken(self, name: str) -> bool:
        return name in self.tensors or name in self.sizes


def sizes_in(shapes: Iterable[Shape]) -> tuple[str, ...]:
    """The names of the symbolic sizes in some shapes."""
    return tuple(dict.fromkeys(name for shape in shapes for size in shape for name in names_in(size)))


def _extent(size: Size) -> int | str:
    return size if isinstance(size, int) else str(size)
