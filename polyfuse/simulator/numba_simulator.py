"""A CUDA kernel on numba's own simulator: one Python thread for each GPU thread, so barriers really block.

A second opinion on `lockstep` for tiny sizes, about 1e5 multiply-adds a second: scheduling and barriers are the
simulator's, statements are executed by Python itself. It runs in this process, sets no environment variable, and
leaves `numba.cuda` the real one. It finds a race only if the threads happen to run in an order that shows it,
and takes a negative index as Python does. Needs the extra `polyfuse[cuda]`.
"""

from __future__ import annotations

import ast
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial, reduce
from math import prod
from threading import Barrier, BrokenBarrierError, Lock, current_thread
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt

from polyfuse.analysis.banks import WARP
from polyfuse.codegen.cuda.device_ops import by_position
from polyfuse.codegen.cuda.kernel_grammar import (
    BINARY_MATH,
    CONSTANTS,
    DTYPES,
    UNARY_MATH,
    UnsupportedKernel,
)
from polyfuse.codegen.looptree.half_types import CONVERSIONS, CONVERTED, converted, copied_bits
from polyfuse.errors import TargetUnavailable
from polyfuse.ir.precision import STEPS
from polyfuse.layouts.core_matrix import FORMATS
from polyfuse.simulator import values
from polyfuse.simulator.races import BarrierError, poison
from polyfuse.simulator.threads import distance

MOST_WAIT = 60.0
"""Seconds after which lanes that do not come are missing, not late."""


def simulate(
    source: str, name: str, grid: int | Sequence[int], block: int | Sequence[int], args: Sequence[Any]
) -> None:
    """Runs kernel `name` of `source` as `lockstep.run` does: flat NumPy arrays, changed in place, and numbers.

    Raises what a thread raises (IndexError past an array's end), BarrierError if a block's threads pass unlike
    numbers of barriers, and TargetUnavailable where the extra is missing.
    """
    try:
        from numba.cuda.simulator.kernel import BlockManager
    except ImportError as error:
        message = f"the CUDA simulator needs {error.name}: pip install polyfuse[cuda]"
        raise TargetUnavailable(message) from error
    blocks, threads = _extent(grid), _extent(block)
    namespace = _names()
    module = ast.parse(source)  # whose imports are the GPU's: the simulator has its own of everything
    module.body = [by_position(node) for node in module.body if isinstance(node, ast.FunctionDef)]
    exec(compile(module, f"<simulated kernel {name}>", "exec"), namespace)
    for point in np.ndindex(*blocks):
        device = _Device(blocks, threads)
        # A kernel launched by the simulator's own decorator would share one memory among all blocks.
        namespace["cuda"] = device
        BlockManager(partial(_quietly, namespace[name]), blocks, threads, False).run(point, *args)
        device.check_barriers(name)


