"""Attention as one CUDA kernel: what is in it, the oracle's results, lean machine code, what is refused and why."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

import polyfuse as pf
from polyfuse import nn
from polyfuse.checks import cuda_cases as cases
from polyfuse.codegen.cuda.compile.disassembly import opcodes
from polyfuse.ir import Nest
from polyfuse.ir.number_types import relative_step
from polyfuse.ir.precision import PRECISIONS, Math
from polyfuse.ir.tree import loops, parts, statements
from polyfuse.machine import Machine
from polyfuse.runtime.cuda.runner import build_kernels
from polyfuse.strategy import Plan, plan_for
from polyfuse.strategy.cuda.attention.mma_tiles import beside_tensor_cores
from polyfuse.strategy.cuda.attention.tiles import Sizes, pass_shapes
from polyfuse.strategy.passes.attention import in_one_kernel
from polyfuse.strategy.rewrites.views import without_copies

H200 = Machine.preset("h200")


@cache
def attention(
    *heads: int,
    queries: int,
    keys: int,
    features: int,
    columns: int,
    masked: bool = False,
    dtype: str = "float32",
) -> Nest:
    """softmax(q kᵀ / 8 + mask) v."""
    q = nn.input("q", (*heads, queries, features), dtype)
    k = nn.input("k", (*heads, keys, features), dtype)
    v = nn.input("v", (*heads, keys, columns), dtype)
    scores = (q @ nn.transpose(k)) * 0.125
    return nn.lower(nn.softmax(scores + nn.input("mask", (queries, keys)) if masked else scores) @ v)


def of_two_types() -> Nest:
    """Attention whose scores are in float32, and what is under their maximum in float64."""
    nest = attention(queries=64, keys=64, features=16, columns=32)
    wide = {"e0", "s0", "r0", "p0", "v", "out"}
    return replace(
        nest, tensors=tuple(replace(t, dtype="float64") if t.name in wide else t for t in nest.tensors)
    )


@cache
def long(dtype: str = "float32", math: Math = "ieee") -> Plan:
    nest = attention(queries=2048, keys=2048, features=64, columns=64, dtype=dtype)
    return plan_for(nest, replace(H200, math=math))


def expected(q: np.ndarray, k: np.ndarray, v: np.ndarray, mask: np.ndarray | float = 0.0) -> np.ndarray:
    """What NumPy says in float64 numbers."""
    a, b, c = (x.astype(np.float64) for x in (q, k, v))
    scores = a @ np.swapaxes(b, -1, -2) / 8 + mask
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True) @ c


def test_one_kernel_holds_both_products_in_register_tiles() -> None:
    plan = long()
    said = next(each.text for each in plan.remarks if each.pass_ == "attention" and each.seconds)
    assert said.count("µs") == 2
    (kernel,) = parts(plan.schedule.tree)
    assert {"zero0", "mac0", "mul0", "rowmax0", "exp0", "rowsum0", "mac1", "mac1_scale"} <= set(
        statements(kernel)
    )
    binds = {name: [loop.bind for loop in plan.schedule.loops(name)] for name in statements(kernel)}
    assert all("microkernel" in binds[name] for name in ("mac0", "mac1"))
    assert all("lane" in binds[name] for name in ("rowmax0", "rowsum0"))
    held = {buffer.tensor: (loop.name, buffer.memory) for loop in loops(kernel) for buffer in loop.buffers}
    rows, keys, *_ = (loop.name for loop in plan.schedule.loops("mac1"))
    assert held["y0"] == (keys, "register"), "a tile of scores"
    assert held["out_sum"] == (rows, "register"), "results stay while blocks of keys go by"
    assert held["e0"] == (keys, "shared")
    assert held["q_shared"][0] == rows, "queries are copied once"
    assert {held["k_shared"][0], held["v_shared"][0]} == {keys}


def test_a_report_says_what_is_expected_of_it() -> None:
    (group,) = long().groups
    (note,) = group.notes
    assert note.startswith("mac0 and mac1 in one kernel: blocks of ")
    assert "µs expected: " in note
    assert group.cost.total == pytest.approx(long().seconds)


@pytest.mark.parametrize(
    "sizes",
    [
        {"queries": 64, "keys": 64, "features": 24, "columns": 32, "masked": True},
        {"heads": (2, 2), "queries": 32, "keys": 96, "features": 16, "columns": 40, "dtype": "bfloat16"},
        {"queries": 16, "keys": 64, "features": 16, "columns": 32, "dtype": "float64"},
        {"queries": 32, "keys": 64, "features": 32, "columns": 16, "masked": True, "math": "bf16"},
        {"queries": 16, "keys": 64, "features": 16, "columns": 32, "dtype": "float16", "math": "f16"},
    ],
    ids=[
        "a mask, a short last chunk of steps",
        "heads, columns that not all lanes have",
        "f64",
        "tensor bf16",
        "f16",
    ],
)
def test_in_lock_step_it_is_what_numpy_says(sizes: dict[str, Any]) -> None:
    math: Math = sizes.pop("math", "ieee")
    nest = attention(*sizes.pop("heads", ()), **sizes)
    forced = {"attention": True}
    net = pf.compile(nest, target="cuda", machine="h200", device="lockstep", math=math, force=forced)
    assert len(net.kernels) == 1
    assert "mac0 and mac1 in one kernel" in net.explain()
    assert (f"by tensor cores on {math} factors" in net.explain()) == (math != "ieee")
    inputs = cases.draw(nest, np.random.default_rng(0))
    if "mask" in inputs:
        inputs["mask"][:, :40] = -np.inf  # the first block is masked throughout
        inputs["mask"][1, 45:] = -np.inf
    result = net(**inputs)
    (out,) = (t for t in nest.tensors if t.role == "output")
    assert result.dtype == np.dtype(out.dtype), "a half is rounded where it is stored"
    # scores are rounded to halves twice, up to 2 of them in size, and the result once
    step = {"float32": 1e-5, "float64": 1e-14}.get(out.dtype) or 3 * relative_step(out.dtype)
    if math != "ieee":  # two factors of a score, exponentials and values
        step = max(step, 4 * PRECISIONS[math].unit)
    np.testing.assert_allclose(result.astype(np.float64), expected(**inputs), rtol=step, atol=step)


def one_pass(plan: Plan) -> bool:
    """Whether a kernel holds both products."""
    return any("in one kernel" in note for group in plan.groups for note in group.notes)


@pytest.mark.parametrize(
    ("capability", "dtype"),
    [((8, 0), "float32"), ((9, 0), "float32"), ((8, 0), "float16")],
    ids=["sm_80", "sm_90", "halves"],
)
def test_machine_code_spills_nothing(capability: tuple[int, int], dtype: str) -> None:
    schedule = long(dtype).schedule
    net = pf.compile(schedule.source, schedule=schedule, target="cuda", machine="h200", device="none")
    (code,) = net.program.codes
    (cubin,) = build_kernels(net.program, capability).values()
    assert code.registers is not None
    assert cubin.registers <= code.registers
    assert (cubin.spill_stores, cubin.spill_loads) == (0, 0)
    found = Counter(opcodes(cubin))
    assert found["FFMA"] >= 16 * (4 * 8 + 4 * 4), "16 steps of both products are written out"
    assert found["SHFL.BFLY"] <= 4 * 2 * 4 + 4, "no second way for lanes that come later"
    assert not {"LDL", "STL"} & set(found)


def test_tensor_cores_multiply_both_products() -> None:
    schedule = long(math="bf16").schedule
    net = pf.compile(schedule.source, schedule=schedule, target="cuda", machine="h200", device="none")
    (code,) = net.program.codes
    for capability in ((8, 0), (9, 0)):
        (cubin,) = build_kernels(net.program, capability).values()
        assert code.registers is not None
        assert cubin.registers <= code.registers
        assert (cubin.spill_stores, cubin.spill_loads) == (0, 0)
        found = Counter(opcodes(cubin))
        assert found["HMMA.16816.F32.BF16"] == 128, "2 × 32 scores by 64 steps, 2 × 16 results by 128 keys"
        assert found["LDSM.16.M88.4"] + found["LDSM.16.MT88.4"] <= 80
        assert found["STS.U16"] == 0, "neighbours are stored together"


def test_shapes_fit_and_are_ordered_by_what_is_expected_of_them() -> None:
    assert H200.gpu is not None
    found = pass_shapes(Sizes(1024, 1024, 64, 64, 32), 4, H200, H200.gpu)
    assert [s.seconds for s in found] == sorted(s.seconds for s in found)
    assert {s.results.shape.columns * s.results.shape.threads_x for s in found} == {64}
    assert all(s.shared_bytes(64) <= H200.gpu.shared_per_block for s in found)


@pytest.mark.parametrize(
    ("nest", "why"),
    [
        (attention(queries=300, keys=300, features=64, columns=64), "divide 300 rows and 300 keys"),
        (attention(queries=64, keys=64, features=16, columns=256), "all of 256 columns"),
        (of_two_types(), "its factors are float32, float64"),
    ],
)
def test_what_is_refused_is_said(nest: Nest, why: str) -> None:
    made = in_one_kernel(without_copies(nest, H200)[0], H200)
    assert made is not None
    assert not made.kernels
    assert why in made.refused[0].text


@pytest.mark.parametrize(
    "nest",
    [
        nn.lower(nn.softmax(nn.input("x", (8, 4096)))),  # every exponential is wanted
        nn.lower(nn.logsumexp(nn.input("x", (8, 4096)), -1)),  # no product under the maximum
    ],
)
def test_what_is_left_as_it_is(nest: Nest) -> None:
    assert in_one_kernel(nest, H200) is None


@pytest.mark.parametrize(
    ("math", "nest", "why"),
    [
        (
            "tf32",
            attention(queries=64, keys=64, features=16, columns=32),
            "exponentials are stored as halves",
        ),
        ("bf16", attention(queries=64, keys=64, features=16, columns=32, dtype="float16"), "q is float16"),
        (
            "bf16",
            attention(queries=64, keys=64, features=24, columns=32),
            "24 steps of a score are no multiple of 16",
        ),
    ],
)
def test_why_there_are_no_tensor_cores_is_said(math: Math, nest: Nest, why: str) -> None:
    rounding = replace(H200, math=math)
    made = in_one_kernel(without_copies(nest, H200)[0], rounding)
    assert made is not None
    ((one, shape),) = made.kernels
    (note,) = beside_tensor_cores(one, shape, rounding)
    assert note.startswith(f"no tensor cores in it, though math={math!r}: {why}")


def test_what_is_not_rounded_to_halves_is_said() -> None:
    said = [line for line in long("float16").notes if "rounded to" in line]
    assert said == ["p0 stays in float32, where it was rounded to float16."]
