"""Lower returns: the arrays and numbers that a function gives back.

if c: return a
return b                     ->   return a if c else b
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import replace

from polyfuse.frontend.python.numpy.broadcasting import broadcast
from polyfuse.frontend.python.numpy.expressions.comparisons import condition
from polyfuse.frontend.python.numpy.memory import stored_array
from polyfuse.frontend.python.numpy.statements.lowerer import Lowerer
from polyfuse.frontend.python.numpy.stores import materialize
from polyfuse.frontend.python.numpy.syntax import name
from polyfuse.frontend.python.numpy.values import Array, Scalar, Static
from polyfuse.ir.number_types import is_complex


def give_back(lowerer: Lowerer, node: ast.Return) -> None:
    """return value, …."""
    if lowerer.frame.is_first:
        _give_back_first(lowerer, node)
        return
    result = lowerer.results[-1]
    if node.value is not None:
        result.value = lowerer.evaluator.value(node.value)
    result.is_given = True


def _give_back_first(lowerer: Lowerer, node: ast.Return) -> None:
    if node.value is None or (isinstance(node.value, ast.Constant) and node.value.value is None):
        lowerer.program.emit(node)
        return
    if isinstance(node.value, ast.List):
        lowerer.evaluator.refuse(node.value, "a list is returned", "a tuple, or np.array(…)")
    value = lowerer.evaluator.value(node.value)
    if (
        isinstance(value, Static) and value.value is None
    ):  # that of a function that is called for what it changes
        lowerer.program.emit(ast.copy_location(ast.Return(None), node))
        return
    values = value if isinstance(value, tuple) else (value,)
    written = node.value.elts if isinstance(node.value, ast.Tuple) else []
    nodes = written if len(written) == len(values) else [node.value] * len(values)
    parts: list[ast.expr] = []
    for part, one in zip(nodes, values, strict=True):
        if isinstance(one, Scalar) and is_complex(one.dtype):
            parts.append(_result(lowerer, part, broadcast(lowerer.program, one, ()), []))
        elif isinstance(one, Scalar):
            parts.append(one.node)
        elif isinstance(one, Array):
            parts.append(_result(lowerer, part, one, [p.id for p in parts if isinstance(p, ast.Name)]))
        elif isinstance(one, tuple):
            lowerer.evaluator.refuse(
                part,
                f"{ast.unparse(part)}: a tuple inside of what is returned",
                "arrays and numbers: *divmod(x, y)",
            )
        else:
            parts.append(part)
    same = len(parts) == len(nodes) and all(a is b for a, b in zip(parts, nodes, strict=True))
    if same:
        lowerer.program.emit(node)
        return
    whole = parts[0] if len(parts) == 1 else ast.Tuple(parts, ast.Load())
    lowerer.program.emit(ast.copy_location(ast.Return(whole), node))


def _result(lowerer: Lowerer, node: ast.expr, value: Array, given: Sequence[str]) -> ast.expr:
    """The variable of an array that is returned: one that the function made, or a copy of another."""
    program = lowerer.program
    value = replace(value, shape=tuple(map(program.settled, value.shape)))
    index = tuple(name(f"d{k}") for k in range(value.rank))
    whole = value.storage is not None and ast.unparse(value.element(index)) == ast.unparse(
        stored_array(value.storage, value.shape, value.dtype).element(index)
    )
    plain = whole and value.storage not in program.parameters | program.longer and value.storage not in given
    if plain and value.storage is not None:
        is_name = isinstance(node, ast.Name) and node.id == value.storage
        return node if is_name else ast.copy_location(ast.Name(value.storage, ast.Load()), node)
    made = materialize(program, replace(value, storage=None), "result")
    assert made.storage is not None, "kept arrays have memory"
    return ast.copy_location(ast.Name(made.storage, ast.Load()), node)


def early_return(lowerer: Lowerer, node: ast.If, rest: list[ast.stmt]) -> None:
    """if c: return a; return b  ->  a if c else b."""
    test = condition(lowerer.evaluator, node.test)
    if isinstance(test, bool):
        lowerer.statements(
            [*(node.body if test else node.orelse), *([] if test and _ends(node.body) else rest)]
        )
        return
    then, other = node.body, [*node.orelse, *rest]
    match then, other:
        case [ast.Return(value=ast.expr() as a)], [ast.Return(value=ast.expr() as b), *_]:
            both = ast.copy_location(ast.IfExp(node.test, a, b), node)
            if lowerer.results:
                lowerer.results[-1].value, lowerer.results[-1].is_given = lowerer.evaluator.value(both), True
            else:
                give_back(lowerer, ast.copy_location(ast.Return(both), node))
            return
    early = next(part for part in ast.walk(node) if isinstance(part, ast.Return))
    lowerer.evaluator.refuse(early, "a return before the end", "if test: return a, and then return b")


def _ends(body: Sequence[ast.stmt]) -> bool:
    return bool(body) and isinstance(body[-1], ast.Return)
