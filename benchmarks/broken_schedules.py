"""Break finished schedules at random: validation has to refuse each, unless it computes the same values.

    schedule -> one random mutation of its tree -> refused by validation                      caught
                                               \\-> code generation cannot print it            caught
                                               \\-> run: the oracle's values and no race       harmless
                                               \\-> run: other values, a race, or a crash      missed

python -m benchmarks.broken_schedules [--count 200] [--seed 0] [--only NAME] [--faults 2] [--minutes 30]

The mutations are the faults that users of tile languages report: a missing barrier or fence, a stage too few, a copy of
another iteration, memory of another kind, two loops or statements in the other order, iterations at once that are not
independent, an instance that does not run. CPU schedules run as plain Python, parallel loops in random order; CUDA
schedules in lock-step, which finds races. A tree that is drawn again is not judged again. Prints a table by the first
mutation of a tree and how many trees were different; the exit status is 1 if one was missed.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from random import Random
from typing import Literal

import islpy as isl
import numpy as np

import polyfuse as pf
from polyfuse.analysis.validation import validate
from polyfuse.checks import cuda_cases
from polyfuse.codegen.generate import program
from polyfuse.errors import BudgetExceeded, PolyfuseError, ValidationFailure
from polyfuse.interpret import interpret
from polyfuse.ir import Nest
from polyfuse.ir.tree import Binding, Buffer, Loop, Sequence, Tree, loops, replace_node, walk
from polyfuse.rewrite import expand
from polyfuse.runtime.memory.memory_plan import shape_of
from polyfuse.strategy import plan_for
from tests.support import loop_programs
from tests.support.boxes import schedule_of
from tests.support.execution import Arrays, run_lockstep, run_numba, run_plain
from tests.support.nests import inputs_for
from tests.support.on_tensor_cores import matmul

Target = Literal["cpu", "cuda"]

SIZES = {"N": 9}
"""The values of symbolic sizes at which mutated schedules are run."""


@dataclass(frozen=True)
class Subject:
    """A finished schedule that is right."""

    name: str
    source: Nest
    nest: Nest
    tree: Tree
    target: Target

    def sizes(self) -> dict[str, int]:
        """Return numbers for its sizes."""
        return {name: SIZES[name] for name in self.nest.params}


def tiles_in_shared_memory(stages: int, ahead: int) -> pf.Schedule:
    """A product in tiles with x's tiles in shared memory, copied some iterations before they are used."""
    s = pf.Schedule(cuda_cases.dense(24, 4, batch=8)).split("mac0", "i", 4).split("mac0", "k", 8)
    s = s.reorder("mac0", "i", "k", "i_in", "j", "k_in").bind(
        "mac0", i="block.x", i_in="thread.y", j="thread.x"
    )
    s = s.promote("x", "mac0", at="k", memory="shared", stages=stages)
    s = s.bind("load_x", load_x_0="thread.y", load_x_1="thread.x")
    return s.shift("load_x", "k", -ahead).synchronised() if ahead else s.synchronised()


def folded() -> pf.Schedule:
    """A temporary of three elements, of as many iterations in a row."""
    domain = "[N] -> { S[i] : 0 <= i < N }"
    tensors = [
        pf.Tensor("x", ("N",), "float64", "input"),
        pf.Tensor("t", ("N",), "float64", "temporary"),
        pf.Tensor("y", ("N",), "float64", "inout"),
    ]
    nest = Nest.of(
        tensors,
        [
            pf.statement(domain, "t[i] = 2 * x[i]"),
            pf.statement("[N] -> { R[i] : 1 <= i < N - 1 }", "y[i] = t[i - 1] + t[i] + t[i + 1]"),
        ],
    )
    return pf.Schedule(nest).fuse("S", "R", at="i", shift={"i": 1}).promote("t", "S", at="i", stages=3)


TARGETS: tuple[tuple[Target, str], ...] = (("cpu", "zen5"), ("cuda", "h200"))
PROGRAMS = (
    loop_programs.jacobi_1d,
    loop_programs.seidel_2d,
    loop_programs.gemm,
    loop_programs.trisolv,
    loop_programs.atax,
    loop_programs.gemver,
)


