"""Views as operations: each element of the result is an element of an operand, or a number.

    view  ::= View(out[d] = x[subscripts(d)])     narrow, select, slices, transpose, reshape, expand, flip, unfold
            | Join(parts)                         concat, stack: each part of the result is one operand
            | Pad(x, number)                      a box of the result is the operand, what is around it a number

They are written as statements that copy; `polyfuse.rewrite.views.compose` composes these into their users.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Literal

from polyfuse.errors import BadArgument
from polyfuse.ir import Tensor
from polyfuse.ir.number_types import is_real
from polyfuse.ir.whole import is_whole, whole
from polyfuse.nn.nest_writer import Emitter, element, extents
from polyfuse.nn.operations import EVERY, Kinds, Operation
from polyfuse.nn.sizes import Affine, Product, Shape, Size, is_negative, number, numbers, size_of, total


@dataclass(frozen=True)
class View(Operation):
    """out[d0, d1, …] = x[subscripts]; in a subscript {0}, {1}, … stand for the result's dimensions.

    The elements lie inside of x where no size in `inside` is negative.

    flip of 4 × 3 along its rows: View("flip", (4, 3), ("3 - {0}", "{1}"))
    """

    kind: str
    sizes: Shape
    subscripts: tuple[str, ...]
    inside: Shape = ()

    @property
    def stems(self) -> tuple[str, ...]:
        """One statement, named after the kind."""
        return (self.kind,)

    @property
    def result(self) -> str:
        """A view's tensor is a v."""
        return "v"

    @property
    def kinds(self) -> Kinds:
        """True: it copies."""
        return EVERY

    def shape(self, shapes: Sequence[Shape]) -> Shape:
        """The view's; that it fits the operand was checked where the view was made."""
        return self.sizes

    def needed(self, shapes: Sequence[Shape]) -> Shape:
        """What a view reads is there."""
        return self.inside

    def at(self, places: Sequence[str]) -> tuple[str, ...]:
        """The operand's subscripts at some of the result's."""
        return tuple(text.format(*places) for text in self.subscripts)

    def of(self, inner: View) -> View:
        """Return the view of a view's operand that shows what this one does of the view.

        >>> View("flip", (4,), ("3 - {0}",)).of(View("select", (4,), ("{0}", "2")))
        View(kind='flip', sizes=(4,), subscripts=('(3 - {0})', '2'), inside=())
        """
        subscripts = inner.at([f"({text})" for text in self.subscripts])
        return View(self.kind, self.sizes, subscripts, (*inner.inside, *self.inside))

    def emit(self, to: Emitter, n: int, operands: Sequence[Tensor], out: Tensor) -> None:
        """`out[i, j] = x[subscripts]`."""
        names = to.dims(out.rank)
        source = element(operands[0], self.at(names))
        domain = dict(zip(names, extents(out), strict=True))
        to.assign(f"{self.kind}{n}", domain, f"{element(out, names)} = {source}")


@dataclass(frozen=True)
class Join(Operation):
    """Operands one after the other along an axis ("concat"), or along a new one ("stack")."""

    kind: Literal["concat", "stack"]
    axis: int
    parts: int

    @property
    def stems(self) -> tuple[str, ...]:
        """One statement an operand: concat0_n, concat1_n, …"""
        return tuple(f"{self.kind}{part}_" for part in range(self.parts))

    @property
    def result(self) -> str:
        """A view's tensor is a v."""
        return "v"

    @property
    def kinds(self) -> Kinds:
        """True: it copies."""
        return EVERY

    def shape(self, shapes: Sequence[Shape]) -> Shape:
        """The shapes with their sizes along the axis added up; BadArgument if they differ elsewhere."""
        first = shapes[0]
        if self.kind == "stack":
            if any(shape != first for shape in shapes):
                raise BadArgument(f"stack: the shapes {', '.join(map(str, shapes))} are not all equal")
            return (*first[: self.axis], len(shapes), *first[self.axis :])
        a = self.axis
        if any((s[:a], s[a + 1 :], len(s)) != (first[:a], first[a + 1 :], len(first)) for s in shapes):
            given = ", ".join(map(str, shapes))
            raise BadArgument(f"concat: the shapes {given} differ in more than axis {a}")
        return (*first[:a], total(shape[a] for shape in shapes), *first[a + 1 :])

    def emit(self, to: Emitter, n: int, operands: Sequence[Tensor], out: Tensor) -> None:
        """`out[i, j + offset] = x[i, j]` for each operand."""
        offset: Size = 0
        for part, x in enumerate(operands):
            names = to.dims(x.rank)
            place = list(names)
            if self.kind == "stack":
                place.insert(self.axis, str(part))
            elif offset != 0:
                place[self.axis] += f" + {offset}"
            offset += extents(x)[self.axis] if self.kind == "concat" else 1
            domain = dict(zip(names, extents(x), strict=True))
            to.assign(f"{self.kind}{part}_{n}", domain, f"{element(out, place)} = {element(x, names)}")


