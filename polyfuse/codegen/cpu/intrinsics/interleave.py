"""Vectors of a loop that run side by side, so that a core has work while one's steps wait for each other.

    for j: y[j] = exp(x[j])         ->   for j: { interleave(4); y[j] = exp(x[j]) }

A function is a chain of some twenty steps, each of which waits four cycles for the one before. A core looks ahead as
far as its scheduler holds instructions that wait: of a function of a function that is one vector or two. With four
vectors' steps in turns it finds four that do not wait. LLVM gives long bodies one vector at a time, unless the loop
asks: `interleave` leaves a mark, and `ask_for_vectors` makes it the loop's `llvm.loop.interleave.count`.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import types
from numba.core.controlflow import CFGraph
from numba.extending import intrinsic

MARK = "polyfuse.interleave"
"""The metadata of the instruction that marks a loop's body."""


@intrinsic
def interleave(typingctx: Any, vectors: Any) -> Any:
    """Ask for so many vectors of the loop around side by side: 2, 4 or 8; runs nothing."""
    if not isinstance(vectors, types.IntegerLiteral):
        return None

    def code(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> Any:
        nothing = builder.module.declare_intrinsic("llvm.donothing", (), ir.FunctionType(ir.VoidType(), ()))
        count = ir.Constant(ir.IntType(32), vectors.literal_value)
        builder.call(nothing, ()).set_metadata(MARK, builder.module.add_metadata([count]))
        return context.get_dummy_value()

    return types.void(vectors), code


def ask_for_vectors(module: ir.Module) -> None:
    """Let each marked loop of a module ask LLVM for its vectors, and take the marks away."""
    for function in module.functions:
        marks = [
            (block, mark) for block in function.blocks for mark in block.instructions if MARK in mark.metadata
        ]
        if not marks:
            continue
        graph = _control_flow(function)
        for block, mark in marks:
            block.instructions.remove(mark)
            inside = graph.in_loops(block)
            if inside:
                _ask(module, inside[0], mark.metadata[MARK].operands[0])


def _ask(module: ir.Module, loop: Any, count: ir.Constant) -> None:
    """Give the branches back to a loop's header its metadata, a node that names itself first, as LLVM knows loops."""
    wanted = module.add_metadata([ir.MetaDataString(module, "llvm.loop.interleave.count"), count])
    node = ir.MDValue(module, [wanted], name=str(len(module.metadata)))
    node.operands = (node, wanted)
    for block in loop.body:
        if loop.header in _after(block):
            block.terminator.set_metadata("llvm.loop", node)


def _control_flow(function: ir.Function) -> CFGraph:
    graph = CFGraph()
    for block in function.blocks:
        graph.add_node(block)
    for block in function.blocks:
        for following in _after(block):
            graph.add_edge(block, following)
    graph.set_entry_point(function.entry_basic_block)
    graph.process()
    return graph


def _after(block: ir.Block) -> list[ir.Block]:
    """The blocks that may follow one."""
    return [one for one in block.terminator.operands if isinstance(one, ir.Block)]
