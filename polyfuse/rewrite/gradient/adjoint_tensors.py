"""The adjoint of each tensor: its array, and what gives it its first value.

    T between the inputs and the outputs     ->     T_bar, an array of T's shape; T_grad if it is a gradient itself

An adjoint begins at 0 before the first part of the backward pass that adds to it. Where the terms of that part reach
each element once, they assign instead, and no zeros are stored.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import islpy as isl

from polyfuse.ir import Access, Nest, Statement
from polyfuse.ir.number_types import computed_in
from polyfuse.ir.scalar import Read, number
from polyfuse.ir.tensor import Role
from polyfuse.ir.tree import Tree, date_map, parts
from polyfuse.rewrite.gradient.activity import derived_reads
from polyfuse.rewrite.gradient.draft import Draft, element, onto
from polyfuse.rewrite.gradient.layouts import Order, window_layout
from polyfuse.rewrite.gradient.lifetimes import Lifetimes
from polyfuse.rewrite.gradient.owners import owned
from polyfuse.rewrite.gradient.phases import lies_apart
from polyfuse.sets import OUT

ZERO = number(0.0)


@dataclass(frozen=True)
class Contribution:
    """A read of a statement, to whose adjoint the statement's adjoint adds."""

    statement: Statement
    position: int

    @property
    def access(self) -> Access:
        """The elements that are read."""
        return self.statement.reads[self.position]


class AdjointTensors:
    """The adjoints of a nest's tensors.

    Attributes:
        active: The tensors that have adjoints.
        bars: The adjoint of each, by name.
        layouts: The order of an adjoint's axes, where it differs from the tensor's.
        first: For each adjoint that begins at 0, the part of the order whose adjoint adds to it first; -1: none does.
        assigned: Reads (statement, position) whose term is the first to reach each element of the adjoint.
        covered: Tensors whose adjoints are assigned by the phases of one sum.
    """

    def __init__(
        self,
        nest: Nest,
        draft: Draft,
        lives: Lifetimes,
        wrt: tuple[str, ...],
        active: frozenset[str],
        is_cut: Callable[[int], bool],
    ) -> None:
        """Adjoints for these active tensors; `is_cut` says which part of the order is a loop that runs in segments."""
        self.nest, self.draft, self.lives, self.wrt, self.active = nest, draft, lives, wrt, active
        self._is_cut = is_cut
        self.bars: dict[str, str] = {}
        self.layouts: dict[str, Order] = {}
        self.first: dict[str, int] = {}
        self.assigned: set[tuple[str, int]] = set()
        self.covered: set[str] = set()

    def made(self) -> None:
        """A tensor for each adjoint, and where its first term assigns instead of adding."""
        fresh = [t for t in self.nest.tensors if t.name in self.active and t.name not in self.bars]
        for tensor in fresh:
            layout = self._layout(tensor.name)
            direct = tensor.name in self.wrt and not tensor.is_half and layout is None
            name = f"{tensor.name}_grad" if direct else f"{tensor.name}_bar"
            role: Role = "output" if direct else "temporary"
            shape = tensor.shape
            if layout is not None:
                self.layouts[tensor.name] = layout
                shape = tuple(shape[axis] for axis in layout)
            self.bars[tensor.name] = self.draft.tensor(name, shape, computed_in(tensor.dtype), role).name
        backwards = list(reversed(list(enumerate(parts(self.nest.order)))))
        for tensor in fresh:
            for position, part in backwards:
                statements = map(self.nest.statement, part.names)
                terms = [one for s in statements for one in self.contributions(s, tensor.name)]
                if terms and self._is_cut(position):
                    self.first[tensor.name] = position
                elif terms and self._assign(terms, tensor.name):
                    self.assigned.update((one.statement.name, one.position) for one in terms)
                elif len(terms) == 1 and part.names == (terms[0].statement.name,) and self._covers(terms[0]):
                    self.covered.add(tensor.name)
                elif terms:
                    self.first[tensor.name] = position
                if terms:
                    break
            else:
                self.first[tensor.name] = -1

    def of(self, access: Access) -> Access:
        """The adjoint of what an access accesses."""
        moved = onto(access, self.bars[access.tensor])
        layout = self.layouts.get(access.tensor)
        return moved if layout is None else Access(moved.tensor, _with_axes(moved.map, layout))

    def tensor_of(self, bar: str) -> str:
        """The tensor that an adjoint is of."""
        return next(tensor for tensor, name in self.bars.items() if name == bar)

    def contributions(self, s: Statement, tensor: str | None = None) -> list[Contribution]:
        """The reads of a statement, of one tensor or all, whose adjoints its own adds to."""
        if s.write.tensor not in self.active or (tensor is not None and tensor not in s.tensors):
            return []
        wanted = [k for k in derived_reads(s) if s.reads[k].tensor in self.active]
        return [Contribution(s, k) for k in wanted if tensor is None or s.reads[k].tensor == tensor]

    def zeros(self, part: int) -> list[Tree]:
        """Adjoints whose first contributions are in a part begin at 0 before it."""
        found: list[Tree] = []
        for name, first in self.first.items():
            if first == part:
                domain = self.draft.elements(self.nest.tensor(name))
                target = self.of(element(domain, name))
                found.append(self.draft.alone(f"zero_{target.tensor}", domain, target, "=", [], ZERO))
        return found

    def _layout(self, tensor: str) -> Order | None:
        """The order of an adjoint's axes, where it is summed by one product over windows and not read in between."""
        terms = [one for s in self.nest.statements for one in self.contributions(s, tensor)]
        if len(terms) != 1 or self.nest.writers(tensor):
            return None
        return window_layout(terms[0].statement, terms[0].position)

    def _assign(self, terms: Sequence[Contribution], tensor: str) -> bool:
        """True if each element gets one of a part's contributions, once, and no element is left out."""
        if not self.lives.settled(tensor) or any(tensor == one.statement.write.tensor for one in terms):
            return False
        missing = self.nest.tensor(tensor).elements(self.nest.params).intersect_params(self.nest.context)
        reached: list[isl.Set] = []
        for one in terms:
            where = one.access.map.intersect_domain(self.nest.domains[one.statement.name])
            here = where.range()
            if not where.is_injective() or not all(here.is_disjoint(other) for other in reached):
                return False
            reached.append(here)
            missing = missing.subtract(here)
        return bool(missing.is_empty())

    def _covers(self, one: Contribution) -> bool:
        """True if the phases of a sum, which lie apart, have all elements of the adjoint."""
        s, tensor = one.statement, self.nest.tensor(one.access.tensor)
        numbers = any(not isinstance(symbol, Read) for symbol in s.body.free_symbols)
        if s.op != "+=" or numbers or any(a.tensor == s.write.tensor for a in s.reads):
            return False
        if not self.lives.settled(tensor.name) or tensor.name in self.layouts:
            return False
        domain = self.nest.domains[s.name]
        phases = [(here.domain, here.access(one.access)) for here in owned(domain, one.access.map)]
        elements = tensor.elements(self.nest.params).intersect_params(self.nest.context)
        reached = one.access.map.intersect_domain(domain).range()
        return all(lies_apart(*phase, self.nest) for phase in phases) and bool(elements.is_subset(reached))


def _with_axes(access: isl.Map, layout: Order) -> isl.Map:
    """An access to an array whose axes are those of another one in some order."""
    subscripts = isl.PwMultiAff.from_map(access)
    places = [subscripts.get_pw_aff(axis) for axis in layout]
    everywhere = isl.Set.universe(access.domain().get_space())
    return date_map(everywhere, places).set_tuple_name(OUT, access.get_tuple_name(OUT))
