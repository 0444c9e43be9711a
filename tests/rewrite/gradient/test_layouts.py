"""How the sums of a weight's gradient lie."""

from __future__ import annotations

import numpy as np
import pytest

import polyfuse as pf
from polyfuse import nn
from polyfuse.rewrite.gradient.layouts import window_layout


@pytest.mark.parametrize(
    ("window", "stride", "layout"),
    [(3, 1, (2, 3, 1, 0)), (3, 2, (2, 3, 1, 0)), (1, 2, (2, 3, 1, 0)), (1, 1, None)],
)
def test_filters_are_columns_where_steps_are_no_rows(
    window: int, stride: int, layout: tuple[int, ...] | None
) -> None:
    """Windows of one element go through whole rows of pixels, unless they skip some."""
    x, w = nn.input("x", (2, 5, 8, 8)), nn.input("w", (7, 5, window, window))
    nest = pf.lower(nn.conv2d(x, w, stride=stride, padding=window // 2))
    product = nest.statement("mac0")
    weight = next(k for k, read in enumerate(product.reads) if read.tensor == "w")
    assert window_layout(product, weight) == layout


def test_the_gradient_of_a_window_of_one_element_that_skips_pixels() -> None:
    x, w = nn.input("x", (2, 5, 8, 8)), nn.input("w", (7, 5, 1, 1))
    nest = pf.vjp(pf.lower(nn.conv2d(x, w, stride=2)), wrt=("w",))
    rng = np.random.default_rng(0)
    data = [
        rng.standard_normal(shape).astype(np.float32) for shape in ((2, 5, 8, 8), (7, 5, 1, 1), (2, 7, 4, 4))
    ]
    found = pf.compile(nest, target="cpu")(*data)
    expected = np.einsum("nfkl,nckl->fc", data[2], data[0][:, :, ::2, ::2])
    np.testing.assert_allclose(found[..., 0, 0], expected, rtol=1e-4, atol=1e-5)
