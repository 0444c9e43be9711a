"""Views composed into their users: nothing is copied, every value stays, what is refused, and both targets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import polyfuse as pf
from polyfuse import nn
from polyfuse.errors import IllegalRewrite
from polyfuse.rewrite import compose_views, needed, place, read_through, why_not_place, why_not_read_through
from polyfuse.rewrite.views import in_place_of
from polyfuse.rewrite.views import read_through as read_through_
from polyfuse.rewrite.views.flow import Composed, is_view
from polyfuse.sets import mixes_results
from tests.support.examples import examples

# ruff: noqa: F821

Array = np.ndarray[Any, Any]
WEIGHT = np.arange(6 * 8, dtype=np.float32).reshape(6, 8) % 5 - 2


def drawn(nest: pf.Nest) -> dict[str, Array]:
    numbers = np.random.default_rng(0)
    return {t.name: numbers.integers(-4, 5, [int(s) for s in t.shape]).astype(t.dtype) for t in nest.inputs}


def copies(nest: pf.Nest) -> list[str]:
    return [s.name for s in nest.statements if is_view(s) and s.reads]


def composed(*values: nn.Value) -> pf.Nest:
    """The nest after composition, which computes what it did."""
    nest = nn.lower(values)
    after = compose_views(nest).nest
    arrays = drawn(nest)
    expected, found = pf.interpret(nest, arrays), pf.interpret(after, arrays)
    assert all(np.array_equal(expected[name], found[name]) for name in expected)
    return after


x = nn.input("x", (4, 6))
y = nn.input("y", (4, 6))


@pytest.mark.parametrize(
    ("make", "statements"),
    [
        (lambda: nn.relu(nn.narrow(x, 1, 2, 3)), ["relu0"]),
        (lambda: nn.relu(nn.transpose(nn.reshape(x, (2, 2, 6)), 0, 2)), ["relu0"]),
        (lambda: nn.relu(nn.concat([x, y], 1)), ["relu0", "relu0_2"]),
        (lambda: nn.concat([nn.relu(x), nn.tanh(y)], 1), ["relu0", "tanh0"]),
        (lambda: nn.transpose(nn.linear(x, WEIGHT)), ["zero0", "mac0"]),
        (lambda: nn.reshape(nn.linear(x, WEIGHT), (8, 4)), ["zero0", "mac0"]),
        (lambda: nn.linear(x, WEIGHT)[1:, 2:5], ["zero0", "mac0"]),
        (lambda: nn.relu(x)[:, ::2], ["slice0"]),
        (lambda: nn.exp(nn.pad(x, (1, (2, 0)))), ["exp0", "exp0_2"]),
        (lambda: nn.linear(nn.concat([x, y], 0), WEIGHT), ["zero0", "mac0", "mac0_2"]),
        (lambda: nn.sum(nn.unfold(x, 1, 3) * np.ones(3, np.float32), -1), ["mul0", "sum_init0", "sum0"]),
        (lambda: nn.expand(nn.relu(x[:, :1]), (4, 6)) * nn.flip(y, 0), ["relu0", "mul0"]),
    ],
)
def test_no_copy_is_left(make: Callable[[], nn.Value], statements: list[str]) -> None:
    assert [s.name for s in composed(make()).statements] == statements


def test_heads_of_windows_are_told_apart_without_long_questions() -> None:
    """Windows of 5 pixels with 3 heads of 4: of a reshape into (window and head, pixel) isl once asked for minutes."""
    rows = nn.linear(nn.input("rows", (2 * 5, 4)), np.ones((4, 36), np.float32))
    parts = nn.transpose(nn.transpose(nn.reshape(rows, (2, 5, 3, 3, 4)), 0, 2), 1, 2)
    heads = nn.reshape(nn.transpose(parts, 2, 3)[2], (6, 5, 4))
    nest = nn.lower(nn.relu(heads))
    kept = compose_views(nest)
    assert ["tied to each other" in str(refusal) for refusal in kept.kept] == [True]
    assert all(not mixes_results(access.map) for s in kept.nest.statements for access in s.reads)
    arrays = drawn(nest)
    expected, found = pf.interpret(nest, arrays), pf.interpret(kept.nest, arrays)
    assert all(np.array_equal(expected[name], found[name]) for name in expected)


def test_gates_of_one_product_are_read_where_they_lie() -> None:
    i, f, g, o = nn.chunk(nn.linear(x, WEIGHT), 4, 1)
    cell = nn.sigmoid(f) * nn.tanh(i) + nn.sigmoid(g)
    assert copies(composed(nn.sigmoid(o) * nn.tanh(cell), cell)) == []


def test_what_an_output_demands_stays_and_says_why() -> None:
    views = compose_views(nn.lower(nn.transpose(x)))
    assert copies(views.nest) == ["permute0"]
    assert "x is not computed in this nest (input)" in str(views)
    views = compose_views(nn.lower(nn.stack([x, nn.relu(x)])))
    assert copies(views.nest) == ["stack0_0"]


def test_a_view_that_a_caller_sees_stays_where_placing_it_is_not_accepted() -> None:
    nest = nn.lower(nn.linear(x, WEIGHT)[1])
    views = compose_views(nest, accept=lambda before, found: "it would cost more")
    assert copies(views.nest) == ["slice0"]
    assert [refusal.why for refusal in views.kept] == ["it would cost more"]


def test_a_view_that_is_not_accepted_is_neither_proven_nor_asked_about_at_each_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Beside one copy that stays, six views of it are composed: it is asked about in the beginning and in the end."""
    kept = nn.reshape(nn.relu(x), (6, 4))
    nest, asked = nn.lower([nn.exp(nn.narrow(kept, 0, k, 1)) for k in range(6)]), []

    def accept(_: pf.Nest, done: Composed) -> str | None:
        asked.append(done.statements)
        return "it stays" if done.statements == ("reshape0",) else None

    proven = []
    for module, name in ((in_place_of, "differences"), (read_through_, "checked")):

        def noted(before: pf.Nest, after: pf.Nest, gone: frozenset[str], *more: Any, of: Any) -> Any:
            proven.append(gone)
            return of(before, after, gone, *more)

        monkeypatch.setattr(module, name, partial(noted, of=getattr(module, name)))
    views = compose_views(nest, accept)
    assert len(views.composed) == 6
    assert asked.count(("reshape0",)) <= 2 * len(("placed", "read through"))
    assert frozenset({"reshape0"}) not in proven


