"""Split sums of several products into several sums, each of which runs in blocks: y += a b + c d  ->  y += a b;  y += c
d.

A tile of sums takes one product at a time. The sums then come and go once more for each term, which the model prices.
"""

from __future__ import annotations

from polyfuse.errors import IllegalSchedule, InvalidSchedule
from polyfuse.ir import Nest
from polyfuse.machine import Machine
from polyfuse.rewrite.reductions.split_sum_terms import terms, why_not_terms
from polyfuse.schedule import Schedule
from polyfuse.strategy.candidates import Choose, cheapest
from polyfuse.strategy.cost.counts import Counts
from polyfuse.strategy.cost.roofline import Model, microseconds
from polyfuse.strategy.fusion.gemm_pairs import alone_cost
from polyfuse.strategy.fusion.group_search import part_with
from polyfuse.strategy.match.gemm import products_of
from polyfuse.strategy.remarks import Reason, Remark, refused, weighed
from polyfuse.strategy.transforms.packing import apart

PASS = "split sum terms"


def with_terms_apart(
    nest: Nest, machine: Machine, choose: Choose = cheapest
) -> tuple[Nest, tuple[Remark, ...]]:
    """The nest with the terms of sums apart that all are products, if that is cheaper; and a sentence on each."""
    said: list[Remark] = []
    for name in [s.name for s in nest.statements] if machine.kind == "cpu" else ():
        if why_not_terms(nest, name) is not None:
            continue
        done = terms(nest, name)
        if not all(products_of(done.nest, each) for each in done.statements):
            continue
        try:
            before = seconds_alone(nest, (name,), machine)
            after = seconds_alone(done.nest, done.statements, machine)
        except (IllegalSchedule, InvalidSchedule) as error:
            said.append(refused(PASS, (name,), Reason.ILLEGAL, f"not taken: {done}; {error}"))
            continue
        chosen = choose.wished(PASS, (name,))
        numbers = f"{microseconds(after)} so, {microseconds(before)} as one"
        if not choose.takes(PASS, (name,), after < before):
            said.append(
                weighed(PASS, (name,), False, f"not taken: {done}; {numbers}.", after, before, chosen)
            )
            continue
        nest = done.nest
        said.append(weighed(PASS, done.statements, True, f"{done}: {numbers}.", after, before, chosen))
    return nest, tuple(said)


def seconds_alone(nest: Nest, names: tuple[str, ...], machine: Machine) -> float:
    """The seconds of statements as separate kernels. Raises IllegalSchedule or InvalidSchedule if they cannot be."""
    schedule = apart(Schedule(nest), names)
    model = Model(Counts(nest), machine)
    return sum(alone_cost(nest, model, part_with(schedule, name)).total for name in names)
