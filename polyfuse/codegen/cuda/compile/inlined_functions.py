"""Functions that a CUDA kernel calls: each compiled by itself, once for the types it is called with, and inlined.

    def k_part(x, a): …      ->     intrinsic k_part(float32*, float32*): a call of its machine code

What `cuda.jit(device=True)` does, which asks the current device for its instructions: there is none here. Needs the
extra `polyfuse[cuda]`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from numba.cuda import types
from numba.cuda.compiler import compile_cuda
from numba.cuda.extending import intrinsic


def inlined(function: Callable[..., None], cc: tuple[int, int], made: dict[object, Any]) -> Any:
    """The function as kernels for this compute capability call it, for a kernel's globals.

    What is compiled of it goes to `made`, which has to be kept until the kernel is compiled, and no longer.
    """

    def typed(typingctx: Any, *arguments: Any) -> Any:
        key = function, arguments
        options = {"opt": 3}
        made[key] = compile_cuda(
            function, types.void, arguments, forceinline=True, nvvm_options=options, cc=cc
        )

        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            context.active_code_library.add_linking_library(made[key].library)
            return context.call_internal(builder, made[key].fndesc, sig, args)

        return types.void(*arguments), codegen

    typed.__name__ = function.__name__
    named = inspect.signature(function).parameters.values()
    first = inspect.Parameter("typingctx", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    typed.__signature__ = inspect.Signature([first, *named])  # type: ignore[attr-defined]
    return intrinsic(typed)
