"""Rows that several symbolic axes make: (N, T, 8) as (N * T, 8), whose number of rows is not affine.

    x.view(N * T, 8) @ w           merged = x, which stays (N, T, 8)
    (…).view(N, T, 4)              x @ w, which is (N, T, 4)

torch makes such a matrix for each linear layer. It never becomes a tensor of a nest: what acts on each row acts on the
axes that the rows are made of.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from polyfuse.frontend.importers import Missing, Unsupported
from polyfuse.frontend.torch.aten import ATEN, pointwise
from polyfuse.frontend.torch.aten.registry import NotAffine, ReadSize, Result, type_name
from polyfuse.nn import cast, reshape
from polyfuse.nn.graph import Value
from polyfuse.nn.sizes import Product, Shape

RESHAPES = frozenset(
    f"aten.{name}"
    for name in ("view.default", "_unsafe_view.default", "reshape.default", "flatten.using_ints")
)
"""Operators that show the same elements in another shape."""

OF_ROWS: Mapping[str, int] = {
    **{
        f"aten.{name}.default": 0
        for name in ("mm", "matmul", "linear", "layer_norm", "rms_norm", "native_layer_norm")
    },
    "aten.addmm.default": 1,
}
"""Operators that act on each row of one operand, with its place among the arguments."""


@dataclass(frozen=True)
class Merged:
    """A value whose first `axes` axes are one axis of the tensor that it stands for."""

    value: Value
    axes: int

    @property
    def lead(self) -> Shape:
        """The sizes of these axes."""
        return self.value.shape[: self.axes]


def reshaped(x: Value | Merged, meta: Any, sizes: ReadSize) -> Value | Merged:
    """Return the elements of x in another shape, whose first size may be a product of symbolic sizes.

    Args:
        x: A value, or what is merged already.
        meta: The result's meta value.
        sizes: Reads sizes.

    Returns:
        The value; `Merged` where its first size is not affine.

    Raises:
        Unsupported: if the shape cannot be expressed.
    """
    value = x.value if isinstance(x, Merged) else x
    first, rest = _parts(meta, sizes)
    if not isinstance(first, NotAffine):
        return reshape(value, (first, *rest))
    for axes in range(2, value.rank + 1):
        if Product.of(value.shape[axes:]) == Product.of(rest):
            return Merged(reshape(value, (*value.shape[:axes], *rest)), axes)
    raise Unsupported(f"the size {first.text} is not affine, and no axes of {value!r} are {first.text} rows")


def _parts(meta: Any, sizes: ReadSize) -> tuple[Any, Shape]:
    """The first size of a shape, which need not be affine, and the others."""
    first, *rest = meta.shape or (1,)
    others = tuple(map(sizes, rest))
    try:
        return sizes(first), others
    except Unsupported:
        return NotAffine(str(first)), others


def on_rows(name: str, meta: Any, args: Sequence[Any], kwargs: Mapping[str, Any], sizes: ReadSize) -> Any:
    """Return the value of an operator that acts on the rows of what is merged.

    Args:
        name: The operator, "aten.mm.default".
        meta: The result's meta value, or several.
        args: Its arguments, of which one at least is merged.
        kwargs: Its named arguments.
        sizes: Reads sizes.

    Returns:
        What is merged in the same way; several for several results.

    Raises:
        Unsupported: if the operator does not act on rows.
    """
    rows = [one for one in args if isinstance(one, Merged)]
    importer = ATEN.get(name)
    inner = any(isinstance(one, Merged) for one in kwargs.values())
    if importer is None or not rows or inner or not _is_of_rows(name, args, rows):
        raise Unsupported(
            "acts on several symbolic axes as one, whose size is not affine: products, norms and what acts element by "
            "element can do that with their rows"
        )
    first = rows[0]
    tensors = meta if isinstance(meta, list | tuple) else [meta]
    shape = (*first.lead, *map(sizes, tensors[0].shape[1:]))
    result = Result(shape, type_name(tensors[0].dtype))
    made = importer(result, *(one.value if isinstance(one, Merged) else one for one in args), **kwargs)
    if isinstance(made, tuple):
        return tuple(one if isinstance(one, Missing) else Merged(one, first.axes) for one in made)
    if made.shape != shape:
        raise Unsupported(f"its rows have the shape {made.shape}, and torch says {shape}")
    typed = made if result.dtype == "bool" or made.dtype == result.element else cast(made, result.element)
    return Merged(typed, first.axes)


def _is_of_rows(name: str, args: Sequence[Any], rows: Sequence[Merged]) -> bool:
    """Whether an operator acts on each row alone: on those of one operand, or element by element on several alike."""
    if name in OF_ROWS:
        return len(rows) == 1 and args[OF_ROWS[name]] is rows[0]
    rank = rows[0].value.rank - rows[0].axes + 1
    others = [one for one in args if isinstance(one, Value)]
    broadcast = all(one.rank < rank or (one.rank == rank and one.shape[0] == 1) for one in others)
    alike = all(one.lead == rows[0].lead for one in rows)
    return ATEN[name].__module__ == pointwise.__name__ and broadcast and alike
