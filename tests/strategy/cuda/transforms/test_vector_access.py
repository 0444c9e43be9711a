"""Elementwise kernels and rows on a GPU: 16 bytes for each thread, in the source, the machine code and the results."""

# ruff: noqa: F821

from collections.abc import Callable

import numpy as np
import pytest

import polyfuse as pf
from polyfuse import nn
from polyfuse.checks import cuda_cases as cases
from polyfuse.codegen.cuda.compile.disassembly import opcodes
from polyfuse.runtime.cuda.runner import build_kernels
from polyfuse.runtime.samples import roundings


@pf.nest
def halves(x: "f16[40, 64]", y: "f16[40, 64]"):
    for i in range(40):
        for j in range(64):
            y[i, j] = x[i, j] * 2.0


def chain(*shape: int) -> pf.Nest:
    return pf.lower(nn.relu(nn.tanh(nn.input("x", shape)) * 2.0 + 1.0))


NESTS: dict[str, Callable[[], pf.Nest]] = {
    "a chain": lambda: chain(48, 64),
    "a chain with a tail": lambda: chain(1003),
    "softmax": lambda: pf.lower(nn.Softmax(), batch=5, features=140),
    "layer norm": lambda: pf.lower(nn.LayerNorm(256), batch=5),
    "sums": lambda: pf.lower(nn.sum(nn.input("x", (6, 256)), 1)),
    "a block's rows": lambda: pf.lower(nn.Softmax(), batch=2, features=2100),
    "halves": lambda: halves,
}


@pytest.mark.parametrize("name", NESTS)
def test_in_lock_step_it_is_what_the_oracle_says(name: str) -> None:
    nest = NESTS[name]()
    net = pf.compile(nest, target="cuda", machine="h200", device="lockstep")
    source = net.program.source
    assert "copy_vector(8" in source if name == "halves" else "copy_vector(4" in source
    inputs = cases.draw(nest, np.random.default_rng(1))
    expected = pf.interpret(nest, {k: v.copy() for k, v in inputs.items()})
    found = net(**inputs)
    if found is None:
        assert (inputs["y"] == expected["y"]).all()
    else:
        assert roundings(expected, {"out": found}) <= cases.TOLERANCE


@pytest.mark.parametrize("name", ["rows of 22", "columns", "few columns"])
def test_rows_that_are_no_vectors_stay_as_they_are(name: str) -> None:
    nest = {
        "rows of 22": lambda: chain(48, 22),
        "columns": lambda: pf.lower(nn.sum(nn.input("x", (64, 256)), 0)),
        "few columns": lambda: pf.lower(nn.Softmax(), batch=5, features=64),
    }[name]()
    net = pf.compile(nest, target="cuda", machine="h200", device="none")
    assert "copy_vector(" not in net.program.source


@pytest.mark.parametrize("name", ["a chain", "softmax", "layer norm", "halves"])
def test_machine_code_accesses_memory_16_bytes_at_a_time(name: str) -> None:
    pytest.importorskip("cuda.core")
    large = {"softmax": lambda: pf.lower(nn.Softmax(), batch=4096, features=1024)}
    net = pf.compile(large.get(name, NESTS[name])(), target="cuda", machine="h200", device="none")
    (cubin,) = build_kernels(net.program, (9, 0)).values()
    every = {op.removesuffix(".CONSTANT") for op in opcodes(cubin)}
    width = 64 if name == "halves" else 128  # of eight halves LLVM makes two accesses
    assert {f"LDG.E.{width}", f"STG.E.{width}"} <= every
    assert not {"LDG.E", "STG.E", "LDL", "STL", "LDL.128", "STL.128", "LDL.64", "STL.64"} & every
    if name == "softmax":
        assert {"LDS.128", "STS.128"} <= every, "exponentials wait in shared memory, four in one access"


def test_a_chain_has_a_warp_in_each_block_and_16_bytes_in_each_thread() -> None:
    net = pf.compile(chain(1 << 20), target="cuda", machine="h200", device="none")
    (grid, block), *_ = (launch.extents({}) for launch in net.program.launches)
    assert block[0] >= 32
    assert grid[0] * block[0] * 4 == 1 << 20