class _Device:
    """The module `cuda` of a kernel while one block runs."""

    def __init__(self, blocks: tuple[int, ...], threads: tuple[int, ...]) -> None:
        self.gridDim = SimpleNamespace(**dict(zip("xyz", blocks, strict=True)))
        self.blockDim = SimpleNamespace(**dict(zip("xyz", threads, strict=True)))
        self.shared = _Arrays(per_thread=False)
        self.local = _Arrays(per_thread=True)
        count = -(-prod(threads) // WARP)
        self.warps = [[None] * WARP for _ in range(count)]
        self.meetings = {
            (lane, n): Barrier(n) for n in (4, 8, 16, WARP) for lane in range(0, WARP * count, n)
        }
        self.passed: Counter[tuple[int, ...]] = Counter(dict.fromkeys(np.ndindex(*threads), 0))

    @property
    def threadIdx(self) -> Any:
        return _thread().threadIdx

    @property
    def blockIdx(self) -> Any:
        return _thread().blockIdx

    def syncthreads(self) -> None:
        self.passed[tuple(self.threadIdx)] += 1
        _thread().syncthreads()

    def shfl_xor_sync(self, mask: int, value: Any, bits: int) -> Any:
        """The value of the lane whose number differs in these bits; all lanes of a warp come together, or a row's."""
        x, y, z = self.threadIdx
        thread = x + self.blockDim.x * (y + self.blockDim.y * z)
        held, among = self.warps[thread // WARP], WARP if mask == -1 else mask
        meet = self.meetings[thread // among * among, among]
        try:
            held[thread % WARP] = value
            meet.wait(MOST_WAIT)
            other = held[thread % WARP ^ bits]
            meet.wait(MOST_WAIT)
        except BrokenBarrierError:
            raise BarrierError(f"only some lanes of warp {thread // WARP} exchange values") from None
        return other

    def check_barriers(self, name: str) -> None:
        # The simulator lets the others go when a thread ends; a GPU may hang.
        (most, high), (least, low) = self.passed.most_common()[0], self.passed.most_common()[-1]
        if high != low:
            raise BarrierError(f"in {name!r}, thread {most} passes {high} barriers and thread {least} {low}")


class _Arrays:
    """`cuda.shared` (one array a call site, for all threads of the block) or `cuda.local` (one a call)."""

    def __init__(self, per_thread: bool) -> None:
        self.per_thread = per_thread
        self.made: dict[int, npt.NDArray[Any]] = {}
        self.lock = Lock()

    def array(
        self, shape: int | tuple[int, ...], dtype: type[np.generic], alignment: int | None = None
    ) -> npt.NDArray[Any]:
        fresh = partial(np.full, shape, poison(np.dtype(dtype).name), dtype)
        if self.per_thread:
            return fresh()
        # The place in the bytecode, not the line: two arrays declared on one line stay two.
        site = sys._getframe(1).f_lasti
        with self.lock:
            if site not in self.made:
                self.made[site] = fresh()
            return self.made[site]


def _thread() -> Any:
    # The simulator's thread object carries the indices and the barrier.
    return current_thread()


def _names() -> dict[str, Any]:
    """The names a kernel may use besides `cuda`, with the GPU's result types and treatment of NaN."""
    functions = {f: partial(_math, f) for f in (*UNARY_MATH, *BINARY_MATH)}
    constants = {c: getattr(np, c) for c in CONSTANTS}
    casts = {dtype: getattr(np, dtype) for dtype in DTYPES}
    halves = {name: partial(converted, name) for name in CONVERSIONS}
    extrema = {"min": partial(_extremum, np.fmin), "max": partial(_extremum, np.fmax)}
    return {
        "math": SimpleNamespace(**functions, **constants),
        **casts,
        **halves,
        **extrema,
        **_operations(),
        **{name: _refused(name, why) for name, why in REFUSED.items()},
    }


def _operations() -> dict[str, Callable[..., Any]]:
    """The device operations that one thread performs by itself."""
    copies = _Copies()
    return {
        "tile_fma": _tile_fma,
        "copy_vector": _copy_vector,
        "copy_ahead": copies.ask,
        "copy_padded": _copy_padded,
        "pad_ahead": copies.pad,
        "await_copies": copies.wait,
        "lanes_of": lambda count: count,
        **{f"copy_{conversion}": partial(_copy_converted, conversion) for conversion in CONVERTED},
        **{f"pad_{conversion}": partial(_pad_converted, conversion) for conversion in CONVERTED},
    }


def _tile_fma(
    rows: int, columns: int, most: int, y: Any,
    a: Any, a_at: int, a_line: int, a_every: int, a_skip: int, a_part: int, a_vector: int,
    b: Any, b_at: int, b_line: int, b_every: int, b_skip: int, b_part: int, b_vector: int,
    count: int,
) -> None:  # fmt: skip
    a_lines, b_lines = (
        (a_line, a_every, a_skip, a_part, a_vector),
        (b_line, b_every, b_skip, b_part, b_vector),
    )
    for k in range(count):
        left = [a[a_at + distance(k, r, *a_lines)] for r in range(rows)]
        right = [b[b_at + distance(k, c, *b_lines)] for c in range(columns)]
        y += np.multiply.outer(left, right).astype(y.dtype)


_BY_WARPS = (
    "several threads together perform {}, and the simulator runs one at a time: device='lockstep' has it"
)
_BY_BLOCKS = (
    "blocks wait for each other at {}, and the simulator runs one block after the other: "
    "device='lockstep' runs them together"
)

REFUSED = {
    **dict.fromkeys((f"tile_mma_{math}" for math in STEPS), _BY_WARPS),
    **dict.fromkeys((f"{how}_wgmma_{math}" for how in ("tile", "begin") for math in FORMATS), _BY_WARPS),
    **dict.fromkeys(("await_wgmma", "await_wgmma_before", "show_tensor_cores"), _BY_WARPS),
    **dict.fromkeys(("begin_bulk", "copy_bulk", "await_bulk", "copy_multicast"), _BY_WARPS),
    **dict.fromkeys(("begin_handover", "await_free", "hand_over", "await_full", "hand_back"), _BY_WARPS),
    **dict.fromkeys(("hand_back_cluster", "cluster_barrier", "grid_barrier"), _BY_BLOCKS),
}
"""The reasons why the simulator refuses the other device operations."""


def _refused(name: str, why: str) -> Callable[..., None]:
    def refuse(*_: Any) -> None:
        raise UnsupportedKernel(why.format(name))

    return refuse


def _copy_vector(count: int, target: Any, to: int, step: int, source: Any, at: int) -> None:
    into, out_of = target.reshape(-1), source.reshape(-1)  # no copies: both are contiguous
    for lane in range(count):
        into[to + step * lane] = out_of[at + lane]


def _copy_converted(
    conversion: str, count: int, target: Any, to: int, run: int, step: int, source: Any, at: int
) -> None:
    into, out_of = target.reshape(-1), source.reshape(-1)
    for lane in range(count):
        into[to + lane // run * step + lane % run] = copied_bits(conversion, out_of[at + lane])


def _copy_padded(target: Any, to: int, source: Any, at: int, here: bool) -> None:
    target[to] = source[at] if here else 0


def _pad_converted(
    conversion: str, count: int, target: Any, to: int, run: int, step: int, source: Any, at: int, here: bool
) -> None:
    padded = source.reshape(-1)[at : at + count] if here else np.zeros(count, source.dtype)
    _copy_converted(conversion, count, target, to, run, step, padded, 0)


class _Copies:
    """Copies that arrive as late as they may: when the thread that asked for them waits."""

    def __init__(self) -> None:
        self.groups: dict[Any, list[list[tuple[Any, ...]]]] = {}

    def ask(self, count: int, target: Any, to: int, step: int, source: Any, at: int) -> None:
        values = [source[at + lane] for lane in range(count)]
        self._own()[-1].append((target, to, step, values))

    def pad(self, count: int, target: Any, to: int, step: int, source: Any, at: int, here: bool) -> None:
        values = [source[at + lane] if here else 0 for lane in range(count)]
        self._own()[-1].append((target, to, step, values))

    def wait(self, still_open: int) -> None:
        own = self._own()
        while len(own) > still_open:
            for target, to, step, arrived in own.pop(0):
                for lane, value in enumerate(arrived):
                    target[to + step * lane] = value
        own.append([])

    def _own(self) -> list[list[tuple[Any, ...]]]:
        return self.groups.setdefault(_thread(), [[]])


def _math(function: str, *arguments: Any) -> Any:
    return values.call(f"math.{function}", [np.asarray(a)[()] for a in arguments])


def _extremum(choose: Callable[[Any, Any], Any], *arguments: Any) -> Any:
    return reduce(choose, arguments)


def _quietly(kernel: Callable[..., None], *args: Any) -> None:
    # Per thread: NumPy's error state does not reach a new thread. The GPU does not report overflow either.
    with np.errstate(all="ignore"):
        kernel(*args)


def _extent(given: int | Sequence[int]) -> tuple[int, ...]:
    numbers = (given,) if isinstance(given, int) else tuple(given)
    return (*numbers, 1, 1)[:3]
