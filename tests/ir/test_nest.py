"""Nests as values: equality, pickling, order, look-up."""

from __future__ import annotations

import pickle

import islpy as isl
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from polyfuse import nn
from polyfuse.errors import IllegalSchedule, InvalidNest
from polyfuse.interpret import interpret
from polyfuse.ir import Instance, Nest, Tensor, Violation, statement
from polyfuse.ir.dependences import dependences
from polyfuse.ir.empty import computes_nothing, drop_empty
from polyfuse.ir.nest import ordered_statements
from polyfuse.ir.tree import Leaf, Loop, Sequence, dates, depth, path_to, restrict, sequence
from polyfuse.sets import point_of, points
from tests.frontend.python.running import defined
from tests.support.nests import inputs_for, nests, some_sizes


@given(st.data())
def test_a_pickled_nest_is_equal_and_computes_the_same(data: st.DataObject) -> None:
    nest = data.draw(nests())
    again = pickle.loads(pickle.dumps(nest))
    assert again == nest
    assert str(again) == str(nest)
    sizes = data.draw(some_sizes(nest))
    inputs = inputs_for(nest, np.random.default_rng(0), sizes)
    first, second = interpret(nest, inputs), interpret(again, inputs)
    assert all(np.array_equal(first[name], second[name], equal_nan=True) for name in first)


def test_pickling_a_network_keeps_its_weights() -> None:
    nest = nn.lower(nn.Sequential(nn.Linear(3, 4), nn.GELU(), nn.LayerNorm(4)), batch=2)
    again = pickle.loads(pickle.dumps(nest))
    assert again == nest
    assert np.array_equal(again.constants["w0"], nest.constants["w0"])
    assert again.dependences().flow.is_equal(nest.dependences().flow)


def test_other_constants_make_another_value_of_the_same_nest() -> None:
    nest = nn.lower(nn.Linear(2, 2, bias=False), batch=1)
    other = nest.with_constants({"w0": np.zeros((2, 2), np.float32)})
    assert other == nest
    assert interpret(other, [np.ones((1, 2), np.float32)])["out"].tolist() == [[0, 0]]
    assert nest.constants["w0"].any()


def test_look_up_names_what_there_is() -> None:
    nest = nn.lower(nn.ReLU(), batch=2, features=3)
    assert nest.tensor("x").shape == (2, 3)
    assert nest.statement("relu0").op == "="
    with pytest.raises(InvalidNest, match="unknown tensor 'w'; expected one of x, out"):
        nest.tensor("w")
    with pytest.raises(InvalidNest, match="unknown statement 'mac0'; expected one of relu0"):
        nest.statement("mac0")


def test_the_order_of_two_statements() -> None:
    tree = sequence((Leaf("A"), Loop("i", (("B", isl.PwAff("{ B[i] -> [(i)] }")),), Leaf("B"))))
    domains = {"A": isl.Set("{ A[] }"), "B": isl.Set("{ B[i] : 0 <= i < 3 }")}
    expected = isl.UnionMap("{ A[] -> [0, 0]; B[i] -> [1, i] : 0 <= i < 3 }")
    assert dates(tree, domains).is_equal(expected)
    assert depth(tree) == 2
    assert path_to(tree, "B")[-1] == Leaf("B")
    assert restrict(tree, {"A"}) == Leaf("A")
    assert sequence((Sequence((Leaf("A"), Leaf("B"))), Leaf("C"))) == Sequence(
        (Leaf("A"), Leaf("B"), Leaf("C"))
    )


def test_statements_in_the_order_of_the_tree() -> None:
    y = Tensor("y", (1,), "float32", "output")
    first, second = statement("{ S[] }", "y[0] = 1.0"), statement("{ T[] }", "y[0] = 2.0")
    nest = Nest.of([y], [first, second], order=sequence((Leaf("T"), Leaf("S"))))
    assert [s.name for s in ordered_statements(nest)] == ["T", "S"]
    assert interpret(nest, {})["y"].tolist() == [1.0]


@pytest.mark.parametrize(
    ("op", "text", "message"),
    [
        ("{ S[i] : 0 <= i < 3 }", "y[i] = x[i] + q", None),
        ("{ [i] : 0 <= i < 3 }", "y[i] = x[i]", "cannot read"),
    ],
)
def test_a_statement_has_a_name(op: str, text: str, message: str | None) -> None:
    if message is None:
        assert [a.tensor for a in statement(op, text).reads] == ["x", "q"]
        return
    with pytest.raises(InvalidNest, match=message):
        statement(op, text)


def test_a_violation_reads_as_a_sentence_and_pickles_in_its_error() -> None:
    found = Violation(
        verb="fuse", kind="flow", source=Instance("A", (0, 1)), sink=Instance("B", (0, 0)), why="B runs first",
        remedy="shift B by 1", sizes={"N": 4},
    )  # fmt: skip
    assert str(found) == (
        "fuse is refused: it would break the flow dependence A[0, 1] -> B[0, 0] with N = 4: B runs first. "
        "To make it legal: shift B by 1."
    )
    assert pickle.loads(pickle.dumps(IllegalSchedule(found))).violation == found


def test_a_point_of_a_set_with_sizes() -> None:
    assert point_of(isl.Set("[N] -> { S[i] : 0 <= i < N and N > 3 }")) == ({"N": 4}, (0,))
    assert point_of(isl.Set("[N] -> { S[i] : 0 <= i < N and N < 0 }")) is None
    assert point_of(isl.Set("{ S[i] : 1 = 0 }")) is None


