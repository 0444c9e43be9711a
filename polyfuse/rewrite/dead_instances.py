"""Remove dead instances: those whose values reach nothing that the caller sees.

    for i < 9: a[i] = f(x[i])                 for i < 4: a[i] = f(x[i])
    for i < 4: out[i] = a[i]           ->     for i < 4: out[i] = a[i]

The theorem: let N hold every instance that writes a visible tensor, and with an instance all that its values flow from.
Then what is not in N may go: nothing flows from it to what is left.
"""

from __future__ import annotations

from dataclasses import replace

import islpy as isl

from polyfuse.ir import Nest
from polyfuse.ir.tree import statements
from polyfuse.proving import proving


@proving("the rewrite needed")
def needed(nest: Nest) -> Nest:
    """Remove dead instances: restrict each domain to the instances whose values are used.

    Args:
        nest: The nest.

    Returns:
        The nest; a domain is restricted only to one convex set without gaps, and not if the statement reads its own
        values.
    """
    flow = [p for p in nest.dependences().pairs if p.kind == "flow"]
    keep = dict(nest.domains)
    for name in reversed(statements(nest.order)):
        sinks = [p for p in flow if p.source == name]
        visible = nest.tensor(nest.statement(name).write.tensor).role != "temporary"
        if visible or not sinks or any(p.sink == name for p in sinks):
            continue
        used = isl.Set.empty(keep[name].get_space())
        for p in sinks:
            used = used.union(p.map.intersect_range(keep[p.sink]).domain())
        used = used.coalesce()
        if used.n_basic_set() == 1 and not used.involves_locals():
            keep[name] = used
    cut = {
        s.name: replace(s, domain=keep[s.name].gist_params(nest.context))
        for s in nest.statements
        if not nest.domains[s.name].is_subset(keep[s.name])
    }
    return replace(nest, statements=tuple(cut.get(s.name, s) for s in nest.statements)) if cut else nest
