"""Full tiles apart: constant bounds where a tile is full, the oracle's result everywhere, barriers where they were."""

from __future__ import annotations

import ast
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from polyfuse.analysis.full_tiles import tiles
from polyfuse.analysis.validation import validate
from polyfuse.codegen.generate import kernels, program
from polyfuse.codegen.looptree.nodes import For, Guard, Node, below
from polyfuse.errors import IllegalSchedule, InvalidSchedule
from polyfuse.interpret import interpret
from polyfuse.ir import Nest, Tensor, statement
from polyfuse.ir.tree import Leaf, Loop, Sequence, Tree, date_map, loops_around, statements
from polyfuse.schedule import Schedule
from polyfuse.sets import dimension, fix_params, points
from tests.support.enumeration import all_pairs
from tests.support.execution import memory, run_lockstep, run_plain, without_gpu
from tests.support.nests import inputs_for, nests, some_sizes
from tests.support.programs import pair, triangle
from tests.support.verbs import calls, placements

Golden = Callable[[str, str], None]


def sweeps() -> Nest:
    """for t: { S: B from A's neighbours; R: A from B's }."""
    box = "[N, T] -> { S[t, i, j] : 0 <= t < T and 1 <= i < N - 1 and 1 <= j < N - 1 }"
    tensors = [Tensor(name, ("N", "N"), "float64", "inout") for name in "AB"]
    around = "A[i, j] + A[i - 1, j] + A[i + 1, j] + A[i, j - 1] + A[i, j + 1]"
    every = [
        statement(box, f"B[i, j] = min({around}, 9)"),
        statement(box.replace("S[", "R["), f"A[i, j] = max({around.replace('A', 'B')}, 3)"),
    ]

    def loop(name: str, body: Tree) -> Loop:
        dates = (
            (s.name, dimension(s.domain, s.dims.index(name))) for s in every if s.name in statements(body)
        )
        return Loop(name, tuple(dates), body)

    order = loop("t", Sequence(tuple(loop("i", loop("j", Leaf(s.name))) for s in every)))
    return Nest.of(tensors, every, order, context="[N, T] -> { : N >= 3 and T >= 1 }", name="sweeps")


def time_tiled() -> Schedule:
    """The sweeps in skewed tiles, tiles of one wave on the cores."""
    s = Schedule(sweeps()).affine(S="[t, 2t + i, 2t + j, 0]", R="[t, 2t + i + 1, 2t + j + 1, 1]")
    s = s.tile("S", t=2, i=4, j=4).distribute("S", "j_in")
    s = s.skew("S", "i", by="t").interchange("S", "t", "i").bind("S", t="cores")
    return s.vectorize("S", "j_in").vectorize("R", "j_in").separate("S", "t_in")


def lower_product() -> Schedule:
    """y[i, j] += A[i, k] A[j, k] for j <= i, all three loops in tiles."""
    tensors = [Tensor("A", ("N", "M"), "float64", "input"), Tensor("y", ("N", "N"), "float64", "inout")]
    domain = "[N, M] -> { S[i, j, k] : 0 <= j <= i < N and 0 <= k < M }"
    nest = Nest.of(
        tensors, [statement(domain, "y[i, j] += A[i, k] * A[j, k]")], context="[N, M] -> { : N, M > 0 }"
    )
    return Schedule(nest).tile("S", i=3, j=3, k=2).separate("S", "i_in")


def blocks_and_threads() -> Schedule:
    """The sweeps' S alone, tiles on blocks, rows of a tile on threads."""
    tensors = [Tensor("A", ("N", "N"), "float64", "input"), Tensor("B", ("N", "N"), "float64", "inout")]
    s = Schedule(Nest.of(tensors, [statement("[N] -> { S[i, j] : 0 <= i, j < N }", "B[i, j] = 2 * A[j, i]")]))
    return s.tile("S", i=4, j=4).bind("S", i="block.y", j="block.x", i_in="thread.x").separate("S", "i_in")


