"""Dependences against the enumeration of every pair of instances."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import islpy as isl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from polyfuse.ir import Nest, Tensor, statement
from polyfuse.ir.dependences import DateOrder, access_relations, dependences, merged
from polyfuse.ir.tree import Leaf, Loop, sequence
from polyfuse.sets import Alike, dimension, maps_of, tuple_names
from tests.support.enumeration import Element, Instance, Step, all_pairs, steps
from tests.support.nests import nests, some_sizes

Pairs = set[tuple[Instance, Instance]]


def enumerated(nest: Nest, sizes: Mapping[str, int]) -> dict[str, Pairs]:
    """The four kinds by the definition: walk the instances in order, remember who touched each element since its last
    assignment. A reduction's writes do not end anything, and those by one operator may be reordered."""
    found: dict[str, Pairs] = {"flow": set(), "anti": set(), "output": set(), "reduction": set()}
    writers: dict[Element, list[Step]] = {}
    readers: dict[Element, list[Step]] = {}
    for sink in steps(nest, sizes):
        for element in sink.reads:
            found["flow"] |= {(source.instance, sink.instance) for source in writers.get(element, [])}
        for source in writers.get(sink.write, []):
            pair = (source.instance, sink.instance)
            own = sink.statement.is_reduction and source.statement.op == sink.statement.op
            if sink.statement.is_reduction:
                found["reduction" if own else "flow"].add(pair)
            if not own:
                found["output"].add(pair)
        found["anti"] |= {(reader.instance, sink.instance) for reader in readers.get(sink.write, [])}
        if sink.statement.is_reduction:
            writers.setdefault(sink.write, []).append(sink)
        else:
            writers[sink.write], readers[sink.write] = [sink], []
        for element in sink.reads:
            readers.setdefault(element, []).append(sink)
    return found


def computed(nest: Nest, sizes: Mapping[str, int]) -> dict[str, Pairs]:
    return {kind: listed(relation, sizes) for kind, relation in nest.dependences().kinds()}


def listed(relation: isl.UnionMap, sizes: Mapping[str, int]) -> Pairs:
    found: Pairs = set()
    for part in maps_of(relation):
        source, sink = tuple_names(part)
        found |= {((source, a), (sink, b)) for a, b in all_pairs(part, sizes)}
    return found


@given(st.data())
def test_random_nests_have_the_dependences_that_enumeration_finds(data: st.DataObject) -> None:
    nest = data.draw(nests())
    sizes = data.draw(some_sizes(nest))
    assert computed(nest, sizes) == enumerated(nest, sizes)


def chain(*texts: str) -> Nest:
    every = [statement(f"{{ S{k}[i] : 0 <= i < 4 }}", text) for k, text in enumerate(texts)]
    return Nest.of([Tensor(name, (9,), "float64", "inout") for name in "ab"], every)


def test_flow_comes_from_the_last_write_alone() -> None:
    found = chain("a[i] = 1.0", "a[i] = 2.0", "b[i] = a[i]").dependences()
    assert found.flow.is_equal(isl.UnionMap("{ S1[i] -> S2[i] : 0 <= i < 4 }"))
    assert found.output.is_equal(isl.UnionMap("{ S0[i] -> S1[i] : 0 <= i < 4 }"))
    assert found.anti.is_empty()
    assert found.reduction.is_empty()


def test_anti_goes_from_a_read_to_the_next_write() -> None:
    found = chain("b[i] = a[i + 1]", "a[i] = 1.0").dependences()
    assert found.anti.is_equal(isl.UnionMap("{ S0[i] -> S1[i + 1] : 0 <= i < 3 }"))
    assert found.flow.is_empty()


def test_every_instance_of_a_reduction_reaches_the_reader_and_its_init_does_too() -> None:
    found = chain("a[0] = 0.0", "a[0] += b[i]", "b[i + 4] = a[0]").dependences()
    assert found.flow.is_equal(
        isl.UnionMap(
            "{ S0[i] -> S1[j] : i = 3 and 0 <= j < 4; S0[i] -> S2[j] : i = 3 and 0 <= j < 4; "
            "S1[i] -> S2[j] : 0 <= i, j < 4 }"
        )
    )
    assert found.reduction.is_equal(isl.UnionMap("{ S1[i] -> S1[j] : 0 <= i < j < 4 }"))


def test_a_reduction_that_reads_its_target_elsewhere_is_ordered() -> None:
    found = chain("a[i + 1] += a[i]").dependences()
    assert found.flow.is_equal(isl.UnionMap("{ S0[i] -> S0[i + 1] : 0 <= i < 3 }"))
    assert found.reduction.is_empty()


def test_updates_by_two_operators_keep_their_order() -> None:
    found = chain("a[0] += b[i]", "a[0] max= b[i]").dependences()
    assert found.output.is_equal(isl.UnionMap("{ S0[i] -> S1[j] : 0 <= i, j < 4 }"))


def test_updates_by_one_operator_are_one_reduction() -> None:
    found = chain("a[0] += b[i]", "a[0] += b[i + 4]", "b[8] = a[0]").dependences()
    assert found.reduction.is_equal(
        isl.UnionMap(
            "{ S0[i] -> S0[j] : 0 <= i < j < 4; S1[i] -> S1[j] : 0 <= i < j < 4; S0[i] -> S1[j] : 0 <= i, j < 4 }"
        )
    )
    assert found.flow.is_equal(
        isl.UnionMap("{ S0[i] -> S2[j] : 0 <= i, j < 4; S1[i] -> S2[j] : 0 <= i, j < 4 }")
    )


