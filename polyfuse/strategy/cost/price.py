"""`pf.cost`: the price of a schedule, kernel by kernel, as a value."""

from __future__ import annotations

from dataclasses import dataclass

from polyfuse.analysis.once import once
from polyfuse.analysis.storage import BLOCKS
from polyfuse.errors import BadArgument, InvalidSchedule, quantity
from polyfuse.errors.proving import proving
from polyfuse.errors.viewed import Viewed
from polyfuse.ir.tree import ON_CORES, Tree, loops, parts, statements
from polyfuse.machine import GpuMachine, Machine
from polyfuse.measure import duration
from polyfuse.schedule import Schedule
from polyfuse.strategy.cost.composite import roofline_bounds
from polyfuse.strategy.cost.counts import nominal_sizes
from polyfuse.strategy.cost.finished import tree_costs
from polyfuse.strategy.cost.roofline import KernelCost


@dataclass(frozen=True)
class KernelPrice:
    """The price of one kernel of a schedule.

    Attributes:
        statements: The statements that it runs.
        cost: Seconds by what they go to, operations and bytes.
        bound: The seconds that the roofline allows at least.
        once: True if it depends on constants alone and runs once for all calls.
    """

    statements: tuple[str, ...]
    cost: KernelCost
    bound: float
    once: bool = False

    @property
    def seconds(self) -> float:
        """Seconds of one run."""
        return self.cost.total

    def __str__(self) -> str:
        when = " (once for all calls)" if self.once else ""
        return f"{', '.join(self.statements)}: {self.cost}{when}"


@dataclass(frozen=True, repr=False)
class ScheduleCost(Viewed):
    """The price of a schedule on a machine: `print` it, or read its parts.

    Attributes:
        machine: The machine.
        kernels: One entry per kernel, in order.
        sizes: (name, value) of the symbolic sizes that were counted for.
    """

    machine: Machine
    kernels: tuple[KernelPrice, ...]
    sizes: tuple[tuple[str, int], ...] = ()

    @property
    def _calls(self) -> tuple[KernelPrice, ...]:
        return tuple(kernel for kernel in self.kernels if not kernel.once)

    @property
    def seconds(self) -> float:
        """Seconds of one call."""
        return sum(kernel.cost.total for kernel in self._calls)

    @property
    def compute(self) -> float:
        """Seconds of arithmetic, loads and stores, of all kernels of a call."""
        return sum(kernel.cost.compute for kernel in self._calls)

    @property
    def memory(self) -> float:
        """Seconds of moving data between caches and memory, of all kernels of a call."""
        return sum(kernel.cost.memory for kernel in self._calls)

    @property
    def overhead(self) -> float:
        """Seconds of starting kernels and waiting, of all kernels of a call."""
        return sum(kernel.cost.overhead + kernel.cost.waiting for kernel in self._calls)

    @property
    def flops(self) -> int:
        """Floating-point operations of a call."""
        return sum(kernel.cost.flops for kernel in self._calls)

    @property
    def bytes_moved(self) -> int:
        """Bytes moved by a call: each once, and those that are read again."""
        return sum(kernel.cost.compulsory + kernel.cost.again for kernel in self._calls)

    @property
    def bound(self) -> float:
        """The seconds that the roofline allows at least, kernel by kernel."""
        return sum(kernel.bound for kernel in self._calls)

    def __repr__(self) -> str:
        kernels = quantity(len(self._calls), "kernel")
        return (
            f"<ScheduleCost on {self.machine.name}: {duration(self.seconds)}, {kernels}, {self.flops:,} FLOP>"
        )

    def __str__(self) -> str:
        for_sizes = "".join(f", {name} = {value}" for name, value in self.sizes)
        head = (
            f"{duration(self.seconds)} on {self.machine.name}{for_sizes}, at least {duration(self.bound)}: "
            f"{quantity(len(self._calls), 'kernel')}"
        )
        return "\n".join((head, *(f"  {kernel}" for kernel in self.kernels)))


@proving("the price of a schedule")
def cost(schedule: Schedule, machine: Machine | str | None = None) -> ScheduleCost:
    """Price a schedule from its loops: tiles, vector lanes, caches, cores.

    Args:
        schedule: The schedule, made by hand or by a compile.
        machine: The machine, or a preset's name; by default this computer's CPU.

    Returns:
        The price of a call: `.seconds`, and its parts by kernel.

    Raises:
        BadArgument: if something else than a schedule is given.
        InvalidSchedule: if the schedule cannot be priced: its loops are on places that the machine lacks, or a GPU's
            kernel has none on blocks.
        TargetUnavailable: if no machine has this name.
    """
    if not isinstance(schedule, Schedule):
        raise BadArgument(
            f"cost takes a pf.Schedule, given {type(schedule).__name__}; an executable has its .schedule"
        )
    model = Machine.preset(machine) if isinstance(machine, str) else machine or Machine.detect()
    finished = schedule.synchronised()
    for part in parts(finished.tree):
        _check_priced(part, model, named=machine is not None)
    nest = finished.nest
    costs = tree_costs(finished, model)
    early = once(nest, finished.tree)
    bounds = roofline_bounds(finished, costs, model)
    each = zip(parts(finished.tree), costs, bounds, early, strict=True)
    kernels = tuple(KernelPrice(statements(part), price, bound, first) for part, price, bound, first in each)
    return ScheduleCost(model, kernels, tuple(nominal_sizes(nest).items()))


def _check_priced(part: Tree, machine: Machine, named: bool) -> None:
    """Raises InvalidSchedule for a kernel that the machine cannot run as it is."""
    places = [loop.bind for loop in loops(part) if loop.bind is not None]
    on_gpu = [place for place in places if place.on_gpu]
    names = ", ".join(statements(part))
    if isinstance(machine, GpuMachine):
        if any(place in ON_CORES for place in places):
            raise InvalidSchedule(
                f"cost: the kernel of {names} is on a CPU's cores, and {machine.name} is a GPU"
            )
        if not any(place in BLOCKS for place in on_gpu):
            raise InvalidSchedule(
                f"cost: the kernel of {names} has no loop on blocks, so that one thread of {machine.name} runs it, "
                "which is not priced: bind a loop to block.x"
            )
    elif on_gpu:
        hint = "" if named else "; name a GPU, as in machine='h200'"
        raise InvalidSchedule(
            f"cost: the kernel of {names} has loops on {', '.join(dict.fromkeys(on_gpu))}, which {machine.name} does "
            f"not have{hint}"
        )
