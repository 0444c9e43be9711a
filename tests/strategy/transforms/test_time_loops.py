"""Plans of loop programs: right on both targets, reproducible, never dearer than the order as written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

import polyfuse as pf
from papers.polybench import KERNELS
from polyfuse.analysis.bands import among, permutable
from polyfuse.analysis.barriers import place_barriers
from polyfuse.analysis.storage import buffers_of
from polyfuse.analysis.validation import validate
from polyfuse.interpret import interpret
from polyfuse.ir import Nest, Tensor, statement
from polyfuse.ir.tree import Leaf, Loop, Sequence, Tree, parts, statements
from polyfuse.machine import Machine
from polyfuse.rewrite.storage.expansion import expand_temporaries
from polyfuse.schedule import Schedule
from polyfuse.schedule.dump import tree_text
from polyfuse.sets import dimension
from polyfuse.strategy import plan_for
from polyfuse.strategy.draft import Draft
from polyfuse.strategy.transforms import time_loops as loops
from polyfuse.strategy.transforms.inner_loops import innermost
from polyfuse.strategy.transforms.isl_scheduler import found_by_isl
from polyfuse.strategy.transforms.loop_order import row_length
from polyfuse.strategy.transforms.skew import shifted_order
from polyfuse.strategy.transforms.time_tilings import shapes
from tests.support.execution import memory, run_lockstep, run_plain
from tests.support.loop_programs import PROGRAMS, array, program
from tests.support.models import CPU, CUDA

Make = Callable[[], Nest]
EVERY = pytest.mark.parametrize("make", PROGRAMS, ids=lambda f: f.__name__)
TARGETS = pytest.mark.parametrize("machine", [CPU, CUDA], ids=lambda m: m.kind)


@TARGETS
@EVERY
def test_plans_compute_what_the_oracle_does(make: Make, machine: Machine) -> None:
    nest = make()
    schedule = plan_for(nest, machine).schedule
    check(nest, schedule, machine)


def check(nest: Nest, schedule: Schedule, machine: Machine) -> None:
    tree = schedule.tree if machine.kind == "cpu" else place_barriers(schedule.nest, schedule.tree)
    validate(nest, schedule.nest, tree)
    rng = np.random.default_rng(1)
    inputs = {t.name: rng.uniform(1, 2, tuple(map(int, t.shape))) for t in nest.inputs}
    oracle = interpret(nest, inputs, {})
    arrays = memory(nest, schedule.nest, tree, inputs, {})
    if machine.kind == "cpu":
        run_plain(schedule.nest, tree, arrays, {}, 3)
    else:
        run_lockstep(schedule.nest, tree, arrays, {})
    for tensor in nest.outputs:
        np.testing.assert_allclose(arrays[tensor.name], oracle[tensor.name], rtol=1e-12)


@TARGETS
@EVERY
def test_traces_make_the_same_schedule(make: Make, machine: Machine) -> None:
    plan = plan_for(make(), machine)
    space = {"pf": SimpleNamespace(Schedule=Schedule), "nest": plan.schedule.given}
    exec(plan.schedule.trace(), space)
    again = space["s"]
    assert isinstance(again, Schedule)
    assert tree_text(again.nest, again.tree) == tree_text(plan.schedule.nest, plan.schedule.tree)
    assert len(plan.groups) == len(parts(plan.schedule.tree))


def test_a_statement_that_never_runs_keeps_the_written_order() -> None:
    box = "[N] -> {{ {}[i, j] : {} }}".format
    every = [
        statement(box("S", "0 <= i, j < N"), "P[i, i] = U[0]"),
        statement(box("never", "1 = 0"), "P[i, i] = U[0]"),
        statement(box("T", "0 <= i, j < N"), "P[i, i] += A[i, i]"),
    ]
    body: Tree = Sequence(tuple(Leaf(s.name) for s in every))
    for position, name in ((1, "j"), (0, "i")):
        body = Loop(name, tuple((s.name, dimension(s.domain, position)) for s in every), body)
    tensors = [
        Tensor("A", ("N", "N"), "float64", "input"),
        Tensor("P", ("N", "N"), "float64", "inout"),
        Tensor("U", ("N",), "float64", "input"),
    ]
    nest = Nest.of(tensors, every, order=body, context="[N] -> { : N >= 1 }")
    assert "none for a statement" in str(found_by_isl(nest, nest.order))
    assert statements(plan_for(nest, CPU).schedule.tree) == ("S", "never", "T")


@pf.nest
def along_diagonals(A: f64[19, 19]):  # noqa: F821
    flat = A.ravel()
    for _ in range(23):
        for i in range(1, 18):
            flat[19 + i : 19 * i + 19 : 18] = flat[i : 19 * i : 18] + flat[20 + i : 19 * i + 20 : 18]
        for i in range(2, 19):
            flat[19 * i + 17 : 324 + i : 18] = (
                flat[19 * i - 2 : 305 + i : 18] + flat[19 * i - 1 : 306 + i : 18]
            )


def test_isl_is_not_asked_about_large_quotients() -> None:
    """isl's scheduler does not end where many dependences have them, and its limit on operations does not stop it."""
    nest = expand_temporaries(along_diagonals).nest
    assert "have too large quotients" in str(found_by_isl(nest, nest.order))


