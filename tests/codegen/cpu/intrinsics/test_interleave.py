"""A loop whose body is marked has several vectors side by side, and no other loop has."""

from __future__ import annotations

import re
from dataclasses import replace

import llvmlite.binding as llvm
import pytest
from llvmlite import ir

import polyfuse as pf
from polyfuse import nn
from polyfuse.codegen.cpu.intrinsics.interleave import MARK, ask_for_vectors
from polyfuse.runtime.cpu.native import assembly_text


def nested(marked: bool) -> ir.Module:
    """for i: { for j: a mark }, with a mark where asked."""
    module = ir.Module()
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), [ir.IntType(1)]), "kernel")
    entry, outer, inner, behind, end = (
        function.append_basic_block(name) for name in ("entry", "outer", "inner", "behind", "end")
    )
    (again,) = function.args
    ir.IRBuilder(entry).branch(outer)
    ir.IRBuilder(outer).branch(inner)
    body = ir.IRBuilder(inner)
    if marked:
        nothing = module.declare_intrinsic("llvm.donothing", (), ir.FunctionType(ir.VoidType(), ()))
        body.call(nothing, ()).set_metadata(MARK, module.add_metadata([ir.IntType(32)(4)]))
    body.cbranch(again, inner, behind)
    ir.IRBuilder(behind).cbranch(again, outer, end)
    ir.IRBuilder(end).ret_void()
    return module


def test_the_innermost_loop_around_a_mark_asks_for_vectors() -> None:
    module = nested(marked=True)
    ask_for_vectors(module)
    text = str(module)
    llvm.parse_assembly(text).verify()
    assert "call void @llvm.donothing" not in text
    (branch,) = [line for line in text.splitlines() if "!llvm.loop !" in line]
    assert 'label %"inner"' in branch
    assert 'label %"outer"' not in branch
    (node,) = re.findall(r"!llvm.loop (!\d+)", branch)
    assert re.search(rf"^{node} = (distinct )?!{{ {node}, ", text, re.MULTILINE), "a loop's node names itself"


def test_a_module_without_marks_stays_as_it_is() -> None:
    module = nested(marked=False)
    before = str(module)
    ask_for_vectors(module)
    assert str(module) == before


@pytest.mark.parametrize("function", [nn.erf, lambda x: nn.tanh(nn.sigmoid(x))])
def test_machine_code_has_more_vectors_side_by_side(function) -> None:  # type: ignore[no-untyped-def]
    nest = pf.lower(function(nn.input("x", (64, 512))))
    (code,) = pf.compile(nest, target="cpu").program.codes
    assert "interleave(4)" in code.source
    alone = replace(code, source=code.source.replace("interleave(4)", "interleave(1)"))
    longer, _ = assembly_text(code, with_lines=False)
    shorter, _ = assembly_text(alone, with_lines=False)
    multiplied = r"\bv?f?n?m(?:ul|add|sub)\w*p[sd]\b|\bvfn?m(?:add|sub)\w*"
    once = len(re.findall(multiplied, shorter))
    assert len(re.findall(multiplied, longer)) >= 2 * once > 0
