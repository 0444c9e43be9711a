"""Small programs of every kind: oracle, emitted source and machine code leave and return what Python does."""

from __future__ import annotations

from types import FunctionType
from typing import Any

import numpy as np
import pytest

import polyfuse as pf
from tests.frontend.python import programs
from tests.frontend.python.running import assert_close, by_python, by_source, called

PROGRAMS = {
    name: value
    for name, value in vars(programs).items()
    if isinstance(value, FunctionType) and value.__module__ == programs.__name__
}


def arguments(nest: pf.Nest, n: int) -> dict[str, Any]:
    """Random arrays of n elements a dimension, with a 0 among them; integers on their own are 1, or a size."""
    rng = np.random.default_rng(n)
    arrays: dict[str, Any] = {}
    for tensor in nest.inputs:
        shape = tuple(n if isinstance(extent, str) else extent for extent in tensor.shape)
        if tensor.dtype.startswith("float"):
            arrays[tensor.name] = rng.normal(size=shape).astype(tensor.dtype)
        else:
            arrays[tensor.name] = (
                rng.integers(-3, 4, shape).astype(tensor.dtype) if shape else 3 if tensor.name == "n" else 1
            )
        if tensor.rank:
            arrays[tensor.name].flat[arrays[tensor.name].size // 2] = 0
    return arrays


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_means_what_python_means(name: str) -> None:
    nest = pf.nest(PROGRAMS[name])
    for n in (1, 2, 5, 8):
        arrays = arguments(nest, n)
        sizes = {size: int(arrays.get(size, n)) for size in nest.params}
        expected = by_python(nest, arrays)
        relative = 1e-6 if any(t.dtype == "float32" for t in nest.tensors) else 1e-11
        assert_close(pf.interpret(nest, arrays), expected, relative)
        assert_close(by_source(nest, arrays, sizes), expected, relative)


@pytest.mark.parametrize(
    "name", ["swap_sort", "nested_data_if", "loop_in_data_if", "mean_var", "periodic", "filled"]
)
def test_a_program_in_machine_code(name: str) -> None:
    nest = pf.nest(PROGRAMS[name])
    net = pf.compile(nest, target="cpu")
    for n in (1, 6):
        arrays = arguments(nest, n)
        assert_close(called(net, arrays), by_python(nest, arrays), 1e-6)


def test_which_conditional_accumulations_are_reductions() -> None:
    def operators(name: str) -> list[str]:
        return [s.op for s in pf.nest(PROGRAMS[name]).statements]

    assert operators("masked_sum") == ["+="]
    assert operators("more_than_its_sum") == ["=", "="]  # the condition reads what is added to
    assert operators("product_of_some") == ["*=", "*="]  # once where i == j, but not alone
    assert operators("select_reduce_max") == ["="]


def test_a_test_is_kept_only_where_it_may_change() -> None:
    assert [t.name for t in pf.nest(programs.test_changes).with_role("temporary")] == ["test0"]
    assert not pf.nest(programs.relu_else).with_role("temporary")


def test_branches_that_assign_one_target_are_one_choice() -> None:
    nest = pf.nest(programs.choice_of_what_it_reads)
    assert not nest.with_role("temporary")
    assert len(nest.statements) == 1
    assert not [t.name for t in pf.nest(programs.either_sum).tensors if t.name.startswith("test")]


def test_an_affine_variable_leaves_no_statement() -> None:
    nest = pf.nest(programs.alias_chain)
    assert len(nest.statements) == 1
    assert not nest.with_role("temporary")


def test_results_are_given_back_in_order() -> None:
    nest = pf.nest(programs.returns_two)
    assert [str(t) for t in nest.results] == ["output s: float64[]", "output p: float64[]"]
    total, product = pf.compile(nest, target="cpu")(np.array([1.0, 2.0, 4.0]))
    assert (total, product) == (7.0, 8.0)
