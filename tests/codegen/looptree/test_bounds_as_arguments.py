"""Kernels that differ in bounds of loops alone share one function where their values gain a call little."""

# ruff: noqa: F821
# mypy: disable-error-code="no-untyped-def, name-defined"
from __future__ import annotations

import numpy as np
import pytest

import polyfuse as pf
from polyfuse.codegen.generate import program
from polyfuse.codegen.looptree.bounds_as_arguments import operations_called
from tests.frontend.python.running import KERNEL_NAMES, assert_close, by_source, called


@pf.nest
def copies(a: f32[4, 300], b: f32[7, 300], c: f32[9, 500], p: f32[4, 300], q: f32[7, 300], r: f32[9, 500]):
    for i in range(4):
        for j in range(300):
            p[i, j] = a[i, j] * 2
    for i in range(7):
        for j in range(300):
            q[i, j] = b[i, j] * 2
    for i in range(9):
        for j in range(500):
            r[i, j] = c[i, j] * 2


@pf.nest
def rows(a: f32[4, 30], b: f32[7, 30], p: f32[4, 30], q: f32[7, 30]):
    for i in range(4):
        for j in range(30):
            p[i, j] = a[i, j] * 2
    for i in range(7):
        for j in range(30):
            q[i, j] = b[i, j] * 2


@pf.nest
def thrice(a: f32[4, 30], b: f32[4, 30], c: f32[7, 30], p: f32[4, 30], q: f32[4, 30], r: f32[7, 30]):
    for i in range(4):
        for j in range(30):
            p[i, j] = a[i, j] * 2
    for i in range(4):
        for j in range(30):
            q[i, j] = b[i, j] * 2
    for i in range(7):
        for j in range(30):
            r[i, j] = c[i, j] * 2


@pf.nest
def quotients(a: f64[4, 20], b: f64[7, 20], c: i32[7, 20], p: f64[4, 20], q: f64[7, 20], r: f32[7, 20]):
    for i in range(4):
        for j in range(20):
            p[i, j] = a[i, j] * 2.5 / 7
    for i in range(7):
        for j in range(20):
            q[i, j] = b[i, j] * 2.5 / 9
    for i in range(7):
        for j in range(20):
            r[i, j] = c[i, j] * 3 / 9


@pf.nest
def flat(a: f32[4, 600], b: f32[7, 700], c: f32[4, 300], p: f32[2400], q: f32[4900], r: f32[1200]):
    for i in range(4):
        for j in range(600):
            p[600 * i + j] = a[i, j] * 2
    for i in range(7):
        for j in range(700):
            q[700 * i + j] = b[i, j] * 2
    for i in range(4):
        for j in range(300):
            r[300 * i + j] = c[i, j] * 2


def test_a_loop_of_long_steps_has_its_bound_as_an_argument() -> None:
    made = program(copies, pf.Schedule(copies).tree, "cpu")
    assert [launch.bounds for launch in made.launches] == [(4,), (7,), ()]
    shared, alone = made.codes
    assert "for i in range(0, i_stop):" in shared.source
    assert "for j in range(0, 300):" in shared.source
    assert str(shared.signature).endswith(", int64)")
    assert "for i in range(0, 9):" in alone.source


def test_a_loop_of_short_steps_has_it_in_kernels_that_run_once() -> None:
    tree = pf.Schedule(rows).tree
    assert len(program(rows, tree, "cpu").codes) == 2
    assert [launch.bounds for launch in program(rows, tree, "cpu", (True, True)).launches] == [(4,), (7,)]
    assert len(program(rows, tree, "cpu", (True, False)).codes) == 2


def test_a_kernel_of_calls_keeps_its_bounds_though_an_equal_one_runs_once() -> None:
    tree = pf.Schedule(thrice).tree
    for early, bounds in (((True, True, True), [(4,), (4,), (7,)]), ((False, True, True), [(), (), ()])):
        assert [launch.bounds for launch in program(thrice, tree, "cpu", early).launches] == bounds


def test_a_divisor_of_fractions_is_an_argument_of_kernels_that_run_once() -> None:
    tree = pf.Schedule(quotients).tree
    once = program(quotients, tree, "cpu", (True, True, True))
    assert [launch.bounds for launch in once.launches] == [(7, 4), (9, 7), ()]
    assert "/ float64(divisor)" in once.codes[0].source
    assert len(program(quotients, tree, "cpu").codes) == 3


