"""What can be asked of dependences: by kind, by statements, inside a loop; and what `merged` takes over."""

from __future__ import annotations

from typing import Any

import islpy as isl
import pytest

from polyfuse.ir import Nest, Tensor, statement
from polyfuse.ir.dependences import (
    KEPT,
    Dependences,
    Pairs,
    access_relations,
    dependences,
    earlier,
    merged,
    split,
)
from polyfuse.sets import OUT


def three() -> Nest:
    """S -> T through a, T -> U through y, and U overwrites what S reads."""
    box = "0 <= i < 6"
    tensors = [
        Tensor("x", (6,), "float64", "inout"),
        Tensor("a", (6,), "float64", "temporary"),
        Tensor("y", (), "float64", "inout"),
    ]
    every = [
        statement(f"{{ S[i] : {box} }}", "a[i] = x[i]"),
        statement(f"{{ T[i] : {box} }}", "y += a[i]"),
        statement(f"{{ U[i] : {box} }}", "x[i] = y + i"),
    ]
    return Nest.of(tensors, every)


def ends(pairs: tuple[Pairs, ...]) -> set[tuple[str, str, str]]:
    return {(pair.kind, pair.source, pair.sink) for pair in pairs}


EVERY = {("flow", "S", "T"), ("flow", "T", "U"), ("anti", "S", "U"), ("reduction", "T", "T")}


def test_pairs_by_statement() -> None:
    found = three().dependences()
    assert ends(found.pairs) == EVERY
    assert ends(found.between("S", "T")) == ends(found.between("T", "S")) == {("flow", "S", "T")}
    assert ends(found.between("S", "U")) == {("anti", "S", "U")}
    assert ends(found.between("S", "S")) == set()
    assert ends(found.after("T")) == {("flow", "T", "U"), ("reduction", "T", "T")}
    assert ends(found.before("T")) == {("flow", "S", "T"), ("reduction", "T", "T")}
    assert found.after("U") == found.before("S") == found.before("nobody") == ()


def test_the_short_text_counts_each_kind_that_there_is() -> None:
    kinds = "2 flow, 1 anti, 1 reduction"
    assert repr(three().dependences()) == f"<Dependences: {kinds}; relations between 3 statements>"
    assert repr(Dependences(())) == "<Dependences: none; relations between 0 statements>"
    one = split("output", isl.Map("{ S[i] -> S[i + 1] }"))
    assert repr(Dependences((one,))) == "<Dependences: 1 output; relations between 1 statement>"


def test_pairs_of_some_statements() -> None:
    found = three().dependences()
    assert (
        found.touching("U")
        == found.touching("UU")
        == tuple(p for p in found.pairs if "U" in (p.source, p.sink))
    )
    assert ends(found.touching("S")) == {("flow", "S", "T"), ("anti", "S", "U")}
    assert found.touching("STU") == found.among("STU") == found.pairs
    assert found.touching(()) == found.touching(["nobody"]) == found.among("S") == found.among(()) == ()
    assert ends(found.among("T")) == {("reduction", "T", "T")}
    assert ends(found.among("SU")) == {("anti", "S", "U")}


def test_pairs_by_kind() -> None:
    found = three().dependences()
    assert found.flow.is_equal(isl.UnionMap("{ S[i] -> T[i] : 0 <= i < 6; T[i] -> U[j] : 0 <= i, j < 6 }"))
    assert found.anti.is_equal(isl.UnionMap("{ S[i] -> U[i] : 0 <= i < 6 }"))
    assert found.output.is_empty()
    assert found.reduction.is_equal(isl.UnionMap("{ T[i] -> T[j] : 0 <= i < j < 6 }"))
    assert found.ordering.is_equal(found.flow.union(found.anti))
    assert [name for name, _ in found.kinds()] == ["flow", "anti", "output", "reduction"]
    assert str(found).splitlines()[0] == "flow:"
    assert "output:" in str(found).splitlines()


def test_the_order_to_keep_is_flow_anti_and_output() -> None:
    tensors = [Tensor("x", (6,), "float64", "input"), Tensor("y", (6,), "float64", "inout")]
    every = [
        statement("{ S[i] : 0 <= i < 6 }", "y[0] = y[1] + x[i]"),
        statement("{ T[i] : 0 <= i < 6 }", "y[i] = y[0]"),
    ]
    found = Nest.of(tensors, every).dependences()
    assert {pair.kind for pair in found.pairs} == {"flow", "anti", "output"}
    union = found.flow.union(found.anti).union(found.output)
    assert found.ordering.is_equal(union)
    assert not any(union.is_equal(union.subtract(one)) for one in (found.flow, found.anti, found.output))


def test_what_has_no_date_is_in_no_pair() -> None:
    writes, reads = (
        isl.UnionMap("{ S[i] -> a[i]; T[i] -> a[i] }"),
        isl.UnionMap("{ S[i] -> a[i - 1]; T[i] -> a[i - 1] }"),
    )
    order = isl.UnionMap("{ S[i] -> [i] }")
    assert earlier(writes, reads, order).is_equal(isl.UnionMap("{ S[i] -> S[i + 1] }"))
    both = order.union(isl.UnionMap("{ T[i] -> [i] }"))
    everywhere = "{ S[i] -> S[i + 1]; S[i] -> T[i + 1]; T[i] -> S[i + 1]; T[i] -> T[i + 1] }"
    assert earlier(writes, reads, both).is_equal(isl.UnionMap(everywhere))


