"""Check a call that passes one array for two tensors, one of them written: legal if no two instances conflict.

    y[i] = x[i] + 1     y and x one array: S[i] reads element i, then writes it, and no other instance does: allowed
    y[i] = x[i - 1]     S[i - 1] writes what S[i] reads: refused

Then every schedule is right, also one that copies elements before they are read, and so is machine code that was told
that the two do not overlap: what an instance stores depends on what it has loaded.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import islpy as isl

from polyfuse.ir import Instance, Nest
from polyfuse.ir.access import Access
from polyfuse.ir.dependences import relation_of
from polyfuse.ir.statement import Statement
from polyfuse.sets import OUT, first_pair, maps_of, tuple_names, union_map


def meeting(
    nest: Nest, written: str, read: str, sizes: Mapping[str, int]
) -> tuple[Instance, Instance] | None:
    """An instance that writes an element of one array given for both tensors, and another one that reads it.

    None if there are none for these sizes. The two tensors have the same shape, and the nest does not write `read`.
    """
    known = nest.with_sizes(sizes) if sizes else nest
    writes = _elements((s, s.write) for s in known.statements if s.write.tensor == written)
    reads = _elements((s, a) for s in known.statements for a in s.reads if a.tensor == read)
    for pairs in maps_of(writes.apply_range(reads.reverse())):
        writer, reader = tuple_names(pairs)
        apart = pairs.subtract(isl.Map.identity(pairs.get_space())) if writer == reader else pairs
        found = first_pair(apart)
        if found is not None:
            return Instance(writer, found[1]), Instance(reader, found[2])
    return None


def _elements(accesses: Iterable[tuple[Statement, Access]]) -> isl.UnionMap:
    """Instances -> elements of an array without a name."""
    return union_map(part.reset_tuple_id(OUT) for part in maps_of(relation_of(accesses)))
