"""An emulated GPU in host memory that runs kernels in lock-step for `CudaProgram`.

Copies, captures, replays and waits are counted, so that the host side of a call can be checked if there is no GPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod
from time import perf_counter
from typing import Any

import numpy as np
import numpy.typing as npt

from polyfuse.codegen.cuda.kernel_arguments import pointee
from polyfuse.codegen.cuda.tensor_maps import MappedArray, TensorMap
from polyfuse.codegen.program import Program
from polyfuse.machine import KiB
from polyfuse.runtime.cuda.driver import DeviceInfo, Launch
from polyfuse.simulator.lockstep import run as run_lockstep

Array = npt.NDArray[Any]


@dataclass
class Memory:
    """A buffer of the emulator; new memory is not zero."""

    bytes: Array

    @property
    def handle(self) -> int:
        """Its address, as a `cuda.core.Buffer` gives it."""
        return int(self.bytes.ctypes.data)


@dataclass
class HostGpu:
    """The part of Gpu that `CudaProgram` uses, implemented on the host for one program.

    `uploads` and `downloads` are addresses; `submissions` are launches that the host made one by one; `streams` is the
    caller's stream of each submission and replay.
    """

    program: Program
    buffers: list[Memory] = field(default_factory=list)
    uploads: list[int] = field(default_factory=list)
    downloads: list[int] = field(default_factory=list)
    captures: int = 0
    updates: int = 0
    replays: int = 0
    submissions: int = 0
    waits: int = 0
    streams: list[int | None] = field(default_factory=list)

    info = DeviceInfo("host", (9, 0), 132, 227 * KiB)
    ordinal, stream = 0, 7

    def allocate(self, nbytes: int, stream: int | None = None, use: str = "a buffer") -> Memory:
        """Fresh memory of at least so many bytes."""
        self.buffers.append(Memory(np.full(max(nbytes, 1), 0xFF, np.uint8)))
        return self.buffers[-1]

    def upload(self, address: int, array: Array, stream: int | None = None) -> None:
        """Copies an array to an address."""
        self.uploads.append(address)
        self.at(address, np.dtype(np.uint8))[: array.nbytes] = array.reshape(-1).view(np.uint8)

    def download(self, address: int, array: Array) -> None:
        """Fills an array from an address; as on a GPU, the host waits for it."""
        self.downloads.append(address)
        self.waits += 1
        array.reshape(-1).view(np.uint8)[:] = self.at(address, np.dtype(np.uint8))[: array.nbytes]

    def seconds(self, launches: Sequence[Launch]) -> list[float]:
        """Runs launches one by one; the host's seconds of each."""
        found = []
        for each in launches:
            start = perf_counter()
            self._run([each])
            found.append(perf_counter() - start)
        return found

    def capture(self, launches: Sequence[Launch]) -> list[Launch]:
        """The launches, for `replay`."""
        self.captures += 1
        return list(launches)

    def update(self, graph: list[Launch], launches: Sequence[Launch]) -> None:
        """Other addresses for the same kernels."""
        self.updates += 1
        kernels = [(one.kernel.entry, one.grid, one.block) for one in graph]
        assert kernels == [(one.kernel.entry, one.grid, one.block) for one in launches], "another graph"
        graph[:] = launches

    def replay(self, graph: Sequence[Launch], stream: int | None = None) -> None:
        """Runs what was captured."""
        self.replays += 1
        self.streams.append(stream)
        self._run(graph)

    def launch(self, launches: Sequence[Launch], stream: int | None = None) -> None:
        """Runs launches that were not captured."""
        self.streams.append(stream)
        self.submissions += len(launches)
        self._run(launches)

    def wait(self, stream: int | None = None) -> None:
        """Counted only: everything has run."""
        self.waits += 1

    def at(self, address: int, dtype: np.dtype[Any]) -> Array:
        """The memory from an address to the end of its buffer."""
        for buffer in self.buffers:
            offset = address - buffer.handle
            if 0 <= offset < buffer.bytes.nbytes:
                rest = buffer.bytes[offset:]
                return rest[: rest.nbytes // dtype.itemsize * dtype.itemsize].view(dtype)
        raise AssertionError(f"address {address} is in no buffer")

    def _argument(self, given: Any, kind: str) -> Any:
        """Convert an argument for lock-step: an address or a tensor map becomes memory."""
        if isinstance(given, TensorMap):
            array = self.at(given.address, np.dtype(f"uint{8 * given.itemsize}"))
            return MappedArray(array[: prod(given.shape)], given.shape, given.box)
        return self.at(int(given), np.dtype(pointee(kind))) if kind.endswith("*") else given

    def _run(self, launches: Sequence[Launch]) -> None:
        for launch in launches:
            code = next(c for c in self.program.codes if c.name == launch.kernel.entry)
            args = [self._argument(*each) for each in zip(launch.args, code.signature, strict=True)]
            run_lockstep(code.source, code.name, launch.grid, launch.block, args, cluster=code.cluster)
