"""Check the nest argument of a public function."""

from __future__ import annotations

from polyfuse.errors import BadArgument
from polyfuse.ir.nest import Nest


def nest_given(taker: str, given: object, takes: str = "a nest") -> Nest:
    """The nest itself; BadArgument for a model, a function or anything else, with what makes a nest of one."""
    if isinstance(given, Nest):
        return given
    raise BadArgument(
        f"{taker} takes {takes}, given {type(given).__name__}: pf.lower(model, batch=…) makes a nest of layers, "
        "@pf.nest of a function, and an executable has its .nest and .schedule"
    )
