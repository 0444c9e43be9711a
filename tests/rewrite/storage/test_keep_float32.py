"""Temporaries that stay in float32, factors that are rounded to halves: what is written, refused, how results move."""

from __future__ import annotations

import numpy as np
import pytest

import polyfuse as pf
from polyfuse import nn
from polyfuse.analysis.copies import holds_rounded
from polyfuse.checks import cuda_cases as cases
from polyfuse.ir import Nest
from polyfuse.ir.number_types import relative_step
from polyfuse.ir.precision import rounded
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
        ("e0", "e0 is float32, which is not rounded"),
        ("out", "out has role output, so it must stay float16"),
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


def test_a_product_reads_numbers_cut_to_tf32_in_another_order() -> None:
    x, w = nn.input("x", (6, 5)), nn.input("w", (5, 7))
    nest = nn.lower(x @ w)
    done = narrow(nest, "w", "tf32", (1, 0))
    assert str(done) == "mac0 reads w through w_narrow, rounded to tf32, with axes (1, 0) of it as its own"
    assert done.nest.tensor("w_narrow").shape == (7, 5)
    inputs = cases.draw(nest, np.random.default_rng(0))
    cut = {**inputs, "w": rounded("tf32", inputs["w"])}
    assert not np.array_equal(cut["w"], inputs["w"])
    np.testing.assert_array_equal(pf.interpret(done.nest, inputs)["out"], pf.interpret(nest, cut)["out"])
    assert holds_rounded(done.nest, "w_narrow", "tf32")
    assert not holds_rounded(done.nest, "w", "tf32"), "an input"
    for given, why in {
        ("w_narrow", "tf32"): "w_narrow is rounded to tf32 already",
        ("x", "tf32", (0, 0)): "x has 2 axes. Needed: each of these axes once",
        ("x", "ieee"): "and one of tf32, bf16, f16",
    }.items():
        with pytest.raises(pf.IllegalRewrite, match=why):
            narrow(done.nest, *given)  # type: ignore[arg-type]


def test_what_is_copied_or_computed_holds_no_rounded_numbers() -> None:
    nest = nn.lower(nn.relu(nn.input("x", (6, 6))) @ nn.input("w", (6, 6)))
    read = nest.statement("mac0").reads[0].tensor
    assert nest.tensor(read).role == "temporary"
    assert not holds_rounded(nest, read, "tf32")