@cache
def subjects() -> tuple[Subject, ...]:
    """Schedules by hand, and the strategy's of small programs for both targets."""
    by_hand: dict[str, tuple[pf.Schedule, Target]] = {
        "tiles": (tiles_in_shared_memory(1, 0), "cuda"),
        "two stages": (tiles_in_shared_memory(2, 1), "cuda"),
        "three stages": (tiles_in_shared_memory(3, 2), "cuda"),
        "folded": (folded(), "cpu"),
    }
    found = [Subject(name, s.source, s.nest, s.tree, target) for name, (s, target) in by_hand.items()]
    nest = matmul(66, 64, 72, dtype="bfloat16")
    produced = schedule_of(nest, "bf16", (1, 1, 2, 16, 4), "produced").synchronised()
    found.append(Subject("a warp that copies", produced.source, produced.nest, produced.tree, "cuda"))
    for make_nest in PROGRAMS:
        for target, machine in TARGETS:
            nest = expand(make_nest()).nest
            s = plan_for(nest, pf.Machine.preset(machine)).schedule
            s = s.synchronised() if target == "cuda" else s
            found.append(Subject(f"{nest.name} on {target}", s.source, s.nest, s.tree, target))
    return tuple(found)


# -- mutations -----------------------------------------------------------------------------------------------------

Mutation = Callable[[Tree, Random], Tree | None]
"""A tree with one fault; None where the tree has no place for it."""


def _in_a_loop(tree: Tree, random: Random, change: Callable[[Loop], Iterator[Loop]]) -> Tree | None:
    choices = [(loop, new) for loop in loops(tree) for new in change(loop)]
    if not choices:
        return None
    loop, new = random.choice(choices)
    return replace_node(tree, loop, new)


def without_a_barrier(tree: Tree, random: Random) -> Tree | None:
    """Leave out one barrier: after a part of a sequence, or at the end of a loop's iterations."""
    choices: list[tuple[Tree, Tree]] = []
    for node in walk(tree):
        if isinstance(node, Sequence):
            for at in node.barriers:
                kept = tuple(b for b in node.barriers if b != at)
                choices.append((node, replace(node, barriers=kept, grid=tuple(set(node.grid) & set(kept)))))
            choices += [
                (node, replace(node, grid=tuple(b for b in node.grid if b != at))) for at in node.grid
            ]
        elif isinstance(node, Loop) and node.barrier:
            choices.append((node, replace(node, barrier=False, grid=False)))
    return replace_node(tree, *random.choice(choices)) if choices else None


def with_other_stages(tree: Tree, random: Random) -> Tree | None:
    """Give a buffer one stage less, or one more."""

    def change(loop: Loop) -> Iterator[Loop]:
        for buffer in loop.buffers:
            for stages in {max(1, buffer.stages - 1), buffer.stages + 1} - {buffer.stages}:
                yield _with_buffer(loop, buffer, replace(buffer, stages=stages))

    return _in_a_loop(tree, random, change)


def in_another_memory(tree: Tree, random: Random) -> Tree | None:
    """Keep a buffer in another memory: private to threads in place of shared, or the other way."""

    def change(loop: Loop) -> Iterator[Loop]:
        for buffer in loop.buffers:
            for kind in ("local", "register", "shared"):
                if kind != buffer.memory:
                    yield _with_buffer(loop, buffer, replace(buffer, memory=kind, layout=None))

    return _in_a_loop(tree, random, change)


def in_another_place(tree: Tree, random: Random) -> Tree | None:
    """Hang a buffer on another loop."""
    every = list(loops(tree))
    found = [(loop, buffer) for loop in every for buffer in loop.buffers]
    if not found or len(every) < 2:
        return None
    loop, buffer = random.choice(found)
    other = random.choice([x for x in every if x is not loop])
    number = every.index(other)
    moved = replace_node(tree, loop, _without_buffer(loop, buffer))
    other = list(loops(moved))[number]
    return replace_node(moved, other, replace(other, buffers=(*other.buffers, buffer)))


def _with_buffer(loop: Loop, old: Buffer, new: Buffer) -> Loop:
    return replace(loop, buffers=tuple(new if b is old else b for b in loop.buffers))


def _without_buffer(loop: Loop, buffer: Buffer) -> Loop:
    return replace(loop, buffers=tuple(b for b in loop.buffers if b is not buffer))


