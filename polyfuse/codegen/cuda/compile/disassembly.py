"""Disassemble a cubin with NVIDIA's disassembler, and find the reads of its main loop's multiply-adds.

cubin -> text (nvdisasm) -> instructions in order -> those of the main loop -> their reads of registers
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from dataclasses import dataclass
from functools import lru_cache

from polyfuse.codegen.cuda.compile.cubin import Cubin, extra_needed
from polyfuse.errors import TargetUnavailable

_INSTRUCTION = re.compile(r"^\s+/\*[0-9a-f]{4,}\*/\s+(?:\{\s*)?(?:@!?U?P\w+\s+)?([A-Z][\w.]*)", re.MULTILINE)
_MULTIPLY_ADD = re.compile(r"\bFFMA R\d+, (\S+), (\S+), (\S+)")
_REGISTER = re.compile(r"[-|]*R(\d+)\|?(\.reuse)?")

BANKS = 2
"""Banks of registers in each quarter of an SM, a register's number modulo 2; each delivers one register of a warp in a
cycle, and the quarter keeps one for each bank and operand that says `.reuse` (Huerta, Abaie Shoushtary, Cruz, González,
"Analyzing Modern NVIDIA GPU Cores", 2025, section 5.3, of GPUs that begin an FFMA in each cycle)."""


@dataclass(frozen=True)
class Reads:
    """One pass of a main loop: its instructions, the FFMA of these, and the registers they read from each bank."""

    instructions: int
    multiply_adds: int
    banks: tuple[int, ...]

    @property
    def share(self) -> float:
        """The part of the peak that is left where each instruction and each bank takes a cycle at a time."""
        return self.multiply_adds / max(self.instructions, *self.banks)


@lru_cache(maxsize=4)
def sass(cubin: Cubin) -> str:
    """The machine instructions of a cubin as text, by NVIDIA's nvdisasm; kept, since one is asked several questions."""
    with extra_needed():
        from cuda import pathfinder

    tool = pathfinder.find_nvidia_binary_utility("nvdisasm")
    if tool is None:
        raise TargetUnavailable("nvdisasm is not installed: pip install nvidia-cuda-nvdisasm")
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin.code)
        file.flush()
        done = subprocess.run([tool, "-c", file.name], check=True, capture_output=True, text=True)
    return done.stdout


def opcodes(cubin: Cubin) -> tuple[str, ...]:
    """The instructions of a cubin in order, without operands: ("LDC", "S2R", "LDG.E", "FFMA", ...)."""
    return tuple(_INSTRUCTION.findall(sass(cubin)))


def main_loop(cubin: Cubin) -> tuple[str, ...]:
    """The instructions of the innermost loop that has most multiply-adds, tensor cores' too; none without a loop."""
    return tuple(_INSTRUCTION.findall(_main_text(cubin)))


def register_reads(cubin: Cubin) -> Reads:
    """The registers that the main loop's multiply-adds read, without those that the previous one has read for them.

    Raises LookupError if the main loop has no FFMA.
    """
    text = _main_text(cubin)
    banks, found = counted_reads(text)
    if not found:
        raise LookupError(f"no FFMA in the main loop of {cubin.entry}")
    return Reads(len(_INSTRUCTION.findall(text)), found, banks)


def counted_reads(text: str) -> tuple[tuple[int, ...], int]:
    r"""The registers that each bank delivers to the FFMA of some lines, and how many of these there are.

    R8 is read once for two, as the same operand; so is each of the others, which lie in both banks:

    >>> counted_reads("FFMA R1, R8.reuse, R2, R1 ;\nFFMA R3, R8, R4, R3 ;")
    ((3, 2), 2)
    """
    banks, kept, found = [0] * BANKS, dict[tuple[int, int], int](), 0
    for operands in _MULTIPLY_ADD.findall(text):
        found += 1
        for place, operand in enumerate(operands):
            if (register := _REGISTER.match(operand)) is None:
                continue  # a constant, or RZ, which is zero and no register
            number = int(register[1])
            where = place, number % BANKS
            banks[number % BANKS] += kept.pop(where, None) != number
            if register[2]:
                kept[where] = number
    return tuple(banks), found


def _main_text(cubin: Cubin) -> str:
    """The lines of the main loop; empty without one."""
    lines = sass(cubin).splitlines()
    labels = {found[1]: n for n, line in enumerate(lines) if (found := re.match(r"\s*(\.L_x_\d+):", line))}
    best, most = "", 0
    for number, line in enumerate(lines):
        jump = re.search(r"BRA.*`\((\.L_x_\d+)\)", line)
        if jump is None or labels.get(jump[1], number) >= number:
            continue
        text = "\n".join(lines[labels[jump[1]] : number + 1])
        inside = _INSTRUCTION.findall(text)
        if "EXIT" in inside:
            continue  # a wait that is not over at once stands behind the kernel's end, and jumps back from there
        products = sum(name.startswith(("FFMA", "DFMA", "DMMA", "HMMA", "HGMMA")) for name in inside)
        if products > most:
            best, most = text, products  # of equals the first, which is inside the others or before them
    return best
