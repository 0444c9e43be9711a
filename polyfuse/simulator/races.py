"""The memories of the lock-step run, and the proof that no two threads touch an element without an order
between them.

Every tracked element keeps the last thread that wrote it and two threads that read it since, each as one
integer, its *stamp*:  barrier epoch | thread number | source line.  An access conflicts with a stamp of
another thread whose epoch is not over yet, because only a barrier orders two threads of a block. Two blocks are
ordered by a grid barrier alone, which begins the same epoch in all of them: on global memory a stamp of another
block conflicts unless its epoch is before that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn

import numpy as np
import numpy.typing as npt

from polyfuse.analysis.banks import WARP
from polyfuse.codegen.cuda.kernel_grammar import Declaration, KernelSource, UnsupportedKernel
from polyfuse.errors import PolyfuseError
from polyfuse.simulator.grid import Grid, Integers

Values = npt.NDArray[np.generic]

LINE_BITS = 16
THREAD_BITS = 24
EPOCH_BITS = LINE_BITS + THREAD_BITS
OTHER_THREAD = 1 << LINE_BITS  # two stamps of one epoch differ by at least this where their threads differ
NEVER = -1


class RaceError(PolyfuseError):
    """Two threads touch one element, at least one of them writing, and nothing orders them."""


class BarrierError(PolyfuseError):
    """`cuda.syncthreads()` is reached by some threads of a block and not by others."""


class OutOfBounds(PolyfuseError):
    """An index is negative or not below its array's size."""


class Team:
    """The threads that run together, all threads of blocks first..first+count-1, and where each stands.

    `stamp` is the part of an access' stamp that a barrier changes: epoch and thread number, line 0.
    """

    def __init__(self, grid: Grid, first: int, count: int) -> None:
        self.grid = grid
        self.size = count * grid.per_block
        self.block = np.repeat(np.arange(count, dtype=np.int64), grid.per_block)
        self.thread = np.arange(self.size, dtype=np.int64) + first * grid.per_block
        self.epoch = np.zeros(count, dtype=np.int64)
        self.stamp = self.thread << LINE_BITS
        self.since = np.zeros(self.size, dtype=np.int64)
        self.met = 0  # the start of the epoch in which all blocks met last
        self.meetings = 0

    def synchronise(self, mask: npt.NDArray[np.bool_] | None, line: str) -> None:
        """Opens the next epoch of every block whose threads are all here. Raises BarrierError if only some
        are.
        """
        if mask is None:
            self.epoch += 1
        else:
            arrived = mask.reshape(-1, self.grid.per_block)
            full, some = arrived.all(axis=1), arrived.any(axis=1)
            if (full != some).any():
                self._refuse(arrived, int(np.argmax(full != some)), line)
            self.epoch += full
        self.since = self.epoch[self.block] << EPOCH_BITS
        self.stamp = self.since | (self.thread << LINE_BITS)

    def synchronise_grid(self, mask: npt.NDArray[np.bool_] | None, line: str) -> None:
        """Opens one epoch for all blocks. Raises BarrierError if a thread of the grid is not here."""
        if mask is not None and not mask.all():
            here, missing = (int(self.thread[int(np.argmax(which))]) for which in (mask, ~mask))
            raise BarrierError(
                f"all blocks meet at {line}, under divergent control flow: {self.grid.name(here)} reaches it, "
                f"{self.grid.name(missing)} does not"
            )
        self.epoch[:] = self.epoch.max() + 1
        self.since = self.epoch[self.block] << EPOCH_BITS
        self.stamp = self.since | (self.thread << LINE_BITS)
        self.met = int(self.since[0])
        self.meetings += 1

    def together(self, mask: npt.NDArray[np.bool_] | None, line: str, count: int = WARP) -> None:
        """Raises BarrierError if only some of `count` threads in a row are here, or a block ends inside them."""
        per_block = self.grid.per_block
        by_block = np.ones((1, per_block), np.bool_) if mask is None else mask.reshape(-1, per_block)
        if by_block[:, per_block - per_block % count :].any():
            group = "warp" if count == WARP else "row of lanes" if count < WARP else "warpgroup"
            raise BarrierError(f"lanes exchange values at {line}, and the block's last {group} is not whole")
        whole = per_block // count
        arrived = by_block[:, : whole * count].reshape(-1, count)
        full, some = arrived.all(axis=1), arrived.any(axis=1)
        if (full != some).any():
            warp = int(np.argmax(full != some))
            start = int(self.thread[0]) + warp // whole * per_block + warp % whole * count
            here, missing = start + int(np.argmax(arrived[warp])), start + int(np.argmin(arrived[warp]))
            raise BarrierError(
                f"lanes exchange values under divergent control flow at {line}: {self.grid.name(here)} reaches it, "
                f"{self.grid.name(missing)} does not"
            )

    def _refuse(self, arrived: npt.NDArray[np.bool_], block: int, line: str) -> NoReturn:
        start = int(self.thread[0]) + block * self.grid.per_block
        here, missing = start + int(np.argmax(arrived[block])), start + int(np.argmin(arrived[block]))
        raise BarrierError(
            f"cuda.syncthreads() under divergent control flow at {line}: {self.grid.name(here)} reaches it, "
            f"{self.grid.name(missing)} does not"
        )


