"""The rewrites that a plan begins with, each where it pays, before there is any schedule."""

from __future__ import annotations

from polyfuse.ir import Nest
from polyfuse.machine import Machine
from polyfuse.strategy.remarks import Remark
from polyfuse.strategy.rewrites.batch_isomorphic import in_batches
from polyfuse.strategy.rewrites.detach_output import with_readers
from polyfuse.strategy.rewrites.grouped_conv import in_groups
from polyfuse.strategy.rewrites.rematerialize import computed_where_read
from polyfuse.strategy.rewrites.split_reduction import in_two_passes, with_values_where_summed
from polyfuse.strategy.rewrites.split_sum_terms import with_terms_apart
from polyfuse.strategy.rewrites.views import without_copies


def before_schedules(nest: Nest, machine: Machine) -> tuple[Nest, tuple[Remark, ...]]:
    """The nest after the rewrites that come before any schedule, and what was decided."""
    viewed, said = without_copies(nest, machine)
    grouped, dealt = in_groups(viewed, machine)
    single, added_up = with_terms_apart(grouped, machine)
    members, shown = in_batches(single, machine)
    read, turned = with_readers(members, machine)
    summed, where = with_values_where_summed(read, machine)
    halved, told = in_two_passes(summed, machine)
    lean, again = computed_where_read(halved, machine) if machine.kind == "cpu" else (halved, ())
    return lean, (*said, *dealt, *added_up, *shown, *turned, *where, *told, *again)
