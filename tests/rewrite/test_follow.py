"""A statement in the loops of another one's results: the same instances, the same values, and what is refused."""

from __future__ import annotations

import re

import numpy as np
import pytest

import polyfuse as pf
from polyfuse import nn
from polyfuse.checks import cuda_cases as cases
from polyfuse.ir import Nest
from polyfuse.rewrite import follow


def in_groups(layout: str = "NCHW") -> Nest:
    """A convolution of 6 channels in 2 groups of 3, 8 filters, with bias and ReLU."""
    image = (2, 6, 5, 4) if layout == "NCHW" else (2, 5, 4, 6)
    x, w, b = nn.input("x", image), nn.input("w", (8, 3, 3, 3)), nn.input("b", (8,))
    return nn.lower(nn.relu(nn.conv2d(x, w, b, padding=1, groups=2, layout=layout)))


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_what_is_around_a_convolution_in_groups_has_its_loops(layout: str) -> None:
    nest = in_groups(layout)
    done = nest
    for name, leader in (("zero0", "mac0"), ("bias0", "mac0"), ("relu0", "bias0")):
        done = follow(done, name, leader).nest
    results = list(nest.statement("mac0").dims[:5])
    assert [list(done.statement(name).dims) for name in ("zero0", "bias0", "relu0")] == [results] * 3
    inputs = cases.draw(nest, np.random.default_rng(0))
    np.testing.assert_array_equal(pf.interpret(done, inputs)["out"], pf.interpret(nest, inputs)["out"])


@pytest.mark.parametrize(
    ("statement", "leader", "why"),
    [
        ("mac0", "zero0", "instances of mac0 depend on each other"),
        ("relu0", "zero0", "relu0 does not access y0 exactly once"),
    ],
)
def test_what_is_refused(statement: str, leader: str, why: str) -> None:
    with pytest.raises(pf.IllegalRewrite, match=re.escape(why)):
        follow(in_groups(), statement, leader)
