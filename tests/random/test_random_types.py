"""Random bodies of mixed types: machine code and lock-step have NumPy's types, and integers wrap as the oracle's do."""

# ruff: noqa: F821, UP037  (sizes are names in annotations)

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

import polyfuse as pf
from polyfuse.errors import InvalidNest
from polyfuse.ir import Nest, Tensor, statement
from tests.support.examples import examples

TYPES = ("int32", "int64", "float32", "float64")
COUNT = 37
FORMS = (
    *(
        "{a} + {b}",
        "{a} - {b}",
        "{a} * {b}",
        "-({a})",
        "({a}) / 4",
        "abs({a})",
        "max({a}, {b})",
        "min({a}, {b})",
    ),
    *("where({a} < {b}, {c}, {d})", "where({a} >= {b}, 2, 5)", "({a}) / where({a} < {b}, 2, 4)"),
)


@st.composite
def bodies(draw: st.DrawFn, depth: int = 3) -> str:
    """Elements of x, y and z, numbers and the index, under operations that have one meaning in each type."""
    if depth == 0 or draw(st.integers(0, 4)) == 0:
        return draw(st.sampled_from(["x[i]", "x[i]", "y[i]", "y[i]", "z[i]", "z[i]", "3", "-2", "0.75", "i"]))
    a, b, c, d = (draw(bodies(depth=depth - 1)) for _ in range(4))
    form = draw(st.sampled_from(FORMS))
    return "(" + form.format(a=a, b=b, c=c, d=d) + ")"


@st.composite
def nests(draw: st.DrawFn) -> Nest:
    """t[i] = a body, y[i] = a body with t: by way of an array that scalars may stand for."""
    kinds = draw(st.sampled_from([TYPES[:2], TYPES]))
    types = {name: draw(st.sampled_from(kinds)) for name in ("x", "y", "z", "t", "out")}
    roles = {"t": "temporary", "out": "output"}
    tensors = [Tensor(name, (COUNT,), types[name], roles.get(name, "input")) for name in types]  # type: ignore[arg-type]
    domain = f"{{ S[i] : 0 <= i < {COUNT} }}"
    first = statement(domain, f"t[i] = x[i] + {draw(bodies())}")
    second = statement(domain.replace("S", "R"), f"out[i] = t[i] + {draw(bodies())}".replace("z", "t"))
    used = {"out", *first.tensors, *second.tensors}
    return Nest.of([tensor for tensor in tensors if tensor.name in used], [first, second])


@settings(max_examples=examples(33))
@given(nests(), st.integers(0, 999))
def test_both_targets_have_numpys_types(nest: Nest, seed: int) -> None:
    rng = np.random.default_rng(seed)
    inputs = {t.name: _numbers(t, rng) for t in nest.inputs}
    with np.errstate(all="ignore"):
        expected = pf.interpret(nest, inputs)["out"]
    exact = all(tensor.dtype.startswith("int") for tensor in nest.tensors)
    event("integers" if exact else "fractions")
    for options in ({"target": "cpu"}, {"target": "cuda", "device": "lockstep", "machine": "h200"}):
        out = pf.compile(nest, **options)(**inputs)  # type: ignore[arg-type]
        assert out.dtype == expected.dtype
        if exact and "/" not in str(nest):
            np.testing.assert_array_equal(out, expected, str(options))
        else:
            np.testing.assert_allclose(out, expected, 1e-5, 1e-4, err_msg=str(options))


def _numbers(tensor: Tensor, rng: np.random.Generator) -> np.ndarray[tuple[int, ...], np.dtype[np.number]]:
    small = rng.integers(-8, 9, tensor.shape)
    return (small / 4 if tensor.dtype.startswith("float") else small).astype(tensor.dtype)