@dataclass(frozen=True)
class Conflict:
    """Access number `position` of a statement meets the access with stamp `other`."""

    position: int
    other: int
    other_wrote: bool


class Ledger:
    """The last access to each of `size` elements. In global memory (`per_block`: threads), blocks share them."""

    def __init__(self, size: int, per_block: int | None = None) -> None:
        self.per_block = per_block
        self.writer = np.full(size, NEVER, dtype=np.int64)
        self.reader = np.full(size, NEVER, dtype=np.int64)
        self.another = np.full(size, NEVER, dtype=np.int64)  # a reader of the same epoch, unlike `reader`
        # `reader` forgets at a barrier, yet blocks stay unordered: the first reading block is kept apart.
        self.first = np.full(size if per_block else 0, NEVER, dtype=np.int64)
        self.foreign = np.full(size if per_block else 0, NEVER, dtype=np.int64)

    def read(self, at: Integers, stamp: Integers, since: Integers, met: int = 0) -> Conflict | None:
        """Threads with `stamp` read elements `at`; `since` is the start of each one's epoch, `met` of the one in which
        all blocks met last.
        """
        conflict = self._meets(self.writer, at, stamp, since, met, other_wrote=True)
        if conflict is not None:
            return conflict
        known = self.reader[at]
        stale = known < since
        if stale.any():
            self.reader[at[stale]] = stamp[stale]
            known = self.reader[at]
        differs = (known ^ stamp) >= OTHER_THREAD
        if differs.any():
            self.another[at[differs]] = stamp[differs]
        if self.per_block:
            self._remember(at, stamp, met)
        return None

    def write(self, at: Integers, stamp: Integers, since: Integers, met: int = 0) -> Conflict | None:
        """Threads with `stamp` write elements `at`."""
        conflict = (
            self._meets(self.writer, at, stamp, since, met, other_wrote=True)
            or self._meets(self.reader, at, stamp, since, met, other_wrote=False)
            or self._meets(self.another, at, stamp, since, met, other_wrote=False)
        )
        if conflict is None and self.per_block:
            conflict = self._crosses(self.first, at, stamp, met, False) or self._crosses(
                self.foreign, at, stamp, met, False
            )
        if conflict is not None:
            return conflict
        self.writer[at] = stamp
        last = self.writer[
            at
        ]  # where two threads of this very statement write one element, only one stamp stayed
        return _first((last ^ stamp) >= OTHER_THREAD, last, other_wrote=True)

    def _meets(
        self, table: Integers, at: Integers, stamp: Integers, since: Integers, met: int, other_wrote: bool
    ) -> Conflict | None:
        known = table[at]
        conflict = _first((known >= since) & ((known ^ stamp) >= OTHER_THREAD), known, other_wrote)
        if conflict is None and self.per_block and other_wrote:
            conflict = self._crosses(table, at, stamp, met, other_wrote)
        return conflict

    def _crosses(
        self, table: Integers, at: Integers, stamp: Integers, met: int, other_wrote: bool
    ) -> Conflict | None:
        known = table[at]
        return _first((known >= met) & (self._block(known) != self._block(stamp)), known, other_wrote)

    def _remember(self, at: Integers, stamp: Integers, met: int) -> None:
        unseen = self.first[at] < met
        if unseen.any():
            self.first[at[unseen]] = stamp[unseen]
        differs = self._block(self.first[at]) != self._block(stamp)
        if differs.any():
            self.foreign[at[differs]] = stamp[differs]

    def _block(self, stamps: Integers) -> Integers:
        assert self.per_block is not None
        blocks: Integers = ((stamps >> LINE_BITS) & ((1 << THREAD_BITS) - 1)) // self.per_block
        return blocks


def _first(hits: npt.NDArray[np.bool_], known: Integers, other_wrote: bool) -> Conflict | None:
    if not hits.any():
        return None
    position = int(np.argmax(hits))
    return Conflict(position, int(known[position]), other_wrote)


@dataclass(frozen=True)
class Memory:
    """One array of the kernel as the team sees it.

    `data` is flat. Element e of the array is data[e] in global memory, data[block * size + e] in shared
    memory, and data[e * threads + thread] in local memory. `ledger` is None if no conflict is possible:
    local memory, and global memory that the kernel only reads. `offset` is the array's first element in a
    ledger it shares.
    """

    name: str
    space: str
    shape: tuple[int, ...]
    data: Values
    ledger: Ledger | None = None
    offset: int = 0

    @property
    def size(self) -> int:
        """Number of elements."""
        return int(np.prod(self.shape, dtype=np.int64))

    def element(self, flat: int) -> str:
        """`[2, 5]`: an element's subscripts from its flat position."""
        return f"[{', '.join(str(int(i)) for i in np.unravel_index(flat, self.shape))}]"


