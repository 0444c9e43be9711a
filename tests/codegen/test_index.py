"""Index expressions: shifts and masks are Python's division, for negative numbers too."""

import ast

import pytest

from polyfuse.codegen.index import in_bits


@pytest.mark.parametrize(
    ("text", "bits"),
    [
        ("i // 8", "i >> 3"),
        ("i % 8", "i & 7"),
        ("(i - 3) // 16 % 4 + 2 * (i % 2)", "(i - 3 >> 4 & 3) + 2 * (i & 1)"),
        ("i // 6 + i % 3", "i // 6 + i % 3"),
    ],
)
def test_powers_of_two_become_shifts_and_masks(text: str, bits: str) -> None:
    found = ast.unparse(in_bits(ast.parse(text, mode="eval").body))
    assert found == bits
    for i in range(-40, 41):
        assert eval(found, {"i": i}) == eval(text, {"i": i})
