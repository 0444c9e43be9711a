"""Choose what a backward pass finds kept and what it computes again, under a limit of bytes.

    kept: a0 2 MB, z0 2 MB, memory=2 MB      ->      z0 is kept;  a0 = max(z0, 0) again where the backward pass reads it

Every kept value begins stored. One after the other is computed again instead: first those for which the model expects
less than for storing and loading them, then the cheapest for each byte that it saves, until the rest is within the
limit. What computes a value again starts at kept values and inputs, and is done for this value alone, so its copies
live only where it is read. The order is greedy: values that need each other's statements are priced anew each time.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from polyfuse.errors import BadArgument, quantity
from polyfuse.ir import Nest
from polyfuse.ir.tree import parts, restrict
from polyfuse.machine import Machine
from polyfuse.machine.levels import size_text
from polyfuse.measure import duration
from polyfuse.rewrite.gradient.checkpoints import Cut
from polyfuse.rewrite.gradient.recompute import Passes, recomputed
from polyfuse.strategy.cost.counts import Counts
from polyfuse.strategy.cost.roofline import Model
from polyfuse.strategy.fusion.gemm_pairs import alone_cost
from polyfuse.strategy.remarks import Remark, weighed

PASS = "kept values"


@dataclass(frozen=True)
class Kept:
    """A nest of gradients with what was chosen.

    Attributes:
        nest: The nest.
        bytes: The size of what the backward pass finds kept.
        remarks: For each kept value of the forward pass what was done with it, with both prices.
    """

    nest: Nest
    bytes: int
    remarks: tuple[Remark, ...]


def within_memory(
    call: str,
    nest: Nest,
    forward: frozenset[str],
    memory: int,
    machine: Machine,
    cut: Cut | None = None,
) -> Kept:
    """Keep no more than so many bytes from the forward pass for the backward pass.

    Args:
        call: The function that was called, for errors.
        nest: A nest of gradients, of sizes that are numbers.
        forward: Its statements of the forward pass.
        memory: The limit in bytes.
        machine: The machine whose model prices both.
        cut: A time loop that runs in segments: what it keeps for one of them counts too, and stays.

    Returns:
        The nest, and a remark for each value.

    Raises:
        BadArgument: if sizes are symbolic, or no choice is within the limit: the message has the least that is.
    """
    if nest.params:
        raise BadArgument(
            f"{call}: memory={memory} of a nest over {', '.join(nest.params)}: how large values are is not known; "
            "give sizes first (`with_sizes`)"
        )
    prices = _Prices(Passes(nest, forward), machine, cut)
    again: set[str] = set()
    while (tensor := _next(prices, again, memory)) is not None:
        again.add(tensor)
    left = prices.bytes(again)
    if left > memory:
        raise BadArgument(
            f"{call}: memory={memory}, but the backward pass needs at least {left} bytes of values of the forward "
            f"pass that cannot be computed again for less: memory={left} does"
        )
    remarks = [_remark(prices, tensor, again) for tensor in prices.passes.kept if tensor not in prices.points]
    segments = () if cut is None else (_of_segments(prices, cut),)
    return Kept(recomputed(prices.passes, again), left, (*segments, *remarks))


def kept_bytes(nest: Nest, forward: frozenset[str]) -> int:
    """The size of what the backward pass of a nest, of sizes that are numbers, finds kept."""
    counts = Counts(nest)
    return sum(map(counts.tensor_bytes, Passes(nest, forward).kept))


class _Prices:
    """What it takes to store values and to compute them again."""

    def __init__(self, passes: Passes, machine: Machine, cut: Cut | None = None) -> None:
        self.passes, self.machine = passes, machine
        self.points = cut.points if cut else ()
        self.filled = tuple(name for name in (cut.kept if cut else ()) if name in passes.nest.names)
        self.counts = Counts(passes.nest)
        self.model = Model(self.counts, machine)
        self._seconds: dict[frozenset[str], float] = {}

    def bytes(self, again: Collection[str]) -> int:
        """The size of what is kept, with what is filled for one segment of a time loop after the other."""
        every = (*self.passes.kept, *self.filled)
        return sum(self.counts.tensor_bytes(name) for name in every if name not in again)

    def storing(self, tensor: str) -> float:
        """The seconds of writing a value once and reading it once."""
        moved = 2 * self.counts.tensor_bytes(tensor)
        level = self.machine.level(self.counts.total_bytes)
        return moved / self.machine.bandwidth(level, self.machine.units)

    def computing(self, tensor: str, again: Collection[str]) -> float | None:
        """The seconds of computing a value from what is kept; None if it cannot be."""
        if tensor in self.points:
            return None
        stored = [name for name in self.passes.kept if name not in again and name != tensor]
        found = self.passes.again(tensor, stored)
        if found is None:
            return None
        names = frozenset(s.name for s in found)
        return self.running(names)

    def running(self, names: frozenset[str]) -> float:
        """The seconds of running some statements."""
        if names not in self._seconds:
            order = restrict(self.passes.nest.order, names)
            assert order is not None, "a kept value is computed"
            costs = (alone_cost(self.passes.nest, self.model, part).total for part in parts(order))
            self._seconds[names] = sum(costs)
        return self._seconds[names]

    def total(self, again: Collection[str]) -> float | None:
        """The seconds of all values that are computed again; None if one cannot be."""
        every = [self.computing(tensor, again) for tensor in again]
        return None if None in every else sum(one for one in every if one is not None)


def _next(prices: _Prices, again: Collection[str], memory: int) -> str | None:
    """The next value to compute again; None if the rest is kept."""
    usual = prices.total(again) or 0.0
    tight = prices.bytes(again) > memory
    found: list[tuple[float, str]] = []
    for tensor in prices.passes.kept:
        size = prices.counts.tensor_bytes(tensor)
        if tensor in again or not size:
            continue
        seconds = prices.total({*again, tensor})
        if seconds is None:
            continue
        more = seconds - usual - prices.storing(tensor)
        if more < 0 or tight:
            found.append((more / size, tensor))
    return min(found, default=(0.0, None))[1]


def _of_segments(prices: _Prices, cut: Cut) -> Remark:
    """What a time loop keeps for its segments, and what both ways take."""
    names = frozenset(cut.forward) & frozenset(prices.passes.nest.order.names)
    states = sum(prices.counts.tensor_bytes(name) for name in cut.points)
    values = sum(prices.counts.tensor_bytes(name) for name in prices.filled)
    again = prices.running(names)
    storing = sum(map(prices.storing, (*cut.points, *prices.filled)))
    line = (
        f"Loop {cut.loop} runs again in {quantity(cut.count, 'segment')}, with {size_text(states).strip()} of states "
        f"and {size_text(values).strip()} for one segment: {duration(again)} to compute it again, "
        f"{duration(storing)} to store and load."
    )
    return weighed(PASS, cut.points, True, line, again, storing, chosen=True)


def _remark(prices: _Prices, tensor: str, again: Collection[str]) -> Remark:
    """What was done with a value, and what both ways take."""
    storing, computing = prices.storing(tensor), prices.computing(tensor, again)
    size = size_text(prices.counts.tensor_bytes(tensor)).strip()
    if computing is None:
        line = f"{tensor} ({size}) is kept, as a value that it is computed of is overwritten: {duration(storing)}."
        return weighed(PASS, (tensor,), False, line, float("inf"), storing)
    numbers = f"{duration(computing)} to compute it again, {duration(storing)} to store and load it"
    done = "is computed again in the backward pass" if tensor in again else "is kept"
    taken = tensor in again
    line = f"{tensor} ({size}) {done}: {numbers}."
    return weighed(PASS, (tensor,), taken, line, computing, storing, chosen=taken and computing >= storing)
