"""Addresses that loops advance in PTX: the same memory is touched in the same order, in what is computed less."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import polyfuse as pf
from polyfuse import nn
from polyfuse.checks import cuda_cases as cases
from polyfuse.codegen.cuda.compile import cubin as cuda_build
from polyfuse.codegen.cuda.compile.ptx.licm import before_loops
from polyfuse.codegen.cuda.compile.ptx.ptx_loops import MANY
from polyfuse.codegen.cuda.compile.ptx.ptx_passes import rewritten_ptx
from polyfuse.codegen.cuda.compile.ptx.strength_reduction import running_addresses
from polyfuse.runtime.cuda.runner import build_kernels
from tests.support.ptx_machine import touched

PRODUCTS = [f"\tfma.rn.f32 \t%f{n}, %f{n}, %f900, %f901;" for n in range(MANY)]
BEFORE = (
    "\tmov.u32 \t%r1, %tid.x;",
    "\tand.b32 \t%r2, %r1, 7;",
    "\tcvt.u64.u32 \t%rd3, %r2;",
    "\tld.param.u64 \t%rd7, [k_param_0];",
)


ADVANCE = "\tadd.s64 \t%rd9, %rd9, 1;"


def ptx(*inside: str, advance: str = ADVANCE) -> str:
    """A function whose loop has 16 passes, with %rd9 for a counter that a line advances."""
    lines = [
        ".visible .entry k(",
        "\tmov.u32 \t%r90, 0;",
        "\tmov.u64 \t%rd9, 2;",
        *BEFORE,
        "$L__BB0_1:",
        *inside,
        *PRODUCTS,
        advance,
        "\tadd.s32 \t%r90, %r90, 1;",
        "\tsetp.ne.s32 \t%p90, %r90, 16;",
        "\t@%p90 bra \t$L__BB0_1;",
        "\tret;",
    ]
    return "\n".join(lines) + "\n"


CHAIN = (
    "\tshl.b64 \t%rd1, %rd9, 13;",
    "\tor.b64 \t%rd2, %rd1, %rd3;",
    "\tshl.b64 \t%rd4, %rd2, 2;",
    "\tadd.s64 \t%rd5, %rd7, %rd4;",
)
READ = "\tld.global.f32 \t%f1, [%rd5+64];"


def assert_same(text: str) -> list[str]:
    """The lines that the loop has besides, after it was seen to touch the same."""
    new = running_addresses(text)
    for thread in (0, 5, 1023):
        special = {"%tid.x": thread}
        assert touched(new, special) == touched(text, special)
    inside = [part.split("$L__BB0_1:")[1].splitlines() for part in (text, new)]
    return [line.split("\t")[-1] for line in inside[1] if line not in inside[0]]


@pytest.mark.parametrize(("advance", "by"), [("1", 32768), ("-1", -32768), ("3", 98304)])
def test_an_address_is_advanced_with_its_counter(advance: str, by: int) -> None:
    assert assert_same(ptx(*CHAIN, READ, advance=ADVANCE.replace("1;", f"{advance};"))) == [
        "%rd5, %along0_0, 0;",
        f"%along0_0, %along0_0, {by};",
    ]


def test_addresses_that_differ_by_a_number_are_one() -> None:
    """Whether they are sums of one another, or computed beside each other and behind the counter's line."""
    text = ptx(
        *CHAIN,
        READ,
        "\tadd.s64 \t%rd11, %rd5, 512;",
        "\tst.global.f32 \t[%rd11], %f1;",
        "\tadd.s64 \t%rd9, %rd9, 2;",
        *(line.replace("%rd1,", "%rd21,").replace("%rd2,", "%rd22,") for line in CHAIN[:1]),
        "\tmad.lo.s64 \t%rd23, %rd21, 4, %rd7;",
        "\tmad.lo.s64 \t%rd24, %rd3, 4, %rd23;",
        "\tsub.s64 \t%rd25, %rd24, 96;",
        "\tld.global.f32 \t%f2, [%rd25];",
        advance="",
    )
    assert assert_same(text) == [
        "%rd5, %along0_0, 0;",
        "%rd11, %along0_0, 512;",
        "%along0_0, %along0_0, 65536;",
        "%rd25, %along0_0, -96;",
    ]


def test_numbers_of_64_bits_wrap() -> None:
    text = ptx(
        "\tmul.lo.s64 \t%rd1, %rd9, -4611686018427387904;",
        "\tmul.lo.s64 \t%rd2, %rd1, 6;",
        "\tneg.s64 \t%rd4, %rd2;",
        "\tadd.s64 \t%rd5, %rd7, %rd4;",
        READ,
    )
    assert assert_same(text)[-1] == "%along0_0, %along0_0, -9223372036854775808;"


