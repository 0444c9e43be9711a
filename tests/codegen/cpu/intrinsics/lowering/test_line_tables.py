"""Tables of lines name functions and lines, and no variables or types."""

from __future__ import annotations

from llvmlite import ir
from numba import types
from numba.core.registry import cpu_target

from polyfuse.codegen.cpu.intrinsics.lowering.line_tables import LineTables


def test_lines_need_no_variables_and_no_types_of_arguments() -> None:
    cpu_target.target_context.refresh()
    module = ir.Module("lines")
    tables = LineTables(module, "/tmp/lines.py", cpu_target.target_context, True)
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), [ir.DoubleType()] * 2), "f")
    builder = ir.IRBuilder(function.append_basic_block())
    tables.mark_subprogram(function, "f", ("x", "y"), (types.float64, types.float64), 1)
    place = builder.alloca(ir.DoubleType())
    tables.mark_variable(builder, place, "x", ir.DoubleType(), 8, 2, argidx=1)
    for line in (2, 3, 2):
        tables.mark_location(builder, line)
        builder.store(ir.Constant(ir.DoubleType(), 0.0), place)
    builder.ret_void()
    tables.finalize()
    text = str(module)
    assert text.count("!DILocation(") == 2
    assert "DISubprogram" in text
    assert "DILocalVariable" not in text
    assert "DIBasicType" not in text
