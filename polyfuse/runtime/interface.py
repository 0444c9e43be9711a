"""The arguments of a compiled program: a call's tensors, constants, and the numbers for some sizes.

interface ::= input* result*  constant*  temporary*  size*
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from polyfuse.codegen.program import Launch, Program
from polyfuse.ir.gather import limits_of
from polyfuse.ir.nest import Nest
from polyfuse.ir.sizes import extent
from polyfuse.ir.tensor import Limit, Tensor
from polyfuse.runtime.memory.memory_plan import Memory, MemoryPlan, Temporaries

ENTRY, ENTRY_ONCE = "polyfuse_entry", "polyfuse_once"
"""Functions in the machine code: what a call runs, and what runs once before all calls."""


@dataclass(frozen=True)
class Interface:
    """The tensors of a program by what becomes of them, and its symbolic sizes, each in a fixed order."""

    inputs: tuple[Tensor, ...]
    results: tuple[Tensor, ...]
    constants: tuple[Tensor, ...]
    temporaries: tuple[Tensor, ...]
    sizes: tuple[str, ...]
    indices: tuple[tuple[str, Limit], ...] = ()
    """The inputs that choose rows, each with a limit of its numbers."""

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all tensors, in order."""
        every = (*self.inputs, *self.results, *self.constants, *self.temporaries)
        return tuple(tensor.name for tensor in every)

    @cached_property
    def extents(self) -> tuple[str, ...]:
        """Every text in a shape: what has a value only for given sizes."""
        tensors = (*self.inputs, *self.results, *self.constants, *self.temporaries)
        shapes = (*(t.shape for t in tensors), *(limit.extents for _, limit in self.indices))
        return tuple(dict.fromkeys(s for shape in shapes for s in shape if isinstance(s, str)))

    def numbers(self, sizes: Mapping[str, int], plan: MemoryPlan) -> Sequence[int]:
        """Return the numbers that native code reads: sizes, which may be negative, then extents, then offsets of
        temporaries.
        """
        values = *(sizes[name] for name in self.sizes), *(extent(text, sizes) for text in self.extents)
        return [*values, *(plan.spans[tensor.name][0] for tensor in self.temporaries)]


@dataclass(frozen=True)
class Phase:
    """Launches that run together, by one entry of the machine code, and what it is called with."""

    launches: tuple[Launch, ...]
    interface: Interface
    memory: Temporaries


@dataclass(frozen=True)
class Phases:
    """A program as what every call runs and what runs `once` before them, whose results are constants of the calls."""

    calls: Phase
    once: Phase

    @staticmethod
    def of(nest: Nest, program: Program, memory: Memory) -> Phases:
        """The phases of a program for a nest; constants that a phase does not read are left out of it."""
        early = tuple(launch for launch in program.launches if launch.once)
        late = tuple(launch for launch in program.launches if not launch.once)
        constants = (*_constants(nest, late), *memory.kept)
        indices = tuple((name, limit) for name, every in limits_of(nest).items() for limit in every)
        each = Interface(nest.inputs, nest.results, constants, memory.calls.tensors, program.sizes, indices)
        first = Interface((), memory.kept, _constants(nest, early), memory.once.tensors, program.sizes)
        return Phases(Phase(late, each, memory.calls), Phase(early, first, memory.once))

    @property
    def entries(self) -> tuple[tuple[str, Phase], ...]:
        """The phases in which something runs, with the names of their entries."""
        once = ((ENTRY_ONCE, self.once),) if self.once.interface.results else ()
        return ((ENTRY, self.calls), *once)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all tensors, in order: what machine code made for one nest has in common with another."""
        return (*self.calls.interface.names, *self.once.interface.names)


def _constants(nest: Nest, launches: tuple[Launch, ...]) -> tuple[Tensor, ...]:
    read = {name for launch in launches for name in launch.tensors}
    return tuple(t for t in nest.with_role("constant") if t.name in read)
