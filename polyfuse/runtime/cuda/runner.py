"""Run programs on a GPU: cubins built ahead of time, buffers planned once, calls replayed as one graph."""

from __future__ import annotations

import ast
import math
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from polyfuse.analysis.banks import MOST_THREADS
from polyfuse.analysis.vector_access import ACCESS_BYTES
from polyfuse.codegen import program as programs
from polyfuse.codegen.cuda.compile.cubin import Cubin, OtherInstructions
from polyfuse.codegen.cuda.tensor_maps import TensorMap
from polyfuse.codegen.program import Code, Program, value
from polyfuse.errors import BadArgument, DeviceFailure, OutOfDeviceMemory, TargetUnavailable
from polyfuse.ir.tensor import Role
from polyfuse.runtime.cuda.cubins import Built, build_kernel
from polyfuse.runtime.cuda.device_failures import call_failed
from polyfuse.runtime.cuda.driver import DeviceInfo, Gpu, Launch, address

Array = npt.NDArray[Any]

_COUNTER = np.zeros(1, np.int32)
"""The counter of a grid barrier before the first launch."""

CAPTURED = 64
"""Sets of a caller's addresses that are known at a time, the ones used last; a set that comes again gets a graph."""


_FOR_THIS_GPU = "compile for this GPU: leave machine= out, or name the preset that is like it"


def build_kernels(program: Program, capability: tuple[int, int]) -> dict[str, Cubin]:
    """Machine code for every kernel of a program; needs no GPU and no driver."""
    return {name: built.cubin for name, built in _built(program, capability).items()}


def _built(program: Program, capability: tuple[int, int]) -> dict[str, Built]:
    return {code.name: build_kernel(code, _threads(program, code), capability) for code in program.codes}


def check_fits(program: Program, device: DeviceInfo) -> None:
    """Raises TargetUnavailable for a kernel that asks for what a GPU does not have, naming both."""
    for launch in program.launches:
        code = launch.code
        if code.shared_bytes > device.shared_per_block:
            raise TargetUnavailable(
                f"kernel {code.name!r} (statements {', '.join(launch.statements)}) needs {code.shared_bytes} bytes of "
                f"shared memory for a block, and {device} gives one {device.shared_per_block}; {_FOR_THIS_GPU}"
            )


def build_for(program: Program, device: DeviceInfo) -> dict[str, Built]:
    """Machine code for a GPU that is here; TargetUnavailable for instructions or memory that it does not have."""
    check_fits(program, device)
    try:
        return _built(program, device.compute_capability)
    except OtherInstructions as error:
        raise OtherInstructions(f"{error}: {device}; {_FOR_THIS_GPU}") from error


def _threads(program: Program, code: Code) -> int:
    """The most threads that a block of a kernel has: where its shape depends on sizes, all that a GPU gives one."""
    blocks = [launch.block for launch in program.launches if launch.code is code]
    if any(not isinstance(extent, ast.Constant) for block in blocks for extent in block):
        return MOST_THREADS
    return max((math.prod(value(extent, {}) for extent in block) for block in blocks), default=1)


@dataclass
class Buffers:
    """Device memory for one set of sizes (and one of the caller's streams), and which constants lie there.

    `arrivals` is the address where the blocks of a launch count those that have come to a barrier, 0 if none wait.
    `graph` is captured over its addresses alone; `graphs` over these and a caller's, those used last at the end, None
    after their first call; `spare` are graphs of addresses that are known no more. `owner` is who last saw to it that
    the constants here are its own.
    """

    memory: list[Any] = field(default_factory=list)
    arrivals: int = 0
    addresses: dict[str, int] = field(default_factory=dict)
    constants: dict[str, Array] = field(default_factory=dict)
    graph: Any = None
    graphs: dict[tuple[int, ...], Any] = field(default_factory=dict)
    spare: list[Any] = field(default_factory=list)
    owner: object = None


