"""A nest while it is written: tensors and statements with names of their own."""

from __future__ import annotations

from collections.abc import Sequence

import islpy as isl
import sympy

from polyfuse.ir import Access, Nest, Statement, Tensor
from polyfuse.ir.fresh_names import fresh
from polyfuse.ir.nest import own_loops
from polyfuse.ir.number_types import DType
from polyfuse.ir.scalar import Read, read, reads_in, substitute
from polyfuse.ir.tensor import Role
from polyfuse.ir.tree import Tree, date_map
from polyfuse.sets import IN, OUT, SET, dimension

LETTERS = "ijklmnop"


class Draft:
    """Tensors and statements beside those of a nest."""

    def __init__(self, nest: Nest) -> None:
        self.nest = nest
        self.tensors: dict[str, Tensor] = {}
        self.statements: dict[str, Statement] = {}
        self._taken = {t.name for t in nest.tensors} | {s.name for s in nest.statements} | set(nest.params)

    def tensor(self, name: str, shape: tuple[int | str, ...], dtype: DType, role: Role) -> Tensor:
        """Add a tensor, by this name or one like it."""
        return self.add(Tensor(self._named(name), shape, dtype, role))

    def add(self, made: Tensor) -> Tensor:
        """Add a tensor as it is."""
        self._taken.add(made.name)
        self.tensors[made.name] = made
        return made

    def statement(
        self,
        name: str,
        domain: isl.Set,
        write: Access,
        op: str,
        accesses: Sequence[Access],
        body: sympy.Basic,
    ) -> Statement:
        """Add a statement, by this name or one like it. Leaves of the body are positions in `accesses`."""
        named = self._named(name)
        used = [accesses[leaf.position] for leaf in reads_in(body)]
        listed: list[Access] = []
        leaves: dict[sympy.Basic, sympy.Basic] = {}
        for leaf, access in zip(reads_in(body), used, strict=True):
            leaves[leaf] = _position(listed, _of(named, access))
        made = Statement(
            named,
            domain.set_tuple_name(named),
            _of(named, write),
            op,
            tuple(listed),
            substitute(body, leaves),
        )
        self.statements[named] = made
        return made

    def alone(
        self,
        name: str,
        domain: isl.Set,
        write: Access,
        op: str,
        accesses: Sequence[Access],
        body: sympy.Basic,
    ) -> Tree:
        """Add a statement, and return it in loops of its own."""
        return own_loops(self.statement(name, domain, write, op, accesses, body))

    def _named(self, name: str) -> str:
        name = fresh(name, self._taken)
        self._taken.add(name)
        return name

    def elements(self, tensor: Tensor) -> isl.Set:
        """The elements of a tensor as a domain, with the usual names of dimensions."""
        found = tensor.elements(self.nest.params).intersect_params(self.nest.context)
        letters = [letter for letter in LETTERS if letter not in self.nest.params]
        for d in range(tensor.rank if tensor.rank <= len(letters) else 0):
            found = found.set_dim_name(SET, d, letters[d])
        return found


def _of(statement: str, access: Access) -> Access:
    return Access(access.tensor, access.map.set_tuple_name(IN, statement))


def _position(listed: list[Access], access: Access) -> Read:
    for position, known in enumerate(listed):
        if known.tensor == access.tensor and known.map.is_equal(access.map):
            return read(position)
    listed.append(access)
    return read(len(listed) - 1)


def element(domain: isl.Set, tensor: str) -> Access:
    """The access of each instance to the element of its own coordinates."""
    everywhere = isl.Set.universe(domain.get_space())
    coordinates = [dimension(domain, d) for d in range(domain.dim(SET))]
    return Access(tensor, date_map(everywhere, coordinates).set_tuple_name(OUT, tensor))


def onto(access: Access, tensor: str) -> Access:
    """The same element of another tensor."""
    return Access(tensor, access.map.set_tuple_name(OUT, tensor))
