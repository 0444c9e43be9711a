"""The structure of loop trees: loops of one value, partial tiles, axes that do not start at 0, buffers, barriers."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator

import numpy as np

from polyfuse.codegen.generate import kernels
from polyfuse.codegen.looptree.nodes import Allocate, Barrier, Block, For, Guard, Kernel, Node, Store, below
from polyfuse.interpret import interpret
from polyfuse.ir import Nest, Tensor, statement
from polyfuse.ir.tree import Leaf, Loop, Sequence
from polyfuse.schedule import Schedule
from polyfuse.sets import dimension
from tests.support.execution import memory, run_lockstep, run_plain
from tests.support.programs import on_cpu, on_cuda, pair, triangle


def only(s: Schedule) -> Kernel:
    (kernel,) = kernels(s.nest, s.tree)
    return kernel


def nodes(node: Node) -> Iterator[Node]:
    yield node
    for part in below(node):
        yield from nodes(part)


def found(kernel: Kernel, kind: type[Node]) -> list:  # type: ignore[type-arg]
    return [node for node in nodes(kernel.body) if isinstance(node, kind)]


def bounds(kernel: Kernel) -> list[str]:
    return [
        f"{x.variable}: {ast.unparse(x.low)}..{ast.unparse(x.high)} step {x.step}" for x in found(kernel, For)
    ]


def axes(kernel: Kernel) -> dict[str, str]:
    return {axis.name: ast.unparse(axis.extent) for axis in kernel.axes}


def guards(kernel: Kernel) -> list[str]:
    return [ast.unparse(guard.condition) for guard in found(kernel, Guard)]


def vector(domain: str, body: str, *, size: int = 12) -> Schedule:
    """One statement S from A to the inout O, both of `size` elements."""
    tensors = [Tensor("A", (size,), "float64", "input"), Tensor("O", (size,), "float64", "inout")]
    return Schedule(Nest.of(tensors, [statement(domain, body)]))


def computes(s: Schedule, run: Callable[..., object]) -> None:
    """The kernel gives the oracle's result."""
    rng = np.random.default_rng(0)
    inputs = {t.name: rng.integers(-3, 4, t.shape).astype(t.dtype) for t in s.source.inputs}
    arrays = memory(s.source, s.nest, s.tree, inputs, {})
    run(s.nest, s.tree, arrays, {}, *([0] if run is run_plain else []))
    for name, expected in interpret(s.source, inputs).items():
        np.testing.assert_array_equal(arrays[name], expected)


def test_a_loop_of_one_value_is_no_loop() -> None:
    s = vector("{ S[i] : i = 5 }", "O[i] = A[i]")
    assert bounds(only(s)) == []
    (store,) = found(only(s), Store)
    assert ast.unparse(store.target.subscripts[0]) == "5"
    computes(s, run_plain)


def test_an_empty_domain_is_an_empty_kernel() -> None:
    kernel = only(vector("{ S[i] : i < 0 and i > 0 }", "O[0] = A[0]"))
    assert found(kernel, Store) == []


def test_tiles_that_fit_have_no_guards() -> None:
    assert bounds(only(vector("{ S[i] : 0 <= i < 12 }", "O[i] = A[i]").split("S", "i", 4))) == [
        "i: 0..3 step 1",
        "i_in: 0..4 step 1",
    ]


def test_partial_tiles_end_early() -> None:
    s = vector("{ S[i] : 0 <= i < 10 }", "O[i] = A[i]").split("S", "i", 4)
    assert bounds(only(s)) == ["i: 0..3 step 1", "i_in: 0..min(4, -4 * i + 10) step 1"]
    computes(s, run_plain)


def test_partial_tiles_on_threads_are_guarded() -> None:
    s = (
        vector("{ S[i] : 0 <= i < 10 }", "O[i] = A[i]")
        .split("S", "i", 4)
        .bind("S", i="block.x", i_in="thread.x")
    )
    assert axes(only(s)) == {"block.x": "3", "thread.x": "4"}
    assert guards(only(s)) == ["tx < -4 * bx + 10"]
    computes(s, run_lockstep)


def test_an_axis_counts_from_its_lowest_value() -> None:
    s = vector("{ S[i] : 3 <= i < 10 }", "O[i] = A[i]").bind("S", i="thread.x")
    assert axes(only(s)) == {"thread.x": "7"}
    assert guards(only(s)) == []
    (store,) = found(only(s), Store)
    assert ast.unparse(store.target.subscripts[0]) == "tx + 3"
    computes(s, run_lockstep)
    backwards = vector("{ S[i] : 3 <= i < 10 }", "O[i] = A[i]").reverse("S", "i").bind("S", i="thread.x")
    assert axes(only(backwards)) == {"thread.x": "7"}
    computes(backwards, run_lockstep)


