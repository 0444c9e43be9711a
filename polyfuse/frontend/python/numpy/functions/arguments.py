"""The arguments of one call, by NumPy's names."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from typing import NoReturn

import numpy as np

from polyfuse.frontend.python.numpy.expressions.evaluator import Evaluator
from polyfuse.frontend.python.numpy.expressions.lists import number_or_array
from polyfuse.frontend.python.numpy.syntax import constant
from polyfuse.frontend.python.numpy.values import (
    Array,
    Scalar,
    Static,
    Value,
)
from polyfuse.ir.number_types import (
    COMPLEX,
    ITEMSIZE,
    element_type,
)

Shape = tuple[ast.expr, ...]

ALLOWED_TYPES = ", ".join((*ITEMSIZE, *COMPLEX))


class Arguments:
    """The arguments of one call, by the names that NumPy gives them: "a axis|dim" has two names for the second."""

    def __init__(
        self, e: Evaluator, node: ast.Call, names: str, args: Sequence[Value], named: Mapping[str, Value]
    ) -> None:
        self.e, self.node = e, node
        spelled = [name.split("|") for name in names.split()]
        known = [first for first, *_ in spelled]
        meant = {other: first for first, *others in spelled for other in others}
        if len(args) > len(known):
            self.refuse(f"{len(args)} arguments")
        self.given: dict[str, Value] = dict(zip(known, args, strict=False))
        for word, value in named.items():
            name = meant.get(word, word)
            if name not in known or name in self.given:
                self.refuse(f"the argument {word}")
            self.given[name] = value
        self.given = {
            name: value
            for name, value in self.given.items()
            if not (isinstance(value, Static) and value.value is None) or name == "axis"
        }

    def refuse(self, why: str, allowed: str = "this function's plain arguments") -> NoReturn:
        """Raise NotAffine at the call."""
        self.e.refuse(self.node, f"{ast.unparse(self.node)}: {why}", allowed)

    def has(self, name: str) -> bool:
        """True if an argument is given, and not None."""
        value = self.given.get(name)
        return value is not None and not (isinstance(value, Static) and value.value is None)

    def array(self, name: str) -> Array:
        """An argument that is an array."""
        value = self.either(name)
        return value if isinstance(value, Array) else self.refuse(f"{name} is not an array")

    def either(self, name: str) -> Array | Scalar:
        """An argument that is an array or a number."""
        if name not in self.given:
            self.refuse(f"the argument {name} is missing")
        return number_or_array(self.e, self.node, self.given[name])

    def integer(self, name: str, default: int | None = None) -> int:
        """An argument that is a constant integer."""
        if name not in self.given and default is not None:
            return default
        value = self.given.get(name)
        found = (
            constant(self.e.program.aliases.written_out(value.node)) if isinstance(value, Scalar) else None
        )
        return found if found is not None else self.refuse(f"{name} is not a constant integer")

    def truth(self, name: str) -> bool:
        """An argument that is True or False; False if it is not given."""
        value = self.given.get(name)
        match value:
            case None:
                return False
            case Scalar(node=ast.Constant(value=bool() as known)):
                return known
            case Static(value=known):
                return bool(known)
        return self.refuse(f"{name} is not True or False")

    def text(self, name: str, default: str) -> str:
        """An argument that is a string."""
        value = self.given.get(name, Static(default))
        if not isinstance(value, Static) or not isinstance(value.value, str):
            self.refuse(f"{name} is not a string")
        return str(value.value)

    def in_rows(self) -> None:
        """Refuse an order of elements other than row after row."""
        if self.has("order") and self.text("order", "C") == "F":
            self.refuse("column after column")

    def integers(self, name: str, default: int) -> list[int]:
        """An argument that is a constant integer, or a tuple of them."""
        value = self.given.get(name, Scalar(ast.Constant(default), "integer"))
        parts = value if isinstance(value, tuple) else (value,)
        found = [constant(part.node) if isinstance(part, Scalar) else None for part in parts]
        return [
            one if one is not None else self.refuse(f"{name} is not made of constant integers")
            for one in found
        ]

    def axes(self, name: str, rank: int) -> list[int]:
        """Axes, counted from the start; all of them if none is given."""
        if not self.has(name):
            return list(range(rank))
        value = self.given[name]
        parts = value if isinstance(value, tuple) else (value,)
        found = []
        for part in parts:
            axis = constant(part.node) if isinstance(part, Scalar) else None
            if axis is None or not -rank <= axis < rank:
                self.refuse(
                    f"an axis of an array of rank {rank}",
                    f"constants from {-rank} to {rank - 1}, or a tuple of them",
                )
            found.append(axis % rank)
        return sorted(found)

    def shape(self, name: str) -> Shape:
        """A shape: integers, as they are written."""
        value = self.given.get(name)
        parts = value if isinstance(value, tuple) else (value,)
        found = []
        for part in parts:
            if not isinstance(part, Scalar):
                self.refuse(f"{name} is not a shape")
            found.append(self.e.affine(self.e.program.aliases.written_out(part.node)))
        return tuple(found)

    def dtype(self, default: str) -> str:
        """The element type that is asked for."""
        return self.type_of("dtype") if self.has("dtype") else default

    def type_of(self, name: str) -> str:
        """An argument that is an element type."""
        value = self.given.get(name)
        found: str | None = element_type(value.value) if isinstance(value, Static) else None
        if found is None and isinstance(value, Static):
            found = _complex_type(value.value)
        if found is None:
            known = getattr(getattr(value, "value", None), "__name__", f"in {ast.unparse(self.node)}")
            self.e.refuse(self.node, f"the element type {known}", ALLOWED_TYPES)
        return found


def _complex_type(name: object) -> str | None:
    try:
        found = np.dtype(name).name  # type: ignore[call-overload]  # whatever it may be
    except TypeError:
        return None
    return found if found in COMPLEX else None
