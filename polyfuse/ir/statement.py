"""Statements: the value that one instance computes, and the element that it writes.

statement ::= name[dims] : domain    target op body        op is "=", or a reduction "+=" "*=" "max=" "min="
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import islpy as isl
import sympy

from polyfuse.errors import InvalidNest
from polyfuse.ir.access import Access
from polyfuse.ir.scalar import REDUCTIONS, decode, encode, reads_in
from polyfuse.sets import IN, dim_names, numbered, param_names

RENAMED = ("renamed",)
"""The key, among a statement's answers, of the one that it is equal to but for names: what is true of that is of it."""


@dataclass(frozen=True)
class Statement:
    """One assignment, executed for every point of its domain.

    Attributes:
        name: The statement's name.
        domain: The iteration domain, an isl set.
        write: The access to the target.
        op: "=" or a reduction's operator, such as "+=".
        reads: The accesses that the Read leaves of `body` refer to by position. A reduction's read of its own target is
            implied and not listed.
        body: The value, a SymPy expression.
    """

    name: str
    domain: isl.Set
    write: Access
    op: str
    reads: tuple[Access, ...]
    body: sympy.Basic

    def __post_init__(self) -> None:
        if self.op != "=" and self.op not in REDUCTIONS:
            raise InvalidNest(
                f"statement {self.name}: operator {self.op!r} is unknown; expected one of =, {', '.join(REDUCTIONS)}"
            )
        if self.domain.get_tuple_name() != self.name:
            raise InvalidNest(f"statement {self.name}: its domain is named {self.domain.get_tuple_name()!r}")
        for access in (self.write, *self.reads):
            if access.map.get_tuple_name(IN) != self.name:
                raise InvalidNest(f"statement {self.name}: the access {access.map} is not from its instances")
            if not access.map.is_single_valued():
                raise InvalidNest(
                    f"statement {self.name}: {access.map} names more than one element an instance"
                )
        if [leaf.position for leaf in reads_in(self.body)] != list(range(len(self.reads))):
            raise InvalidNest(
                f"statement {self.name}: body {self.body} does not use its {len(self.reads)} reads"
            )
        known = set(self.dims) | set(param_names(self.domain))
        for symbol in self.body.free_symbols - set(reads_in(self.body)):
            if symbol.name not in known:
                raise InvalidNest(
                    f"statement {self.name}: {symbol} is neither a tensor, a loop index nor a size"
                )

    @property
    def dims(self) -> tuple[str, ...]:
        """The names of the iteration dimensions, outermost first."""
        return dim_names(self.domain)

    @property
    def is_reduction(self) -> bool:
        """True if the target accumulates."""
        return self.op != "="

    @cached_property
    def accesses(self) -> tuple[Access, ...]:
        """The write and all reads; a reduction's access to its own target is listed once."""
        return (self.write, *self.reads)

    @cached_property
    def tensors(self) -> tuple[str, ...]:
        """The names of all tensors accessed, without repetition, the target first."""
        return tuple(dict.fromkeys(access.tensor for access in self.accesses))

    @cached_property
    def form(self) -> tuple[str, ...]:
        """The operator with the body, the domain and the accesses as texts, without names.

        Statements with equal ones are equal but for names.
        """
        numbers = {name: number for number, name in enumerate((self.name, *self.tensors))}
        sets = self.domain, *(access.map for access in self.accesses)
        return f"{self.op} {encode(self.body)}", *(numbered(str(each), numbers) for each in sets)

    @cached_property
    def answers(self) -> dict[tuple[object, ...], Any]:
        """Answers about the statement alone, by question, since searches ask the same again and again."""
        return {}

    def __getstate__(self) -> dict[str, Any]:
        """SymPy's own pickle would re-evaluate the body, so it travels as JSON."""
        own = {each.name: self.__dict__[each.name] for each in fields(self)}
        return {**own, "body": encode(self.body)}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        self.__dict__.update({**state, "body": decode(state["body"])})