def test_a_dense_block_has_one_tensor_of_which_each_layer_reads_the_beginning() -> None:
    parts, weights = [nn.exp(x)], np.ones((24, 6), np.float32)
    for layer in range(1, 5):
        parts.append(nn.linear(nn.relu(nn.concat(parts, 1)), weights[: 6 * layer]))
    after = composed(nn.concat(parts, 1))
    assert sum(s.name.startswith("relu") for s in after.statements) == 4, "none in pieces"
    read = {a.tensor for s in after.statements if s.name.startswith("relu") for a in s.reads}
    assert read == {"out"}


def test_what_no_view_shows_is_not_computed() -> None:
    nest = nn.lower(nn.linear(x, WEIGHT)[:, :3])
    assert [str(s.domain) for s in needed(nest).statements][:2] == [
        "{ zero0[i, j] : 0 <= i <= 3 and 0 <= j <= 2 }",
        "{ mac0[i, j, k] : 0 <= i <= 3 and 0 <= j <= 2 and 0 <= k <= 5 }",
    ]
    whole = nn.lower(nn.relu(x))
    assert needed(whole) is whole


def test_what_it_says(golden: Callable[[str, str], None]) -> None:
    i, f = nn.chunk(nn.linear(x, WEIGHT), 2, 1)
    z = nn.concat([nn.sigmoid(i) * nn.tanh(f), nn.pad(y, (0, (1, 0)))], 1)
    views = compose_views(nn.lower((nn.transpose(z), nn.reshape(x, (6, 4)))))
    golden("rewrite/views.txt", f"{views}\n\n{views.nest}\n")


# -- any views ---------------------------------------------------------------------------------------------------------


