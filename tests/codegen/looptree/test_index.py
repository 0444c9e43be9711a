"""Index expressions: shifts and masks are Python's division, for negative numbers too."""

import ast

import pytest

from polyfuse.codegen.looptree.index import expanded, in_bits, rejoined


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
