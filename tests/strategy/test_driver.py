"""The driver of the strategy on passes of a line each: what is planned, in which order, what is kept, what is said."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import polyfuse as pf
from polyfuse.machine import Machine
from polyfuse.schedule import Schedule
from polyfuse.strategy import pipeline, schedule_costs
from polyfuse.strategy.candidates import Choose, Wish
from polyfuse.strategy.driver import Alternative, Candidate, Start, cheapest_plan
from polyfuse.strategy.passes import shape_each
from polyfuse.strategy.plan import Group, Plan
from polyfuse.strategy.remarks import Reason, Remark, refused

ROOT = Path(__file__).parents[2]
ZEN5 = Machine.preset("zen5")
NEST = pf.einsum("ij,j->i", {"i": 8, "j": 8}, dtype="float32")
SECONDS = {"e": 5.0, "e+a": 4.0, "e+b": 6.0, "e+c": 3.0, "e+c+a": 2.0}


def alternative(letter: str, *crossed: str, lost: bool = False) -> Alternative:
    """A pass that adds its letter to a nest's name, and a remark on what it did not do."""

    def candidates(start: Start) -> Iterator[Candidate | Remark]:
        yield refused(letter, (), Reason.ILLEGAL, f"no {letter}2")
        named = replace(start.nest, name=f"{start.nest.name}+{letter}")
        yield Candidate(
            replace(start, nest=named), (f"{letter} is there",), f"without {letter}", products=("s",)
        )

    gone = frozenset({"s"} if lost else ())
    return Alternative(letter, candidates, crossed, lost=lambda plan, products: gone)


def kept(*passes: Alternative, wishes: tuple[Wish, ...] = ()) -> tuple[str, list[str], Plan]:
    """The nest that is kept, those that were planned in order, and the plan."""
    asked: list[str] = []

    def planned(start: Start) -> Plan:
        asked.append(start.nest.name)
        schedule = Schedule(start.nest)
        (cost,) = schedule_costs(schedule, ZEN5)[:1]
        wanted = SECONDS[start.nest.name] - (cost.total - cost.overhead)
        group = Group(("s",), replace(cost, overhead=wanted))
        others = schedule_costs(schedule, ZEN5)[1:]
        nothing = (Group((), replace(other, overhead=other.overhead - other.total)) for other in others)
        return Plan(schedule, (), (group, *nothing), ZEN5)

    start = Start(replace(NEST, name="e"), ZEN5, Choose(wishes=wishes))
    plan = cheapest_plan(start, passes, planned)
    return plan.schedule.nest.name, asked, plan


def test_the_cheapest_is_kept_and_each_pass_has_its_remarks() -> None:
    name, asked, plan = kept(alternative("a"), alternative("b"))
    assert (name, asked) == ("e+a", ["e", "e+a", "e+b"])
    assert [(each.pass_, each.taken, each.reason) for each in plan.remarks] == [
        ("a", False, Reason.ILLEGAL),
        ("a", True, Reason.CHEAPER),
        ("b", False, Reason.ILLEGAL),
        ("b", False, Reason.DEARER),
    ]
    assert [str(each) for each in plan.remarks][1::2] == [
        "a is there: 4 s so, 5 s without a.",
        "not taken: b is there; 6 s so, 4 s without b.",
    ]


def test_only_passes_that_are_crossed_are_asked_of_a_candidate() -> None:
    assert kept(alternative("a"), alternative("c"))[:2] == ("e+c", ["e", "e+a", "e+c"])
    assert kept(alternative("a"), alternative("c", "a"))[:2] == ("e+c+a", ["e", "e+a", "e+c", "e+c+a"])


def test_a_candidate_whose_products_lose_their_tiles_is_not_kept() -> None:
    name, _, plan = kept(alternative("a", lost=True))
    assert name == "e"
    assert plan.remarks[-1].reason is Reason.NO_TILES
    assert "a product would have no tiles of results: a is there." in str(plan.remarks[-1])


def test_the_passes_are_listed_in_the_page_on_architecture() -> None:
    text = (ROOT / "docs" / "dev" / "architecture.md").read_text()
    rows = [
        line
        for line in text.split("## The passes of the strategy")[1].split("## ")[0].splitlines()
        if "|" in line
    ]
    listed = re.sub(r" \([^)]*\)", "", "\n".join(row.split("|")[2] for row in rows[2:]))
    names = [name.strip() for line in listed.splitlines() for name in line.split(";")]
    every = (
        pipeline.SOURCE_ALTERNATIVES,
        pipeline.REWRITES,
        pipeline.ALTERNATIVES,
        pipeline.KERNELS,
        pipeline.WHOLE_PLAN,
        shape_each.FORMS,
    )
    for passes in every:
        own = [one.name for one in passes]
        assert [name for name in names if name in own] == own
    assert set(pipeline.PASSES) <= set(names)


def test_what_is_forced_is_kept_and_what_would_replace_it_is_not_asked() -> None:
    name, asked, plan = kept(alternative("b"), alternative("c"), wishes=(Wish("b", frozenset(), True),))
    assert (name, asked) == ("e+b", ["e", "e+b"])
    assert plan.remarks[-1].reason is Reason.CHOSEN
    assert kept(alternative("a"), alternative("b"), wishes=(Wish("a", frozenset(), False),))[:2] == (
        "e",
        ["e", "e+b"],
    )
