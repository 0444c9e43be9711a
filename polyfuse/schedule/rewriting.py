"""The rewrites that a schedule can name before its verbs, and the steps that a nest's history becomes.

nest --expand_temporaries--> nest --fold("scale0")--> nest      s = s.rewrite('expand_temporaries')
                                                                s = s.rewrite('fold', 'scale0')
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from inspect import signature
from typing import Any, Self

from polyfuse.errors import IllegalRewrite, InvalidSchedule
from polyfuse.errors.refusals import Refusal
from polyfuse.ir.nest import Nest
from polyfuse.rewrite import (
    accumulate,
    batch,
    bilinear,
    coalesce,
    expand,
    factor,
    fold,
    follow,
    in_place,
    inline,
    mirror,
    narrow,
    needed,
    online,
    overlap,
    own_sums,
    panels,
    pieces,
    place,
    read_through,
    real_product,
    reindex,
    scratch,
    share,
    snapshot,
    split_reduction,
    terms,
    unround,
    widen,
)
from polyfuse.rewrite.recorded import Origin, recorded
from polyfuse.rewrite.reductions.detach_output import detach
from polyfuse.rewrite.reductions.in_place import in_place_at_all_sizes
from polyfuse.rewrite.storage.expansion import expand_temporaries
from polyfuse.schedule.fuse_verbs import distribute
from polyfuse.schedule.proven import Proven
from polyfuse.schedule.step import Step

REWRITE = "rewrite"
"""The verb of a step that rewrites the nest."""


class _Ordered(Proven):
    """A nest whose loops are distributed, with a proof of each."""

    def distribute(self, statement: str, loop: str) -> Self:
        """for i: { S; T }  ->  for i: S; for i: T."""
        return self._do("distribute", (statement, loop), {}, lambda: distribute(self.tree, statement, loop))


@recorded("distributed")
def distributed(nest: Nest, *loops: tuple[str, str]) -> Nest:
    """Return the nest with loops distributed as if it were written so; each as a statement in it and its name."""
    taken = _Ordered(nest)
    for statement, loop in loops:
        taken = taken.distribute(statement, loop)
    return replace(nest, order=taken.tree)


REWRITES: Mapping[str, Callable[..., Any]] = {
    "accumulate": accumulate,
    "batch": batch,
    "bilinear": bilinear,
    "coalesce": coalesce,
    "detach": detach,
    "distributed": distributed,
    "expand": expand,
    "expand_temporaries": expand_temporaries,
    "factor": factor,
    "fold": fold,
    "follow": follow,
    "in_place": in_place,
    "in_place_at_all_sizes": in_place_at_all_sizes,
    "inline": inline,
    "mirror": mirror,
    "narrow": narrow,
    "needed": needed,
    "online": online,
    "overlap": overlap,
    "own_sums": own_sums,
    "panels": panels,
    "pieces": pieces,
    "place": place,
    "read_through": read_through,
    "real_product": real_product,
    "reindex": reindex,
    "scratch": scratch,
    "share": share,
    "snapshot": snapshot,
    "split_reduction": split_reduction,
    "terms": terms,
    "unround": unround,
    "widen": widen,
}
"""Every rewrite that a step may name. Each checks by itself that it may be done."""


def rewritten(nest: Nest, step: Step) -> Nest:
    """Return what a step of rewriting makes of a nest.

    Raises:
        InvalidSchedule: if there is no such rewrite, it takes other arguments, or it does nothing to the nest.
        IllegalRewrite: if it may not be done.
    """
    name, *args = step.args
    if name not in REWRITES:
        raise InvalidSchedule(f"unknown rewrite {name!r}; expected one of {', '.join(REWRITES)}")
    rewrite, options = REWRITES[str(name)], dict(step.options)
    try:
        signature(rewrite).bind(nest, *args, **options)
    except TypeError as error:
        raise InvalidSchedule(f"{step}: {error}; expected {name}{signature(rewrite)}") from error
    result = rewrite(nest, *args, **options)
    if isinstance(result, Refusal):
        raise IllegalRewrite(result)
    made = getattr(result, "nest", result)
    if not isinstance(made, Nest) or made is nest:
        raise InvalidSchedule(f"{step} changes nothing in nest {nest.name!r}, or may not be done")
    return made


def history(nest: Nest, begin: Nest) -> tuple[Step, ...]:
    """Return the steps of rewriting that made a nest of another one."""
    found: list[Step] = []
    while nest is not begin:
        origin = nest.origin
        assert isinstance(origin, Origin), f"a rewrite of {begin.name} left no note of itself"
        args = (origin.rewrite, *origin.args)
        found.insert(0, Step(REWRITE, args, tuple(origin.options.items())))
        nest = origin.before
    return tuple(found)
