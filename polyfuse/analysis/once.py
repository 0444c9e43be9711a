"""Find the kernels that may run once for all calls, because they depend on constants only: theorem and check.

    K0: for i, j: p[j, i] = w[i, j]         w a constant, p a temporary: p is the same in every call
    K1: for i, k: y[i] += p[k, i] * x[k]    x an input

Kernels R may run once, before all calls, iff
  - what they read are constants and temporaries, what they write are temporaries, and no other kernel writes these
    (each call then finds what the first would have found);
  - no dependence leads from an instance of another kernel to one of R (R may run before all others).

{ K0 } fulfils both. { K0 } with a K2 after K1 that writes p again does not: the second call would read K2's p. The
largest such set exists, since fewer kernels in R only take more away: a kernel that may not run once with R may not run
once with any part of R. So it is what is left of all kernels without those that read or write something of a call's
own, and without those that a kernel left out takes along, by writing what they access or by a dependence: each is left
out once, and each dependence is followed once.
"""

from __future__ import annotations

from collections.abc import Mapping

from polyfuse.ir.nest import Nest
from polyfuse.ir.statement import Statement
from polyfuse.ir.tree import Tree, parts, parts_with, statements


def once(nest: Nest, tree: Tree) -> tuple[bool, ...]:
    """For each kernel in order, return True if it runs once; the largest set for which the theorem holds."""
    names = [statements(part) for part in parts(tree)]
    kernel = {name: own for own in names for name in own}
    left = [s.name for s in nest.statements if s.name not in kernel or _of_a_call(nest, s)]
    refused: set[str] = set()
    changed: set[str] = set()
    while left:
        name = left.pop()
        if name in refused:
            continue
        own = kernel.get(name, (name,))
        refused |= set(own)
        left += [pair.sink for each in own for pair in nest.pairs_in_order.after(each)]
        for tensor in {nest.statement(each).write.tensor for each in own} - changed:
            changed.add(tensor)
            left += [s.name for s in (*nest.writers(tensor), *nest.readers(tensor))]
    return tuple(refused.isdisjoint(own) for own in names)


def _of_a_call(nest: Nest, s: Statement) -> bool:
    """True if a statement reads more than constants and temporaries, or writes more than temporaries."""
    return nest.tensor(s.write.tensor).role != "temporary" or any(
        nest.tensor(t).role not in ("constant", "temporary") for t in s.tensors
    )


def refusal(nest: Nest, tree: Tree, chosen: tuple[bool, ...]) -> str | None:
    """A statement of the chosen kernels that may not run once with them; None if all may."""
    early = {
        name for part, each in zip(parts(tree), chosen, strict=True) if each for name in statements(part)
    }
    if not early:
        return None
    written = {s.write.tensor for s in nest.statements if s.name not in early}
    for name in statements(tree):
        s = nest.statement(name)
        if name in early and (_of_a_call(nest, s) or not written.isdisjoint(s.tensors)):
            return name
    pairs = nest.pairs_in_order.pairs
    return next((p.sink for p in pairs if p.sink in early and p.source not in early), None)


def constant_tensors(nest: Nest, tree: Tree) -> frozenset[str]:
    """The constants, and the temporaries whose values depend on nothing else."""
    found = kept(nest, tree, once(nest, tree))
    return frozenset(tensor.name for tensor in nest.with_role("constant")) | found.keys()


def is_constant(nest: Nest, tree: Tree, tensor: str) -> bool:
    """Return True if `constant_tensors` has a tensor, by what its own values depend on.

    A kernel is left out iff it, or one that takes it along, has something of a call's own: a kernel that writes what it
    accesses, or whose dependence leads to it. Most temporaries vary however kernels are made, which is known of all
    tensors at once; kernels that write are followed first, as no dependence need be known for them.
    """
    if tensor in nest.varying:
        return False
    writers = nest.writers(tensor)
    if not writers:
        return any(t.name == tensor for t in nest.with_role("constant"))
    left, later, seen = [s.name for s in writers], list[str](), set[str]()
    while left or later:
        if not left:
            left += [pair.source for pair in nest.pairs_in_order.before(later.pop())]
            continue
        name = left.pop()
        if name in seen:
            continue
        own = [each for part in parts_with(tree, (name,)) for each in statements(part)]
        if not own:
            return False
        seen.update(own)
        later += own
        for s in map(nest.statement, own):
            if _of_a_call(nest, s):
                return False
            left += [x.name for t in s.tensors for x in nest.writers(t)]
    return True


def kept(nest: Nest, tree: Tree, chosen: tuple[bool, ...]) -> Mapping[str, bool]:
    """Each tensor that the chosen kernels write, and whether another kernel reads it: then it outlives them."""
    early: dict[str, bool] = {}
    for part, each in zip(parts(tree), chosen, strict=True):
        for name in statements(part):
            if each:
                early[nest.statement(name).write.tensor] = False
    for part, each in zip(parts(tree), chosen, strict=True):
        for name in statements(part):
            if not each:
                early |= {tensor: True for tensor in nest.statement(name).tensors if tensor in early}
    return early
