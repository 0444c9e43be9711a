"""Reductions to single values, and rows in several loops, on a GPU: by lanes, in as few launches as it takes."""

from collections.abc import Callable

import numpy as np
import pytest

import polyfuse as pf
from polyfuse import nn
from polyfuse.checks import cuda_cases as cases
from polyfuse.codegen.cuda.compile.disassembly import opcodes
from polyfuse.machine import Machine
from polyfuse.nn import Value
from polyfuse.runtime.cuda.runner import build_kernels
from polyfuse.strategy.pipeline import plan_for

pytest.importorskip("numba.cuda")

REDUCED: dict[str, tuple[Callable[[Value], Value], tuple[int, ...], int]] = {
    "a sum, one block": (nn.sum, (5000,), 1),
    "a maximum of rows, two passes": (nn.max, (65, 99), 2),
    "a variance, one block": (nn.var, (3001,), 1),
    "a norm in two passes, and a quotient": (lambda x: x / nn.norm(x), (50003,), 3),
    "long rows, cut": (nn.sum, (3, 20001), 2),
    "many rows, some a block": (nn.min, (2113, 130), 2),
    "rows of a few values": (nn.mean, (6, 14, 9, 40), 4),
    "two results, a block each": (lambda x: nn.sum(x, 1), (2, 70001), 1),
}


def of(make: Callable[[Value], Value], shape: tuple[int, ...], dtype: str = "float32") -> pf.Nest:
    return nn.lower(make(nn.input("x", shape, dtype)))


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
@pytest.mark.parametrize("name", REDUCED)
def test_in_lock_step_it_is_what_the_oracle_says(name: str, dtype: str) -> None:
    make, shape, launches = REDUCED[name]
    nest = of(make, shape, dtype)
    net = pf.compile(nest, target="cuda", machine="h200", device="lockstep")
    if dtype != "bfloat16":
        assert len(net.kernels) == launches
    assert "shfl" in net.program.source
    inputs, outputs = cases.draw(nest, np.random.default_rng(1)), cases.poisoned(nest)
    net(**inputs, out=outputs)
    found = {t.name: out for t, out in zip(nest.results, outputs, strict=True)}
    assert cases.error(nest, inputs, found) <= cases.TOLERANCE


@pytest.mark.parametrize("capability", [(8, 0), (9, 0)])
@pytest.mark.parametrize("name", ["a sum of 64M", "a quotient by it"])
def test_machine_code_reads_16_bytes_and_exchanges_lanes(name: str, capability: tuple[int, int]) -> None:
    pytest.importorskip("cuda.core")
    nest = of(nn.sum if name == "a sum of 64M" else lambda x: x / nn.sum(x), (16384, 4096))
    machine = "a100" if capability == (8, 0) else "h200"
    net = pf.compile(nest, target="cuda", machine=machine, device="none")
    for at, cubin in enumerate(build_kernels(net.program, capability).values()):
        found = opcodes(cubin)
        assert (cubin.spill_stores, cubin.spill_loads) == (0, 0)
        assert not [op for op in found if op.startswith(("LDL", "STL"))]
        assert any(op.startswith("LDG.E.128") for op in found)
        assert at == 2 or any(op.startswith("SHFL") for op in found)


def test_the_model_expects_about_what_memory_needs() -> None:
    h200 = Machine.preset("h200")
    seconds = plan_for(of(nn.sum, (2**26,)), h200).seconds
    assert 4 * 2**26 / 4.8e12 < seconds < 1.2 * 4 * 2**26 / 4.8e12
    quotient = plan_for(of(lambda x: x / nn.sum(x), (2**26,)), h200).seconds
    assert 12 * 2**26 / 4.8e12 < quotient < 1.1 * 12 * 2**26 / 4.8e12


@pytest.mark.parametrize(
    ("make", "shape"),
    [
        (nn.softmax, (2, 3, 5, 70)),
        (lambda x: nn.sum(x, -1), (4, 6, 100)),
        (lambda x: nn.var(x, -1), (3, 5, 64)),
    ],
    ids=["softmax of heads", "sums of batches of rows", "variances"],
)
def test_rows_in_several_loops_have_lanes(make: Callable[[Value], Value], shape: tuple[int, ...]) -> None:
    nest = of(make, shape)
    net = pf.compile(nest, target="cuda", machine="h200", device="lockstep")
    assert len(net.kernels) == 1
    assert "shfl" in net.program.source
    inputs, outputs = cases.draw(nest, np.random.default_rng(1)), cases.poisoned(nest)
    net(**inputs, out=outputs)
    assert cases.error(nest, inputs, {"out": outputs[0]}) <= cases.TOLERANCE


def test_a_product_has_a_thread_a_result_and_no_lanes() -> None:
    """Its values are read for many results: lanes would read them all anew."""
    nest = nn.lower(nn.matmul(nn.input("x", (3, 20, 40)), nn.transpose(nn.input("y", (12, 40)))))
    assert "shfl" not in pf.compile(nest, target="cuda", machine="h200", device="none").source
