"""Random tests joined by and, or and not: with NaN among the numbers, a < b is not the opposite of a >= b."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import polyfuse as pf
from tests.frontend.python.running import copies, defined
from tests.support.examples import examples

HEAD = "@pf.nest\ndef f(a: 'f64[N]', b: 'f64[N]', c: 'f32[N]', i: 'i8[N]'):"
NUMBERS = [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan]
PAIRS = np.array([(x, y) for x in NUMBERS for y in NUMBERS])
GIVEN: dict[str, Any] = {
    "a": PAIRS[:, 0].copy(),
    "b": PAIRS[:, 1].copy(),
    "c": np.resize(np.float32([1, np.nan, 0]), len(PAIRS)),
    "i": np.resize(np.int8([0, 1, -1, 127]), len(PAIRS)),
}


def truth(random: Random, depth: int) -> str:
    """An array of truth values."""
    if depth == 0:
        left, right = random.choice(["ab", "ab", "ba", "bc", "ci", "aa"])
        return f"({left} {random.choice(['<', '<=', '>', '>=', '==', '!='])} {right})"
    one, two = truth(random, depth - 1), truth(random, depth - 1)
    kinds = [f"({one} & {two})", f"({one} | {two})", f"(~{one})", f"({one} & {random.choice([True, False])})"]
    return random.choice([*kinds, f"(c * {one} > {two})"])


@settings(max_examples=examples(25))
@given(st.randoms(use_true_random=False), st.integers(1, 4), st.booleans())
def test_random_tests_mean_what_numpy_means(random: Random, depth: int, emitted: bool) -> None:
    text = f"{HEAD}\n    return {truth(random, depth)}, np.where({truth(random, depth)}, a, c)"
    nest = defined(text)
    with np.errstate(invalid="ignore"):
        expected = nest.python(**copies(GIVEN))
    given_ = {tensor.name: GIVEN[tensor.name] for tensor in nest.inputs}
    found: Any = pf.interpret(nest, given_, {"N": len(PAIRS)})
    ran = pf.compile(nest, target="cuda", device="lockstep")(**copies(given_)) if emitted else None
    for k, tensor in enumerate(nest.results):
        np.testing.assert_array_equal(found[tensor.name], expected[k], err_msg=text)
        if ran is not None:
            np.testing.assert_array_equal(ran[k], expected[k], err_msg=text)


@pytest.mark.parametrize("target", ["cpu", "cuda"])
def test_a_test_and_its_opposite_are_both_false_for_nan(target: str) -> None:
    nest = defined(
        f"{HEAD}\n    return ((a < b) | (a >= b)) & ((a * 0 + b * 0 == 0) | (c > 0)), (i == 0) & (i != 0)"
    )
    run = pf.compile(nest, target=target, device="lockstep" if target == "cuda" else None)
    used = {tensor.name: GIVEN[tensor.name] for tensor in nest.inputs}
    with np.errstate(invalid="ignore"):
        expected = nest.python(**copies(GIVEN))
    for mine, one in zip(run(**copies(used)), expected, strict=True):
        np.testing.assert_array_equal(mine, one)
