"""Each condition of a proof decides a case by itself: a nest that this condition alone refuses."""

from __future__ import annotations

from dataclasses import replace

import islpy as isl
import pytest

import polyfuse as pf
from polyfuse.analysis.copies import check_copies
from polyfuse.analysis.liveness import LiveRange
from polyfuse.analysis.storage import runs_through
from polyfuse.ir.tree import loops


def one_loop(domain: str, formula: str, **extents: int) -> pf.Nest:
    """A nest of one statement S: x is read, a changed in place, o changed in place."""
    step = pf.statement(domain, formula)
    used = {access.tensor for access in step.accesses}
    roles = {"x": "input", "a": "inout", "o": "inout"}
    tensors = [pf.Tensor(n, (extents.get(n, 12),), "float64", roles[n]) for n in roles if n in used]  # type: ignore[arg-type]
    return pf.Nest.of(tensors, [step])


every_kind = pytest.mark.parametrize(
    ("kind", "formula"),
    [
        ("output", "o[0] = x[i]"),
        ("output", "o[floor(i/2)] = x[i]"),
        ("anti", "a[i] = a[i + 1]"),
        ("flow", "a[i + 1] = a[i]"),
    ],
)


@every_kind
def test_reversing_a_loop_keeps_every_kind_of_dependence(kind: str, formula: str) -> None:
    schedule = pf.Schedule(one_loop("{ S[i] : 0 <= i < 6 }", formula))
    with pytest.raises(pf.IllegalSchedule) as refused:
        schedule.reverse("S", "i")
    assert refused.value.violation.kind == kind


@every_kind
def test_vector_lanes_keep_every_kind_of_dependence(kind: str, formula: str) -> None:
    schedule = pf.Schedule(one_loop("{ S[i] : 0 <= i < 6 }", formula))
    with pytest.raises(pf.IllegalSchedule) as refused:
        schedule.vectorize("S", "i")
    assert refused.value.violation.kind == kind


@pytest.mark.parametrize(
    ("formula", "kind"), [("a[i] = a[i + 1]", "flow"), ("a[i + 1] = a[i]", "anti"), ("a[i] = 2 * a[i]", None)]
)
def test_a_pipelines_steps_wait_for_no_later_step_of_the_value_before(formula: str, kind: str | None) -> None:
    schedule = pf.Schedule(one_loop("{ S[t, i] : 0 <= t < 3 and 0 <= i < 6 }", formula))
    if kind is None:
        assert schedule.bind(t="pipeline").trace() != schedule.trace()
        return
    with pytest.raises(pf.IllegalSchedule) as refused:
        schedule.bind(t="pipeline")
    assert refused.value.violation.kind == kind


@pytest.mark.parametrize("formula", ["o[0] += x[i]", "o[i] = x[i]", "a[i] = 2 * a[i]"])
def test_a_loop_that_carries_none_or_only_a_sum_is_reversed(formula: str) -> None:
    schedule = pf.Schedule(one_loop("{ S[i] : 0 <= i < 6 }", formula))
    assert schedule.reverse("S", "i").trace() != schedule.trace()


@pytest.mark.parametrize(
    ("domain", "through"),
    [
        ("{ S[i] : 0 <= i < 6 }", True),
        ("{ S[i] : 0 <= i < 2 or 4 <= i < 6 }", False),
        ("{ S[i] : 0 <= i < 6 and i mod 2 = 0 }", False),
        ("{ S[i] : 0 <= i < 2 or 2 <= i < 6 }", True),
        ("{ S[i] : i = 3 }", True),
    ],
)
def test_a_loop_runs_through_where_no_iteration_between_two_is_empty(domain: str, through: bool) -> None:
    nest = one_loop(domain, "o[i] = x[i]")
    tree = pf.Schedule(nest).tree
    assert runs_through(nest, tree, next(iter(loops(tree)))) is through


def test_loops_around_are_the_same_for_both_ends_of_what_a_loop_runs_through() -> None:
    step = pf.statement("{ S[i, j] : 0 <= i < 4 and 2i <= j < 2i + 2 }", "o[j] = x[j]")
    tensors = [pf.Tensor("x", (12,), "float64", "input"), pf.Tensor("o", (12,), "float64", "inout")]
    nest = pf.Nest.of(tensors, [step])
    tree = pf.Schedule(nest).tree
    assert [runs_through(nest, tree, loop) for loop in loops(tree)] == [True, True]


