"""The network for handwritten digits: predictions as NumPy's on images that training never saw."""

from __future__ import annotations

import numpy as np

import polyfuse as pf
from papers.digits.network import inputs, kept, nest, reference


def test_predictions_are_numpys_and_right() -> None:
    data = kept()
    x = inputs(data["images"])
    assert x.shape == (360, 1, 8, 8)
    net = pf.compile(nest(len(x), data), target="cpu")
    found, exact = net(x), reference(x, data)
    np.testing.assert_allclose(found, exact, rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(found.argmax(axis=1), exact.argmax(axis=1))
    assert (found.argmax(axis=1) == data["labels"]).mean() > 0.95
    for n in range(2):
        assert (
            f"r{n}[j] leaves norm{n} for w{n}, which norm{n}_fold multiplies by it once for all calls"
            in net.explain()
        )
