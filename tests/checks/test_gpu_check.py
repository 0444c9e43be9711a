"""Every CUDA kernel without a GPU: on the stand-ins against the oracle, and as machine code for sm_90."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import polyfuse as pf
from polyfuse import nn
from polyfuse.checks import cuda_case as gpu_case
from polyfuse.checks import cuda_cases as cases
from polyfuse.checks import gpu_check
from polyfuse.checks.cuda_cases import CASES, TOLERANCE, Case
from polyfuse.checks.gpu_check import Run
from polyfuse.errors import BadArgument, TargetUnavailable
from polyfuse.runtime.cuda.runner import build_kernels
from polyfuse.workbench.terminal import Terminal

pytest.importorskip("cuda.core")
pytest.importorskip("numba.cuda")

every_case = pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
fused_or_not = pytest.mark.parametrize("fuse", [True, False], ids=["fused", "unfused"])


@cache
def compiled(case: Case, fuse: bool) -> pf.Executable:
    device: Any = "lockstep" if case.small else "none"
    nest = case.nest()
    by_hand = case.by_hand(nest)
    return pf.compile(
        nest, target="cuda", machine="h200", device=device, fuse=fuse, math=case.math, schedule=by_hand
    )


@every_case
@fused_or_not
def test_in_lock_step_it_is_what_the_oracle_says_and_as_machine_code_spills_none(
    case: Case, fuse: bool
) -> None:
    # one test, because it is compiled for both
    net = compiled(case, fuse)
    if case.small:
        check_results(case, fuse, net)
    cubins = tuple(build_kernels(net.program, (9, 0)).values())
    assert [cubin.entry for cubin in cubins] == [code.name for code in net.program.codes]
    for cubin in cubins:
        assert cubin.arch == ("sm_90a" if "wgmma." in cubin.ptx else "sm_90")
        assert 0 < cubin.registers <= 255
        assert (cubin.spill_stores, cubin.spill_loads) == (0, 0)
        assert cubin.shared_bytes <= 227 * 1024
        assert cubin.dynamic_bytes == (cubin.shared_bytes if cubin.shared_bytes > 48 * 1024 else 0)
        assert cubin.code[:4] == b"\x7fELF"


def check_results(case: Case, fuse: bool, net: pf.Executable) -> None:
    for seed in (1, 2):
        inputs, outputs = cases.draw(net.nest, np.random.default_rng(seed)), cases.poisoned(net.nest)
        net(**inputs, out=outputs)
        names = [tensor.name for tensor in net.nest.with_role("output")]
        found = dict(zip(names, outputs, strict=True))
        assert cases.error(net.nest, inputs, found, case.math) <= TOLERANCE
        forms = ("tile_mma", "tile_wgmma", "begin_wgmma")
        cores = (f"{form}_{case.math}(" in net.program.source for form in forms)
        assert case.math == "ieee" or not fuse or any(cores)


@pytest.mark.parametrize(
    "case", [case for case in CASES if "by warpgroups" in case.name], ids=lambda case: case.name
)
def test_a_case_by_warpgroups_has_their_instructions(case: Case) -> None:
    source = compiled(case, True).program.source
    waits = ("await_wgmma_before(", "hand_back(")
    expected = (f"begin_wgmma_{case.math}(", f"tile_wgmma_{case.math}(", *waits)
    assert all(name in source for name in expected)
    assert "copy_bulk(" in source, "whole lines are copied in boxes, by a warp that only copies"


@pytest.mark.parametrize("case", [c for c in CASES if c.kernels is not None], ids=lambda c: c.name)
def test_it_is_as_many_kernels_as_promised(case: Case) -> None:
    assert len(compiled(case, True).kernels) == case.kernels


TINY = (
    Case("dense", lambda: cases.dense(5, 6, 3, batch=4)),
    Case("softmax", lambda: cases.pointwise(nn.Softmax(), 3, 7)),
    Case("layer norm", lambda: nn.lower(nn.LayerNorm(6), batch=3)),
    Case("sum", lambda: cases.reduction(nn.sum, 4, 5)),
    Case("ensemble", lambda: cases.ensemble(2, 5, 4, batch=3)),
    Case("attention", lambda: cases.attention(6, 4)),
)


@pytest.mark.parametrize("case", TINY, ids=lambda c: c.name)
def test_on_the_simulator_it_is_what_the_oracle_says(case: Case) -> None:
    nest = case.nest()
    net = pf.compile(nest, target="cuda", machine="h200", device="simulator")
    inputs, outputs = cases.draw(nest, np.random.default_rng(4)), cases.poisoned(nest)
    net(**inputs, out=outputs)
    found = {tensor.name: out for tensor, out in zip(nest.with_role("output"), outputs, strict=True)}
    assert cases.error(nest, inputs, found) <= TOLERANCE


def test_the_error_counts_units_of_rounding_and_sees_poison() -> None:
    nest = cases.pointwise(nn.ReLU(), 1, 3)
    inputs = {"x": np.array([[1, 2, 4]], np.float32)}
    right = np.array([[1, 2, 4]], np.float32)
    assert cases.error(nest, inputs, {"out": right}) == 0
    assert cases.error(nest, inputs, {"out": right + np.float32(4 * 2**-21)}) == 4
    poison = right.copy()
    poison[0, 1] = np.nan
    assert cases.error(nest, inputs, {"out": poison}) == float("inf")


def test_a_dry_run_prints_a_line_a_case_and_writes_results(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = (Case("softmax", lambda: cases.pointwise(nn.Softmax(), 3, 7)),)
    monkeypatch.setattr(gpu_check, "CASES", chosen)
    assert gpu_check.run_check(Terminal(), "lockstep", tmp_path, None, 7)
    printed = capsys.readouterr().out
    assert printed.count("ok      softmax") == 2
    assert "2 passed, 0 failed" in printed
    (path,) = tmp_path.iterdir()
    results = json.loads(path.read_text(encoding="utf-8"))
    assert (results["passed"], results["failed"], results["seed"]) == (2, 0, 7)
    fused, unfused = results["cases"]
    assert (fused["fused"], unfused["fused"]) == (True, False)
    assert fused["launches"] == len(fused["kernels"]) == 1
    assert all(kernel["registers"] > 0 and kernel["arch"] == "sm_90" for kernel in unfused["kernels"])
    assert {"date", "cpu", "versions", "commit", "device", "tolerance"} <= results.keys()


def test_a_wrong_kernel_fails_its_case_and_the_others_run(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(nest: pf.Nest, **options: Any) -> pf.Executable:
        net = pf.compile(nest, **options)
        program = net.program
        launches = tuple(
            replace(
                launch,
                code=replace(launch.code, source=launch.source.replace("<= float32(0.0)", "<= float32(0.5)")),
            )
            for launch in program.launches
        )
        return pf.Executable.of(replace(net.compiled, program=replace(program, launches=launches)))

    chosen = (
        Case("ReLU", lambda: cases.pointwise(nn.ReLU())),
        Case("tanh", lambda: cases.pointwise(nn.Tanh())),
    )
    monkeypatch.setattr(gpu_check, "CASES", chosen)
    monkeypatch.setattr(gpu_case, "compile", broken)
    assert not gpu_check.run_check(Terminal(), "lockstep", None, None, 1)
    printed = capsys.readouterr().out
    assert "FAILED  ReLU" in printed
    assert "ok      tanh" in printed


def test_without_a_gpu_the_error_names_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_check, "missing", lambda: "target 'cuda' needs an NVIDIA GPU with its driver")
    with pytest.raises(TargetUnavailable, match=r"needs an NVIDIA GPU with its driver.*--device lockstep"):
        gpu_check.run_check(Terminal(), "gpu", None, None, None)


def test_without_the_extra_the_error_is_the_commands_and_not_a_cases(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(*args: Any) -> None:
        raise TargetUnavailable("compiling for CUDA needs cuda: pip install polyfuse[cuda]")

    monkeypatch.setattr(gpu_case, "build_kernels", absent)
    with pytest.raises(TargetUnavailable, match=r"pip install polyfuse\[cuda\]"):
        gpu_check.run_check(Terminal(), "lockstep", None, "softmax", 1)


def test_on_a_gpu_plans_are_for_that_one_and_what_it_cannot_run_is_one_case(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def there(nest: pf.Nest, **options: Any) -> pf.Executable:
        assert options["machine"] is None
        if len(nest.statements) > 1:
            raise TargetUnavailable("zero_mac has wgmma instructions, of sm_90a")
        return pf.compile(nest, **{**options, "machine": "a100", "device": "lockstep"})

    chosen = (
        Case("dense", lambda: cases.dense(5, 6, batch=4)),
        Case("tanh", lambda: cases.pointwise(nn.Tanh())),
    )
    about = {"name": "A100", "compute_capability": (8, 0)}
    monkeypatch.setattr(gpu_case, "compile", there)
    for name, put in (("CASES", chosen), ("missing", lambda: None), ("gpu_facts", lambda: about)):
        monkeypatch.setattr(gpu_check, name, put)
    assert not gpu_check.run_check(Terminal(), "gpu", tmp_path, None, 1)
    printed = capsys.readouterr().out
    assert "FAILED  dense" in printed
    assert "zero_mac has wgmma instructions" in printed
    assert printed.count("ok      tanh") == 2


def test_a_name_that_no_case_has() -> None:
    with pytest.raises(BadArgument, match="no case's name contains 'lookahead'; the cases are linear"):
        gpu_check.run_check(Terminal(), "lockstep", None, "lookahead", None)


def test_two_processes_find_what_one_does(tmp_path: Path) -> None:
    alone, beside = tmp_path / "alone", tmp_path / "beside"
    assert gpu_check.run_check(Terminal(), "lockstep", alone, "tanh", 3)
    assert gpu_check.run_check(Terminal(), "lockstep", beside, "tanh", 3, Run(processes=2))
    first, second = (json.loads(next(folder.iterdir()).read_text()) for folder in (alone, beside))
    for one in (*first["cases"], *second["cases"]):
        del one["seconds"]
    assert first["cases"] == second["cases"]
    assert len(first["cases"]) >= 2


def test_what_there_was_no_time_for_is_named_and_run_when_it_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = (
        Case("ReLU", lambda: cases.pointwise(nn.ReLU())),
        Case("tanh", lambda: cases.pointwise(nn.Tanh())),
    )
    monkeypatch.setattr(gpu_check, "CASES", chosen)
    clock = iter([0.0, 0.0, 1.0, 3.0])
    monkeypatch.setattr("polyfuse.checks.side_by_side.time.monotonic", lambda: next(clock))
    assert not gpu_check.run_check(Terminal(), "lockstep", tmp_path, None, 1, Run(seconds=2))
    assert "2 not run because the time was up; continue with --resume" in capsys.readouterr().out
    (path,) = tmp_path.iterdir()
    before = json.loads(path.read_text())
    assert [one["case"] for one in before["cases"]] == ["ReLU", "ReLU"]
    assert before["left"] == ["tanh", "tanh (unfused)"]
    monkeypatch.undo()
    monkeypatch.setattr(gpu_check, "CASES", chosen)
    assert gpu_check.run_check(Terminal(), "lockstep", tmp_path, None, 1, Run(resume=True))
    printed = capsys.readouterr().out
    assert "2 passed before" in printed
    assert "ok      ReLU" not in printed
    after = json.loads(path.read_text())
    assert (after["passed"], after["left"]) == (4, [])
    assert after["cases"][:2] == before["cases"]


def test_a_file_of_another_commit_is_not_gone_on_with(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu_check, "CASES", (Case("ReLU", lambda: cases.pointwise(nn.ReLU())),))
    assert gpu_check.run_check(Terminal(), "lockstep", tmp_path, None, 1)
    (path,) = tmp_path.iterdir()
    path.write_text(json.dumps({**json.loads(path.read_text()), "commit": "another"}))
    assert gpu_check.run_check(Terminal(), "lockstep", tmp_path, None, 1, Run(resume=True))
    assert "passed before" not in capsys.readouterr().out