def poison(dtype: str) -> np.generic:
    """The value of uninitialised memory: NaN, or an integer that is out of bounds as an index."""
    kind = np.dtype(dtype)
    if kind.kind == "b":
        return np.False_
    if kind.kind == "u":
        held: np.generic = kind.type(np.iinfo(kind).max)  # of a half's bits, no number
        return held
    value: np.generic = kind.type(np.nan) if kind.kind == "f" else kind.type(np.iinfo(kind).min // 2)
    return value


def declared(array: Declaration, team: Team) -> Memory:
    """The shared or local array of a declaration, poisoned."""
    copies = len(team.epoch) if array.space == "shared" else team.size
    data = np.full(copies * array.size, poison(array.dtype), dtype=array.dtype)
    ledger = Ledger(len(data)) if array.space == "shared" else None
    return Memory(array.name, array.space, array.shape, data, ledger)


def pointers(kernel: KernelSource, arrays: dict[str, Values], grid: Grid) -> dict[str, Memory]:
    """The global arrays. Those that overlap in memory share one ledger, so that a conflict through two names
    is seen.

    Raises ValueError for overlapping arrays of unlike element sizes.
    """
    memories: dict[str, Memory] = {}
    for group in _overlapping(arrays):
        if not any(name in kernel.stored for name in group):
            memories |= {name: Memory(name, "global", arrays[name].shape, arrays[name]) for name in group}
            continue
        starts = {name: arrays[name].__array_interface__["data"][0] for name in group}
        low, step = min(starts.values()), arrays[group[0]].itemsize
        if any(arrays[name].itemsize != step or (starts[name] - low) % step for name in group):
            raise ValueError(f"arrays {', '.join(group)} overlap in memory with unlike elements")
        high = max(starts[name] + arrays[name].nbytes for name in group)
        ledger = Ledger((high - low) // step, grid.per_block)
        for name in group:
            offset = (starts[name] - low) // step
            memories[name] = Memory(name, "global", arrays[name].shape, arrays[name], ledger, offset)
    return memories


def _overlapping(arrays: dict[str, Values]) -> list[list[str]]:
    """Groups of names whose arrays touch the same bytes, found by one sweep over their start addresses."""
    spans = sorted((a.__array_interface__["data"][0], a.nbytes, name) for name, a in arrays.items())
    groups: list[list[str]] = []
    end = -1
    for start, length, name in spans:
        if start < end:
            groups[-1].append(name)
        else:
            groups.append([name])
        end = max(end, start + length)
    return groups


def report(
    conflict: Conflict,
    memory: Memory,
    flat: int,
    thread: int,
    wrote: bool,
    line: int,
    kernel: KernelSource,
    grid: Grid,
) -> RaceError:
    """The sentence for a conflict: array, element, both threads, both lines, and what is missing between
    them.
    """
    other = conflict.other >> LINE_BITS & ((1 << THREAD_BITS) - 1)
    other_line = kernel.line(conflict.other & (OTHER_THREAD - 1))
    same_block = other // grid.per_block == thread // grid.per_block
    missing = (
        "no cuda.syncthreads() lies between them" if same_block else "no grid_barrier() lies between them"
    )
    return RaceError(
        f"race on {memory.space} array {memory.name!r}, element {memory.element(flat)}: "
        f"{grid.name(other)} {'writes' if conflict.other_wrote else 'reads'} it at {other_line}; "
        f"{grid.name(thread)} {'writes' if wrote else 'reads'} it at {kernel.line(line)}; {missing}"
    )


def flatten(
    memory: Memory,
    indices: Sequence[Integers],
    threads: Integers,
    kernel: KernelSource,
    line: int,
    grid: Grid,
) -> Integers:
    """Flat positions of subscripts, each an array over `threads` or one number. Raises OutOfBounds."""
    if len(indices) != len(memory.shape):
        raise UnsupportedKernel(
            f"{memory.name!r} has {len(memory.shape)} axes, not so at {kernel.line(line)}"
        )
    flat: Integers = np.zeros((), dtype=np.int64)
    for axis, (index, extent) in enumerate(zip(indices, memory.shape, strict=True)):
        outside = (index < 0) | (index >= extent)
        if outside.any():
            position = int(np.argmax(outside)) if np.ndim(outside) else 0
            value = int(index[position]) if np.ndim(index) else int(index)
            raise OutOfBounds(
                f"{memory.space} array {memory.name!r} of shape {memory.shape}: subscript {axis} is {value} "
                f"for {grid.name(int(threads[position]))} at {kernel.line(line)}"
            )
        flat = flat * extent + index
    return flat
