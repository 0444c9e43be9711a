"""Emitted source, whole, for both targets; each is also run against the oracle, so that no golden text is wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np
import pytest

from polyfuse.analysis.validation import validate
from polyfuse.codegen.generate import program
from polyfuse.interpret import interpret
from polyfuse.ir import Nest, Tensor, statement
from polyfuse.runtime.memory.memory_plan import shape_of
from polyfuse.schedule import Schedule
from tests.support.execution import Arrays, memory, run_lockstep, run_plain
from tests.support.programs import on_cpu, on_cuda, pair, softmax_by_rows, triangle

Golden = Callable[[str, str], None]
Target = Literal["cpu", "cuda"]


def triangle_by_rows() -> Schedule:
    return Schedule(triangle()).fuse("mac", "zero", at="i")


def symbolic() -> Schedule:
    return Schedule(pair("N")).fuse("S", "R", at="j").promote("t", "S", at="j", memory="register")


CPU: dict[str, Callable[[], Schedule]] = {
    "product_cpu": on_cpu,
    "triangle_cpu": lambda: triangle_by_rows().bind("mac", i="cores"),
    "symbolic_cpu": lambda: symbolic().split("S", "i", 4).bind("S", i="cores").vectorize("S", "j"),
    "softmax_cpu": lambda: softmax_by_rows().bind("scale0", i="cores"),
}
CUDA: dict[str, Callable[[], Schedule]] = {
    "product_cuda": on_cuda,
    "product_cuda_partial": lambda: on_cuda(10),
    "triangle_cuda": lambda: triangle_by_rows().bind("mac", i="thread.x"),
    "symbolic_cuda": lambda: (
        symbolic().split("S", "j", 32).bind("S", i="block.y", j="block.x", j_in="thread.x")
    ),
    "softmax_cuda": lambda: (
        softmax_by_rows().split("scale0", "i", 4).bind("scale0", i="block.x", i_in="thread.x")
    ),
}
CASES: dict[str, tuple[Callable[[], Schedule], Target]] = {
    **{name: (make, "cpu") for name, make in CPU.items()},
    **{name: (make, "cuda") for name, make in CUDA.items()},
}


@pytest.mark.parametrize("case", CASES)
def test_golden(golden: Golden, case: str) -> None:
    make, target = CASES[case]
    s = make()
    printed = program(s.nest, s.tree, target)
    golden(
        f"source/{case}.py.txt", "\n".join([printed.source, *(f"# {launch}" for launch in printed.launches)])
    )


@pytest.mark.parametrize("case", CASES)
def test_what_is_printed_computes_the_oracle(case: str) -> None:
    make, target = CASES[case]
    s = make()
    validate(s.source, s.nest, s.tree)
    for size in (1, 3, 33) if s.nest.params else (0,):
        sizes = dict.fromkeys(s.nest.params, size)
        rng = np.random.default_rng(size)
        inputs = {t.name: rng.integers(-3, 4, shape_of(t, sizes)).astype(t.dtype) for t in s.source.inputs}
        arrays = memory(s.source, s.nest, s.tree, inputs, sizes)
        if target == "cuda":
            run_lockstep(s.nest, s.tree, arrays, sizes)
        else:
            run_plain(s.nest, s.tree, arrays, sizes, seed=size)
        agree(interpret(s.source, inputs, sizes), arrays)


def agree(expected: Arrays, found: Arrays) -> None:
    for name, array in expected.items():
        np.testing.assert_allclose(found[name], array, rtol=1e-14, err_msg=name)


def test_layers_of_one_shape_are_one_kernel() -> None:
    """Equal kernels are printed once and launched with other tensors."""
    s = Schedule(chain_of_products(3))
    for layer in range(3):
        s = s.fuse(f"mac{layer}", f"zero{layer}", at="j").fuse(f"mac{layer}", f"act{layer}", at="j")
    printed = program(s.nest, s.tree, "cpu")
    assert [launch.name for launch in printed.launches] == ["zero_mac_act"] * 3
    assert len(printed.codes) == 1
    assert len({launch.tensors for launch in printed.launches}) == 3


def chain_of_products(layers: int) -> Nest:
    shape = (6, 6)
    roles = ["input", *["temporary"] * (layers - 1), "output"]
    tensors = [Tensor(f"x{k}", shape, "float64", role) for k, role in enumerate(roles)]
    every = []
    for k in range(layers):
        tensors += [
            Tensor(f"w{k}", shape, "float64", "input"),
            Tensor(f"y{k}", shape, "float64", "temporary"),
        ]
        box = "0 <= i < 6 and 0 <= j < 6"
        every += [
            statement(f"{{ zero{k}[i, j] : {box} }}", f"y{k}[i, j] = 0"),
            statement(
                f"{{ mac{k}[i, j, k] : {box} and 0 <= k < 6 }}", f"y{k}[i, j] += x{k}[i, k] * w{k}[k, j]"
            ),
            statement(f"{{ act{k}[i, j] : {box} }}", f"x{k + 1}[i, j] = max(y{k}[i, j], 0)"),
        ]
    return Nest.of(tensors, every)
