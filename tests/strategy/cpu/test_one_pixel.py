"""Layers on images of one pixel, as in squeeze-and-excitation: loops of one value are not taken for rows of memory."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

import polyfuse as pf
from polyfuse import nn


def test_channels_of_one_pixel_are_summed_in_vectors() -> None:
    """Five statements in one loop over images: each sum is one loop over channels, and added up outside of memory."""
    rng = np.random.default_rng(6)
    w, b = (rng.standard_normal(shape).astype(np.float32) for shape in ((576, 144, 1, 1), (576,)))
    pooled, image = nn.input("pooled", (1, 144, 1, 1)), nn.input("image", (1, 576, 2, 2))
    nest = pf.lower(nn.hardsigmoid(nn.conv2d(pooled, w, b)) * image)
    run = pf.compile(nest, target="cpu", machine=replace(pf.Machine.preset("zen5"), units=1))
    *_, last = run.schedule.loops("mac0")
    assert (last.name, last.bind) == ("m", "vector")
    assert "mac_sum = add_any_order(" in run.source
    given = [rng.standard_normal(t.shape).astype(np.float32) for t in nest.inputs]
    np.testing.assert_allclose(run(*given), pf.interpret(nest, given)["out"], rtol=1e-4, atol=1e-5)
