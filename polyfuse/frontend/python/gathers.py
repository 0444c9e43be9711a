"""Reads at places that an array of integers holds: x[idx[i], j] as an element of the rows x[idx].

    y[i] += A[i] * x[idx[i]]     ->     gathered x_at_idx = x[idx];  S[i]: y[i] += A[i] * x_at_idx[i]

Only the first subscript may come from data, and only parameters that the function does not write are read so
(`polyfuse.ir.gather` says why). Others are sums over all places, of which one is taken (places.py).
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

from polyfuse.frontend.python.aliases import stored_arrays
from polyfuse.frontend.python.scope_names import Names
from polyfuse.ir.number_types import is_integer
from polyfuse.ir.tensor import Tensor

ALLOWED = (
    "x[idx[i]], with a first subscript from an array of integers, of arrays that the function does not write"
)


def is_from_data(node: ast.expr) -> bool:
    """True for a subscript that is an array's element: idx[i], but not x.shape[0]."""
    return isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name)


def gathered(
    names: Names, node: ast.expr, table: str, subscripts: Sequence[ast.expr]
) -> tuple[str, list[ast.expr]] | None:
    """The tensor of rows, and the subscripts in it; None if the first subscript is not from data, or stored to.

    NotAffine where the function writes one of the two arrays.
    """
    if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
        return None
    match subscripts:
        case [ast.Subscript(value=ast.Name(id=chooser), slice=inner) as first, *rest]:
            places = list(inner.elts) if isinstance(inner, ast.Tuple) else [inner]
        case _:
            return None
    index = names.tensors.get(chooser)
    if index is None or not is_integer(index.dtype) or index.rank != len(places):
        return None
    for name in (table, index.name):
        if name not in names.tensors or name in names.locals or name in stored_arrays(names.source.tree):
            names.source.refuse(
                first, f"{ast.unparse(first)} depends on data, and {name} is written here", ALLOWED
            )
    made = names.gathered.get((table, index.name))
    if made is None:
        name = f"{table}_at_{index.name}"
        while (
            names.rank(name) is not None or name in names.made or name in names.sizes or name in names.indices
        ):
            name = f"{name}_"
        made = names.gathered[table, index.name] = Tensor.gathered(name, names.tensors[table], index)
    return made.name, [*places, *rest]


def is_row(names: Names, table: str, subscripts: Sequence[ast.expr]) -> bool:
    """True for the subscripts of an element of the rows of a table: the first is from data, no other."""
    first, *rest = subscripts
    if any(is_from_data(part) for part in rest) or not isinstance(first, ast.Subscript):
        return False
    given = set(names.tensors) - names.locals - stored_arrays(names.source.tree)
    return isinstance(first.value, ast.Name) and {table, first.value.id} <= given
