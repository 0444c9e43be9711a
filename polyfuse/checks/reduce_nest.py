"""Edits of a nest that make it smaller, for nests without a source to edit: networks, and statements as text.

    zero0, mac0, bias0, relu0, zero1, mac1   ->   mac0, bias0          without some of its statements
    x[8, 512], 0 <= k <= 511                 ->   x[8, 1], k <= 0      a number smaller wherever it stands
    a[i, j] = max(z[i, j] + b[j], 0)         ->   a[i, j] = z[i, j]    an operand in place of an expression

The nest is written as a Python file (nest_source.py), and an edit makes another file. A tensor whose writers are gone
becomes an input, one whose readers are gone an output.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from polyfuse.checks.nest_source import HEAD, nest_source, statement_source
from polyfuse.errors import PolyfuseError
from polyfuse.ir import Nest, Tensor
from polyfuse.ir.nest import ordered_statements, textual_order
from polyfuse.ir.nest_text import statement
from polyfuse.ir.statement import Statement
from polyfuse.ir.tensor import Role
from polyfuse.ir.tree import restrict


def nest_edits(text: str) -> Iterator[str]:
    """Files of nests that are smaller than that of a file by one edit, those that take away most first."""
    nest = nest_of(text)
    yield from (nest_source(less) for less in _with_less_statements(nest))
    yield from _with_less_numbers(text)
    yield from (nest_source(less) for less in _with_operands(nest))
    if nest.order != textual_order(nest.statements):
        yield nest_source(replace(nest, order=textual_order(nest.statements)))


def nest_of(text: str) -> Nest:
    """The nest that a file of nest_source.py makes."""
    variables: dict[str, Any] = {}
    exec(text, variables)
    nest = variables["nest"]
    assert isinstance(nest, Nest)
    return nest


def _with_less_statements(nest: Nest) -> Iterator[Nest]:
    """Leave out a run of statements: halves, quarters, …, single ones."""
    every = ordered_statements(nest)
    length = len(every) // 2
    while length:
        for first in range(0, len(every), length):
            less = with_statements(nest, (*every[:first], *every[first + length :]))
            if less is not None:
                yield less
        length //= 2


def with_statements(nest: Nest, kept: tuple[Statement, ...]) -> Nest | None:
    """A nest of some of the statements, in their order; None if these are no nest by themselves."""
    order = restrict(nest.order, frozenset(s.name for s in kept))
    tensors = [t for t in (_in_role(nest, tensor, kept) for tensor in nest.tensors) if t is not None]
    read = {t.gather.table for t in tensors if t.gather} | {t.gather.index for t in tensors if t.gather}
    parts = [t for t in nest.tensors if t.name in read and all(t.name != known.name for known in tensors)]
    if order is None or not any(t.is_visible for t in tensors):
        return None
    less = replace(
        nest,
        tensors=(*parts, *tensors),
        statements=tuple(s for s in nest.statements if s in kept),
        order=order,
        constants={t.name: nest.constants[t.name] for t in (*parts, *tensors) if t.role == "constant"},
        defaults={},
    )
    try:
        less.check()
    except PolyfuseError:
        return None
    return less


def _in_role(nest: Nest, tensor: Tensor, kept: tuple[Statement, ...]) -> Tensor | None:
    """A tensor as some statements use it; None if they do not."""
    uses = [s for s in kept if tensor.name in s.tensors]
    if not uses:
        return None
    if tensor.role in ("constant", "gathered"):
        return tensor
    writes = any(s.write.tensor == tensor.name for s in uses)
    first = uses[0]
    gone = {s.name for s in nest.writers(tensor.name)} - {s.name for s in uses}
    needed = tensor.is_given or (
        bool(gone) and (first.is_reduction or any(a.tensor == tensor.name for a in first.reads))
    )
    left = any(a.tensor == tensor.name for s in kept for a in s.reads)
    role: Role = tensor.role
    if needed:
        role = "inout" if writes else "input"
    elif not tensor.is_visible and not left:
        role = "output"
    return replace(tensor, role=role)


NUMBER = r"(?<![\w.])(?<!e[-+])(?P<number>\d+)(?![\w.])"
"""A whole number: no part of a name, of a fraction or of an exponent."""


def _with_less_numbers(text: str) -> Iterator[str]:
    """Make a size smaller wherever it stands, and with it the last index, as a bound or anywhere; or the size alone."""
    body = text.removeprefix(HEAD)
    for number in sorted({int(found["number"]) for found in re.finditer(NUMBER, body)}, reverse=True):
        for less in sorted({1, 2, number // 2, number - 1}):
            if 0 < less < number:
                size = _exchanged(NUMBER, number, less, body)
                yield HEAD + _exchanged(rf"(?<=<= ){NUMBER}", number - 1, less - 1, size)
                yield HEAD + _exchanged(NUMBER, number, less, _exchanged(NUMBER, number - 1, less - 1, body))
                yield HEAD + size


def _exchanged(pattern: str, number: int, less: int, text: str) -> str:
    """A text with one number in place of another wherever a pattern finds it."""
    return re.sub(pattern, lambda found: str(less) if found["number"] == str(number) else found[0], text)


def _with_operands(nest: Nest) -> Iterator[Nest]:
    """Put an operand in place of the value of a statement."""
    for at, s in enumerate(nest.statements):
        target, value = statement_source(s).split(f" {s.op} ", 1)
        for operand in _operands(ast.parse(value, mode="eval").body):
            try:
                new = statement(s.domain, f"{target} {s.op} {operand}")
            except (PolyfuseError, SyntaxError):
                continue
            every = tuple(new if p == at else other for p, other in enumerate(nest.statements))
            less = with_statements(replace(nest, statements=every), every)
            if less is not None:
                yield less


def _operands(node: ast.expr) -> Iterator[str]:
    """The operands of an expression, and 1 for what is none."""
    match node:
        case ast.BinOp(left, _, right):
            yield from (ast.unparse(left), ast.unparse(right))
        case ast.UnaryOp(_, operand):
            yield ast.unparse(operand)
        case ast.Call(_, arguments):
            yield from map(ast.unparse, arguments)
        case ast.Subscript():
            yield "1"
