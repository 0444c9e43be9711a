"""The oracle against a plain interpreter, NumPy formulas, and its own promises on arguments."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import sympy
from hypothesis import given
from hypothesis import strategies as st

from polyfuse.errors import BadArgument
from polyfuse.interpret import interleaved, interpret
from polyfuse.interpret.state import CHUNK
from polyfuse.ir import Nest, Tensor, statement
from polyfuse.ir.nest import own_loops
from polyfuse.ir.scalar import Maximum, Minimum, Select, combine
from polyfuse.ir.tree import Loop, sequence
from polyfuse.sets import dimension
from tests.support.enumeration import steps
from tests.support.nests import inputs_for, nests, some_sizes


def plain(nest: Nest, inputs: dict[str, Any], sizes: dict[str, int]) -> dict[str, dict[tuple[int, ...], Any]]:
    """A nest run on dictionaries of Python floats, instance after instance; what was never written is absent."""
    memory: dict[str, dict[tuple[int, ...], Any]] = {t.name: {} for t in nest.tensors}
    for name, array in inputs.items():
        memory[name] = {index: float(value) for index, value in np.ndenumerate(array)}
    for step in steps(nest, sizes):
        leaves = {f"read{k}": memory[t][index] for k, (t, index) in enumerate(step.reads)}
        leaves |= dict(zip(step.statement.dims, step.point, strict=True)) | sizes
        value = scalar(step.statement.body, leaves)
        tensor, index = step.write
        if step.statement.is_reduction:
            old, new = sympy.Symbol("old"), sympy.Symbol("new")
            joined = combine(step.statement.op, old, new)
            value = scalar(joined, {"old": memory[tensor][index], "new": value})
        memory[tensor][index] = value
    return {t.name: memory[t.name] for t in nest.outputs}


def scalar(body: Any, leaves: dict[str, Any]) -> Any:
    match body:
        case sympy.Symbol():
            return leaves[body.name]
        case _ if not body.args:
            return float(body)
    args = [scalar(arg, leaves) for arg in body.args]
    match body:
        case sympy.Add():
            return sum(args)
        case sympy.Mul():
            return math.prod(args)
        case Maximum():
            return max(args)
        case Minimum():
            return min(args)
        case Select():
            return args[1] if args[0] else args[2]
        case sympy.StrictGreaterThan():
            return args[0] > args[1]
    raise AssertionError(body)


EARLY_AT_ONCE = (
    (interleaved.FEW, interleaved.SHORT, interleaved.LONG),
    (0, 0, 1),  # instances of one statement in a row
    (0, 0, CHUNK),  # statement after statement
)
"""From how many instances on they run at once: as it is, and always, since these nests have few."""


@given(st.data())
def test_random_nests_give_what_a_plain_interpreter_gives(data: st.DataObject) -> None:
    nest = data.draw(nests())
    sizes = data.draw(some_sizes(nest))
    inputs = inputs_for(nest, np.random.default_rng(1), sizes)
    expected = plain(nest, inputs, sizes)
    for few, short, long in EARLY_AT_ONCE:
        with pytest.MonkeyPatch.context() as patched:
            for name, count in (("FEW", few), ("SHORT", short), ("LONG", long)):
                patched.setattr(interleaved, name, count)
            found = interpret(nest, inputs)
        for name, elements in expected.items():
            assert {index: found[name][index] for index in elements} == elements


def one(text: str, domain: str, *tensors: Tensor, context: str = "{ : }") -> Nest:
    return Nest.of(tensors, [statement(domain, text)], context=context)


def test_two_statements_in_one_shifted_loop_run_in_the_order_of_their_dates() -> None:
    first = statement("{ S[i] : 0 <= i < 5 }", "P[i] = P[i] + 1")
    second = statement("{ R[i] : 0 <= i < 4 }", "Q[i] = P[i + 1]")
    p, q = Tensor("P", (5,), "float64", "inout"), Tensor("Q", (4,), "float64", "output")
    for shift, expected in ((0, [1.0, 2.0, 3.0, 4.0]), (1, [2.0, 3.0, 4.0, 5.0])):
        dates = (
            ("S", dimension(first.domain, 0)),
            ("R", dimension(second.domain, 0).add_constant_val(shift)),
        )
        order = Loop("t", dates, sequence(tuple(tree.body for tree in map(own_loops, (first, second)))))
        nest = Nest.of([p, q], [first, second], order)
        assert interpret(nest, [np.arange(5.0)])["Q"].tolist() == expected


def test_a_recurrence_runs_instance_by_instance() -> None:
    nest = one("a[i] = a[i - 1] + a[i]", "{ S[i] : 1 <= i < 9 }", Tensor("a", (9,), "int64", "inout"))
    assert interpret(nest, [np.arange(9)])["a"].tolist() == np.cumsum(np.arange(9)).tolist()


@pytest.mark.parametrize("ahead", [1, 7, 40])
def test_a_recurrence_runs_as_many_at_once_as_do_not_need_each_other(ahead: int) -> None:
    nest = one(
        f"a[i] = a[i - {ahead}] + a[i]",
        f"{{ S[i] : {ahead} <= i < 200 }}",
        Tensor("a", (200,), "int64", "inout"),
    )
    expected = np.arange(200)
    for i in range(ahead, 200):
        expected[i] += expected[i - ahead]
    assert interpret(nest, [np.arange(200)])["a"].tolist() == expected.tolist()


def test_loops_of_no_instances_do_nothing() -> None:
    nest = one("a[i] = a[i - 1]", "{ S[i] : 1 = 0 }", Tensor("a", (3,), "int64", "inout"))
    assert interpret(nest, [np.arange(3)])["a"].tolist() == [0, 1, 2]


def test_sums_whose_loops_interleave_round_as_one_by_one() -> None:
    """Terms of halves are float32 numbers, and of wider numbers the sum is rounded, not they."""
    first = statement("{ Z[i] : 0 <= i < 9 }", "s[i] = x[i, 0]")
    add = statement("{ S[i, k] : 0 <= i < 9 and 0 < k < 90 }", "s[i] += x[i, k] * x[i, k]")
    dates = tuple((s.name, dimension(s.domain, 0)) for s in (first, add))
    order = Loop("i", dates, sequence(tuple(tree.body for tree in map(own_loops, (first, add)))))
    kinds = (
        ("float32",) * 3,
        ("float64",) * 3,
        ("float16", "float32", "float32"),
        ("float64", "float64", "float32"),
    )
    for dtype, term, kept in kinds:
        tensors = [Tensor("x", (9, 90), dtype, "input"), Tensor("s", (9,), kept, "output")]
        x = np.random.default_rng(0).standard_normal((9, 90)).astype(dtype)
        sums, terms = x[:, 0].astype(kept), x.astype(term) * x.astype(term)
        for k in range(1, 90):
            sums = (sums + terms[:, k]).astype(kept)
        assert interpret(Nest.of(tensors, [first, add], order), [x])["s"].tolist() == sums.tolist()


def test_an_assignment_that_hits_an_element_again_keeps_the_last() -> None:
    nest = one(
        "s[i] = x[i, j]",
        "{ S[i, j] : 0 <= i < 3 and 0 <= j < 4 }",
        Tensor("x", (3, 4), "float64", "input"),
        Tensor("s", (3,), "float64", "output"),
    )
    x = np.arange(12.0).reshape(3, 4)
    assert interpret(nest, [x])["s"].tolist() == x[:, -1].tolist()


@pytest.mark.parametrize(
    ("bounds", "mask"),
    [
        ("0 <= i <= j < 7", lambda i, j: i <= j),
        ("0 <= i, j < 7 and (i + 2*j) mod 3 = 1", lambda i, j: (i + 2 * j) % 3 == 1),
        ("0 <= i, j < 7 and (i < 2 or j > 4)", lambda i, j: (i < 2) | (j > 4)),
        ("0 <= i, j < 7 and exists a: 3*a <= i <= 3*a + 1", lambda i, j: i % 3 <= 1),
        ("0 <= i, j < 7 and i = j", lambda i, j: i == j),
        ("0 <= i, j < 7 and 1 = 0", lambda i, j: i < 0),
    ],
)
def test_domains_of_any_form_are_exact(bounds: str, mask: Any) -> None:
    nest = one("y[i, j] += 1.0", f"{{ S[i, j] : {bounds} }}", Tensor("y", (7, 7), "float64", "inout"))
    i, j = np.mgrid[:7, :7]
    assert interpret(nest, [np.zeros((7, 7))])["y"].tolist() == mask(i, j).astype(float).tolist()


@pytest.mark.parametrize(
    ("subscript", "index"),
    [
        ("11 - i", lambda i: 11 - i),
        ("floor(i/2)", lambda i: i // 2),
        ("i mod 5", lambda i: i % 5),
        ("0", lambda i: 0 * i),
    ],
)
def test_subscripts_of_any_form_are_exact(subscript: str, index: Any) -> None:
    nest = Nest.of(
        [Tensor("x", (12,), "float64", "input"), Tensor("y", (12,), "float64", "output")],
        [
            statement(
                "{ S[i] : 0 <= i < 12 }",
                f"y[i] = x[{subscript.replace('floor(i/2)', 'i // 2').replace('mod', '%')}]",
            )
        ],
    )
    x = np.random.default_rng(0).standard_normal(12)
    assert interpret(nest, [x])["y"].tolist() == x[index(np.arange(12))].tolist()


def test_a_statement_larger_than_one_chunk() -> None:
    rows = CHUNK // 1000 + 3
    nest = Nest.of(
        [Tensor("x", (rows, 1000), "float32", "input"), Tensor("s", (1000,), "float32", "output")],
        [
            statement("{ Z[j] : 0 <= j < 1000 }", "s[j] = -inf"),
            statement(f"{{ S[i, j] : 0 <= i < {rows} and 0 <= j < 1000 }}", "s[j] max= x[i, j]"),
        ],
    )
    x = np.random.default_rng(0).standard_normal((rows, 1000), dtype=np.float32)
    assert np.array_equal(interpret(nest, [x])["s"], x.max(0))


def test_unwritten_elements_are_poison_and_the_callers_arrays_stay_as_they_are() -> None:
    y, n = Tensor("y", (3,), "float32", "output"), Tensor("n", (3,), "int32", "output")
    a = Tensor("a", (3,), "float64", "inout")
    nest = Nest.of(
        [y, n, a],
        [statement("{ S[i] : i = 1 }", "y[i] = 1"), statement("{ R[i] : i = 1 }", "n[i] = 1"),
         statement("{ T[i] : 0 <= i < 3 }", "a[i] = 2 * a[i]")],
    )  # fmt: skip
    given_ = np.ones(3)
    found = interpret(nest, {"a": given_})
    assert np.isnan(found["y"]).tolist() == [True, False, True]
    assert found["n"].tolist() == [np.iinfo(np.int32).min, 1, np.iinfo(np.int32).min]
    assert (found["a"].tolist(), given_.tolist()) == ([2, 2, 2], [1, 1, 1])


def test_float32_stays_float32() -> None:
    x = np.float32(1) / np.float32(3)
    nest = one("y[i] = x * 0.1 + i", "{ S[i] : 0 <= i < 2 }", Tensor("x", (), "float32", "input"),
               Tensor("y", (2,), "float32", "output"))  # fmt: skip
    expected = [x * np.float32(0.1) + np.float32(i) for i in range(2)]
    assert interpret(nest, [np.array(x)])["y"].tolist() == [float(v) for v in expected]


def test_nan_and_infinity_pass_as_in_numpy() -> None:
    nest = one("y[i] = 1 / x[i] + max(x[i], 0)", "{ S[i] : 0 <= i < 4 }", Tensor("x", (4,), "float64", "input"),
               Tensor("y", (4,), "float64", "output"))  # fmt: skip
    found = interpret(nest, [np.array([np.nan, np.inf, -np.inf, 0.0])])["y"]
    assert np.array_equal(found, [np.nan, np.inf, 0.0, np.inf], equal_nan=True)


def test_a_scalar_statement() -> None:
    nest = one(
        "y = x + 1", "{ S[] }", Tensor("x", (), "float64", "input"), Tensor("y", (), "float64", "output")
    )
    assert interpret(nest, [2.0])["y"].item() == 3.0


TRIANGLE = Nest.of(
    [Tensor("A", ("N", "2*N"), "float64", "input"), Tensor("s", ("N",), "float64", "output")],
    [
        statement("[N] -> { Z[i] : 0 <= i < N }", "s[i] = 0"),
        statement("[N] -> { S[i, j] : 0 <= i < N and i < j < 2 * N }", "s[i] += A[i, j] * N"),
    ],
    context="[N] -> { : 1 <= N <= 100 }",
)


def test_symbolic_sizes_are_told_from_the_shapes() -> None:
    a = np.random.default_rng(0).standard_normal((5, 10))
    assert np.allclose(interpret(TRIANGLE, [a])["s"], 5 * np.triu(a, 1).sum(1))


def test_sizes_that_no_shape_says_are_asked_for() -> None:
    nest = one("y[i] = i", "[N] -> { S[i] : 0 <= i < N }", Tensor("y", ("N",), "float64", "output"),
               context="[N] -> { : 1 <= N <= 9 }")  # fmt: skip
    assert interpret(nest, {}, sizes={"N": 3})["y"].tolist() == [0, 1, 2]
    with pytest.raises(BadArgument, match=r"do not say N; give sizes=\{'N'"):
        interpret(nest, {})
    with pytest.raises(BadArgument, match="N <= 9 does not hold"):
        interpret(nest, {}, sizes={"N": 10})


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({}, r"input A: float64\[N, 2\*N\] is missing; given are none"),
        ({"A": np.ones((2, 4)), "B": 1}, "'B' is not an input of the nest; its inputs are A"),
        ([np.ones((2, 4)), 1], "given 2 arrays for the inputs A"),
        ([np.ones((2, 4), np.float32)], r"A is float32\[2, 4\], expected input A: float64"),
        ([np.ones(4)], r"A is float64\[4\], expected"),
        ([np.ones((2, 5))], r"A has shape \(2, 5\), expected \(2, 4\)"),
    ],
)
def test_bad_arguments_are_named(inputs: Any, message: str) -> None:
    with pytest.raises(BadArgument, match=message):
        interpret(TRIANGLE, inputs)


def test_constants_can_be_given_other_values() -> None:
    nest = Nest.of(
        [Tensor("w", (2,), "float64", "constant"), Tensor("y", (2,), "float64", "output")],
        [statement("{ S[i] : 0 <= i < 2 }", "y[i] = w[i] * w[i]")],
        constants={"w": np.array([1.0, 2.0])},
    )
    assert interpret(nest, {})["y"].tolist() == [1, 4]
    assert interpret(nest, {"w": np.array([3.0, 4.0])})["y"].tolist() == [9, 16]


FUNCTIONS = {
    "exp(x[i])": np.exp,
    "log(abs(x[i]))": lambda x: np.log(np.abs(x)),
    "sqrt(abs(x[i]))": lambda x: np.sqrt(np.abs(x)),
    "tanh(x[i]) + sin(x[i]) * cos(x[i])": lambda x: np.tanh(x) + np.sin(x) * np.cos(x),
    "erf(x[i])": lambda x: np.vectorize(math.erf)(x),
    "pow(x[i], 3)": lambda x: x**3,
    "x[i] ** 2 - 1 / x[i]": lambda x: x**2 - 1 / x,
    "where(x[i] >= 0, min(x[i], 1), -x[i])": lambda x: np.where(x >= 0, np.minimum(x, 1), -x),
    "where(x[i] != x[i], 0.0, x[i])": lambda x: x,
    "(x[i] + 1e16) - x[i]": lambda x: (x + 1e16) - x,
    "2.0 / 3.0 * x[i]": lambda x: 2 / 3 * x,
}


@pytest.mark.parametrize("text", FUNCTIONS)
def test_every_function_of_a_body(text: str) -> None:
    nest = one(f"y[i] = {text}", "{ S[i] : 0 <= i < 50 }", Tensor("x", (50,), "float64", "input"),
               Tensor("y", (50,), "float64", "output"))  # fmt: skip
    x = np.random.default_rng(0).standard_normal(50)
    np.testing.assert_allclose(interpret(nest, [x])["y"], FUNCTIONS[text](x), rtol=1e-15)
