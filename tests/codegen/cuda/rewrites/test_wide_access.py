"""Vector loops of CUDA kernels: 16 bytes in one access where isl proves it, element by element elsewhere."""

# ruff: noqa: F821

from typing import Any

import numpy as np
import pytest

import polyfuse as pf
from polyfuse.checks import cuda_cases as cases
from polyfuse.codegen.cuda.compile.disassembly import opcodes
from polyfuse.runtime.cuda.runner import build_kernels


@pf.nest
def scaled(x: "f32[6, 20]", b: "f32[20]", s: "f32[6]", y: "f32[6, 20]"):
    for i in range(6):
        for j in range(20):
            y[i, j] = x[i, j] * s[i] + b[j]


@pf.nest
def odd_rows(x: "f32[6, 22]", y: "f32[6, 22]"):
    for i in range(6):
        for j in range(22):
            y[i, j] = 2.0 * x[i, j]


@pf.nest
def with_tail(s: "f32[1]", x: "f32[22]", y: "f32[22]"):
    for i in range(1):
        for j in range(22):
            y[j] = s[i] * x[j]


@pf.nest
def doubles(x: "f64[6, 20]", y: "f64[6, 20]"):
    for i in range(6):
        for j in range(20):
            y[i, j] = 2.0 * x[i, j]


@pf.nest
def behind(x: "f32[6, 20]", y: "f32[6, 20]"):
    for i in range(6):
        for j in range(20):
            y[i, j] = x[i, j] + 1.0
            y[i, j] = y[i, j] * x[i, j]


@pf.nest
def added(x: "f32[6, 20]", y: "f32[6, 20]"):
    for i in range(6):
        for j in range(20):
            y[i, j] += x[i, j]


COPIES = {"scaled": 3, "odd_rows": 0, "with_tail": 2, "doubles": 2, "behind": 1, "added": 3}
"""How many arrays of each nest are copied 16 bytes at a time."""


def by_hand(nest: Any, device: str) -> pf.Executable:
    """Each thread of a row has 16 bytes."""
    names = [s.name for s in nest.statements]
    count = 2 if nest.tensor("x").dtype == "float64" else 4
    s = pf.Schedule(nest).split(names[0], "j", count)
    s = s.vectorize(names[0], "j_in").bind(names[0], i="block.x", j="thread.x")
    return pf.compile(nest, schedule=s, target="cuda", machine="h200", device=device)


@pytest.mark.parametrize("device", ["lockstep", "simulator"])
@pytest.mark.parametrize("name", COPIES)
def test_it_is_what_the_oracle_says(name: str, device: str) -> None:
    nest = globals()[name]
    net = by_hand(nest, device)
    inputs = cases.draw(nest, np.random.default_rng(3))
    expected = pf.interpret(nest, {k: v.copy() for k, v in inputs.items()})
    given = {k: v.copy() for k, v in inputs.items()}
    found = net(**given)
    assert np.array_equal(found if found is not None else given["y"], expected["y"])
    assert net.program.source.count("copy_vector(") == COPIES[name]
    assert ("if 4 <= " in net.program.source) == (name == "with_tail")


def test_the_arrays_of_a_thread_are_registers() -> None:
    pytest.importorskip("cuda.core")
    net = by_hand(scaled, "none")
    (code,) = net.program.codes
    assert [tuple(net.program.launches[0].tensors)[p] for p in code.wide] == ["x", "b", "y"]
    every = opcodes(*build_kernels(net.program, (9, 0)).values())
    assert sum(op.startswith("LDG.E.128") for op in every) == 2
    assert every.count("STG.E.128") == 1
    assert not [name for name in every if name.startswith(("LDL", "STL"))]


def test_what_is_read_behind_a_write_stays_where_it_is() -> None:
    """x is read before, y element by element: its second value needs the first."""
    source = by_hand(behind, "none").program.source
    assert "x_lanes[j_in]" in source
    assert "y_lanes" not in source
    assert "y_results" not in source