CASES = {
    "time_tiled": (time_tiled, "cpu"),
    "lower_product": (lower_product, "cpu"),
    "blocks_and_threads": (blocks_and_threads, "cuda"),
}


@pytest.mark.parametrize("case", CASES)
def test_golden(golden: Golden, case: str) -> None:
    make, target = CASES[case]
    s = make()
    golden(f"source/full_tiles_{case}.py.txt", f"{s}\n\n{program(s.nest, s.tree, target).source}")


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("size", [3, 4, 9, 20])
def test_every_size_gives_the_oracles_result(case: str, size: int) -> None:
    make, target = CASES[case]
    s = make()
    assert_computes(
        s, dict.fromkeys(s.nest.params, size) | ({"T": 5} if "T" in s.nest.params else {}), target
    )


def assert_computes(s: Schedule, sizes: dict[str, int], target: str) -> None:
    validate(s.source, s.nest, s.tree)
    inputs = inputs_for(s.source, np.random.default_rng(1), sizes)
    arrays = memory(s.source, s.nest, s.tree, inputs, sizes)
    if target == "cuda":
        run_lockstep(s.nest, s.tree, arrays, sizes)
    else:
        run_plain(s.nest, s.tree, arrays, sizes, seed=1)
    for name, expected in interpret(s.source, inputs, sizes).items():
        np.testing.assert_array_equal(arrays[name], expected, err_msg=name)


def nodes(node: Node) -> list[Node]:
    return [node, *(inner for part in below(node) for inner in nodes(part))]


def test_full_tiles_have_constant_bounds_and_no_guards() -> None:
    s = time_tiled()
    (kernel,) = kernels(s.nest, s.tree)
    (apart,) = [x for x in nodes(kernel.body) if isinstance(x, Guard) and x.otherwise is not None]
    full = nodes(apart.body)
    assert not any(isinstance(x, Guard) for x in full)
    bounds = [(ast.unparse(x.low), ast.unparse(x.high)) for x in full if isinstance(x, For)]
    assert bounds == [("0", "2"), ("0", "4"), ("0", "4"), ("0", "4")]


@pytest.mark.parametrize("make", [time_tiled, lower_product])
def test_full_is_what_counting_says(make: Callable[[], Schedule]) -> None:
    """A tile is full when each of its statements has as many instances as a tile can hold."""
    s = make()
    top = next(loop for loop in loops_around(s.tree, s.nest.statements[0].name) if loop.apart)
    around = loops_around(s.tree, s.nest.statements[0].name)
    outside = around[: around.index(top)]
    found = tiles(s.nest.domains, outside, top)
    sizes = dict.fromkeys(s.nest.params, 11)
    held: dict[tuple[int, ...], dict[str, int]] = {}
    for name in statements(top):
        when = date_map(s.nest.domains[name], [loop.date(name) for loop in outside])
        for _, tile in all_pairs(when, sizes):
            count = held.setdefault(tile, {})
            count[name] = count.get(name, 0) + 1
    most = 2 * 4 * 4 if make is time_tiled else 3 * 3 * 2
    full = {tile for tile, counts in held.items() if all(n == most for n in counts.values())}
    assert set() < full < set(held)
    assert set(points(fix_params(found.full, sizes))) == full
    assert set(points(fix_params(found.every, sizes))) == set(held)


def test_one_tile_or_none_that_differs_is_refused() -> None:
    fits = Schedule(triangle(6)).split("zero", "i", 3)
    with pytest.raises(InvalidSchedule, match="partial in some tiles and full in others"):
        fits.separate("zero", "i_in")
    small = Schedule(triangle(6)).split("zero", "i", 8)
    with pytest.raises(InvalidSchedule, match="no tile is full"):
        small.separate("zero", "i_in")