@pytest.mark.parametrize("formula", ["o[i] = x[i]", "o[0] += x[i]", "o[0] += x[i] * x[i]"])
@pytest.mark.parametrize(
    ("instances", "why"),
    [
        ("{ S[i] : 0 <= i < 5 }", "S is not the source's statement"),
        ("{ S[i] : 0 <= i < 6 and i mod 2 = 0 }", "S is not the source's statement"),
        (
            "{ S[i] : 0 <= i < 7 }",
            "S has instances that the source lacks, and they are no products with zero",
        ),
        ("{ S[i] : -1 <= i < 6 }", "S has instances that the source lacks"),
    ],
)
def test_statements_have_the_instances_of_the_source(formula: str, instances: str, why: str) -> None:
    source = one_loop("{ S[i] : 0 <= i < 6 }", formula)
    (step,) = source.statements
    changed = replace(source, statements=(replace(step, domain=isl.Set(instances)),))
    tree = pf.Schedule(source).tree
    check_copies(source, source, tree)
    with pytest.raises(pf.ValidationFailure, match=why):
        check_copies(source, changed, tree)


@pytest.mark.parametrize(
    ("memory", "element", "legal"),
    [
        ("register", "t[k, i]", True),
        ("register", "t[k, 7 - i]", False),
        ("local", "t[k, 7 - i]", False),
        ("shared", "t[k, 7 - i]", True),
    ],
)
def test_what_a_thread_keeps_for_itself_no_other_thread_reads(memory: str, element: str, legal: bool) -> None:
    domain = "{ S[k, i] : 0 <= k < 3 and 0 <= i < 8 }"
    tensors = [
        pf.Tensor(n, (3, 8), "float32", r) for n, r in (("x", "input"), ("t", "temporary"), ("o", "output"))
    ]  # type: ignore[arg-type]
    made = pf.statement(domain, "t[k, i] = x[k, i]")
    used = pf.statement(domain.replace("S", "R"), f"o[k, i] = {element}")
    schedule = pf.Schedule(pf.Nest.of(tensors, [made, used])).fuse("S", "R", at="k")
    schedule = schedule.bind("S", i="thread.x").bind("R", i="thread.x")
    if legal:
        assert schedule.promote("t", "S", at="k", memory=memory).nest == schedule.nest
        return
    with pytest.raises(pf.IllegalSchedule) as refused:
        schedule.promote("t", "S", at="k", memory=memory)
    assert refused.value.violation.kind == "flow"


def test_lives_that_meet_in_one_kernel_overlap() -> None:
    early, late, apart = LiveRange("a", 0, 1), LiveRange("b", 1, 2), LiveRange("c", 2, 3)
    assert early.overlaps(late)
    assert late.overlaps(early)
    assert not early.overlaps(apart)
    assert not apart.overlaps(early)


def test_a_sum_has_more_instances_only_where_its_buffer_was_cleared() -> None:
    tensors = [pf.Tensor(n, (8,), "float64", "input") for n in ("x", "b")]
    tensors += [pf.Tensor("y", (), "float64", "inout"), pf.Tensor("t", (8,), "float64", "temporary")]
    source = pf.Nest.of(tensors[:3], [pf.statement("{ S[i] : 0 <= i < 6 }", "y += x[i] * b[i]")])
    clear = pf.statement("{ clear[i] : 0 <= i < 8 }", "t[i] = 0")
    load = pf.statement("{ load[i] : 0 <= i < 6 }", "t[i] = x[i]")
    step = pf.statement("{ S[i] : 0 <= i < 8 }", "y += t[i] * b[i]")
    nest = pf.Nest.of(tensors, [clear, load, step])
    check_copies(source, nest, pf.Schedule(nest).tree)
    less = replace(nest, statements=(replace(clear, domain=isl.Set("{ clear[i] : 0 <= i < 7 }")), load, step))
    with pytest.raises(pf.ValidationFailure, match="they are no products with zero"):
        check_copies(source, less, pf.Schedule(nest).tree)
