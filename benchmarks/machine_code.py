"""Digests of machine code as JSON, and the differences of two such files: what a change must leave byte-equal.

python -m benchmarks.machine_code [--only golden,workloads,cuda] [--every K] [--out FILE] [--jobs N]
python -m benchmarks.machine_code --compare BEFORE AFTER    one line a difference, totals, exit status 1 if any

Of each case (benchmarks.compiled_cases; workloads with one thread) the file has

    kernels      their names, in order
    text         SHA-256 of the instructions, of a CPU case's object file or of each kernel's cubin for sm_90
    constants    SHA-256 of the read-only data beside them
    bytes        how many instructions take
    registers    on a GPU, per thread, and the bytes that are spilled

The instructions are the bytes of all executable sections of the ELF file, and the relocations in them: offset, type,
symbol, addend. A symbol is the number of its first use, because its name may contain the names of Python modules; only
a symbol that the file does not define and numba did not mangle is a name, so "memset" differs from "memcpy".

A CPU's code is made for one named processor, whatever this computer has, and is never run: the file is the same on
every x86-64 computer with the same versions.
"""

from __future__ import annotations

import hashlib
import os
import struct
from collections.abc import Iterator, Mapping
from contextlib import suppress
from importlib import metadata
from platform import python_version

import numba
from llvmlite import binding as llvm

from benchmarks import compiled_cases, snapshots
from benchmarks.compiled_cases import Case
from polyfuse.runtime.artifact import Compiled
from polyfuse.runtime.cpu.native import machine_code
from polyfuse.runtime.cuda.runner import build_kernels
from polyfuse.runtime.interface import Phases

GROUPS = ("golden", "workloads", "cuda")

PROCESSOR = {"NUMBA_CPU_NAME": "znver4", "NUMBA_CPU_FEATURES": ""}
"""The processor that numba compiles for: a Zen 4 with every feature that LLVM gives it, AVX-512 included, whose vectors
are as wide as the preset's. The empty list of features leaves out this computer's own."""

CAPABILITY = (9, 0)

PACKAGES = ("numba", "llvmlite", "numba-cuda", "nvidia-nvvm", "nvidia-nvjitlink")

CONSTANTS = (".rodata", ".lrodata", ".nv.constant")
"""How the names of sections of read-only data begin."""

MANGLED = "_ZN"
"""How the names begin that numba makes of modules, functions and types."""


def main() -> None:
    # here and not above, so that what imports this module, and runs what it compiles, compiles for its own processor
    os.environ.update(PROCESSOR, POLYFUSE_CACHE="off")
    numba.core.config.reload_config()
    about = {
        "processor": PROCESSOR["NUMBA_CPU_NAME"],
        "capability": f"sm_{CAPABILITY[0]}{CAPABILITY[1]}",
        "python": python_version(),
        **versions(),
    }
    description = "Record digests of machine code as JSON, or compare two records."
    snapshots.main("benchmarks.machine_code", description, GROUPS, cases, digests, about)


def versions() -> dict[str, str]:
    """The versions of PACKAGES that are here: without those for CUDA only a CPU's cases can be recorded."""
    found = {}
    for name in PACKAGES:
        with suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found


def cases(group: str) -> dict[str, Case]:
    """The cases of a group that have machine code recorded: on a CPU those of one core."""
    every = compiled_cases.cases(group)
    return {
        name: case for name, case in every.items() if case.machine.kind == "cuda" or case.machine.units == 1
    }


def digests(name: str) -> snapshots.Record:
    """The digests of a case."""
    compiled = cases(name.split("/")[0])[name].compiled()
    return on_gpu(compiled) if compiled.machine.kind == "cuda" else on_cpu(compiled)


def on_cpu(compiled: Compiled) -> snapshots.Record:
    """One object file for all kernels."""
    product = compiled.product
    code = machine_code(product.program, Phases.of(compiled.schedule.source, product.program, product.memory))
    return {
        "kernels": [launch.name for launch in product.program.launches],
        "text": digest(code.object, executable=True),
        "constants": digest(code.object, executable=False),
        "bytes": size(code.object),
    }


def on_gpu(compiled: Compiled) -> snapshots.Record:
    """A cubin for each kernel."""
    built = build_kernels(compiled.program, CAPABILITY)
    codes = [cubin.code for cubin in built.values()]
    return {
        "kernels": list(built),
        "text": [digest(code, executable=True) for code in codes],
        "constants": [digest(code, executable=False) for code in codes],
        "bytes": [size(code) for code in codes],
        "registers": [
            f"{cubin.registers}, spilled {cubin.spill_stores}, {cubin.spill_loads}"
            for cubin in built.values()
        ],
    }


def digest(code: bytes, executable: bool) -> str:
    """SHA-256 of the executable sections of an ELF file, or of its constants, with their relocations.

    The order of sections does not matter: a linker may sort them by name.
    """
    sections = _sections(code)
    found = sorted(
        hashlib.sha256(content + _relocations(name, sections)).hexdigest()
        for name, content, is_text in _wanted(code)
        if is_text == executable
    )
    return hashlib.sha256("".join(found).encode()).hexdigest()


def size(code: bytes) -> int:
    """Bytes of the executable sections of an ELF file."""
    return sum(len(content) for _, content, is_text in _wanted(code) if is_text)


def _wanted(code: bytes) -> Iterator[tuple[str, bytes, bool]]:
    """(name, content, whether it is executable) of each section with instructions or constants."""
    for section in llvm.ObjectFileRef.from_data(code).sections():
        name = (section.name() or b"").decode()
        if section.size() and (section.is_text() or name.startswith(CONSTANTS)):
            yield name, section.data(), section.is_text()


def _sections(code: bytes) -> dict[str, bytes]:
    """Every section's content by name."""
    every = llvm.ObjectFileRef.from_data(code).sections()
    return {(section.name() or b"").decode(): section.data() for section in every if section.size()}


def _relocations(name: str, sections: Mapping[str, bytes]) -> bytes:
    """The relocations in a section as text, without names that depend on where Python's modules lie."""
    lines, numbers = [], dict[int, int]()
    for kind, form in ((".rel", "<QQ"), (".rela", "<QQq")):
        for offset, info, *addend in struct.iter_unpack(form, sections.get(kind + name, b"")):
            number = numbers.setdefault(info >> 32, len(numbers))
            outside = _outside(info >> 32, sections)
            lines.append(f"{offset} {info & 0xFFFFFFFF} {outside or number} {addend}\n")
    return "".join(lines).encode()


def _outside(index: int, sections: Mapping[str, bytes]) -> str:
    """The name of a symbol that is defined in another file; none for other symbols, and for numba's."""
    name, _, _, section, _, _ = struct.unpack_from("<IBBHQQ", sections[".symtab"], 24 * index)
    start = sections[".strtab"][name:]
    text = start[: start.index(b"\0")].decode()
    return "" if section != 0 or text.startswith(MANGLED) else text


if __name__ == "__main__":
    main()
