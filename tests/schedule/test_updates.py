"""Several statements that update the same elements by one operator: one reduction, whose updates may be reordered."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest

from polyfuse.analysis.legality import first_broken
from polyfuse.analysis.validation import validate
from polyfuse.errors import IllegalSchedule, ValidationFailure
from polyfuse.interpret import interpret
from polyfuse.ir import Nest, Tensor, statement
from polyfuse.ir.bindings import Binding
from polyfuse.ir.tree import Leaf, Loop, sequence
from polyfuse.schedule import Schedule
from polyfuse.sets import dimension
from tests.support.execution import memory, run_plain
from tests.support.refusals import depends, witness

Value = tuple[object, ...]


def scalars(*texts: str) -> Nest:
    """Statements without loops on a and c, each with a number of its own."""
    every = [statement(f"{{ S{k}[] }}", text) for k, text in enumerate(texts)]
    return Nest.of([Tensor(name, (1,), "float64", "inout") for name in "ac"], every)


def outcome(nest: Nest, order: tuple[str, ...]) -> dict[str, Value]:
    """What a and c hold at the end: neighbouring updates by one operator as a set, the rest in order."""
    held: dict[str, Value] = {"a": ("a",), "c": ("c",)}
    for name in order:
        s = nest.statement(name)
        if s.reads:
            value: object = held[s.reads[0].tensor]
        else:
            value = s.body
        target = s.write.tensor
        *before, last = held[target]
        if s.op == "=":
            held[target] = (value,)
        elif isinstance(last, tuple) and last[0] == s.op:
            held[target] = (*before, (s.op, last[1] | {value}))
        else:
            held[target] = (*held[target], (s.op, frozenset([value])))
    return held


@pytest.mark.parametrize(
    ("texts", "legal"),
    [
        (("a[0] = 0", "a[0] += 1", "a[0] += 2", "c[0] = a[0]", "a[0] += 4"), 2),
        (("a[0] += 1", "a[0] max= 2", "a[0] += 3", "a[0] += 4"), 2),
        (("a[0] max= 1", "a[0] max= 2", "a[0] max= 3", "c[0] max= 4"), 24),
        (("a[0] += 1", "c[0] = a[0]", "a[0] += 2", "a[0] = 3", "a[0] *= 4", "a[0] *= 5"), 2),
    ],
)
def test_orders_are_legal_just_where_they_compute_the_same(texts: tuple[str, ...], legal: int) -> None:
    nest = scalars(*texts)
    names = tuple(s.name for s in nest.statements)
    expected, pairs = outcome(nest, names), nest.dependences().pairs
    found = 0
    for order in permutations(names):
        proven = first_broken(sequence(tuple(map(Leaf, order))), pairs) is None
        assert proven == (outcome(nest, order) == expected), order
        found += proven
    assert found == legal


def together(element: str = "i // 2") -> Nest:
    """for i: { U: s[element] += x[i]; V: s[element] += y[i] }"""
    every = [
        statement("{ U[i] : 0 <= i < 6 }", f"s[{element}] += x[i]"),
        statement("{ V[i] : 0 <= i < 6 }", f"s[{element}] += y[i]"),
    ]
    order = Loop(
        "i", tuple((s.name, dimension(s.domain, 0)) for s in every), sequence((Leaf("U"), Leaf("V")))
    )
    given = [Tensor(name, (6,), "float64", "input") for name in "xy"]
    return Nest.of([*given, Tensor("s", (6,), "float64", "inout")], every, order)


@pytest.mark.parametrize("turned", ["written", "reversed", "swapped", "apart"])
def test_updates_run_in_any_order_and_none_is_lost(turned: str) -> None:
    s = Schedule(together())
    if turned == "reversed":
        s = s.reverse("U", "i")
    elif turned == "swapped":
        s = s.affine(U="[i, 1]", V="[i, 0]")
    elif turned == "apart":
        s = s.affine(U="[1, -i]", V="[0, i]")
    validate(s.nest, s.nest, s.tree)
    rng = np.random.default_rng(1)
    inputs = {t.name: rng.integers(1, 9, t.shape).astype(float) for t in s.nest.inputs}
    arrays = memory(s.nest, s.nest, s.tree, inputs, {})
    run_plain(s.nest, s.tree, arrays, {}, 2)
    np.testing.assert_array_equal(arrays["s"], interpret(s.nest, inputs, {})["s"])


def test_two_updates_at_once_are_refused_with_two_instances() -> None:
    with pytest.raises(IllegalSchedule, match="bound to cores") as caught:
        Schedule(together("i")).affine(U="[i, 0]", V="[i + 1, 1]").bind("U", i="cores")
    violation = caught.value.violation
    assert (violation.kind, violation.statements) == ("reduction", ("U", "V"))
    assert depends(witness(together("i"), violation))


def test_what_reads_between_two_updates_is_refused_elsewhere_with_two_instances() -> None:
    nest = scalars("a[0] += 1", "c[0] = a[0]", "a[0] += 2")
    for dates in ({"S0": "[1]", "S1": "[0]", "S2": "[2]"}, {"S0": "[0]", "S1": "[2]", "S2": "[1]"}):
        with pytest.raises(IllegalSchedule) as caught:
            Schedule(nest).affine(**dates)
        assert caught.value.violation.kind in ("flow", "anti")
        assert depends(witness(nest, caught.value.violation))


def test_validation_finds_a_lost_update_and_two_at_once() -> None:
    nest = together("i")
    date = dimension(nest.statement("U").domain, 0)
    with pytest.raises(ValidationFailure, match="the tree runs"):
        validate(nest, nest, Loop("i", (("U", date),), Leaf("U")))
    later = dimension(nest.statement("V").domain, 0).add_constant_val(1)
    both = Loop("i", (("U", date), ("V", later)), sequence((Leaf("U"), Leaf("V"))), bind=Binding.CORES)
    with pytest.raises(ValidationFailure, match=r"reduction dependence U\[0\] -> V\[0\]"):
        validate(nest, nest, both)
