"""Take a rewrite of one statement if the kernels that it becomes are cheaper than the statement's own kernel was.

The statements are priced by themselves, each in the shape that it would get without neighbours to fuse with.
"""

from __future__ import annotations

from collections.abc import Callable

from polyfuse.errors import IllegalSchedule, InvalidSchedule
from polyfuse.ir import Nest
from polyfuse.machine import Machine
from polyfuse.measure import duration
from polyfuse.schedule import Schedule
from polyfuse.strategy.candidates import Choose
from polyfuse.strategy.cost.counts import Counts
from polyfuse.strategy.cost.roofline import Model
from polyfuse.strategy.fusion.gemm_pairs import alone_cost
from polyfuse.strategy.fusion.group_search import part_with
from polyfuse.strategy.remarks import Reason, Remark, refused, weighed
from polyfuse.strategy.transforms.packing import apart


def seconds_alone(nest: Nest, names: tuple[str, ...], machine: Machine) -> float:
    """The seconds of statements as separate kernels. Raises IllegalSchedule or InvalidSchedule if they cannot be."""
    schedule = apart(Schedule(nest), names)
    model = Model(Counts(nest), machine)
    return sum(alone_cost(nest, model, part_with(schedule, name)).total for name in names)


def taken_if_cheaper(
    pass_: str,
    name: str,
    line: str,
    prices: Callable[[], tuple[float, float]],
    choose: Choose,
    before_is: str = "as it was",
    becomes: tuple[str, ...] = (),
) -> tuple[bool, Remark]:
    """Whether a rewrite is taken, and the remark that says so with both prices.

    Args:
        pass_: The pass.
        name: The statement that is rewritten.
        line: What is done, as a sentence without its end.
        prices: The seconds before and after, by `seconds_alone`.
        choose: The user's wishes.
        before_is: How the statement runs at the first price.
        becomes: The statements that the remark is on where the rewrite is taken, if not on `name`.
    """
    try:
        before, after = prices()
    except (IllegalSchedule, InvalidSchedule) as error:
        return False, refused(pass_, (name,), Reason.ILLEGAL, f"not taken: {line}; {error}")
    chosen, taken = choose.wished(pass_, (name,)), choose.takes(pass_, (name,), after < before)
    numbers = f"{duration(after)} so, {duration(before)} {before_is}"
    text = f"{'' if taken else 'not taken: '}{line}: {numbers}."
    names = becomes if taken and becomes else (name,)
    return taken, weighed(pass_, names, taken, text, after, before, chosen)