def test_quotients_by_an_argument_are_those_by_the_number() -> None:
    rng = np.random.default_rng(1)
    arrays = {
        t.name: (100 * rng.standard_normal(tuple(map(int, t.shape)))).astype(t.dtype)
        for t in quotients.inputs
    }
    expected = pf.interpret(quotients, arrays)
    for launch in program(quotients, pf.Schedule(quotients).tree, "cpu", (True, True, True)).launches:
        space = dict(KERNEL_NAMES)
        exec(launch.source, space)
        read, written = launch.tensors
        result = np.empty_like(expected[written])
        space[launch.name](arrays[read], result, *launch.bounds)
        np.testing.assert_array_equal(result, expected[written])


def test_long_rows_and_their_distances_are_arguments_where_nothing_else_is_shared() -> None:
    made = program(flat, pf.Schedule(flat).tree, "cpu")
    assert [launch.bounds for launch in made.launches] == [(600, 600, 4), (700, 700, 7), ()]
    assert "p[uint64(i_stride * i + j)] = a[i, j] * float32(2.0)" in made.codes[0].source
    rng = np.random.default_rng(0)
    arrays = {t.name: rng.random(tuple(map(int, t.shape))).astype(np.float32) for t in flat.inputs}
    assert_close(by_source(flat, arrays, {}), pf.interpret(flat, arrays))


@pf.nest
def short(a: f32[4, 5], b: f32[7, 6], p: f32[4, 5], q: f32[7, 6]):
    for i in range(4):
        for j in range(5):
            p[i, j] = a[i, j] * 2
    for i in range(7):
        for j in range(6):
            q[i, j] = b[i, j] * 2


def test_short_rows_are_arguments_of_kernels_that_run_once() -> None:
    tree = pf.Schedule(short).tree
    assert [one.bounds for one in program(short, tree, "cpu", (True, True)).launches] == [(5, 4), (6, 7)]
    assert [one.bounds for one in program(short, tree, "cpu").launches] == [(), ()]


@pf.nest
def members(x: f32[2, 30], z: f32[3, 30], a: f32[3, 30], b: f32[3, 30], c: f32[1, 30]):
    for j in range(30):
        a[0, j] = z[0, j] * x[1, j]
    for j in range(30):
        a[2, j] = z[2, j] * x[0, j]
    for j in range(30):
        b[1, j] = z[0, j] * z[2, j]
    for j in range(30):
        b[2, j] = z[1, j] * z[2, j]
    for j in range(30):
        c[0, j] = z[0, j] + x[0, j]


def test_a_member_of_a_batch_is_an_argument_where_another_one_shares_the_code() -> None:
    """An array of which a kernel has two members keeps them, and the only member of one is no argument."""
    made = program(members, pf.Schedule(members).tree, "cpu")
    assert [launch.bounds for launch in made.launches] == [(0, 1), (2, 0), (), (), ()]
    assert len(made.codes) == 4
    assert "a[uint64(member), j] = z[uint64(member), j] * x[uint64(member_2), j]" in made.codes[0].source
    assert "c[0, j] = z[0, j] + x[0, j]" in made.codes[3].source


def test_a_bound_hidden_from_llvm_is_shared_as_others_are() -> None:
    assert operations_called("f(opaque(4), tile_mac(x))") == operations_called("f(i_stop, tile_mac(x))")


@pytest.mark.parametrize(
    ("nest", "bounds"),
    [(copies, [(4,), (7,), ()]), (members, [(0, 1), (2, 0), (), (), ()])],
    ids=["bounds", "members"],
)
def test_shared_functions_compute_what_the_nest_says(nest: pf.Nest, bounds: list[tuple[int, ...]]) -> None:
    rng = np.random.default_rng(0)
    arrays = {
        t.name: rng.standard_normal(tuple(map(int, t.shape))).astype(np.float32)
        for t in (*nest.inputs, *nest.outputs)
    }
    expected = pf.interpret(nest, arrays)
    assert_close(by_source(nest, arrays, {}), expected)
    net = pf.compile(nest, schedule=pf.Schedule(nest))
    assert [launch.bounds for launch in net.kernels] == bounds
    assert_close(called(net, arrays), expected)
