"""The importers of ONNX operators by name, and what an importer is told of its node.

    importer ::= function(node, operand, …, attribute=…, …) -> operand | tuple of operands and Missing
    operand  ::= Value | array, which is known now | None, which the model leaves out

Operands stand in the order of ONNX's schema, attributes have its names, and Python's defaults are the schema's. An
importer raises Unsupported for what it cannot express. Nothing here imports onnx.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from polyfuse import nn
from polyfuse.frontend.importers import Missing, Unsupported
from polyfuse.ir import DType
from polyfuse.ir.number_types import ITEMSIZE, element_type
from polyfuse.nn.graph import FLOATS, Constant, Value
from polyfuse.nn.sizes import Affine, Shape, Size

Array = np.ndarray[Any, Any]
Operand = Value | Array | None
Importer = Callable[..., Any]
Kept = TypeVar("Kept", bound=Importer)

ONNX: dict[str, Importer] = {}
"""The importers by operator of ONNX's own domain. Filled by the modules of this folder when they are imported."""


class Unknown(Unsupported):
    """An operator needs an operand's numbers, and they depend on inputs.

    Attributes:
        inputs: The names of these inputs.
    """

    def __init__(self, message: str, inputs: tuple[str, ...]) -> None:
        super().__init__(message)
        self.inputs = inputs


@dataclass(frozen=True)
class Node:
    """A node, as far as importers need it: its operator's opset, the number of its results, and what is known."""

    operator: str
    opset: int
    results: int
    known: Callable[[Value], Array | tuple[str, ...]]
    """A value's numbers, where they depend on no input; else the inputs on which they depend."""

    def numbers(self, x: Operand, name: str) -> Array:
        """Return an operand's numbers.

        Args:
            x: The operand.
            name: The operand's name, for the message.

        Returns:
            The array.

        Raises:
            Unknown: if they depend on an input.
        """
        if isinstance(x, Value):
            found = self.known(x)
            if isinstance(found, tuple):
                raise Unknown(
                    f"its {name} have to be known when the model is read, and depend on the inputs {', '.join(found)}: "
                    "give these as constants={…}",
                    found,
                )
            return found
        if x is None:
            raise Unsupported(f"has no {name}")
        if is_symbolic(x):
            raise Unsupported(f"its {name} are {_listed(x)} and have to be numbers: {GIVE_SIZES}")
        return x

    def sizes(self, x: Operand, name: str) -> Shape:
        """Return an operand's numbers as sizes, flat; symbolic ones too."""
        if isinstance(x, np.ndarray) and is_symbolic(x):
            return tuple(size if isinstance(size, Affine) else int(size) for size in x.flat)
        return self.integers(x, name)

    def integers(self, x: Operand, name: str) -> tuple[int, ...]:
        """Return an operand's numbers as integers, flat."""
        return tuple(int(number) for number in self.numbers(x, name).reshape(-1))


def onnx_op(*names: str) -> Callable[[Kept], Kept]:
    """Register an importer for operators, such as "Add".

    Args:
        *names: The operators' names.

    Returns:
        The decorator.
    """

    def register(importer: Kept) -> Kept:
        ONNX.update(dict.fromkeys(names, importer))
        return importer

    return register


FOLDED_ELEMENTS = 2**24
"""A known result of more elements is not computed while a model is imported."""

TYPES: tuple[str, ...] = tuple(ITEMSIZE)
"""The element types of values."""


def value_of(x: Operand, dtype: DType | None = None) -> Value:
    """Return an operand as a value: of the type that is asked for, else its own.

    Args:
        x: The operand.
        dtype: The element type; None keeps its own.

    Returns:
        The value.

    Raises:
        Unsupported: if it is left out, or has a type that values do not have.
    """
    if x is None:
        raise Unsupported("an operand is left out that is required")
    if isinstance(x, Value):
        return x if dtype is None or x.dtype == dtype else nn.cast(x, dtype)
    if is_symbolic(x):
        raise Unsupported(f"computes with {_listed(x)}, which has to be a number: {GIVE_SIZES}")
    wanted = dtype or x.dtype.name
    if wanted not in TYPES:
        raise Unsupported(f"computes {wanted}: values are {', '.join(TYPES)}")
    return nn.constant(x.astype(wanted))


# -- arrays of sizes ---------------------------------------------------------------------------------------------------


def is_symbolic(operand: object) -> bool:
    """True for an array of sizes of which one is symbolic."""
    return isinstance(operand, np.ndarray) and operand.dtype == object


def sizes_array(sizes: Sequence[Size]) -> Array:
    """Return sizes as an array, of int64 where all are numbers.

    >>> sizes_array((3, 4))
    array([3, 4])
    """
    found = np.empty(len(sizes), object)
    found[:] = list(sizes)
    return numbered(found)


def numbered(found: Array) -> Array:
    """Return an array of sizes, of int64 where all are numbers."""
    return found.astype(np.int64) if all(isinstance(size, int | np.integer) for size in found.flat) else found


GIVE_SIZES = "give the symbolic sizes as sizes={…}"


def _listed(x: Array) -> str:
    return ", ".join(map(str, x.flat))


def floating(x: Operand) -> Value:
    """Return an operand as a value of a floating type; Unsupported for others."""
    value = value_of(x)
    if value.dtype not in FLOATS:
        raise Unsupported(f"computes {value.dtype}; it is computed in floating point")
    return value


def truth_of(x: Operand) -> Value:
    """Return an operand as truth values, false where it is 0."""
    value = value_of(x)
    return value if value.dtype == "bool" else nn.cast(value, "bool")


def values_of(*operands: Operand) -> list[Value]:
    """Return operands in one type, that of the first value among them; else that of the first array."""
    return [value_of(x, common_type(operands)) for x in operands]


def common_type(operands: Sequence[Operand]) -> DType | None:
    """The type of the first value among operands, else that of the first array; None where values have none such."""
    typed = [x.dtype for x in operands if isinstance(x, Value)]
    names = [x.dtype.name for x in operands if isinstance(x, np.ndarray)]
    return typed[0] if typed else element_type(names[0]) if names else None


def scalar_of(x: Operand) -> float | None:
    """The number that an array of one element holds, or a constant; None for others."""
    array = x.source.array if isinstance(x, Value) and isinstance(x.source, Constant) else x
    if not isinstance(array, np.ndarray) or array.size != 1 or is_symbolic(array):
        return None
    return float(array.reshape(-1)[0])


def axes_within(axes: Sequence[int], rank: int) -> tuple[int, ...]:
    """Axes counted from the left; Unsupported for one that does not exist."""
    if any(not -rank <= axis < rank for axis in axes):
        raise Unsupported(f"axes {tuple(axes)} of an operand with {rank} axes")
    return tuple(axis % rank for axis in axes)


__all__ = [
    "FOLDED_ELEMENTS",
    "ONNX",
    "Array",
    "Missing",
    "Node",
    "Operand",
    "Unknown",
    "Unsupported",
    "axes_within",
    "common_type",
    "floating",
    "is_symbolic",
    "numbered",
    "onnx_op",
    "scalar_of",
    "sizes_array",
    "truth_of",
    "value_of",
    "values_of",
]
