"""The machine code of a GPU's kernels as NVIDIA's disassembler prints it."""

from __future__ import annotations

import re
from collections.abc import Mapping

from polyfuse.codegen.cuda.compile.disassembly import sass
from polyfuse.codegen.program import Program
from polyfuse.runtime.cuda.runner import build_kernels
from polyfuse.show.explorer import Instruction

_ADDRESS = re.compile(r"/\*[0-9a-f]+\*/")


def assembly(program: Program, capability: tuple[int, int]) -> Mapping[str, tuple[Instruction, ...]]:
    """Return the instructions and labels of each kernel, by its name; of no line, as a cubin has no table of lines.

    Args:
        program: The program.
        capability: The compute capability that it is compiled for.

    Raises:
        TargetUnavailable: if the compiler or the disassembler is not installed.
    """
    return {name: _listing(sass(cubin)) for name, cubin in build_kernels(program, capability).items()}


def _listing(text: str) -> tuple[Instruction, ...]:
    """The lines of nvdisasm's text that are instructions or labels."""
    lines = (_ADDRESS.sub("", line).strip().rstrip(" ;") for line in text.split("\n"))
    wanted = (
        line for line in lines if line and not line.startswith(("//", ".section", ".sectioninfo", ".align"))
    )
    return tuple(
        Instruction(line) for line in wanted if line[0].isupper() or line[0] in "@{}" or line.endswith(":")
    )
