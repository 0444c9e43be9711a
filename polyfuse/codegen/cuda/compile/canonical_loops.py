"""Loops over ranges as while loops, which NVIDIA's compiler counts itself.

    for k in range(a, n):          k = a
        …                    ->    k_end = n
                                   while k < k_end:
                                       …
                                       k += 1

numba counts the passes that are left in a variable beside the loop's, and chooses both anew where a pass begins. NVVM
does not see that they go together: an unrolled pass of `y += a[k] * w[k * 64 + tx]` had 19 instructions for each
multiply-add, 17 of them to find addresses. As a while loop it has 3, and addresses are constants in its loads.

In kernels whose registers are planned for tiles of results only loops of many passes or long ones, in which a block's
threads wait for each other (1137 instructions for 1143, of 16 steps of 8 x 8 results): NVVM would unroll others,
reorder what is copied around them, and take 99 registers for 96 that were planned.
"""

from __future__ import annotations

import ast
from math import prod

from polyfuse.codegen.cuda.device_ops import DEVICE_OPS
from polyfuse.ir.fresh_names import fresh

WAIT = "syncthreads"
"""The barrier of all threads of a block."""

FEW = 16
"""Passes up to which NVVM may write out a while loop: one of six, each of 48 multiply-adds, had 8 bytes spilled of 72
registers, and takes 63 as it is."""

LONG = 256
"""Multiply-adds of a pass that NVVM does not write out: an estimate, since it did with 48, and did not with 1024."""


def counted(function: ast.FunctionDef, waiting: bool = False) -> ast.FunctionDef:
    """The function with a while loop for each of its loops over a range, whose steps are positive.

    If `waiting`, for those alone in which a block's threads wait for each other, of many passes or long ones.
    """
    names = {node.id for node in ast.walk(function) if isinstance(node, ast.Name)}
    names |= {each.arg for each in function.args.args}
    made: ast.FunctionDef = _Counted(names, waiting).visit(function)
    return ast.fix_missing_locations(made)


def _stays(loop: ast.For) -> bool:
    """True if a loop in which a block's threads wait for each other stays one: of many passes, or long ones."""
    if not any(isinstance(node, ast.Attribute) and node.attr == WAIT for node in ast.walk(loop)):
        return False
    match loop.iter:
        case ast.Call(args=[ast.Constant(value=int(low)), ast.Constant(value=int(high))]) if high - low > FEW:
            return True
    return any(_multiply_adds(node) >= LONG for node in ast.walk(loop))


def _multiply_adds(node: ast.AST) -> int:
    """The multiply-adds of an unrolled product: `most` steps of rows by columns."""
    match node:
        case ast.Call(ast.Name("tile_fma"), arguments):
            given = DEVICE_OPS["tile_fma"].named(arguments)
            return prod(int(ast.literal_eval(given[each])) for each in ("rows", "columns", "most"))
    return 0


class _Counted(ast.NodeTransformer):
    def __init__(self, taken: set[str], waiting: bool) -> None:
        self.taken, self.waiting = taken, waiting

    def visit_For(self, node: ast.For) -> ast.stmt | list[ast.stmt]:
        self.generic_visit(node)
        if self.waiting and not _stays(node):
            return node
        assert isinstance(node.target, ast.Name), "a kernel's loops have one variable"
        assert isinstance(node.iter, ast.Call), "a kernel's loops are over ranges"
        first, end, step = _bounds(node.iter)
        variable, before = ast.Name(node.target.id, ast.Load()), [ast.Assign([node.target], first)]
        if not isinstance(end, ast.Constant):
            name = fresh(f"{node.target.id}_end", self.taken)
            self.taken.add(name)
            before.append(ast.Assign([ast.Name(name, ast.Store())], end))
            end = ast.Name(name, ast.Load())
        on = ast.AugAssign(ast.Name(node.target.id, ast.Store()), ast.Add(), step)
        loop = ast.While(ast.Compare(variable, [ast.Lt()], [end]), [*node.body, on], [])
        return [ast.copy_location(each, node) for each in (*before, loop)]


def _bounds(call: ast.Call) -> tuple[ast.expr, ast.expr, ast.expr]:
    """range(end), range(first, end), range(first, end, step)"""
    match call.args:
        case [end]:
            return ast.Constant(0), end, ast.Constant(1)
        case [first, end]:
            return first, end, ast.Constant(1)
        case [first, end, step]:
            return first, end, step
    raise AssertionError("a range has one, two or three numbers")
