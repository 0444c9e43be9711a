"""Batch isomorphic products, which differ only in their tensors, if this pays: the members of an ensemble.

Batched, K products are one kernel, and what follows them joins it for all members at once. Stacks of constants are made
once for all calls. What would need copies of inputs is not batched.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations

from polyfuse.ir import Nest
from polyfuse.ir.tree import parts, statements
from polyfuse.machine import Machine
from polyfuse.measure import duration
from polyfuse.rewrite import batch
from polyfuse.rewrite.batching.agenda import compatible
from polyfuse.rewrite.batching.batch import Batched
from polyfuse.strategy.candidates import Choose, cheapest
from polyfuse.strategy.cost.counts import Counts
from polyfuse.strategy.cost.roofline import Model
from polyfuse.strategy.fusion.group_search import early_statements
from polyfuse.strategy.match.gemm import products_of
from polyfuse.strategy.remarks import Reason, Remark, refused, weighed

PASS = "batch isomorphic"


def in_batches(nest: Nest, machine: Machine, choose: Choose = cheapest) -> tuple[Nest, tuple[Remark, ...]]:
    """The nest with isomorphic products and what goes with them in batches, if the model expects that to pay."""
    if not _has_members(nest):
        return nest, ()
    found = batch(nest)
    if not any(products_of(nest, each.statement) for each in found.batches):
        return nest, ()
    torn = _added_up_apart(nest, found) if machine.kind == "cuda" else ()
    if torn and not choose.takes(PASS, (), False):
        line = (
            f"isomorphic statements are not batched: what {' and '.join(torn)} compute is added up by statements "
            "that are not batched alike, so that it would go through memory."
        )
        return nest, (refused(PASS, torn, Reason.DEARER, line),)
    copied = [name for name, of in found.stacks.items() if nest.tensor(of[0]).role != "constant"]
    if copied and not choose.takes(PASS, (), False):
        line = f"isomorphic statements are not batched: {', '.join(copied)} would be copied in each call."
        return nest, (refused(PASS, (), Reason.DEARER, line),)
    before, after = _unfused(nest, machine), _unfused(found.nest, machine)
    numbers = f"{duration(after)} in batches, {duration(before)} apart, nothing fused"
    if not choose.takes(PASS, (), after < before):
        line = f"isomorphic statements are not batched: {numbers}."
        return nest, (weighed(PASS, (), False, line, after, before, choose.wished(PASS)),)
    lines = (*(f"{line}." for line in str(found).splitlines()), f"in all {numbers}.")
    chosen = choose.wished(PASS)
    return found.nest, tuple(weighed(PASS, (), True, line, after, before, chosen) for line in lines)


def _added_up_apart(nest: Nest, found: Batched) -> tuple[str, ...]:
    """The first products of one batch whose results go into sums in memory by statements of different batches.

    for i: for j: p += a * b;  y[0] += p;         one kernel each: results are added up where they are computed;
    for i: for j: q += c * d;  y[1] += q;         with p and q as one product, in kernels behind it
    """
    of = {name: one.statement for one in found.batches for name in one.members}
    for one in found.batches:
        if not products_of(nest, one.statement):
            continue
        readers = [_adding(nest, name, of) for name in one.members]
        if any(each != readers[0] for each in readers):
            return one.members
    return ()


def _adding(nest: Nest, name: str, of: Mapping[str, str]) -> frozenset[str]:
    """The batches of the statements that store a product's results, one by one, in an array that is added to so."""
    sums = nest.statement(name).write.tensor
    single = [s for s in nest.statements if s.write.map.intersect_domain(nest.domains[s.name]).is_injective()]
    targets = {s.write.tensor for s in single if s.op == "+="}
    readers = (s for s in single if s.write.tensor in targets and any(a.tensor == sums for a in s.reads))
    return frozenset(of.get(s.name, s.name) for s in readers)


def _unfused(nest: Nest, machine: Machine) -> float:
    """Seconds of a call with a kernel for each statement: what is fused later, is so for one member as for all."""
    model, early = Model(Counts(nest), machine), early_statements(nest, nest.order)
    calls = (part for part in parts(nest.order) if early.isdisjoint(statements(part)))
    return sum(model.cost(part).total for part in calls)


def _has_members(nest: Nest) -> bool:
    """True if two products are the same but for their tensors."""
    alone = (names[0] for part in parts(nest.order) if len(names := statements(part)) == 1)
    products = [nest.statement(name) for name in alone if products_of(nest, name)]
    return any(compatible(nest, a, b) for a, b in combinations(products, 2))
