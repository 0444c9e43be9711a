"""The ledger of last accesses against the definition of a race, on every pair of accesses."""

from __future__ import annotations

from itertools import combinations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from polyfuse.simulator.races import Grid, Ledger, Team

BLOCKS, THREADS, SIZE = 2, 3, 4

# One step of all threads: None is a barrier, else (writes?, for each thread an element, or None if inactive).
_access = st.tuples(
    st.booleans(),
    st.lists(st.none() | st.integers(0, SIZE - 1), min_size=BLOCKS * THREADS, max_size=BLOCKS * THREADS),
)
_program = st.lists(st.none() | _access, max_size=6)

Program = list[tuple[bool, list[int | None]] | None]


def _races(program: Program, shared: bool) -> bool:
    """By definition: two accesses to one element by two threads, one a write, with no barrier between."""
    done: list[tuple[int, int, int, bool]] = []  # thread, epoch, element, wrote
    epoch = 0
    for step in program:
        if step is None:
            epoch += 1
            continue
        wrote, elements = step
        done += [(thread, epoch, e, wrote) for thread, e in enumerate(elements) if e is not None]

    def conflict(a: tuple[int, int, int, bool], b: tuple[int, int, int, bool]) -> bool:
        if a[2] != b[2] or a[0] == b[0] or not (a[3] or b[3]):
            return False
        if a[0] // THREADS != b[0] // THREADS:
            return not shared  # each block has its own shared memory; nothing orders blocks on global memory
        return a[1] == b[1]

    return any(conflict(a, b) for a, b in combinations(done, 2))


def _found(program: Program, shared: bool) -> bool:
    team = Team(Grid((BLOCKS, 1, 1), (THREADS, 1, 1)), 0, BLOCKS)
    ledger = Ledger(SIZE * BLOCKS) if shared else Ledger(SIZE, THREADS)
    for line, step in enumerate(program, start=1):
        if step is None:
            team.synchronise(None, "")
            continue
        wrote, elements = step
        active = np.flatnonzero([e is not None for e in elements])
        at = np.array([e for e in elements if e is not None], dtype=np.int64)
        if shared:
            at = at + team.block[active] * SIZE
        access = ledger.write if wrote else ledger.read
        if len(at) and access(at, team.stamp[active] | line, team.since[active]) is not None:
            return True
    return False


@given(_program)
def test_shared_memory(program: Program) -> None:
    assert _found(program, shared=True) == _races(program, shared=True)


@given(_program)
def test_global_memory(program: Program) -> None:
    assert _found(program, shared=False) == _races(program, shared=False)
