"""Loops over ranges as while loops, which NVIDIA's compiler counts itself.

    for k in range(a, n):          k = a
        …                    ->    k_end = n
                                   while k < k_end:
                                       …
                                       k += 1

numba counts the passes that are left in a variable beside the loop's, and chooses both anew where a pass begins. NVVM
does not see that they go together: an unrolled pass of `y += a[k] * w[k * 64 + tx]` had 19 instructions for each
multiply-add, 17 of them to find addresses. As a while loop it has 3, and addresses are constants in its loads.

Not in kernels whose registers are planned for tiles of results: NVVM would unroll and reorder what is copied around
them, and take 99 registers for 96 that were planned.
"""

from __future__ import annotations

import ast

from polyfuse.ir.names import fresh


def counted(function: ast.FunctionDef) -> ast.FunctionDef:
    """The function with a while loop for each of its loops over a range, whose steps are positive."""
    names = {node.id for node in ast.walk(function) if isinstance(node, ast.Name)}
    names |= {each.arg for each in function.args.args}
    made: ast.FunctionDef = _Counted(names).visit(function)
    return ast.fix_missing_locations(made)


class _Counted(ast.NodeTransformer):
    def __init__(self, taken: set[str]) -> None:
        self.taken = taken

    def visit_For(self, node: ast.For) -> list[ast.stmt]:
        assert isinstance(node.target, ast.Name), "a kernel's loops have one variable"
        assert isinstance(node.iter, ast.Call), "a kernel's loops are over ranges"
        self.generic_visit(node)
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
