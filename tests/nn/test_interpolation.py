"""Interpolation: by hand where a value lies between two, exactly on polynomials that a kernel reproduces."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

import polyfuse as pf
from polyfuse import nn


def resized(given: np.ndarray, size: object, mode: str, align_corners: bool = False) -> np.ndarray:
    x = nn.input("x", given.shape, "float64")
    return pf.interpret(pf.lower(nn.interpolate(x, size, mode, align_corners)), {"x": given})["out"]


def test_nearest_elements_by_any_factor() -> None:
    given = np.arange(12.0).reshape(1, 1, 3, 4)
    found = resized(given, (7, 2), "nearest")
    assert_allclose(found[0, 0], given[0, 0][np.arange(7) * 3 // 7][:, [0, 2]])
    assert_allclose(resized(given, (6, 8), "nearest"), given.repeat(2, 2).repeat(2, 3))


def test_lines() -> None:
    given = np.array([[[0.0, 4.0]]])
    assert_allclose(resized(given, 4, "linear")[0, 0], [0, 1, 3, 4])
    assert_allclose(resized(given, 5, "linear", align_corners=True)[0, 0], [0, 1, 2, 3, 4])


@pytest.mark.parametrize("mode", ["linear", "cubic"])
def test_a_plane_stays_one_inside(mode: str) -> None:
    rows, columns = np.mgrid[0:9.0, 0:10.0]
    found = resized((2 * rows - columns)[None, None], (17, 19), mode, align_corners=True)[0, 0]
    want = 2 * np.arange(17)[:, None] / 2 - np.arange(19)[None] / 2
    tolerance = 1e-12 if mode == "linear" else 0.2  # a = -3/4 keeps constants alone
    assert_allclose(found[4:-4, 4:-4], want[4:-4, 4:-4], rtol=0, atol=tolerance)


def test_what_is_refused() -> None:
    x = nn.input("x", (1, 2, 3))
    with pytest.raises(pf.BadArgument, match=r"interpolate: 2 sizes \(3, 4\)"):
        nn.interpolate(x, (3, 4))
    with pytest.raises(pf.BadArgument, match="mode is 'area'"):
        nn.interpolate(x, 4, "area")
