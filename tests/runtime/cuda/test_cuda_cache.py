"""The cache of what is compiled for a GPU: programs, and their kernels' machine code, each as an entry of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import polyfuse as pf
from polyfuse.checks import cuda_cases as cases
from polyfuse.codegen.cuda.compile.cubin import Cubin
from polyfuse.runtime.compile_key import digest
from polyfuse.runtime.cuda import cubins
from polyfuse.runtime.cuda.cubins import build_kernel, kernel_parts
from polyfuse.runtime.cuda.runner import CudaProgram, build_kernels
from polyfuse.runtime.emulated.host_gpu import HostGpu
from polyfuse.runtime.store.files import OWN
from polyfuse.runtime.store.record import from_entry, to_header
from polyfuse.runtime.store.store import packed, unpacked

pytest.importorskip("numba.cuda")
pytest.importorskip("cuda.core")


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache for this test."""
    monkeypatch.setenv("POLYFUSE_CACHE", str(tmp_path))
    return tmp_path


def compiled(device: Any = "lockstep", **options: Any) -> pf.Executable:
    return pf.compile(
        cases.dense(12, 20, 7, batch=9), target="cuda", machine="h200", device=device, **options
    )


def test_the_second_compile_loads_what_the_first_kept(place: Path) -> None:
    first, second = compiled(), compiled()
    assert first.report().cache.startswith("kept as ")
    assert second.report().cache.startswith("loaded from ")
    assert list(second.report().compile_seconds) == ["cache", "loading"]
    x = np.random.default_rng(0).standard_normal((9, 12)).astype(np.float32)
    np.testing.assert_array_equal(second(x), first(x))
    assert (second.explain(), second.source) == (first.explain(), first.source)
    assert second.memory_plan() == first.memory_plan()
    assert second.schedule.trace() == first.schedule.trace(), "decided again, as it is asked for"


def test_what_is_planned_for_decides(place: Path) -> None:
    options: tuple[dict[str, Any], ...] = ({"device": "none"}, {"device": "simulator"}, {"fuse": False})
    for option in ({}, *options):
        assert compiled(**option).report().cache.startswith("kept as "), option
    nest = cases.dense(64, 64, batch=64)
    for math in ("ieee", "tf32"):
        net = pf.compile(nest, target="cuda", machine="h200", device="none", math=math)  # type: ignore[arg-type]
        assert net.report().cache.startswith("kept as "), math


def programs() -> list[pf.Executable]:
    """One launch whose blocks meet, boxes with maps, lanes of a warp, sizes that a call brings."""
    given = {"target": "cuda", "device": "none", "machine": "h200"}
    layers = cases.dense(9, 21, 30, batch=4)
    scale = pf.statement("[N] -> { scale[i] : 0 <= i < N }", "y[i] = x[i] + x[N - 1 - i]")
    tensors = [pf.Tensor("x", ("N",), "float32", "input"), pf.Tensor("y", ("N",), "float32", "output")]
    return [
        pf.compile(layers, schedule=cases.layers_in_one_launch(layers), **given),
        pf.compile(cases.dense(256, 256, batch=256, dtype="bfloat16"), math="bf16", **given),
        pf.compile(pf.Nest.of(tensors, [scale], context="[N] -> { : N > 0 }"), **given),
    ]


def test_programs_come_back_as_they_were() -> None:
    for net in programs():
        product = net.compiled.product
        found, code = from_entry(unpacked(packed(to_header(product, None), b"")))
        assert code is None
        assert found.program.codes == product.program.codes
        assert [str(each) for each in found.program.launches] == [
            str(each) for each in product.program.launches
        ]
        assert replace(found, program=product.program) == product


