"""Barriers: enough of them, and none that is not needed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import pytest

from polyfuse.analysis.barriers import place_barriers, unsynchronised
from polyfuse.interpret import interpret
from polyfuse.ir import Nest, Tensor, statement
from polyfuse.ir.tree import Leaf, Loop, Sequence, Tree, sequence, walk
from polyfuse.schedule import Schedule
from polyfuse.sets import dimension
from tests.support.execution import memory, run_lockstep
from tests.support.programs import on_cuda, pair, with_node


def mirrored() -> Schedule:
    """Each thread reads what the thread opposite wrote."""
    s = Schedule(pair()).fuse("S", "R", at="i").reverse("R", "j").shift("R", "j", 3)
    return s.bind("S", i="block.x", j="thread.x").bind("R", j="thread.x")


def own() -> Schedule:
    """Each thread reads what it wrote."""
    s = Schedule(pair()).fuse("S", "R", at="i")
    return s.bind("S", i="block.x", j="thread.x").bind("R", j="thread.x")


def chain(steps: int) -> Nest:
    """for t: { x[i] = P[i]; y[i] = x[3 - i]; … ; P[i] = last[3 - i] }: every value crosses threads, and time too."""
    names = ["P", *(f"x{k}" for k in range(steps))]
    tensors = [Tensor(n, (4,), "float64", "inout") for n in names]
    every = []
    for k in range(steps + 1):
        target, source = names[(k + 1) % len(names)], names[k]
        box = f"{{ S{k}[t, i] : 0 <= t < 3 and 0 <= i < 4 }}"
        every.append(statement(box, f"{target}[i] = {source}[{'i' if k == 0 else '3 - i'}] + 1"))
    parts = [Loop("i", ((s.name, dimension(s.domain, 1)),), Leaf(s.name)) for s in every]
    order = Loop("t", tuple((s.name, dimension(s.domain, 0)) for s in every), sequence(tuple(parts)))
    return Nest.of(tensors, every, order)


def crossing(steps: int) -> Schedule:
    s = Schedule(chain(steps))
    for k in range(steps + 1):
        s = s.bind(f"S{k}", i="thread.x")
    return s


def sometimes() -> Schedule:
    """for t: { S[t, i]; Z[t, i] if t >= 2; R[t, i] }: what comes just before the barrier does not always run."""
    boxes = ["0 <= t < 4", "2 <= t < 4", "0 <= t < 4"]
    bodies = ["Q[t, i] = A[i]", "P[t, i] = 1", "O[t, i] = Q[t, 3 - i]"]
    every = [
        statement(f"{{ {n}[t, i] : {box} and 0 <= i < 4 }}", body)
        for n, box, body in zip("SZR", boxes, bodies, strict=True)
    ]
    tensors = [Tensor("A", (4,), "float64", "input")]
    tensors += [Tensor(n, (4, 4), "float64", "inout") for n in "PQO"]
    parts = [Loop("i", ((s.name, dimension(s.domain, 1)),), Leaf(s.name)) for s in every]
    order = Loop("t", tuple((s.name, dimension(s.domain, 0)) for s in every), sequence(tuple(parts)))
    s = Schedule(Nest.of(tensors, every, order))
    for name in "SR":
        s = s.bind(name, i="thread.x")
    return s


def backwards() -> Schedule:
    """A sum from its last term to its first, each in a thread of its own."""
    tensors = [Tensor("A", (3,), "float64", "input"), Tensor("total", (1,), "float64", "inout")]
    add = statement("{ S[i] : 0 <= i < 3 }", "total[0] += A[i]")
    s = Schedule(Nest.of(tensors, [add])).affine(S="[2 - i, i]")
    return s.bind("S", **{s.loops("S")[1].name: "thread.x"})


CASES: dict[str, tuple[Callable[[], Schedule], int]] = {
    "opposite threads": (mirrored, 1),
    "own thread": (own, 0),
    "chain of 1": (lambda: crossing(1), 2),
    "chain of 3": (lambda: crossing(3), 3),
    "not in every iteration": (sometimes, 1),
    "product": (on_cuda, 2),
    "sum backwards": (backwards, 1),
}
EACH = pytest.mark.parametrize(("make", "count"), CASES.values(), ids=CASES)


def without_each(tree: Tree) -> Iterator[Tree]:
    """The tree with one of its barriers removed, for each of them."""
    for node in walk(tree):
        if isinstance(node, Loop) and node.barrier:
            yield with_node(tree, node, replace(node, barrier=False))
        if isinstance(node, Sequence):
            for p in node.barriers:
                yield with_node(tree, node, replace(node, barriers=tuple(q for q in node.barriers if q != p)))


def bare(tree: Tree) -> Tree:
    while (fewer := next(without_each(tree), None)) is not None:
        tree = fewer
    return tree


@EACH
def test_none_is_missing_and_none_is_needless(make: Callable[[], Schedule], count: int) -> None:
    s = make()
    tree = place_barriers(s.nest, bare(s.tree))
    assert unsynchronised(s.nest, tree) is None
    fewer = list(without_each(tree))
    assert len(fewer) == count
    for other in fewer:
        broken = unsynchronised(s.nest, other)
        assert broken is not None
        assert not broken.pairs.is_empty()


@EACH
def test_every_barrier_is_reached(make: Callable[[], Schedule], count: int) -> None:
    """On the lock-step stand-in, which finds races: the barriers placed do keep threads apart when they run."""
    s = make().synchronised()
    rng = np.random.default_rng(0)
    inputs = {t.name: rng.integers(-3, 4, t.shape).astype(t.dtype) for t in s.source.inputs}
    arrays = memory(s.source, s.nest, s.tree, inputs, {})
    run_lockstep(s.nest, s.tree, arrays, {})
    for name, expected in interpret(s.source, inputs).items():
        np.testing.assert_array_equal(arrays[name], expected)


def test_a_schedule_without_threads_is_left_as_it_is() -> None:
    s = Schedule(pair()).fuse("S", "R", at="i").bind("S", i="block.x")
    assert s.synchronised() is s
    assert unsynchronised(s.nest, s.tree) is None