@pytest.mark.parametrize("target", ["cpu", "cuda"])
def test_an_int32_wraps_before_it_is_compared_widened_or_kept_in_a_variable(target: str) -> None:
    @pf.nest
    def wrapping(x: "i32[3]", larger: "i32[3]", wide: "i64[3]", total: "i32[1]"):  # type: ignore[no-untyped-def]
        for i in range(3):
            square = x[i] * x[i]
            larger[i] = max(square, 5)
            wide[i] = square + 1
            total[0] += square

    x = np.array([3, 50_000, 70_000], np.int32)
    results = np.zeros(3, np.int32), np.zeros(3, np.int64), np.zeros(1, np.int32)
    where = {"device": "lockstep", "machine": "h200"} if target == "cuda" else {}
    pf.compile(wrapping, target=target, **where)(x, *results)  # type: ignore[arg-type]
    larger, wide, total = results
    squares = [9, 50_000**2 - 2**32, 70_000**2 - 2**32]
    assert larger.tolist() == [9, 5, squares[2]]
    assert wide.tolist() == [square + 1 for square in squares]
    assert total.tolist() == [(sum(squares) + 2**31) % 2**32 - 2**31]


def test_what_is_chosen_between_numbers_takes_the_type_of_what_it_meets() -> None:
    domain = "{ S[i] : 0 <= i < 3 }"
    tensors = [Tensor("x", (3,), "int32", "input"), Tensor("wide", (3,), "int64", "output")]
    nest = Nest.of(tensors, [statement(domain, "wide[i] = x[i] * (1 + where(x[i] > 0, 2, 3))")])
    x = np.array([2**30, -(2**30), 7], np.int32)
    expected = [3 * 2**30 - 2**32, 0, 21]
    assert pf.interpret(nest, [x])["wide"].tolist() == expected
    assert pf.compile(nest, target="cpu")(x).tolist() == expected


@pytest.mark.parametrize("added", ["x[i]", "x[i] / 2", "0.5"])
def test_fractions_are_not_added_up_in_an_integer(added: str) -> None:
    x = Tensor("x", (4,), "float32" if added == "x[i]" else "int32", "input")
    total = Tensor("total", (1,), "int64", "inout")
    domain = "{ S[i] : 0 <= i < 4 }"
    with pytest.raises(
        InvalidNest, match=r"into total would cut off to int64 at every step: combine into a float64"
    ):
        Nest.of([x, total] if "x" in added else [total], [statement(domain, f"total[0] += {added}")])


EDGES = {
    "int32": (0, 1, -1, 2**31 - 1, -(2**31), 46_341),
    "int64": (0, 1, -1, 2**63 - 1, -(2**63), 2**32),
    "float32": (0.0, -0.0, -1.5, np.inf, -np.inf, np.nan, 1e30, 2.0**31),
    "float64": (0.0, -2.5, np.inf, -np.inf, np.nan, 1e300, -1e300, 2.0**63, 2.0**53 + 1),
}
AT_EDGES = {"i": ("x[i] * y[i]", "abs(x[i])"), "f": ("x[i]", "x[i] / y[i]")}


@pytest.mark.parametrize("target", ["cpu", "cuda"])
@pytest.mark.parametrize("kind", EDGES)
def test_numbers_at_the_edges_of_their_types(kind: str, target: str) -> None:
    """What wraps, is infinite, or is stored to a type that cannot hold it is the same everywhere."""
    edges = np.array(EDGES[kind], kind)
    x, y = (grid.ravel() for grid in np.meshgrid(edges, edges))
    tensors = [Tensor(name, x.shape, kind, "input") for name in "xy"]  # type: ignore[arg-type]
    statements = []
    for number, (to, body) in enumerate(itertools.product(EDGES, AT_EDGES[kind[0]])):
        tensors.append(Tensor(f"o{number}", x.shape, to, "output"))  # type: ignore[arg-type]
        statements.append(statement(f"{{ S{number}[i] : 0 <= i < {len(x)} }}", f"o{number}[i] = {body}"))
    nest = Nest.of(tensors, statements)
    where = {"device": "lockstep", "machine": "h200"} if target == "cuda" else {}
    found = pf.compile(nest, target=target, **where)(x, y)  # type: ignore[arg-type]
    expected = pf.interpret(nest, [x, y])
    for number, array in enumerate(found):
        np.testing.assert_array_equal(array, expected[f"o{number}"], str(statements[number]))