def test_the_least_point_of_a_set_with_pieces_that_fractions_alone_lie_in() -> None:
    """isl's least j where i = 1 is 0, of the first piece, in which k would be between two whole numbers."""
    first = "0 < i < 9 and 0 < k <= 2 + i - j and 0 <= j and 4*floor(k/4) > k - i + 4*floor(i/4)"
    pieces = isl.Set(f"{{ [i, j, k] : {first}; [i, j, i + 1] : 0 < i <= 8 and 0 < j <= 2 }}")
    found = point_of(pieces)
    assert found is not None
    assert found[1] == min(points(pieces))


def test_statements_that_never_run_are_dropped() -> None:
    x, y = Tensor("x", ("N",), "float64", "input"), Tensor("y", ("N",), "float64", "output")
    parts = (
        statement("[N] -> { A[i] : 0 <= i < N }", "y[i] = x[i]"),
        statement("[N] -> { B[i] : 8 <= i < N }", "y[i] = y[i] + x[i]"),
    )
    nest = Nest.of((x, y), parts, context="[N] -> { : N >= 0 }")
    assert drop_empty(nest) is nest
    assert [s.name for s in nest.with_sizes({"N": 8}).statements] == ["A"]
    assert [s.name for s in nest.with_sizes({"N": 9}).statements] == ["A", "B"]
    none = nest.with_sizes({"N": 0})  # an order has at least one statement
    assert [s.name for s in none.statements] == ["A", "B"]
    assert computes_nothing(none)
    assert not computes_nothing(nest)


def test_a_rewrite_keeps_the_dependences_though_nothing_accesses_what_it_touched(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tensors = [Tensor("x", (8,), "float32", "input"), Tensor("t", (8,), "float32", "temporary")]
    tensors += [Tensor("unread", (8,), "float32", "temporary"), Tensor("y", (8,), "float32", "output")]
    written = ("A", "t[i] = x[i]"), ("B", "unread[i] = 1.0"), ("C", "y[i] = t[i]")
    nest = Nest.of(tensors, [statement(f"{{ {name}[i] : 0 <= i < 8 }}", text) for name, text in written])
    before = nest.dependences().pairs
    order = restrict(nest.order, frozenset({"A", "C"}))
    assert order is not None
    kept = tuple(s for s in nest.statements if s.name != "B")
    monkeypatch.setattr("polyfuse.ir.nest.dependences", lambda *_: pytest.fail("asked again"))
    made = nest.rewritten(
        tuple(t for t in nest.tensors if t.name != "unread"), kept, order, frozenset({"unread"})
    )
    assert made.dependences().pairs == before


def test_a_part_by_itself_has_the_dependences_inside_it() -> None:
    nest = nn.lower(nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 4)), batch=2)
    part = restrict(nest.order, frozenset({"mac0", "bias0", "relu0"}))
    assert part is not None
    alone = nest.by_itself(part)
    assert [s.name for s in alone.statements] == ["mac0", "bias0", "relu0"]
    assert alone.dependences().pairs == nest.dependences().among(part.members)


BRANCHES = """
@pf.nest
def f(a: "f64[N]", b: "f64[M]"):
    t = np.empty(N, np.float64)
    for i in range(N):
        t[i] = a[i]
    if N == M:
        for i in range(N):
            b[i] = t[i]
    else:
        for i in range(1, N):
            a[i] = t[i] + t[i - 1]
"""


def test_sizes_leave_out_what_others_run() -> None:
    nest = defined(BRANCHES)
    general, _ = nest.with_sizes({"N": 9, "M": 4}).general
    (last,) = {s.name for s in general.statements} - {s.name for s in nest.statements[:1]}
    assert (nest.domains[last].n_basic_set(), general.domains[last].n_basic_set()) == (2, 1)
    assert general.context.is_equal(isl.Set("[N, M] -> { : N >= 2 and M >= 1 and N > M }"))
    assert len(nest.with_sizes({"N": 9}).general[0].statements) == len(nest.statements)
    assert str(general.with_sizes({"N": 9, "M": 4})) == str(nest.with_sizes({"N": 9, "M": 4}))


@given(st.data())
def test_the_nest_before_its_sizes_were_fixed_is_the_same_at_these(data: st.DataObject) -> None:
    nest = data.draw(nests())
    sizes = data.draw(some_sizes(nest))
    fixed = nest.with_sizes(sizes)
    again = fixed.general[0].with_sizes(sizes)
    assert [s.name for s in again.statements] == [s.name for s in fixed.statements]
    for s in fixed.statements:
        assert again.domains[s.name].is_equal(fixed.domains[s.name])
    for (kind, one), (_, other) in zip(again.dependences().kinds(), fixed.dependences().kinds(), strict=True):
        assert one.is_equal(other), kind


@given(st.data())
def test_dependences_at_sizes_are_those_found_anew(data: st.DataObject) -> None:
    nest = data.draw(nests())
    sizes = data.draw(some_sizes(nest))
    nest.dependences()
    fixed = nest.with_sizes(sizes)
    assert not sizes or "_dependences" in fixed.__dict__
    anew = dependences(fixed.accesses, fixed.original_dates())
    for (kind, kept), (_, fresh) in zip(fixed.dependences().kinds(), anew.kinds(), strict=True):
        assert kept.is_equal(fresh), kind
    names = [[(p.kind, p.source, p.sink) for p in d.pairs] for d in (fixed.dependences(), anew)]
    assert names[0] == names[1]
