"""Check that a block's shared memory fits: what each array needs against what the machine gives."""

from __future__ import annotations

from polyfuse.codegen.cuda.kernel_grammar import parse
from polyfuse.codegen.program import Code, Program
from polyfuse.errors import InvalidSchedule
from polyfuse.ir.number_types import ITEMSIZE
from polyfuse.machine import GpuMachine, Machine


def check_shared(program: Program, machine: Machine) -> None:
    """Raises InvalidSchedule for a kernel whose block needs more shared memory than the machine gives one."""
    if not isinstance(machine, GpuMachine):
        return
    for code in program.codes:
        if code.shared_bytes > machine.gpu.shared_per_block:
            raise InvalidSchedule(_too_much(code, machine.name, machine.gpu.shared_per_block))


def _too_much(code: Code, machine: str, given: int) -> str:
    arrays = (a for a in parse(code.source, code.name).arrays if a.space == "shared")
    named = ", ".join(
        f"{a.name} {a.size * ITEMSIZE[a.dtype]} ({' × '.join(map(str, a.shape))} of {a.dtype})"
        for a in arrays
    )
    return (
        f"kernel {code.name} needs {code.shared_bytes} bytes of shared memory for a block, and {machine} gives one "
        f"{given}: {named}; smaller tiles, fewer stages, or promoting at a loop further in would do"
    )
