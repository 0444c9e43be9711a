"""The statements and loops of each line of a kernel's source, found by the names in it.

A kernel's docstring has one line for each of its statements, in its names: "mac: y[i, j] += x[i, k] * w[k, j]".
A line of source runs the statements whose arrays it names, all of them; of two statements of which one's arrays are
among the other's, it runs the other. An array that has no memory in the kernel, only a variable, is not asked for.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from dataclasses import dataclass

_NAMES = re.compile(r"[A-Za-z_]\w*(?=\[)")


@dataclass(frozen=True)
class Line:
    """One line of source.

    Attributes:
        text: The line.
        statements: The statements that it runs; of a loop, those inside it.
        loop: The variable, if the line begins a loop.
    """

    text: str
    statements: tuple[str, ...] = ()
    loop: str | None = None


def source_lines(source: str, statements: Sequence[str]) -> tuple[Line, ...]:
    """Return the lines of a kernel's source, each with the statements that it runs.

    Args:
        source: The source; the kernel is its last function.
        statements: The kernel's statements, in order.

    Returns:
        One entry per line; without statements where none is known.
    """
    texts = source.rstrip("\n").split("\n")
    kernel = [node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef)][-1]
    described = [line.strip() for line in (ast.get_docstring(kernel, clean=False) or "").strip().split("\n")]
    arrays = [frozenset(_NAMES.findall(line.partition(": ")[2])) for line in described]
    found: dict[int, tuple[tuple[str, ...], str | None]] = {}
    if len(arrays) == len(statements):
        body = kernel.body[1:]
        in_memory = {name for node in _leaves(body) for name in _stored(node)}
        first = kernel.body[0].lineno + 1  # the docstring's own first line is empty
        found |= {first + k: ((name,), None) for k, name in enumerate(statements)}
        _mark(body, list(zip(statements, (each & in_memory for each in arrays), strict=True)), found)
    return tuple(Line(text, *found.get(number, ((), None))) for number, text in enumerate(texts, 1))


def _leaves(body: Sequence[ast.stmt]) -> list[ast.stmt]:
    """The statements of a body that have no others inside."""
    every = (node for top in body for node in ast.walk(top) if isinstance(node, ast.stmt))
    return [node for node in every if not hasattr(node, "body")]


def _stored(node: ast.stmt) -> set[str]:
    """The arrays that a line names: with subscripts, or as an argument of a call."""
    found = set()
    for each in ast.walk(node):
        inner = [each.value] if isinstance(each, ast.Subscript) else []
        if isinstance(each, ast.Call):
            inner = [*each.args, *(word.value for word in each.keywords)]
        found |= {part.id for part in inner if isinstance(part, ast.Name)}
    return found


def _mark(
    body: Sequence[ast.stmt],
    known: Sequence[tuple[str, frozenset[str]]],
    found: dict[int, tuple[tuple[str, ...], str | None]],
) -> list[str]:
    """Note the lines of a body; return the statements that it runs."""
    inside: list[str] = []
    for node in body:
        if hasattr(node, "body"):
            own = _mark([*node.body, *getattr(node, "orelse", ())], known, found)
            target = node.target if isinstance(node, ast.For) else None
            found[node.lineno] = (tuple(own), target.id if isinstance(target, ast.Name) else None)
        else:
            own = _run_by(node, known)
            for number in range(node.lineno, (node.end_lineno or node.lineno) + 1):
                found[number] = (tuple(own), None)
        inside += [name for name in own if name not in inside]
    return inside


def _run_by(node: ast.stmt, known: Sequence[tuple[str, frozenset[str]]]) -> list[str]:
    named = {
        each.id for each in ast.walk(node) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Load)
    }
    fit = [(name, arrays) for name, arrays in known if arrays and arrays <= named]
    return [name for name, arrays in fit if not any(arrays < other for _, other in fit)]