@dataclass(frozen=True)
class Pad(Operation):
    """The operand with a number before and behind it along every axis; `widths` holds (before, behind) an axis."""

    widths: tuple[tuple[int, int], ...]
    value: float

    @property
    def stems(self) -> tuple[str, ...]:
        """pad: the operand; edge: the number."""
        return ("pad", "edge")

    @property
    def result(self) -> str:
        """A view's tensor is a v."""
        return "v"

    @property
    def kinds(self) -> Kinds:
        """True: it copies."""
        return EVERY

    def shape(self, shapes: Sequence[Shape]) -> Shape:
        """Every size with its two widths."""
        return tuple(a + size + b for size, (a, b) in zip(shapes[0], self.widths, strict=True))

    def emit(self, to: Emitter, n: int, operands: Sequence[Tensor], out: Tensor) -> None:
        """`out[i + before] = x[i]` inside, `out[i] = value` around it."""
        (x,) = operands
        names = to.dims(out.rank)
        place = [
            f"{name} + {before}" if before else name
            for name, (before, _) in zip(names, self.widths, strict=True)
        ]
        inside = dict(zip(names, extents(x), strict=True))
        to.assign(f"pad{n}", inside, f"{element(out, place)} = {element(x, names)}")
        around = [
            f"{name} < {before} or {name} >= {before + size}"
            for name, size, (before, behind) in zip(names, extents(x), self.widths, strict=True)
            if before or behind
        ]
        size = repr(abs(self.value)) if is_real(out.dtype) else str(abs(int(self.value)))
        value = f"-{size}" if self.value < 0 else size
        every = dict(zip(names, extents(out), strict=True))
        to.assign(f"edge{n}", every, f"{element(out, names)} = {value}", [f"({' or '.join(around)})"])


# -- subscripts --------------------------------------------------------------------------------------------------------


def sliced(shape: Shape, key: object) -> View:
    """x[key] as a view: integers, slices of any step, None and … as in NumPy; BadArgument for anything else.

    >>> sliced((4, 6), (1, slice(5, None, -2)))
    View(kind='slice', sizes=(3,), subscripts=('1', '5 - 2 * {0}'), inside=())
    """
    keys = key if isinstance(key, tuple) else (key,)
    taken = sum(part is not None and part is not Ellipsis for part in keys)
    if taken > len(shape) or sum(part is Ellipsis for part in keys) > 1:
        raise BadArgument(f"index {key!r} of a value of shape {shape}: too many axes")
    if not any(part is Ellipsis for part in keys):
        keys = (*keys, Ellipsis)
    whole = slice(None)
    rest = tuple(whole for _ in range(len(shape) - taken))
    every = [p for part in keys for p in (rest if part is Ellipsis else (part,))]
    sizes: list[Size] = []
    needed: list[Size] = []
    subscripts: list[str] = []
    for part in every:
        if part is None:
            sizes.append(1)
            continue
        axis, size = len(subscripts), shape[len(subscripts)]
        if isinstance(part, slice) and part.step != 0:
            start, step, count, inside = _range(part, size)
            subscripts.append(stepped(len(sizes), start, step))
            sizes.append(count)
            needed.extend(inside)
        elif is_whole(part):
            at = int(part) + size if part < 0 else int(part)
            inside = at, size - 1 - at
            if any(map(is_negative, inside)):
                raise BadArgument(f"index {part} along axis {axis} of a value of shape {shape}")
            subscripts.append(str(at))
            needed.extend(inside)
        else:
            raise BadArgument(
                f"index {part!r}: expected an integer, a slice whose step is not 0, None or ...; an index that is "
                "a value is not supported"
            )
    return View("slice", tuple(sizes), tuple(subscripts), tuple(n for n in needed if not isinstance(n, int)))


