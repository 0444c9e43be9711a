"""promote(…, rounded=…): factors rounded once, when they are copied in, as the oracle rounds them; refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import polyfuse as pf
from polyfuse import nn
from polyfuse.analysis.copies import rounds
from polyfuse.analysis.validation import validate
from polyfuse.errors import InvalidSchedule, ValidationFailure
from polyfuse.ir.precision import PRECISIONS, STORED, rounded
from polyfuse.ir.scalar import decode, encode

every_math = pytest.mark.parametrize("math", PRECISIONS)


def product(dtype: Any = "float32") -> pf.Nest:
    """out = x @ y, or of halves in float32 sums."""
    x, y = nn.input("x", (8, 20), dtype=dtype), nn.input("y", (20, 12), dtype=dtype)
    return nn.lower(nn.matmul(x, y))


def staged(nest: pf.Nest, math: Any, rounding: Any) -> pf.Schedule:
    """x in tiles of 4 steps in shared memory, rounded; a microkernel that may round."""
    s = pf.Schedule(nest)
    name = next(statement.name for statement in nest.statements if statement.op == "+=")
    i, j, k = (loop.name for loop in s.loops(name))
    s = s.split(name, i, 2).split(name, j, 4).split(name, k, 4)
    s = s.reorder(name, i, j, k, f"{k}_in", f"{i}_in", f"{j}_in")
    s = s.promote("x", name, at=k, memory="shared", rounded=rounding)
    return s.microkernel(name, f"{k}_in", math=math) if math else s


@every_math
def test_the_oracle_sees_factors_rounded_once(math: Any) -> None:
    nest = product()
    s = staged(nest, math, math)
    rng = np.random.default_rng(0)
    shapes = {"x": (8, 20), "y": (20, 12)}
    inputs = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    (found,) = pf.interpret(s.nest, inputs).values()
    (exact,) = pf.interpret(nest, {**inputs, "x": rounded(math, inputs["x"])}).values()
    assert np.array_equal(found, exact)
    (plain,) = pf.interpret(nest, inputs).values()
    assert not np.array_equal(found, plain)
    copy = s.nest.statement("load_x")
    assert rounds(s.nest, copy) == math
    assert s.nest.tensor("x_shared").dtype == STORED[math]
    assert decode(encode(copy.body)) == copy.body
    validate(nest, s.nest, s.tree)
    assert f"rounded='{math}'" in s.trace()


@every_math
def test_who_may_not_round_reads_no_rounded_factor(math: Any) -> None:
    nest = product()
    for allowed in (None, "bf16" if math == "tf32" else None):
        s = staged(nest, allowed, math)
        message = f"load_x rounds to {math}, and mac0, which reads that, is no microkernel of {math} factors"
        with pytest.raises(ValidationFailure, match=message):
            validate(nest, s.nest, s.tree)


def test_a_half_is_copied_bit_for_bit_to_its_own_format() -> None:
    s = staged(product("bfloat16"), "bf16", "bf16")
    assert rounds(s.nest, s.nest.statement("load_x")) is None
    assert s.nest.tensor("x_shared").dtype == "bfloat16"


def test_what_cannot_be_rounded_is_said() -> None:
    with pytest.raises(InvalidSchedule, match="rounded='bf16' rounds float32 numbers, and x is float64"):
        staged(product("float64"), "ieee", "bf16")
    with pytest.raises(
        InvalidSchedule, match="promote: rounded='fp8', expected one of ieee, tf32, bf16, f16"
    ):
        staged(product(), "ieee", "fp8")
    s = pf.Schedule(nn.lower(nn.relu(nn.input("x", (4,)) + 1.0)))
    name = s.nest.statements[0].name
    written = s.nest.statement(name).write.tensor
    with pytest.raises(InvalidSchedule, match="only what is copied in can be rounded"):
        s.promote(written, name, at=s.loops(name)[0].name, rounded="tf32")
