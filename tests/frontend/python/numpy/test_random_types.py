"""Random expressions on arrays of all types: values and types are NumPy's, in the oracle and in emitted kernels."""

from __future__ import annotations

import linecache
import warnings
from random import Random
from typing import Any

import numpy as np
from hypothesis import event, given, settings
from hypothesis import strategies as st

import polyfuse as pf
from polyfuse.ir.number_types import NUMBER_TYPES
from tests.frontend.python.numpy.test_types import numbers_of
from tests.frontend.python.running import copies, defined
from tests.support.examples import examples

WHOLE = [each for each in NUMBER_TYPES.values() if each.kind == "integer" and not each.is_weak]
TYPES = [*WHOLE, NUMBER_TYPES["float32"], NUMBER_TYPES["float64"], NUMBER_TYPES["bool"]]
HEAD = f"@pf.nest\ndef f({', '.join(f'{each.note}_: {each.note!r} [N]' for each in TYPES)}):".replace(
    "' [N]", "[N]'"
)
COUNT = 24


def whole(random: Random, depth: int) -> str:
    """An array of integers."""
    if depth == 0:
        return f"{random.choice(WHOLE).note}_"
    one, two = whole(random, depth - 1), whole(random, depth - 1)
    number = random.choice([0, 1, 3, 100, 200, -1, -7, 40000])
    operator = random.choice(["+", "-", "*", "//", "%", "&", "|", "^", "<<", ">>"])
    kinds = [
        f"({one} {operator} {two})",
        f"({one} {operator} {two})",
        f"({one} {random.choice(['+', '-', '*', '//', '%', '&'])} {number})",
        f"{one}.astype(np.{random.choice(WHOLE).name})",
        f"(-{one})",
        f"(~{one})",
        f"abs({one})",
        f"np.where({truth(random, depth - 1)}, {one}, {two})",
        f"np.maximum({one}, {two})",
        f"({truth(random, depth - 1)} * {one})",
        f"({truth(random, depth - 1)} + {number})",
        f"({one} + {one}.max())",
        f"({two} - {one}.sum())",
        f"({one} * np.arange(len(bool_)))",
        f"(np.full(len(bool_), {abs(number)}, np.int64) + {one})",
    ]
    return random.choice(kinds)


def truth(random: Random, depth: int) -> str:
    """An array of truth values."""
    if depth == 0:
        return random.choice(["bool_", "~bool_", "(f32_ > 0)", "(i8_ != u8_)"])
    order = random.choice(["<", "<=", "==", "!=", ">"])
    one, two = whole(random, depth - 1), whole(random, depth - 1)
    kinds = [
        f"({one} {order} {two})",
        f"({one} {order} {random.choice([0, -1, 255, 300])})",
        f"({truth(random, depth - 1)} {random.choice(['&', '|', '^', '+', '*'])} {truth(random, depth - 1)})",
        f"{one}.astype(bool)",
    ]
    return random.choice(kinds)


def value(random: Random) -> str:
    """An expression of any type."""
    one, floats = whole(random, 2), random.choice(["f32_", "f64_"])
    kinds = [
        one,
        one,
        truth(random, 2),
        f"{one} * {floats}",
        f"{floats} + {truth(random, 1)}",
        f"{one} / {one}",
    ]
    kinds += [
        f"{one} * 0.1",
        f"{one}.sum()",
        f"{one}.min()",
        f"{one}.cumsum()",
        f"np.any({truth(random, 1)})",
    ]
    kinds += [f"{one}.astype(np.{floats.replace('f', 'float').strip('_')})"]
    return random.choice(kinds)


@settings(max_examples=examples(25))
@given(st.randoms(use_true_random=False), st.integers(0, 2**16), st.booleans())
def test_random_types_mean_what_numpy_means(random: Random, seed: int, emitted: bool) -> None:
    values = [value(random) for _ in range(random.randint(1, 3))]
    text = f"{HEAD}\n    assert N >= 1\n    return {', '.join(values)}"
    arrays = {f"{each.note}_": numbers_of(each.name, seed + k, COUNT) for k, each in enumerate(TYPES)}
    try:
        nest = defined(text)
    except (pf.NotAffine, pf.InvalidNest) as error:
        refusals = "operation of integers on float64", "does not fit"
        if not any(why in str(error) for why in refusals):
            raise
        event(f"refused: {type(error).__name__}")
        return
    linecache.clearcache()
    try:
        with np.errstate(all="warn"), warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            returned = nest.python(**copies(arrays))
    except OverflowError:  # x + -1 of unsigned numbers, which is x - 1 here
        event("a number does not fit")
        return
    if any("in cast" in str(one.message) for one in warned):  # NumPy's own result depends on its vectors
        event("refused: a float is cast to a type that does not hold it")
        return
    returned = returned if isinstance(returned, tuple) else (returned,)
    given_ = {tensor.name: arrays[tensor.name] for tensor in nest.inputs}
    found: Any = pf.interpret(nest, given_, {"N": COUNT})
    for tensor, one in zip(nest.results, returned, strict=True):
        assert np.asarray(one).dtype == tensor.dtype, f"{one.dtype}, {tensor}:\n{text}"
        np.testing.assert_allclose(found[tensor.name], one, rtol=1e-12, err_msg=text)
    if emitted:
        ran = pf.compile(nest, target="cuda", device="lockstep")(**copies(given_))
        for tensor, one in zip(nest.results, ran if isinstance(ran, tuple) else (ran,), strict=True):
            np.testing.assert_allclose(one, found[tensor.name], rtol=1e-12, err_msg=text)
