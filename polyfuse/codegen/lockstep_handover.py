"""A warp that only copies in lock-step: it and each warpgroup of the others are agents, which slots keep in order.

Of two agents nothing is known but what barriers say: an agent that waits for a phase has *seen* what those had seen
that arrived in it, and the copies that were asked for in it. So what one order of running shows holds for every order:

    who reads an element      has seen the last copy to it
    who copies to an element  has seen that all others gave a slot away after their last read of it, and the copy before

A copy arrives as late as it may, when the first agent has waited for it. A wait looks at a phase's parity alone, as a
GPU does. Agents run one at a time, each until it has to wait; that all of them wait for ever is an error.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from polyfuse.analysis.banks import WARP
from polyfuse.codegen.lockstep_memory import BarrierError, Integers, Memory, poison
from polyfuse.codegen.lockstep_subset import KernelSource, UnsupportedKernel, is_barrier
from polyfuse.codegen.lockstep_threads import Numbers, Threads
from polyfuse.codegen.turn_taking import TakingTurns
from polyfuse.codegen.warpgroup_descriptors import WARPGROUP


@dataclass
class Seen:
    """Copies that have arrived, by number, and how often each agent had given a slot away."""

    copies: set[int] = field(default_factory=set)
    given: dict[int, int] = field(default_factory=dict)

    def join(self, other: Seen) -> None:
        """What both have seen."""
        self.copies |= other.copies
        for agent, count in other.given.items():
            self.given[agent] = max(count, self.given.get(agent, 0))


@dataclass
class Phases:
    """A barrier: the arrivals of a phase, how many the current one lacks, what was seen as each was over, and the
    number of the copies in each.
    """

    expected: int
    lacking: int
    over: list[Seen] = field(default_factory=list)
    arrived: Seen = field(default_factory=Seen)
    asked: dict[int, int] = field(default_factory=dict)


@dataclass
class Held:
    """Of a shared array's elements the number of the last copy to it, -1 without; and after how many gifts each agent
    read it last, counted from 1.
    """

    copied: Integers
    read: dict[int, Integers] = field(default_factory=dict)


class Handover:
    """The slots of a kernel's blocks, all of which are at the same ones."""

    def __init__(self, slots: int, warps: int) -> None:
        self.slots = slots
        self.barriers = [Phases(n, n) for n in (*(1,) * slots, *(warps,) * slots)]
        self.seen: dict[int, Seen] = {}
        self.held: dict[str, Held] = {}
        self.coming: dict[int, list[tuple[Memory, Integers, Numbers]]] = {}
        self.numbers = 0
        self.turns: TakingTurns | None = None

    # -- memory

    def asked(self, agent: int, memory: Memory, at: Integers, value: Numbers, slot: int) -> None:
        """A copy to elements of a shared array, to arrive in a slot."""
        held = self.held.setdefault(memory.name, Held(np.full(len(memory.data), -1, np.int64)))
        seen = self.seen[agent]
        if not set(np.unique(held.copied[at]).tolist()) - {-1} <= seen.copies:
            raise TypeError(f"{memory.name} is copied to before the copy there has been waited for")
        for other, read in held.read.items():
            if other != agent and (read[at] > seen.given.get(other, 0)).any():
                raise TypeError(
                    f"{memory.name} is copied to while others read it, which have not handed it back"
                )
        barrier = self.barriers[slot % self.slots]
        number = barrier.asked.setdefault(len(barrier.over), self.numbers)
        self.numbers += number == self.numbers
        memory.data[at], held.copied[at] = poison(memory.data.dtype.name), number
        self.coming.setdefault(number, []).append((memory, at, value))

    def read(self, agent: int, memory: Memory, at: Integers) -> None:
        """Elements are read by an agent, at least until it gives the next slot away."""
        held = self.held.get(memory.name)
        if held is None:
            return
        seen = self.seen[agent]
        if not set(np.unique(held.copied[at]).tolist()) - {-1} <= seen.copies:
            raise TypeError(f"{memory.name} is read before the copies to it have been waited for")
        mine = held.read.setdefault(agent, np.zeros(len(memory.data), np.int64))
        mine[at] = seen.given.get(agent, 0) + 1

    def written(self, memory: Memory) -> None:
        """Nothing but copies writes where copies go."""
        if memory.name in self.held:
            raise TypeError(f"{memory.name} is written by other threads than those that copy to it")

    # -- barriers

    def arrive(self, agent: int, barrier: Phases, count: int) -> None:
        """So many threads of each block arrive."""
        seen = self.seen[agent]
        seen.given[agent] = seen.given.get(agent, 0) + 1
        barrier.arrived.join(seen)
        barrier.lacking -= count
        if barrier.lacking < 0:
            raise TypeError(
                f"more threads arrive at a barrier of a slot than the {barrier.expected} that it counts"
            )
        if barrier.lacking == 0:
            barrier.over.append(copy.deepcopy(barrier.arrived))
            barrier.lacking = barrier.expected

    def wait(self, agent: int, barrier: Phases, phase: int) -> None:
        """An agent waits until a barrier's phase has another parity than the one that it waits for."""
        assert self.turns is not None, "agents run"
        self.turns.until(agent, lambda: len(barrier.over) % 2 != phase % 2)
        if 0 <= phase < len(barrier.over):
            self.seen[agent].join(barrier.over[phase])
            self.seen[agent].copies |= {n for asked, n in barrier.asked.items() if asked <= phase}
        for asked, number in barrier.asked.items():
            for memory, at, value in self.coming.pop(number, []) if asked < len(barrier.over) else ():
                last = self.held[memory.name].copied[at] == number
                memory.data[at[last]] = np.broadcast_to(value, at.shape)[last]


