"""Overlapped tiling: what a tile computes, that values stay bit by bit, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import polyfuse as pf
from papers.pipelines import stages
from polyfuse.errors import IllegalRewrite
from polyfuse.rewrite import Overlapped, Refusal, overlap
from polyfuse.rewrite.tiling.overlapped_tiling import Tiles
from polyfuse.sets import points
from tests.frontend.python.running import assert_close, by_python, by_source, called
from tests.support.examples import examples
from tests.support.pipelines import Pipeline, pipelines, same

# ruff: noqa: F821


@pf.nest
def smooth(x: f32[N], y: f32[N - 3]):
    T = np.empty(N - 1, np.float32)
    for i in range(N - 1):
        T[i] = x[i] + x[i + 1]
    for i in range(N - 3):
        y[i] = T[i] * T[i + 2]


def test_a_tile_computes_what_it_needs_and_two_elements_of_its_neighbour_s() -> None:
    done = overlap(smooth, {"S1": {"i": 8}}, ["S0"])
    assert str(done) == "in tiles of 8 for S1: computed per element: S0 1.25 times"
    assert done.loops == ("i_tile",)
    assert done.nest.tensor("T").shape == ("floor((N + 4)/8)", 10)
    first, second = done.nest.statements
    assert (str(first.write), [str(a) for a in first.reads]) == (
        "T[i_tile, i]",
        ["x[8i_tile + i]", "x[1 + 8i_tile + i]"],
    )
    assert (str(second.write), [str(a) for a in second.reads]) == (
        "y[8i_tile + i]",
        ["T[i_tile, i]", "T[i_tile, 2 + i]"],
    )
    for n in (3, 4, 11, 12, 30):
        arrays = {"x": np.arange(n, dtype=np.float32), "y": np.zeros(n - 3, np.float32)}
        expected = by_python(smooth, arrays)
        assert_close(pf.interpret(done.nest, arrays), expected, 0.0)
        assert_close(by_source(done.nest, arrays, {"N": n}), expected, 0.0)


@pf.nest
def turned(x: c64[N], y: f32[N - 2]):
    T = np.empty(N - 1, np.complex64)
    T.real[:] = x[:-1].real * x[1:].imag
    y[:] = T[:-1].real + T[1:].real


def test_a_tile_may_need_one_part_of_complex_numbers() -> None:
    real, last = (s.name for s in turned.statements)
    done = overlap(turned, {last: {"i0": 8}}, [real])
    window = done.nest.tensor("T")
    assert (window.shape[-1], window.pairs) == (1, False)


def test_the_tiles_loop_is_parallel_and_the_temporary_fits_a_tile() -> None:
    schedule = pf.Schedule(smooth)
    refused = schedule.fuse("S0", "S1", at="i", shift={"i": 2}).why_not("bind", "S0", i="cores")
    assert refused is not None
    assert refused.kind == "flow"
    done = overlap(smooth, {"S1": {"i": 8}}, ["S0"])
    schedule = (
        pf.Schedule(done.nest).bind("S0", i_tile="cores").promote("T", "S0", at="i_tile", memory="local")
    )
    net = pf.compile(done.nest, target="cpu", schedule=schedule)
    assert "T = on_stack((10,), np.float32)" in net.source
    arrays = {"x": np.arange(29, dtype=np.float32), "y": np.zeros(26, np.float32)}
    assert_close(called(net, arrays), by_python(smooth, arrays), 0.0)


@pytest.mark.parametrize(
    ("tiles", "producers", "times"),
    [
        (
            {"S3": {"i": 4, "j": 8}, "S2": {"i": 2, "j": 4}},
            ("S0", "S1"),
            {"S0": 1.5 * 1.625, "S1": 1.5 * 1.25},
        ),
        ({"S3": {"i": 4}, "S2": {"i": 2}}, ("S0", "S1"), {"S0": 1.5, "S1": 1.5}),
    ],
)
def test_two_results_of_different_resolution(tiles: dict, producers: tuple, times: dict) -> None:
    fixed = stages.pyramid.with_sizes({"M": 9, "N": 13})
    done = overlap(fixed, tiles, producers)
    assert {s.statement: s.times for s in done.stages} == pytest.approx(times)
    rng = np.random.default_rng(1)
    arrays = {
        "image": rng.random((22, 30), np.float32),
        "coarse": np.zeros((9, 13), np.float32),
        "detail": np.zeros((16, 24), np.float32),
    }
    found, expected = pf.interpret(done.nest, arrays), by_python(stages.pyramid, arrays)
    assert all(np.array_equal(found[n], expected[n]) for n in expected)


def tiled(nest: pf.Nest, tiles: Tiles, producers: list[str]) -> Overlapped | Refusal:
    try:
        return overlap(nest, tiles, producers)
    except IllegalRewrite as error:
        return error.refusal


@settings(max_examples=examples(60), deadline=None)
@given(pipelines(), st.data())
def test_random_pipelines_keep_every_value(pipeline: Pipeline, data: st.DataObject) -> None:
    assume(len(pipeline.extents) > 2)
    nest = pipeline.nest()
    dims = ("i", "j")[: len(pipeline.extents[0])]
    wanted = data.draw(st.lists(st.sampled_from(dims), min_size=1, unique=True), label="dims")
    sizes = {d: data.draw(st.integers(1, 7), label=d) for d in wanted}
    tiles = {pipeline.statement(k): sizes for k in pipeline.results}
    producers = [s.name for s in nest.statements if s.name not in tiles]
    done = tiled(nest, tiles, producers)
    if isinstance(done, Refusal):
        # what two paths of different scale need of one stage moves apart from tile to tile
        assert "no constant shape" in done.why
        assert any(s != 1 for every in pipeline.reads for read in every for s in read.strides)
        return
    assert {s.statement for s in done.stages} == set(producers)
    for stage in done.stages:
        run = [point[: len(sizes)] for point in points(done.nest.domains[stage.statement])]
        assert max(run.count(tile) for tile in set(run)) <= stage.computed
    assert same(done.nest, pipeline, pipeline.arrays())


def test_stages_whose_tiles_depend_on_each_other_are_refused_with_instances() -> None:
    @pf.nest
    def in_place(x: f32[N]):
        T = np.empty(N - 1, np.float32)
        for i in range(N - 1):
            T[i] = x[i] + x[i + 1]
        for i in range(N - 1):
            x[i + 1] = T[i]

    with pytest.raises(IllegalRewrite) as error:
        overlap(in_place, {"S1": {"i": 4}}, ["S0"])
    refusal = error.value.refusal
    assert "the second would read what the first writes, and did not before" in str(refusal)
    assert [one.statement for one in refusal.instances] == ["S1", "S0"]


@pf.nest
def others(x: f32[N], y: f32[N], z: f32[N]):
    T = np.empty(N, np.float32)
    U = np.empty(N, np.float32)
    for i in range(N):
        T[i] = x[i]
    for i in range(N):
        U[i] = T[i] * i
    for i in range(N):
        y[i] = U[i] + T[N - 1 - i]
    for i in range(N):
        z[i] = T[i]


@pytest.mark.parametrize(
    ("tiles", "producers", "why"),
    [
        ({"S2": {"i": 4}}, ["S0"], "S1 uses T outside of the tiles"),
        ({"S2": {"i": 4}}, ["S1"], "the value of S1 depends on its index"),
        ({"S2": {"k": 4}}, [], "S2 has the dimensions i"),
        ({"S2": {"i": 0}}, [], "S2 has the dimensions i"),
        ({"S2": {}}, [], "S2 has the dimensions i"),
        ({"S2": {"i": 4}}, ["S3"], "S3 writes z, which the caller sees"),
    ],
)
def test_what_cannot_be_tiled_so(tiles: dict, producers: list, why: str) -> None:
    with pytest.raises(IllegalRewrite, match=why):
        overlap(others, tiles, producers)


def test_a_tile_that_needs_both_ends_of_an_array_is_refused() -> None:
    @pf.nest
    def mirrored(x: f32[N], y: f32[N]):
        T = np.empty(N, np.float32)
        for i in range(N):
            T[i] = x[i]
        for i in range(N):
            y[i] = T[i] + T[N - 1 - i]

    with pytest.raises(IllegalRewrite, match="one tile's footprint in S0 has no constant shape"):
        overlap(mirrored, {"S1": {"i": 4}}, ["S0"])