@pytest.mark.parametrize(
    "lines",
    [
        (*CHAIN[:1], "\tadd.s64 \t%rd5, %rd7, %rd1;", READ),
        (CHAIN[0].replace("13", "2"), *CHAIN[1:], READ),
        (CHAIN[0], CHAIN[1].replace("%rd3", "%rd7"), *CHAIN[2:], READ),
        (CHAIN[0], "\txor.b64 \t%rd2, %rd1, %rd3;", *CHAIN[2:], READ),
        (CHAIN[0], "\tand.b64 \t%rd2, %rd1, 65536;", *CHAIN[2:], READ),
        (*CHAIN, READ, "\tadd.s64 \t%rd9, %rd9, 1;"),
        (*CHAIN, READ, "\tmov.u64 \t%rd3, 5;"),
        (*CHAIN[:2], "\tadd.s64 \t%rd5, %rd7, %rd2;", READ, "\t@%p90 mov.u64 \t%rd5, %rd7;"),
        (*CHAIN[:2], "\tadd.s64 \t%rd5, %rd7, %rd2;", "\tld.global.u64 \t%rd7, [%rd5];"),
        ("\t// begin inline asm", *CHAIN, "\t// end inline asm", READ),
        ("\tshl.b64 \t%rd1, %rd9, %rd3;", *CHAIN[1:], READ),
        ("\tmul.lo.s64 \t%rd1, %rd9, %rd7;", *CHAIN[1:], READ),
        CHAIN,
    ],
    ids=[
        "short",
        "bits that meet",
        "bits that may meet",
        "exclusive",
        "bits of a counter",
        "two steps",
        "given in the loop",
        "given twice",
        "memory",
        "assembly",
        "shifted by what is not known",
        "times what is not known",
        "not read",
    ],
)
def test_anything_else_stays(lines: tuple[str, ...]) -> None:
    text = ptx(*lines)
    assert running_addresses(text) == text


@pytest.mark.parametrize(
    "advance",
    ["\tadd.s64 \t%rd9, %rd9, %rd3;", "\tshl.b64 \t%rd9, %rd9, 1;", f"\t@%p90 {ADVANCE.strip()}"],
    ids=["a step that is not known", "no steps", "a step under a guard"],
)
def test_a_counter_goes_on_by_a_number_in_each_pass(advance: str) -> None:
    assert running_addresses(ptx(*CHAIN, READ)) != ptx(*CHAIN, READ)
    text = ptx(*CHAIN, READ, advance=advance)
    assert running_addresses(text) == text


def test_the_inner_of_two_loops_is_begun_anew() -> None:
    """In each pass of the outer loop, whose own addresses advance too."""
    text = ptx(
        *CHAIN,
        READ,
        "\tmov.u64 \t%rd30, 0;",
        "$L__BB0_2:",
        "\tshl.b64 \t%rd31, %rd30, 7;",
        "\tadd.s64 \t%rd32, %rd31, %rd5;",
        "\tadd.s64 \t%rd33, %rd32, 8;",
        "\tst.global.f32 \t[%rd33], %f1;",
        *PRODUCTS,
        "\tadd.s64 \t%rd30, %rd30, 1;",
        "\tsetp.ne.s64 \t%p91, %rd30, 3;",
        "\t@%p91 bra \t$L__BB0_2;",
    )
    new = assert_same(text)
    assert [line for line in new if line.startswith("%rd")] == ["%rd5, %along1_0, 0;", "%rd33, %along0_0, 0;"]


IMAGES: dict[str, Any] = {"batch": 8, "features": (16, 56, 56)}

KERNELS: dict[str, tuple[str, Callable[[], pf.Nest]]] = {
    "float16": ("h200", lambda: cases.dense(192, 1024, batch=1024, dtype="float16")),
    "odd rows": ("a100", lambda: cases.dense(161, 1023, batch=1023)),
    "stages": ("h200", lambda: cases.dense(256, 512, batch=512)),
    "convolution": ("a100", lambda: cases.images(nn.Conv2d(16, 64, 3, padding=1), **IMAGES)),
    "steps of two": ("h200", lambda: cases.images(nn.Conv2d(16, 64, 3, stride=2, padding=1), **IMAGES)),
}


@pytest.mark.parametrize(("preset", "make"), KERNELS.values(), ids=KERNELS)
def test_kernels_touch_the_same_memory(
    preset: str, make: Callable[[], pf.Nest], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever was moved before their loops and is advanced there."""
    pytest.importorskip("cuda.core")
    written: list[str] = []

    def kept(text: str) -> tuple[str, str]:
        written.append(text)
        return rewritten_ptx(text)

    monkeypatch.setattr(cuda_build, "rewritten_ptx", kept)
    net = pf.compile(make(), target="cuda", machine=preset, device="none")
    build_kernels(net.program, {"a100": (8, 0), "h200": (9, 0)}[preset])
    changed = [(text, new) for text in written if (new := running_addresses(before_loops(text))) != text]
    assert changed
    for text, new in changed:
        for x, y, block in ((0, 0, 0), (3, 1, 0), (30, 2, 1)):
            special = {"%tid.x": x, "%tid.y": y, "%tid.z": 0, "%ctaid.x": block, "%ctaid.y": 0, "%ctaid.z": 0}
            assert touched(new, special) == touched(text, special)
