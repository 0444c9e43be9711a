"""A segment on a GPU in three modes, and what the host does in each: counted, on a GPU or on the stand-in for one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import polyfuse as pf
from polyfuse.runtime.cuda.driver import Gpu, Launch, address, available
from polyfuse.runtime.cuda.runner import CudaProgram
from polyfuse.runtime.emulated.host_gpu import HostGpu

Array = np.ndarray[Any, Any]


@dataclass
class Host:
    """A device, and what the host asked of it since the last `reset`: submissions to its stream, and waits."""

    device: Any
    submissions: int = 0
    waits: int = 0

    def reset(self) -> None:
        self.submissions = self.waits = 0

    def launch(self, launches: Sequence[Launch]) -> None:
        self.submissions += len(launches)
        self.device.launch(launches)

    def replay(self, graph: Any) -> None:
        self.submissions += 1
        self.device.replay(graph)

    def wait(self) -> None:
        self.waits += 1
        self.device.wait()


class OnDevice:
    """A compiled segment with its tensors on a device: inputs and weights are there before a call, results after it."""

    def __init__(self, net: pf.Executable) -> None:
        self.net = net
        device: Any = Gpu() if available() else HostGpu(net.program)
        self.host = Host(device)
        nest = net.schedule.nest
        program = CudaProgram(net.program, device, {tensor.name: tensor.role for tensor in nest.tensors})
        self._buffers = {t.name: device.allocate(t.itemsize * int(np.prod(t.shape))) for t in nest.tensors}
        self._places = {name: address(buffer) for name, buffer in self._buffers.items()}
        for name, value in net.constants.items():
            device.upload(self._places[name], np.ascontiguousarray(value))
        self.launches = program.launches(self._places, {})
        self._graph = device.capture(self.launches)

    def modes(self) -> dict[str, Callable[[], None]]:
        return {"per kernel": self.per_kernel, "bulked": self.bulked, "one graph": self.one_graph}

    def per_kernel(self) -> None:
        """Each kernel is waited for before the next: every operator synchronises."""
        for step in self.launches:
            self.host.launch([step])
            self.host.wait()

    def bulked(self) -> None:
        """All kernels are launched, and waited for once."""
        self.host.launch(self.launches)
        self.host.wait()

    def one_graph(self) -> None:
        """The same launches as one graph."""
        self.host.replay(self._graph)
        self.host.wait()

    def put(self, **arrays: Array) -> None:
        for name, array in arrays.items():
            self.host.device.upload(self._places[name], array)

    def outputs(self) -> tuple[Array, ...]:
        found = []
        for tensor in self.net.nest.with_role("output"):
            found.append(np.empty(tuple(map(int, tensor.shape)), tensor.dtype))
            self.host.device.download(self._places[tensor.name], found[-1])
        return tuple(found)
