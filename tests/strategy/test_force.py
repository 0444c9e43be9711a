"""compile(force=…): a pass is left out or taken whatever the cost model expects, and what cannot be is refused."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

import polyfuse as pf
from papers.polybench import KERNELS
from polyfuse import nn
from polyfuse.errors import BadArgument
from polyfuse.ir.tree import loops
from polyfuse.machine import Machine
from polyfuse.strategy import plan_for
from polyfuse.strategy.remarks import Reason

ONE_CORE = replace(Machine.preset("zen5"), units=1)


def soft(rows: int = 64, keys: int = 512) -> pf.Nest:
    q, k, v = (nn.input(n, (size, 8)) for n, size in (("q", rows), ("k", keys), ("v", keys)))
    return nn.lower(nn.softmax(q @ nn.transpose(k)) @ v)


def test_a_pass_that_compares_plans_is_taken_or_left_out() -> None:
    """Small blocks of keys do not pay; forced, they are taken, with both numbers and the reason."""
    usual = plan_for(soft(), ONE_CORE)
    (remark,) = (each for each in usual.remarks if each.pass_ == "online softmax" and each.seconds)
    taken = plan_for(soft(), ONE_CORE, force={"online softmax": not remark.taken})
    decided = [each for each in taken.remarks if each.pass_ == "online softmax" and each.seconds]
    if remark.taken:
        assert not decided
    else:
        assert [(each.taken, each.reason, each.seconds) for each in decided] == [
            (True, Reason.CHOSEN, remark.seconds)
        ]
    assert str(taken.schedule.nest) != str(usual.schedule.nest)


def test_a_candidate_is_taken_by_name_and_computes_the_same() -> None:
    kernel = KERNELS["lu"]
    nest = kernel.nest.with_sizes({"N": 100})
    with pytest.raises(BadArgument, match="'blocked factorization' has no candidate '48 steps'"):
        plan_for(nest, ONE_CORE, force={"blocked factorization": "48 steps"})
    plans = {
        size: plan_for(nest, ONE_CORE, force={"blocked factorization": f"{size} steps"}) for size in (32, 64)
    }
    for size, plan in plans.items():
        (said,) = {each.text for each in plan.remarks if each.pass_ == "blocked factorization" and each.taken}
        assert f"in blocks of {size}" in said
    forced = pf.compile(
        kernel.nest, sizes={"N": 100}, target="cpu", force={"blocked factorization": "32 steps"}
    )
    usual = pf.compile(kernel.nest, sizes={"N": 100}, target="cpu", force={"blocked factorization": False})
    a = np.random.default_rng(0).random((100, 100), np.float64).astype(nest.tensors[0].dtype)
    a += 100 * np.eye(100, dtype=a.dtype)
    one, other = a.copy(), a.copy()
    forced(one)
    usual(other)
    assert not np.array_equal(one, a)
    np.testing.assert_allclose(one, other, rtol=1e-4)


def test_every_choice_of_sizes_has_candidates_with_names() -> None:
    """The error lists them in the model's order; each can be taken, for one kernel or for all."""
    nest = pf.einsum("ik,kj->ij", {"i": 64, "j": 64, "k": 64}, dtype="float32")
    with pytest.raises(BadArgument, match="has no candidate '48 x 48'") as refused:
        plan_for(nest, ONE_CORE, force={"blocks for the caches": "48 x 48"})
    first, second, *_ = re.findall("'(tiles of [^']*)'", str(refused.value))
    usual, same, other = (
        plan_for(nest, ONE_CORE, force=force)
        for force in ({}, {"blocks for the caches": first}, {"blocks for the caches of mac": second})
    )
    assert usual.schedule.trace() == same.schedule.trace() != other.schedule.trace()


def test_two_statements_are_put_in_one_kernel_or_kept_apart() -> None:
    nest = pf.lower(nn.Sequential(nn.Linear(32, 32), nn.ReLU()), batch=4)
    relu = next(s.name for s in nest.statements if s.name.startswith("relu"))
    usual = plan_for(nest, ONE_CORE)
    together = next(group for group in usual.groups if relu in group.statements)
    assert "mac0" in together.statements
    apart = plan_for(nest, ONE_CORE, force={f"group of mac0, {relu}": False})
    assert not any({"mac0", relu} <= set(group.statements) for group in apart.groups)
    said = next(each for each in apart.log if each.pass_ == "group" and each.reason is Reason.CHOSEN)
    assert said.text.endswith("they are kept apart, as was asked for.")


def test_kernels_share_a_region_if_that_is_forced() -> None:
    two = replace(ONE_CORE, units=2)
    nest = pf.lower(nn.Sequential(nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 512)), batch=256)
    usual = plan_for(nest, two)
    joined = plan_for(nest, two, force={"parallel region": True})
    assert not any(each.pass_ == "parallel region" for each in usual.remarks)
    assert any(loop.name.startswith("region") for loop in loops(joined.schedule.tree))


@pytest.mark.parametrize(
    ("force", "why"),
    [
        (
            {"no such pass": False},
            "no pass is called 'no such pass'; there are attention, backtrack, band tiles, ",
        ),
        ({"equal kernels": True}, "'equal kernels' takes False alone, which leaves it out, not True"),
        ({"views": True}, "'views' has no candidate for nest"),
        ({"wavefront of mac0": False}, "'wavefront' decides on the whole nest, and takes no statements"),
        ({"group of mac0": True}, "'group' takes two statements or more, as in 'group of a, b'"),
        ({"group of mac0, nobody": False}, "'group of mac0, nobody' has no candidate for nest"),
        ({"attention": 3}, "'attention' takes True, False or a candidate's name, not 3"),
        ({"attention": True}, "'attention' has no candidate for nest"),
        ("attention", "expected choices by the names of passes"),
    ],
)
def test_what_cannot_be_is_refused(force: object, why: str) -> None:
    nest = pf.lower(nn.Linear(8, 8), batch=4)
    with pytest.raises(BadArgument, match=why):
        pf.compile(nest, target="cpu", force=force)  # type: ignore[arg-type]


def test_a_schedule_by_hand_takes_no_force() -> None:
    nest = pf.lower(nn.Linear(8, 8), batch=4)
    with pytest.raises(BadArgument, match="leave one of them out"):
        pf.compile(nest, target="cpu", schedule=pf.Schedule(nest), force={"views": False})


def test_what_is_forced_is_in_the_cache_key() -> None:
    """A second compile that leaves a pass out is not the first one from the cache."""
    nest = pf.lower(nn.Linear(512, 512), batch=512)
    usual = pf.compile(nest, target="cuda", machine="h200", device="none")
    without = pf.compile(nest, target="cuda", machine="h200", device="none", force={"register tiles": False})
    again = pf.compile(nest, target="cuda", machine="h200", device="none")
    assert any("tile_fma(" in launch.source for launch in usual.kernels)
    assert not any("tile_fma(" in launch.source for launch in without.kernels)
    assert [launch.source for launch in again.kernels] == [launch.source for launch in usual.kernels]
