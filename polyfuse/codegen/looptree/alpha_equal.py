"""When two kernels are one: their sources are equal up to the names of parameters and local variables.

def mac(w, x, a): …x[i]…        def mac_2(w, a, out): …a[i]…        are one kernel, launched with other tensors
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping


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
            case ast.Call(
                ast.Name("short_row"), [_, _, ast.Constant(str(body)), ast.Constant(str(names)), *_]
            ):
                node.args[2:4] = map(ast.Constant, _of_a_row(body, names))
    return ast.unparse(function)


def _of_a_row(body: str, names: str) -> tuple[str, str]:
    """A row's assignments and names (short_row.py), which are its own, numbered as they come.

    >>> _of_a_row("z_2 = y_2 + b; out = math.sqrt(z_2)", "y_2 b out")
    ('r3 = r0 + r1; r2 = math.sqrt(r3)', 'r0 r1 r2')
    """
    assigned = re.findall(r"(\w+) =(?!=)", body)
    numbers = {name: f"r{number}" for number, name in enumerate(dict.fromkeys((*names.split(), *assigned)))}
    row, every = (
        re.sub(r"\b[A-Za-z_]\w*", lambda m: numbers.get(m[0], m[0]), text) for text in (body, names)
    )
    return row, every
