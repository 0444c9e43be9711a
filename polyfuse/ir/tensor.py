"""Tensors: the arrays that statements read and write."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, get_args

import islpy as isl
import numpy as np

from polyfuse.errors import BadArgument, InvalidNest
from polyfuse.ir.number_types import COMPLEX, HALVES, ITEMSIZE, DType, is_integer, with_parts
from polyfuse.sets import SET

Role = Literal["input", "output", "inout", "constant", "temporary", "gathered"]
"""The owner of a tensor's values: the caller (input, output, inout), the model (constant),
or nobody outside the nest (temporary). A gathered tensor is rows of another one, where they lie."""


@dataclass(frozen=True)
class Gather:
    """The rows of a gathered tensor: its element [i…, j…] is table[index[i…], j…].

    Neither tensor is written by the nest, and the index is an input, so that a call can check it beforehand.
    """

    table: str
    index: str


Box = tuple[tuple[int | str, int | str], ...]
"""For each axis of an array, the first index and the one behind the last, as extents; () is the whole array."""


@dataclass(frozen=True)
class Limit:
    """The numbers in a box of an array are places: each is at least 0 and less than an extent.

    >>> print(Limit("N"), "|", Limit(50, ((0, 16), (3, 4))))
    N | 50 in [0:16, 3:4]
    """

    extent: int | str
    box: Box = ()

    @property
    def extents(self) -> tuple[int | str, ...]:
        """The extent, then the ends of the box."""
        return (self.extent, *(end for ends in self.box for end in ends))

    def with_extents(self, function: Callable[[int | str], int | str]) -> Limit:
        """Return the limit with a function of each extent in its place."""
        return Limit(function(self.extent), tuple((function(a), function(b)) for a, b in self.box))

    def __str__(self) -> str:
        box = ", ".join(f"{first}:{end}" for first, end in self.box)
        return f"{self.extent} in [{box}]" if box else str(self.extent)


@dataclass(frozen=True)
class Tensor:
    """A named array in row-major order.

    Attributes:
        name: The tensor's name.
        shape: The extents: integers, or isl affine expressions in symbolic sizes as text ("N", "2*N + 1"). A scalar has
            shape ().
        dtype: The element type.
        role: "input", "output", "inout", "temporary", "constant" or "gathered" (no memory of its own).
        gather: For role gathered: the table and the index array from which elements are read.
        below: For integers that are used as places: their limits, which a call checks of an input before it writes
            anything. Those of a temporary hold by the formula that makes them.
        pairs: True if the last axis, of extent 2, has the real and the imaginary parts of complex numbers: callers give
            and get arrays of these, of one dimension less.
    """

    name: str
    shape: tuple[int | str, ...]
    dtype: DType
    role: Role
    gather: Gather | None = None
    below: tuple[Limit, ...] = ()
    pairs: bool = False

    @staticmethod
    def gathered(name: str, table: Tensor, index: Tensor) -> Tensor:
        """Return a read-only tensor of a table's rows, chosen by an array of integers.

        table w[60, 8], index x[4, 5]   ->   rows[4, 5, 8], with rows[i, j, k] = w[x[i, j], k]

        Args:
            name: The new tensor's name.
            table: The table.
            index: The row numbers.

        Returns:
            The tensor, of shape `index.shape + table.shape[1:]`.
        """
        shape = (*index.shape, *table.shape[1:])
        return Tensor(name, shape, table.dtype, "gathered", Gather(table.name, index.name))

    def __post_init__(self) -> None:
        if (self.role == "gathered") is not (self.gather is not None):
            raise InvalidNest(
                f"tensor {self.name}: only role gathered has a table and an index, not {self.role!r}"
            )
        if not (self.name.isascii() and self.name.isidentifier()):
            raise InvalidNest(f"tensor name {self.name!r} is not an identifier of ASCII letters")
        if self.role not in get_args(Role):
            raise InvalidNest(
                f"tensor {self.name}: role {self.role!r} is unknown; expected one of {', '.join(get_args(Role))}"
            )
        if self.below and not (self.role in ("input", "temporary") and is_integer(self.dtype)):
            raise InvalidNest(
                f"tensor {self.name}: only inputs and temporaries of integers can hold places, not {self.role} "
                f"{self.dtype}"
            )
        if self.dtype not in ITEMSIZE:
            raise InvalidNest(
                f"tensor {self.name}: dtype {self.dtype!r} is unknown; expected one of {', '.join(ITEMSIZE)}"
            )
        if self.pairs and not (self.dtype in COMPLEX.values() and self.shape[-1:] == (2,)):
            raise InvalidNest(
                f"tensor {self.name}: complex numbers are pairs of float32 or float64 along a last axis of extent 2, "
                f"not {self.dtype}[{', '.join(map(str, self.shape))}]"
            )

    @property
    def rank(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    @property
    def innermost(self) -> int:
        """The axis along which neighbours lie in memory, the last one that has more than one element; else the last.

        3 of x[8, 1, 4, 16], 1 of the weights w[64, 256, 1, 1] of a convolution of one pixel.
        """
        return next((a for a in reversed(range(self.rank)) if self.shape[a] != 1), self.rank - 1)

    @property
    def itemsize(self) -> int:
        """Bytes per element."""
        return ITEMSIZE[self.dtype]

    @property
    def is_half(self) -> bool:
        """True if storing to the tensor rounds the computed value to a half."""
        return self.dtype in HALVES

    @property
    def is_checked(self) -> bool:
        """True if all numbers in the tensor are places, by a limit of the whole array."""
        return any(not limit.box for limit in self.below)

    @property
    def is_visible(self) -> bool:
        """True if the caller sees the tensor's last values."""
        return self.role in ("output", "inout")

    @property
    def is_given(self) -> bool:
        """True if the tensor holds values before the first statement runs."""
        return self.role in ("input", "inout", "constant", "gathered")

    def elements(self, params: tuple[str, ...] = ()) -> isl.Set:
        """Return the isl set of all valid subscripts.

        Args:
            params: The symbolic sizes that are the set's parameters.

        Returns:
            The set of the tensor's elements.

        >>> print(Tensor("A", ("N", 3), "float32", "input").elements(("N",)))
        [N] -> { A[i0, i1] : 0 <= i0 < N and 0 <= i1 <= 2 }
        """
        dims = [f"i{d}" for d in range(self.rank)]
        if any(isinstance(size, str) for size in self.shape):
            bounds = " and ".join(f"0 <= {dim} < {size}" for dim, size in zip(dims, self.shape, strict=True))
            return isl.Set(f"[{', '.join(params)}] -> {{ {self.name}[{', '.join(dims)}] : {bounds} }}")
        space = isl.Space.create_from_names(isl.DEFAULT_CONTEXT, set=dims, params=list(params))
        found = isl.Set.universe(space.set_tuple_name(SET, self.name))
        for d, size in enumerate(self.shape):  # text takes isl eight times as long
            found = found.lower_bound_val(SET, d, isl.Val(0)).upper_bound_val(SET, d, isl.Val(int(size) - 1))
        return found

    def __str__(self) -> str:
        text = f"{self.role} {self.name}: {self.dtype}[{', '.join(map(str, self.shape))}]"
        text += f" below {' and '.join(map(str, self.below))}" if self.below else ""
        text += f" of {with_parts(self.dtype)}" if self.pairs else ""
        return text if self.gather is None else f"{text} = {self.gather.table}[{self.gather.index}]"