# -- operations


def agreed(threads: Threads, argument: ast.expr) -> int:
    """The number that all active threads have."""
    values = np.unique(threads.active.pick(np.asarray(threads.value(argument))))
    if len(values) != 1:
        raise TypeError("blocks are at different copies")
    return int(values[0])


def _begin(threads: Threads, node: ast.stmt, arguments: list[ast.expr]) -> None:
    if threads.active.mask is not None:
        raise TypeError("only some threads make barriers for slots")
    threads.handover = Handover(*(int(ast.literal_eval(argument)) for argument in arguments[:2]))


def _slot(threads: Threads, arguments: list[ast.expr], free: bool) -> tuple[Handover, Phases, int]:
    """(all slots, a slot's barrier, which phase of it) of a call."""
    if threads.handover is None:
        raise TypeError("there are no slots to hand over")
    count, number = int(ast.literal_eval(arguments[0])), agreed(threads, arguments[2])
    if count != threads.handover.slots:
        raise TypeError(f"there are {threads.handover.slots} slots, and one of {count} is meant")
    barrier = threads.handover.barriers[number % count + (count if free else 0)]
    return threads.handover, barrier, number // count


def _await_full(threads: Threads, node: ast.stmt, arguments: list[ast.expr]) -> None:
    slots, barrier, phase = _slot(threads, arguments, False)
    slots.wait(threads.agent, barrier, phase)


def _await_free(threads: Threads, node: ast.stmt, arguments: list[ast.expr]) -> None:
    slots, barrier, phase = _slot(threads, arguments, True)
    slots.wait(threads.agent, barrier, phase - 1)


def _hand_over(threads: Threads, node: ast.stmt, arguments: list[ast.expr]) -> None:
    slots, barrier, _ = _slot(threads, arguments, False)
    slots.arrive(threads.agent, barrier, _in_each_block(threads, every=1))


def _hand_back(threads: Threads, node: ast.stmt, arguments: list[ast.expr]) -> None:
    slots, barrier, _ = _slot(threads, arguments, True)
    slots.arrive(threads.agent, barrier, _in_each_block(threads, every=WARP))


def _in_each_block(threads: Threads, every: int) -> int:
    """How many active threads of each block are the first of so many."""
    per_block = threads.team.grid.per_block
    mask = threads.active.mask if threads.active.mask is not None else np.ones(threads.team.size, np.bool_)
    counts = np.unique(mask.reshape(-1, per_block)[:, ::every].sum(axis=1))
    if len(counts) != 1:
        raise TypeError("blocks are at different copies")
    return int(counts[0])


HANDOVER_OPERATIONS: dict[str, Callable[[Threads, ast.stmt, list[ast.expr]], None]] = {
    "begin_handover": _begin,
    "await_free": _await_free,
    "await_full": _await_full,
    "hand_over": _hand_over,
    "hand_back": _hand_back,
}


# -- agents


def run_body(machine: Any, kernel: KernelSource) -> None:
    """All statements of a kernel by a machine; those behind the making of slots by each agent in its turn."""
    first, rest = _parted(kernel)
    machine.block(first)
    if not rest:
        return
    slots = machine.handover
    agents = [_agent(machine, number, mask) for number, mask in enumerate(_masks(machine))]
    slots.seen = {agent.agent: Seen() for agent in agents}
    slots.turns = TakingTurns([partial(agent.block, rest) for agent in agents])
    if not slots.turns.run():
        raise BarrierError(f"the warps of {kernel.name} wait for each other for ever: no slot is handed over")
    for counted in ("statements", "loads", "stores", "waits"):
        setattr(machine, counted, getattr(machine, counted) + sum(getattr(a, counted) for a in agents))


def _parted(kernel: KernelSource) -> tuple[Sequence[ast.stmt], Sequence[ast.stmt]]:
    """The statements up to the barrier at which a block sees its slots, and those behind it; all if there are none."""
    made = [p for p, s in enumerate(kernel.body) if "begin_handover(" in ast.unparse(s)]
    if not made:
        return kernel.body, ()
    meets = (p for p, s in enumerate(kernel.body) if isinstance(s, ast.Expr) and is_barrier(s.value))
    place = next((p for p in meets if p > made[0]), None)
    if place is None or place > made[0] + 2:
        line = kernel.line(kernel.body[made[0]].lineno)
        raise UnsupportedKernel(f"slots are used before all threads have seen them made: {line}")
    return kernel.body[: place + 1], kernel.body[place + 1 :]


def _masks(machine: Any) -> list[Any]:
    """The threads of each agent, in every block: its last warp, and warpgroups of those before it."""
    inside = np.arange(machine.team.size) % machine.grid.per_block
    agent = np.where(inside < machine.grid.per_block - WARP, inside // WARPGROUP, -1)
    return [agent == number for number in (-1, *range(int(agent.max()) + 1))]


def _agent(machine: Any, number: int, mask: Any) -> Any:
    """A machine of its own for some threads, with the memories of all."""
    agent = copy.copy(machine)
    agent.scalars, agent.active = dict(machine.scalars), machine.active.among(mask)
    agent.groups, agent.begun, agent.agent = [[]], [], number
    agent.statements = agent.loads = agent.stores = agent.waits = 0
    return agent