def at_another_iteration(tree: Tree, random: Random) -> Tree | None:
    """Run a statement one or two iterations of a loop earlier or later: a copy of the wrong stage."""

    def change(loop: Loop) -> Iterator[Loop]:
        for name, date in loop.dates:
            for by in (-2, -1, 1, 2):
                yield _with_date(loop, name, date.add(isl.PwAff.val_on_domain(date.domain(), isl.Val(by))))

    return _in_a_loop(tree, random, change)


def backwards(tree: Tree, random: Random) -> Tree | None:
    """Run a loop, or one statement in it, from its last iteration to its first."""

    def change(loop: Loop) -> Iterator[Loop]:
        yield replace(loop, dates=tuple((name, date.neg()) for name, date in loop.dates))
        for name, date in loop.dates if len(loop.dates) > 1 else ():
            yield _with_date(loop, name, date.neg())

    return _in_a_loop(tree, random, change)


def at_one_date(tree: Tree, random: Random) -> Tree | None:
    """Run pairs of iterations of a loop at one date."""

    def change(loop: Loop) -> Iterator[Loop]:
        for name, date in loop.dates:
            two = isl.PwAff.val_on_domain(date.domain(), isl.Val(2))
            yield _with_date(loop, name, date.div(two).floor())

    return _in_a_loop(tree, random, change)


def _with_date(loop: Loop, statement: str, date: isl.PwAff) -> Loop:
    return replace(loop, dates=tuple((name, date if name == statement else own) for name, own in loop.dates))


def at_once(tree: Tree, random: Random) -> Tree | None:
    """Run a loop's iterations at once: on cores, on lanes, on threads or blocks; or those of such a loop in order."""

    on_gpu = any(loop.bind is not None and loop.bind.on_gpu for loop in loops(tree))
    places = ("thread.x", "thread.y", "block.x", "block.y") if on_gpu else ("cores", "vector")

    def change(loop: Loop) -> Iterator[Loop]:
        for bind in (*places, None):
            if bind != loop.bind:
                yield replace(loop, bind=None if bind is None else Binding(bind))

    return _in_a_loop(tree, random, change)


def in_the_other_order(tree: Tree, random: Random) -> Tree | None:
    """Exchange two parts of a sequence, or a loop and the loop inside it."""
    choices: list[tuple[Tree, Tree]] = []
    for node in walk(tree):
        if isinstance(node, Sequence):
            for at in range(len(node.children) - 1):
                parts = list(node.children)
                parts[at], parts[at + 1] = parts[at + 1], parts[at]
                choices.append((node, replace(node, children=tuple(parts))))
        elif isinstance(node, Loop) and isinstance(node.body, Loop):
            inner = node.body
            choices.append((node, replace(inner, body=replace(node, body=inner.body))))
    return replace_node(tree, *random.choice(choices)) if choices else None


def without_a_statement(tree: Tree, random: Random) -> Tree | None:
    """Leave a part of a sequence out."""
    choices = [
        (node, replace(node, children=rest, barriers=tuple(b for b in node.barriers if b < len(rest) - 1)))
        for node in walk(tree)
        if isinstance(node, Sequence)
        for at in range(len(node.children))
        for rest in [node.children[:at] + node.children[at + 1 :]]
    ]
    return replace_node(tree, *random.choice(choices)) if choices else None


def with_other_slots(tree: Tree, random: Random) -> Tree | None:
    """Let a warp that only copies run one iteration further ahead, or one less."""

    def change(loop: Loop) -> Iterator[Loop]:
        for slots in (loop.slots - 1, loop.slots + 1) if loop.slots else ():
            yield replace(loop, slots=slots)

    return _in_a_loop(tree, random, change)


MUTATIONS: Mapping[str, Mutation] = {
    mutation.__name__.replace("_", " "): mutation
    for mutation in (
        without_a_barrier,
        with_other_stages,
        in_another_memory,
        in_another_place,
        at_another_iteration,
        backwards,
        at_one_date,
        at_once,
        in_the_other_order,
        without_a_statement,
        with_other_slots,
    )
}

# -- judging -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Verdict:
    """The judgement of one mutated schedule: "caught", "harmless" or "missed", and the reason."""

    kind: str
    why: str