def _range(part: slice, size: Size) -> tuple[Size, int, Size, Shape]:
    """The first index of a slice, the step, the number of indices, and what may not be negative.

    Of a symbolic size, a slice has all the elements that it names: [:3] needs N >= 3.
    """
    if isinstance(size, int) and not any(isinstance(end, Affine) for end in (part.start, part.stop)):
        start, stop, step = part.indices(size)
        return start, step, len(range(start, stop, step)), ()
    step = 1 if part.step is None else whole("a slice's step", part.step)

    def placed(given: object, default: Size) -> Size:
        place = default if given is None else size_of("a slice's end", given)
        return place + size if given is not None and is_negative(place) else place

    first = placed(part.start, 0 if step > 0 else size - 1)
    after = placed(part.stop, size if step > 0 else -1)
    length = after - first if step > 0 else first - after
    ends = (first, size - after) if step > 0 else (after + 1, size - 1 - first)
    return first, step, (length + abs(step) - 1) // abs(step), (length, *ends)


def stepped(dim: int, start: Size, step: int) -> str:
    """start + step × the result's dimension, as a subscript.

    >>> stepped(0, 0, 1), stepped(1, 3, 2), stepped(0, 9, -1)
    ('{0}', '3 + 2 * {1}', '9 - {0}')
    """
    moved = f"{{{dim}}}" if abs(step) == 1 else f"{abs(step)} * {{{dim}}}"
    if step < 0:
        return f"{start} - {moved}"
    return f"{start} + {moved}" if start != 0 else moved


def reshaped(old: Shape, new: Shape) -> tuple[str, ...]:
    """Return the subscripts in shape `old` of the element [d0, d1, …] in shape `new`, in row-major order.

    Only axes that are cut differently take part in a division: (8, 4, 6) as (8, 24) is x[d0, d1 // 6, d1 % 6].

    BadArgument where a division is by a symbolic size.

    >>> reshaped((8, 4, 6), (8, 24)), reshaped((24,), (4, 6))
    (('{0}', '({1}) // 6', '({1}) % 6'), ('6 * {0} + {1}',))
    """
    found: list[str] = []
    a = b = 0
    while a < len(old) or b < len(new):
        end_a, end_b = _group(old, new, a, b)
        what = f"reshape: {old} as {new} divides by a symbolic size; of the axes that"
        flat = _flat(what, new, b, end_b)
        for axis in range(a, end_a):
            if old[axis] == 1:
                found.append("0")
                continue
            inner = prod(numbers(what, old[axis + 1 : end_a]))
            text = f"({flat}) // {inner}" if inner > 1 else flat
            outermost = all(size == 1 for size in old[a:axis])
            found.append(text if outermost else f"({text}) % {number(what, old[axis])}")
        a, b = end_a, end_b
    return tuple(found)


def _group(old: Shape, new: Shape, a: int, b: int) -> tuple[int, int]:
    """The ends of the shortest runs of axes, one of each shape, that hold equally many elements."""
    ends = (
        (end_a, end_b)
        for end_a in range(min(a + 1, len(old)), len(old) + 1)
        for end_b in range(min(b + 1, len(new)), len(new) + 1)
        if Product.of(old[a:end_a]) == Product.of(new[b:end_b])
    )
    return (len(old), len(new)) if 0 in old else next(ends)


def _flat(what: str, shape: Shape, first: int, last: int) -> str:
    """The number of an element within axes first … last - 1."""
    terms = []
    for axis in range(first, last):
        if shape[axis] != 1:
            inner = prod(numbers(what, shape[axis + 1 : last]))
            terms.append(f"{inner} * {{{axis}}}" if inner != 1 else f"{{{axis}}}")
    return " + ".join(terms) or "0"
