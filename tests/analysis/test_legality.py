"""Each rule of a legal tree, on small trees by hand; a proof that builds on an earlier one finds the same.

The proof of a step asks for the dependences that the step may break, and for no others.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import permutations, product

import islpy as isl
import pytest

import polyfuse as pf
from polyfuse.analysis.legality import broken, differing, first_broken, unproven
from polyfuse.ir.bindings import Binding
from polyfuse.ir.dependences import Pairs, split
from polyfuse.ir.tree import Leaf, Loop, Sequence, Tree, sequence

NAMES = "ABCD"


def four() -> pf.Nest:
    """A -> B -> D within a row, C -> D from the row before, A -> C from the column before; B's sum in no order."""
    formulas = {
        "A": "a[i, j] = x[i, j]",
        "B": "b[i] += a[i, j]",
        "C": "c[i, j] = a[i, j - 1] + 1",
        "D": "o[i, j] = b[i] + c[i - 1, j]",
    }
    roles = {"x": "input", "a": "temporary", "b": "inout", "c": "inout", "o": "output"}
    tensors = [
        pf.Tensor(name, (4,) if name == "b" else (4, 4), "float64", role)  # type: ignore[arg-type]
        for name, role in roles.items()
    ]
    box = "1 <= i < 4 and 1 <= j < 4"
    every = [pf.statement(f"{{ {n}[i, j] : {box} }}", text) for n, text in formulas.items()]
    every[0] = pf.statement("{ A[i, j] : 1 <= i < 4 and 0 <= j < 4 }", formulas["A"])
    return pf.Nest.of(tensors, every)


PAIRS = four().dependences().pairs


def date(name: str, text: str) -> isl.PwAff:
    return isl.PwAff(f"{{ {name}[i, j] -> [({text})] }}")


def row(name: str, j: str = "j") -> Loop:
    """One statement in its loop over columns."""
    return Loop("j", ((name, date(name, j)),), Leaf(name))


def rows(children: tuple[Tree, ...], i: dict[str, str] | None = None) -> Loop:
    """A loop over rows around parts."""
    dates = tuple((name, date(name, (i or {}).get(name, "i"))) for name in NAMES)
    return Loop("i", dates, sequence(children))


def alone(child: Loop) -> Loop:
    """A part in a loop over rows of its own."""
    (name,) = child.names
    return Loop("i", ((name, date(name, "i")),), child)


def same_verdict(tree: Tree, proven: Tree) -> bool:
    """Whether a proof that builds on another says what one from the beginning says."""
    fresh, later = first_broken(tree, PAIRS), first_broken(tree, PAIRS, proven)
    if fresh is None or later is None:
        return fresh is later
    return later.pairs.intersect(fresh.pairs).is_equal(later.pairs) or not later.pairs.is_empty()


def orders(parts: tuple[Tree, ...], other: tuple[Tree, ...]) -> Iterator[tuple[Tree, ...]]:
    """The parts in every order, each as it was or as another tree of the same statements."""
    for order in permutations(range(len(parts))):
        for changed in product((False, True), repeat=len(parts)):
            yield tuple((other if changed[at] else parts)[at] for at in order)


PARTS = tuple(row(name) for name in NAMES)
REVERSED = tuple(row(name, "-j") for name in NAMES)
AGAIN = tuple(row(name) for name in NAMES)


@pytest.mark.parametrize("other", [REVERSED, AGAIN], ids=["reversed", "again"])
@pytest.mark.parametrize("inside", [True, False], ids=["in one loop", "apart"])
def test_parts_in_every_order_after_a_proof(inside: bool, other: tuple[Tree, ...]) -> None:
    parts = PARTS if inside else tuple(map(alone, PARTS))
    others = other if inside else tuple(map(alone, other))  # type: ignore[arg-type]
    proven = rows(parts) if inside else sequence(parts)
    assert first_broken(proven, PAIRS) is None
    verdicts = set()
    for children in orders(parts, others):
        tree = rows(children) if inside else sequence(children)
        assert same_verdict(tree, proven)
        verdicts.add(first_broken(tree, PAIRS) is None)
    assert verdicts == {True, False}


def joined(children: tuple[Tree, ...], dates: dict[str, str] | None = None, bind: str | None = None) -> Loop:
    """Parts in a loop of one value, or of those that are given."""
    values = tuple((name, date(name, (dates or {}).get(name, "0"))) for name in NAMES)
    return Loop("l", values, sequence(children), bind=None if bind is None else Binding(bind))


