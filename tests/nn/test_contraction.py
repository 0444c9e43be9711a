"""einsum on values against NumPy's."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

import polyfuse as pf
from polyfuse import nn

RNG = np.random.default_rng(2)


@pytest.mark.parametrize(
    ("subscripts", "shapes"),
    [
        ("ik,kj->ij", [(3, 4), (4, 5)]),
        ("ik,kj", [(3, 4), (4, 5)]),
        ("bhqd,bhkd->bhqk", [(2, 2, 3, 4), (2, 2, 5, 4)]),
        ("...ij,...jk->...ik", [(2, 1, 3, 4), (5, 4, 2)]),
        ("...i->...", [(2, 3)]),
        ("ii->i", [(4, 4)]),
        ("ii", [(4, 4)]),
        ("i,j->ij", [(3,), (4,)]),
        ("ij,ij,i->j", [(3, 4), (3, 4), (3,)]),
        ("i...->...i", [(3, 4, 5)]),
    ],
)
def test_are_what_numpy_computes(subscripts: str, shapes: list[tuple[int, ...]]) -> None:
    arrays = {name: RNG.standard_normal(shape) for name, shape in zip("abc", shapes, strict=False)}
    values = [nn.input(name, array.shape, "float64") for name, array in arrays.items()]
    found = pf.interpret(pf.lower(nn.einsum(subscripts, *values)), arrays)["out"]
    assert_allclose(found, np.einsum(subscripts, *arrays.values()), rtol=1e-12, atol=1e-12)


def test_compiled() -> None:
    x, w = (
        RNG.standard_normal((2, 9, 3, 8)).astype("float32"),
        RNG.standard_normal((3, 8, 5)).astype("float32"),
    )
    net = pf.compile(pf.lower(nn.einsum("bthd,hdo->bto", nn.input("x", x.shape), w)))
    assert_allclose(net(x), np.einsum("bthd,hdo->bto", x, w), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("subscripts", "shapes", "why"),
    [
        ("ik,kj", [(3, 4)], "has 2 operands; 1 are given"),
        ("ik->ij", [(3, 4)], "the result has each of its indices once"),
        ("ik->ii", [(3, 4)], "the result has each of its indices once"),
        ("i", [(3, 4)], "'i' does not fit an operand with 2 axes"),
        ("i1", [(3, 4)], "'i1' does not fit"),
        ("ik,kj", [(3, 4), (5, 6)], "index k has the sizes 4 and 5"),
        ("...k,...k", [(3, 4), (2, 4)], "index -1 has the sizes 3 and 2"),
    ],
)
def test_what_does_not_fit(subscripts: str, shapes: list[tuple[int, ...]], why: str) -> None:
    values = [nn.input(name, shape) for name, shape in zip("abc", shapes, strict=False)]
    with pytest.raises(pf.BadArgument, match=why):
        nn.einsum(subscripts, *values)
