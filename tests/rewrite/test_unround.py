"""Temporaries that stay in float32, factors that are rounded to halves: what is written, refused, how results move."""

from __future__ import annotations

import numpy as np
import pytest

import polyfuse as pf
from polyfuse import cases, nn
from polyfuse.ir import Nest
from polyfuse.ir.tensor import relative_step
from polyfuse.rewrite import narrow, unround


def softmax_of_a_product() -> Nest:
    x, w, v = (nn.input(name, (6, 6), "float16") for name in "xwv")
    return nn.lower(nn.softmax(x @ w) @ v)


def test_what_was_rounded_is_nearer_to_real_numbers() -> None:
    nest = softmax_of_a_product()
    done = unround(nest, "p0")
    assert str(done) == "p0 stays in float32, where it was rounded to float16"
    assert done.nest.tensor("p0").dtype == "float32"
    inputs = cases.draw(nest, np.random.default_rng(0))
    rounded, whole = (pf.interpret(each, inputs)["out"].astype(float) for each in (nest, done.nest))
    assert not np.array_equal(rounded, whole)
    np.testing.assert_allclose(whole, rounded, atol=6 * relative_step("float16"))


@pytest.mark.parametrize(
    ("tensor", "why"),
    [
        ("e0", "e0 is float32, which rounds nothing"),
        ("out", "out is visible to others (output), who want float16"),
    ],
)
def test_what_is_refused(tensor: str, why: str) -> None:
    with pytest.raises(pf.IllegalRewrite, match=why.replace("(", r"\(").replace(")", r"\)")):
        unround(softmax_of_a_product(), tensor)


def test_a_product_reads_numbers_rounded_to_halves() -> None:
    x, w = nn.input("x", (6, 6)), nn.input("w", (6, 6))
    nest = nn.lower(x @ w)
    done = narrow(nest, "x", "bf16")
    assert str(done) == "mac0 reads x through x_narrow, rounded to bfloat16"
    inputs = cases.draw(nest, np.random.default_rng(0))
    rounded = {**inputs, "x": inputs["x"].astype("bfloat16").astype(np.float32)}
    np.testing.assert_array_equal(pf.interpret(done.nest, inputs)["out"], pf.interpret(nest, rounded)["out"])
    with pytest.raises(pf.IllegalRewrite, match="x_narrow is bfloat16"):
        narrow(done.nest, "x_narrow", "f16")
