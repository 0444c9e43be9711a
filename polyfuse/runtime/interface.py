"""What a compiled program is called with: the tensors of a call, those that stay, and the numbers for some sizes.

interface ::= input* result*  constant*  temporary*  size*
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from polyfuse.codegen.program import Program
from polyfuse.ir.nest import Nest
from polyfuse.ir.sizes import extent
from polyfuse.ir.tensor import Tensor
from polyfuse.runtime.memory import MemoryPlan, Temporaries


@dataclass(frozen=True)
class Interface:
    """The tensors of a program by what becomes of them, and its symbolic sizes, each in a fixed order."""

    inputs: tuple[Tensor, ...]
    results: tuple[Tensor, ...]
    constants: tuple[Tensor, ...]
    temporaries: tuple[Tensor, ...]
    sizes: tuple[str, ...]

    @staticmethod
    def of(nest: Nest, program: Program, memory: Temporaries) -> Interface:
        """The interface of a program for a nest; constants that no kernel reads are left out."""
        read = {name for launch in program.launches for name in launch.tensors}
        constants = tuple(t for t in nest.with_role("constant") if t.name in read)
        return Interface(nest.inputs, nest.results, constants, memory.tensors, program.sizes)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all tensors, in order: what machine code made for one interface has in common with another."""
        every = (*self.inputs, *self.results, *self.constants, *self.temporaries)
        return tuple(tensor.name for tensor in every)

    @cached_property
    def expressions(self) -> tuple[str, ...]:
        """The sizes, and every other text in a shape: what has a value only for given sizes."""
        shapes = (t.shape for t in (*self.inputs, *self.results, *self.constants, *self.temporaries))
        return tuple(
            dict.fromkeys([*self.sizes, *(s for shape in shapes for s in shape if isinstance(s, str))])
        )

    def numbers(self, sizes: Mapping[str, int], plan: MemoryPlan) -> Sequence[int]:
        """What native code looks up: the expressions' values, then the temporaries' offsets in the arena."""
        values = [extent(text, sizes) for text in self.expressions]
        return [*values, *(plan.spans[tensor.name][0] for tensor in self.temporaries)]
