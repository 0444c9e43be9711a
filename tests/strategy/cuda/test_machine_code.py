"""Machine code for GPUs of what has no test of its own: nothing spilled, planned registers, the instructions meant."""

from collections.abc import Callable
from typing import Any

import pytest

import polyfuse as pf
from polyfuse import nn
from polyfuse.checks import cuda_cases as cases
from polyfuse.codegen.cuda.compile.disassembly import main_loop, opcodes
from polyfuse.runtime.cuda.runner import build_kernels

pytest.importorskip("numba.cuda")
pytest.importorskip("cuda.core")

CAPABILITY = {"a100": (8, 0), "h200": (9, 0), "rtx4090": (8, 9)}

Expected = dict[str, float]
"""Beginnings of instructions: the part of the main loop that they are at least, or 0 if they are somewhere."""

FORMS: dict[str, tuple[str, Callable[[], pf.Nest], Expected]] = {
    "elementwise": ("a100", lambda: cases.pointwise(nn.GELU(), 4096, 1024), {"LDG.E.128": 0, "STG.E.128": 0}),
    "elementwise, bfloat16": (
        "a100",
        lambda: cases.reduction(nn.tanh, 4096, 1024, dtype="bfloat16"),
        {"LDG.E.64": 0, "STG.E.64": 0},
    ),
    "layer norm": ("a100", lambda: nn.lower(nn.LayerNorm(1024), batch=4096), {"LDG.E.128": 0, "SHFL": 0}),
    "softmax of heads": (
        "a100",
        lambda: cases.reduction(nn.softmax, 4, 8, 256, 512),
        {"LDG.E.128": 0, "SHFL": 0},
    ),
    "float64 without tensor cores": (
        "rtx4090",
        lambda: cases.dense(512, 512, batch=512, dtype="float64"),
        {"DFMA": 0.5, "LDS.128": 0},
    ),
    "product in parts": ("h200", lambda: cases.dense(65536, 128, batch=128), {"FFMA": 0.87, "LDS.128": 0}),
    "product of few results in parts, in tiles of 4 × 4": (
        "h200",
        lambda: cases.dense(65536, 64, batch=64),
        {"FFMA": 0.72, "LDS.128": 0},
    ),
    "convolution in steps of two": (
        "h200",
        lambda: cases.images(
            nn.Conv2d(64, 64, 3, stride=2, padding=1), nn.ReLU(), batch=32, features=(64, 56, 56)
        ),
        {"FFMA": 0.88, "LDS.128": 0},
    ),
    "convolution": (
        "a100",
        lambda: cases.images(nn.Conv2d(64, 64, 3, padding=1), nn.ReLU(), batch=32, features=(64, 56, 56)),
        {"FFMA": 0.88, "LDS.128": 0},
    ),
    "convolution of 128 channels": (
        "h200",
        lambda: cases.images(nn.Conv2d(128, 128, 3, padding=1), nn.ReLU(), batch=32, features=(128, 28, 28)),
        {"FFMA": 0.89, "LDS.128": 0},
    ),
    "convolution of single pixels": (
        "a100",
        lambda: cases.images(nn.Conv2d(256, 64, 1), nn.ReLU(), batch=32, features=(256, 56, 56)),
        {"FFMA": 0.88, "LDS.128": 0},
    ),
    "ensemble": ("a100", lambda: cases.ensemble(8, 64, 64, 64, batch=32), {"FFMA": 0.84, "LDS.128": 0}),
    "network in one kernel": ("h200", lambda: cases.dense(*[256] * 5, batch=1), {"FFMA": 0.25}),
    "network in one launch, float64": (
        "h200",
        lambda: cases.dense(*[512] * 5, batch=64, dtype="float64"),
        {"DMMA": 0, "LDS.128": 0},
    ),
    "GRU": ("a100", lambda: cases.recurrent(nn.GRU(128, 128), 20, 32), {"FFMA": 0.69, "LDS.128": 0}),
}


@pytest.mark.parametrize("name", FORMS)
def test_nothing_is_spilled_and_the_instructions_are_those_meant(name: str) -> None:
    machine, make, expected = FORMS[name]
    net = pf.compile(make(), target="cuda", machine=machine, device="none")
    cubins = build_kernels(net.program, CAPABILITY[machine])
    loops, every = list[tuple[str, ...]](), list[str]()
    for code, cubin in zip(net.program.codes, cubins.values(), strict=True):
        found = opcodes(cubin)
        assert (cubin.spill_stores, cubin.spill_loads) == (0, 0)
        assert not [op for op in found if op.startswith(("LDL", "STL"))]
        assert code.registers is None or cubin.registers <= code.registers
        loops.append(main_loop(cubin))
        every += found
    for start, part in expected.items():
        assert any(op.startswith(start) for op in every), start
        assert not part or max(_part(loop, start) for loop in loops) >= part


def _part(loop: tuple[str, ...], start: str) -> float:
    return sum(op.startswith(start) for op in loop) / max(1, len(loop))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_sums_of_columns_stay_in_registers(dtype: Any) -> None:
    """A thread's loads do not wait for stores: what the kernel reads nobody writes."""
    net = pf.compile(
        cases.reduction(lambda x: nn.sum(x, 0), 4096, 4096, dtype=dtype),
        target="cuda",
        machine="h200",
        device="none",
    )
    for cubin in build_kernels(net.program, (9, 0)).values():
        found = [op for op in opcodes(cubin) if op.startswith(("LDG", "STG"))]
        stores = [at for at, op in enumerate(found) if op.startswith("STG")]
        loads = sum(op.startswith("LDG") for op in found[: stores[-1]])
        assert loads >= 16
        assert len(stores) <= 5 <= loads / 8, "the first value, a few sums between, and the sum"


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "float16"])
def test_the_report_has_a_line_for_each_kernel_of_a_network(dtype: Any) -> None:
    net = pf.compile(
        cases.dense(256, 256, 64, batch=128, dtype=dtype), target="cuda", machine="a100", device="none"
    )
    report = str(net.report())
    assert all(f"  {launch.name}: " in report for launch in net.kernels)
    assert report.count("on an SM, ") == len(net.kernels)
