"""Programs on a GPU: cubins built ahead of time, buffers planned once, a call replayed as one graph."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from polyfuse.codegen.cuda import HEADER
from polyfuse.codegen.cuda_build import Cubin, build
from polyfuse.codegen.program import Code, Program, value
from polyfuse.runtime.cuda_driver import Gpu, Launch, address
from polyfuse.runtime.files import source_file

Array = npt.NDArray[Any]


def build_kernels(program: Program, capability: tuple[int, int]) -> dict[str, Cubin]:
    """Machine code for every kernel of a program; needs no GPU and no driver."""
    return {code.name: build_kernel(code, _threads(program, code), capability) for code in program.codes}


def build_kernel(code: Code, threads: int, capability: tuple[int, int]) -> Cubin:
    """Machine code for one kernel that is launched with at most `threads` threads a block."""
    text = f"{HEADER}\n\n{code.source}"
    return build(
        text,
        code.name,
        tuple(code.signature),
        cc=capability,
        launch_bounds=threads,
        path=source_file(code.name, text),
    )


def _threads(program: Program, code: Code) -> int:
    most = 1
    for launch in program.launches:
        if launch.code is code:
            x, y, z = (value(extent, {}) for extent in launch.block)
            most = max(most, x * y * z)
    return most


@dataclass
class _Buffers:
    """Device memory for one set of sizes, and the captured graph over it."""

    memory: dict[str, Any] = field(default_factory=dict)
    addresses: dict[str, int] = field(default_factory=dict)
    graph: Any = None


class CudaProgram:
    """A program on one GPU. A call copies inputs in, replays the graph, and copies outputs out."""

    def __init__(self, program: Program, gpu: Gpu) -> None:
        self.program = program
        self.cubins = build_kernels(program, gpu.info.compute_capability)
        self._gpu = gpu
        self._by_sizes: dict[tuple[tuple[str, int], ...], _Buffers] = {}
        self._constants: dict[str, Array] = {}
        self._lock = threading.Lock()

    def run(self, arrays: Mapping[str, Array], sizes: Mapping[str, int]) -> None:
        """Run on host arrays: those the kernels only read are uploaded, all others downloaded afterwards.

        Temporaries share one host arena in `arrays`; their device addresses repeat its layout.
        """
        with self._lock:
            key = tuple(sorted(sizes.items()))
            fresh = key not in self._by_sizes
            held = self._by_sizes.setdefault(key, _Buffers())
            if fresh:
                self._allocate(held, arrays)
            for name, array in arrays.items():
                if name in held.addresses and self._constants.get(name) is not array:
                    self._gpu.upload(held.addresses[name], array)
                    if not array.flags.writeable:
                        self._constants[name] = array
            if held.graph is None:
                held.graph = self._gpu.capture(self.launches(held.addresses, sizes))
            self._gpu.replay(held.graph)
            for name, array in arrays.items():
                if name in held.addresses and array.flags.writeable:
                    self._gpu.download(held.addresses[name], array)

    def launches(self, addresses: Mapping[str, int], sizes: Mapping[str, int]) -> list[Launch]:
        """The program's launches on given device addresses; a launch over no elements is left out."""
        extra = [sizes[name] for name in self.program.sizes]
        found = []
        for launch in self.program.launches:
            grid, block = launch.extents(sizes)
            if 0 in grid or 0 in block:
                continue
            arguments = [*(addresses[name] for name in launch.tensors), *extra]
            (gx, gy, gz), (bx, by, bz) = grid, block
            found.append(Launch(self.cubins[launch.name], (gx, gy, gz), (bx, by, bz), tuple(arguments)))
        return found

    def _allocate(self, held: _Buffers, arrays: Mapping[str, Array]) -> None:
        """Arrays that share host memory (the arena's temporaries) share device memory in the same way."""
        bases: dict[int, Any] = {}
        for name, array in arrays.items():
            root = array if array.base is None else _root(array)
            if id(root) not in bases:
                bases[id(root)] = self._gpu.allocate(root.nbytes)
                held.memory[name] = bases[id(root)]
            offset = array.ctypes.data - root.ctypes.data
            held.addresses[name] = address(bases[id(root)]) + offset


def _root(array: Array) -> Array:
    base = array.base
    while isinstance(base, np.ndarray) and isinstance(base.base, np.ndarray):
        base = base.base
    return base if isinstance(base, np.ndarray) else array