def test_machine_code_is_made_once_for_equal_kernels(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    net = compiled("none")
    made = build_kernels(net.program, (9, 0))
    monkeypatch.setattr(cubins, "build", lambda *args, **options: pytest.fail("compiled again"))
    again = build_kernels(compiled("none").program, (9, 0))
    assert again == made
    assert all(isinstance(cubin, Cubin) and cubin.code[:4] == b"\x7fELF" for cubin in again.values())


def test_a_damaged_kernel_is_made_again(place: Path) -> None:
    (code, *_) = compiled("none").program.codes
    made = build_kernel(code, 128, (9, 0))
    (path,) = (path for path in (place / OWN / "compiled").iterdir() if path.name[:12] in made.cache)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    again = build_kernel(code, 128, (9, 0))
    assert again.cache.startswith("an entry was discarded: its checksum does not hold; kept as ")
    assert again.cubin.code == made.cubin.code
    assert build_kernel(code, 128, (9, 0)).cache.startswith("loaded from ")


def test_whatever_changes_what_a_kernel_is_compiled_to_changes_its_key(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    code = compiled("none").program.codes[0]
    keys = {
        digest(kernel_parts(each, text, capability, bounds))
        for each, text, capability, bounds in (
            (code, "text", (9, 0), 128),
            (replace(code, name="other"), "text", (9, 0), 128),
            (replace(code, signature=("int64",)), "text", (9, 0), 128),
            (code, "other", (9, 0), 128),
            (code, "text", (8, 0), 128),
            (code, "text", (9, 0), 64),
            (code, "text", (9, 0), (128, 2)),
        )
    }
    monkeypatch.setenv("NUMBA_CUDA_DEBUG", "1")
    keys.add(digest(kernel_parts(code, "text", (9, 0), 128)))
    for part in ("versions_text", "compilers_text", "settings_text", "source_digest"):
        with monkeypatch.context() as patch:
            patch.setattr(cubins, part, lambda: "other")
            keys.add(digest(kernel_parts(code, "text", (9, 0), 128)))
    assert len(keys) == 12


def test_every_compiler_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    found = json.loads(cubins.compilers_text())
    assert found.keys() == {*cubins.PACKAGES, *cubins.LIBRARIES}
    assert all(found.values())


def test_the_report_says_where_each_kernel_is_from(place: Path) -> None:
    notes = []
    for _ in range(2):
        net = compiled("none")
        roles = {tensor.name: tensor.role for tensor in net.schedule.nest.tensors}
        net._runner = CudaProgram(net.program, HostGpu(net.program), roles)  # type: ignore[arg-type, assignment]
        notes.append(net.report().cache)
    names = [code.name for code in net.program.codes]
    assert all(f"; {name}: kept as " in notes[0] for name in names)
    assert all(f"; {name}: loaded from " in notes[1] for name in names)


SECOND = """
import json, sys
loaded = []
sys.addaudithook(lambda event, args: loaded.append(event) if event.startswith("pickle") else None)
import polyfuse as pf
from polyfuse.checks import cuda_cases as cases
from polyfuse.runtime.cuda.runner import build_kernels
pf.compile
nest = cases.dense(12, 20, 7, batch=9)
loaded.clear()
net = pf.compile(nest, target="cuda", machine="h200", device="none", fuse=False)
registers = [cubin.registers for cubin in build_kernels(net.program, (9, 0)).values()]
print(json.dumps({"note": net.report().cache, "registers": registers, "unpickled": sorted(set(loaded)),
    "compiler": "numba.cuda.compiler" in sys.modules}))
"""


def run_process() -> dict[str, Any]:
    command = [sys.executable, "-c", SECOND]
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=os.environ)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_a_second_process_needs_no_compiler_and_unpickles_nothing(place: Path) -> None:
    first, second = run_process(), run_process()
    assert first["note"].startswith("kept")
    assert first["compiler"]
    assert len(first["registers"]) > 1, "those after the first are made with numba-cuda imported"
    assert second["note"].startswith("loaded")
    assert not second["compiler"]
    assert second["unpickled"] == []
    assert second["registers"] == first["registers"]
