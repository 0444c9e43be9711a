"""Emitted source in tests: as code whose source Python finds, and as text without line breaks in calls."""

from __future__ import annotations

import ast
import linecache
import re
from itertools import count
from typing import Any

from polyfuse.codegen.cuda.device_ops import DEVICE_OPS

_numbers = count()


def in_one_line(source: str) -> str:
    """Source with each call in one line.

    >>> in_one_line("f(\\n    x=1, y=2,\\n    z=3,\\n)")
    'f(x=1, y=2, z=3)'
    """
    return re.sub(r",\s+\)", ")", re.sub(r"\(\s+", "(", re.sub(r",\s+", ", ", source)))


def in_positions(source: str) -> str:
    """CUDA source in which each call is in one line, with its arguments by position.

    >>> in_positions("    await_copies(\\n        still_open=1,\\n    )")
    '    await_copies(1)'
    """

    def in_order(found: re.Match[str]) -> str:
        call = ast.parse(found[0].strip(), mode="eval").body
        assert isinstance(call, ast.Call), found[0]
        arguments = DEVICE_OPS[found[2]].in_order(call)
        assert arguments is not None, found[0]
        return found[1] + ast.unparse(ast.Call(call.func, arguments, []))

    return re.sub(r"^( *)(\w+)\(\n(?:.*\n)*?\1\)", in_order, source, flags=re.MULTILINE)


def executed(text: str, space: dict[str, Any]) -> dict[str, Any]:
    """The names that running a text defines, among those that it may use."""
    file = f"<emitted {next(_numbers)}>"
    linecache.cache[file] = len(text), None, text.splitlines(keepends=True), file
    exec(compile(text, file, "exec"), space)
    return space
