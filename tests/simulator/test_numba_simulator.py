"""numba's CUDA simulator agrees with the lock-step run, and leaves the process as it was."""

from __future__ import annotations

import numpy as np
import pytest

from polyfuse.codegen.cuda.compile.cubin import build
from polyfuse.simulator import lockstep
from polyfuse.simulator.lockstep import BarrierError
from polyfuse.simulator.numba_simulator import simulate

pytest.importorskip("numba.cuda.simulator.kernel")

KERNELS = {
    "reverse": """
def reverse(x, y, n):
    a = cuda.shared.array(8, float32); b = cuda.shared.array(8, float32)
    t = cuda.threadIdx.x
    o = 8 * cuda.blockIdx.x
    a[t] = x[o + t]
    b[7 - t] = x[o + t] * float32(2.0)
    cuda.syncthreads()
    y[o + t] = a[7 - t] + b[t]
""",
    "softmax": """
def softmax(x, y, n):
    row = cuda.shared.array((2, 4), float32)
    acc = cuda.local.array(2, float32)
    tx = cuda.threadIdx.x
    ty = cuda.threadIdx.y
    o = (2 * cuda.blockIdx.x + ty) * 4
    row[ty, tx] = x[o + tx]
    cuda.syncthreads()
    acc[0] = float32(-math.inf)
    for i in range(0, 4):
        acc[0] = max(acc[0], row[ty, i])
    acc[1] = float32(0.0)
    for i in range(0, 4):
        acc[1] += math.exp(row[ty, i] - acc[0])
    y[o + tx] = math.exp(row[ty, tx] - acc[0]) / acc[1]
""",
    "triangle": """
def triangle(x, y, n):
    t = cuda.blockDim.x * cuda.blockIdx.x + cuda.threadIdx.x
    s = float32(0.0)
    if t < n and t % 3 != 1:
        for i in range(t, n):
            s += x[i] if i % 2 == 0 else -x[i]
    else:
        s = float32(7 // (t + 1))
    y[t] = s
""",
}


@pytest.mark.parametrize(("name", "block"), [("reverse", 8), ("softmax", (4, 2)), ("triangle", 8)])
def test_the_simulator_agrees_with_lockstep(name: str, block: int | tuple[int, int]) -> None:
    x = np.random.default_rng(1).standard_normal(16).astype(np.float32)
    ours, theirs = np.zeros_like(x), np.zeros_like(x)
    lockstep.run(KERNELS[name], name, 2, block, [x, ours, 14])
    simulate(KERNELS[name], name, 2, block, [x, theirs, 14])
    assert ours == pytest.approx(theirs, rel=1e-6)
    assert np.isfinite(ours).all()


def test_unwritten_shared_memory_is_nan_in_every_block() -> None:
    body = ("s = cuda.shared.array(2, float32)", "b = cuda.blockIdx.x", "y[b] = s[0]", "s[0] = float32(1.0)")
    source = "def k(y):\n" + "".join(f"    {line}\n" for line in body)
    y = np.zeros(2, np.float32)
    simulate(source, "k", 2, 1, [y])
    assert np.isnan(y).all()


def test_a_barrier_that_some_threads_skip() -> None:
    source = "def k(y):\n    if cuda.threadIdx.x > 1:\n        cuda.syncthreads()\n"
    with pytest.raises(BarrierError, match=r"thread \(2, 0, 0\) passes 1 barriers and thread \(1, 0, 0\) 0"):
        simulate(source, "k", 1, 4, [np.zeros(1, np.float32)])


def test_an_index_past_the_end() -> None:
    with pytest.raises(IndexError):
        simulate("def k(y):\n    y[4] = float32(0.0)\n", "k", 1, 1, [np.zeros(4, np.float32)])


def test_the_process_still_compiles_for_the_real_target() -> None:
    source = "from numba import cuda, float32\ndef k(y):\n    y[cuda.threadIdx.x] = float32(1.0)\n"
    simulate(source, "k", 1, 2, [np.zeros(2, np.float32)])
    assert build(source, "k", ("float32*",)).registers > 0
