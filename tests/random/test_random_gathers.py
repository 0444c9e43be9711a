"""Random nests that read rows which integers choose: under random verbs they compute the oracle's result."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from polyfuse.analysis.validation import validate
from polyfuse.interpret import interpret
from polyfuse.ir import Nest, Tensor
from polyfuse.ir.gather import limits_of, slices
from polyfuse.runtime.memory.memory_plan import shape_of
from tests.random.test_random_schedules import same, scheduled, synchronised
from tests.support.examples import examples
from tests.support.execution import Array, Arrays, memory, run_lockstep, run_plain, without_gpu
from tests.support.nests import inputs_for, nests, some_sizes

ROWS = 3
FAR = 2**40


def gathering(nest: Nest) -> Nest:
    """The same nest with the input A as rows of a table: A = W[X]."""
    old = nest.tensor("A")
    table = Tensor("W", (ROWS, *old.shape[1:]), old.dtype, "input")
    index = Tensor("X", old.shape[:1], "int64", "input")
    rest = tuple(t for t in nest.tensors if t.name != "A")
    new = replace(nest, tensors=(table, index, Tensor.gathered("A", table, index), *rest))
    new.check()
    return new


def numbers(nest: Nest, rng: np.random.Generator, sizes: Mapping[str, int]) -> Array:
    """Row numbers for the elements that a call checks; for the others one that is far from the table."""
    found = np.full(shape_of(nest.tensor("X"), sizes), FAR)
    for limit in limits_of(nest)["X"]:
        part = found[slices(limit, sizes)]
        part[...] = rng.integers(0, ROWS, part.shape)
    return found


@settings(
    max_examples=examples(12),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)
@given(st.data(), st.sampled_from(["cpu", "cuda"]), nests(), st.integers(0, 999))
def test_rows_that_integers_choose(data: st.DataObject, target: str, nest: Nest, seed: int) -> None:
    assume(any(access.tensor == "A" for s in nest.statements for access in s.reads))
    sizes = data.draw(some_sizes(nest), label="sizes")
    rng = np.random.default_rng(seed)
    given_ = inputs_for(nest, rng, sizes)
    shape = shape_of(nest.tensor("A"), sizes)
    nest, tally = gathering(nest), Counter[str]()
    schedule = scheduled(tally, data, nest, target)
    inputs: Arrays = {
        "W": rng.integers(-3, 4, (ROWS, *shape[1:])).astype("f8"),
        "X": numbers(nest, rng, sizes),
        **{name: array for name, array in given_.items() if name != "A"},
    }
    oracle = interpret(nest, inputs, sizes)
    dense = {name: array for name, array in inputs.items() if name not in "WX"} | {
        "A": inputs["W"][inputs["X"] % ROWS]
    }
    plain = replace(
        nest, tensors=tuple(replace(t, role="input", gather=None) if t.gather else t for t in nest.tensors)
    )
    without = replace(plain, tensors=tuple(t for t in plain.tensors if t.name not in "WX"))
    same(interpret(without, dense, sizes), oracle, "oracle")
    if target == "cuda":
        schedule = synchronised(tally, schedule)
        validate(nest, schedule.nest, schedule.tree)
        arrays = memory(nest, schedule.nest, schedule.tree, inputs, sizes)
        run_lockstep(schedule.nest, schedule.tree, arrays, sizes)
        same(oracle, arrays, "lockstep")
    tree = without_gpu(schedule.tree)
    validate(nest, schedule.nest, tree)
    arrays = memory(nest, schedule.nest, tree, inputs, sizes)
    run_plain(schedule.nest, tree, arrays, sizes, seed)
    same(oracle, arrays, "plain")
