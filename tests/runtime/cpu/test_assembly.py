from __future__ import annotations

import polyfuse as pf
from polyfuse.runtime.cpu.assembly import assembly, instructions
from polyfuse.runtime.cpu.native import assembly_text

TEXT = """
	.section	.rodata
.LCPI0_0:
	.long	1
	.section	.ltext,"axl",@progbits
_ZN13_3cdynamic_3e5twiceB2v1B98c8tJT:
.Lfunc_begin0:
	.file	1 "/folder" "twice_20.py"
	.file	2 "/folder" "other.py"
	.loc	1 18 0
	pushq	%rbp
	.cfi_def_cfa_offset 16
.LBB0_1:
	.loc	2 19 1
	incq	%rax
	.loc	1 19 1 is_stmt 1
	jne	.LBB0_1
	.loc	1 0 1
	callq	_ZN13_3cdynamic_3e4partB2v1B98c8tJT@PLT
	.section	.debug_line
	.byte	1
"""


def test_instructions_have_the_lines_of_the_kernels_own_file() -> None:
    found = [(each.text, each.line) for each in instructions(TEXT, "twice", 16)]
    assert found == [
        ("twice:", None),
        ("pushq %rbp", 2),
        (".LBB0_1:", None),
        ("incq %rax", None),
        ("jne .LBB0_1", 3),
        ("callq part@PLT", None),
    ]


def test_lines_change_no_instruction() -> None:
    twice = pf.statement("{ S[i] : 0 <= i < 256 }", "y[i] = x[i] * 2")
    tensors = [pf.Tensor("x", (256,), "float32", "input"), pf.Tensor("y", (256,), "float32", "output")]
    doubled = pf.Nest.of(tensors, [twice])
    (code,) = pf.compile(doubled, target="cpu").program.codes
    listed = assembly(code)
    plain, before = assembly_text(code, with_lines=False)
    assert [each.text for each in listed] == [each.text for each in instructions(plain, code.name, before)]
    lines = code.source.split("\n")
    product = next(each for each in listed if each.text.startswith(("vmulps", "vaddps", "mulps", "addps")))
    assert product.line is not None
    assert "x[" in lines[product.line - 1]
