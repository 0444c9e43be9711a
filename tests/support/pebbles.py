"""A fast memory of so many elements, simulated: the elements that an order loads and stores."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Sequence

from polyfuse.ir import Nest
from polyfuse.ir.tree import Tree, dates
from polyfuse.sets import IN, maps_of
from tests.support.enumeration import Element, pairs

Touch = tuple[tuple[Element, ...], Element]
"""What an instance reads, and the element that it writes."""


def touches(nest: Nest, tree: Tree | None = None) -> list[Touch]:
    """The instances of a nest without sizes in a tree's order, by default the original one."""
    found: list[tuple[tuple[int, ...], tuple[Element, ...], Element]] = []
    by_name = {m.get_tuple_name(IN): m for m in maps_of(dates(tree or nest.order, nest.domains))}
    for s in nest.statements:
        if s.name not in by_name:
            continue
        domain = nest.domains[s.name]
        accesses = [(a.tensor, pairs(a.map.intersect_domain(domain), {})) for a in (s.write, *s.reads)]
        for point, date in pairs(by_name[s.name].intersect_domain(domain), {}).items():
            write, *reads = ((tensor, where[point]) for tensor, where in accesses)
            needed = (*reads, write) if s.is_reduction else tuple(reads)
            found.append((date, tuple(dict.fromkeys(needed)), write))
    return [(reads, write) for _, reads, write in sorted(found, key=lambda each: each[0])]


def traffic(nest: Nest, order: Sequence[Touch], elements: int) -> int:
    """Loads and stores with the element leaving that is needed last (Belady 1966).

    A value that is overwritten or not needed again leaves without a store. Nothing is in fast memory at first, and
    results are in slow memory in the end. An instance has its operands and its result in fast memory.
    """
    uses: dict[Element, deque[tuple[int, bool]]] = defaultdict(deque)
    for time, (reads, write) in enumerate(order):
        for element in reads:
            uses[element].append((time, True))
        if write not in reads:
            uses[write].append((time, False))
    result = {t.name for t in nest.tensors if t.role in ("output", "inout")}
    held: dict[Element, bool] = {}
    moved = 0

    def needed(element: Element) -> bool:
        return uses[element][0][1] if uses[element] else element[0] in result

    def room(busy: set[Element]) -> int:
        """Let the element leave whose value is not needed, or is needed last; return what is stored."""
        if len(held) < elements:
            return 0
        free = [e for e in held if e not in busy]
        leaving = max(free, key=lambda e: (not needed(e), uses[e][0][0] if uses[e] else len(order)))
        return int(held.pop(leaving) and needed(leaving))

    for reads, write in order:
        busy = {*reads, write}
        for element in reads:
            if element not in held:
                moved += room(busy) + 1
                held[element] = False
            uses[element].popleft()
        if write not in held:
            moved += room(busy)
        if write not in reads:
            uses[write].popleft()
        held[write] = True
    return moved + sum(dirty and element[0] in result for element, dirty in held.items())