@pytest.mark.parametrize("units", [1, 2])
def test_jacobi_2d_is_tiled_in_time_where_l3_is_far(units: int) -> None:
    kernel = KERNELS["jacobi-2d"]
    machine = replace(Machine.preset("xeon"), units=units)
    trace = plan_for(kernel.nest.with_sizes(kernel.large), machine).schedule.trace()
    assert "s.tile('S0', _t=" in trace


def test_each_draft_is_proven_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Draft] = []

    def refused(draft: Draft, schedule: Schedule, notes: list[str]) -> None:
        asked.append(draft)

    monkeypatch.setattr(loops, "_proven", refused)
    nest = KERNELS["seidel-2d"].nest.with_sizes({"T": 4, "N": 20})
    plan = plan_for(nest, CPU)
    assert asked
    assert len(asked) == len(set(map(id, asked)))
    assert plan.schedule.tree == Schedule(plan.schedule.nest).tree


def test_only_the_last_loop_of_a_perfect_nest_is_innermost() -> None:
    nest = KERNELS["jacobi-2d"].nest
    assert [loop.name for loop in innermost(nest.order)] == ["j", "j"]
    assert [loop.name for loop in innermost(KERNELS["syrk"].nest.order)] == ["j", "j"]
    assert [loop.name for loop in innermost(KERNELS["floyd-warshall"].nest.order)] == ["j"]


def test_short_rows_stay_whole_in_time_tiles() -> None:
    kernel, sizes = KERNELS["heat-3d"], {"T": 4, "N": 9}
    nest = kernel.nest.with_sizes(sizes)
    names = statements(nest.order)
    dates = shifted_order(nest, nest.order)
    assert dates is not None
    arranged = Draft(nest, nest.order).do("affine", **dates)
    tiled = next(draft for draft in shapes(arranged, names, 2) if "rows of k whole" in "".join(draft.notes))
    assert row_length(nest, permutable(arranged.tree, among(nest, arranged.tree)), names) == 7
    first = kernel.inputs(sizes, np.random.default_rng(0))
    found, expected = ({name: np.array(value) for name, value in first.items()} for _ in range(2))
    pf.compile(nest, schedule=tiled.taken(Schedule(nest)), target="cpu")(**found)
    kernel.nest.python(**{name: value if value.ndim else int(value) for name, value in expected.items()})
    np.testing.assert_allclose(found["A"], expected["A"], rtol=1e-14)
    large = KERNELS["heat-3d"].nest.with_sizes({"T": 40, "N": 400})
    wide = Draft(large, large.order).do("affine", **dates)
    assert all("whole" not in "".join(draft.notes) for draft in shapes(wide, names, 2))


@pytest.mark.parametrize(
    ("shape", "rows"), [((4, 32, 50), "i"), ((32, 3, 50), "b"), ((64, 32, 50), "i"), ((3, 4, 50), "b")]
)
def test_rows_side_by_side_are_those_of_which_there_are_enough(
    shape: tuple[int, int, int], rows: str
) -> None:
    b, i, j = shape
    nest = Nest.of(
        [Tensor("x", shape, "float32", "input"), Tensor("y", shape, "float32", "inout")],
        [
            statement(
                f"{{ S[b, i, j] : 0 <= b < {b} and 0 <= i < {i} and 1 <= j < {j} }}",
                "y[b, i, j] = y[b, i, j - 1] + x[b, i, j]",
            )
        ],
    )
    plan = plan_for(nest, CPU)
    inner = plan.schedule.loops("S")[-1]
    assert (inner.name, inner.bind) == (f"{rows}_in", "vector")


def shortest_paths(path):  # type: ignore[no-untyped-def]
    for k in range(path.shape[0]):
        path[:] = np.minimum(path[:], np.add.outer(path[:, k], path[k, :]))


def test_a_temporary_of_one_step_is_not_kept_for_all_steps() -> None:
    """A step's 640 kB are more than half of the L2, and all 400 steps' are 256 MB."""
    read = pf.nest(shortest_paths, types={"path": "i32[N, N]"})
    nest = expand_temporaries(read.with_sizes({"N": 400})).nest
    schedule = plan_for(nest, Machine.preset("zen5")).schedule
    assert "copy" in {buffer.tensor for _, buffer in buffers_of(schedule.tree)}


def test_a_loop_without_loops_inside_is_not_unrolled() -> None:
    """`for j: y[j] += s[0] * x[j]`: s stays anyway, and lanes of an unrolled loop are worse than a vector's."""
    tensors = [array("x", 64, role="input"), array("s", 1, role="input"), array("y", 64)]
    scaled = program("scaled", tensors, {"{ S[j] : 0 <= j < 64 }": "y[j] = y[j] + s[0] * x[j]"}, ("j", "S"))
    shapes_of = [tree_text(d.nest, d.tree) for d in shapes(Draft(scaled, scaled.order), ("S",), 1)]
    assert not any("unroll" in shape for shape in shapes_of)
