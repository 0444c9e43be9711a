"""Copies begun among multiply-adds in PTX: between two barriers the same is copied, and the rest stays in its order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

import polyfuse as pf
from polyfuse.checks import cuda_cases as cases
from polyfuse.codegen.cuda.compile import cubin as cuda_build
from polyfuse.codegen.cuda.compile.ptx.interleave_copies import spread_copies
from polyfuse.codegen.cuda.compile.ptx.ptx_loops import MANY
from polyfuse.codegen.cuda.compile.ptx.ptx_passes import rewritten_ptx
from polyfuse.runtime.cuda.runner import build_kernels
from tests.support.ptx_machine import touched

BARRIER = "\tbar.sync \t0;"
READ = "\tld.shared.f32 \t%f1, [%rd3];"
PRODUCTS = [f"\tfma.rn.f32 \t%f{n}, %f{n}, %f900, %f901;" for n in range(MANY)]


def assembly(line: str) -> list[str]:
    return ["\t// begin inline asm", f"\t{line}", "\t// end inline asm"]


def copies(count: int, size: str = "16") -> list[str]:
    lines: list[str] = []
    for n in range(count):
        lines += [f"\tadd.s64 \t%rd{20 + n}, %rd7, {64 * n};", f"\tcvt.u32.u64 \t%r{20 + n}, %rd{20 + n};"]
        lines += assembly(f"cp.async.cg.shared.global [%r{20 + n}+0], [%rd{20 + n}+0], {size};")
    return lines


def ptx(*inside: str) -> str:
    """A function whose loop has four passes, each with a barrier at its end."""
    lines = [
        ".visible .entry k(",
        "\tmov.u32 \t%r90, 0;",
        "\tld.param.u64 \t%rd7, [k_param_0];",
        "$L__BB0_1:",
        *inside,
        *PRODUCTS,
        *assembly("cp.async.commit_group;"),
        *assembly("cp.async.wait_group 0;"),
        BARRIER,
        "\tadd.s64 \t%rd7, %rd7, 4096;",
        "\tadd.s32 \t%r90, %r90, 1;",
        "\tsetp.ne.s32 \t%p90, %r90, 4;",
        "\t@%p90 bra \t$L__BB0_1;",
        "\tret;",
    ]
    return "\n".join(lines) + "\n"


Touched = tuple[Counter[tuple[str, ...]], list[tuple[str, ...]]]


def between_barriers(text: str, special: dict[str, int]) -> list[Touched]:
    """What is copied between two barriers, in any order, and what else is touched, in its order."""
    met = text.replace(BARRIER, "\tmeet \t[%rd0];")
    found: list[Touched] = [(Counter(), [])]
    for access in touched(met, special):
        if access[0] == "meet":
            found.append((Counter(), []))
        elif access[0].startswith("cp.async"):
            found[-1][0][access] += 1
        else:
            found[-1][1].append(access)
    return found


def assert_same(text: str, new: str, special: dict[str, int] | None = None) -> None:
    assert sorted(new.splitlines()) == sorted(text.splitlines())
    assert between_barriers(new, special or {}) == between_barriers(text, special or {})


def order(text: str) -> str:
    """c for a copy, l for a load, a number for so many multiply-adds."""
    found, run = list[str](), 0
    for line in text.splitlines():
        run += "fma" in line
        sign = "c" if "shared.global" in line else "l" if "ld.shared" in line else ""
        if sign:
            found += [str(run)] * (run > 0) + [sign]
            run = 0
    return " ".join([*found, str(run)])


def test_copies_are_in_the_first_half_as_far_from_each_other_as_they_can() -> None:
    text = ptx(*copies(5), READ)
    new = spread_copies(text)
    assert (order(text), order(new)) == ("c c c c c l 100", "l 10 c 10 c 10 c 10 c 10 c 50")
    assert_same(text, new)


def test_a_copy_of_fewer_bytes_is_one() -> None:
    text = ptx(*copies(2, "4, %r7"), READ)
    new = spread_copies(text)
    assert order(new) == "l 25 c 25 c 50"
    assert_same(text, new)


@pytest.mark.parametrize(
    "lines",
    [
        (*copies(2), *assembly("cp.async.commit_group;"), READ),
        (*copies(2), *assembly("cp.async.wait_group 1;"), READ),
        (*copies(2), BARRIER, READ),
        (*copies(2), "\tst.shared.f32 \t[%rd3], %f1;"),
        (*copies(2), "\t@%p1 bra \t$L__BB0_2;", "\tmov.u32 \t%r1, 0;", "$L__BB0_2:"),
        (*copies(2), *PRODUCTS[:3], "\tadd.s64 \t%rd20, %rd20, 8;", *PRODUCTS[3:]),
        copies(2 * MANY),
        assembly("mbarrier.arrive.shared.b64 _, [%r1];"),
        (READ,),
    ],
    ids=[
        "a group of copies ends",
        "a wait",
        "a barrier",
        "a store",
        "a jump",
        "a register that changes",
        "more copies than half the multiply-adds",
        "other assembly",
        "no copies",
    ],
)
def test_anything_else_stays(lines: list[str]) -> None:
    text = ptx(*lines)
    assert spread_copies(text) == text


def test_only_copies_behind_what_they_stay_behind_go_on() -> None:
    text = ptx(*copies(1), BARRIER, *(line.replace("2", "3") for line in copies(1)), READ)
    new = spread_copies(text)
    assert order(new) == "c l 50 c 50"
    assert_same(text, new)


KERNELS: dict[str, tuple[str, Callable[[], pf.Nest]]] = {
    "large tiles": ("h200", lambda: cases.dense(256, 2048, batch=2048)),
    "higher blocks": ("h200", lambda: cases.dense(256, 1024, batch=1024)),
    "small tiles": ("a100", lambda: cases.dense(256, 512, batch=512)),
    "in parts": ("h200", lambda: cases.dense(1024, 1024, batch=64)),
}


@pytest.mark.parametrize(("preset", "make"), KERNELS.values(), ids=KERNELS)
def test_kernels_copy_and_read_the_same(
    preset: str, make: Callable[[], pf.Nest], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("cuda.core")
    pairs: list[tuple[str, str]] = []

    def kept(text: str) -> tuple[str, str]:
        pairs.append(rewritten_ptx(text))
        return pairs[-1]

    monkeypatch.setattr(cuda_build, "rewritten_ptx", kept)
    net = pf.compile(make(), target="cuda", machine=preset, device="none")
    build_kernels(net.program, {"a100": (8, 0), "h200": (9, 0)}[preset])
    changed = [(text, new) for text, new in pairs if text != new]
    assert changed
    for text, new in changed:
        for x, y, block in ((0, 0, 0), (3, 1, 0)):
            special = {"%tid.x": x, "%tid.y": y, "%tid.z": 0, "%ctaid.x": block, "%ctaid.y": 0, "%ctaid.z": 0}
            assert_same(text, new, special)


def test_where_that_spills_they_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    """A linker's report decides: fewer bytes of spills."""
    text = ptx(*copies(2), READ)
    new = spread_copies(text)
    said = {
        True: "8 bytes spill stores, 4 bytes spill loads",
        False: "0 bytes spill stores, 0 bytes spill loads",
    }

    def linked(given: str, *_: object) -> tuple[bytes, str]:
        spread = given != text
        return bytes([spread]), f"used 128 registers, {said[spread]}"

    monkeypatch.setattr(cuda_build, "_linked", linked)
    assert cuda_build._with_least_spills(text, new, "k", "sm_90", None)[:2] == (text, b"\0")
    said[True] = said[False]
    assert cuda_build._with_least_spills(text, new, "k", "sm_90", None)[:2] == (new, b"\1")
    assert cuda_build._with_least_spills(text, text, "k", "sm_90", None)[:2] == (text, b"\0")