class CudaProgram:
    """A program on one GPU. A call copies inputs in, replays the graph, and copies outputs out.

    `roles` says what each tensor is: a constant is copied in once, a temporary never leaves the device.
    """

    def __init__(self, program: Program, gpu: Gpu, roles: Mapping[str, Role]) -> None:
        self.program = program
        self.roles = roles
        built = build_for(program, gpu.info)
        self.cubins = {name: each.cubin for name, each in built.items()}
        self.cached = tuple(f"{name}: {each.cache}" for name, each in built.items() if each.cache)
        self._gpu = gpu
        self._by_sizes: dict[tuple[tuple[str, int], ...], Buffers] = {}
        self._in_place: dict[tuple[int | None, tuple[tuple[str, int], ...]], Buffers] = {}
        self._lock = threading.Lock()

    def run(self, arrays: Mapping[str, Array], sizes: Mapping[str, int]) -> None:
        """Run on host arrays. Outputs are copied in too: what no kernel writes keeps what the caller put there.

        Temporaries share one host arena in `arrays`; their device addresses repeat its layout.
        """
        with self._lock, self._named():
            held = self._uploaded(arrays, sizes)
            self._gpu.replay(held.graph)
            for name, array in arrays.items():
                if self.roles[name] in ("output", "inout"):
                    self._gpu.download(held.addresses[name], array)

    def seconds(self, arrays: Mapping[str, Array], sizes: Mapping[str, int]) -> Array:
        """Run as `run` does, launch by launch without a graph; the seconds of each, 0 for one over no elements."""
        with self._lock, self._named():
            held = self._uploaded(arrays, sizes)
            taken = iter(self._gpu.seconds(self.launches(held.addresses, sizes, held.arrivals)))
        return np.array([0.0 if _is_empty(each, sizes) else next(taken) for each in self.program.launches])

    def _uploaded(self, arrays: Mapping[str, Array], sizes: Mapping[str, int]) -> Buffers:
        """The buffers for some sizes, with these arrays in them; constants go up where they are new."""
        key = tuple(sorted(sizes.items()))
        held = self._by_sizes.get(key)
        if held is None:
            held = self._allocated(arrays)
            held.graph = self._gpu.capture(self.launches(held.addresses, sizes, held.arrivals))
            self._by_sizes[key] = held
        for name, array in arrays.items():
            if self.roles[name] == "temporary" or held.constants.get(name) is array:
                continue
            self._gpu.upload(held.addresses[name], array)
            if self.roles[name] == "constant":
                held.constants[name] = array
        return held

    def run_in_place(
        self,
        given: Mapping[str, int],
        host: Mapping[str, Array],
        sizes: Mapping[str, int],
        stream: int | None = None,
        waits: bool = False,
        owner: object = None,
    ) -> Buffers:
        """Run on arrays that lie on the GPU already, by address; constants and temporaries as in `run`.

        On the caller's `stream`, which has temporaries and weights of its own, so that calls on two streams do not
        meet: the call returns at once, and what the caller queues there sees its results. Without one, or where not all
        of the caller's work is there, it `waits`. Addresses that come again are replayed as a graph. Returns what
        `again` takes: the memory on the device, with constants that are the `owner`'s.
        """
        self._check_alignment(given)
        key = stream, tuple(sorted(sizes.items()))
        with self._lock, self._named():
            held = self._in_place.get(key)
            if held is None:
                held = self._in_place[key] = self._allocated(host, stream)
            held.owner = None  # nobody's while some are old and some new, as they stay if an upload fails
            for name, array in host.items():
                if self.roles[name] == "constant" and held.constants.get(name) is not array:
                    self._gpu.upload(held.addresses[name], array, stream)
                    held.constants[name] = array
            held.owner = owner
            self._launch_or_replay(held, given, sizes, stream)
            if waits or stream is None:
                self._gpu.wait(stream)
            return held

    def again(
        self,
        held: Buffers,
        owner: object,
        names: tuple[str, ...],
        addresses: tuple[int, ...],
        sizes: Mapping[str, int],
        stream: int | None,
    ) -> bool:
        """A call like one that `run_in_place` has run, and nothing checked again; False if the constants are others'.

        `addresses` are those of the arrays by `names`, in the order in which they were given then.
        """
        with self._lock:
            if held.owner is not owner:
                return False
            graph = held.graphs.get(addresses)
            if graph is None:
                with self._named():
                    self._launch_or_replay(held, dict(zip(names, addresses, strict=True)), sizes, stream)
                return True
            held.graphs[addresses] = held.graphs.pop(addresses)  # used last
            try:
                self._gpu.replay(graph, stream)
            except DeviceFailure as error:  # as in `_named`, without a generator
                raise self._with_kernels(error) from error.__cause__
            return True

    def _launch_or_replay(
        self, held: Buffers, given: Mapping[str, int], sizes: Mapping[str, int], stream: int | None
    ) -> None:
        """Addresses get a graph when they come for the second time, as many come only once: a new one, or that of
        addresses that have not come for long, updated in place.
        """
        key = tuple(given.values())
        if key not in held.graphs:
            if len(held.graphs) == CAPTURED:
                left = held.graphs.pop(next(iter(held.graphs)))
                held.spare += [left] if left is not None else []
            held.graphs[key] = None
            self._gpu.launch(self.launches({**held.addresses, **given}, sizes, held.arrivals), stream)
            return
        graph = held.graphs.pop(key)
        if graph is None:
            graph = self._graph(held, self.launches({**held.addresses, **given}, sizes, held.arrivals))
        held.graphs[key] = graph
        self._gpu.replay(graph, stream)

    def _graph(self, held: Buffers, launches: list[Launch]) -> Any:
        if not held.spare:
            return self._gpu.capture(launches)
        graph = held.spare.pop()
        self._gpu.update(graph, launches)
        return graph

    @contextmanager
    def _named(self) -> Iterator[None]:
        """Failures that are found here name the kernels of the call, where they do not name one."""
        try:
            yield
        except DeviceFailure as error:
            raise self._with_kernels(error) from error.__cause__

    def _with_kernels(self, error: DeviceFailure) -> DeviceFailure:
        """The failure, with the kernels of the call if it names none; what no memory was left for is named already."""
        if error.kernels or isinstance(error, OutOfDeviceMemory):
            return error
        return call_failed(error, ((launch.name, launch.statements) for launch in self.program.launches))

    @property
    def gpu(self) -> Gpu:
        """The device this program runs on."""
        return self._gpu

    def launches(
        self, addresses: Mapping[str, int], sizes: Mapping[str, int], arrivals: int = 0
    ) -> list[Launch]:
        """The program's launches on given device addresses; a launch over no elements is left out.

        `arrivals` is the address of what blocks count in that wait for each other, zero before the first launch.
        """
        extra = [sizes[name] for name in self.program.sizes]
        found = []
        for launch in self.program.launches:
            if _is_empty(launch, sizes):
                continue
            grid, block = launch.extents(sizes)
            together = launch.code.grid_barriers > 0
            counter = (arrivals,) if together else ()
            given = [addresses[name] for name in launch.tensors]
            maps = (each.at(given[each.position], sizes) for each in launch.code.maps)
            arguments: tuple[int | TensorMap, ...] = (*given, *counter, *extra, *maps)
            (gx, gy, gz), (bx, by, bz) = grid, block
            cubin, names = self.cubins[launch.name], launch.statements
            found.append(Launch(cubin, (gx, gy, gz), (bx, by, bz), arguments, together, names))
        return found

    def _check_alignment(self, given: Mapping[str, int]) -> None:
        """Raises BadArgument for an array that a kernel accesses 16 bytes at a time, and that does not begin so."""
        for launch in self.program.launches:
            for name in (launch.tensors[position] for position in launch.code.wide):
                if given.get(name, 0) % ACCESS_BYTES:
                    raise BadArgument(
                        f"{name} begins at {given[name]:#x}, no multiple of {ACCESS_BYTES} bytes, which kernel "
                        f"{launch.name} accesses at a time; pass a copy, which begins at one"
                    )

    def _allocated(self, arrays: Mapping[str, Array], stream: int | None = None) -> Buffers:
        """A buffer for each tensor; temporaries are one buffer, with the offsets they have in the arena.

        Only they: two of a caller's arrays may overlap in one call and not in the next.
        """
        held = Buffers()
        if any(code.grid_barriers for code in self.program.codes):
            held.arrivals = self._new(held, _COUNTER.nbytes, stream, "the counter of a grid barrier")
            self._gpu.upload(held.arrivals, _COUNTER, stream)
        arenas: dict[int, int] = {}
        for name, array in arrays.items():
            if self.roles[name] != "temporary":
                use = f"{self.roles[name]} {name}, {array.dtype} {list(array.shape)}"
                held.addresses[name] = self._new(held, array.nbytes, stream, use)
                continue
            arena = _root(array)
            if id(arena) not in arenas:
                arenas[id(arena)] = self._new(
                    held, arena.nbytes, stream, f"the temporaries {self._temporaries()}"
                )
            held.addresses[name] = arenas[id(arena)] + array.ctypes.data - arena.ctypes.data
        return held

    def _new(self, held: Buffers, nbytes: int, stream: int | None, use: str) -> int:
        held.memory.append(self._gpu.allocate(nbytes, stream, use))
        return address(held.memory[-1])

    def _temporaries(self) -> str:
        used = dict.fromkeys(name for launch in self.program.launches for name in launch.tensors)
        return ", ".join(name for name in used if self.roles[name] == "temporary")


def _is_empty(launch: programs.Launch, sizes: Mapping[str, int]) -> bool:
    """True for a launch over no elements, which a GPU refuses."""
    return any(0 in extents for extents in launch.extents(sizes))


def _root(array: Array) -> Array:
    """The array that owns a view's memory."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array
