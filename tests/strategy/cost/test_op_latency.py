"""What arithmetic takes on a CPU: an exponential is no addition."""

from __future__ import annotations

from polyfuse import nn
from polyfuse.ir.scalar import FUNCTIONS, div, operations, read, sub
from polyfuse.strategy.cost.counts import Counts
from polyfuse.strategy.cost.op_latency import effort


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
    assert work.effort > 8 * work.flops
