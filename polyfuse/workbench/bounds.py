"""`pf.bounds`: the least work and traffic that any schedule must have, beside a schedule's own."""

from __future__ import annotations

from polyfuse.errors import BadArgument, InvalidSchedule
from polyfuse.errors.proving import proving
from polyfuse.ir.given import nest_given
from polyfuse.ir.nest import Nest
from polyfuse.lower_bounds.bounds import Bounds, fast_memory, nest_bounds, schedule_bounds
from polyfuse.machine import Machine
from polyfuse.runtime.executable import Executable
from polyfuse.schedule import Schedule
from polyfuse.strategy.cost.price import cost


@proving("bounds")
def bounds(
    subject: Nest | Schedule | Executable,
    memory: int | str | None = None,
    *,
    machine: Machine | str | None = None,
) -> Bounds:
    """Return the least operations and bytes of any schedule of a nest, and of a schedule its traffic beside them.

    The traffic is that between a fast memory of some bytes and the slow one behind it. The bound holds for every order
    of the same instances, with the terms of a reduction in any order, each instance run once. Sources: Hong and Kung
    1981; Christ, Demmel, Knight, Scanlon and Yelick 2013 (arXiv:1308.0068); Olivry, Langou, Pouchet, Sadayappan and
    Rastello 2020 (arXiv:1911.06664).

    Args:
        subject: A nest; a schedule; or an executable, which has the times of its kernels too.
        memory: The size of fast memory in bytes, or the name of one of the machine's caches, such as "L2"; by default
            the largest cache.
        machine: The machine, or a preset's name; by default this computer's CPU. An executable has its own.

    Returns:
        The bounds; print them, or read `whole`, `kernels` and `formulas`. `pf.show.roofline_plot` draws them.

    Raises:
        BadArgument: if something else is given, the memory is neither bytes nor a cache, or a machine is given for an
            executable.
        TargetUnavailable: if no machine has this name.
    """
    if isinstance(subject, Executable):
        if machine is not None:
            raise BadArgument("bounds: an executable was compiled for its own machine; leave machine= out")
        return subject.bounds(memory)
    model = Machine.preset(machine) if isinstance(machine, str) else machine or Machine.detect()
    fast = fast_memory(memory, model)
    if not isinstance(subject, Schedule):
        return nest_bounds(nest_given("bounds", subject, "a nest, a schedule or an executable"), fast, model)
    finished = subject.synchronised()
    try:
        predicted = [kernel.seconds for kernel in cost(finished, model).kernels]
    except InvalidSchedule:  # a schedule for another kind of machine has traffic, and no price
        predicted = []
    return schedule_bounds(finished, fast, model, predicted)
