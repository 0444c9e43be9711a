"""Use online softmax: sums under a maximum in one pass over its operand, for attention without whole rows of scores.

    s = q kᵀ;  m = max s;  e = exp(s - m);  l = Σ e;  o = (e / l) v
    ->  for rows (so many that a step stays in L2): for blocks of keys: { s; m; corrections; e; l; o };  o / l

The rewrites are general ones: `inline` for what stands between exponentials and a product, `factor` for what its terms
have in common, `online` for blocks. The two nests are planned and the cheaper is taken; both prices are said.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import ceil

from polyfuse.errors import IllegalRewrite
from polyfuse.ir import Nest, Statement
from polyfuse.ir.precision import Math
from polyfuse.machine import Machine
from polyfuse.measure import duration
from polyfuse.rewrite import (
    Online,
    factor,
    inline,
    narrow,
    online,
    unround,
    why_not_factor,
    why_not_inline,
    why_not_narrow,
    why_not_unround,
)
from polyfuse.rewrite.reductions.under_maximum import has_exponential
from polyfuse.sets import IN, bounding_box
from polyfuse.strategy.driver import Candidate, Start
from polyfuse.strategy.match.gemm import products_of
from polyfuse.strategy.plan import Plan
from polyfuse.strategy.remarks import Reason, Refused, Remark, applied

PASS = "online softmax"

KEYS = 128
"""Values of the maximum in a block, about. 4096 queries and keys of 64 features took 43 ms with 128 and 47 with 256,
where whole rows took 54 (one core of a Xeon, beside other work). Sums are corrected once a block."""

UNEVEN = 192
"""The same where no multiple of 32 near KEYS divides the length: 300 queries of 700 keys took 662 µs with a short last
block after blocks of 128, 521 in four of 176, 596 with whole rows (one core of a Xeon)."""


@dataclass(frozen=True)
class OnePass:
    """A nest with sums under maxima in blocks, what was done to it, and why other maxima stay as they are."""

    nest: Nest
    said: tuple[str, ...]
    refused: tuple[Remark, ...] = ()


@dataclass(frozen=True)
class Blocked:
    """One maximum in blocks, and what was done before."""

    online: Online
    said: tuple[str, ...]


def in_one_pass(nest: Nest, machine: Machine) -> OnePass | None:
    """The nest with every maximum over at least two blocks, under which there is a product, in blocks.

    None if there is none; the same nest, and why, where a rewrite refuses them all.

    On a CPU, with known sizes: a GPU's kernels have blocks of their own (attention.py).
    """
    if machine.kind != "cpu" or nest.params:
        return None
    done = nest
    said: list[str] = []
    refused: list[Remark] = []
    for s in nest.statements:
        if s.op == "max=" and length_of(nest, s) >= 2 * KEYS:
            whole, unrounded = unrounded_weights(done, s.name)
            made = blocked(whole, s.name, _keys(length_of(nest, s)))
            if isinstance(made, Refused):
                line = f"sums under a maximum do not run in one pass: {made}"
                refused.append(Remark(PASS, (s.name,), False, made.reason, line))
            elif made is not None:
                done, said = made.online.nest, [*said, *unrounded, *made.said]
    return OnePass(done, tuple(said), tuple(refused)) if said or refused else None


def candidates(start: Start) -> Iterator[Candidate | Remark]:
    """The nest with sums under maxima in blocks, and why others stay as they are."""
    made = in_one_pass(start.nest, start.model_machine)
    if made is None:
        return
    yield from made.refused
    if made.said:
        told = (applied(PASS, (), f"{line}.", Reason.CHEAPER) for line in made.said)
        yield Candidate(replace(start, nest=made.nest).with_remarks(*told), made.said)


def seconds_of_all_kernels(usual: Plan, other: Plan) -> tuple[float, float]:
    """The seconds of all kernels of two plans, including those that run once for all calls."""
    one, two = (sum(group.cost.total for group in plan.groups) for plan in (usual, other))
    return one, two


def one_pass_remarks(
    pass_: str, candidate: Candidate, taken: bool, reason: Reason, so: float, otherwise: float
) -> Iterator[Remark]:
    """The remark on sums under maxima in one pass, `so` many seconds, or with whole rows."""
    form = "run in one pass" if taken else "do not run in one pass"
    numbers = f"{duration(so)} in one pass, {duration(otherwise)} with whole rows"
    yield Remark(pass_, (), taken, reason, f"sums under a maximum {form}: {numbers}.", (so, otherwise))


def length_of(nest: Nest, s: Statement) -> int:
    """The extent of the longest dimension that does not move the result."""
    box = bounding_box(nest.domains[s.name])
    free = [d for d in range(len(s.dims)) if not s.write.map.involves_dims(IN, d, 1)]
    return max((box[d][1] - box[d][0] + 1 for d in free), default=0) if box is not None else 0


def _keys(length: int) -> int:
    """Values in a block: blocks are whole, or all of about one size.

    >>> _keys(4096), _keys(700)
    (128, 176)
    """
    whole = [size for size in range(96, 2 * KEYS + 1, 32) if length % size == 0]
    if whole:
        return min(whole, key=lambda size: abs(size - KEYS))
    blocks = max(2, round(length / UNEVEN))
    return 16 * ceil(length / blocks / 16)


def blocked(nest: Nest, maximum: str, keys: int, math: Math | None = None) -> Blocked | Refused | None:
    """One maximum in blocks; why not, where a rewrite is refused; None if no product is under it.

    With a `math` products read the exponentials rounded to it.
    """
    said: list[str] = []
    for kept in [nest.statement(name).write.tensor for name in _exponentials(nest, maximum)]:
        for reader in _readers(nest, kept):
            if nest.statement(reader).op == "=" and why_not_inline(nest, reader) is None:
                done = inline(nest, reader)
                nest, said = done.nest, [*said, str(done)]
    exponentials = _exponentials(nest, maximum)
    sums = [n for name in exponentials for n in _readers(nest, nest.statement(name).write.tensor)]
    if not any(products_of(nest, name) or why_not_factor(nest, name) is None for name in sums):
        return None
    for name in sums:
        if nest.statement(name).is_reduction and why_not_factor(nest, name) is None:
            left = factor(nest, name)
            nest, said = left.nest, [*said, str(left)]
    if not any(products_of(nest, name) for name in sums):
        return None
    if math is not None:
        for tensor in {nest.statement(name).write.tensor: None for name in exponentials}:
            if why_not_narrow(nest, tensor, math) is None:
                rounded = narrow(nest, tensor, math)
                nest, said = rounded.nest, [*said, str(rounded)]
    try:
        blocks = online(nest, maximum, keys)
    except IllegalRewrite as error:
        return Refused(Reason.ILLEGAL, str(error))
    return Blocked(blocks, (*said, str(blocks)))


def unrounded_weights(nest: Nest, maximum: str) -> tuple[Nest, tuple[str, ...]]:
    """The nest with exponentials under a maximum, and what is computed of them, in float32; and what was done.

    e = exp(s - m);  p = half(e / l);  o += p * v     ->     p = e / l, which can be inlined
    """
    said: list[str] = []
    exponentials = _exponentials(nest, maximum)
    kept = (nest.statement(name).write.tensor for name in exponentials)
    weights = (reader for tensor in kept for reader in _readers(nest, tensor))
    for name in dict.fromkeys((*exponentials, *weights)):
        s = nest.statement(name)
        if s.op == "=" and why_not_unround(nest, s.write.tensor) is None:
            done = unround(nest, s.write.tensor)
            nest, said = done.nest, [*said, str(done)]
    return nest, tuple(said)


def _exponentials(nest: Nest, maximum: str) -> list[str]:
    """The statements with a factor exp(a - m), m the maximum of a: not all that read m, as m + log(l) does."""
    return [s.name for s in nest.statements if has_exponential(s, nest.statement(maximum))]


def _readers(nest: Nest, tensor: str) -> list[str]:
    return [s.name for s in nest.statements if any(a.tensor == tensor for a in s.reads)]
