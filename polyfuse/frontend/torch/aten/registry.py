"""The importers of ATen operators by name, and how one node of a graph is given to its importer.

    importer ::= function(result, operand, …) -> Value | tuple of Value and Missing

An importer takes the result's meta value, then the operator's arguments as in ATen's schema, with values in place of
tensors. It raises Unsupported for arguments that it cannot express. Nothing here imports torch: operators and element
types are read by their names, so that a graph of any origin can be given.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Protocol, TypeVar

from polyfuse.errors import BadArgument
from polyfuse.frontend.importers import Missing, Unsupported
from polyfuse.ir import DType
from polyfuse.nn.graph import FLOATS, INTEGERS, Value
from polyfuse.nn.sizes import Shape, Size
from polyfuse.nn.sizes import size_of as nn_size_of


@dataclass(frozen=True)
class NotAffine:
    """A number that a graph computes of sizes, and that is not affine in them: the rows of (N, T, 8) as a matrix."""

    text: str


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

    shape: Shape
    dtype: str

    @property
    def element(self) -> DType:
        """The element type of the value: truth values are float32."""
        return value_type(self.dtype)

    @staticmethod
    def of(meta: Any, sizes: ReadSize) -> Result:
        """Return the meta value of a node, as sizes and names.

        Args:
            meta: A tensor's meta value, or several; of several, the first that is a tensor.
            sizes: Reads a size.

        Returns:
            The result.

        Raises:
            Unsupported: if no result is a tensor, or a size cannot be read.
        """
        first = meta
        if isinstance(meta, list | tuple):
            first = next((one for one in meta if hasattr(one, "shape")), None)
        if not hasattr(first, "shape"):
            raise Unsupported("its result is not a tensor, and polyfuse computes tensors alone")
        return Result(tuple(map(sizes, first.shape)), type_name(first.dtype))


Importer = Callable[..., Value | tuple[Value | Missing, ...]]
Kept = TypeVar("Kept", bound=Importer)

ATEN: dict[str, Importer] = {}
"""The importers by operator, "aten.add.Tensor". Filled by the modules of this folder when they are imported."""

VIEWS: set[str] = set()
"""The operators that compute nothing: each element of their result is an element of an operand."""


OF_KNOWN: set[str] = set()
"""The operators whose operands of integers have to be known: their importers take these as arrays."""


MASKS: dict[str, tuple[int, str]] = {}
"""The operators that add a mask to scores, or leave out those where it is false, with its place and its name.

Their importers take a mask of truth values as `Truths`: a value does not say whether its 1 and 0 are numbers.
"""


@dataclass(frozen=True)
class Truths:
    """An operand of truth values: a value of 1 and 0, or an array."""

    of: Any


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


def whole(name: str) -> Callable[[Kept], Kept]:
    """Register an importer for an operator of polyfuse's own, which torch.compile gets for a function of torch.

    Args:
        name: The operator's name, as in `polyfuse/torch/whole`.

    Returns:
        The decorator.
    """

    def register(importer: Kept) -> Kept:
        ATEN[f"polyfuse.{name}.default"] = importer
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


def masked(name: str, place: int, called: str) -> Callable[[Kept], Kept]:
    """Register an importer for an operator with a mask.

    Args:
        name: The operator's name without "aten.".
        place: The mask's place among the arguments.
        called: Its name.

    Returns:
        The decorator.
    """
    MASKS[f"aten.{name}"] = place, called
    return aten(name)


def of_known(*names: str) -> Callable[[Kept], Kept]:
    """Register an importer for operators that take known integers as arrays.

    Args:
        *names: The operators' names without "aten.".

    Returns:
        The decorator.
    """
    OF_KNOWN.update(f"aten.{name}" for name in names)
    return aten(*names)


ReadSize = Callable[[Any], Size]
"""Reads a size of a graph: an integer of Python's, or a symbolic one of torch's."""


def number_of(size: Any) -> int:
    """A size as a number: of a symbolic one, the number that it had when the graph was made.

    torch's own `int(size)` would restrict the graph to this number. A size that depends on data has none.
    """
    if isinstance(size, int):
        return int(size)
    if not size.node.has_hint():
        raise Unsupported(f"the size {size} depends on data")
    return int(size.node.hint)


def size_of(size: Any, names: Mapping[str, str] = MappingProxyType({})) -> Size:
    """A size: of a symbolic one, torch's expression, in which symbols may have other names.

    Args:
        size: A number, or a size of torch's.
        names: What to call torch's symbols; "s0" and the like for those that are not there.

    Returns:
        The size.

    Raises:
        Unsupported: if it is not affine in symbols.
    """
    return int(size) if isinstance(size, int) else expression_size(str(size.node.expr), names)


def expression_size(text: str, names: Mapping[str, str]) -> Size:
    """The same for the text of an expression of torch's."""
    if re.search(r"\bu\d+\b", text):
        raise Unsupported(f"the size {text} depends on data")
    renamed = re.sub(r"[A-Za-z_]\w*", lambda found: names.get(found[0], found[0]), text)
    try:
        return int(renamed) if re.fullmatch(r"-?\d+", renamed) else nn_size_of("a size of torch", renamed)
    except BadArgument as error:
        raise Unsupported(str(error)) from error


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
