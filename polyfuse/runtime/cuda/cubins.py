"""Machine code of kernels for a GPU: from the cache, or compiled and cached.

    Code, threads of a block, compute capability  ->  Cubin

Each kernel is an entry of its own, whose key holds all that its compiler sees: two networks with an equal layer share
its machine code. The header has what the compiler said of it, the body its bytes and then its PTX.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from dataclasses import dataclass, fields
from functools import cache
from importlib import metadata

from polyfuse.analysis.banks import WARP
from polyfuse.codegen.cuda.compile.cubin import Cubin, build
from polyfuse.codegen.cuda.printer import header
from polyfuse.codegen.program import Code
from polyfuse.runtime.compile_key import digest, settings_text, source_digest, versions_text
from polyfuse.runtime.store.cache import looked_up, store_here, written
from polyfuse.runtime.store.files import source_file
from polyfuse.runtime.store.store import Entry

REGISTERS = 65536
"""Registers of an SM, on every GPU from sm_50 on."""

WARPGROUP = 128
"""Threads that are a warp on each quarter of an SM, each of which has registers of its own."""

PACKAGES = ("numba-cuda", "cuda-core", "cuda-bindings")
"""Whose versions decide what is compiled for a GPU, beside those for a CPU."""

LIBRARIES = ("nvvm", "nvJitLink")
"""NVIDIA's compilers, which need not be packages of Python."""

SETTINGS = ("NUMBA_", "CUDA_HOME", "CUDA_PATH")
"""The prefixes of the environment variables that these packages read."""


@dataclass(frozen=True)
class Built:
    """A kernel's machine code, and what the cache had to do with it; nothing if there is none."""

    cubin: Cubin
    cache: str


def build_kernel(code: Code, threads: int, capability: tuple[int, int]) -> Built:
    """Machine code for one kernel that is launched with at most `threads` threads a block."""
    text = f"{header(code.source)}\n\n{code.source}"
    bounds = _bounds(threads, code.registers)

    def built() -> Cubin:
        path = source_file(code.name, text)
        return build(
            text,
            code.name,
            tuple(code.signature),
            cc=capability,
            launch_bounds=bounds,
            path=path,
            cluster=code.cluster,
            count_passes=code.registers is None,
        )

    if store_here() is None:
        return Built(built(), "")
    key = digest(kernel_parts(code, text, capability, bounds))
    found = looked_up(key, from_entry)
    if found.kept is not None:
        return Built(found.kept, found.note)
    made = built()
    return Built(made, found.note + written(key, *to_entry(made)))


def kernel_parts(
    code: Code, text: str, capability: tuple[int, int], bounds: int | tuple[int, int]
) -> dict[str, str]:
    """Return the inputs that a kernel's machine code depends on, by name; independent of program and host."""
    return {
        "kernel": json.dumps([code.name, text, code.signature]),
        "capability": str(capability),
        "bounds": str(bounds),
        "cluster": str(code.cluster),
        "passes": str(code.registers is None),
        "versions": versions_text(),
        "compilers": compilers_text(),
        "settings": settings_text() + variables_text(),
        "source": source_digest(),
    }


@cache
def compilers_text() -> str:
    """Return the GPU compilers as text: versions of packages and of library files; missing ones are left out."""
    found: dict[str, object] = {}
    with suppress(ImportError):
        from cuda import pathfinder

        found = {name: metadata.version(name) for name in PACKAGES}
        for name in LIBRARIES:
            with suppress(pathfinder.DynamicLibNotFoundError):
                path = pathfinder.load_nvidia_dynamic_lib(name).abs_path
                about = os.stat(path) if path is not None else None
                found[name] = None if about is None else (path, about.st_size, about.st_mtime_ns)
    return json.dumps(found)


def variables_text() -> str:
    """The environment as far as it decides how kernels are compiled."""
    return json.dumps(
        {name: value for name, value in sorted(os.environ.items()) if name.startswith(SETTINGS)}
    )


def to_entry(cubin: Cubin) -> tuple[dict[str, object], bytes]:
    """A cubin as an entry's header and body."""
    facts = {one.name: getattr(cubin, one.name) for one in fields(cubin) if one.name not in ("code", "ptx")}
    return {**facts, "code bytes": len(cubin.code)}, cubin.code + cubin.ptx.encode()


def from_entry(entry: Entry) -> Cubin:
    """The inverse."""
    facts = {one.name: entry.header[one.name] for one in fields(Cubin) if one.name not in ("code", "ptx")}
    length = entry.header["code bytes"]
    return Cubin(**facts, code=entry.body[:length], ptx=entry.body[length:].decode())


def _bounds(threads: int, registers: int | None) -> int | tuple[int, int]:
    """The most threads of a block; with a limit on registers also the blocks that then fit into an SM.

    A limit of its own would be ignored beside the number of threads. Registers are given to whole warps, in pieces of 8
    a thread. A block with a warp beside whole warpgroups leaves some to nobody: more threads are said, which have them.

    >>> [_bounds(*each) for each in ((256, 128), (128, 200), (288, 168), (160, 136), (160, 168))]
    [(256, 2), (128, 2), (384, 1), (160, 3), (192, 2)]
    """
    if registers is None:
        return threads
    whole = -(-threads // WARP) * WARP
    blocks = max(1, REGISTERS // (registers * whole))
    if threads <= WARPGROUP or threads % WARPGROUP == 0:
        return threads, blocks
    pieces = -(-registers // 8) * 8
    return max(threads, REGISTERS // (pieces * blocks * WARP) * WARP), blocks
