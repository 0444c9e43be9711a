"""Symbolic sizes: their normal form, their products, and what is refused."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polyfuse.errors import BadArgument
from polyfuse.nn.sizes import Affine, Product, Size, all_sizes, broadcast, names_in, size_of


def size(text: str) -> Affine:
    found = size_of("a size", text)
    assert isinstance(found, Affine)
    return found


def at(text: Size, **values: int) -> int:
    return int(eval(str(text), {"floor": math.floor}, dict(values)))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("N + M", "M + N"),
        ("2*N - N", "N"),
        ("(N - 1)//2 + 1", "(N + 1)//2"),
        ("floor((N + 3)/2)", "(N + 1)//2 + 1"),
        ("(4*N + 6)//4", "N + (6//2 + 0*N)//2 + 0"),
        ("(2*N + 5)//4", "(N + 2)//2"),
        ("((N + 1)//2 + 1)//2", "(N + 3)//4"),
        ("-(-N//2)", "N - N//2"),
        ("3*(N + 2)", "3*N + 6"),
        ("N//1", "N"),
    ],
)
def test_equal_sizes_have_one_form(one: str, other: str) -> None:
    assert size(one) == size(other)
    assert str(size(one)) == str(size(other))
    assert hash(size(one)) == hash(size(other))


@given(
    st.integers(-4, 4),
    st.integers(-9, 9),
    st.integers(1, 6),
    st.integers(-9, 9),
    st.integers(1, 5),
    st.integers(0, 40),
)
def test_arithmetic_agrees_with_numbers(a: int, b: int, c: int, d: int, e: int, n: int) -> None:
    x, y = size("N"), size("M")
    made = ((a * x + b) // c + 2 * y + d) // e - x
    assert at(made, N=n, M=3) == ((a * n + b) // c + 6 + d) // e - n
    assert isinstance(made, int) or size(str(made)) == made


def test_what_is_no_symbolic_size_any_more_is_a_number() -> None:
    n = size("N")
    assert (n - n, 0 * n, (n + 4) - n) == (0, 0, 4)
    assert (1 + n, 3 - n) == (n + 1, -(n - 3))
    assert names_in((n + size("M")) // 2) == ("M", "N")


@pytest.mark.parametrize(
    "text",
    [
        "N*M",
        "N**2",
        "N % 2",
        "N//0",
        "N//M",
        "N/2",
        "1.5*N",
        "f(N)",
        "",
        "N +",
        "4",
        "max",
        "read0",
        "True",
        "é",
    ],
)
def test_what_is_not_affine_is_refused_with_its_text(text: str) -> None:
    with pytest.raises(BadArgument, match=r"batch: .* is not affine in sizes; expected integers, names"):
        all_sizes("batch", text)


@pytest.mark.parametrize("given", [2.5, None, True, b"N"])
def test_what_is_no_size_is_refused(given: object) -> None:
    with pytest.raises(BadArgument, match="batch: expected an integer, or a size such as"):
        size_of("batch", given)


def test_comparisons_are_decided_by_numbers_or_refused() -> None:
    n = size("N")
    assert n < n + 1 <= n + 1
    assert n + 2 > n >= n
    assert [n % 1, (4 * n + 3) % 2, str(n % 2)] == [0, 1, "N - 2 * floor((N)/2)"]
    for needs in (
        lambda: n < 3,
        lambda: n > 0,
        lambda: range(n),
        lambda: 4 % n,
        lambda: float(n),
        lambda: n / 2,
    ):
        with pytest.raises(BadArgument, match="a number is needed here"):
            needs()


def test_shapes_broadcast_where_sizes_are_known_to_be_equal() -> None:
    n, m = size("N"), size("M")
    assert broadcast(((n, 1), (3,))) == (n, 3)
    assert broadcast(((n, 4), (1, 4), (4,), ())) == (n, 4)
    assert broadcast(((n,), (m,))) is None
    assert broadcast(((n,), (4,))) is None


def test_products_are_equal_whatever_their_order_and_divide() -> None:
    n, t = size("N"), size("T")
    assert Product.of((n, 3, 4, t)) == Product.of((12 * t, n))
    assert Product.of((n, 12)).over(Product.of((3,))) == 4 * n
    assert Product.of((n, t)).over(Product.of((n,))) == t
    assert Product.of((n, t)).over(Product.of((2,))) is None
    assert Product.of((n, t, 8)).over(Product.of((8,))) is None
    assert Product.of((0, n)).over(Product.of((4,))) == 0
    assert str(Product.of((n + 1, 3))) == "3 * (N + 1)"
