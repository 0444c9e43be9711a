"""Index expressions: shifts and masks are Python's division, for negative numbers too."""

import ast
from itertools import product

import pytest

from polyfuse.codegen.looptree.index import expanded, flat, in_bits, rejoined


@pytest.mark.parametrize(
    ("text", "bits"),
    [
        ("i // 8", "i >> 3"),
        ("i % 8", "i & 7"),
        ("(i - 3) // 16 % 4 + 2 * (i % 2)", "(i - 3 >> 4 & 3) + 2 * (i & 1)"),
        ("i // 6 + i % 3", "i // 6 + i % 3"),
        ("(32 * i + i - 9) // 8", "4 * i - 1 + (i - 1 >> 3)"),
    ],
)
def test_powers_of_two_become_shifts_and_masks(text: str, bits: str) -> None:
    found = ast.unparse(in_bits(ast.parse(text, mode="eval").body))
    assert found == bits
    for i in range(-40, 41):
        assert eval(found, {"i": i}) == eval(text, {"i": i})


@pytest.mark.parametrize(
    ("text", "sum_"),
    [
        ("(i + 4 * j - 1) * 64 + j", "64 * i + 257 * j + -64"),
        ("-(j - i // 3) * 2 + 3 * (i // 3)", "-2 * j + 5 * (i // 3)"),
        ("2 * (i - j) - 2 * i + 2 * j", "0"),
    ],
)
def test_sums_are_expanded(text: str, sum_: str) -> None:
    found = ast.unparse(expanded(ast.parse(text, mode="eval").body))
    assert found == sum_
    for i in range(-9, 10):
        assert eval(found, {"i": i, "j": 5}) == eval(text, {"i": i, "j": 5})


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        ("6 * (n % 3) + 18 * (n // 3) - 5 * n", "n"),
        ("3 * (n % 4) + 12 * (n // 4) + 5 * (n % 2) - 3 * n + 576 * z", "5 * (n % 2) + 576 * z"),
        ("(m + n) % 5 + 5 * ((m + n) // 5) + n % 2 + 2 * (n // 2)", "m + 2 * n"),
        ("n - n % 4", "n - n % 4"),
        ("n % 3 + 6 * (n // 3)", "n % 3 + 6 * (n // 3)"),
        ("n % 3 + 3 * (m // 3)", "n % 3 + 3 * (m // 3)"),
        ("n % 3 + 3 * (n // 4)", "n % 3 + 3 * (n // 4)"),
        ("n % -3 - 3 * (n // -3)", "n % -3 - 3 * (n // -3)"),
    ],
)
def test_a_quotient_and_its_remainder_are_what_they_are_of(text: str, whole: str) -> None:
    found = ast.unparse(rejoined(ast.parse(text, mode="eval").body))
    assert found == whole
    for n in range(-13, 14):
        assert eval(found, {"n": n, "m": 5, "z": 2}) == eval(text, {"n": n, "m": 5, "z": 2})


class _Folded(ast.NodeTransformer):
    """Negative numbers as isl's are: one constant."""

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.expr:
        inner = self.visit(node.operand)
        return ast.Constant(-inner.value) if isinstance(inner, ast.Constant) else ast.UnaryOp(node.op, inner)


@pytest.mark.parametrize(
    ("outer", "inner", "size", "place"),
    [
        ("i // 28", "i % 28", 28, "i"),
        ("i", "j", 7, "7 * i + j"),
        ("5 * k + (-24 * k + i) // 56", "-24 * k + i - 56 * ((-24 * k + i) // 56)", 56, "256 * k + i"),
        ("9 * k + i - (3 * i - k - j + 27) // 28", "(k - 3 * i + j + 392) % 28", 28, "253 * k + 25 * i + j"),
        ("(3 * i + 5) // 7 - 1", "(3 * i + 5) % 7", 7, "3 * i + -2"),
        ("(65 * i) // 7", "(2 * i) % 7", 7, "65 * i"),
    ],
)
def test_places_along_two_axes_are_one_place(outer: str, inner: str, size: int, place: str) -> None:
    found = flat(*(_Folded().visit(ast.parse(text, mode="eval").body) for text in (outer, inner)), size)
    assert ast.unparse(found) == place
    assert_equal(ast.unparse(found), f"({outer}) * {size} + {inner}")


@pytest.mark.parametrize(
    ("outer", "inner", "size"),
    [("(i + j) // 4", "(i - j) % 4", 4), ("i // 2", "(i + 1) % 2", 2), ("i // 4", "i % 8", 8)],
)
def test_a_quotient_and_a_remainder_of_different_numbers_stay(outer: str, inner: str, size: int) -> None:
    found = ast.unparse(flat(ast.parse(outer, mode="eval").body, ast.parse(inner, mode="eval").body, size))
    assert "//" in found
    assert "%" in found
    assert_equal(found, f"({outer}) * {size} + {inner}")


def assert_equal(one: str, other: str) -> None:
    """Two expressions in i, j and k have the same values."""
    for i, j, k in product(range(-30, 31, 7), range(-9, 10, 3), range(-2, 3)):
        here = {"i": i, "j": j, "k": k}
        assert eval(one, here) == eval(other, here)