@pytest.mark.parametrize("other", [REVERSED, AGAIN], ids=["reversed", "again"])
def test_parts_in_every_order_joined_after_a_proof(other: tuple[Tree, ...]) -> None:
    parts, others = (tuple(map(alone, each)) for each in (PARTS, other))  # type: ignore[arg-type]
    verdicts = set()
    for children in orders(parts, others):
        assert same_verdict(joined(children), sequence(parts))
        verdicts.add(first_broken(joined(children), PAIRS, sequence(parts)) is None)
    assert verdicts == {True, False}


@pytest.mark.parametrize("later", NAMES)
@pytest.mark.parametrize(
    ("value", "bind"), [("1", None), ("-1", None), ("i", None), ("1", "cores"), ("0", "cores")]
)
def test_a_loop_around_parts_of_which_one_has_another_value(later: str, value: str, bind: str | None) -> None:
    parts = tuple(map(alone, PARTS))
    tree = joined(parts, {later: value}, bind)
    assert same_verdict(tree, sequence(parts))
    if (later, value, bind) == ("A", "1", None):
        assert first_broken(tree, PAIRS, sequence(parts)) is not None


def test_what_is_joined_as_it_was_is_not_proven_again(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = tuple(map(alone, PARTS))
    monkeypatch.setattr(Pairs, "inside", lambda *_: pytest.fail("asked again"))
    assert first_broken(joined(parts), PAIRS, sequence(parts)) is None
    tree = sequence((parts[0], Loop("l", joined(parts).dates[1:], sequence(parts[1:]))))
    assert first_broken(tree, PAIRS, sequence(parts)) is None


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("i", ["i + 1", "i - 1", "-i"])
def test_one_statements_rows_moved_after_a_proof(name: str, i: str) -> None:
    proven = rows(PARTS)
    assert same_verdict(rows(PARTS, {name: i}), proven)
    assert same_verdict(rows(PARTS, {name: i}), sequence(tuple(map(alone, PARTS))))
    assert same_verdict(sequence(tuple(map(alone, PARTS))), rows(PARTS, {name: i}))


@pytest.mark.parametrize("bind", ["cores", "block.x", "thread.y", "vector", "unroll", "pipeline"])
def test_a_loop_bound_after_a_proof(bind: str) -> None:
    proven = rows(PARTS)
    tree = replace(proven, bind=Binding(bind))
    assert same_verdict(tree, proven)
    assert (first_broken(tree, PAIRS, proven) is None) is (bind == "unroll")


def step(text: str) -> tuple[Pairs, ...]:
    """The dependences of one statement in two loops, t and i."""
    tensors = [pf.Tensor("a", (24, 24), "float64", "inout"), pf.Tensor("s", (), "float64", "inout")]
    every = [pf.statement("{ S[t, i] : 0 <= t < 3 and 0 <= i < 6 }", text)]
    used = {access.tensor for access in every[0].accesses}
    return pf.Nest.of([t for t in tensors if t.name in used], every).dependences().pairs


def piped(i: str, inner: bool = True) -> Loop:
    """A pipeline over t around a loop over i, or around nothing."""
    t, by = isl.PwAff("{ S[t, i] -> [(t)] }"), isl.PwAff(f"{{ S[t, i] -> [({i})] }}")
    body: Tree = Loop("i", (("S", by),), Leaf("S")) if inner else Leaf("S")
    return Loop("t", (("S", t),), body, bind=Binding.PIPELINE)


@pytest.mark.parametrize(
    ("text", "forward", "backward"),
    [
        (
            "a[0, i] = a[0, i + 1] + 1",
            False,
            True,
        ),  # anti within a row, flow from the row before, at a larger i
        ("a[0, i + 1] = 2 * a[0, i]", False, True),  # anti from the row before, at a smaller i
        ("a[0, i] = 2 * a[0, i]", True, True),
        ("a[t, i] = 2 * a[t, i]", True, True),
        ("a[t + 1, i + 1] = a[t, i]", True, False),
        ("s += a[t, i]", False, False),  # two at once on one element
    ],
)
def test_a_pipelines_inner_loop_counts(text: str, forward: bool, backward: bool) -> None:
    pairs = step(text)
    found = {i: [b for b in broken(piped(i), None, pairs) if "pipeline" in b.why] for i in ("i", "-i")}
    assert {i: not wrong for i, wrong in found.items()} == {"i": forward, "-i": backward}
    for i, other in (("i", "-i"), ("-i", "i")):
        again = [b for b in broken(piped(i), piped(other), pairs) if "pipeline" in b.why]
        assert [b.kind for b in again] == [b.kind for b in found[i]]


def test_a_pipeline_without_a_loop_inside_carries_nothing() -> None:
    carried = split("flow", isl.Map("{ S[t, i] -> S[t + 1, i] : 0 <= t < 2 and 0 <= i < 6 }"))
    own = split("flow", isl.Map("{ S[t, i] -> S[t, i + 1] : 0 <= t < 2 and 0 <= i < 6 }"))
    (first, *_) = broken(piped("i", inner=False), None, (carried, own))
    assert first.pairs.is_equal(carried.map)
    assert "the loop inside" in first.remedy


def test_pairs_of_one_date_have_no_order() -> None:
    own = split("anti", isl.Map("{ S[t, i] -> S[t, i + 1] : 0 <= t < 2 and 0 <= i < 6 }"))
    (found,) = broken(Leaf("S"), None, (own, split("flow", isl.Map("{ S[t, i] -> S[t, i] : 1 = 0 }"))))
    assert (found.kind, "same date" in found.why) == ("anti", True)


def test_differing_pairs_differ_either_way() -> None:
    pairs = isl.Map("{ S[i] -> S[j] : 0 <= i, j < 3 }")
    i = isl.PwAff("{ S[i] -> [(i)] }")
    assert differing(pairs, i, i).is_equal(isl.Map("{ S[i] -> S[j] : 0 <= i, j < 3 and i != j }"))
    assert differing(pairs, i, i.neg()).is_equal(isl.Map("{ S[i] -> S[j] : 0 <= i, j < 3 and i + j > 0 }"))


def test_a_part_that_runs_after_its_sink_is_named_with_its_pairs() -> None:
    swapped = Sequence(tuple(map(alone, (PARTS[1], PARTS[0], PARTS[2], PARTS[3]))))
    (found,) = broken(swapped, None, PAIRS)
    assert found.kind == "flow"
    assert found.why == "the part with A would run after the part with B"
    assert found.pairs.is_equal(isl.Map("{ A[i, j] -> B[i, j] : 1 <= i < 4 and 1 <= j < 4 }"))


CHAIN = pf.Nest.of(
    [
        pf.Tensor("x", (8,), "float32", "input"),
        *(pf.Tensor(name, (8,), "float32", "temporary") for name in ("a", "b")),
        pf.Tensor("y", (8,), "float32", "output"),
    ],
    [
        pf.statement("{ A[i] : 0 <= i < 8 }", "a[i] = 2 * x[i]"),
        pf.statement("{ B[i] : 0 <= i < 8 }", "b[i] = 2 * a[i]"),
        pf.statement("{ C[i] : 0 <= i < 8 }", "y[i] = 2 * b[i]"),
    ],
)
"""A; B; C, each of which reads what the one before wrote."""


def test_only_dependences_of_changed_kernels_are_asked_for() -> None:
    order = CHAIN.order
    assert isinstance(order, Sequence)
    first, *others = order.children
    assert isinstance(first, Loop)
    changed = Sequence((replace(first, name="j"), *others))
    pairs = unproven(CHAIN.dependences(), changed, order)
    assert [(pair.source, pair.sink) for pair in pairs] == [("A", "B")]
    assert not unproven(CHAIN.dependences(), order, order)


def test_pairs_inside_of_a_kernel_that_another_joins_are_not_asked_for() -> None:
    """for i: { A; B },  for i: C  ->  for i: { A; B; C }, where B before A, or B at another date, is asked for."""
    schedule = pf.Schedule(CHAIN).fuse("A", "B", at="i")
    proven = schedule.tree
    joined = schedule.fuse("A", "C", at="i").tree
    assert isinstance(proven, Sequence)
    assert isinstance(proven.children[0], Loop)
    assert isinstance(joined, Loop)
    assert isinstance(joined.body, Sequence)

    def ends(tree: Loop) -> list[tuple[str, str]]:
        return [(p.source, p.sink) for p in unproven(CHAIN.dependences(), tree, proven)]

    assert ends(joined) == [("B", "C")]
    a, b, c = joined.body.children
    assert ends(replace(joined, body=Sequence((b, a, c)))) == [("A", "B"), ("B", "C")]
    late = tuple((n, d.add_constant_val(isl.Val(n == "B"))) for n, d in joined.dates)
    assert ends(replace(joined, dates=late)) == [("A", "B"), ("B", "C")]
    assert ends(replace(joined, bind="unroll")) == [("A", "B"), ("B", "C")]
    pipelines = [replace(tree, bind="pipeline") for tree in (joined, proven.children[0])]
    proven = Sequence((pipelines[1], proven.children[1]))
    assert ends(pipelines[0]) == [("A", "B"), ("B", "C")]


LONGER = pf.Nest.of(
    [
        pf.Tensor("x", (8,), "float32", "input"),
        *(pf.Tensor(name, (8,), "float32", "temporary") for name in ("a", "b", "c")),
        pf.Tensor("y", (8,), "float32", "output"),
    ],
    [
        pf.statement(f"{{ {name}[i] : 0 <= i < 8 }}", text)
        for name, text in (
            ("A", "a[i] = x[i]"),
            ("B", "b[i] = a[i]"),
            ("C", "c[i] = b[i]"),
            ("D", "y[i] = c[i]"),
        )
    ],
)
"""A; B; C; D, each of which reads what the one before wrote."""


def asked(tree: Tree, proven: Tree) -> list[tuple[str, str]]:
    """The ends of the pairs that are proven of a tree of LONGER, though another one is proven."""
    return [(p.source, p.sink) for p in unproven(LONGER.dependences(), tree, proven)]


def test_a_statement_that_moves_to_a_kernel_behind_two_others_is_asked_for() -> None:
    """A, B, C, D  ->  A, B, for i: { C; D later }: C is where it was proven, at place 2, and D is not."""
    proven = LONGER.order
    tree = pf.Schedule(LONGER).fuse("C", "D", at="i").tree
    assert isinstance(tree, Sequence)
    *others, loop = tree.children
    assert isinstance(loop, Loop)
    late = tuple((n, d.add_constant_val(isl.Val(n == "D"))) for n, d in loop.dates)
    assert asked(Sequence((*others, replace(loop, dates=late))), proven) == [("B", "C"), ("C", "D")]


def test_statements_of_a_kernel_that_are_not_all_in_their_order_are_asked_for() -> None:
    """for i: { A; B; C }, D  ->  for i: { A; C; B; D } or for i: { A; for j: B; C; D }"""
    schedule = pf.Schedule(LONGER).fuse("A", "B", at="i").fuse("A", "C", at="i")
    whole = schedule.fuse("A", "D", at="i").tree
    assert isinstance(whole, Loop)
    assert isinstance(whole.body, Sequence)
    assert asked(whole, schedule.tree) == [("C", "D")]
    a, b, c, d = whole.body.children
    deeper = replace(whole, name="j", dates=tuple(date for date in whole.dates if date[0] == "B"), body=b)
    for children in ((a, c, b, d), (a, deeper, c, d)):
        tree = replace(whole, body=Sequence(children))
        assert asked(tree, schedule.tree) == [("A", "B"), ("B", "C"), ("C", "D")]


def test_kernels_in_another_order_are_proven_again() -> None:
    """Of all orders of three kernels that stay as they are, the proof accepts the one that is right."""
    order = CHAIN.order
    assert isinstance(order, Sequence)
    accepted = []
    for children in permutations(order.children):
        tree = Sequence(children)
        if first_broken(tree, unproven(CHAIN.dependences(), tree, order), order) is None:
            accepted.append(tree.names)
    assert accepted == [("A", "B", "C")]


def test_a_changed_kernel_in_a_wrong_place_is_found() -> None:
    order = CHAIN.order
    assert isinstance(order, Sequence)
    a, b, c = order.children
    assert isinstance(b, Loop)
    tree = Sequence((a, c, replace(b, name="j")))
    found = first_broken(tree, unproven(CHAIN.dependences(), tree, order), order)
    assert found is not None
    assert found.why == "the part with B would run after the part with C"


@pytest.mark.parametrize("kind", ["flow", "anti", "output", "reduction"])
@pytest.mark.parametrize(("later", "right"), list(product((-1, 0, 1), repeat=2)))
def test_what_a_pipeline_may_have_at_once(kind: str, later: int, right: int) -> None:
    pair = split(kind, isl.Map(f"{{ S[t, i] -> S[t + {later}, i + {right}] : 0 < t < 9 and 0 < i < 9 }}"))
    wrong = [found for found in broken(piped("i"), None, (pair,)) if "pipeline" in found.why]
    # value i of the inner loop waits for the value before of the outer one to have ended i
    waits = later == 0 or (later > 0 and right >= 0) or (kind == "reduction" and later < 0 and right <= 0)
    assert (not wrong) is waits
    for found in wrong:
        assert found.pairs.is_equal(pair.map)
        assert found.remedy.startswith("skew i by t,")


WITHIN = (split("flow", isl.Map("{ A[i, j] -> B[i, j] : 1 <= i < 4 and 1 <= j < 4 }")),)
"""What A passes to B in one iteration of both loops."""


def a_and_b(first: str, second: str) -> Loop:
    """A and B in one loop over columns."""
    return Loop("j", (("A", date("A", "j")), ("B", date("B", "j"))), Sequence((Leaf(first), Leaf(second))))


@pytest.mark.parametrize(
    ("proven", "tree"),
    [
        (("A", "C", "B", "D"), ("C", "B", "A new", "D")),  # source new, sink where it was proven, at place 1
        (("C", "A", "B", "D"), ("B new", "C", "A", "D")),  # source where it was proven, at place 2, sink new
        (("A B", "C", "D"), ("B A", "C", "D")),  # both in a part that is new
    ],
)
def test_a_changed_part_in_a_loop_is_proven_again(proven: tuple[str, ...], tree: tuple[str, ...]) -> None:
    known: dict[str, Tree] = {name: row(name) for name in NAMES}

    def part(text: str) -> Tree:
        first, _, second = text.partition(" ")
        if second in NAMES and second:
            return a_and_b(first, second)
        return row(first) if second else known[first]

    before, after = (rows(tuple(map(part, texts))) for texts in (proven, tree))
    assert first_broken(before, WITHIN) is None
    assert first_broken(after, WITHIN) is not None
    assert first_broken(after, WITHIN, before) is not None


def test_the_inside_of_a_loop_with_other_dates_is_proven_again() -> None:
    pairs = (split("flow", isl.Map("{ A[i, j] -> A[i + 1, j - 1] : 1 <= i < 3 and 2 <= j < 4 }")),)
    inside = row("A")
    proven, skewed = (Loop("i", (("A", date("A", text)),), inside) for text in ("i", "i + j"))
    assert first_broken(proven, pairs) is None
    found = first_broken(skewed, pairs, proven)
    assert found is not None
    assert "loop j would run the second instance before the first" in found.why


def test_a_pipeline_around_parts_after_a_proof() -> None:
    def pipeline() -> Loop:
        dates = (("A", date("A", "i")), ("B", date("B", "i")))
        return Loop("i", dates, Sequence((row("A"), row("B"))), bind=Binding.PIPELINE)

    assert first_broken(pipeline(), WITHIN, pipeline()) is None
    carried = (split("flow", isl.Map("{ A[i, j] -> B[i + 1, j] : 1 <= i < 3 and 1 <= j < 4 }")),)
    assert first_broken(pipeline(), carried, replace(pipeline(), bind=None)) is not None


def test_a_statement_in_a_sequence_after_a_proof() -> None:
    before, after = (Sequence((Leaf("A"), Leaf("B"))) for _ in range(2))
    own = split("flow", isl.Map("{ A[i, j] -> A[i, j + 1] : 1 <= i < 4 and 1 <= j < 3 }"))
    found = first_broken(after, (own,), before)
    assert found is not None
    assert "same date" in found.why


def test_pairs_of_nothing_are_in_order() -> None:
    none = split("flow", isl.Map("{ A[i, j] -> B[i, j] : 1 = 0 }"))
    assert first_broken(Sequence((Leaf("B"), Leaf("A"))), (none,)) is None


def test_a_loop_of_two_numbers_is_not_one_of_one_value() -> None:
    parts = tuple(map(alone, PARTS))
    two = joined(parts, {"B": "0"})
    dates = tuple(
        (name, isl.PwAff("{ B[i, j] -> [(1)] : i >= 2; B[i, j] -> [(0)] : i < 2 }") if name == "B" else value)
        for name, value in two.dates
    )
    tree = replace(two, dates=dates)
    assert same_verdict(tree, sequence(parts))
    assert first_broken(tree, PAIRS, sequence(parts)) is not None
