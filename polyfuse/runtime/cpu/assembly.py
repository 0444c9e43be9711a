"""The machine code of a kernel for this processor, each instruction with the line of source that it comes from.

    .loc 1 25 1                        the next instructions are of line 25
    vfmadd231ps (%rsi), %ymm0, %ymm1   -> Instruction("vfmadd231ps (%rsi), %ymm0, %ymm1", 9)     16 lines are imports

LLVM writes line 0 where an instruction is of no line, or of several.
"""

from __future__ import annotations

import re

from polyfuse.codegen.program import Code
from polyfuse.runtime.cpu.native import assembly_text
from polyfuse.show.explorer import Instruction

_LOCATION = re.compile(r"\.loc\s+(\d+)\s+(\d+)")
_FILE = re.compile(r'\.file\s+(\d+)\s+(?:"[^"]*"\s+)?"([^"]*)"')
_LABEL = re.compile(r"[.\w$@]+(?=:)")
_WORD = re.compile(r"[.$\w]+")
_SYMBOL = re.compile(r"_ZN(?:\d+\w+)")


def assembly(code: Code) -> tuple[Instruction, ...]:
    """Return the instructions of a kernel and the labels that they name, in order.

    Args:
        code: The kernel, for a CPU.
    """
    text, before = assembly_text(code)
    return instructions(text, code.name, before)


def instructions(text: str, name: str, before: int) -> tuple[Instruction, ...]:
    """Return the instructions of an assembly text, and the labels that they name.

    Args:
        text: What LLVM wrote.
        name: The kernel, as the file of its source begins.
        before: Lines of the file before the kernel's source.
    """
    own: set[str] = set()
    found: list[tuple[str, int | None, bool]] = []
    at: int | None = None
    in_code = True
    for raw in text.split("\n"):
        line = raw.partition("#")[0].rstrip()
        word = line.strip()
        if not word:
            continue
        if file := _FILE.match(word):
            if file[2].startswith(name):
                own.add(file[1])
        elif location := _LOCATION.match(word):
            number = int(location[2]) - before
            at = number if location[1] in own and number > 0 else None
        elif word.startswith((".section", ".text")):
            in_code = ".rodata" not in word and ".debug" not in word
        elif in_code and (word.endswith(":") or not word.startswith(".")):
            label = word.endswith(":")
            found.append(
                (_shortened(word if label else " ".join(word.split())), None if label else at, label)
            )
    named = {each for text, _, label in found if not label for each in _WORD.findall(text)}
    functions = {text for text, _, label in found if label and not text.startswith(".")}
    return tuple(
        Instruction(text, at)
        for text, at, label in found
        if not label or text in functions or text[:-1] in named
    )


def _shortened(text: str) -> str:
    """Return a line of assembly with numba's function names, without their arguments.

    >>> _shortened("callq _ZN13_3cdynamic_3e8mac_partB2v4B114c8tJT@PLT")
    'callq mac_part@PLT'
    """
    return _SYMBOL.sub(lambda found: _last_name(found[0]), text)


def _last_name(symbol: str) -> str:
    """The last of the names, each behind its length, that a symbol of numba begins with."""
    rest, last = symbol.removeprefix("_ZN"), symbol
    while size := re.match(r"\d+", rest):
        length = int(size[0])
        last, rest = rest[size.end() :][:length], rest[size.end() + length :]
    return last