def test_a_strided_axis_is_guarded() -> None:
    s = vector("{ S[i] : 0 <= i < 10 and i mod 3 = 0 }", "O[i] = A[i]").bind("S", i="thread.x")
    assert guards(only(s)) == ["tx % 3 == 0"]
    computes(s, run_lockstep)


def test_a_strided_loop_over_cores_visits_every_value() -> None:
    s = vector("{ S[i] : 1 <= i < 10 and i mod 3 = 1 }", "O[i] = A[i]").bind("S", i="cores")
    assert bounds(only(s)) == ["i: 1..10 step 3"]
    computes(s, run_plain)


def test_a_statement_without_the_axis_runs_at_its_zero() -> None:
    """R has no loop over threads: it runs in thread 0, which is there although S's threads start at 2."""
    s = (
        Schedule(pair())
        .fuse("S", "R", at="i")
        .bind("S", i="block.x")
        .shift("S", "j", 2)
        .bind("S", j="thread.x")
    )
    s = s.synchronised()
    assert axes(only(s)) == {"block.x": "4", "thread.x": "6"}
    assert "tx == 0" in guards(only(s))
    assert "2 <= tx" in guards(only(s))
    computes(s, run_lockstep)


def test_inner_bounds_follow_outer_loops() -> None:
    s = Schedule(triangle()).fuse("mac", "zero", at="i")
    assert bounds(only(s)) == ["i: 0..6 step 1", "j: 0..i + 1 step 1"]
    computes(s, run_plain)


def test_extents_of_symbolic_sizes_are_expressions() -> None:
    s = Schedule(pair("N")).fuse("S", "R", at="j").bind("S", i="block.x")
    kernel = only(s)
    assert kernel.sizes == ("N",)
    assert axes(kernel) == {"block.x": "N"}
    assert bounds(kernel) == ["j: 0..N step 1"]


def test_buffers_are_allocated_once_outside_the_loops_that_refill_them() -> None:
    kernel = only(on_cuda())
    made = {node.buffer: (node.shape, node.memory) for node in found(kernel, Allocate)}
    assert made == {
        "y": ((), "register"),
        "X_shared": ((4, 4), "shared"),
        "W_shared": ((4, 4), "shared"),
    }
    assert isinstance(kernel.body, Block)
    assert all(isinstance(part, Allocate) for part in kernel.body.parts[:3])


def test_every_core_has_its_own_buffer() -> None:
    (outer,) = [node for node in found(only(on_cpu()), For) if node.bind == "cores"]
    assert [node.buffer for node in nodes(outer) if isinstance(node, Allocate)] == ["y"]
    one = on_cpu(4)  # one tile of rows: isl makes no loop of it, but the buffer has to be there
    assert [node.buffer for node in found(only(one), Allocate)] == ["y"]
    computes(one, run_plain)


def test_buffers_where_isl_makes_two_loops_of_a_loop_over_cores() -> None:
    """S runs at value 0 alone, R at 1 and 2: the first is no loop, and needs its own buffer all the same."""
    tensors = [Tensor("t", (1,), "float64", "temporary"), Tensor("O", (2,), "float64", "output")]
    every = [statement("{ S[i] : i = 0 }", "t[i] = 2"), statement("{ R[i] : 0 <= i < 2 }", "O[i] = 1")]
    dates = tuple((s.name, dimension(s.domain, 0).add_constant_val(shift)) for shift, s in enumerate(every))
    order = Loop("i", dates, Sequence((Leaf("S"), Leaf("R"))))
    s = Schedule(Nest.of(tensors, every, order)).bind("S", i="cores").promote("t", "S", at="i")
    assert [type(node).__name__ for node in only(s).body.parts] == ["Allocate", "Store", "For"]
    computes(s, run_plain)


def test_barriers_stand_outside_what_only_some_threads_run() -> None:
    kernel = only(on_cuda(10))
    assert len(found(kernel, Barrier)) == 2

    def inside_guards(node: Node) -> Iterator[Node]:
        for guard in (x for x in nodes(node) if isinstance(x, Guard)):
            yield from nodes(guard.body)

    assert not any(isinstance(node, Barrier) for node in inside_guards(kernel.body))


def test_kernels_name_only_what_they_touch() -> None:
    first, second = kernels(pair(), Schedule(pair()).tree)
    assert (list(first.arrays), list(second.arrays)) == (["A", "t"], ["t", "O"])
    assert (first.statements, second.statements) == (("S",), ("R",))
    assert first.text == ("S: t[i, j] = 2 * A[i, j]",)
