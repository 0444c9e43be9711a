"""The statements and loops of each line of a kernel's source, found by the names in it.

A kernel's docstring has one line for each of its statements, in its names: "mac: y[i, j] += x[i, k] * w[k, j]".
A line of source runs a statement if it names the arrays that the statement reads, and the one that it writes; an array
that is only a variable here has to be named where it is assigned. Of two statements of which one's names are among the
other's, the line runs the other. A function that a line calls runs what the line runs.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
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
    functions = [node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef)]
    kernel = functions[-1]
    described = [line.strip() for line in (ast.get_docstring(kernel, clean=False) or "").strip().split("\n")]
    found: dict[int, Found] = {}
    if len(described) == len(statements):
        rows = {f.name: f for f in functions if any(ast.unparse(d) == ROW for d in f.decorator_list)}
        bodies = [(f, f.body[1:] if f is kernel else f.body) for f in functions if f.name not in rows]
        in_memory = {name for _, body in bodies for node in _leaves(body) for name in _stored(node)}
        known = [_needs(name, line, in_memory) for name, line in zip(statements, described, strict=True)]
        for function, body in bodies:
            own = _mark(body, known, rows, found)
            if function is not kernel:
                found[function.lineno] = (tuple(own), None)
        first = kernel.body[0].lineno + 1  # the docstring's own first line is empty
        found |= {first + k: ((name,), None) for k, name in enumerate(statements)}
    texts = source.rstrip("\n").split("\n")
    return tuple(Line(text, *found.get(number, ((), None))) for number, text in enumerate(texts, 1))


ROW = "VectorRow"
"""What decorates a function of one row, whose parameters have names of their own."""

Found = tuple[tuple[str, ...], str | None]
"""The statements of a line, and the variable of the loop that it begins."""


@dataclass(frozen=True)
class Needs:
    """What a line has to name to run a statement.

    Attributes:
        statement: The statement.
        sums: The variables that hold a sum, or another reduction, of the statement for a while.
        write: The array that it writes.
        in_memory: Whether this array has memory in the kernel, and is not only a variable.
        reads: The arrays that it reads, those with memory.
        arrays: All arrays of the statement.
    """

    statement: str
    sums: frozenset[str]
    write: str
    in_memory: bool
    reads: frozenset[str]
    arrays: frozenset[str]


def _needs(statement: str, described: str, in_memory: set[str]) -> Needs:
    """What a line has to name, from the statement's line in the docstring."""
    name, _, text = described.partition(": ")
    sums = frozenset((f"{name}_sum", f"{name}_value"))
    target = text.split("=", 1)[0].rstrip("+*<> ")
    write = target.partition("[")[0].strip().removesuffix(" max").removesuffix(" min")
    reads = frozenset(_NAMES.findall(text.split("=", 1)[-1]))
    return Needs(statement, sums, write, write in in_memory, reads & in_memory, reads | {write})


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
    known: Sequence[Needs],
    rows: Mapping[str, ast.FunctionDef],
    found: dict[int, Found],
) -> list[str]:
    """Note the lines of a body, and of the functions of rows that it names; return the statements that it runs."""
    inside: list[str] = []
    for node in body:
        if hasattr(node, "body"):
            own = _mark([*node.body, *getattr(node, "orelse", ())], known, rows, found)
            target = node.target if isinstance(node, ast.For) else None
            variable = target.id.removesuffix("_core") if isinstance(target, ast.Name) else None
            found[node.lineno] = (tuple(own), variable)
        else:
            own = _run_by(node, known)
            named = {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
            for part in (node, *(rows[name] for name in named & rows.keys())):
                for number in range(part.lineno, (part.end_lineno or part.lineno) + 1):
                    before = found.get(number, ((), None))[0]
                    found[number] = (tuple(dict.fromkeys((*before, *own))), None)
        inside += [name for name in own if name not in inside]
    return inside


def _run_by(node: ast.stmt, known: Sequence[Needs]) -> list[str]:
    names = [each for each in ast.walk(node) if isinstance(each, ast.Name)]
    loaded = {each.id for each in names if isinstance(each.ctx, ast.Load)}
    assigned = {each.id for each in names if isinstance(each.ctx, ast.Store)}
    summing = [needs.statement for needs in known if needs.sums & (loaded | assigned)]
    if summing:
        return summing
    fit: list[tuple[str, frozenset[str]]] = []
    for needs in known:
        if needs.in_memory:  # an assignment to its name makes the array, and runs nothing
            named, written = loaded, needs.write in loaded
        else:
            named, written = loaded | assigned, not assigned or needs.write in assigned
        if written and needs.reads <= named and needs.arrays & named:
            fit.append((needs.statement, needs.arrays & named))
    return [name for name, arrays in fit if not any(arrays < other for _, other in fit)]
