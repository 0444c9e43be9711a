"""Compare gradients with central differences of the oracle, in float64."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

import polyfuse as pf
from polyfuse.ir import Nest
from polyfuse.ir.sizes import extent
from polyfuse.rewrite import Reversed, reverse

Array = np.ndarray[Any, Any]

STEP = 1e-6
"""Truncation leaves about its square, rounding 1e-16 over it: 1e-10 of values around 1."""


def drawn(nest: Nest, sizes: Mapping[str, int], positive: bool = False) -> dict[str, Array]:
    """Values of all inputs and constants."""
    rng = np.random.default_rng(7)
    found: dict[str, Array] = {}
    for tensor in nest.inputs:
        shape = tuple(extent(size, sizes) for size in tensor.shape)
        if tensor.dtype.startswith("int"):
            found[tensor.name] = rng.integers(0, 3, shape).astype(tensor.dtype)
        else:
            found[tensor.name] = np.abs(rng.normal(size=shape)) + 0.5 if positive else rng.normal(size=shape)
    return {**nest.constants, **found}


def agrees(
    nest: Nest,
    sizes: Mapping[str, int] | None = None,
    *,
    wrt: str | Sequence[str] | None = None,
    outputs: str | Sequence[str] | None = None,
    positive: bool = False,
    given: Mapping[str, Array] | None = None,
    tolerance: float = 1e-7,
) -> Reversed:
    """Assert that vjp and jvp are the directional derivative of a random combination of the outputs."""
    sizes = sizes or {}
    values = dict(given) if given is not None else drawn(nest, sizes, positive)
    rng = np.random.default_rng(8)
    found = reverse(nest, wrt, outputs)
    towards = {name: rng.normal(size=values[name].shape) for name in found.gradients}
    plain = pf.interpret(nest, values, sizes=sizes)
    weights = {name: rng.normal(size=plain[name].shape) for name in found.cotangents}

    def combined(step: float) -> float:
        moved = {**values, **{name: values[name] + step * towards[name] for name in towards}}
        results = pf.interpret(nest, moved, sizes=sizes)
        return float(sum(np.nansum(results[name] * weights[name]) for name in weights))

    expected = (combined(STEP) - combined(-STEP)) / (2 * STEP)
    called = {**values, **{found.cotangents[name]: weight for name, weight in weights.items()}}
    gradients = pf.interpret(found.nest, called, sizes=sizes)
    backward = float(sum((gradients[found.gradients[name]] * towards[name]).sum() for name in towards))
    tangents = pf.jvp(nest, wrt, outputs)
    named = [t.name for t in tangents.inputs][len(nest.inputs) :]
    moving = {**values, **dict(zip(named, towards.values(), strict=True))}
    dots = list(pf.interpret(tangents, moving, sizes=sizes).values())
    forward = float(sum(np.nansum(dot * weight) for dot, weight in zip(dots, weights.values(), strict=True)))
    scale = max(1.0, abs(expected))
    assert abs(backward - expected) <= tolerance * scale, (backward, expected)
    assert abs(forward - backward) <= 1e-11 * scale, (forward, backward)
    return found
