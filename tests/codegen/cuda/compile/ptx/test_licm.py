"""What does not change in a loop, moved before it in PTX: only that, and only where every pass comes by."""

from __future__ import annotations

import pytest

from polyfuse.codegen.cuda.compile.ptx.licm import before_loops
from polyfuse.codegen.cuda.compile.ptx.ptx_loops import MANY

PRODUCTS = [f"\tfma.rn.f32 \t%f{n}, %f{n}, %f900, %f901;" for n in range(MANY)]


def ptx(*inside: str, before: tuple[str, ...] = (), after: tuple[str, ...] = ()) -> str:
    lines = [
        ".visible .entry k(",
        "\tmov.u32 \t%r1, %tid.x;",
        "\tmov.u64 \t%rd90, 0;",
        *before,
        "$L__BB0_1:",
        *inside,
        *PRODUCTS,
        "\tadd.s64 \t%rd90, %rd90, 1;",
        "\tsetp.ne.s64 \t%p90, %rd90, 16;",
        "\t@%p90 bra \t$L__BB0_1;",
        *after,
        "\tret;",
    ]
    return "\n".join(lines) + "\n"


def moved(text: str) -> list[str]:
    """The instructions that are before the loop and were in it."""
    old, new = (each.split("$L__BB0_1:")[0].splitlines() for each in (text, before_loops(text)))
    assert sorted(before_loops(text).splitlines()) == sorted(text.splitlines()), "each line once"
    assert new[: len(old)] == old
    return [line.split("\t")[-1] for line in new[len(old) :]]


def test_what_follows_from_the_thread_alone_is_moved_behind_what_it_needs() -> None:
    text = ptx(
        "\tadd.s32 \t%r3, %r2, 7;",  # a block that LLVM has laid out before the one that gives %r2
        "\tmad.lo.s32 \t%r2, %r1, -8, 121;",
        "\tsetp.lt.s32 \t%p1, %r3, 0;",
        "\tcvt.u64.u32 \t%rd1, %r3;",
        "\tadd.s64 \t%rd2, %rd1, %rd90;",
    )
    assert moved(text) == ["%r2, %r1, -8, 121;", "%r3, %r2, 7;", "%p1, %r3, 0;", "%rd1, %r3;"]


def test_which_block_and_thread_it_is_does_not_change() -> None:
    text = ptx("\tmov.u32 \t%r2, %ctaid.z;", "\tmov.u32 \t%r5, %ntid.x;", "\tbfi.b32 \t%r3, %r2, %r1, 3, 7;")
    assert moved(text) == ["%r2, %ctaid.z;", "%r5, %ntid.x;", "%r3, %r2, %r1, 3, 7;"]


def test_of_two_loops_the_inner_one_comes_first() -> None:
    """What changes in the outer loop alone is computed there; what does not, before both."""
    both = ptx(
        "\tadd.s64 \t%rd7, %rd90, 1;",
        "$L__BB0_2:",
        "\tmul.lo.s64 \t%rd1, %rd90, 9216;",
        "\tadd.s32 \t%r3, %r1, 4;",
        *PRODUCTS,
        "\t@%p91 bra \t$L__BB0_2;",
    )
    assert moved(both) == ["%r3, %r1, 4;"]
    lines = before_loops(both).splitlines()
    outer, inner = lines.index("$L__BB0_1:"), lines.index("$L__BB0_2:")
    assert lines[outer + 1 : inner] == ["\tadd.s64 \t%rd7, %rd90, 1;", "\tmul.lo.s64 \t%rd1, %rd90, 9216;"]


@pytest.mark.parametrize(
    "lines",
    [
        ["\tld.shared.u32 \t%r2, [%rd5];", "\tadd.s32 \t%r3, %r2, 1;"],
        ["\tmov.u32 \t%r2, %clock;"],
        ["\tmov.u32 \t%r2, %smid;"],
        ["\tadd.cc.u32 \t%r2, %r1, 1;", "\tmad.lo.cc.u32 \t%r3, %r1, 1, 2;", "\taddc.u32 \t%r4, %r1, 0;"],
        ["\t@%p1 add.s32 \t%r2, %r1, 1;"],
        ["\tadd.s32 \t%r2, %r1, 1;", "\tadd.s32 \t%r2, %r1, 2;"],
        ["\tadd.s32 \t%r2, %r7, 1;"],
        ["\tmov.u64 \t%rd90, 5;"],
        ["\tadd.f32 \t%f910, %f900, %f901;", "\tsetp.lt.f32 \t%p1, %f900, %f901;"],
        ["\tshfl.sync.bfly.b32 \t%r2|%p2, %r1, 1, 31, -1;", "\tselp.b32 \t%r3, 1, 2, %p2;"],
        [
            "\t// begin inline asm",
            "\tadd.s32 %r2, %r1, 1;",
            "\t// end inline asm",
            "\tadd.s32 \t%r3, %r2, 1;",
        ],
    ],
    ids=[
        "memory",
        "clock",
        "multiprocessor",
        "carries",
        "guarded",
        "given twice",
        "given nowhere",
        "the loop's own",
        "floats",
        "two",
        "assembly",
    ],
)
def test_anything_else_stays(lines: list[str]) -> None:
    assert moved(ptx(*lines)) == []


def test_what_is_given_before_the_loop_and_in_it_changes() -> None:
    text = ptx("\tadd.s32 \t%r3, %r2, 1;", "\tmov.u32 \t%r2, %r1;", before=("\tmov.u32 \t%r2, 0;",))
    assert moved(text) == []


INVARIANT = "\tadd.s32 \t%r2, %r1, 1;"


def test_a_loop_that_is_entered_elsewhere_too_is_left_alone() -> None:
    inside = ("$L__BB0_2:", INVARIANT)
    assert moved(ptx(*inside)) == ["%r2, %r1, 1;"]
    for label in ("$L__BB0_1", "$L__BB0_2"):
        assert moved(ptx(*inside, before=(f"\t@%p5 bra \t{label};",))) == []
    assert moved(ptx(*inside, after=("\tbra.uni \t$L__BB0_2;",))) == []
    assert moved(ptx(*inside, after=("\tbra.uni \t$L__BB0_1;",))) == ["%r2, %r1, 1;"], "a longer loop"


def test_jumps_by_number_are_not_followed() -> None:
    table = ("ts: .branchtargets $L__BB0_2, $L__BB0_3;", "\tbrx.idx \t%r1, ts;")
    assert moved(ptx("$L__BB0_2:", INVARIANT, before=table)) == []


def test_registers_are_a_functions_own() -> None:
    other = ".func other(\n\tadd.s32 \t%r7, %r1, 2;\n\tret;\n"
    assert moved(other + ptx("\tadd.s32 \t%r2, %r7, 1;", INVARIANT.replace("%r2", "%r8"))) == ["%r8, %r1, 1;"]


def test_short_loops_and_none_are_left_alone() -> None:
    text = ptx(INVARIANT).replace(PRODUCTS[0] + "\n", "", 1)
    assert before_loops(text) == text
    assert before_loops(".visible .entry k(\n\tret;\n") == ".visible .entry k(\n\tret;\n"
