"""Kernels compiled to sm_90 machine code, and what the compiler says of them. No GPU is needed."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from polyfuse.codegen.cuda.compile.cubin import BuildFailure, Cubin, build, report
from polyfuse.codegen.cuda.compile.disassembly import opcodes, register_reads, sass
from polyfuse.codegen.cuda.printer import HEADER
from polyfuse.errors import TargetUnavailable

GEMM = """\
from numba import cuda, float32


def gemm(a, b, c, n):
    sa = cuda.shared.array((16, 17), float32)
    sb = cuda.shared.array((16, 17), float32)
    acc = cuda.local.array((1, 1), float32)
    tx = cuda.threadIdx.x
    ty = cuda.threadIdx.y
    bx = cuda.blockIdx.x
    by = cuda.blockIdx.y
    acc[0, 0] = float32(0.0)
    for k in range(0, n, 16):
        sa[ty, tx] = a[(16 * by + ty) * n + k + tx]
        sb[ty, tx] = b[(k + ty) * n + 16 * bx + tx]
        cuda.syncthreads()
        for q in range(0, 16):
            acc[0, 0] += sa[ty, q] * sb[q, tx]
        cuda.syncthreads()
    c[(16 * by + ty) * n + 16 * bx + tx] = max(acc[0, 0], float32(0.0))
"""
POINTERS = ("float32*", "float32*", "float32*", "int64")


@pytest.fixture(scope="module")
def gemm() -> Cubin:
    pytest.importorskip("cuda.core")
    pytest.importorskip("numba.cuda.compiler")
    return build(GEMM, "gemm", POINTERS, launch_bounds=256)


def _body(body: str, signature: tuple[str, ...] = ("float32*", "float32*", "int64")) -> Cubin:
    pytest.importorskip("cuda.core")
    lines = "\n".join("    " + line for line in body.splitlines())
    return build(f"{HEADER}def k(x, y, n):\n    t = cuda.threadIdx.x\n{lines}\n", "k", signature)


def test_the_report(gemm: Cubin) -> None:
    assert gemm.arch == "sm_90"
    assert 16 <= gemm.registers <= 64
    assert gemm.spill_stores == gemm.spill_loads == 0
    assert gemm.shared_bytes == 2 * 16 * 17 * 4
    assert gemm.code[:4] == b"\x7fELF"


@pytest.mark.parametrize(("local", "spills"), [(0, 0), (24, 24)])
def test_the_drivers_linker_counts_local_memory_as_a_whole(local: int, spills: int) -> None:
    log = f"used 32 registers, used 0 barriers, {local} stack, 0 bytes smem, 544 bytes cmem[0], {local} bytes lmem"
    found = report("k", f"info : Function properties for 'k':\ninfo : {log}\n")
    assert found == (32, spills, spills)


def test_a_report_that_says_nothing_of_registers_or_memory_is_refused() -> None:
    with pytest.raises(BuildFailure, match="names no registers or spills"):
        report("k", "info    : 0 bytes gmem\n")


def test_the_entry_has_its_own_name_and_bounds(gemm: Cubin) -> None:
    assert gemm.entry == "gemm"
    assert re.findall(r"\.visible \.entry (\w+)", gemm.ptx) == ["gemm"]
    assert ".maxntid 256" in gemm.ptx


def test_a_float32_kernel_has_no_float64(gemm: Cubin) -> None:
    assert ".f64" not in gemm.ptx
    assert "FFMA" in opcodes(gemm)
    assert not [op for op in opcodes(gemm) if op.startswith(("D", "F2F"))]


def test_reads_of_registers_are_those_of_a_loop_of_multiply_adds(gemm: Cubin) -> None:
    reads = register_reads(gemm)
    assert 0 < reads.multiply_adds < reads.instructions
    assert sum(reads.banks) <= 3 * reads.multiply_adds
    with pytest.raises(LookupError, match="no FFMA in the main loop of k"):
        register_reads(_body("if t < n:\n    y[t] = x[t]"))


def test_elements_are_loaded_and_stored_directly(gemm: Cubin) -> None:
    found = opcodes(gemm)
    assert found.count("LDG.E") == 2
    assert found.count("STG.E") == 1
    assert found.count("BAR.SYNC.DEFER_BLOCKING") == 2
    assert not [op for op in found if op.startswith(("LDL", "STL", "CALL"))]
    assert "FFMA" in sass(gemm)


def test_an_index_through_a_pointer_does_not_wrap_around() -> None:
    """numba adds `i + n if i < 0` to signed indices of arrays; a raw pointer has no length to add."""
    ptx = _body("y[n - t] = x[t - n]").ptx
    assert not re.search(r"\b(setp|selp|slct)\b", ptx)
    assert len(re.findall(r"(ld|st)\.global\.f32", ptx)) == 2


def test_a_bare_literal_brings_float64() -> None:
    assert ".f64" in _body("s = 0.0\nfor i in range(0, n):\n    s += x[i]\ny[t] = s").ptx
    assert ".f64" not in _body("s = float32(0.0)\nfor i in range(0, n):\n    s += x[i]\ny[t] = s").ptx


def test_float32_functions_stay_float32() -> None:
    calls = " + ".join(f"math.{f}(x[t])" for f in ("exp", "log", "sqrt", "tanh", "erf", "erfc", "fabs"))
    assert ".f64" not in _body(f"y[t] = {calls} + math.pow(x[t], x[t]) + abs(x[t])").ptx


def test_float64_pointers() -> None:
    ptx = _body("y[t] = x[t] * float64(n)", ("float64*", "float64*", "int64")).ptx
    assert "ld.global.f64" in ptx
    assert "st.global.f64" in ptx


def test_messages_name_the_file_of_the_source(tmp_path: Path) -> None:
    pytest.importorskip("cuda.core")
    path = tmp_path / "kernel_model.py"
    source = "def k(x):\n    x[0] = x + x\n"
    with pytest.raises(
        BuildFailure, match=r"kernel 'k' \(.*kernel_model.py\) does not compile for sm_90"
    ) as error:
        build(source, "k", ("float32*",), path=path)
    assert "add(float32*, float32*)" in str(error.value)
    assert not path.exists()


def test_instructions_of_another_gpu_are_no_fault_of_the_source() -> None:
    pytest.importorskip("cuda.core")
    source = (
        f"{HEADER}from polyfuse.intrinsics.cuda import await_wgmma\n"
        "def k(x):\n    y = cuda.local.array((2, 2), float32)\n    await_wgmma(2, 2, y)\n    x[0] = y[0, 0]\n"
    )
    assert build(source, "k", ("float32*",)).arch == "sm_90a"
    with pytest.raises(TargetUnavailable, match="sm_90a and of no other GPU, and this is sm_80"):
        build(source, "k", ("float32*",), cc=(8, 0))


def test_a_signature_names_known_types() -> None:
    with pytest.raises(BuildFailure, match=r"'half\*'; expected is one of float32"):
        _body("y[t] = x[t]", ("half*", "float32*", "int64"))


def test_without_the_extra_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cuda.core", None)
    with pytest.raises(TargetUnavailable, match=r"pip install polyfuse\[cuda\]"):
        build(GEMM, "gemm", POINTERS)


def test_one_source_builds_again_to_the_same_code(gemm: Cubin) -> None:
    assert build(GEMM, "gemm", POINTERS, launch_bounds=256).code == gemm.code
