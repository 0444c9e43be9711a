"""Find alpha-equal kernels: sources that are equal up to the names of parameters and local variables.

def mac(w, x, a): …x[i]…        def mac_2(w, a, out): …a[i]…        are one kernel, launched with other tensors
"""

from __future__ import annotations

import ast
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
    return ast.unparse(function)
