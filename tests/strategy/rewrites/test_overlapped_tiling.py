"""What is computed again and why: pipelines found, stages inlined, tiles chosen, and what is left alone."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import assume, given, settings

import polyfuse as pf
from papers.pipelines import PIPELINES
from papers.polybench import KERNELS
from polyfuse import nn
from polyfuse.ir.tree import loops
from polyfuse.machine import Machine
from polyfuse.rewrite import expand
from polyfuse.strategy.candidates import Choose, Wish
from polyfuse.strategy.cost.stencil_stages import slots
from polyfuse.strategy.match.stencil import parts_of_tiles, pipelines
from polyfuse.strategy.pipeline import plan_for
from polyfuse.strategy.rewrites.overlapped_tiling import PASS, recomputed
from tests.frontend.python.running import called, defined
from tests.support.examples import examples
from tests.support.pipelines import Pipeline
from tests.support.pipelines import pipelines as random_pipelines

ZEN5 = Machine.preset("zen5")


def written(nest: pf.Nest, *names: str) -> list[str]:
    return [nest.statement(name).write.tensor for name in names]


def test_the_pipelines_of_a_nest() -> None:
    nest = PIPELINES["pyramid"].nest
    (found,) = pipelines(nest)
    assert written(nest, *found.producers) == ["rows", "down"]
    assert written(nest, *found.results) == ["coarse", "detail"]


def test_pipelines_come_in_the_order_of_the_nest() -> None:
    count = 8
    outputs = ", ".join(f'y{c}: "f64[N - 2]"' for c in range(count))
    lines = ["@pf.nest", f'def chains(x: "f64[N]", {outputs}):']
    for c in range(count):
        lines += [f"    t{c} = np.empty(N)", "    for i in range(N):", f"        t{c}[i] = {c}.5 * x[i]"]
    for c in range(count):
        lines += ["    for i in range(N - 2):", f"        y{c}[i] = t{c}[i] + t{c}[i + 1] + t{c}[i + 2]"]
    nest = defined("\n".join(lines))
    assert [written(nest, *found.results) for found in pipelines(nest)] == [[f"y{c}"] for c in range(count)]


def test_how_what_a_tile_needs_grows_with_it() -> None:
    nest = PIPELINES["pyramid"].nest
    (found,) = pipelines(nest)
    parts = parts_of_tiles(nest, found)
    assert parts is not None
    assert parts.of["image"].shape((32, 256)) == (69, 517)
    assert parts.of["down"].shape((32, 256)) == (33, 257)
    coarse, detail = found.results
    assert parts.tiles((32, 256)) == {coarse: {"i": 32, "j": 256}, detail: {"i": 64, "j": 512}}


@pytest.mark.parametrize("name", KERNELS)
def test_polybench_has_no_pipelines(name: str) -> None:
    assert pipelines(expand(KERNELS[name].nest).nest) == ()


NETWORKS = (
    nn.Sequential(nn.Linear(8, 8, seed=0), nn.ReLU(), nn.Softmax()),
    nn.Sequential(nn.LayerNorm(8), nn.Linear(8, 4, seed=0)),
)


@pytest.mark.parametrize("model", NETWORKS)
def test_networks_have_no_pipelines(model: nn.Module) -> None:
    nest = pf.lower(model, batch=4)
    assert recomputed(nest, ZEN5).nest is nest


def test_products_are_inlined_and_gradients_recomputed_in_tiles() -> None:
    pipeline = PIPELINES["harris"]
    nest = pipeline.nest.with_sizes(pipeline.large)
    done = recomputed(nest, ZEN5)
    (one,) = done.tiled
    assert written(done.nest, *one.overlapped.statements) == [
        "Ix",
        "Iy",
        "Sxx",
        "Sxy",
        "Syy",
        "trace",
        "corners",
    ]
    *inlined, tiles = map(str, done.remarks)
    assert [text.split(",")[0] for text in inlined] == ["Ixx", "Ixy", "Iyy"]
    times = {s.times for s in one.overlapped.stages if s.computed > 1}
    rows, columns = one.overlapped.sizes
    assert times == {1.0, (rows + 2) * (columns + 2) / (rows * columns)}
    assert f"in tiles of {rows} x {columns}, computed per element: Ix, Iy 1.0" in tiles
    assert "bytes less move" in tiles


VOLUME = """
@pf.nest
def steps(x: "f64[N + 4, N + 4, K]", y: "f64[N, N, K]"):
    lap = 4.0 * x[1:N + 3, 1:N + 3] - (x[2:N + 4, 1:N + 3] + x[:N + 2, 1:N + 3] + x[1:N + 3, 2:] + x[1:N + 3, :N + 2])
    up = lap[1:, 1:N + 1] - lap[:-1, 1:N + 1]
    left = lap[1:N + 1, 1:] - lap[1:N + 1, :-1]
    y[:] = x[2:N + 2, 2:N + 2] - CHANGE
