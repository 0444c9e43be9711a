"""Contractions in einsum notation: "ik,kj->ij"."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from polyfuse.errors import InvalidNest
from polyfuse.errors.proving import proving
from polyfuse.frontend.nest_builder import NestBuilder
from polyfuse.ir import DType, Nest
from polyfuse.ir.number_types import is_real

NAMES = "ABCDEFGH"


@proving("einsum")
def einsum(
    subscripts: str,
    sizes: Mapping[str, int | str] | None = None,
    *,
    names: Sequence[str] | None = None,
    out: str = "out",
    dtype: DType = "float64",
) -> Nest:
    """Return the nest of numpy.einsum's notation: one letter an index, summed if the result does not have it.

    einsum("ik,kj->ij")  =  zero: out[i, j] = 0.0;  mac: out[i, j] += A[i, k] * B[k, j]

    Args:
        subscripts: The notation. Without "->" the result has the indices that occur once, in alphabetical order. An
            index repeated in one operand takes its diagonal.
        sizes: Extents by index, as integers or affine text; the others are symbolic, Ni for i.
        names: The inputs' names; A, B, … by default.
        out: The result's name.
        dtype: The element type of all tensors.

    Returns:
        The nest, with statements zero and mac.

    Raises:
        InvalidNest: if the notation cannot be read.

    >>> [s.name for s in einsum("ik,kj->ij").statements]
    ['zero', 'mac']
    """
    if not (isinstance(subscripts, str) and isinstance(sizes, Mapping | None)):
        raise InvalidNest(
            f"einsum({subscripts!r}, {sizes!r}): expected such as 'ik,kj->ij', and sizes by index"
        )
    operands, result = _parsed(subscripts)
    called = tuple(names or NAMES[: len(operands)])
    if len(called) != len(operands):
        raise InvalidNest(
            f"einsum {subscripts!r} has {len(operands)} operand{'' if len(operands) == 1 else 's'}, but "
            f"{len(called)} in names="
        )
    indices = list(dict.fromkeys([*result, *"".join(operands)]))
    for index, extent in (sizes or {}).items():
        if (
            index not in indices
            or not isinstance(extent, int | str)
            or (isinstance(extent, int) and extent < 1)
        ):
            raise InvalidNest(
                f"einsum {subscripts!r}: the size {extent!r} of {index!r}; expected 1 or more, or a name, for one of "
                f"{', '.join(indices)}"
            )
    extents = {i: (sizes or {}).get(i, f"N{i}") for i in indices}
    symbols = [extent for extent in extents.values() if isinstance(extent, str)]
    params = f"[{', '.join(dict.fromkeys(symbols))}]"
    bounds = " and ".join(f"{symbol} >= 1" for symbol in symbols) or "1 = 1"
    build = NestBuilder("einsum", f"{params} -> {{ : {bounds} }}")
    for name, operand in zip(called, operands, strict=True):
        build = build.tensor(name, tuple(extents[i] for i in operand), dtype)
    build = build.tensor(out, tuple(extents[i] for i in result), dtype, "output")

    def domain(dims: Sequence[str]) -> str:
        limits = " and ".join(f"0 <= {i} < {extents[i]}" for i in dims) or "1 = 1"
        return f"{params} -> {{ [{', '.join(dims)}] : {limits} }}"

    value = " * ".join(_element(name, operand) for name, operand in zip(called, operands, strict=True))
    target = _element(out, result)
    if len(indices) == len(result):
        return build.statement("product", domain(result), target, value).nest()
    zero = build.statement("zero", domain(result), target, "0.0" if is_real(dtype) else "0")
    return zero.statement("mac", domain(indices), target, value, op="+=").nest()


def _element(tensor: str, indices: str) -> str:
    return f"{tensor}[{', '.join(indices)}]" if indices else tensor


def _parsed(subscripts: str) -> tuple[list[str], str]:
    """The indices of each operand, and of the result."""
    left, arrow, result = subscripts.replace(" ", "").partition("->")
    operands = left.split(",")
    counts = Counter(left.replace(",", ""))
    if not arrow:
        result = "".join(sorted(i for i, count in counts.items() if count == 1))
    letters = all(i.isascii() and i.isalpha() for i in [*counts, *result])
    if not (letters and len(set(result)) == len(result) and set(result) <= set(counts)):
        raise InvalidNest(
            f"einsum cannot read {subscripts!r}: expected one letter an index, the result's each once and among the "
            "operands', as in 'ik,kj->ij'"
        )
    return operands, result
