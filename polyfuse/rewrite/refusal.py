"""Refuse a rewrite, with the instances that show why."""

from __future__ import annotations

import islpy as isl

from polyfuse.errors import IllegalRewrite
from polyfuse.errors.refusals import Instance, Refusal
from polyfuse.sets import first_pair, tuple_names


def refused(rewrite: str, why: str, remedy: str, pairs: isl.Map | None = None) -> Refusal:
    """A refusal with the first of the pairs of instances that show it."""
    found = first_pair(pairs) if pairs is not None else None
    if pairs is None or found is None:
        return Refusal(rewrite, why, remedy)
    sizes, *points = found
    instances = (Instance(n, p) for n, p in zip(tuple_names(pairs), points, strict=True))
    return Refusal(rewrite, why, remedy, tuple(instances), sizes)


def check_legal(refusal: Refusal | None) -> None:
    """Raises IllegalRewrite for a refusal; None is legal."""
    if refusal is not None:
        raise IllegalRewrite(refusal)
