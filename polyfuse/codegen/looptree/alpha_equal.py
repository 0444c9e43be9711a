"""Find alpha-equal kernels: sources that are equal up to the names of parameters and local variables.

def mac(w, x, a): …x[i]…        def mac_2(w, a, out): …a[i]…        are one kernel, launched with other tensors

The same of parts of a loop tree, before anything is printed.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from functools import cache

import sympy

from polyfuse.codegen.looptree.nodes import Node
from polyfuse.ir.scalar import encode


def canonical(source: str) -> str:
    r"""Functions' source without their names, docstrings, and with variables numbered in order of appearance.

    >>> canonical("def f(x, y):\n    y[0] = x[0]") == canonical("def g(a, out):\n    out[0] = a[0]")
    True
    >>> canonical("def f(x, y):\n    y[0] = x[0]") == canonical("def g(a, out):\n    a[0] = out[0]")
    False
    """
    functions = [node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef)]
    names = {function.name: f"kernel_{number}" for number, function in enumerate(functions)}
    return "\n".join(_numbered(function, names) for function in functions)


def _numbered(function: ast.FunctionDef, functions: Mapping[str, str]) -> str:
    """One of a kernel's functions."""
    function.name = functions[function.name]
    if ast.get_docstring(function) is not None:
        function.body = function.body[1:]
    stored = {n.id for n in ast.walk(function) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    numbers = dict(functions)
    for argument in function.args.args:
        argument.arg = numbers.setdefault(argument.arg, f"v{len(numbers)}")
    for node in ast.walk(function):
        match node:
            case ast.Name(name) if name in stored or name in numbers:
                node.id = numbers.setdefault(name, f"v{len(numbers)}")
    return ast.unparse(function)


@dataclass(frozen=True)
class NodeForm:
    """A loop tree without the names of its arrays and variables; equal ones differ in `names` alone.

    The names are those of the arrays and the variables in order of appearance.
    """

    text: str
    names: tuple[str, ...] = field(compare=False)


def node_form(node: Node, known: Mapping[str, object]) -> NodeForm:
    """Return the form of a loop tree; `known` has each of its names, with all that printing asks of what has it."""
    numbers: dict[str, int] = {}

    def numbered(found: re.Match[str]) -> str:
        name = found[1]
        return f"#{numbers.setdefault(name, len(numbers))}" if name in known else found[0]

    words: list[str] = []
    _dump(node, words)
    text = re.sub(r"'(\w+)'", numbered, " ".join(words))
    kinds = (f"{known[name]!r}" for name in numbers)
    return NodeForm("\n".join((text, *kinds)), tuple(numbers))


def _dump(value: object, words: list[str]) -> None:
    """Add all of a loop tree as text, names in quotes."""
    if isinstance(value, str | int | None):
        words.append(repr(value))
    elif isinstance(value, tuple):
        words.append("(")
        for inner in value:
            _dump(inner, words)
        words.append(")")
    elif isinstance(value, ast.AST):
        words.append(ast.dump(value))
    elif isinstance(value, sympy.Basic):
        words.append(json.dumps(encode(value)))  # in other quotes: its names are its own
    elif is_dataclass(value) and not isinstance(value, type):
        words.append(f"({type(value).__name__}")
        for name in _fields(type(value)):
            _dump(getattr(value, name), words)
        words.append(")")
    elif isinstance(value, Mapping):
        _dump(tuple(value.items()), words)
    else:
        words.append(repr(value))


@cache
def _fields(kind: type) -> tuple[str, ...]:
    """The names of a dataclass's fields."""
    return tuple(each.name for each in fields(kind))
