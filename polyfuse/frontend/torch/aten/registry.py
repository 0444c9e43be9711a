"""The importers of ATen operators by name, and how one node of a graph is given to its importer.

    importer ::= function(result, operand, …) -> Value | tuple of Value and Missing

An importer takes the result's meta value, then the operator's arguments as in ATen's schema, with values in place of
tensors. It raises Unsupported for arguments that it cannot express. Nothing here imports torch: operators and element
types are read by their names, so that a graph of any origin can be given.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np

from polyfuse.errors import PolyfuseError
from polyfuse.ir import DType
from polyfuse.nn import cast
from polyfuse.nn.graph import FLOATS, INTEGERS, Value, constant


class Unsupported(PolyfuseError):
    """A node that polyfuse cannot express. The message is the reason and says what would work."""


@dataclass(frozen=True)
class Missing:
    """A result of an operator that is not computed, and why: the indices of a pooling."""

    reason: str


class TensorMeta(Protocol):
    """What is known of a tensor before the graph runs: a FakeTensor, for torch."""

    @property
    def shape(self) -> Sequence[int]:
        """The sizes."""

    @property
    def dtype(self) -> object:
        """The element type; its text ends in its name: "torch.float32"."""


@dataclass(frozen=True)
class Result:
    """The shape and the element type that a node's first result has; `dtype` is torch's name of it."""

    shape: tuple[int, ...]
    dtype: str

    @property
    def element(self) -> DType:
        """The element type of the value: truth values are float32."""
        return value_type(self.dtype)

    @staticmethod
    def of(meta: Any) -> Result:
        """Return the meta value of a node, as numbers and names.

        Args:
            meta: A tensor's meta value, or several; of several, the first that is a tensor.

        Returns:
            The result.

        Raises:
            Unsupported: if no result is a tensor.
        """
        first = meta
        if isinstance(meta, list | tuple):
            first = next((one for one in meta if hasattr(one, "shape")), None)
        if not hasattr(first, "shape"):
            raise Unsupported("its result is not a tensor, and polyfuse computes tensors alone")
        return Result(tuple(size_of(size) for size in first.shape), type_name(first.dtype))


Importer = Callable[..., Value | tuple[Value | Missing, ...]]
Kept = TypeVar("Kept", bound=Importer)

ATEN: dict[str, Importer] = {}
"""The importers by operator, "aten.add.Tensor". Filled by the modules of this folder when they are imported."""

VIEWS: set[str] = set()
"""The operators that compute nothing: each element of their result is an element of an operand."""


def aten(*names: str) -> Callable[[Kept], Kept]:
    """Register an importer for operators, such as "add.Tensor".

    Args:
        *names: The operators' names without "aten.".

    Returns:
        The decorator.
    """

    def register(importer: Kept) -> Kept:
        ATEN.update({f"aten.{name}": importer for name in names})
        return importer

    return register


def view(*names: str) -> Callable[[Kept], Kept]:
    """Register an importer for operators that compute nothing.

    Args:
        *names: The operators' names without "aten.".

    Returns:
        The decorator.
    """
    VIEWS.update(f"aten.{name}" for name in names)
    return aten(*names)


def size_of(size: Any) -> int:
    """A size as a number: of a symbolic one, the number that it had when the graph was made.

    torch's own `int(size)` would restrict the graph to this number.
    """
    return int(size if isinstance(size, int) else size.node.hint)


def type_name(dtype: object) -> str:
    """The name of an element type: "float32" of torch.float32."""
    return str(dtype).rsplit(".", maxsplit=1)[-1]


def value_type(dtype: str) -> DType:
    """The element type of a value for a tensor's, by torch's name.

    Args:
        dtype: The name, such as "float32".

    Returns:
        The same type; float32 for bool.

    Raises:
        Unsupported: if values have no such type.
    """
    if dtype == "bool":
        return "float32"
    known: Mapping[str, DType] = {**FLOATS, **{name: name for name in INTEGERS}}
    if dtype not in known:
        raise Unsupported(f"element type {dtype}: values are {', '.join(known)}, or bool as 0 and 1")
    return known[dtype]


def floating(result: Result) -> DType:
    """The element type of a result that is computed; Unsupported for whole numbers."""
    if result.element in INTEGERS:
        raise Unsupported(
            f"computes {result.dtype}: polyfuse.nn computes in floating point, and takes integers as row numbers alone"
        )
    return result.element


def converted(x: Any, dtype: DType) -> Any:
    """An operand in the element type that an operation computes in; numbers stay numbers, arrays become constants."""
    if isinstance(x, np.ndarray):
        return constant(x.astype(dtype))
    if not isinstance(x, Value) or x.dtype == dtype:
        return x
    if x.dtype in INTEGERS:
        raise Unsupported(f"reads {x.dtype} as numbers: cast the tensor to {dtype} before it is passed")
    return cast(x, dtype)


def required(x: Any, name: str) -> Value:
    """A tensor operand; Unsupported where a number was given in its place."""
    if not isinstance(x, Value):
        raise Unsupported(f"{name} is {x!r}, and not a tensor")
    return x