def test_places_in_a_sequence_decide_without_the_dates_of_loops(monkeypatch: pytest.MonkeyPatch) -> None:
    """S runs before T at a place of its own, U in a loop with S: no date of a loop orders S and T."""
    writes = isl.UnionMap(
        "{ S[i] -> a[i] : 0 <= i < 6; T[i] -> a[i] : 0 <= i < 6; U[i] -> a[i] : 0 <= i < 6 }"
    )
    order = isl.UnionMap("{ S[i] -> [0, i, 0] : i < 4; U[i] -> [0, i, 1]; T[i] -> [1, -i, 0] : i > 1 }")
    asked: list[str] = []
    for name, sign in (("lex_lt_map", "<"), ("lex_le_map", "<=")):
        compared = getattr(isl.Map, name)

        def counted(before: isl.Map, after: isl.Map, compared: Any = compared, sign: str = sign) -> isl.Map:
            asked.append(f"{sign} by {before.dim(OUT)}")
            return compared(before, after)

        monkeypatch.setattr(isl.Map, name, counted)
    found = earlier(writes, writes, order)
    expected = "{ S[i] -> U[i] : 0 <= i < 4; S[i] -> T[i] : 1 < i < 4; U[i] -> T[i] : 1 < i < 6 }"
    assert found.is_equal(isl.UnionMap(expected))
    assert sorted(asked) == [*4 * ["< by 1"], "<= by 1"], "S < S, T < T, U < S, U < U and S <= U"


@pytest.mark.parametrize(
    ("kind", "passes"), [("flow", True), ("reduction", True), ("anti", False), ("output", False)]
)
def test_values_pass_along_flow_and_reduction(kind: str, passes: bool) -> None:
    assert split(kind, isl.Map("{ S[i] -> T[i] }")).is_value is passes


def test_pairs_inside_a_loop_are_those_of_equal_dates() -> None:
    pair = split("flow", isl.Map("{ S[i] -> T[j] : 0 <= i <= j < 4 }"))
    source, sink = isl.PwAff("{ S[i] -> [(i)] }"), isl.PwAff("{ T[j] -> [(j)] }")
    rest = pair.inside(source, sink)
    assert (rest.kind, rest.source, rest.sink) == ("flow", "S", "T")
    assert rest.map.is_equal(isl.Map("{ S[i] -> T[i] : 0 <= i < 4 }"))
    assert pair.inside(source, sink) is rest
    assert not rest.is_empty
    later = isl.PwAff("{ T[j] -> [(j + 9)] }")
    assert pair.inside(source, later).is_empty
    assert pair.inside(source, sink) is rest


def test_as_many_answers_are_kept_as_are_worth_it() -> None:
    pair = split("flow", isl.Map("{ S[i] -> T[j] : 0 <= i <= j < 4 }"))
    source = isl.PwAff("{ S[i] -> [(i)] }")
    sinks = [isl.PwAff(f"{{ T[j] -> [(j + {n})] }}") for n in range(KEPT + 1)]
    answers = [pair.inside(source, sink) for sink in sinks]
    assert pair.inside(source, sinks[-1]) is answers[-1]
    assert pair.inside(source, sinks[1]) is answers[1]
    assert pair.inside(source, sinks[0]) is not answers[0]
    assert pair.inside(source, sinks[0]).map.is_equal(answers[0].map)
    assert len(pair._kept) == KEPT


def test_merged_takes_over_what_passes_through_other_tensors() -> None:
    nest = three()
    through = nest.pairs_through
    fresh = dependences(access_relations((), ()), nest.original_dates())
    assert fresh.pairs == ()
    left = {
        tensor: ends(merged(nest.dependences(), through[tensor], fresh).pairs) for tensor in ("a", "x", "y")
    }
    assert left == {
        "a": EVERY - {("flow", "S", "T")},
        "x": EVERY - {("anti", "S", "U")},
        "y": EVERY - {("flow", "T", "U"), ("reduction", "T", "T")},
    }
    every = (pair for pairs in through.values() for pair in pairs)
    both = merged(nest.dependences(), every, nest.dependences())
    assert [pair.kind for pair in both.pairs] == ["flow", "flow", "anti", "reduction"]


def test_accesses_of_some_tensors() -> None:
    nest = three()
    every, some = (access_relations(nest.statements, nest.statements, only) for only in (None, {"a"}))
    assert every.operators == {"T": "+="}
    assert some.operators == {}
    assert some.reads.is_equal(isl.UnionMap("{ T[i] -> a[i] : 0 <= i < 6 }"))
    assert some.writes.is_equal(isl.UnionMap("{ S[i] -> a[i] : 0 <= i < 6 }"))
    assert every.accumulates.is_equal(isl.UnionMap("{ T[i] -> y[] : 0 <= i < 6 }"))
    assert every.writes.is_equal(every.assigns.union(every.accumulates))


def test_the_last_source_and_the_first_sink_are_found_once_for_a_function() -> None:
    pairs = Pairs("flow", "S", "T", isl.Map("{ S[i] -> T[j] : 0 <= i <= 2j + 1 < 8 }"))
    date = isl.PwAff("{ S[i] -> [floor(i/2)] }")
    last = pairs.last_source(date)
    assert last.is_equal(isl.Map("{ T[j] -> [j] : 0 <= j <= 3 }"))
    assert pairs.last_source(date) is last
    first = pairs.first_sink(isl.PwAff("{ T[j] -> [j] }"))
    assert first.is_equal(isl.Map("{ S[i] -> [floor(i/2)] : 0 <= i <= 7 }"))
    for k in range(KEPT + 1):
        pairs.last_source(isl.PwAff(f"{{ S[i] -> [i + {k}] }}"))
    assert pairs.last_source(date) is not last
    assert pairs.last_source(date).is_equal(last)
