"""Warp specialisation in lock-step: the producer warp and each consumer warpgroup are agents, ordered by slots.

The blocks of a cluster have agents of their own: those of one rank, in all clusters. They may copy to each other's
shared memory and arrive at each other's barriers, whose phases are over once their bytes have come too.

Of two agents nothing is known but what barriers say: an agent that waits for a phase has *seen* what those had seen
that arrived in it, and the copies that were asked for in it. So what one order of running shows holds for every order:

    who reads an element      has seen the last copy to it
    who copies to an element  has seen that all others gave a slot away after their last read of it, and the copy before
    a block that ends         has seen all that others did to its barriers and its memory

A copy arrives as late as it may, when the first agent has waited for it. A wait looks at a phase's parity alone, as a
GPU does. Agents run one at a time, each until it has to wait; that all of them wait for ever is an error.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from polyfuse.analysis.banks import WARP
from polyfuse.codegen.cuda.kernel_grammar import KernelSource, UnsupportedKernel, calls_of
from polyfuse.layouts.wgmma_descriptors import WARPGROUP
from polyfuse.simulator.grid import Integers
from polyfuse.simulator.races import BarrierError, Memory, poison
from polyfuse.simulator.threads import Given, Meaning, Numbers, Threads, literal
from polyfuse.simulator.turn_taking import TakingTurns


@dataclass
class Seen:
    """Copies that have arrived, by number, and how often each agent had given a slot away."""

    copies: set[int] = field(default_factory=set)
    given: dict[int, int] = field(default_factory=dict)

    def join(self, other: Seen) -> None:
        """Add the events that another agent has seen."""
        self.copies |= other.copies
        for agent, count in other.given.items():
            self.given[agent] = max(count, self.given.get(agent, 0))


@dataclass
class Phases:
    """A barrier: the arrivals of a phase, how many the current one lacks, and how many bytes; what was seen as each was
    over, and the number of the copies in each.
    """

    expected: int
    lacking: int
    missing: int = 0
    over: list[Seen] = field(default_factory=list)
    arrived: Seen = field(default_factory=Seen)
    asked: dict[int, int] = field(default_factory=dict)

    def arrive(self, seen: Seen, count: int) -> None:
        """So many threads arrive."""
        self.arrived.join(seen)
        self.lacking -= count
        if self.lacking < 0:
            raise TypeError(
                f"more threads arrive at a barrier of a slot than the {self.expected} that it counts"
            )
        self._end()

    def expect(self, nbytes: int) -> None:
        """So many bytes more are to come; fewer than none have."""
        self.missing += nbytes
        self._end()

    def _end(self) -> None:
        if self.lacking == 0 and self.missing == 0:
            self.over.append(copy.deepcopy(self.arrived))
            self.lacking = self.expected


@dataclass
class Held:
    """Of a shared array's elements the number of the last copy to it, -1 without; and after how many gifts each agent
    read it last, counted from 1.
    """

    copied: Integers
    read: dict[int, Integers] = field(default_factory=dict)


class Handover:
    """The slots of a kernel's blocks. All that have one rank in their cluster are at the same ones.

    `remote` says of a rank's barriers how often an agent of other blocks had given a slot away as it arrived there
    last, `sent` which copies others have asked for to its memory.
    """

    def __init__(self, slots: int, arrivals: int, ranks: int) -> None:
        self.slots = slots
        expected = (*(1,) * slots, *(arrivals,) * slots)
        self.barriers = [[Phases(n, n) for n in expected] for _ in range(ranks)]
        self.meeting = Phases(0, 0)
        self.seen: dict[int, Seen] = {}
        self.remote: dict[tuple[int, int], int] = {}
        self.sent: dict[int, set[int]] = {}
        self.held: dict[str, Held] = {}
        self.coming: dict[int, list[tuple[Memory, Integers, Numbers]]] = {}
        self.numbers = 0
        self.turns: TakingTurns | None = None

    # -- memory

    def asked(
        self, threads: Threads, memory: Memory, at: Integers, value: Numbers, slot: int, rank: int
    ) -> None:
        """A copy to a shared array of the blocks with a rank beside those here, to arrive in a slot there."""
        grid, first = threads.team.grid, int(threads.team.thread[0]) // threads.team.grid.per_block
        block, inside = np.divmod(at, memory.size)
        at = (grid.beside(block + first, rank) - first) * memory.size + inside
        held = self.held.setdefault(memory.name, Held(np.full(len(memory.data), -1, np.int64)))
        agent, seen = threads.agent, self.seen[threads.agent]
        if not set(np.unique(held.copied[at]).tolist()) - {-1} <= seen.copies:
            raise TypeError(f"{memory.name} is copied to before the copy there has been waited for")
        for other, read in held.read.items():
            if other != agent and (read[at] > seen.given.get(other, 0)).any():
                raise TypeError(
                    f"{memory.name} is copied to while others read it, which have not handed it back"
                )
        barrier = self.barriers[rank][slot % self.slots]
        number = barrier.asked.setdefault(len(barrier.over), self.numbers)
        self.numbers += number == self.numbers
        if rank != threads.rank:
            self.sent.setdefault(rank, set()).add(number)
        memory.data[at], held.copied[at] = poison(memory.data.dtype.name), number
        self.coming.setdefault(number, []).append((memory, at, value))

    def expect(self, rank: int, slot: int, nbytes: int) -> None:
        """So many bytes more are to come in a slot of blocks of a rank; fewer than none have."""
        self.barriers[rank][slot % self.slots].expect(nbytes)

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

    def arrive(self, threads: Threads, place: int, count: int, ranks: Sequence[int]) -> None:
        """So many threads of each block arrive at a barrier of blocks of these ranks in their clusters."""
        agent, seen = threads.agent, self.seen[threads.agent]
        seen.given[agent] = seen.given.get(agent, 0) + 1
        for rank in ranks:
            self.barriers[rank][place].arrive(seen, count)
            if rank != threads.rank:
                self.remote[rank, agent] = seen.given[agent]

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

    def meet(self, agent: int) -> None:
        """An agent meets all others, those of all blocks."""
        assert self.turns is not None, "agents run"
        seen, phase = self.seen[agent], len(self.meeting.over)
        seen.given[agent] = seen.given.get(agent, 0) + 1
        self.meeting.arrive(seen, 1)
        self.turns.until(agent, lambda: len(self.meeting.over) > phase)
        seen.join(self.meeting.over[phase])

    def check_ends(self, agents: Sequence[Any]) -> None:
        """Raises BarrierError if a block ends as others may still write to its memory, or arrive at its barriers."""
        for rank in range(len(self.barriers)):
            known = Seen()
            for agent in agents:
                known.join(self.seen[agent.agent] if agent.rank == rank else Seen())
            late = any(
                known.given.get(agent, 0) < count for (to, agent), count in self.remote.items() if to == rank
            )
            if late or not self.sent.get(rank, set()) <= known.copies:
                raise BarrierError(
                    "a block ends while others of its cluster may still arrive at its barriers or copy to its memory: "
                    "no cluster_barrier() lies between"
                )


# -- operations


def agreed(threads: Threads, argument: ast.expr) -> int:
    """The number that all active threads have."""
    values = np.unique(threads.active.pick(np.asarray(threads.value(argument))))
    if len(values) != 1:
        raise TypeError("blocks are at different copies")
    return int(values[0])


def _begin(threads: Threads, node: ast.stmt, given: Given) -> None:
    if threads.active.mask is not None:
        raise TypeError("only some threads make barriers for slots")
    slots, arriving = literal(given, "slots"), literal(given, "warps")
    threads.handover = Handover(slots, arriving, threads.team.grid.per_cluster)


def _slot(threads: Threads, given: Given, free: bool) -> tuple[Handover, int, int]:
    """(all slots, which barrier is a slot's, which phase of it) of a call."""
    if threads.handover is None:
        raise TypeError("there are no slots to hand over")
    count, slot = literal(given, "slots"), agreed(threads, given["number"])
    if count != threads.handover.slots:
        raise TypeError(f"there are {threads.handover.slots} slots, and one of {count} is meant")
    return threads.handover, slot % count + (count if free else 0), slot // count


def _await_full(threads: Threads, node: ast.stmt, given: Given) -> None:
    slots, place, phase = _slot(threads, given, False)
    slots.wait(threads.agent, slots.barriers[threads.rank][place], phase)


def _await_free(threads: Threads, node: ast.stmt, given: Given) -> None:
    slots, place, phase = _slot(threads, given, True)
    slots.wait(threads.agent, slots.barriers[threads.rank][place], phase - 1)


def _hand_over(threads: Threads, node: ast.stmt, given: Given) -> None:
    slots, place, _ = _slot(threads, given, False)
    slots.arrive(threads, place, _in_each_block(threads, every=1), (threads.rank,))


def _hand_back(threads: Threads, node: ast.stmt, given: Given) -> None:
    slots, place, _ = _slot(threads, given, True)
    slots.arrive(threads, place, _in_each_block(threads, every=WARP), (threads.rank,))


def _hand_back_cluster(threads: Threads, node: ast.stmt, given: Given) -> None:
    """A lane of each warp arrives at each block, of so many."""
    slots, place, _ = _slot(threads, given, True)
    blocks = literal(given, "blocks")
    if blocks > threads.team.grid.per_cluster:
        raise TypeError(f"a cluster has {threads.team.grid.per_cluster} blocks, and {blocks} are meant")
    slots.arrive(threads, place, _in_each_block(threads, every=WARP), range(blocks))


def _cluster_barrier(threads: Threads, node: ast.stmt, given: Given) -> None:
    """All threads of all blocks of a cluster meet: all agents, once there are any."""
    if threads.handover is None or not threads.handover.seen:
        threads.team.synchronise(threads.active.mask, ast.unparse(node))
        return
    if threads.active.count != threads.everyone.count:
        raise TypeError("only some threads come to a barrier of their cluster")
    threads.handover.meet(threads.agent)


def _in_each_block(threads: Threads, every: int) -> int:
    """The number of leading threads in each block of so many that are active."""
    per_block = threads.team.grid.per_block
    here = threads.everyone.mask.reshape(-1, per_block).any(axis=1)
    counts = np.unique(threads.active.mask.reshape(-1, per_block)[here, ::every].sum(axis=1))
    if len(counts) != 1:
        raise TypeError("blocks are at different copies")
    return int(counts[0])


HANDOVER_MEANINGS: Mapping[str, Meaning] = {
    "begin_handover": _begin,
    "await_free": _await_free,
    "await_full": _await_full,
    "hand_over": _hand_over,
    "hand_back": _hand_back,
    "hand_back_cluster": _hand_back_cluster,
    "cluster_barrier": _cluster_barrier,
}


# -- agents


def run_body(machine: Any, kernel: KernelSource) -> None:
    """All statements of a kernel by a machine; those behind the making of slots by each agent in its turn."""
    first, rest = _parted(kernel)
    machine.block(first)
    if not rest:
        return
    slots = machine.handover
    agents = [_agent(machine, number, *each) for number, each in enumerate(_agents(machine))]
    slots.seen = {agent.agent: Seen() for agent in agents}
    slots.meeting = Phases(len(agents), len(agents))
    slots.turns = TakingTurns([partial(agent.block, rest) for agent in agents])
    if not slots.turns.run():
        raise BarrierError(f"the warps of {kernel.name} wait for each other for ever: no slot is handed over")
    slots.check_ends(agents)
    for counted in ("statements", "loads", "stores", "waits"):
        setattr(machine, counted, getattr(machine, counted) + sum(getattr(a, counted) for a in agents))


def _parted(kernel: KernelSource) -> tuple[Sequence[ast.stmt], Sequence[ast.stmt]]:
    """The statements up to the barrier at which a block sees its slots, and those behind it; all if there are none."""
    made = [p for p, s in enumerate(kernel.body) if "begin_handover(" in ast.unparse(s)]
    if not made:
        return kernel.body, ()
    by_cluster = bool(calls_of(kernel) & {"copy_multicast", "hand_back_cluster"})
    wanted = {"cluster_barrier()"} if by_cluster else {"cluster_barrier()", "cuda.syncthreads()"}
    meets = (p for p, s in enumerate(kernel.body) if ast.unparse(s) in wanted)
    place = next((p for p in meets if p > made[0]), None)
    if place is None or place > made[0] + 2:
        line = kernel.line(kernel.body[made[0]].lineno)
        who = "threads of a cluster" if by_cluster else "threads"
        raise UnsupportedKernel(f"slots are used before all {who} have seen them made: {line}")
    return kernel.body[: place + 1], kernel.body[place + 1 :]


def _agents(machine: Any) -> list[tuple[int, Any]]:
    """The rank and the threads of each agent, in every cluster: a block's last warp, and warpgroups before it."""
    grid = machine.grid
    inside = np.arange(machine.team.size) % grid.per_block
    role = np.where(inside < grid.per_block - WARP, inside // WARPGROUP, -1)
    rank = grid.rank(machine.team.thread // grid.per_block)
    roles = (-1, *range(int(role.max()) + 1))
    return [(r, (rank == r) & (role == number)) for r in range(grid.per_cluster) for number in roles]


def _agent(machine: Any, number: int, rank: int, mask: Any) -> Any:
    """A machine of its own for some threads, with the memories of all."""
    agent = copy.copy(machine)
    agent.scalars, agent.active, agent.rank = dict(machine.scalars), machine.active.among(mask), rank
    agent.everyone = agent.active
    agent.groups, agent.begun, agent.agent = [[]], [], number
    agent.statements = agent.loads = agent.stores = agent.waits = 0
    return agent
