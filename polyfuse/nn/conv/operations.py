"""Convolution of any rank: a contraction over channels and the elements of a window.

    y[n, f, p, q] += x[n, c, sh*p + dh*r - ph, sw*q + dw*s - pw] * w[f, c, r, s]   over elements of windows in the image

In G groups the channels of group g meet the filters of group g alone: x[n, g*C + c, …] * w[g*F + f, c, …]. A dimension
of one value (a single group, one channel a group, a window of one element) is left out of the statement.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from polyfuse.errors import BadArgument, quantity
from polyfuse.ir import Tensor
from polyfuse.nn.conv.windows import Axis, Layout, Windows
from polyfuse.nn.nest_writer import Emitter, element, extents
from polyfuse.nn.operations import WithBias, initial
from polyfuse.nn.sizes import Shape, Size, numbers


@dataclass(frozen=True)
class Convolution(WithBias):
    """Cross-correlation, as every deep-learning library means it: w is (F, C / groups, *window), b (F,).

    Dumoulin and Visin, A Guide to Convolution Arithmetic for Deep Learning (2016), sections 2 and 4.
    """

    rank: int
    windows: Windows
    groups: int
    layout: Layout
    bias: bool

    def shape(self, shapes: Sequence[Shape]) -> Shape:
        """(N, C, H, W), (F, C / groups, R, S) -> (N, F, P, Q), and for channels last accordingly."""
        x, w = shapes[:2]
        name = f"conv{self.rank}d"
        if len(x) != self.rank + 2:
            raise BadArgument(f"{name}: the input {x} has rank {len(x)}, expected {self.rank + 2}")
        if len(w) != self.rank + 2 or 0 in w:
            raise BadArgument(
                f"{name}: the weight has shape {w}, expected (filters, channels / groups, {'window, ' * self.rank}) "
                "without a 0".replace(", )", ")")
            )
        n, channels, sizes = self.layout.parts(x)
        filters, taken, *window = self._weight(w)
        if channels != taken * self.groups or filters % self.groups:
            raise BadArgument(
                f"{name}: the input {x} has {quantity(channels, 'channel')}, the weight {w} takes {taken} in each of "
                f"{quantity(self.groups, 'group')}, and has {quantity(filters, 'filter')} to share out among them"
            )
        if self.bias and shapes[2] != w[:1]:
            raise BadArgument(f"{name}: the bias {shapes[2]} does not fit the weight {w}: expected {w[:1]}")
        counts = tuple(axis.count for axis in self.windows.axes(name, sizes, tuple(window)))
        return self.layout.shape(n, filters, counts)

    def needed(self, shapes: Sequence[Shape]) -> Shape:
        """A window fits into each axis."""
        x, w = shapes[:2]
        return tuple(axis.room for axis in self._axes(x, w))

    def _axes(self, x: Shape, w: Shape) -> tuple[Axis, ...]:
        return self.windows.axes(f"conv{self.rank}d", self.layout.parts(x)[2], self._weight(w)[2:])

    def _weight(self, w: Shape) -> tuple[int, ...]:
        return numbers(f"conv{self.rank}d: the weight's shape", w)

    def emit(self, to: Emitter, n: int, operands: Sequence[Tensor], out: Tensor) -> None:
        """`zero`: y = 0; `mac`: y += x * w over each window; `bias`: z = y + b."""
        x, w = operands[:2]
        y = to.temporary("y", n, extents(out), out.dtype) if self.bias else out
        every = to.dims(out.rank)
        domain = dict(zip(every, extents(out), strict=True))
        to.assign(f"zero{n}", domain, f"{element(y, every)} = {initial('+=', y.dtype)}")
        axes = self._axes(extents(x), extents(w))
        self._mac(to, n, x, w, y, axes)
        if self.bias:
            channel = every[-1 if self.layout.last else 1]
            value = f"{element(y, every)} + {element(operands[2], [channel])}"
            to.assign(f"bias{n}", domain, f"{element(out, every)} = {value}")

    def _mac(self, to: Emitter, n: int, x: Tensor, w: Tensor, y: Tensor, axes: tuple[Axis, ...]) -> None:
        all_filters, channels = self._weight(extents(w))[:2]
        filters = all_filters // self.groups
        sizes: dict[str, Size] = {"n": extents(y)[0], "g": self.groups, "f": filters}
        sizes |= {f"p{d}": axis.count for d, axis in enumerate(axes)}
        sizes |= {"c": channels} | {f"r{d}": axis.window for d, axis in enumerate(axes)}
        order = [
            "n",
            "g",
            "f",
            *(f"p{d}" for d in range(self.rank)),
            "c",
            *(f"r{d}" for d in range(self.rank)),
        ]
        if self.layout.last:
            order.remove("f")
            order.insert(order.index("c"), "f")
        loops = [role for role in order if role == "n" or role[0] == "p" or sizes[role] != 1]
        dim = dict(zip(loops, to.dims(len(loops)), strict=True))
        spatial = [axis.subscript(dim[f"p{d}"], dim.get(f"r{d}", "0")) for d, axis in enumerate(axes)]
        conditions = [
            one for d, axis in enumerate(axes) for one in axis.conditions(dim[f"p{d}"], dim.get(f"r{d}", "0"))
        ]
        channel, filter_ = joined(dim, "g", "c", channels), joined(dim, "g", "f", filters)
        places = self.layout.of(dim["n"], filter_, [dim[f"p{d}"] for d in range(self.rank)])
        image = self.layout.of(dim["n"], channel, spatial)
        weight = (filter_, dim.get("c", "0"), *(dim.get(f"r{d}", "0") for d in range(self.rank)))
        to.assign(
            f"mac{n}",
            {dim[role]: sizes[role] for role in loops},
            f"{element(y, places)} += {element(x, image)} * {element(w, weight)}",
            conditions,
        )


def joined(dim: dict[str, str], group: str, inner: str, count: int) -> str:
    """The channel of a group: g * count + c, where dimensions of one value are left out.

    >>> joined({"g": "j", "c": "k"}, "g", "c", 4), joined({"c": "k"}, "g", "c", 4), joined({"g": "j"}, "g", "c", 1)
    ('4*j + k', 'k', 'j')
    """
    terms = [dim[group] if count == 1 else f"{count}*{dim[group]}"] if group in dim else []
    terms += [dim[inner]] if inner in dim else []
    return " + ".join(terms) or "0"
