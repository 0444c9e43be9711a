"""Translation validation on finished schedules that are broken on purpose: every break is named, with a witness."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import islpy as isl
import pytest

from polyfuse.analysis.validation import validate
from polyfuse.errors import BudgetExceeded, ValidationFailure
from polyfuse.ir import Nest, Tensor, statement
from polyfuse.ir.access import Access
from polyfuse.ir.bindings import Binding
from polyfuse.ir.tree import Buffer, Loop, Sequence, Tree, loops, loops_around, path_to, statements, walk
from polyfuse.runtime.memory.memory_plan import plan_memory
from polyfuse.schedule import Schedule
from tests.support.programs import on_cpu, on_cuda, pair, product, with_node

TARGETS = pytest.mark.parametrize("make", [on_cpu, on_cuda], ids=["cpu", "cuda"])
WITNESS = r"\w+\[\d+(, \d+)*\] -> \w+\[\d+(, \d+)*\]"


def fails(s: Schedule, tree: Tree, check: str, *, witness: str = WITNESS, nest: Nest | None = None) -> str:
    """Validation of a broken tree (or nest) must fail in this check and show a witness; its message."""
    validate(s.source, s.nest, s.tree)
    with pytest.raises(ValidationFailure, match=rf"validation of {check} failed: .*{witness}") as caught:
        validate(s.source, nest or s.nest, tree)
    return str(caught.value)


def loop_of(s: Schedule, statement: str, name: str) -> Loop:
    return next(loop for loop in loops_around(s.tree, statement) if loop.name == name)


def sequences(tree: Tree) -> list[Sequence]:
    return [node for node in walk(tree) if isinstance(node, Sequence)]


def redated(loop: Loop, change: Callable[[isl.PwAff], isl.PwAff], *names: str) -> Loop:
    """The loop with the dates of some statements (all, without names) changed."""
    return replace(loop, dates=tuple((n, change(d) if n in names or not names else d) for n, d in loop.dates))


def plus_one(date: isl.PwAff) -> isl.PwAff:
    return date.add_constant_val(isl.Val(1))


@TARGETS
def test_what_the_verbs_made_passes_every_check(make: Callable[[], Schedule]) -> None:
    s = make()
    done = validate(s.source, s.nest, s.tree, (plan_memory(s.source, s.nest, s.tree, {}).spans,))
    assert [c.name for c in done.checks] == [
        "cover",
        "copies",
        "places",
        "order",
        "storage",
        "barriers",
        "once",
        "arena",
    ]
    assert done.seconds == sum(c.seconds for c in done.checks) > 0
    assert str(done).startswith("validated: cover ")


@TARGETS
def test_children_of_a_sequence_swapped(make: Callable[[], Schedule]) -> None:
    s = make()
    for node in sequences(s.tree):
        for p in range(len(node.children) - 1):
            if statements(node.children[p])[0].startswith("load") and statements(node.children[p + 1])[
                0
            ].startswith("load"):
                continue  # two copies are in no order
            parts = list(node.children)
            parts[p], parts[p + 1] = parts[p + 1], parts[p]
            fails(s, with_node(s.tree, node, replace(node, children=tuple(parts))), "order")


def test_a_loop_that_carries_a_dependence_negated() -> None:
    s = Schedule(pair()).split("S", "i", 2).fuse("S", "R", at="i")
    s = s.shift("R", "i", 1)
    loop = loop_of(s, "S", "i")
    fails(s, with_node(s.tree, loop, redated(loop, lambda date: date.neg())), "order")


@TARGETS
def test_one_statement_shifted_against_the_others(make: Callable[[], Schedule]) -> None:
    s = make()
    loop = loop_of(s, "mac", "i")
    assert "zero" in dict(loop.dates)
    late = with_node(s.tree, loop, redated(loop, plus_one, "zero"))
    fails(s, late, "order")


def test_one_statement_shifted_in_a_loop_in_order() -> None:
    s = Schedule(product()).fuse("mac", "zero", at="j").fuse("mac", "act", at="j")
    for name in ("i", "j"):
        loop = loop_of(s, "mac", name)
        fails(s, with_node(s.tree, loop, redated(loop, plus_one, "zero")), "order")
        validate(s.source, s.nest, with_node(s.tree, loop, redated(loop, plus_one, "act")))


def test_a_result_in_a_buffer_does_not_arrive() -> None:
    s = Schedule(pair()).fuse("S", "R", at="i").promote("t", "S", at="i")
    loop = loop_of(s, "S", "i")
    broken = replace(loop, buffers=(replace(loop.buffers[0], tensor="O"),))
    fails(s, with_node(s.tree, loop, broken), "storage", witness="the output O is in a buffer only")


def test_a_value_that_was_never_assigned_is_in_no_buffer() -> None:
    s = Schedule(pair()).fuse("S", "R", at="i").promote("t", "S", at="i")
    some = isl.Set("{ S[i, j] : 0 <= i < 4 and 0 <= j < 3 }")
    nest = swapped(s.nest, replace(s.nest.statement("S"), domain=some))  # the nest's own check is left out
    with pytest.raises(ValidationFailure, match=r"storage failed: R\[\d, 3\] finds no value of t\[\d, 3\]"):
        validate(nest, nest, s.tree)


def test_a_sum_in_a_buffer_begins_with_a_value() -> None:
    tensors = [
        Tensor("x", (4, 5), "float64", "input"),
        Tensor("t", (4,), "float64", "temporary"),
        Tensor("o", (4,), "float64", "output"),
    ]
    zero = statement("{ zero[i] : 0 <= i < 4 }", "t[i] = 0")
    add = statement("{ add[i, k] : 0 <= i < 4 and 0 <= k < 5 }", "t[i] += x[i, k]")
    keep = statement("{ keep[i] : 0 <= i < 4 }", "o[i] = t[i]")
    s = Schedule(Nest.of(tensors, [zero, add, keep])).fuse("zero", "add", at="i").fuse("add", "keep", at="i")
    s = s.promote("t", "zero", at="i")
    nest = swapped(s.nest, replace(zero, domain=isl.Set("{ zero[i] : 0 <= i < 3 }")))
    with pytest.raises(ValidationFailure, match=r"storage failed: add\[3, \d\] finds no value of t\[3\]"):
        validate(nest, nest, s.tree)


def test_a_proof_that_is_too_much_for_isl_is_no_proof() -> None:
    s = on_cuda()
    with pytest.raises(BudgetExceeded, match="validation of cover needs more than 10 operations of isl"):
        validate(s.source, s.nest, s.tree, operations=10)
    validate(s.source, s.nest, s.tree, operations=0)


def test_a_shift_that_keeps_the_order_loses_the_buffer() -> None:
    s = Schedule(pair()).fuse("S", "R", at="i").promote("t", "S", at="i")
    loop = loop_of(s, "S", "i")
    message = fails(s, with_node(s.tree, loop, redated(loop, plus_one, "R")), "storage")
    assert "the buffer of t" in message


@pytest.mark.parametrize("place", ["cores", "vector", "thread.x", "block.x"])
@pytest.mark.parametrize("loop", ["i", "j", "k"])
def test_loops_bound_to_run_at_once(place: str, loop: str) -> None:
    """i and j of a product may run at once, its reduction k only on vector lanes."""
    s = Schedule(product()).reorder("mac", loop, *[n for n in "ijk" if n != loop])
    found = loop_of(s, "mac", loop)
    broken = with_node(s.tree, found, replace(found, bind=Binding(place)))
    if loop == "k" and place != "vector":
        assert "reduction" in fails(s, broken, "order")
    else:
        validate(s.source, s.nest, broken)


def test_the_reduction_of_a_finished_kernel_bound_to_threads() -> None:
    s = on_cuda()
    loop = loop_of(s, "mac", "k_in")
    fails(s, with_node(s.tree, loop, replace(loop, bind=Binding.THREAD_Z)), "order")


def test_each_barrier_removed() -> None:
    s = on_cuda()
    found = 0
    for node in walk(s.tree):
        if isinstance(node, Sequence):
            for p in node.barriers:
                rest = tuple(q for q in node.barriers if q != p)
                message = fails(s, with_node(s.tree, node, replace(node, barriers=rest)), "barriers")
                assert "no barrier lies between the parts of a sequence" in message
                found += 1
        elif isinstance(node, Loop) and node.barrier:
            message = fails(s, with_node(s.tree, node, replace(node, barrier=False)), "barriers")
            assert "no barrier lies between the iterations of k" in message
            found += 1
    assert found == 2


@pytest.mark.parametrize(
    ("make", "tensor", "statement", "at"),
    [
        (on_cpu, "y", "mac", "i_in"),
        (on_cpu, "y", "mac", "k"),
        (on_cuda, "y", "mac", "k"),
        (on_cuda, "X_shared", "load_X", "load_X_0"),
        (on_cuda, "X_shared", "mac", "i_in"),
    ],
)
def test_a_buffer_moved_to_a_loop_too_far_in(
    make: Callable[[], Schedule], tensor: str, statement: str, at: str
) -> None:
    s = make()
    home = next(loop for loop in loops(s.tree) for b in loop.buffers if b.tensor == tensor)
    moved = next(b for b in home.buffers if b.tensor == tensor)
    tree = with_node(s.tree, home, replace(home, buffers=tuple(b for b in home.buffers if b is not moved)))
    inner = next(loop for loop in loops_around(tree, statement) if loop.name == at)
    private = Buffer(tensor, "local" if moved.memory == "shared" else moved.memory)
    fails(s, with_node(tree, inner, replace(inner, buffers=(private,))), "storage")


def test_a_shared_buffer_made_private_loses_what_other_threads_copied() -> None:
    s = on_cuda()
    loop = loop_of(s, "mac", "k")
    private = tuple(Buffer(b.tensor, "local") for b in loop.buffers)
    assert "_shared would lose the flow" in fails(
        s, with_node(s.tree, loop, replace(loop, buffers=private)), "storage"
    )


def test_a_shared_buffer_inside_threads_is_misplaced() -> None:
    s = on_cuda()
    home = loop_of(s, "mac", "k")
    tree = with_node(s.tree, home, replace(home, buffers=()))
    inner = next(loop for loop in loops_around(tree, "mac") if loop.name == "j_in")
    tree = with_node(tree, inner, replace(inner, buffers=home.buffers))
    fails(s, tree, "places", witness="is promoted to shared memory for each iteration")


def test_hardware_axes_out_of_place() -> None:
    s = on_cuda()
    block, thread = loop_of(s, "mac", "j"), loop_of(s, "mac", "j_in")
    for node, bind, message in (
        (thread, "thread.y", "both bound to thread.y"),
        (thread, "block.z", "only sequential loops and loops over blocks may enclose"),
        (thread, "cores", "cannot be nested"),
        (block, None, ""),
    ):
        tree = with_node(s.tree, node, replace(node, bind=bind and Binding(bind)))
        if message:
            fails(s, tree, "places", witness=message)
        else:
            validate(s.source, s.nest, tree)
    fails(s, with_node(s.tree, thread, replace(thread, barrier=True)), "places", witness="inside i_in")


@pytest.mark.parametrize(
    ("loop", "place"), [("i", "cores"), ("j", "cores"), ("i", "thread.x"), ("j", "block.x")]
)
def test_loops_of_one_operation_have_no_place_of_their_own(loop: str, place: str) -> None:
    s = Schedule(product()).reorder("mac", "k", "i", "j").microkernel("mac", "k")
    inner = loop_of(s, "mac", loop)
    message = (
        rf"loop {loop} inside k is bound to {place}, but microkernel makes the loops inside one operation"
    )
    fails(s, with_node(s.tree, inner, replace(inner, bind=Binding(place))), "places", witness=message)


@TARGETS
def test_a_statement_left_out(make: Callable[[], Schedule]) -> None:
    s = make()
    node = next(n for n in sequences(s.tree) if "act" in statements(n.children[-1]))
    tree = with_node(s.tree, node, replace(node, children=node.children[:-1]))
    fails(s, tree, "cover", witness="the tree runs")


@TARGETS
def test_an_instance_left_out_or_run_with_another(make: Callable[[], Schedule]) -> None:
    s = make()
    loop = next(x for x in reversed(loops_around(s.tree, "mac")))
    some = s.nest.domains["mac"].subtract(isl.Set("{ mac[1, 2, 3] }"))
    cut = redated(loop, lambda date: date.intersect_domain(some), "mac")
    fails(s, with_node(s.tree, loop, cut), "cover", witness=r"mac\[.*1.* never run")
    halved = redated(loop, lambda date: date.scale_down_val(isl.Val(2)).floor(), "mac")
    fails(s, with_node(s.tree, loop, halved), "cover", witness="instances of mac share a date")


def three_in_a_row() -> Schedule:
    """t0 -> t1 -> t2: neighbours live at once, the first and the last do not."""
    names = ["A", "t0", "t1", "t2", "O"]
    roles = ["input", *["temporary"] * 3, "output"]
    tensors = [Tensor(n, (8,), "float64", r) for n, r in zip(names, roles, strict=True)]
    every = [
        statement(f"{{ S{k}[i] : 0 <= i < 8 }}", f"{names[k + 1]}[i] = {names[k]}[i] + 1") for k in range(4)
    ]
    return Schedule(Nest.of(tensors, every))


def test_live_temporaries_overlapped_in_the_arena() -> None:
    s = three_in_a_row()
    plan = plan_memory(s.source, s.nest, s.tree, {})
    assert plan.size == 128, "t0 and t2 share their bytes"
    validate(s.source, s.nest, s.tree, (plan.spans,))
    for first, second in (("t0", "t1"), ("t1", "t2")):
        start, _ = plan.spans[first]
        broken = {**plan.spans, second: (start + 56, start + 120)}
        with pytest.raises(
            ValidationFailure, match=rf"validation of arena failed: {first} and {second} share bytes"
        ):
            validate(s.source, s.nest, s.tree, (broken,))


def test_a_copy_of_the_wrong_element() -> None:
    s = on_cuda()
    copy = s.nest.statement("load_X")
    (read,) = copy.reads
    wrong = Access(read.tensor, read.map.apply_range(isl.Map("{ X[i, j] -> X[j, i] }")))
    fails(s, s.tree, "copies", witness="the source X", nest=swapped(s.nest, replace(copy, reads=(wrong,))))


def test_a_read_sent_to_the_wrong_element() -> None:
    s = on_cuda()
    mac = s.nest.statement("mac")
    off = Access("W", isl.Map("{ mac[i, j, k] -> W[k, i] }"))
    reads = (mac.reads[0], off)
    fails(s, s.tree, "copies", witness="the source W", nest=swapped(s.nest, replace(mac, reads=reads)))


def test_a_copy_that_computes() -> None:
    s = on_cuda()
    copy = s.nest.statement("load_X")
    nest = swapped(s.nest, replace(copy, body=copy.body + 1))
    fails(s, s.tree, "copies", witness="load_X computes another part of mac than the source", nest=nest)


def test_a_copy_made_before_the_value_is_there() -> None:
    """R reads a copy of t; the copy is put before t's write, in the tree and in the nest's order alike."""
    s = Schedule(pair()).promote("t", "R", at="i")
    order, tree = s.nest.order, s.tree
    assert isinstance(order, Sequence)
    assert isinstance(tree, Sequence)
    early = replace(s.nest, order=Sequence((order.children[1], order.children[0], order.children[2])))
    fails(s, tree, "copies", witness="reads a copy of t made before or after another write", nest=early)


def swapped(nest: Nest, s: object) -> Nest:
    """The nest with another statement in the place of its namesake."""
    found = tuple(s if x.name == s.name else x for x in nest.statements)  # type: ignore[attr-defined]
    assert found != nest.statements
    return replace(nest, statements=found)


def test_paths_lead_where_these_tests_think() -> None:
    """Guards the tests above: the broken loops are around what they name."""
    s = on_cuda()
    assert [n.name for n in path_to(s.tree, "mac") if isinstance(n, Loop)] == [
        "i",
        "j",
        "k",
        "i_in",
        "j_in",
        "k_in",
    ]
    assert loop_of(s, "mac", "k").barrier or any(n.barriers for n in sequences(s.tree))
