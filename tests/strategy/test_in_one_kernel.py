"""Attention as one CUDA kernel: what is in it, the oracle's results, lean machine code, what is refused and why."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

import polyfuse as pf
from polyfuse import cases, nn
from polyfuse.codegen.cuda_build import opcodes
from polyfuse.ir import Nest
from polyfuse.ir.tree import loops, parts, statements
from polyfuse.machine import Machine
from polyfuse.runtime.cuda import build_kernels
from polyfuse.strategy import Plan, plan_for
from polyfuse.strategy.in_one_kernel import in_one_kernel
from polyfuse.strategy.one_pass_shapes import Sizes, pass_shapes
from polyfuse.strategy.viewing import without_copies

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


@cache
def long() -> Plan:
    return plan_for(attention(queries=2048, keys=2048, features=64, columns=64), H200)


def expected(q: np.ndarray, k: np.ndarray, v: np.ndarray, mask: np.ndarray | float = 0.0) -> np.ndarray:
    """What NumPy says in float64 numbers."""
    a, b, c = (x.astype(np.float64) for x in (q, k, v))
    scores = a @ np.swapaxes(b, -1, -2) / 8 + mask
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True) @ c


def test_one_kernel_holds_both_products_in_register_tiles() -> None:
    plan = long()
    said = next(line for line in plan.recomputed if "run in one pass:" in line)
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
        {"heads": (2, 2), "queries": 32, "keys": 96, "features": 16, "columns": 40},
    ],
    ids=["a mask, a short last chunk of steps", "heads, columns that not all lanes have"],
)
def test_in_lock_step_it_is_what_numpy_says(sizes: dict[str, int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Plan, "seconds", property(lambda plan: len(plan.groups)))  # as few kernels as may be
    nest = attention(*sizes.pop("heads", ()), **sizes)
    net = pf.compile(nest, target="cuda", machine="h200", device="lockstep")
    assert len(net.kernels) == 1
    inputs = cases.draw(nest, np.random.default_rng(0))
    if "mask" in inputs:
        inputs["mask"][:, :40] = -np.inf  # the first block is masked throughout
        inputs["mask"][1, 45:] = -np.inf
    np.testing.assert_allclose(net(**inputs), expected(**inputs), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("capability", [(8, 0), (9, 0)], ids=["sm_80", "sm_90"])
def test_machine_code_spills_nothing(capability: tuple[int, int]) -> None:
    schedule = long().schedule
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


def test_shapes_fit_and_are_ordered_by_what_is_expected_of_them() -> None:
    assert H200.gpu is not None
    found = pass_shapes(Sizes(1024, 1024, 64, 64, 32), 4, H200, H200.gpu)
    assert [s.seconds for s in found] == sorted(s.seconds for s in found)
    assert {s.results.columns * s.results.threads_x for s in found} == {64}
    assert all(s.shared_bytes(64) <= H200.gpu.shared_per_block for s in found)


@pytest.mark.parametrize(
    ("nest", "why"),
    [
        (attention(queries=300, keys=300, features=64, columns=64), "divide 300 rows and 300 keys"),
        (attention(queries=64, keys=64, features=16, columns=256), "all of 256 columns"),
        (attention(queries=64, keys=64, features=16, columns=32, dtype="float64"), "its factors are float64"),
    ],
)
def test_what_is_refused_is_said(nest: Nest, why: str) -> None:
    made = in_one_kernel(without_copies(nest, H200)[0], H200)
    assert made is not None
    assert not made.kernels
    assert why in made.refused[0]


@pytest.mark.parametrize(
    "nest",
    [
        nn.lower(nn.softmax(nn.input("x", (8, 4096)))),  # every exponential is wanted
        nn.lower(nn.logsumexp(nn.input("x", (8, 4096)), -1)),  # no product under the maximum
    ],
)
def test_what_is_left_as_it_is(nest: Nest) -> None:
    assert in_one_kernel(nest, H200) is None


def test_tensor_cores_keep_whole_rows() -> None:
    nest = attention(queries=64, keys=64, features=16, columns=32)
    made = in_one_kernel(without_copies(nest, H200)[0], replace(H200, math="tf32"))
    assert made is not None
    assert "is for products alone" in made.refused[0]