def test_a_read_between_two_updates_keeps_both_in_their_place() -> None:
    found = chain("a[0] += b[i]", "b[i + 4] = a[0]", "a[0] += b[i]").dependences()
    assert found.flow.is_equal(isl.UnionMap("{ S0[i] -> S1[j] : 0 <= i, j < 4 }"))
    assert found.anti.is_equal(isl.UnionMap("{ S1[i] -> S2[j] : 0 <= i, j < 4 }"))


def test_another_operator_between_two_updates_keeps_them_apart() -> None:
    found = chain("a[0] += b[i]", "a[0] *= b[i]", "a[0] += b[i]").dependences()
    both = found.flow.intersect(found.output)
    assert both.is_equal(isl.UnionMap("{ S0[i] -> S1[j] : 0 <= i, j < 4; S1[i] -> S2[j] : 0 <= i, j < 4 }"))


def test_an_update_whose_value_reads_the_target_waits_for_the_other() -> None:
    found = chain("a[0] += b[i]", "a[i] += a[0]").dependences()
    assert found.flow.is_equal(
        isl.UnionMap("{ S0[i] -> S1[j] : 0 <= i, j < 4; S1[i] -> S1[j] : i = 0 and 0 < j < 4 }")
    )


def test_the_text_names_each_kind_once() -> None:
    text = str(chain("a[i] = 1.0", "b[i] = a[i]").dependences())
    assert [line for line in text.splitlines() if not line.startswith(" ")] == [
        "flow:",
        "anti:",
        "output:",
        "reduction:",
    ]
    assert "S0[i] -> S1[i' = i]" in text


def test_a_writer_at_a_constant_date_hides_an_earlier_one_in_a_loop() -> None:
    """isl's dataflow gets this wrong when it is given the dates as a map."""
    every = [
        statement("{ A[i] : 0 <= i < 2 }", "a[i] = 1.0"),
        statement("{ C[i] : i = 0 }", "b[i] = a[i]"),
        statement("{ B[i] : i = 0 }", "a[i] = 2.0"),
    ]
    shifts = {"A": 0, "B": 0, "C": 1}
    dates = tuple((s.name, dimension(s.domain, 0).add_constant_val(shifts[s.name])) for s in every)
    order = Loop("t", dates, sequence(tuple(Leaf(s.name) for s in every)))
    nest = Nest.of([Tensor(name, (2,), "float64", "inout") for name in "ab"], every, order)
    assert nest.dependences().flow.is_equal(isl.UnionMap("{ B[i = 0] -> C[0] }"))


def test_a_nest_whose_domains_are_empty_has_no_dependences() -> None:
    every = [statement(f"{{ {name}[i] : 1 = 0 }}", "a[i] = b[i]") for name in "ST"]
    nest = Nest.of([Tensor(name, (0,), "float64", "inout") for name in "ab"], every)
    assert all(relation.is_empty() for _, relation in nest.dependences().kinds())


@given(nests())
def test_dependences_of_one_tensor_made_anew_change_nothing(nest: Nest) -> None:
    """What `merged` keeps and what it replaces is all there is."""
    whole, order = nest.dependences(), nest.original_dates()
    for tensor in {s.write.tensor for s in nest.statements}:
        part = dependences(access_relations(nest.statements, nest.statements, {tensor}), order)
        found = merged(whole, nest.pairs_through.get(tensor, ()), part)
        for (_, one), (_, other) in zip(whole.kinds(), found.kinds(), strict=True):
            assert one.is_equal(other)


def test_a_value_that_one_write_hides_is_not_asked_about_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three writes lie between the first one and the read; once one of them has hidden it, the others do not count."""
    asked, answered = [], Alike.asked

    def counted(alike: Alike, how: Any, one: isl.Map, other: isl.Map) -> isl.Map:
        asked.append(how)
        return answered(alike, how, one, other)

    nest = chain("a[i] = 1.0", "a[i] = 2.0", "a[i] = 3.0", "a[i] = 4.0", "b[i] = a[i]")
    monkeypatch.setattr(Alike, "asked", counted)
    (flow,) = (pair for pair in nest.dependences().pairs if pair.kind == "flow")
    assert tuple_names(flow.map) == ("S3", "S4")
    assert asked.count(isl.Map.subtract) == 6, "of ten pairs, those with a write in between"


def test_pairs_that_differ_in_names_are_asked_about_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten pairs of five statements are one relation, and so are those that others hide."""
    asked, subtracted = [], isl.Map.subtract

    def counted(pairs: isl.Map, hidden: isl.Map) -> isl.Map:
        asked.append((pairs, hidden))
        return subtracted(pairs, hidden)

    nest = chain("a[i] = 1.0", "a[i] = 2.0", "a[i] = 3.0", "a[i] = 4.0", "b[i] = a[i]")
    monkeypatch.setattr(isl.Map, "subtract", counted)
    found = nest.dependences()
    assert len(asked) == 1
    assert found.output.is_equal(
        isl.UnionMap(f"{{ {'; '.join(f'S{n}[i] -> S{n + 1}[i] : 0 <= i < 4' for n in range(3))} }}")
    )
    assert found.flow.is_equal(isl.UnionMap("{ S3[i] -> S4[i] : 0 <= i < 4 }"))


def test_isl_is_asked_once_for_each_pair_of_kinds(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    found = DateOrder.earlier

    def counted(order: DateOrder, *given: isl.UnionMap) -> isl.UnionMap:
        asked.append(given)
        return found(order, *given)

    monkeypatch.setattr(DateOrder, "earlier", counted)
    nest = chain("a[i] = 1.0", "a[i] += b[i]", "b[i] = a[i]")
    asked.clear()  # those of the check
    assert nest.dependences().pairs
    assert len(asked) == 3
