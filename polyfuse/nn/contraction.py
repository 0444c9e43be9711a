"""Sums of products in Einstein's notation, as one operation: y[i, j] += a[i, k] * b[k, j]."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from polyfuse.errors import BadArgument
from polyfuse.ir import Tensor
from polyfuse.nn.graph import Operand, Value, apply, as_value
from polyfuse.nn.nest_writer import Emitter, element, extents
from polyfuse.nn.operations import NUMBERS, Kinds, Operation, initial
from polyfuse.nn.sizes import Shape, Size

Index = str | int
"""A letter, or the number of an axis that "…" stands for, counted from the right: -1, -2, …"""


@dataclass(frozen=True)
class Contraction(Operation):
    """The sum over all indices that the result does not have; axes of size 1 under "…" broadcast."""

    operands: tuple[tuple[Index, ...], ...]
    kept: tuple[Index, ...]

    @property
    def stems(self) -> tuple[str, ...]:
        """The tensor names, as for a product; one statement where nothing is summed."""
        return ("zero", "mac", "product")

    @property
    def result(self) -> str:
        """A product is a y."""
        return "y"

    @property
    def reduces(self) -> bool:
        """Whether an index is summed."""
        return any(index not in self.kept for operand in self.operands for index in operand)

    @property
    def kinds(self) -> Kinds:
        """Sums of products of integers are integers."""
        return NUMBERS

    def sizes(self, shapes: Sequence[Shape]) -> dict[Index, Size]:
        """Each index's size; BadArgument where operands do not agree."""
        found: dict[Index, Size] = {}
        for indices, shape in zip(self.operands, shapes, strict=True):
            for index, size in zip(indices, shape, strict=True):
                known = found.get(index, 1 if isinstance(index, int) else size)
                if (known not in (size, 1) and size != 1) or (known != size and isinstance(index, str)):
                    raise BadArgument(f"einsum: index {index} has the sizes {known} and {size}")
                found[index] = size if known == 1 else known
        return found

    def shape(self, shapes: Sequence[Shape]) -> Shape:
        """The sizes of the indices that are kept."""
        sizes = self.sizes(shapes)
        return tuple(sizes[index] for index in self.kept)

    def emit(self, to: Emitter, n: int, operands: Sequence[Tensor], out: Tensor) -> None:
        """`zero`: y = 0; `mac`: y += x * y. `product`: y = x * y, where nothing is summed."""
        sizes = self.sizes([extents(x) for x in operands])
        every = list(dict.fromkeys((*self.kept, *(index for each in self.operands for index in each))))
        names = dict(zip(every, to.dims(len(every)), strict=True))
        domain = {names[index]: sizes[index] for index in every}
        target = element(out, [names[index] for index in self.kept])
        factors = []
        for x, indices in zip(operands, self.operands, strict=True):
            at = [
                "0" if isinstance(index, int) and size == 1 else names[index]
                for index, size in zip(indices, extents(x), strict=True)
            ]
            factors.append(element(x, at))
        if not self.reduces:
            to.assign(f"product{n}", domain, f"{target} = {' * '.join(factors)}")
            return
        to.assign(
            f"zero{n}",
            {names[index]: sizes[index] for index in self.kept},
            f"{target} = {initial('+=', out.dtype)}",
        )
        to.assign(f"mac{n}", domain, f"{target} += {' * '.join(factors)}")


def einsum(subscripts: str, *operands: Operand) -> Value:
    """A sum of products in NumPy's notation: one letter an index, summed if the result does not have it.

    Statements zero, mac, or product where nothing is summed; tensor y. All operands are one statement's factors: split
    a product of three or more matrices by hand, or by NumPy's `einsum_path`.

    Args:
        subscripts: Such as "bik,bkj->bij". Without "->" the result has the indices that occur once, in alphabetical
            order. An index repeated in one operand takes its diagonal. "..." stands for axes that broadcast.
        *operands: Values, and arrays beside them.

    Returns:
        The result.

    Raises:
        BadArgument: if the notation cannot be read, or does not fit the operands' shapes.
    """
    first = next((x for x in operands if isinstance(x, Value)), None)
    if first is None:
        raise BadArgument(f"einsum {subscripts!r}: at least one operand must come from nn.input or a layer")
    values = [as_value(x, first.dtype) for x in operands]
    every, kept = parsed(subscripts, [value.rank for value in values])
    return apply(Contraction(every, kept), values)


def parsed(subscripts: str, ranks: Sequence[int]) -> tuple[tuple[tuple[Index, ...], ...], tuple[Index, ...]]:
    """Return the indices of each operand, and of the result.

    >>> parsed("...ik,kj", [3, 2])
    (((-1, 'i', 'k'), ('k', 'j')), (-1, 'i', 'j'))

    Args:
        subscripts: The notation.
        ranks: The operands' numbers of axes.

    Returns:
        The indices; those of "..." are numbers.

    Raises:
        BadArgument: if the notation cannot be read, or does not fit the ranks.
    """
    left, arrow, right = subscripts.replace(" ", "").partition("->")
    texts = left.split(",")
    if len(texts) != len(ranks):
        raise BadArgument(f"einsum {subscripts!r} has {len(texts)} operands; {len(ranks)} are given")
    operands = tuple(_indices(subscripts, text, rank) for text, rank in zip(texts, ranks, strict=True))
    counts = Counter(index for operand in operands for index in operand)
    broadcast = sorted(index for index in counts if isinstance(index, int))
    if arrow:
        before, dots, behind = right.partition("...")
        kept: tuple[Index, ...] = (*before, *(broadcast if dots else ()), *behind)
    else:
        single = sorted(index for index, count in counts.items() if count == 1 and isinstance(index, str))
        kept = (*broadcast, *single)
    if len(set(kept)) != len(kept) or not set(kept) <= set(counts):
        raise BadArgument(f"einsum {subscripts!r}: the result has each of its indices once, and no others")
    return operands, kept


def _indices(subscripts: str, text: str, rank: int) -> tuple[Index, ...]:
    before, dots, behind = text.partition("...")
    more = rank - len(before) - len(behind)
    letters = all(letter.isascii() and letter.isalpha() for letter in before + behind)
    if not letters or more < 0 or (more and not dots):
        raise BadArgument(f"einsum {subscripts!r}: {text!r} does not fit an operand with {rank} axes")
    return (*before, *range(-more, 0), *behind)
