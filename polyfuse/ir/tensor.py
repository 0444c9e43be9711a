"""Tensors: what statements read and write."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import islpy as isl

from polyfuse.errors import InvalidNest

Role = Literal["input", "output", "inout", "constant", "temporary"]
"""Who gives a tensor its values and who sees them: the caller (input, output, inout), the model (constant),
or nobody outside the nest (temporary)."""

DType = Literal["float32", "float64", "int32", "int64"]
"""The element types of this version."""

ITEMSIZE = {"float32": 4, "float64": 8, "int32": 4, "int64": 8}
"""Bytes per element."""


@dataclass(frozen=True)
class Tensor:
    """A named array in row-major order.

    `shape` holds ints, or isl affine expressions in symbolic sizes as text ("N", "2*N + 1"). A scalar has shape ().
    """

    name: str
    shape: tuple[int | str, ...]
    dtype: DType
    role: Role

    def __post_init__(self) -> None:
        if not self.name.isidentifier():
            raise InvalidNest(f"tensor name {self.name!r} is not an identifier")
        if self.role not in get_args(Role):
            raise InvalidNest(
                f"tensor {self.name}: role {self.role!r} is none of {', '.join(get_args(Role))}"
            )
        if self.dtype not in ITEMSIZE:
            raise InvalidNest(f"tensor {self.name}: dtype {self.dtype!r} is none of {', '.join(ITEMSIZE)}")

    @property
    def rank(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    @property
    def itemsize(self) -> int:
        """Bytes per element."""
        return ITEMSIZE[self.dtype]

    @property
    def is_visible(self) -> bool:
        """Whether the caller sees the tensor's last values."""
        return self.role in ("output", "inout")

    @property
    def is_given(self) -> bool:
        """Whether the tensor holds values before the first statement runs."""
        return self.role in ("input", "inout", "constant")

    def elements(self, params: tuple[str, ...] = ()) -> isl.Set:
        """All valid subscripts, as a set over the given symbolic sizes.

        >>> print(Tensor("A", ("N", 3), "float32", "input").elements(("N",)))
        [N] -> { A[i0, i1] : 0 <= i0 < N and 0 <= i1 <= 2 }
        """
        dims = ", ".join(f"i{d}" for d in range(self.rank))
        bounds = " and ".join(f"0 <= i{d} < {size}" for d, size in enumerate(self.shape)) or "1 = 1"
        return isl.Set(f"[{', '.join(params)}] -> {{ {self.name}[{dims}] : {bounds} }}")

    def __str__(self) -> str:
        return f"{self.role} {self.name}: {self.dtype}[{', '.join(map(str, self.shape))}]"