def whole(tensor: Tensor) -> Box:
    """The box of all elements of a tensor."""
    return tuple((0, size) for size in tensor.shape)


def pairs_of(tensor: Tensor, value: Any) -> Any:
    """Return a view of a caller's complex array as the pairs that a tensor has; other values as they are.

    complex128 z[3, 4]   ->   float64 [3, 4, 2], the same memory

    Args:
        tensor: The tensor; one without `pairs` takes the value itself.
        value: An array of complex numbers, a number, or pairs already: another library's view of real numbers.

    Returns:
        The view; a number gives a new array of two.

    Raises:
        BadArgument: for numbers of another type.
    """
    if not tensor.pairs:
        return value
    wanted = with_parts(tensor.dtype)
    if isinstance(value, int | float | complex | np.generic) and tensor.rank == 1:
        return np.array([value], wanted).view(tensor.dtype)
    if not isinstance(value, np.ndarray) or value.dtype == tensor.dtype:
        return value
    if value.dtype != wanted:
        raise BadArgument(
            f"{tensor.name}: expected dtype {wanted}, given {value.dtype}; convert with .astype({wanted!r})"
        )
    return value[..., np.newaxis].view(tensor.dtype)


def complex_of(tensor: Tensor, array: Any) -> Any:
    """Return a view of a tensor's pairs as complex numbers; other arrays as they are.

    Args:
        tensor: The tensor.
        array: Its values; pairs in an array of another library than NumPy stay pairs.

    Returns:
        The view.
    """
    if not tensor.pairs or not isinstance(array, np.ndarray):
        return array
    return array.view(with_parts(tensor.dtype))[..., 0]