"""


def test_stages_that_take_few_operations_run_in_one_sweep() -> None:
    """Thirteen elements of x for one of y: less than the laplacians and differences would move through memory."""
    nest = defined(VOLUME.replace("CHANGE", "(up[1:] - up[:-1] + left[:, 1:] - left[:, :-1])"))
    done = recomputed(expand(nest.with_sizes({"N": 128, "K": 160})).nest, Machine.preset("xeon"))
    assert [s.write.tensor for s in done.nest.statements if s.dims] == ["y"]
    assert all(remark.taken for remark in done.remarks)


def test_tiles_of_a_volume_have_planes_where_stages_need_more_of_them() -> None:
    """A stage with a square root is not computed five times; one that is read on both sides is in tiles."""
    nest = defined(
        VOLUME.replace("4.0 * x", "np.sqrt(x[1:N + 3, 1:N + 3]) * x").replace("CHANGE", "(up[1:] - up[:-1])")
    )
    choose = Choose().with_wishes([Wish(PASS, frozenset(), "8 x 16 x 160")])
    nest = expand(nest.with_sizes({"N": 128, "K": 160})).nest
    (one,) = recomputed(nest, Machine.preset("xeon"), choose).tiled
    assert one.overlapped.sizes == (16, 8, 160)


def test_a_plan_keeps_temporaries_in_a_tile_and_says_what_is_recomputed() -> None:
    pipeline = PIPELINES["harris"]
    plan = plan_for(pipeline.nest.with_sizes(pipeline.large), ZEN5)
    assert len(plan.groups) == 1
    held = [buffer.tensor for loop in loops(plan.schedule.tree) for buffer in loop.buffers]
    assert sorted(held) == ["Ix", "Iy", "Sxx", "Sxy", "Syy", "trace"]
    binds = [loop.bind for loop in loops(plan.schedule.tree)]
    assert binds == ["cores", None, None, "vector", None, "vector"]
    assert "the stages of corners run together in tiles of" in str(plan)


@pytest.mark.parametrize("name", ["harris", "unsharp", "blurs"])
def test_emitted_loops_have_plain_indices_and_one_type(name: str) -> None:
    pipeline = PIPELINES[name]
    net = pf.compile(pipeline.nest, target="cpu", machine="zen5", sizes=pipeline.large)
    body = net.source.split('"""')[2]
    assert "float64" not in body
    subscripts = re.findall(r"\[([^\]]*)\]", body)
    assert not any("//" in text or "%" in text for text in subscripts)


def test_halves_are_read_in_two_phases_without_a_division() -> None:
    pipeline = PIPELINES["pyramid"]
    net = pf.compile(pipeline.nest, target="cpu", machine="zen5", sizes=pipeline.large)
    (line,) = (line for line in net.source.splitlines() if line.strip().startswith("detail["))
    assert "coarse[i // 2, j + j_in]" in line
    assert "j // 2" not in line


def test_where_all_is_inlined_nothing_is_left_to_tile() -> None:
    chain = defined(
        """
@pf.nest
def chain(x: "f32[N]", y: "f32[N - 2]"):
    T = np.empty(N - 1, np.float32)
    for i in range(N - 1):
        T[i] = x[i] + x[i + 1]
    for i in range(N - 2):
        y[i] = T[i] * T[i + 1]
"""
    )
    done = recomputed(chain, ZEN5)
    assert written(done.nest, *(s.name for s in done.nest.statements)) == ["y"]
    assert done.tiled == ()
    assert tuple(map(str, done.remarks)) == (
        "T, written by S0, is computed where it is read: in S1 (from 1 to 3 operations).",
    )


def test_tiles_that_compute_too_much_again_are_not_made() -> None:
    """Five stages that reach 32 rows and columns further each, with much to compute and little to load."""
    lines = ["@pf.nest", 'def far(T0: "f32[1184, 1184]", T5: "f32[1024, 1024]"):']
    lines += [f"    T{k} = np.empty(({1184 - 32 * k}, {1184 - 32 * k}), np.float32)" for k in range(1, 5)]
    for k in range(1, 6):
        far = f"T{k - 1}[i + 32, j + 32]"
        power = " * ".join([f"(T{k - 1}[i, j] + {far})"] * 2 + [f"({far} - 1.{n})" for n in range(60)])
        loops_ = f"    for i in range({1184 - 32 * k}):\n        for j in range({1184 - 32 * k}):\n"
        lines.append(f"{loops_}            T{k}[i, j] = {power}")
    nest = defined("\n".join(lines))
    done = recomputed(nest, ZEN5)
    assert done.nest is nest
    (reason,) = done.remarks
    assert reason.text.startswith("the stages of T5 are not tiled together, which does not pay:")


def test_a_multiply_add_is_one_instruction() -> None:
    nest = PIPELINES["blurs"].nest
    assert slots(nest.statements[0].body) == 5


@settings(max_examples=examples(6), deadline=None)
@given(random_pipelines(most=4))
def test_random_pipelines_in_machine_code_leave_what_the_oracle_does(pipeline: Pipeline) -> None:
    assume(len(pipeline.extents) > 2)
    nest, arrays = pipeline.nest(), pipeline.arrays()
    expected = pf.interpret(nest, arrays)
    for options in (
        {"target": "cpu", "machine": "zen5"},
        {"target": "cuda", "machine": "h200", "device": "lockstep"},
    ):
        found = called(pf.compile(nest, **options), arrays)
        assert all(np.array_equal(found[name], expected[name]) for name in expected)


UNEQUAL = """
@pf.nest
def unequal(x: "f64[N, M]", y: "f64[N, M]"):
    if N != M:
        t = x[1:-1, 1:-1] + x[1:-1, 2:] + x[:-2, 1:-1]
        u = t[1:-1, 1:-1] + t[1:-1, 2:] + t[:-2, 1:-1]
        y[2:-2, 2:-2] = u * u
    else:
        y[:] = x
"""


def test_stages_without_values_at_the_planned_sizes_are_left_alone() -> None:
    plan = plan_for(expand(defined(UNEQUAL)).nest, ZEN5)
    assert any("no values at the sizes that are planned for" in remark.text for remark in plan.remarks)
