"""Machine code: what a compile leaves behind in the process."""

from __future__ import annotations

import ctypes
import gc
from pathlib import Path

import llvmlite.binding as llvm
import numpy as np
import pytest

import polyfuse as pf
from polyfuse import nn
from polyfuse.runtime.cpu.native import _codegen, machine_code
from polyfuse.runtime.interface import Phases

STATM = Path("/proc/self/statm")


def resident() -> float:
    """Megabytes of this process in memory."""
    gc.collect()
    return int(STATM.read_text().split()[1]) * 4096 / 1e6


def a_network(seed: int) -> None:
    layers = nn.Linear(24, 40, seed=seed), nn.ReLU(), nn.Linear(40, 40, seed=seed)
    schedule = pf.Schedule(pf.lower(nn.Sequential(*layers), batch=16)).bind("mac0", i="cores")
    net = pf.compile(schedule.nest, target="cpu", schedule=schedule)
    net(np.zeros((16, 24), np.float32))


@pytest.mark.skipif(not STATM.exists(), reason="what is resident is read from /proc")
def test_a_network_that_is_dropped_leaves_little() -> None:
    for seed in range(3):
        a_network(seed)
    before = resident()
    for seed in range(8):
        a_network(seed)
    assert (resident() - before) / 8 < 1.5  # 0.3 MB; numba's own libraries keep 5


LIBC = ctypes.CDLL(None)


class _Allocated(ctypes.Structure):
    """glibc's mallinfo2: bytes of blocks that are mapped is the fifth, of others in use the eighth."""

    _fields_ = tuple((f"field{number}", ctypes.c_size_t) for number in range(10))


def allocated() -> int:
    """Bytes that are allocated and not freed, Python's own small objects aside."""
    gc.collect()
    LIBC.mallinfo2.restype = _Allocated
    found = LIBC.mallinfo2()
    return int(found.field4 + found.field7)


@pytest.mark.skipif(not hasattr(LIBC, "mallinfo2"), reason="what is allocated is asked of glibc")
@pytest.mark.parametrize("cores", [False, True])
def test_machine_code_that_is_made_again_leaves_nothing(cores: bool) -> None:
    schedule = pf.Schedule(pf.lower(nn.Sequential(nn.Linear(6, 9), nn.ReLU()), batch=5))
    schedule = schedule.bind("mac0", i="cores") if cores else schedule
    product = pf.compile(schedule.nest, target="cpu", schedule=schedule).compiled.product
    phases = Phases.of(schedule.nest, product.program, product.memory)
    for _ in range(2):
        machine_code(product.program, phases)
    before = allocated()
    for _ in range(4):
        machine_code(product.program, phases)
    assert (allocated() - before) / 4 < 40_000  # 8 to 32 kB; 174 to 300 where LLVM's passes were not freed


SCATTERED = """
declare void @llvm.masked.scatter.v16f32.v16p0(<16 x float>, <16 x ptr>, i32, <16 x i1>)
define void @scattered(<16 x float> %x, <16 x ptr> %to) {
  call void @llvm.masked.scatter.v16f32.v16p0(<16 x float> %x, <16 x ptr> %to, i32 4, <16 x i1> splat (i1 true))
  ret void
}
"""


def test_numbers_that_lie_apart_are_stored_one_by_one() -> None:
    target = _codegen()._tm
    module = llvm.parse_assembly(SCATTERED)
    module.triple = target.triple
    assert "scatter" not in target.emit_assembly(module).replace("scattered", "")