def judged(subject: Subject, tree: Tree, seed: int) -> Verdict:
    """Validate a mutated tree; where validation accepts it, run it and compare it with the oracle."""
    try:
        validate(subject.source, subject.nest, tree)
    except (ValidationFailure, BudgetExceeded) as refused:
        return Verdict("caught", str(refused))
    except (PolyfuseError, isl.Error) as error:
        return Verdict("missed", f"validation itself failed with {type(error).__name__}: {error}")
    sizes = subject.sizes()
    inputs = inputs_for(subject.source, np.random.default_rng(seed), sizes)
    expected = interpret(subject.source, inputs, sizes)
    try:
        program(subject.nest, tree, subject.target)
    except PolyfuseError as error:
        return Verdict("caught", f"by code generation: {error}")
    try:
        arrays = _left(subject, tree, inputs, sizes, seed)
    except Exception as error:  # noqa: BLE001  a race, or a crash of the emitted code
        return Verdict("missed", f"{type(error).__name__}: {error}")
    for name, values in expected.items():
        if not np.allclose(arrays[name], values, 1e-4, 1e-4, equal_nan=True):
            return Verdict("missed", f"{name} has other values than the oracle's")
    return Verdict("harmless", "the oracle's values")


def _left(subject: Subject, tree: Tree, inputs: Arrays, sizes: dict[str, int], seed: int) -> Arrays:
    """The arrays that a tree's code leaves."""
    arrays = _memory(subject, inputs, sizes)
    if subject.target == "cuda":
        run_lockstep(subject.nest, tree, arrays, sizes)
        return arrays
    try:
        run_plain(subject.nest, tree, arrays, sizes, seed)
    except NameError:  # an intrinsic that plain Python does not have
        arrays = _memory(subject, inputs, sizes)
        run_numba(subject.nest, tree, arrays, sizes)
    return arrays


def _memory(subject: Subject, inputs: Arrays, sizes: Mapping[str, int]) -> Arrays:
    """An array for every tensor: inputs and constants copied, the rest NaN."""
    known = {**subject.nest.constants, **inputs}
    return {
        t.name: np.array(known[t.name]) if t.name in known else np.full(shape_of(t, sizes), np.nan, t.dtype)
        for t in subject.nest.tensors
    }


def mutated(seed: int, only: str = "", faults: int = 1) -> tuple[str, Subject, Tree]:
    """Draw a mutation, a subject that has a place for it, and a place; then up to so many faults together."""
    random = Random(seed)
    names = [name for name in MUTATIONS if only in name]
    for name in random.sample(names, len(names)):
        for subject in random.sample(subjects(), len(subjects())):
            tree = MUTATIONS[name](subject.tree, random)
            if tree is not None and tree != subject.tree:
                for other in random.choices(names, k=random.randrange(faults)):
                    again = MUTATIONS[other](tree, random)
                    tree = again if again is not None and again != subject.tree else tree
                return name, subject, tree
    raise ValueError(f"no schedule has a place for a mutation {only!r}")


def main() -> None:
    """Judge random mutations; exit 1 if validation missed one."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="mutations whose name contains this")
    parser.add_argument("--faults", type=int, default=2, help="the most mutations of one tree")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="judge none after this time")
    given = parser.parse_args()
    end = time.monotonic() + 60 * given.minutes
    known: dict[tuple[str, Tree], Verdict] = {}
    counts: dict[str, Counter[str]] = {name: Counter() for name in MUTATIONS}
    for seed in range(given.seed, given.seed + given.count):
        if time.monotonic() > end:
            break
        name, subject, tree = mutated(seed, given.only, given.faults)
        verdict = known.get((subject.name, tree)) or judged(subject, tree, seed)
        known[subject.name, tree] = verdict
        counts[name][verdict.kind] += 1
        if verdict.kind == "missed":
            print(f"MISSED, seed {seed}: {subject.name}, {name}: {verdict.why}", flush=True)
    print(table(counts))
    print(f"{len(known)} different trees")
    raise SystemExit(any(count["missed"] for count in counts.values()))


def table(counts: Mapping[str, Counter[str]]) -> str:
    """The counts as Markdown."""
    rows = ["| mutation | caught | harmless | missed |", "|---|---|---|---|"]
    total = sum(counts.values(), Counter[str]())
    for name, count in (*counts.items(), ("all", total)):
        rows.append(f"| {name} | {count['caught']} | {count['harmless']} | {count['missed']} |")
    return "\n".join(rows)


if __name__ == "__main__":
    main()