@st.composite
def graphs(draw: st.DrawFn) -> nn.Value:
    """Views and pointwise operations on two inputs, one after the other."""
    value: nn.Value = x
    for _ in range(draw(st.integers(1, 5))):
        axis = draw(st.integers(0, value.rank - 1)) if value.rank else 0
        ways = ["relu", "reshape", "stack"]
        if value.rank:
            ways += ["permute", "flip", "slice", "pad", "concat", "sum", "expand", "again"]
        way = draw(st.sampled_from(ways))
        size = value.shape[axis] if value.rank else 1
        if way == "relu":
            value = nn.relu(value)
        elif way == "reshape":
            total = int(np.prod(value.shape))
            rows = draw(st.sampled_from([d for d in range(1, total + 1) if total % d == 0]))
            value = nn.reshape(value, (rows, total // rows))
        elif way == "stack":
            value = nn.stack([value, nn.relu(value)], draw(st.integers(0, value.rank)))
        elif way == "permute":
            value = nn.permute(value, draw(st.permutations(range(value.rank))))
        elif way == "flip":
            value = nn.flip(value, axis)
        elif way == "slice":
            start, step = draw(st.integers(0, size - 1)), draw(st.integers(1, 3))
            value = value[(*[slice(None)] * axis, slice(start, None, step))]
        elif way == "pad":
            widths = [(0, 0)] * value.rank
            widths[axis] = (draw(st.integers(0, 2)), draw(st.integers(0, 2)))
            value = nn.pad(value, widths, 1.5)
        elif way == "concat":
            value = nn.concat([value, -value], axis)
        elif way == "sum":
            value = nn.sum(value, axis, keepdims=True)
        elif way == "expand":
            value = nn.expand(value, (2, *value.shape))
        else:
            value = value + nn.flip(value, axis)
    return value


@settings(max_examples=examples(60), deadline=None)
@given(graphs())
def test_any_graph_of_views_keeps_its_values(value: nn.Value) -> None:
    composed(value)


@settings(max_examples=examples(8), deadline=None)
@given(graphs())
def test_any_graph_of_views_runs_on_both_targets(value: nn.Value) -> None:
    nest = nn.lower(value)
    arrays = drawn(nest)
    expected = pf.interpret(nest, arrays)["out"]
    assert np.array_equal(pf.compile(nest, target="cpu")(**arrays), expected)
    lockstep = pf.compile(nest, target="cuda", device="lockstep", machine="h200")
    assert np.array_equal(lockstep(**arrays), expected)


def test_threads_of_a_strided_reader_are_those_that_hold_its_values() -> None:
    big = nn.input("x", (8, 32))
    nest = nn.lower(nn.relu(nn.linear(big, np.ones((32, 32), np.float32)))[:, ::2])
    arrays = drawn(nest)
    found = pf.compile(nest, target="cuda", device="lockstep", machine="h200")(**arrays)
    assert np.array_equal(found, pf.interpret(nest, arrays)["out"])


# -- compile -----------------------------------------------------------------------------------------------------------


def test_a_cell_is_one_kernel_without_copies() -> None:
    i, f = nn.chunk(nn.linear(x, WEIGHT), 2, 1)
    nest = nn.lower(nn.sigmoid(i) * nn.tanh(f))
    net = pf.compile(nest, machine="xeon")
    assert len(net.kernels) == 1
    assert copies(net.schedule.source) == []
    assert "v0 is read through, in sigmoid0." in net.explain()
    assert len(pf.compile(nest, machine="xeon", fuse=False).kernels) == 6


def test_a_copy_stays_where_a_product_would_lose_more() -> None:
    wide = nn.input("x", (512, 8, 64))
    nest = nn.lower(nn.linear(nn.reshape(wide, (512, 512)), np.ones((512, 512), np.float32)))
    net = pf.compile(nest, target="cpu", machine="zen5")
    assert copies(net.schedule.source) == ["reshape0"]
    assert "mac0 would no longer run in blocks" in net.explain()


# -- what is refused ---------------------------------------------------------------------------------------------------


@pf.nest
def changing(x: f32[N], y: f32[N], z: f64[N], w: f32[N]):
    T = np.empty(N, np.float32)
    U = np.empty(N, np.float32)
    V = np.empty(N, np.float32)
    for i in range(N):
        T[i] = x[i]
    for i in range(N):
        U[i] = x[i] * 2.0
    for i in range(N):
        V[i] = z[i]
    for i in range(N - 1):
        x[i + 1] = U[i]
    for i in range(N):
        y[i] = T[i] + V[i]
    for i in range(N):
        w[i] = U[i]
    for i in range(N):
        U[i] = 0.0
    for i in range(N):
        w[i] = w[i] + U[i]


@pytest.mark.parametrize(
    ("tensor", "why"),
    [
        ("T", r"an element that T shows is overwritten before it is read \(S0\[1\], S4\[1\]\)"),
        ("U", "S1 computes U"),
        ("V", "S2 shows values of float64 as float32"),
        ("y", "y is visible to the caller"),
    ],
)
def test_what_cannot_be_read_through(tensor: str, why: str) -> None:
    refusal = why_not_read_through(changing, tensor)
    assert refusal is not None
    with pytest.raises(IllegalRewrite, match=why) as error:
        read_through(changing, tensor)
    assert error.value.refusal == refusal


def filled(number: float, dtype: str) -> pf.Nest:
    """Halves with a number beside them, whose users are of another type."""
    half = nn.pad(nn.input("x", (6, 4), dtype), (1, 0), number)
    return nn.lower(nn.matmul(half, nn.input("y", (4, 3), dtype)))


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_halves_are_read_through_where_each_value_is_the_same(dtype: str) -> None:
    """A sum of float32 numbers reads a half or the half that a view shows; a number it would read unrounded."""
    assert why_not_read_through(filled(0.25, dtype), "v0") is None
    refusal = why_not_read_through(filled(0.1, dtype), "v0")
    assert refusal is not None
    assert f"shows 0.1 as {dtype}, and is read with values of another type" in refusal.why


@pytest.mark.parametrize(
    ("statement", "why"),
    [
        ("S0", r"x is not computed in this nest \(inout\)"),
        ("S1", "S1 computes its values"),
        ("S3", r"S1 computes elements of U that have no place in x"),
        ("S5", r"S7 writes the same elements of w"),
    ],
)
def test_what_cannot_live_in_place(statement: str, why: str) -> None:
    refusal = why_not_place(changing, statement)
    assert refusal is not None
    with pytest.raises(IllegalRewrite, match=why) as error:
        place(changing, statement)
    assert error.value.refusal == refusal


def test_a_source_that_changes_after_it_was_shown_is_refused() -> None:
    @pf.nest
    def later(x: f32[N], w: f32[N], v: f32[N]):
        U = np.empty(N, np.float32)
        for i in range(N):
            U[i] = x[i] * 2.0
        for i in range(N):
            w[i] = U[i]
        for i in range(N):
            U[i] = x[i] * 3.0
        for i in range(N):
            v[i] = U[i] + 1.0

    assert "U is overwritten after S1 copies it" in str(why_not_place(later, "S1"))


def test_an_element_that_would_have_two_places_is_refused() -> None:
    nest = nn.lower(nn.expand(nn.relu(nn.sum(x, 1, keepdims=True)), (4, 6)))
    assert "would have several places in out" in str(why_not_place(nest, "expand0"))
    assert copies(compose_views(nest).nest) == ["expand0"]


def test_an_element_written_twice_is_refused() -> None:
    @pf.nest
    def twice(x: f32[N], y: f32[N]):
        T = np.empty(N, np.float32)
        for i in range(N):
            T[i] = 0.0
        for i in range(N - 1):
            T[i + 1] = x[i]
        for i in range(N):
            y[i] = T[i] + T[i]

    assert "two instances write one element of T (S0[1], S1[0])" in str(why_not_read_through(twice, "T"))


@pytest.mark.parametrize(
    "make",
    [
        lambda: nn.relu(nn.concat([x, y], 1)),
        lambda: (
            nn.relu(nn.concat([nn.transpose(x), nn.exp(nn.transpose(y))], 0)),
            nn.sum(nn.concat([x, y], 0), -1),
        ),
        lambda: nn.tanh(nn.pad(nn.exp(nn.pad(nn.relu(x), (1, (2, 0)))), (1, (0, 1)))),
        lambda: nn.concat([nn.relu(x), nn.tanh(y)], 1),
    ],
)
def test_dependences_taken_over_are_those_of_the_new_nest(make: Callable[[], Any]) -> None:
    made = make()
    after = compose_views(nn.lower(made if isinstance(made, tuple) else (made,))).nest
    taken_over, anew = after.dependences(), replace(after).dependences()
    assert all(old.is_equal(new) for (_, old), (_, new) in zip(taken_over.kinds(), anew.kinds(), strict=True))
