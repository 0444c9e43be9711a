"""A nest as a Python file that makes it again: tensors, statements as text, and the order where it is not theirs.

    nest  ->  tensors = […]; statements = […]; nest = pf.Nest.of(tensors, statements)

Constants get small whole numbers in place of their values, which may be a model's.
"""

from __future__ import annotations

import re

from polyfuse.errors import BadArgument, PolyfuseError
from polyfuse.ir import Nest, Statement
from polyfuse.ir.nest import textual_order
from polyfuse.ir.nest_text import body_text, statement
from polyfuse.ir.tree import Leaf, Loop, Tree, children

HEAD = '''\
import islpy as isl
import numpy as np
import polyfuse as pf
from polyfuse.ir.tensor import Gather, Limit
from polyfuse.ir.tree import Leaf, Loop, sequence


def values(shape, dtype):
    """Small whole numbers."""
    return np.random.default_rng(0).integers(-2, 3, shape).astype(dtype)


'''
"""The beginning of every file: what follows holds the nest's own numbers."""


def nest_source(nest: Nest) -> str:
    """Return the text of a Python file that makes a nest, with other values of its constants.

    Args:
        nest: The nest.

    Returns:
        The file's text; it defines `nest`.

    Raises:
        BadArgument: if a statement cannot be written as text, because an access has several pieces.
    """
    tensors = "".join(
        f"    pf.Tensor({t.name!r}, {t.shape!r}, {t.dtype!r}, {t.role!r}"
        + (f", Gather({t.gather.table!r}, {t.gather.index!r})" if t.gather is not None else "")
        + (f", below={t.below!r}" if t.below else "")
        + (", pairs=True" if t.pairs else "")
        + "),\n"
        for t in nest.tensors
    )
    statements = "".join(
        f"    pf.statement(\n        {str(s.domain)!r},\n        {statement_source(s)!r},\n    ),\n"
        for s in nest.statements
    )
    constants = "".join(
        f"    {t.name!r}: values({t.shape!r}, {t.dtype!r}),\n" for t in nest.tensors if t.role == "constant"
    )
    order = "" if nest.order == textual_order(nest.statements) else f", {_order_source(nest.order)}"
    more = f", context={str(nest.context)!r}" if not nest.context.plain_is_universe() else ""
    more += ", constants=constants" if constants else ""
    return (
        f"{HEAD}tensors = [\n{tensors}]\nstatements = [\n{statements}]\n"
        + (f"constants = {{\n{constants}}}\n" if constants else "")
        + f"nest = pf.Nest.of(tensors, statements{order}{more}, name={nest.name!r})\n"
    )


def statement_source(s: Statement) -> str:
    """The assignment of a statement, as `pf.statement` reads it; BadArgument where it would read another one."""
    text = in_python(body_text(s))
    try:
        found = statement(s.domain, text)
    except (PolyfuseError, SyntaxError) as error:
        raise BadArgument(f"{s.name} cannot be written as text: {body_text(s)}") from error
    same = [(a.tensor, b.tensor, a.map, b.map) for a, b in zip(found.accesses, s.accesses, strict=False)]
    if len(found.accesses) != len(s.accesses) or not all(
        one == other and mine.intersect_domain(s.domain).is_equal(his.intersect_domain(s.domain))
        for one, other, mine, his in same
    ):
        raise BadArgument(f"{s.name} cannot be written as text: {body_text(s)}")
    return text


def in_python(text: str) -> str:
    """isl's subscripts as Python's: products with `*`, remainders with `%`, quotients with `//`.

    >>> in_python("y[2i + 1] = x[floor((i)/4), (i + 3j) mod 4, floor((floor((i)/2))/3)]")
    'y[2*i + 1] = x[(i)//4, (i + 3*j) % 4, ((i)//2)//3]'
    """
    return re.sub(r"\[[^\]]*\]", _subscripts, text)


def _subscripts(found: re.Match[str]) -> str:
    text = re.sub(r"(?<![\w.])(\d+)([a-zA-Z_(])", r"\1*\2", found[0]).replace(" mod ", " % ")
    inner = re.compile(r"\bfloor\((\((?:(?!floor).)*?\))/(\d+)\)")
    while (shorter := inner.sub(r"\1//\2", text)) != text:
        text = shorter
    return text


def _order_source(tree: Tree) -> str:
    """The tree of the original order as Python: loops without bindings, and sequences."""
    match tree:
        case Leaf(name):
            return f"Leaf({name!r})"
        case Loop(name, dates, body):
            every = "".join(f"({s!r}, isl.PwAff({str(date)!r})), " for s, date in dates)
            return f"Loop({name!r}, ({every}), {_order_source(body)})"
    return f"sequence(({''.join(_order_source(child) + ', ' for child in children(tree))}))"
