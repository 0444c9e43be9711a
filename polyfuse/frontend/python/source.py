"""A function's source text, and refusals that point into it."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import FunctionType
from typing import NoReturn

from polyfuse.errors import NoSource, NotAffine


@dataclass(frozen=True)
class Source:
    """A Python function with its syntax tree.

    `first` is the file's line of the tree's line 1, `indent` what was cut from the left. `added` are objects that the
    tree names and the function does not.
    """

    function: FunctionType
    tree: ast.FunctionDef
    file: str
    lines: tuple[str, ...]
    first: int
    indent: int
    added: Mapping[str, object] = field(default_factory=dict)

    def refuse(self, node: ast.AST, why: str, allowed: str) -> NoReturn:
        """Raise NotAffine at a node of the tree."""
        raise NotAffine(why, *self.place(node), allowed)

    def place(self, node: ast.AST) -> tuple[str, int, int, str]:
        """The file, line and column (from 1) of a node, and the line's text."""
        line = getattr(node, "lineno", 1)
        line = line if line <= len(self.lines) else 1  # a node of a function that was inlined
        text = self.lines[line - 1]
        # ast counts a column in bytes of UTF-8
        before = text.encode()[self.indent :][: getattr(node, "col_offset", 0)].decode()
        return self.file, self.first + line - 1, self.indent + len(before) + 1, text


def source_of(function: FunctionType) -> Source:
    """The source of a function, decorators and all.

    NoSource for a function without any: one made by exec, or typed into `python -c` or the plain prompt.
    """
    try:
        found, first = inspect.getsourcelines(function)
    except (OSError, TypeError) as error:
        raise NoSource(
            f"{getattr(function, '__name__', function)!r} has no source to read: pf.nest reads a function's text, so "
            "define it in a file or a notebook cell, not with exec or at the plain Python prompt"
        ) from error
    text = "".join(found)
    lines = tuple(text.splitlines())
    try:
        tree = ast.parse(textwrap.dedent(text)).body[0]
    except (SyntaxError, IndexError):
        tree = ast.Pass()
    if not isinstance(tree, ast.FunctionDef):
        raise NoSource(f"{function.__name__!r} is not a plain `def`: pf.nest reads plain functions only")
    indent = len(lines[0]) - len(lines[0].lstrip())
    return Source(function, tree, function.__code__.co_filename, lines, max(first, 1), indent)