def test_apart_inside_apart_is_one_more_copy_each() -> None:
    """The full tiles of the outer loop are full inside as well: three copies of the statement, not four."""
    tensors = [Tensor("A", ("N", "N"), "float64", "inout")]
    s = Schedule(Nest.of(tensors, [statement("[N] -> { S[i, j] : 0 <= i, j < N }", "A[i, j] += 1")]))
    s = s.split("S", "i", 2).split("S", "j", 3).separate("S", "i_in").separate("S", "j_in")
    source = program(s.nest, s.tree, "cpu").source
    assert source.count("+= float64(") == 3
    for size in (1, 2, 3, 6, 7):
        assert_computes(s, {"N": size}, "cpu")


def test_what_holds_a_barrier_stays_one() -> None:
    """R reads what other threads wrote, so a barrier lies between it and S, and all threads meet at one place."""
    s = Schedule(pair(10)).fuse("S", "R", at="i").split("S", "i", 4).reverse("R", "j")
    s = s.bind("S", i="block.x", j="thread.x").bind("R", j="thread.x")
    together, apart = s.synchronised(), s.separate("S", "i_in").synchronised()
    source = program(apart.nest, apart.tree, "cuda").source
    assert source == program(together.nest, together.tree, "cuda").source
    assert "cuda.syncthreads()" in source
    assert_computes(apart, {}, "cuda")


@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(st.data(), st.sampled_from(["cpu", "cuda"]), nests(max_statements=3), st.integers(0, 999))
def test_random_schedules_with_full_tiles_apart(
    data: st.DataObject, target: str, nest: Nest, seed: int
) -> None:
    """Random verbs and cuts of random nests, and then apart what can be: the oracle's result on both targets."""
    sizes = data.draw(some_sizes(nest), label="sizes")
    s = cut(data, Schedule(nest), target)
    apart = 0
    for name in data.draw(st.permutations(statements(s.tree))):
        for loop in loops_around(s.tree, name):
            if not loop.apart and apart < 2:
                s, done = tried(s, lambda s, n=name, x=loop.name: s.separate(n, x))
                apart += done
    event(f"{apart} loops apart on {target}")
    inputs = inputs_for(nest, np.random.default_rng(seed), sizes)
    expected = interpret(nest, inputs, sizes)
    if target == "cuda":
        s, _ = tried(s, lambda s: s.synchronised())
    tree = s.tree if s.steps and s.steps[-1].verb == "synchronised" else without_gpu(s.tree)
    validate(nest, s.nest, tree)
    arrays = memory(nest, s.nest, tree, inputs, sizes)
    if tree is s.tree:
        run_lockstep(s.nest, tree, arrays, sizes)
    else:
        run_plain(s.nest, tree, arrays, sizes, seed)
    for name, array in expected.items():
        np.testing.assert_array_equal(arrays[name], array, err_msg=f"{name}: {s.trace()}")


def cut(data: st.DataObject, s: Schedule, target: str) -> Schedule:
    """A schedule with some loops in blocks of 2 or 3, random verbs before and after, and places."""
    for _ in range(data.draw(st.integers(0, 2), label="verbs before")):
        s, _ = tried(s, data.draw(calls(s, target)).on)
    for name in statements(s.tree):
        for loop in loops_around(s.tree, name):
            if loop.bind is None and data.draw(st.booleans()):
                size = data.draw(st.integers(2, 3))
                s, _ = tried(s, lambda s, n=name, x=loop.name, c=size: s.split(n, x, c))
    for _ in range(data.draw(st.integers(0, 2), label="verbs after")):
        s, _ = tried(s, data.draw(calls(s, target)).on)
    if target == "cuda":
        for call in data.draw(placements(s)):
            s, _ = tried(s, call.on)
    return s


def tried(s: Schedule, verb: Callable[[Schedule], Schedule]) -> tuple[Schedule, bool]:
    """The schedule after a verb and True; as it was and False if the verb is refused."""
    try:
        return verb(s), True
    except (IllegalSchedule, InvalidSchedule):
        return s, False
