"""Find the producers of the values under a maximum that have no other use: they may run in its blocks.

    Z: s[r, k] = 0;  P: s[r, k] += q[r, d] * w[k, d]        P[r, k, d] and Z[r, k] go into values of k alone
    M: m[r] max= s[r, k];  E: e[r, k] = exp(s[r, k] - m[r])

A statement that writes a temporary feeds them if all that reads the temporary is under the maximum, or feeds it, and
each of its instances goes into values of one k.
"""

from __future__ import annotations

import islpy as isl

from polyfuse.ir import Nest, Statement
from polyfuse.ir.tree import statements
from polyfuse.rewrite.reductions.under_maximum import Found


def feeding(nest: Nest, found: Found) -> dict[str, isl.PwAff]:
    """The statements that may run in the blocks before the maximum, each with the k of its instances."""
    dates = dict(found.dates)
    fed: dict[str, isl.PwAff] = {}
    for name in reversed(statements(nest.order)):
        s = nest.statement(name)
        if name in dates or s.write.tensor == found.maximum.write.tensor:
            continue
        date = _date(nest, s, {**dates, **fed})
        if date is not None:
            fed[name] = date
    return _whole(nest, found, fed)


def _date(nest: Nest, s: Statement, dates: dict[str, isl.PwAff]) -> isl.PwAff | None:
    """The k that a statement's instances go into; None if some go elsewhere, into none, or into several."""
    tensor = s.write.tensor
    readers = [r for r in nest.statements if any(a.tensor == tensor for a in r.reads)]
    if nest.tensor(tensor).role != "temporary" or not readers or any(r.name not in dates for r in readers):
        return None
    writes = s.write.map.intersect_domain(s.domain)
    together: isl.Map | None = None
    for reader in readers:
        for access in reader.reads:
            if access.tensor == tensor:
                reads = access.map.intersect_domain(reader.domain).reverse()
                one = writes.apply_range(reads).apply_range(isl.Map.from_pw_aff(dates[reader.name]))
                together = one if together is None else together.union(one)
    assert together is not None, "there are readers"
    if not together.is_single_valued() or not s.domain.is_subset(together.domain()):
        return None
    return isl.PwMultiAff.from_map(together).get_pw_aff(0).gist(s.domain)


def _whole(nest: Nest, found: Found, fed: dict[str, isl.PwAff]) -> dict[str, isl.PwAff]:
    """Keep those whose tensor has no other writer: a value is computed in its block, or before all blocks."""
    while True:
        late = {*fed, *found.names}
        mixed = {
            s.write.tensor
            for s in nest.statements
            if s.name not in fed and s.write.tensor in {nest.statement(n).write.tensor for n in fed}
        }
        kept = {
            name: date
            for name, date in fed.items()
            if nest.statement(name).write.tensor not in mixed and _read_late(nest, name, late)
        }
        if len(kept) == len(fed):
            return fed
        fed = kept


def _read_late(nest: Nest, name: str, late: set[str]) -> bool:
    tensor = nest.statement(name).write.tensor
    return all(r.name in late for r in nest.statements if any(a.tensor == tensor for a in r.reads))
