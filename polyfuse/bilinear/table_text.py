"""Algorithms as text: one product per line, with the blocks of C to which it is added.

    # Strassen, "Gaussian elimination is not optimal", 1969
    2 2 2
    (a11 + a22) (b11 + b22) -> c11 + c22
    (a21 + a22) b11         -> c21 - c22
    …

A block is a letter, its row and its column, counted from 1: `a12`, or `a1,12` where a number has two digits. A
coefficient stands before its block: `2 a11`. A sum of blocks of A or B stands in parentheses. What follows `#` is a
comment.
"""

from __future__ import annotations

import re

from polyfuse.bilinear.algorithm import Algorithm, algorithm
from polyfuse.errors import InvalidAlgorithm

_FACTOR = r"(\([^()]*\)|-?\s*\d*\s*[ab][\d,]+)"
_LINE = re.compile(rf"^{_FACTOR}\s*{_FACTOR}\s*->\s*(.+)$")
_TERM = re.compile(r"\s*([+-])?\s*(\d+)?\s*([abc])(?:(\d)(\d)|(\d+),(\d+))(?=[\s+-]|$)")


def from_text(name: str, text: str, modulus: int = 0) -> Algorithm:
    """Parse an algorithm from text, and prove it.

    Args:
        name: The name shown in reports.
        text: The tables, as `to_text` prints them.
        modulus: 2 for a table that multiplies modulo 2 only, else 0.

    Returns:
        The proven algorithm.

    Raises:
        InvalidAlgorithm: if a line cannot be parsed, or the identity is false; the message names the line.
    """
    lines = [(at, line.partition("#")[0].strip()) for at, line in enumerate(text.splitlines(), 1)]
    lines = [(at, line) for at, line in lines if line]
    if not lines or not re.fullmatch(r"\d+\s+\d+\s+\d+", lines[0][1]):
        raise InvalidAlgorithm(f"{name}: the first line gives the blocks: m k n, as in '2 2 2'")
    m, k, n = (int(size) for size in lines[0][1].split())
    shapes = {"a": (m, k), "b": (k, n), "c": (m, n)}
    tables: dict[str, list[list[int]]] = {"a": [], "b": [], "c": []}
    for at, line in lines[1:]:
        found = _LINE.match(line)
        if found is None:
            raise InvalidAlgorithm(
                f"{name}, line {at}: cannot read {line!r}; expected '(a11 + a22) (b11 + b22) -> c11 + c22'"
            )
        for letter, part in zip("abc", found.groups(), strict=True):
            tables[letter].append(_form(f"{name}, line {at}", letter, part, shapes[letter]))
    by_block = list(zip(*tables["c"], strict=True))
    return algorithm(name, (m, k, n), tables["a"], tables["b"], by_block, modulus=modulus)


def to_text(x: Algorithm) -> str:
    """Return the text of an algorithm, which `from_text` reads back.

    Args:
        x: The algorithm.

    Returns:
        A line with m, k and n, then one line per product: "(a11 + a22) (b11 + b22) -> c11 + c22".
    """
    lines = [f"{x.m} {x.k} {x.n}"]
    for t in range(x.rank):
        column = [row[t] for row in x.result]
        left, right = _sum("a", x.left[t], x.k), _sum("b", x.right[t], x.n)
        lines.append(f"({left}) ({right}) -> {_sum('c', column, x.n)}")
    return "\n".join(lines) + "\n"


def _form(where: str, letter: str, text: str, shape: tuple[int, int]) -> list[int]:
    """The coefficients of a sum of blocks."""
    text = text.strip().removeprefix("(").removesuffix(")").strip()
    found = [0] * (shape[0] * shape[1])
    at = 0
    while at < len(text):
        term = _TERM.match(text, at)
        if term is None or term[3] != letter or (at > 0 and term[1] is None):
            raise InvalidAlgorithm(
                f"{where}: cannot read {text[at:]!r}; expected blocks such as {letter}11 + 2 {letter}12"
            )
        row, column = int(term[4] or term[6]) - 1, int(term[5] or term[7]) - 1
        if not (0 <= row < shape[0] and 0 <= column < shape[1]):
            raise InvalidAlgorithm(f"{where}: there is no block {term[0].strip()} of {shape[0]} x {shape[1]}")
        found[row * shape[1] + column] += (-1 if term[1] == "-" else 1) * int(term[2] or 1)
        at = term.end()
    return found


def _sum(letter: str, form: tuple[int, ...] | list[int], columns: int) -> str:
    """A sum of blocks as text.

    >>> _sum("a", (1, 0, 0, -2), 2)
    'a11 - 2 a22'
    """
    text = ""
    for block, value in enumerate(form):
        if value:
            sign = "-" if value < 0 else "+" if text else ""
            row, column = block // columns + 1, block % columns + 1
            where = f"{row}{column}" if max(row, column) < 10 else f"{row},{column}"
            size = "" if abs(value) == 1 else f"{abs(value)} "
            text += f" {sign} {size}{letter}{where}" if text else f"{sign}{size}{letter}{where}"
    return text
