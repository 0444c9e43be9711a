"""Rewrite a function on arrays as one on elements, which `@pf.nest` reads; without arrays it stays as it is.

def f(x: "f64[N]", y: "f64[N]"):        ->   def f(x, y):
    y[1:-1] = 0.5 * (x[:-2] + x[2:])             for i0 in range(N - 2):
                                                     y[i0 + 1] = 0.5 * (x[i0] + x[i0 + 2])
"""

from __future__ import annotations

import ast
from copy import copy
from dataclasses import dataclass, replace

from polyfuse.frontend.python.numpy.frames import Frame
from polyfuse.frontend.python.numpy.memory import NOTES, stored_array
from polyfuse.frontend.python.numpy.program import Program
from polyfuse.frontend.python.numpy.statements.lowerer import Lowerer
from polyfuse.frontend.python.numpy.statements.rules import RULES
from polyfuse.frontend.python.numpy.statements.variables import own_numbers
from polyfuse.frontend.python.numpy.substitution import without_copies
from polyfuse.frontend.python.numpy.syntax import name, placed
from polyfuse.frontend.python.numpy.values import Scalar, Value
from polyfuse.frontend.python.parameters import assigned_names, base_context, declared_names, parameters
from polyfuse.frontend.python.source import Source
from polyfuse.ir.number_types import with_parts


@dataclass(frozen=True)
class Lowered:
    """A function on elements, where NumPy's order of reads and stores needed a temporary, which arrays that it
    makes have complex numbers, as pairs along a last axis, and which have places of other arrays.
    """

    source: Source
    notes: tuple[str, ...]
    pairs: frozenset[str] = frozenset()
    placed: frozenset[str] = frozenset()

    def __str__(self) -> str:
        """The statements that array expressions became, as Python prints them."""
        tree = copy(self.source.tree)
        tree.decorator_list = []
        return ast.unparse(tree)


def lowered(source: Source) -> Lowered:
    """Return the function on elements. Raises NotAffine, with file, line and column, for what cannot be lowered."""
    names = declared_names(source)
    context = base_context(names, tuple(names.tensors.values()))
    taken = {part.id for part in ast.walk(source.tree) if isinstance(part, ast.Name)}
    taken |= {part.arg for part in ast.walk(source.tree) if isinstance(part, ast.arg)}
    taken |= {*names.sizes, *names.tensors}
    arrays = {tensor.name for tensor in names.tensors.values() if tensor.rank}
    program = Program(names, context, taken, arrays, place=source.tree)
    weak = {each.node.arg for each in parameters(source) if each.is_python_float}
    variables: dict[str, Value] = {size: Scalar(name(size), "integer") for size in names.sizes}
    numbers: list[str] = []
    for tensor in names.tensors.values():
        if tensor.pairs:
            whole = stored_array(tensor.name, names.shapes[tensor.name][:-1], with_parts(tensor.dtype))
            variables[tensor.name] = whole if whole.rank else Scalar(whole.element(()), whole.dtype)
            numbers += [tensor.name] if not whole.rank else []
        elif tensor.rank:
            variables[tensor.name] = stored_array(tensor.name, names.shapes[tensor.name], tensor.dtype)
        elif tensor.name not in names.sizes:
            is_whole = tensor.dtype in ("int32", "int64")
            dtype = "fraction" if tensor.name in weak else "integer" if is_whole else tensor.dtype
            variables[tensor.name] = Scalar(name(tensor.name), dtype)
    frame = Frame(source, variables, label=source.function.__name__, is_first=True)
    statements = Lowerer(program, frame, RULES)
    own = own_numbers(statements, [number for number in numbers if number in names.locals])
    body = [*own, *statements.block(source.tree.body)]
    types = {tensor.name: NOTES[tensor.dtype] for tensor in names.tensors.values()}
    body = without_copies(_without_unread(body, source.tree), assigned_names(source.tree), types)
    body = body or [placed(ast.Pass(), source.tree)]
    tree = copy(source.tree)
    tree.body = [*program.assumed, *body]
    return Lowered(
        replace(source, tree=tree, added=program.added),
        tuple(program.notes),
        frozenset(program.pairs),
        frozenset(program.placed),
    )


def _without_unread(body: list[ast.stmt], before: ast.FunctionDef) -> list[ast.stmt]:
    """The statements without variables from which only shapes and bounds came, where they are written out now."""
    lost = _read([before]) & set(assigned_names(before))
    while True:
        unread = lost - _read(body)
        made = ast.Module(body, [])
        if not any(_assigns(part, unread) for part in ast.walk(made)):
            return body
        done = _Without(unread).visit(made)
        body = done.body


def _read(body: list[ast.stmt] | list[ast.FunctionDef]) -> set[str]:
    return {
        part.id
        for one in body
        for part in ast.walk(one)
        if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Load)
    }


def _assigns(node: ast.AST, names: set[str]) -> bool:
    match node:
        case (
            ast.Assign(targets=[ast.Name(id=variable)])
            | ast.AnnAssign(target=ast.Name(id=variable))
            | ast.AugAssign(target=ast.Name(id=variable))
        ):
            return variable in names
    return False


class _Without(ast.NodeTransformer):
    def __init__(self, names: set[str]) -> None:
        self.names = names

    def visit_Assign(self, node: ast.Assign) -> ast.stmt | None:
        return None if _assigns(node, self.names) else node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.stmt | None:
        return None if _assigns(node, self.names) else node

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.stmt | None:
        return None if _assigns(node, self.names) else node

    def visit_For(self, node: ast.For) -> ast.stmt | None:
        body = [kept for part in node.body for kept in [self.visit(part)] if kept is not None]
        return ast.copy_location(ast.For(node.target, node.iter, body, node.orelse), node) if body else None

    def visit_If(self, node: ast.If) -> ast.stmt | None:
        body, orelse = (
            [kept for part in parts for kept in [self.visit(part)] if kept is not None]
            for parts in (node.body, node.orelse)
        )
        if not body and not orelse:
            return None
        body = body or [ast.copy_location(ast.Pass(), node)]
        return ast.copy_location(ast.If(node.test, body, orelse), node)
