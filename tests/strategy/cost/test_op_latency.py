"""What arithmetic takes on a CPU: an exponential is no addition."""

from __future__ import annotations

from dataclasses import replace

from polyfuse import nn
from polyfuse.ir.scalar import FUNCTIONS, div, operations, read, sub
from polyfuse.machine import CpuMachine
from polyfuse.machine.functions import FUNCTIONS as FUNCTIONS_OF_MOST
from polyfuse.machine.rates import MESH
from polyfuse.strategy.cost.counts import Counts
from polyfuse.strategy.cost.op_latency import effort, operations_of
from polyfuse.strategy.pipeline import plan_for


def test_an_exponential_counts_as_many_additions() -> None:
    body = FUNCTIONS["exp"](sub(read(0), read(1)))
    assert operations(body) == 2
    assert (effort(body, 4), effort(body, 8)) == (18.0, 25.0)


def test_a_quotient_is_one_division() -> None:
    body = div(read(0), read(1))
    assert operations(body) == 1
    assert (effort(body, 4), effort(body, 8)) == (10.0, 19.0)


def test_a_statement_is_told_by_its_effort() -> None:
    counts = Counts(nn.lower(nn.softmax(nn.input("x", (4, 8)))))
    work = next(counts.work(s.name) for s in counts.nest.statements if "exp(" in str(s.body))
    assert work.instances == 32
    assert work.operations.effort() > 8 * work.flops


def test_functions_have_the_price_of_the_machine() -> None:
    """A logarithm is 27 additions by default, and 38 at the clock that a Xeon runs at."""
    operations = operations_of(FUNCTIONS["log"](sub(read(0), read(1))), 4).times(100)
    assert operations.effort() == 100 * (1 + 27)
    assert operations.effort(MESH.functions) == 100 * (1 + 38)
    net = nn.lower(nn.tanh(nn.input("x", (64, 64))))
    base = replace(CpuMachine.preset("xeon"), units=1)
    seconds = [
        plan_for(net, replace(base, functions=functions)).groups[0].cost.compute
        for functions in (FUNCTIONS_OF_MOST, MESH.functions)
    ]
    assert seconds[1] > 1.2 * seconds[0]
