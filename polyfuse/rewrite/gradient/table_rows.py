"""The gradient of a table whose rows are gathered by number."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import islpy as isl
import sympy

from polyfuse.ir import Access, Nest
from polyfuse.ir.gather import limits_by_reads
from polyfuse.ir.scalar import Select, number, read
from polyfuse.ir.tensor import Box, Tensor, whole
from polyfuse.ir.tree import Tree
from polyfuse.rewrite.gradient.adjoint_tensors import AdjointTensors
from polyfuse.rewrite.gradient.draft import Draft
from polyfuse.sets import dim_names


def rows_of_tables(nest: Nest, draft: Draft, adjoints: AdjointTensors) -> list[Tree]:
    """table_bar[v, k] += where(index[i] == v, rows_bar[i, k], 0) for the rows of a table.

    The loop over v is around the row's numbers: of its iterations only the one that the index names is run
    (`polyfuse.ir.masks`).
    """
    found: list[Tree] = []
    for tensor in nest.with_role("gathered"):
        if tensor.name not in adjoints.active or tensor.gather is None:
            continue
        table, index = nest.tensor(tensor.gather.table), nest.tensor(tensor.gather.index)
        names = [f"i{d}" for d in range(index.rank)]
        inner = [f"k{d}" for d in range(table.rank - 1)]
        params = ", ".join(nest.params)
        dims = [*names, "v", *inner]
        limits = limits_by_reads(nest, tensor)
        where = " or ".join(_within(dims, limit.box or whole(index), table) for limit in limits)
        domain = isl.Set(f"[{params}] -> {{ S[{', '.join(dims)}] : {where} }}")

        def at(name: str, dims: Sequence[str], domain: isl.Set = domain, params: str = params) -> Access:
            every = ", ".join(dim_names(domain))
            return Access(name, isl.Map(f"[{params}] -> {{ S[{every}] -> {name}[{', '.join(dims)}] }}"))

        known = draft.tensors.get(index.name, index).below
        draft.tensors[index.name] = replace(index, below=(*known, *limits))
        body = Select(sympy.Eq(read(0), sympy.Symbol("v"), evaluate=False), read(1), number(0))
        accesses = [at(index.name, names), at(adjoints.bars[tensor.name], [*names, *inner])]
        write = at(adjoints.bars[table.name], ["v", *inner])
        found.append(draft.alone(f"rows_to_{table.name}", domain, write, "+=", accesses, body))
    return found


def _within(dims: Sequence[str], box: Box, table: Tensor) -> str:
    """The condition that the first dimensions lie in a box of the index, and the others in a table."""
    ends = zip(dims, (*box, *whole(table)), strict=True)
    return f"({' and '.join(f'{first} <= {d} < {end}' for d, (first, end) in ends)})"


def remarks_on_tables(nest: Nest, adjoints: AdjointTensors) -> tuple[str, ...]:
    """A line for each table whose rows are gathered."""
    tables = (t.gather.table for t in nest.with_role("gathered") if t.gather and t.name in adjoints.active)
    return tuple(
        f"{table}: each of its rows is owned by an iteration that meets all numbers, and adds up those that name it"
        for table in dict.fromkeys(tables)
    )
