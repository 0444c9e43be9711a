"""IREE on the CPU: what JAX writes as StableHLO, compiled for this host by LLVM."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import iree.compiler.tools as compiler
import iree.runtime as runtime
import jax

from benchmarks.sides.jax_functions import FUNCTIONS, Arrays

FORMS = ("llvm_cpu",)
PACKAGES = ("iree-base-compiler", "iree-base-runtime", "jax")
OPTIONS = (
    "--iree-llvmcpu-target-cpu=host",
    "--iree-opt-level=O3",
    "--iree-opt-data-tiling",
)

driver = "local-sync"


def use(form: str, threads: int) -> None:
    """Without threads of its own for one; for more, one a CPU of the process."""
    global driver
    jax.config.update("jax_platforms", "cpu")
    if threads > 1:
        driver = "local-task"
        runtime.flags.parse_flags(f"--task_topology_group_count={threads}")


def compiled(function: Callable[[Arrays], Any], arrays: Arrays) -> Callable[[], Any]:
    names = sorted(arrays)

    def main(*given: Any) -> Any:
        return function(dict(zip(names, given, strict=True)))

    text = jax.jit(main).lower(*(arrays[name] for name in names)).as_text()
    code = compiler.compile_str(
        text, input_type="stablehlo", target_backends=["llvm-cpu"], extra_args=OPTIONS
    )
    config = runtime.Config(driver)
    module = runtime.VmModule.copy_buffer(config.vm_instance, code)
    call = runtime.load_vm_module(module, config).main
    given = [runtime.asdevicearray(config.device, arrays[name]) for name in names]

    def run() -> Any:
        results = call(*given)
        return results if isinstance(results, tuple) else (results,)

    return run


KINDS = {kind: partial(compiled, function) for kind, function in FUNCTIONS.items()}
