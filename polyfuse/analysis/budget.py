"""Limit isl's work: an operation beyond the limit raises isl.Error instead of running for minutes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import islpy as isl


@contextmanager
def at_most(context: isl.Context, operations: int) -> Iterator[None]:
    """isl raises isl.Error inside once it has done this many operations."""
    before = context.get_max_operations()
    context.reset_operations()
    context.set_max_operations(operations)
    try:
        yield
    finally:
        context.reset_operations()
        context.set_max_operations(before)
