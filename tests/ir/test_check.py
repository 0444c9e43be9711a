"""Each invariant of a nest, broken: the message names the statement and an instance."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import sympy
from hypothesis import given

import polyfuse as pf
from polyfuse.errors import InvalidNest
from polyfuse.interpret import interpret
from polyfuse.ir import DType, Nest, Statement, Tensor, statement
from polyfuse.ir.form import renamed_statement
from polyfuse.ir.scalar import Read
from polyfuse.ir.tree import Leaf, sequence
from tests.support.nests import nests

X = Tensor("x", (8,), "float32", "input")
Y = Tensor("y", (8,), "float32", "output")
T = Tensor("t", (8,), "float32", "temporary")


def s(name: str, text: str, bounds: str = "0 <= i < 8") -> Statement:
    return statement(f"{{ {name}[i] : {bounds} }}", text)


@given(nests())
def test_random_nests_check(nest: Nest) -> None:
    nest.check()


def test_a_subscript_out_of_bounds() -> None:
    with pytest.raises(InvalidNest, match=r"S: x\[1 \+ i\] is out of bounds of x\[8\] at S\[7\]"):
        Nest.of([X, Y], [s("S", "y[i] = x[i + 1]")])
    with pytest.raises(InvalidNest, match=r"S: y\[-2 \+ i\] is out of bounds of y\[8\] at S\[0\]"):
        Nest.of([X, Y], [s("S", "y[i - 2] = x[i]")])


def test_a_subscript_out_of_bounds_at_some_size() -> None:
    y = Tensor("y", ("N",), "float32", "output")
    first = statement("[N] -> { S[i] : 0 <= i < 8 }", "y[i] = 1.0")
    with pytest.raises(InvalidNest, match=r"out of bounds of y\[N\] at S\[\d\] with \{'N': \d\}"):
        Nest.of([y], [first], context="[N] -> { : 1 <= N <= 9 }")
    Nest.of([y], [first], context="[N] -> { : 8 <= N <= 9 }")


def test_an_access_of_the_wrong_rank() -> None:
    with pytest.raises(InvalidNest, match=r"S: x\[i, 0\] has 2 subscripts, x has rank 1"):
        Nest.of([X, Y], [s("S", "y[i] = x[i, 0]")])


def test_a_temporary_is_a_variable_it_may_be_assigned_again() -> None:
    nest = Nest.of(
        [X, T, Y],
        [
            s("S0", "t[i] = x[i]"),
            s("S1", "y[i] = t[i]"),
            s("S2", "t[i] = 2.0 * x[i]", "3 <= i < 5"),
            s("S3", "y[i] += t[i]"),
        ],
    )
    x = np.arange(8, dtype=np.float32)
    expected = x + np.where((np.arange(8) >= 3) & (np.arange(8) < 5), 2 * x, x)
    assert (interpret(nest, {"x": x})["y"] == expected).all()
    assert {(p.kind, p.source, p.sink) for p in nest.dependences().pairs if p.sink == "S2"} == {
        ("anti", "S1", "S2"),
        ("output", "S0", "S2"),
    }


def test_an_output_may_be_assigned_twice_and_a_temporary_accumulated() -> None:
    Nest.of([X, Y], [s("S0", "y[i] = x[i]"), s("S1", "y[i] = x[7 - i]")])
    Nest.of(
        [X, Y, T],
        [s("Z", "t[i] = 0.0"), s("A", "t[i] += x[i]"), s("B", "t[i] += x[i]"), s("C", "y[i] = t[i]")],
    )


def test_a_temporary_read_before_it_is_written() -> None:
    with pytest.raises(InvalidNest, match=r"S1\[5\] reads t before any statement has written it"):
        Nest.of([T, Y], [s("S0", "t[i] = 1.0", "0 <= i < 5"), s("S1", "y[i] = t[i]")])
    with pytest.raises(InvalidNest, match=r"S1\[0\] reads t before"):
        Nest.of([T, Y], [s("S1", "y[i] = t[i]"), s("S0", "t[i] = 1.0")])


def test_a_reduction_into_a_temporary_needs_its_first_value() -> None:
    with pytest.raises(InvalidNest, match=r"A\[0\] reads t before"):
        Nest.of([X, T], [s("A", "t[i] += x[i]")])


def test_the_order_counts_not_the_position() -> None:
    first, second = s("S0", "t[i] = 1.0"), s("S1", "y[i] = t[i]")
    with pytest.raises(InvalidNest, match=r"S1\[0\] reads t before"):
        Nest.of([T, Y], [first, second], order=sequence((Leaf("S1"), Leaf("S0"))))


@pytest.mark.parametrize("role", ["input", "constant"])
def test_what_is_given_is_not_written(role: str) -> None:
    x = Tensor("x", (8,), "float32", role)  # type: ignore[arg-type]
    with pytest.raises(InvalidNest, match=f"S writes x, which has role {role}"):
        Nest.of([x], [s("S", "x[i] = 1.0")], constants={"x": np.zeros(8, np.float32)})


def test_names_are_given_once() -> None:
    with pytest.raises(InvalidNest, match="two tensors are named 'x'"):
        Nest.of([X, X, Y], [s("S", "y[i] = x[i]")])
    with pytest.raises(InvalidNest, match="two statements are named 'S'"):
        Nest.of([X, Y], [s("S", "y[i] = x[i]"), s("S", "y[i] = x[i]")])


def test_the_order_runs_every_statement_once() -> None:
    with pytest.raises(InvalidNest, match=r"the order runs \('S', 'S'\), but the statements are \('S',\)"):
        Nest.of([X, Y], [s("S", "y[i] = x[i]")], order=sequence((Leaf("S"), Leaf("S"))))


def test_constants_have_values_of_their_shape_and_type() -> None:
    c = Tensor("c", (8,), "float32", "constant")
    first = s("S", "y[i] = c[i]")
    with pytest.raises(InvalidNest, match="constant c has no value"):
        Nest.of([c, Y], [first])
    with pytest.raises(InvalidNest, match=r"constant c is float64\[8\], expected float32\[8\]"):
        Nest.of([c, Y], [first], constants={"c": np.zeros(8)})
    with pytest.raises(InvalidNest, match=r"constant c is float32\[7\], expected float32\[8\]"):
        Nest.of([c, Y], [first], constants={"c": np.zeros(7, np.float32)})


def test_an_unknown_tensor_is_named_with_those_there_are() -> None:
    with pytest.raises(InvalidNest, match="unknown tensor 'q'; expected one of x, y"):
        Nest.of([X, Y], [s("S", "y[i] = q[i]")])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Tensor("2x", (8,), "float32", "input"), "'2x' is not an identifier"),
        (lambda: Tensor("x", (8,), "float8", "input"), "dtype 'float8' is unknown; expected one of float32"),
        (lambda: Tensor("x", (8,), "float32", "in"), "role 'in' is unknown; expected one of input"),
    ],
)
def test_tensors_are_what_they_can_be(make: object, message: str) -> None:
    with pytest.raises(InvalidNest, match=message):
        make()  # type: ignore[operator]


def test_zero_size_tensors_check() -> None:
    x, y = Tensor("x", (0, 4), "float32", "input"), Tensor("y", (0, 4), "float32", "output")
    nest = Nest.of([x, y], [statement("{ S[i, j] : 0 <= i < 0 and 0 <= j < 4 }", "y[i, j] = x[i, j]")])
    assert nest.dependences().flow.is_empty()


@pytest.mark.parametrize(
    ("dtypes", "text", "why"),
    [
        (("int64", "float64"), "y[i] = pow(x[i], -1)", "int64 to the power of -1 is no integer"),
        (("int64", "float64"), "y[i] = 1.0 + x[i] ** -2", "int64 to the power of -2 is no integer"),
        (("float64", "int64"), "y[i] = inf", "inf does not fit int64"),
        (("float64", "int64"), "y[i] = -inf", "-inf does not fit int64"),
        (("float64", "int64"), "y[i] = 1e300", r"1e\+300 does not fit int64"),
        (("float64", "int64"), "y[i] = where(x[i] > 0, 1, inf)", "inf does not fit int64"),
        (("int32", "int32"), "y[i] = x[i] + 5000000000", "5000000000 does not fit int32"),
        (("int32", "int64"), "y[i] = x[i] * 2147483648", "2147483648 does not fit int32"),
        (("int32", "int32"), "y[i] = 2147483648", "2147483648 does not fit int32"),
    ],
)
def test_numbers_that_no_integer_holds(dtypes: tuple[DType, DType], text: str, why: str) -> None:
    """Targets would wrap or cut off, each in its own way; NumPy refuses."""
    x, y = Tensor("x", (8,), dtypes[0], "input"), Tensor("y", (8,), dtypes[1], "output")
    with pytest.raises(InvalidNest, match=f"S: {why}"):
        Nest.of([x, y], [s("S", text)])


@pytest.mark.parametrize("operation", [sympy.Add, sympy.Mul])
@pytest.mark.parametrize(
    ("numbers", "fits"), [((2**40, 1.5), False), ((1.5, 2**40), True), ((1, 2**31), False)]
)
def test_a_number_in_a_chain_meets_what_stands_before_it(
    operation: type[sympy.Expr], numbers: tuple[float, float], fits: bool
) -> None:
    x, y = Tensor("x", (8,), "int32", "input"), Tensor("y", (8,), "float64", "output")
    one = s("S", "y[i] = x[i] * 2")
    read = next(iter(one.body.atoms(Read)))
    chain = replace(one, body=operation(read, *map(sympy.sympify, numbers), evaluate=False))
    if not fits:
        with pytest.raises(InvalidNest, match="does not fit int32"):
            Nest.of([x, y], [chain])
        return
    first, second = numbers
    data = np.arange(8, dtype=np.int32)
    expected = data + first + second if operation is sympy.Add else data * first * second
    nest = Nest.of([x, y], [chain])
    for found in (interpret(nest, {"x": data})["y"], pf.compile(nest, target="cpu")(data)):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    ("dtypes", "text"),
    [
        (("int64", "int64"), "y[i] = x[i] ** 2 + 5000000000"),
        (("int64", "float64"), "y[i] = 1 / x[i] + x[i] / 3"),
        (("int32", "float64"), "y[i] = x[i] * 1e300 + inf"),
        (("int32", "int32"), "y[i] = -2147483647 - 1"),
        (("float32", "float32"), "y[i] = x[i] ** -1 + 5000000000"),
        (("int64", "int64"), "y[i] = where(x[i] > 0, 7, i)"),
    ],
)
def test_numbers_that_fit(dtypes: tuple[DType, DType], text: str) -> None:
    x, y = Tensor("x", (8,), dtypes[0], "input"), Tensor("y", (8,), dtypes[1], "output")
    nest = Nest.of([x, y], [s("S", text)])
    interpret(nest, {"x": np.arange(1, 9, dtype=dtypes[0])})


def test_a_check_of_touched_tensors_looks_at_nothing_else() -> None:
    good = Nest.of([X, T, Y], [s("S", "t[i] = x[i]"), s("R", "y[i] = t[i]")])
    wrong = replace(good, statements=(good.statements[0], s("R", "y[i] = t[i + 1]")))
    wrong.check(frozenset({"x"}))
    with pytest.raises(InvalidNest, match="out of bounds of t") as found:
        wrong.check(frozenset({"t"}))
    assert found.value.statement == "R"
    unwritten = replace(good, order=sequence(tuple(reversed(good.order.children))))  # type: ignore[union-attr]
    unwritten.check(frozenset({"x"}))
    with pytest.raises(InvalidNest, match="reads t before any statement has written it") as found:
        unwritten.check(frozenset({"t"}))
    assert found.value.statement == "R"


def test_a_temporary_in_parts_is_written_ahead_of_what_reads_it() -> None:
    halves = [s("S0", "t[i] = x[i]", "0 <= i < 4"), s("S1", "t[i] = x[i]", "4 <= i < 8")]
    Nest.of([X, T, Y], [*halves, s("S2", "y[i] = t[i]")])
    with pytest.raises(InvalidNest, match=r"S2\[4\] reads t before any statement has written it"):
        Nest.of([X, T, Y], [halves[0], s("S2", "y[i] = t[i]"), halves[1]])


def test_a_statement_is_looked_at_once_with_the_same_tensors(monkeypatch: pytest.MonkeyPatch) -> None:
    nest = Nest.of([X, T, Y], [s("S0", "t[i] = x[i]"), s("S1", "y[i] = t[i]")])
    seen: list[str] = []
    monkeypatch.setattr("polyfuse.ir.check._fits", lambda each: seen.append(each.name))
    nest.check()
    assert not seen
    smaller = tuple(replace(t, shape=(4,)) if t.name == "x" else t for t in nest.tensors)
    with pytest.raises(InvalidNest, match=r"S0: x\[i\] is out of bounds of x\[4\]"):
        replace(nest, tensors=smaller).check()
    assert seen == ["S0"]


@pytest.mark.parametrize(("size", "role"), [(2, "output"), (4, "input")])
def test_what_is_equal_but_for_names_is_checked_with_its_own_tensors(size: int, role: str) -> None:
    first = statement("{ S0[i] : 0 <= i < 4 }", "y0[i] = x[i]")
    names = {"S0": "S1", "y0": "y1", "x": "x"}
    second = renamed_statement(first, names.__getitem__)
    tensors = Tensor("x", (4,), "float32", "input"), Tensor("y0", (4,), "float32", "output")
    assert len(Nest.of([*tensors, Tensor("y1", (4,), "float32", "output")], [first, second]).statements) == 2
    with pytest.raises(InvalidNest, match="S1"):
        Nest.of([*tensors, Tensor("y1", (size,), "float32", role)], [first, second])  # type: ignore[arg-type]
