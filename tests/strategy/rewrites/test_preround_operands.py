"""Factors rounded to halves in a pass of their own: where that is taken, where not, and that values are the same."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import polyfuse as pf
from polyfuse.checks import cuda_cases as cases
from polyfuse.checks.cuda_cases import TOLERANCE
from polyfuse.machine import Machine
from polyfuse.strategy import plan_for
from polyfuse.strategy.rewrites.preround_operands import rounded_first
from tests.support.models import softmax


def machine(name: str, math: str) -> Machine:
    return replace(Machine.preset(name), math=math)  # type: ignore[arg-type]


@pytest.mark.parametrize(("math", "half"), [("bf16", "bfloat16"), ("f16", "float16")])
def test_a_large_layer_has_halves_in_memory_and_constants_are_rounded_once(math: str, half: str) -> None:
    nest = cases.dense(1024, 1024, batch=512)
    net = pf.compile(nest, target="cuda", machine="h200", device="none", math=math)  # type: ignore[arg-type]
    said = str(net.explain())
    assert f"mac0 reads x through x_narrow, rounded to {half}: " in said
    assert f"mac0 reads w0 through w0_narrow, rounded to {half}: " in said
    assert "which are copied as they are, a box by one instruction" in said
    once = {name for launch in net.program.launches if launch.once for name in launch.statements}
    assert {"narrow_w00"} <= once or any("narrow_w0" in name for name in once)
    assert not any("narrow_x" in name for name in once)


def test_each_factor_is_rounded_once_as_before() -> None:
    """The nest with copies is the nest as it was, on factors that are halves already."""
    nest = cases.dense(96, 64, batch=64)
    made = rounded_first(nest, machine("h200", "bf16"))
    assert made is not None
    assert made.said == (
        "mac0 reads x through x_narrow, rounded to bfloat16",
        "mac0 reads w0 through w0_narrow, rounded to bfloat16",
    )
    inputs = cases.draw(nest, np.random.default_rng(0))
    found = pf.interpret(made.nest, inputs)
    (output,) = nest.with_role("output")
    assert cases.error(nest, inputs, {output.name: found[output.name]}, "bf16") <= TOLERANCE


@pytest.mark.parametrize(
    ("name", "math"), [("h200", "ieee"), ("a100", "tf32"), ("a100", "bf16"), ("rtx4090", "f16")]
)
def test_only_where_tensor_cores_take_factors_in_boxes(name: str, math: str) -> None:
    assert rounded_first(cases.dense(1024, 1024, batch=512), machine(name, math)) is None


def test_no_product_no_copy() -> None:
    assert rounded_first(softmax(), machine("h200", "bf16")) is None


def test_a_small_layer_is_rounded_where_it_is_copied() -> None:
    plan = plan_for(cases.dense(512, 512, 512, batch=256), machine("h200", "bf16"))
    (line,) = (line for line in plan.notes if "mac0 reads x through x_narrow" in line)
    assert line.startswith("not taken")
    apart = plan_for(cases.dense(1024, 1024, batch=512), machine("h200", "bf16"), fuse=False)
    assert not any("x_narrow" in line for line in apart.notes)
