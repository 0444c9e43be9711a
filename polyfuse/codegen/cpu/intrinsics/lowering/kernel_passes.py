"""numba's passes over a kernel: those that emitted source needs, of the 27 that any Python function gets.

Emitted source has no closures, no `with`, no branch on a constant, no unrolled tuple and no array expression. numba
looks for each of them in every function, and analyses the variables of the whole function again after each look.
"""

from __future__ import annotations

from numba.core.compiler import CompilerBase
from numba.core.compiler_machinery import PassManager
from numba.core.typed_passes import (
    AnnotateTypes,
    IRLegalization,
    NoPythonBackend,
    NopythonTypeInference,
    PreLowerStripPhis,
)
from numba.core.untyped_passes import (
    FixupArgs,
    GenericRewrites,
    IRProcessing,
    TranslateByteCode,
)

from polyfuse.codegen.cpu.intrinsics.lowering.kernel_lowering import KernelLowering
from polyfuse.codegen.cpu.intrinsics.lowering.single_assignment import SingleAssignment

PASSES = (
    TranslateByteCode,
    FixupArgs,
    IRProcessing,
    GenericRewrites,  # tuple[0] is an item whose type is known
    SingleAssignment,
    NopythonTypeInference,
    PreLowerStripPhis,
    IRLegalization,
    AnnotateTypes,
    KernelLowering,
    NoPythonBackend,
)


class KernelPasses(PassManager):
    """A list of passes. numba's own analyses all variables after each; two that need this do so themselves."""

    _ENFORCING = False


class KernelCompiler(CompilerBase):
    """numba's compiler with these passes alone."""

    def define_pipelines(self) -> list[PassManager]:
        """Return the one list of passes: a kernel is never compiled in another mode."""
        passes = KernelPasses("kernel")
        for each in PASSES:
            passes.add_pass(each, each.__name__)
        passes.finalize()
        return [passes]
