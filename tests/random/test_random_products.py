"""Random sums of products, over windows and under conditions too: machine code computes the oracle's result.

By the default schedule, and by random tiles whose sums stay in registers and which other verbs may change afterwards.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import prod
from typing import Any

import numpy as np
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

import polyfuse as pf
from polyfuse.errors import IllegalSchedule, InvalidSchedule
from polyfuse.ir import Nest, Tensor, statement
from tests.support.examples import examples
from tests.support.verbs import calls

RESULTS, STEPS = "ijl", "rst"
MOST = 60_000
"""Instances of a product, which the oracle runs one by one."""


@st.composite
def products(draw: st.DrawFn) -> Nest:
    """y[results] += a[...] * b[...]: each factor has some of the dimensions, those of a result maybe with a step's."""
    results = RESULTS[: draw(st.integers(1, 3))]
    steps = STEPS[: draw(st.integers(1, 3))]
    sizes = {d: draw(st.sampled_from([1, 2, 3, 5, 8, 12])) for d in results + steps}
    sizes[results[-1]] = draw(st.sampled_from([4, 8, 13, 16, 17, 33, 48]))
    while prod(sizes.values()) > MOST:
        longest = max(sizes, key=sizes.__getitem__)
        sizes[longest] //= 2
    dtype = draw(st.sampled_from(["float32", "float64"]))
    inner = results[-1]
    left = draw(factor("a", results[:-1], steps, sizes, dtype))
    right = draw(factor("b", draw(st.sampled_from([inner, inner, inner, results])), steps, sizes, dtype))
    y = Tensor("y", tuple(sizes[d] for d in results), dtype, "inout")
    box = " and ".join(f"0 <= {d} < {size}" for d, size in sizes.items())
    beside = f"{draw(st.sampled_from(results))} + {draw(st.sampled_from(steps))}"
    bound = draw(st.sampled_from(["", "", "", f" and {beside} >= 1", f" and {beside} < {sizes[inner]}"]))
    domain = f"{{ mac[{', '.join(sizes)}] : {box}{bound} }}"
    text = f"y[{', '.join(results)}] += {left[0]} * {right[0]}"
    return Nest.of([left[1], right[1], y], [statement(domain, text)])


@st.composite
def factor(
    draw: st.DrawFn, name: str, results: str, steps: str, sizes: dict[str, int], dtype: str
) -> tuple[str, Tensor]:
    """An access and its tensor: a[s, i + 2 r], as large as it has to be."""
    alone = [d for d in steps if draw(st.booleans())]
    subscripts, extents = [], []
    for d in results:
        step = draw(st.sampled_from([None, None, *steps]))
        apart, reach = draw(st.sampled_from([(1, 1), (1, 1), (2, 1), (1, 2)]))
        subscripts.append(d if step is None else f"{apart} * {d} + {reach} * {step}")
        extents.append(sizes[d] if step is None else apart * (sizes[d] - 1) + reach * (sizes[step] - 1) + 1)
        alone = [other for other in alone if other != step]
    order = draw(st.permutations(range(len(alone)))) if alone else ()
    subscripts = [*(alone[p] for p in order), *subscripts]
    extents = [*(sizes[alone[p]] for p in order), *extents]
    if not subscripts:
        subscripts, extents = [steps[0]], [sizes[steps[0]]]
    return f"{name}[{', '.join(subscripts)}]", Tensor(name, tuple(extents), dtype, "input")


@st.composite
def in_registers(draw: st.DrawFn, nest: Nest) -> pf.Schedule:
    """Tiles of a product with its steps outside, its sums in registers where they fit, and up to two other verbs."""
    dims = nest.statement("mac").dims
    results, steps = ([d for d in dims if d in names] for names in (RESULTS, STEPS))
    s = pf.Schedule(nest)
    tiles = {d: draw(st.sampled_from([2, 3, 8, 16])) for d in results if draw(st.booleans())}
    inner = [f"{d}_in" if d in tiles else d for d in results]
    kept = draw(st.integers(1, 2))
    order = (*tiles, *inner[:-kept], *draw(st.permutations(steps)), *inner[-kept:])
    for verb, args, options in (
        ("tile", ("mac",), tiles),
        ("reorder", ("mac", *order), {}),
        ("microkernel", ("mac", order[len(order) - kept - len(steps)]), {}),
    ):
        s = tried(s, verb, args, options)
    for _ in range(draw(st.integers(0, 2))):
        call = draw(calls(s, "cpu"))
        s = tried(s, call.verb, call.args, call.options)
    return s


def tried(s: pf.Schedule, verb: str, args: Iterable[Any], options: dict[str, Any]) -> pf.Schedule:
    """The schedule after a verb, or as it was where that is refused."""
    try:
        done: pf.Schedule = getattr(s, verb)(*args, **options)
    except (InvalidSchedule, IllegalSchedule):
        return s
    event(f"accepted: {verb}")
    return done


@settings(
    max_examples=examples(16),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(st.data(), products(), st.integers(0, 999))
def test_machine_code_is_what_the_oracle_says(data: st.DataObject, nest: Nest, seed: int) -> None:
    rng = np.random.default_rng(seed)
    given = {t.name: rng.integers(-3, 4, t.shape).astype(t.dtype) for t in nest.inputs}
    expected = pf.interpret(nest, {name: value.copy() for name, value in given.items()})["y"]
    for schedule in (None, data.draw(in_registers(nest), label="schedule")):
        net = pf.compile(nest, target="cpu", schedule=schedule)
        arrays = {name: value.copy() for name, value in given.items()}
        net(**arrays)
        np.testing.assert_array_equal(
            arrays["y"], expected, "by default" if schedule is None else str(schedule)
        )
        event("in registers" if "_mac" in net.source else "in loops")
